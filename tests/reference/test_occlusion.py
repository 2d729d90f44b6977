"""Occlusion and patch interventions on a linear network, where every part's share is known, one window at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import patchlight as pl
import tiny
from tiny import close, pictures


class Additive(torch.nn.Module):
    """y_k = Σ w_k ⊙ x"""

    def __init__(self, size: tuple[int, int] = (18, 26)) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.weight = torch.nn.Parameter(torch.randn(4, 3, *size, generator=draw, dtype=torch.float64))
        self.img_size = size

    def forward(self, images: Tensor) -> Tensor:
        return torch.einsum("bchw,kchw->bk", images, self.weight)


@pytest.fixture(scope="module")
def additive() -> pl.Subject:
    return pl.load(Additive(), preprocess=pl.Preprocess(size=(18, 26), mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.5)))


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 18, 26, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def slow(share: Tensor, window: int, stride: int) -> Tensor:
    """The mean over windows that hide a pixel of what they hide, window by window; share (H, W) is each pixel's part of y."""
    height, width = share.shape
    total, times = torch.zeros_like(share), torch.zeros_like(share)
    top = 0
    while True:
        left = 0
        while True:
            place = slice(top, top + window), slice(left, left + window)
            total[place] += share[place].sum()
            times[place] += 1
            if left + window >= width:
                break
            left += stride
        if top + window >= height:
            break
        top += stride
    return total / times.clamp_min(1)


@pytest.mark.parametrize(("window", "stride"), [(6, 4), (6, 6), (5, 3), (1, 1), (40, 4), (4, 7)])
def test_occlusion_is_exact_on_an_additive_network(additive, window, stride):
    shown = images()
    found = pl.explain(additive, shown, "occlusion", 2, window=window, stride=stride, score="logit")
    for index, image in enumerate(shown):
        close(found.pixels[index], slow((additive.model.weight[2] * image).sum(0).detach(), window, stride), 1e-9)


MEAN, STD = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.5)))


def blurred(image: Tensor) -> Tensor:
    at = torch.arange(11, dtype=torch.float64) - 5
    kernel = (-(at[:, None] ** 2 + at**2) / 50).exp()
    return F.conv2d(F.pad(image[:, None], (5, 5, 5, 5), mode="reflect"), (kernel / kernel.sum())[None, None])[:, 0]


FILLS = {
    "mean": torch.zeros_like,
    "black": lambda image: (-MEAN / STD).expand_as(image),
    "blur": blurred,
    1.5: lambda image: torch.full_like(image, 1.5),
}


@pytest.mark.parametrize("fill", FILLS)
def test_what_hidden_pixels_become(additive, fill):
    shown = images(1)
    found = pl.explain(additive, shown, "occlusion", 1, window=6, stride=6, fill=fill, score="logit")
    share = (additive.model.weight[1] * (shown[0] - FILLS[fill](shown[0]))).sum(0).detach()
    close(found.pixels[0], slow(share, 6, 6), 1e-6 if fill == "black" else 1e-9)  # the preprocessing holds float32


def test_noise_is_each_pictures_own(additive):
    shown = images()
    options = {"window": 6, "stride": 6, "fill": "noise", "score": "logit"}
    whole = pl.explain(additive, shown, "occlusion", 1, **options)
    close(pl.explain(additive, shown[1:], "occlusion", 1, **options).pixels, whole.pixels[1:], 1e-10)
    other = pl.explain(additive, shown, "occlusion", 1, seed=1, **options)
    assert not torch.allclose(other.pixels, whole.pixels)


def test_occlusion_explains_the_probability_by_default():
    shown = pictures(count=1)
    found = tiny.explain("vit", "occlusion", shown, 3, window=16, stride=16, insides=True)
    with torch.no_grad():
        whole = tiny.subject("vit").model(shown).softmax(-1)[0, 3]
        hidden = shown.clone()
        hidden[..., 16:, :16] = 0
        fall = whole - tiny.subject("vit").model(hidden).softmax(-1)[0, 3]
    close(found.insides["fall"][0, 1, 0], fall, 1e-10)
    close(found.pixels[0, 20, 3], fall, 1e-10)


# -- patch interventions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["others", "one"])
@pytest.mark.parametrize("grid", [(3, 2), (18, 26), (4, 5)])
def test_interventions_are_exact_on_an_additive_network(additive, keep, grid):
    shown = images()
    found = pl.explain(additive, shown, "patch_intervention", 2, keep=keep, grid=grid, fill=0.5, score="logit", insides=True)
    rows, columns = (torch.tensor([i * cells // n for i in range(n)]) for n, cells in ((18, grid[0]), (26, grid[1])))
    for index, image in enumerate(shown):
        share = (additive.model.weight[2] * (image - 0.5)).sum(0).detach()
        part = torch.zeros(grid, dtype=torch.float64)
        for i in range(18):
            for j in range(26):
                part[rows[i], columns[j]] += share[i, j]
        close(found.tokens[index], part, 1e-9)
        close(found.insides["effect"][index], part if keep == "one" else -part, 1e-9)


def test_patches_are_those_of_the_network():
    shown = pictures("vit_non_square", 1)
    found = tiny.explain("vit_non_square", "patch_intervention", shown, 3)
    hidden = shown.clone()
    hidden[..., 8:16, 40:48] = 0
    with torch.no_grad():
        whole, without = (tiny.subject("vit_non_square").model(x).softmax(-1)[0, 3] for x in (shown, hidden))
    close(found.tokens[0, 1, 5], whole - without, 1e-9)


WRONG = [
    ("occlusion", {"stride": 0}, "occlusion: window and stride take 1 or more pixels, but 32 and 0 came"),
    ("occlusion", {"fill": float("inf")}, "occlusion: fill takes a finite number in normalised units, but inf came"),
    ("occlusion", {"fill": "blck"}, "occlusion: fill takes .* but 'blck' came. Did you mean 'black'"),
    ("patch_intervention", {"grid": (19, 2)}, r"patch_intervention: grid takes .* up to 18 x 26, but \(19, 2\) came"),
    ("patch_intervention", {"grid": (2.0, 2)}, r"patch_intervention: grid takes .* but \(2.0, 2\) came"),
]


@pytest.mark.parametrize(("method", "settings", "message"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_a_wrong_setting_is_an_error(additive, method, settings, message):
    with pytest.raises(pl.PatchlightError, match=message):
        pl.explain(additive, images(), method, **settings)
