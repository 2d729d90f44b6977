"""tam = a chain of states by whole matrices, gated by the last block's gradient along a path from zero."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_vit import PLAIN, READOUTS, Case, agree


def reference(
    case: Case, *, start_block: int | None = None, steps: int = 20, integrate: bool = True, chain: bool = True
) -> Tensor:
    maps = [m.mean(0) for m in case.open().maps]
    start = round(len(maps) / 3) if start_block is None else start_block
    state = case.row @ maps[-1]
    for fused in reversed(maps[start:-1] if chain else []):
        state = state @ (fused + torch.eye(len(fused), dtype=torch.float64))
    shares = [k / (steps - 1) for k in range(steps)] if integrate else [1.0]
    total = torch.zeros_like(case.open().maps[-1])
    for share in shares:
        point = case.open(case.image * share)
        total = total + point.gradient([point.maps[-1]], case.target)[0]
    gate = torch.einsum("q,hqk->hk", case.row, (total / len(shares)).clamp_min(0)).mean(0)
    return state * gate


SETTINGS = [{"start_block": 0}, {"start_block": 2}, {"steps": 2}, {"steps": 7}, {"integrate": False}, {"chain": False}]


@pytest.mark.parametrize("network", PLAIN)
def test_equals_its_equations(network):
    agree(reference, "tam", network, steps=4)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings(settings):
    agree(reference, "tam", "vit", **{"steps": 4, **settings})


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(reference, "tam", "vit_registers", steps=3, readout=readout)
