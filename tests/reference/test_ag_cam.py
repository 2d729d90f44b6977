"""ag_cam: positive gradients times the sigmoid of the scores; "skip" on a model whose attention inputs are cut off."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_vit import PLAIN, READOUTS, Case, agree

FUSE = {"sum": lambda r: r.sum(0), "mean": lambda r: r.mean(0), "max": lambda r: r.amax(0)}


def reference(case: Case, *, gradient: str = "skip", head_fusion: str = "sum") -> Tensor:
    seen = case.open(detached=gradient == "skip")
    slopes = seen.gradient(seen.maps, case.target)
    total = torch.zeros(len(case.row), dtype=torch.float64)
    for slope, scores in zip(slopes, seen.scores, strict=True):
        product = torch.relu(slope) / (1 + torch.exp(-scores))  # (h, n, n)
        total = total + FUSE[head_fusion](torch.einsum("q,hqk->hk", case.row, product))
    return total


@pytest.mark.parametrize("network", PLAIN)
@pytest.mark.parametrize("gradient", ["skip", "full"])
def test_equals_its_equation(network, gradient):
    agree(reference, "ag_cam", network, gradient=gradient)


@pytest.mark.parametrize("head_fusion", FUSE)
def test_head_fusion(head_fusion):
    agree(reference, "ag_cam", "vit", head_fusion=head_fusion)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(reference, "ag_cam", "vit_registers", readout=readout)
