"""Noisy linear imputation against the sparse system that its authors solve."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve

import patchlight as pl
import tiny
from metrics import hand
from patchlight.metrics._linear import NOISE, imputed

WEIGHTS = {(i, j): 1 / 6 if i == 0 or j == 0 else 1 / 12 for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j}


def solved(image: np.ndarray, hole: np.ndarray) -> np.ndarray:
    """Pixel by pixel: sum_j w_ij (u_i - u_j) = 0 over the neighbours inside the picture."""
    height, width = hole.shape
    number = {place: k for k, place in enumerate(zip(*np.nonzero(hole), strict=True))}
    entries, right = [], np.zeros((len(number), image.shape[0]))
    for (i, j), k in number.items():
        for (down, across), weight in WEIGHTS.items():
            near = (i + down, j + across)
            if not (0 <= near[0] < height and 0 <= near[1] < width):
                continue
            entries.append((k, k, weight))
            if near in number:
                entries.append((k, number[near], -weight))
            else:
                right[k] += weight * image[:, near[0], near[1]]
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_matrix((values, (rows, columns))).tocsc()
    found = image.copy()
    for (i, j), u in zip(number, np.asarray(spsolve(matrix, right)), strict=True):
        found[:, i, j] = u
    return found


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["blobs", "middle", "pixels"])
def test_the_hole_is_the_weighted_mean_of_its_neighbours(kind, share):
    draw = torch.Generator().manual_seed(0)
    size = (45, 60)
    image = F.interpolate(torch.randn(1, 3, 12, 15, generator=draw).double(), size=size, mode="bicubic")
    maps = {
        "blobs": F.interpolate(torch.rand(1, 1, 6, 8, generator=draw).double(), size=size, mode="bilinear")[0, 0],
        "middle": -((torch.arange(45)[:, None] - 20.0) ** 2 + (torch.arange(60)[None] - 33.0) ** 2).double(),
        "pixels": torch.rand(size, generator=draw).double(),
    }
    hole = maps[kind] > maps[kind].flatten().quantile(1 - share)
    expected = solved(image[0].numpy(), hole.numpy())
    found = imputed(image, hole[None], torch.zeros_like(image))[0].numpy()
    gap = np.abs(found - expected)[:, hole.numpy()]
    assert gap.max() < NOISE / 2
    assert np.sqrt((gap**2).mean()) < NOISE / 10
    assert (found[:, ~hole.numpy()] == image[0].numpy()[:, ~hole.numpy()]).all()
    more = imputed(image, hole[None], torch.zeros_like(image), steps=40)[0].numpy()
    np.testing.assert_allclose(more, expected, atol=1e-8)  # the same system, not one like it


def test_an_even_picture_stays_as_it_is_but_for_the_noise():
    image = torch.full((1, 3, 32, 32), 0.7, dtype=torch.float64)
    hole = torch.rand(1, 32, 32) < 0.6
    noise = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    found = imputed(image, hole, noise)
    torch.testing.assert_close(found, torch.where(hole[:, None], 0.7 + NOISE * noise, image), rtol=1e-9, atol=1e-9)


def test_the_score_is_the_gap_between_both_ends():
    subject, images = tiny.subject("vit"), tiny.pictures(count=2)
    maps = torch.rand(2, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    at = (0.2, 0.6)
    both = pl.evaluate(subject, images, maps, "road", at=at)
    lowest = pl.evaluate(subject, images, maps, "road", at=at, order="lowest")
    highest = pl.evaluate(subject, images, maps, "road", at=at, order="highest")
    torch.testing.assert_close(both.values, lowest.values - (1 - highest.values))
    image, order = images[0].numpy(), hand.order_of(maps[0].numpy(), highest=True)
    from patchlight.core.seeds import generator

    noise = torch.randn(3, 32, 32, generator=generator(images[0], 0)).double().numpy()
    whole = hand.answer(subject, [image])[0]
    for k, share in enumerate(at):
        hole = np.zeros(1024, dtype=bool)
        hole[order[: int(1024 * share)]] = True
        hole = hole.reshape(32, 32)
        p = hand.answer(subject, [np.where(hole, solved(image, hole) + NOISE * noise, image)])[0]
        assert float(highest.curve[0, k]) == pytest.approx(1 - p[whole.argmax()], abs=2e-3)
    right = pl.evaluate(subject, images, maps, "road", at=at, output="accuracy", order="lowest")
    assert set(right.curve.flatten().tolist()) <= {0.0, 1.0}
