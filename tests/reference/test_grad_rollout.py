"""grad_rollout in its intended form: mean over heads first, positive part, discard, then rolled out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_vit import PLAIN, READOUTS, Case, agree


def reference(case: Case, *, start_block: int = 0, discard: float = 0.0) -> Tensor:
    seen, n = case.open(), len(case.row)
    slopes = seen.gradient(seen.maps, case.target)
    product = torch.eye(n, dtype=torch.float64)
    for maps, slope in list(zip(seen.maps, slopes, strict=True))[start_block:]:
        fused = torch.relu((maps * slope).mean(0)).detach()
        order = fused.flatten().sort(stable=True).indices[: int(n * n * discard)]
        fused.view(-1)[order] = 0.0
        step = (fused + torch.eye(n, dtype=torch.float64)) / 2
        product = step / step.sum(1, keepdim=True) @ product
    return case.row @ product


@pytest.mark.parametrize("network", PLAIN)
def test_equals_the_matrix_product(network):
    agree(reference, "grad_rollout", network)


@pytest.mark.parametrize("settings", [{"start_block": 1}, {"discard": 0.6}, {"discard": 0.9}], ids=str)
def test_settings(settings):
    agree(reference, "grad_rollout", "vit_registers", **settings)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(reference, "grad_rollout", "vit_registers", readout=readout)
