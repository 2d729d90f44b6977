"""Masking methods against captum's occlusion and the authors' code of RISE, pytorch-grad-cam's Score-CAM, and ViT-CX."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from patchlight.methods.masking._grids import enlarging, seen_through


def test_occlusion(golden, agree):
    for picture, target, expected in golden.cases("captum_occlusion_w32_s16"):
        found = golden.explain("occlusion", picture, target, window=32, stride=16, score="logit")
        agree(found.pixels, expected, 1e-4)
        break  # one picture is 170 passes; the windows and weights of all are the same


def test_rise(golden, agree):
    drawn = golden.file("rise")
    grid, shift = torch.tensor(drawn["grid"]), torch.tensor(drawn["shift_xy"].astype(np.int64))
    table = enlarging(7, 8 * 32).float()
    masks = seen_through(grid, shift, [table, table], (224, 224))
    agree(golden.explain("rise", 0, 1, drawn=masks).pixels, drawn["img00_cls1"], 1e-4)


def test_score_cam(golden, agree):
    expected = golden.file("pgc_scorecam_norm1")
    found = golden.explain("score_cam", 0, 1, variant="softmax_logit", relu=False, insides=True)
    agree(found.tokens, expected["img00_cls1_raw14"], 1e-3)
    agree(found.insides["weights"], expected["img00_cls1_weights"], 1e-3)


def partition(labels: np.ndarray) -> np.ndarray:
    return labels[:, None] == labels[None]


@pytest.mark.parametrize("picture", [0, 1])
def test_vit_cx_without_noise(golden, agree, picture):
    labels = golden.file("vitcx_zero_noise")[f"img{picture:02d}_labels"]
    for own, target, expected in golden.cases("vitcx_zero_noise"):
        if own == picture and target is not None:
            found = golden.explain("vit_cx", picture, target, sigma=0.0, insides=True)
            agree(found.pixels, expected, 1e-3)
            assert np.array_equal(partition(found.insides["clusters"][0].numpy()), partition(labels))


@pytest.mark.parametrize(("picture", "target"), [(0, 1), (1, 207)])
def test_vit_cx_with_the_noise_of_the_original(golden, agree, picture, target):
    count = int(golden.file("vitcx_zero_noise")[f"img{picture:02d}_nclusters"])
    noise = torch.randn(count, 3, 224, 224, generator=torch.Generator().manual_seed(1000 + picture))
    found = golden.explain("vit_cx", picture, target, noise=noise)
    agree(found.pixels, golden.file("vitcx_seeded")[f"img{picture:02d}_cls{target}"], 1e-3)


@pytest.mark.parametrize("threshold", [0.05, 0.3])
def test_vit_cx_at_other_thresholds(golden, agree, threshold):
    expected = golden.file("vitcx_thresholds_img0")
    found = golden.explain("vit_cx", 0, 1, sigma=0.0, threshold=threshold, insides=True)
    agree(found.pixels, expected[f"img00_cls1_dt{threshold}"], 1e-3)
    assert np.array_equal(found.insides["clusters"][0].numpy(), expected[f"img00_dt{threshold}_labels"])


def test_vit_cx_shows_the_masks_and_distances_of_the_original(golden):
    expected = golden.file("vitcx_internals_img0")
    insides = golden.explain("vit_cx", 0, 1, sigma=0.0, insides=True).insides
    assert np.abs(insides["masks"][0].numpy() - expected["img00_masks"]).max() < 1e-3
    assert np.abs(insides["distances"][0].numpy() - expected["img00_distance"]).max() < 1e-3
