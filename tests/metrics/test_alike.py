"""How alike maps are, against scipy and scikit-image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from skimage.metrics import structural_similarity

import patchlight as pl
from patchlight.metrics.sanity import _alike as alike

draw = torch.Generator().manual_seed(0)
A = torch.randn(4, 20, 24, generator=draw, dtype=torch.float64)
B = 0.6 * A + torch.randn(4, 20, 24, generator=draw, dtype=torch.float64)


def test_rank_correlation_is_scipys():
    found, unsigned = alike.spearman(A, B), alike.absolute(A, B)
    for i in range(4):
        assert found[i].item() == pytest.approx(spearmanr(A[i].flatten(), B[i].flatten()).statistic, abs=1e-12)
        assert unsigned[i].item() == pytest.approx(spearmanr(A[i].abs().flatten(), B[i].abs().flatten()).statistic, abs=1e-12)


def test_ties_share_their_mean_rank():
    a, b = (A * 2).round(), (B * 2).round()
    assert len(a[0].unique()) < 20
    expected = spearmanr(a[0].flatten(), b[0].flatten()).statistic
    assert alike.spearman(a, b)[0].item() == pytest.approx(expected, abs=1e-12)


def test_the_sign_matters_to_one_and_not_to_the_other():
    assert alike.spearman(A, -A).tolist() == pytest.approx([-1] * 4)
    assert alike.absolute(A, -A).tolist() == pytest.approx([1] * 4)
    assert alike.spearman(A, A**3).tolist() == pytest.approx([1] * 4)


def test_structural_similarity_is_scikit_images():
    found = alike.ssim(A, B)
    for i in range(4):
        a, b = (((m - m.min()) / (m.max() - m.min())).numpy() for m in (A[i], B[i]))
        expected = structural_similarity(a, b, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1.0)
        assert found[i].item() == pytest.approx(float(expected), abs=1e-12)
    assert alike.ssim(A, 3 * A + 7).tolist() == pytest.approx([1] * 4)


def test_a_constant_map_is_like_nothing():
    flat = torch.ones_like(A)
    assert alike.spearman(A, flat).tolist() == [0] * 4
    assert (alike.ssim(A, flat) < 0.3).all()


def test_a_broken_map_has_no_number_and_spoils_no_other():
    broken = B.clone()
    broken[1, 3, 3] = torch.nan
    for measure, values in alike.every(A, broken, "spearman").items():
        assert values.isnan().tolist() == [False, True, False, False]
        assert values[2].item() == alike.MEASURES[measure](A, B)[2].item()


def test_a_first_map_that_says_nothing_is_not_praised_for_changing():
    first = A.clone()
    first[2] = 5.0
    for values in alike.every(first, B, "spearman").values():
        assert values.isnan().tolist() == [False, False, True, False]
    assert alike.every(B, first, "spearman")["spearman"][2] == 0


def test_small_maps_have_no_ssim():
    assert set(alike.every(A[:, :8, :8], B[:, :8, :8], "spearman")) == {"spearman", "absolute"}
    with pytest.raises(pl.PatchlightError, match="ssim looks through a window of 11 pixels, but the maps are 8 x 8"):
        alike.every(A[:, :8, :8], B[:, :8, :8], "ssim")


def test_float32_is_near_float64():
    for measure, values in alike.every(A.float(), B.float(), "ssim").items():
        assert np.allclose(values.numpy(), alike.every(A, B, "ssim")[measure].numpy(), atol=1e-4)
