"""Relevance in float64 against the authors' own code, and against published code for the conservative rules."""

from __future__ import annotations

import pytest

import patchlight as pl

CHEFER = {
    "lrp_full": ("lrp", {}),
    "lrp_full_oursrules": ("lrp", {"rules": "joint"}),
    "lrp_partial_last": ("partial_lrp", {}),
    "lrp_partial_last_oursrules": ("partial_lrp", {"rules": "joint"}),
    "lrp_last_ablation_grad": ("partial_lrp", {"rules": "joint", "gradient": True}),
    "lrp_second_layer": ("partial_lrp", {"rules": "joint", "block": 1}),
    "lrp_rollout": ("relevance_rollout", {}),
    "transattr_s0": ("transformer_attribution", {"start_block": 0}),
    "transattr_s1": ("transformer_attribution", {"start_block": 1}),
}
DETACHED = {
    "identity_pixels": {"activation": "identity", "at": "pixels"},
    "identity_tokens": {"activation": "identity", "at": "tokens"},
    "gradient_pixels": {"activation": "gradient", "at": "pixels"},
    "gradient_tokens": {"activation": "gradient", "at": "tokens"},
}


wide_or_not = pytest.mark.parametrize("wide", [True, False], ids=["float64 model", "float32 model"])


def together(golden, method, cases, *, wide, **settings):
    """All cases in one batch: the originals take one picture at a time and are wrong on more."""
    subject, images = (golden.wide, golden.images.double()) if wide else (golden.subject, golden.images)
    return pl.explain(subject, images[[c[0] for c in cases]], method, [c[1] for c in cases], insides=True, **settings)


@wide_or_not
@pytest.mark.parametrize("row", CHEFER)
def test_maps_of_chefer_et_al(golden, agree, row, wide):
    method, settings = CHEFER[row]
    maps = {key.partition("/")[2]: values for key, values in golden.file("chefer_float64").items() if key.startswith(f"{row}/")}
    cases = [tuple(int(part.strip("imgcls")) for part in key.split("_")) for key in maps]
    assert len(cases) == 4
    some = cases if wide else cases[::3]
    found = together(golden, method, some, wide=wide, **settings).scores
    for case, scores in zip(some, found, strict=True):
        agree(scores, list(maps.values())[cases.index(case)], 1e-5)


def test_every_relevance_map_of_chefer_et_al_is_compared(golden):
    rows = {key.partition("/")[0] for key in golden.file("chefer_float64")}
    assert rows - {"rollout_s0", "rollout_s1", "raw_attention_last", "gradcam_attn"} == set(CHEFER)


@wide_or_not
@pytest.mark.parametrize("row", DETACHED)
def test_conservative_maps(golden, agree, row, wide):
    cases = list(golden.cases("cplrp_own", f"/{row}"))[:: 1 if wide else 3]
    found = together(golden, "conservative_lrp", cases, wide=wide, **DETACHED[row])
    for index, (_, _, expected) in enumerate(cases):
        agree(found.scores[index], expected[-found.scores[index].numel() :] if found.tokens is not None else expected, 1e-6)
        if found.tokens is not None:
            agree(found.insides["tokens"][index], expected, 1e-6)  # the class token too


GAMMA = {"gamma_conv": 0.25, "gamma_linear": 0.05}


@pytest.mark.parametrize(
    ("file", "settings", "tolerance"),
    [("lxt_cplrp_float64", {}, 1e-6), ("lxt_gamma_float64", GAMMA, 1e-4)],
    ids=["plain", "gamma"],
)
@pytest.mark.parametrize("at", ["pixels", "tokens"])
def test_conservative_maps_of_lxt(golden, agree, file, settings, tolerance, at):
    cases = list(golden.cases(file, "" if at == "pixels" else "_tokens"))
    found = together(golden, "conservative_lrp", cases, wide=True, at=at, **settings)
    logits = golden.file(file)
    for index, (picture, target, expected) in enumerate(cases):
        agree(found.scores[index] if at == "pixels" else found.insides["tokens"][index], expected, tolerance)
        assert abs(found.conservation["received"][index].item() - logits[f"img{picture:02d}_cls{target}_logit"].item()) < 1e-9
