"""Relevance in float64 against the authors' own code, and against published code for the conservative rules."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("wide", [True, False], ids=["float64 model", "float32 model"])
@pytest.mark.parametrize("row", CHEFER)
def test_maps_of_chefer_et_al(golden, agree, row, wide):
    method, settings = CHEFER[row]
    cases = [(k.split("/")[1], v) for k, v in golden.file("chefer_float64").items() if k.split("/")[0] == row]
    assert len(cases) == 4
    for key, expected in cases if wide else cases[:1]:
        picture, target = (int(part.strip("imgcls")) for part in key.split("_"))
        agree(golden.explain(method, picture, target, wide=wide, **settings).scores, expected, 1e-5)


def test_every_relevance_map_of_chefer_et_al_is_compared(golden):
    rows = {key.partition("/")[0] for key in golden.file("chefer_float64")}
    assert rows - {"rollout_s0", "rollout_s1", "raw_attention_last", "gradcam_attn"} == set(CHEFER)


@pytest.mark.parametrize("wide", [True, False], ids=["float64 model", "float32 model"])
@pytest.mark.parametrize("row", DETACHED)
def test_conservative_maps(golden, agree, row, wide):
    settings, cases = DETACHED[row], list(golden.cases("cplrp_own", f"/{row}"))
    assert len(cases) == 4
    for picture, target, expected in cases if wide else cases[:1]:
        found = golden.explain("conservative_lrp", picture, target, wide=wide, insides=True, **settings)
        if settings["at"] == "tokens":
            agree(found.tokens, expected[1:], 1e-6)
            agree(found.insides["tokens"], expected, 1e-6)  # the class token too
        else:
            agree(found.pixels, expected, 1e-6)


GAMMA = {"gamma_conv": 0.25, "gamma_linear": 0.05}


@pytest.mark.parametrize(
    ("file", "settings", "tolerance"),
    [("lxt_cplrp_float64", {}, 1e-6), ("lxt_gamma_float64", GAMMA, 1e-4)],
    ids=["plain", "gamma"],
)
def test_conservative_maps_of_lxt(golden, agree, file, settings, tolerance):
    arrays = golden.file(file)
    for picture, target, expected in golden.cases(file):
        found = golden.explain("conservative_lrp", picture, target, wide=True, at="pixels", **settings)
        agree(found.pixels, expected, tolerance)
        assert abs(found.conservation["received"].item() - arrays[f"img{picture:02d}_cls{target}_logit"]) < 1e-9
    for picture, target, expected in golden.cases(file, "_tokens"):
        agree(
            golden.explain("conservative_lrp", picture, target, wide=True, at="tokens", **settings).tokens,
            expected[1:],
            tolerance,
        )
