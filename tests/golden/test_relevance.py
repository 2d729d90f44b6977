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


@pytest.mark.parametrize("row", CHEFER)
def test_chefer(golden, agree, row):
    method, settings = CHEFER[row]
    for key, expected in golden.file("chefer_float64").items():
        name, _, case = key.partition("/")
        if name == row:
            picture, target = (int(part.strip("imgcls")) for part in case.split("_"))
            agree(golden.explain(method, picture, target, wide=True, **settings).scores[0], expected, 1e-5)
