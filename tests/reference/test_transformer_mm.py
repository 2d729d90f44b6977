"""transformer_mm = the product of I + mean_h [∇A ⊙ A]^+ as whole matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_vit import PLAIN, READOUTS, Case, agree


def reference(case: Case, *, start_block: int = 0) -> Tensor:
    seen = case.open()
    relevance = torch.eye(len(case.row), dtype=torch.float64)
    slopes = seen.gradient(seen.maps, case.target)
    for maps, slope in list(zip(seen.maps, slopes, strict=True))[start_block:]:
        relevance = relevance + torch.relu(slope * maps).mean(0) @ relevance
    return case.row @ relevance


@pytest.mark.parametrize("network", PLAIN)
def test_equals_the_matrix_product(network):
    agree(reference, "transformer_mm", network)


@pytest.mark.parametrize("start_block", [1, 2])
def test_start_block(start_block):
    agree(reference, "transformer_mm", "vit", start_block=start_block)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(reference, "transformer_mm", "vit_registers", readout=readout)
