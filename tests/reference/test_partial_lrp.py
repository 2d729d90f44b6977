"""partial_lrp = mean over heads of the positive relevance of one attention map, the row that feeds the head."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_relevance import JOINT, SEPARATE, relevance
from open_vit import PLAIN, READOUTS, Case, agree

CONDITIONED = 1e-7


def reference(case: Case, *, rules: str = "separate", block: int = -1, gradient: bool = False) -> Tensor:
    found = relevance(case, JOINT if rules == "joint" else SEPARATE).maps[block]
    if gradient:
        seen = case.open()
        found = found * seen.gradient([seen.maps[block]], case.target)[0]
    return case.row @ torch.relu(found).mean(0)


@pytest.mark.parametrize("rules", ["separate", "joint"])
@pytest.mark.parametrize("network", PLAIN)
def test_equals_its_equations(network, rules):
    agree(reference, "partial_lrp", network, tolerance=CONDITIONED, rules=rules)


@pytest.mark.parametrize(
    "settings", [{"block": 1}, {"block": 0, "gradient": True}, {"gradient": True, "rules": "joint"}], ids=str
)
def test_variants(settings):
    agree(reference, "partial_lrp", "vit", tolerance=CONDITIONED, **settings)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(reference, "partial_lrp", "vit_registers", tolerance=CONDITIONED, readout=readout, block=1)
