"""Settings are checked: a value out of range is an error that names the method and says what it takes."""

from __future__ import annotations

import pytest
import torch

import patchlight as pl
import tiny
from patchlight.core.registry import discover
from tiny import close, explain, pictures, subject

WRONG = [
    ("rollout", {"start_blok": 1}, "rollout has no setting 'start_blok'. Did you mean 'start_block'"),
    ("rollout", {"head_fusion": "men"}, "rollout: head_fusion takes 'mean' .* but 'men' came. Did you mean 'mean'"),
    ("rollout", {"start_block": 1.5}, "rollout: start_block takes int, but 1.5 came.*See `patchlight methods rollout`"),
    ("rollout", {"start_block": True}, "rollout: start_block takes int, but True came"),
    ("rollout", {"discard": 1.0}, r"rollout: discard takes a share from 0 up to \(not including\) 1, but 1.0 came"),
    ("rollout", {"residual": -0.1}, "rollout: residual takes a share from 0"),
    ("grad_rollout", {"discard": 2}, "grad_rollout: discard takes a share from 0"),
    ("tam", {"steps": 1}, r"tam: steps takes 2 or more \(both ends of the path count\), but 1 came"),
    ("integrated_gradients", {"steps": 1}, "integrated_gradients: steps takes 2 or more, but 1 came"),
    ("integrated_gradients", {"baseline": float("nan")}, "integrated_gradients: baseline takes a finite number, but nan came"),
    ("smooth_grad", {"sigma": -1.0}, "smooth_grad: sigma takes 0 or more, but -1.0 came"),
    ("smooth_grad", {"samples": 0}, "smooth_grad: samples takes 1 or more, but 0 came"),
    ("smooth_grad", {"noise": torch.zeros(4, 3, 8, 8)}, r"noise takes \(m, 3, 32, 32\).*but \(4, 3, 8, 8\) came"),
    ("smooth_grad", {"noise": torch.zeros(3, 32, 32)}, r"noise takes \(m, 3, 32, 32\).*but \(3, 32, 32\) came"),
    ("smooth_grad", {"noise": torch.zeros(2, 4, 3, 32, 32)}, r"noise takes \(m, 3, 32, 32\).*but \(2, 4, 3, 32, 32\) came"),
    ("raw_attention", {"head": 2}, "raw_attention: head takes 0 to 1, but 2 came"),
    (
        "raw_attention",
        {"block": 3},
        "raw_attention: block 3 was asked for, but the model has 3 blocks. Give a number from -3 to 2",
    ),
    ("grad_cam", {"block": -4}, "grad_cam: block -4 was asked for, but the model has 3 blocks"),
    ("vtranm", {"block": 3, "aggregate": False}, "vtranm: block 3 was asked for"),
    (
        "raw_attention",
        {"readout": 17},
        r"readout takes None, 'class', 'mean', a token 0 to 16 or a patch \(row, column\), but 17 came",
    ),
    ("raw_attention", {"readout": (4, 0)}, r"readout: patch \(4, 0\) lies outside the grid of 4 x 4 patches"),
    ("raw_attention", {"readout": "patch"}, "readout takes int .* but 'patch' came"),
    ("conservative_lrp", {"gamma_linear": -0.5}, "conservative_lrp: gamma takes a number from 0 up, but -0.5 came"),
    ("attn_lrp", {"gamma_conv": float("inf")}, "attn_lrp: gamma takes a number from 0 up, but inf came"),
    ("transformer_mn", {}, "There is no method 'transformer_mn'. Did you mean 'transformer_mm'"),
]


@pytest.mark.parametrize(("method", "settings", "message"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_a_wrong_setting_is_an_error_that_says_what_would_do(method, settings, message):
    with pytest.raises(pl.PatchlightError, match=message):
        pl.explain(subject("vit"), pictures(), method, **settings)


STARTS = [m.name for m in discover().values() if "start_block" in m.settings]


@pytest.mark.parametrize("start_block", [3, 9, -4])
@pytest.mark.parametrize("method", STARTS)
def test_a_start_block_that_the_model_does_not_have_is_an_error(method, start_block):
    with pytest.raises(pl.PatchlightError, match=f"{method}: .*block {start_block} was asked for, but the model has 3 blocks"):
        explain("vit", method, start_block=start_block)


@pytest.mark.parametrize("method", STARTS)
def test_a_negative_start_block_counts_from_the_end(method):
    found = explain("vit", method, start_block=-2)
    assert torch.equal(found.scores, explain("vit", method, start_block=1).scores)


READERS = [m.name for m in discover().values() if "readout" in m.settings and m in tiny.served("vit_no_prefix")]


@pytest.mark.parametrize("method", READERS)
def test_the_class_token_of_a_network_without_one_is_an_error(method):
    settings = {"features": "attention"} if method == "grad_cam" else {}
    with pytest.raises(pl.PatchlightError, match="readout='class': the model has no class token"):
        explain("vit_no_prefix", method, readout="class", **settings)


def test_no_methods_at_all_is_an_error():
    with pytest.raises(pl.PatchlightError, match="no methods came"):
        pl.compare(subject("vit"), pictures(), [])


# -- blocks that do not join all tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["swin", "hf_swin", "torchvision_swin"])
@pytest.mark.parametrize(("method", "settings"), [("raw_attention", {}), ("grad_cam", {"features": "attention"})])
def test_the_attention_of_a_windowed_block_is_an_error(network, method, settings):
    with pytest.raises(pl.PatchlightError, match="does not join all tokens with one map: it attends within windows"):
        explain(network, method, block=0, **settings)


@pytest.mark.parametrize("network", ["hf_swin", "torchvision_swin"])
def test_where_the_last_block_joins_all_tokens_another_block_is_advised(network):
    with pytest.raises(pl.PatchlightError, match=r"raw_attention: block .* attends within windows\. Choose a block that does"):
        explain(network, "raw_attention", block=0)


def test_the_attention_of_a_last_block_with_windows_is_an_error():
    with pytest.raises(pl.PatchlightError, match="attends within windows"):
        explain("swin", "grad_cam", features="attention")


@pytest.mark.parametrize("network", ["swin", "hf_swin", "torchvision_swin"])
def test_grad_cam_on_tokens_of_an_earlier_stage_lies_on_its_grid(network):
    assert explain(network, "grad_cam", block=0).tokens.shape == (3, 8, 8)


# -- finite whatever is dropped ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["vit", "vit_no_prefix", "vit_map", "cait"])
@pytest.mark.parametrize("settings", [{"residual": 0.0, "discard": 0.9}, {"discard": 0.95, "head_fusion": "min"}], ids=str)
def test_rollout_stays_finite_when_whole_rows_are_dropped(network, settings):
    assert explain(network, "rollout", **settings).tokens.isfinite().all()


@pytest.mark.parametrize("target", range(tiny.CLASSES))
@pytest.mark.parametrize("network", ["vit", "vit_map", "cait"])
def test_grad_rollout_stays_finite_where_no_gradient_is_positive(network, target):
    assert explain(network, "grad_rollout", target=target, discard=0.9).tokens.isfinite().all()


def test_noise_for_each_picture_stays_with_its_picture_in_micro_batches():
    noise = 0.3 * torch.randn(3, 4, 3, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whole = explain("vit", "smooth_grad", noise=noise)
    for size in (1, 2):
        close(explain("vit", "smooth_grad", noise=noise, batch_size=size).pixels, whole.pixels, 1e-10)
