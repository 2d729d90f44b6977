"""RISE from its paper, on a network whose answer is known: the error falls like 1/sqrt(N), and the standard error tells it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from tiny import close, pictures


class Linear(nn.Module):
    """y_k = Σ w_k ⊙ x: what each pixel does is known."""

    def __init__(self, size: int = 16, classes: int = 3) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(5)
        self.weight = nn.Parameter(torch.randn(classes, 3, size, size, generator=draw, dtype=torch.float64))
        self.img_size = (size, size)

    def forward(self, images: Tensor) -> Tensor:
        return torch.einsum("bchw,kchw->bk", images, self.weight)


@pytest.fixture(scope="module")
def linear() -> pl.Subject:
    return pl.load(Linear())


def images(count: int = 2, size: int = 16) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def slow_masks(grids: np.ndarray, shifts: np.ndarray, size: int) -> np.ndarray:
    """One number at a time: a cell's weight falls linearly with the distance from its centre, mirrored at the outer centres."""
    cells = grids.shape[1]
    step = -(-size // cells)
    big = (cells + 1) * step
    masks = np.zeros((len(grids), size, size))
    for k, (grid, (down, across)) in enumerate(zip(grids, shifts, strict=True)):
        for i in range(size):
            for j in range(size):
                for row in range(cells):
                    for column in range(cells):
                        weight = near((i + down + 0.5) * cells / big - 0.5, row, cells)
                        masks[k, i, j] += weight * near((j + across + 0.5) * cells / big - 0.5, column, cells) * grid[row, column]
    return masks


def near(at: float, cell: int, cells: int) -> float:
    at = abs(at) if at < cells - 1 else 2 * (cells - 1) - at
    return max(0.0, 1 - abs(at - cell))


def test_masks_one_number_at_a_time():
    from patchlight.methods.masking._grids import enlarging, seen_through

    draw = np.random.default_rng(0)
    grids, shifts = draw.random((3, 4, 4)) < 0.5, draw.integers(0, 3, (3, 2))
    table = enlarging(4, 5 * 3)
    found = seen_through(torch.tensor(grids), torch.tensor(shifts), [table, table], (12, 12))
    close(found, torch.tensor(slow_masks(grids, shifts, 12)), 1e-12)


def test_equals_the_formula_with_masks_of_ones_own():
    masks = torch.rand(6, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model, shown = tiny.subject("vit").model, pictures(count=2)
    found = tiny.explain("vit", "rise", shown, 3, drawn=masks, keep=0.25)
    for index, image in enumerate(shown):
        with torch.no_grad():
            share = model(image * masks[:, None]).softmax(-1)[:, 3]
        close(found.pixels[index], (share[:, None, None] * masks).sum(0) / (6 * 0.25), 1e-10)
        samples = share[:, None, None] * masks / 0.25
        close(found.error[index], samples.std(0) / 6**0.5, 1e-8)
    assert found.samples.tolist() == [6, 6]


def test_masks_of_each_picture_stay_with_it_in_micro_batches():
    masks = torch.rand(3, 4, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole = tiny.explain("vit", "rise", drawn=masks)
    close(tiny.explain("vit", "rise", drawn=masks, batch_size=2).pixels, whole.pixels, 1e-10)
    close(tiny.explain("vit", "rise", pictures()[2:], drawn=masks[2:]).pixels, whole.pixels[2:], 1e-10)


def test_the_error_falls_like_one_over_the_root_of_the_samples(linear):
    options = {"score": "logit", "cells": 4, "batch_size": 64}
    limit = pl.explain(linear, images(), "rise", 1, samples=40_000, seed=99, **options).pixels
    counts, errors = (100, 1600), []
    for count in counts:
        off = [pl.explain(linear, images(), "rise", 1, samples=count, seed=s, **options) for s in range(4)]
        real = torch.stack([(e.pixels - limit).square().mean() for e in off]).mean().sqrt()
        told = torch.stack([e.error.square().mean() for e in off]).mean().sqrt()
        assert 0.8 < real / told < 1.25  # the standard error is what the error is
        errors.append(real)
    assert 3 < errors[0] / errors[1] < 5.3  # sqrt(16) = 4


def test_until_ends_the_sampling_of_each_picture_by_itself(linear):
    shown = images(3)
    shown[1] *= torch.linspace(0, 3, 16)  # a picture with a clearer map
    options = {"score": "logit", "cells": 4, "samples": 6000, "until": 0.06}
    found = pl.explain(linear, shown, "rise", 1, **options)
    taken = found.samples.tolist()
    assert len(set(taken)) > 1
    assert all(n % 250 == 0 and n < 6000 for n in taken)
    extent = found.pixels.flatten(1).amax(1) - found.pixels.flatten(1).amin(1)
    assert (found.error.flatten(1).square().mean(1).sqrt() / extent <= 0.06).all()
    for i in range(3):
        alone = pl.explain(linear, shown[i : i + 1], "rise", 1, batch_size=7, **options)
        assert alone.samples.tolist() == [taken[i]]
        close(alone.pixels, found.pixels[i : i + 1], 1e-10)


def test_an_error_that_stays_too_large_is_told(linear):
    found = pl.explain(linear, images(1), "rise", 1, samples=20, until=0.001)
    assert "picture 0: relative standard error" in found.notes[0]
    assert "after all 20 masks, above until=0.001" in found.notes[0]


def test_the_record_and_the_file_tell_samples_and_error(linear, tmp_path):
    found = pl.explain(linear, images(), "rise", 1, samples=5)
    assert found.record()["samples"] == [5, 5]
    with np.load(found.save(tmp_path / "x")) as stored:
        assert np.array_equal(stored["error"], found.error.numpy())


WRONG = [
    ({"samples": 1}, "rise: samples and cells take 2 or more, but 1 and 7 came"),
    ({"keep": 1.0}, "rise: keep takes a share between 0 and 1, but 1.0 came"),
    ({"until": 0.0}, "until takes a relative standard error above 0, such as 0.05, but 0.0 came"),
    ({"drawn": torch.zeros(2, 8, 8)}, r"rise: drawn takes masks \(m, 16, 16\) or \(2, m, 16, 16\), but \(2, 8, 8\) came"),
    ({"drawn": torch.full((2, 16, 16), torch.nan)}, "rise: drawn takes masks of finite numbers, but some of these are not"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_a_wrong_setting_is_an_error(linear, settings, message):
    with pytest.raises(pl.PatchlightError, match=message):
        pl.explain(linear, images(), "rise", **settings)
