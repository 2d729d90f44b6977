"""VTranM in float64 against an independent implementation of its paper's equations (no public code exists)."""

from __future__ import annotations

import pytest
import torch

ROWS = {
    "full_prob_residual": {},
    "full_logit_residual": {"gradient": "logit"},
    "full_prob_ln": {"reference": "norm"},
    "abl_AF": {"lengths": False, "directions": False},
    "abl_AF_logit": {"lengths": False, "directions": False, "gradient": "logit"},
    "abl_AF_L": {"directions": False},
    "abl_AF_L_initI": {"directions": False, "init": "identity"},
    "abl_baseline_block0": {"aggregate": False, "block": 0},
    "abl_baseline_lastblock": {"aggregate": False, "block": -1},
}


@pytest.mark.parametrize("row", ROWS)
def test_tokens_equal_golden(golden, agree, row):
    for picture, target, expected in golden.cases("tokentm_own", f"/{row}"):
        found = golden.explain("vtranm", picture, target, wide=True, **ROWS[row]).tokens[0]
        agree(found, expected, 1e-6)


def test_update_maps_equal_golden(golden, agree):
    """Two for each block, attention before MLP."""
    for picture, target, expected in golden.cases("tokentm_own", "/U_layers"):
        inside = golden.explain("vtranm", picture, target, wide=True, insides=True).insides["update"]
        found = torch.cat([inside[block][0] for block in range(12)])
        assert found.shape == (24, 197, 197)
        for one, other in zip(found, expected, strict=True):
            agree(one, other, 1e-6)
