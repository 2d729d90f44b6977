"""Gradient methods against the authors' own code and captum on DeiT-tiny; tolerances are those of golden/README.md."""

from __future__ import annotations

import numpy as np
import pytest
import torch

ROWS = [
    ("pgc_gradcam_norm1", "_raw14", "grad_cam", {"features": "tokens", "relu": False}),
    ("gae_transformer_mm", "", "transformer_mm", {}),
    ("agcam", "", "ag_cam", {"gradient": "skip"}),
    ("attcat_vit", "", "attcat", {}),
]


@pytest.mark.parametrize(("file", "suffix", "method", "settings"), ROWS, ids=[r[0] for r in ROWS])
def test_tokens_equal_golden(golden, agree, file, suffix, method, settings):
    for picture, target, expected in golden.cases(file, suffix):
        agree(golden.explain(method, picture, target, **settings).tokens[0], expected, 1e-4)


def test_grad_cam_on_attention_equals_chefer_after_min_max(golden, agree):
    for picture, target, expected in golden.cases("chefer_gradcam_attn"):
        tokens = golden.explain("grad_cam", picture, target, features="attention").tokens[0]
        agree((tokens - tokens.min()) / (tokens.max() - tokens.min()), expected, 1e-4)


def test_attcat_block_maps_equal_golden(golden, agree):
    for picture, target, expected in golden.cases("attcat_vit", "_perlayer_alltokens"):
        inside = golden.explain("attcat", picture, target, insides=True).insides["block map"]
        agree(torch.cat([inside[block] for block in range(12)]), expected, 1e-4)


# -- captum -----------------------------------------------------------------------------------------------------------


def test_saliency_is_the_largest_absolute_gradient_of_captum(golden, agree):
    for picture, target, expected in golden.cases("captum_saliency"):
        agree(golden.explain("saliency", picture, target).pixels[0], np.abs(expected).max(0), 1e-4)


def test_input_x_gradient_is_the_channel_sum_of_captum(golden, agree):
    for picture, target, expected in golden.cases("captum_input_x_gradient"):
        agree(golden.explain("input_x_gradient", picture, target).pixels[0], expected.sum(0), 1e-4)


RULES = [("", {"steps": 50}), ("_black_trap20", {"steps": 20, "baseline": -1.0, "quadrature": "trapezoid"})]


@pytest.mark.parametrize(("suffix", "settings"), RULES, ids=["gauss", "trapezoid"])
def test_integrated_gradients_and_their_completeness_gap_equal_captum(golden, agree, suffix, settings):
    file = golden.file("captum_ig")
    for picture, target, expected in golden.cases("captum_ig", suffix):
        found = golden.explain("integrated_gradients", picture, target, insides=True, batch_size=8, **settings)
        agree(found.pixels[0], expected.sum(0), 1e-3)
        # two float32 logits near 10 and a float32 sum of 150528 signed terms
        gap = file[f"delta_img{picture:02d}_cls{target}{suffix}"].item()
        assert found.insides["completeness gap"].item() == pytest.approx(gap, abs=1e-4)


def test_smooth_grad_with_given_noise_equals_captum(golden, agree):
    noise = torch.tensor(golden.file("captum_smoothgrad")["img00_noisy"])
    for picture, target, expected in golden.cases("captum_smoothgrad"):
        found = golden.explain("smooth_grad", picture, target, noise=noise, insides=True)
        agree(found.insides["gradient"][0], expected, 1e-4)
