"""lime: against the authors' algorithm written out, on patches and on superpixels; exact on a linear model; its errors."""

from __future__ import annotations

import sys
from math import exp, sqrt

import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.core.seeds import generator
from tiny import close, pictures, subject

SAMPLES = 60


def hidden(image: Tensor, regions: Tensor, kept: Tensor) -> Tensor:
    """Each missing segment in its own mean colour."""
    found = image.clone()
    for segment in range(int(regions.max()) + 1):
        if not kept[segment]:
            inside = regions == segment
            found[:, inside] = image[:, inside].mean(1, keepdim=True)
    return found


def reference(held: pl.Subject, image: Tensor, regions: Tensor, target: int, seed: int = 0) -> Tensor:
    """(segments,) weighted ridge as scikit-learn does it: everything centred on its weighted mean, the intercept free."""
    count = int(regions.max()) + 1
    drawn = torch.rand(SAMPLES, count, generator=generator(image, seed), dtype=torch.float64) < 0.5
    rows = torch.cat([torch.ones(1, count), drawn.double()])
    values, weights = [], []
    for row in rows:
        with torch.no_grad():
            values.append(float(held.forward(hidden(image, regions, row > 0)[None]).softmax(-1)[0, target]))
        distance = 1 - float(row.sum()) / (sqrt(float(row.sum())) * sqrt(count)) if row.any() else 1.0
        weights.append(sqrt(exp(-(distance**2) / 0.25**2)))
    y, w = torch.tensor(values, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)
    x = rows.double() - (w[:, None] * rows).sum(0) / w.sum()
    y = y - (w * y).sum() / w.sum()
    return torch.linalg.solve(x.T @ torch.diag(w) @ x + torch.eye(count).double(), x.T @ (w * y))


@pytest.mark.parametrize("network", ["vit", "vit_non_square", "swin"])
def test_patches(network):
    images, grid = pictures(network, 2), tiny.KINDS[network].grid
    size = images.shape[-2] // grid[0]
    regions = torch.arange(grid[0] * grid[1]).view(grid).repeat_interleave(size, 0).repeat_interleave(size, 1)
    found = pl.explain(subject(network), images, "lime", 3, samples=SAMPLES)
    expected = torch.stack([reference(subject(network), image, regions, 3).view(grid) for image in images])
    close(found.tokens, expected, 1e-8)


def blobs(count: int = 2) -> Tensor:
    """Pictures with edges, which superpixels can follow."""
    down, across = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    ways = [((down + 2 * across) / 12).sin() > 0, (down - 16).square() + (across - 12).square() < 90]
    return torch.stack([torch.stack([w.double(), 1 - w.double(), down.double() / 32]) for w in ways[:count]])


def test_superpixels():
    found = pl.explain(subject("vit"), blobs(), "lime", 3, samples=SAMPLES, segments="superpixels", count=12, insides=True)
    regions = found.insides["superpixels"]
    assert found.tokens is None
    for image, labels, pixels, error in zip(blobs(), regions, found.pixels, found.error, strict=True):
        count = int(labels.max()) + 1
        assert 4 <= count <= 24
        assert labels.unique().tolist() == list(range(count))
        close(pixels, reference(subject("vit"), image, labels, 3)[labels], 1e-8)
        assert error.shape == pixels.shape
        assert (error > 0).all()
        # SLIC follows edges: the first channel, which has them, varies less within segments than over the picture
        within = (
            sum(float(image[0][labels == s].var(correction=0)) * float((labels == s).sum()) for s in range(count))
            / labels.numel()
        )
        assert within < 0.5 * float(image[0].var(correction=0))


def test_pictures_with_other_numbers_of_superpixels_are_as_if_alone():
    settings = {"samples": 20, "segments": "superpixels", "count": 12}
    together = pl.explain(subject("vit"), blobs(), "lime", 3, **settings, insides=True)
    counts = together.insides["superpixels"].flatten(1).amax(1)
    assert counts[0] != counts[1]
    for i in range(2):
        alone = pl.explain(subject("vit"), blobs()[i : i + 1], "lime", 3, **settings)
        close(alone.pixels, together.pixels[i : i + 1], 1e-10)


class Additive(nn.Module):
    """Two logits; the first is a weighted sum of the means of the 16 patches."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, generator=torch.Generator().manual_seed(3), dtype=torch.float64))
        self.image_size = 32

    def forward(self, images: Tensor) -> Tensor:
        means = images.unflatten(3, (4, 8)).unflatten(2, (4, 8)).mean((1, 3, 5)).flatten(1)
        return torch.stack([means @ self.weight, means.sum(1)], 1)


def test_without_ridge_a_linear_model_is_found_exactly():
    model = Additive()
    found = pl.explain(model, pictures(count=2), "lime", 0, samples=80, grid=(4, 4), ridge=0.0, score="logit", fill="mean")
    means = pictures(count=2).unflatten(3, (4, 8)).unflatten(2, (4, 8)).mean((1, 3, 5))
    close(found.tokens, means * model.weight.detach().view(4, 4), 1e-7)
    assert found.error.max() < 1e-7


def test_errors_are_true():
    """Over 40 seeds the stated error equals the spread of the coefficients."""
    runs = [pl.explain(subject("vit"), pictures(count=2), "lime", 3, samples=100, grid=(2, 3), seed=s) for s in range(40)]
    found, errors = torch.stack([r.tokens for r in runs]), torch.stack([r.error for r in runs])
    ratio = errors.square().mean(0).sqrt() / found.std(0)
    assert 0.8 < ratio.mean() < 1.25, ratio


def test_until_ends_the_sampling():
    found = pl.explain(subject("vit"), pictures(count=2), "lime", 3, samples=20_000, grid=(2, 3), until=0.03)
    assert (found.samples < 20_000).all()
    extent = found.tokens.flatten(1).amax(1) - found.tokens.flatten(1).amin(1)
    assert (found.error.flatten(1).square().mean(1).sqrt() <= 0.03 * extent).all()


WRONG = [
    ({"width": 0.0}, "lime: width takes more than 0, ridge 0 or more, samples 2 or more, but 0.0, 1.0 and 1000 came"),
    ({"ridge": -1.0}, "but 0.25, -1.0 and 1000 came"),
    ({"grid": (40, 2)}, r"lime: grid takes \(rows, columns\) from 2 cells up to 32 x 32"),
    ({"segments": "superpixels", "count": 1}, "lime: count takes 2 or more, compactness more than 0, but 1 and 10.0 came"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=str)
def test_wrong_settings_say_what_would_do(settings, message):
    with pytest.raises(pl.PatchlightError, match=message):
        pl.explain(subject("vit"), pictures(), "lime", **settings)


def test_a_picture_of_one_colour_has_no_superpixels():
    with pytest.raises(pl.PatchlightError, match=r"a picture has only one superpixel\. Give a larger count"):
        pl.explain(subject("vit"), torch.zeros(1, 3, 32, 32).double(), "lime", segments="superpixels", count=2, compactness=1e-9)


def test_without_scikit_image_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    with pytest.raises(pl.PatchlightError, match=r"needs scikit-image, which is not installed.*pip install 'patchlight\[lime\]'"):
        pl.explain(subject("vit"), pictures(), "lime", segments="superpixels")
