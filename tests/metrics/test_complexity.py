"""How concentrated a map is, on maps whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch

import patchlight as pl
import tiny


def score(metric: str, *maps: torch.Tensor) -> pl.Score:
    images = tiny.pictures("vit")[: len(maps)]
    return pl.evaluate(tiny.subject("vit"), images, torch.stack(maps), metric=metric)


def pixels(count: int, value: float = 1.0) -> torch.Tensor:
    flat = torch.zeros(32 * 32, dtype=torch.float64)
    flat[:count] = value
    return flat.view(32, 32)


N = 32 * 32
HALF = torch.cat([pixels(N)[:16] * 3, -pixels(N)[16:]])  # signs do not count, sizes do


@pytest.mark.parametrize(
    ("metric", "one", "some", "all_alike"),
    [
        ("sparseness", 1 - 1 / N, 1 - 100 / N, 0.0),
        ("entropy", 0.0, math.log(100), math.log(N)),
        ("effective_size", 1 / N, 100 / N, 1.0),
    ],
)
def test_m_equal_pixels_among_n(metric, one, some, all_alike):
    found = score(metric, pixels(1), pixels(100, -7.0), pixels(N, 1e-30))
    assert found.values.tolist() == pytest.approx([one, some, all_alike], abs=1e-9)


def test_unequal_pixels():
    # half of the pixels have 3/4 of the sum: Gini = 1/4, H = log n - (3/4 log 3/2 + 1/4 log 1/2), 1/(n sum p^2) = 4/5
    assert score("sparseness", HALF).values.item() == pytest.approx(0.25)
    assert score("entropy", HALF).values.item() == pytest.approx(math.log(N) - 0.75 * math.log(1.5) - 0.25 * math.log(0.5))
    assert score("effective_size", HALF).values.item() == pytest.approx(0.8)


def test_the_gini_index_by_its_other_definition():
    """Half the mean difference of all pairs, over the mean: another way to the same number."""
    map_ = torch.randn(32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a = map_.abs().flatten()
    expected = (a[:, None] - a[None]).abs().mean() / (2 * a.mean())
    assert score("sparseness", map_).values.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("metric", ["sparseness", "entropy", "effective_size"])
def test_a_map_of_zeros_has_no_number(metric):
    found = score(metric, pixels(0), pixels(5))
    assert found.values.isnan().tolist() == [True, False]
    assert "1 maps are zero everywhere: no value" in found.notes
