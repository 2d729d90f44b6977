"""rollout = the product of whole row-normalised matrices, the last block on the left."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_vit import PLAIN, READOUTS, Case, agree

FUSE = {"mean": lambda m: m.mean(0), "max": lambda m: m.amax(0), "min": lambda m: m.amin(0)}


def drop(fused: Tensor, share: float, protect: int) -> Tensor:
    """The floor(n² share) smallest entries of the open columns become 0."""
    n, fused = len(fused), fused.clone()
    places = sorted((fused[i, j].item(), i, j) for i in range(n) for j in range(protect, n))
    for _, i, j in places[: int(n * n * share)]:
        fused[i, j] = 0.0
    return fused


def rolled(maps: list[Tensor], residual: float) -> Tensor:
    product = torch.eye(len(maps[0]), dtype=torch.float64)
    for fused in maps:
        step = (1 - residual) * fused + residual * torch.eye(len(fused), dtype=torch.float64)
        product = step / step.sum(1, keepdim=True) @ product
    return product


def reference(
    case: Case, *, start_block: int = 0, head_fusion: str = "mean", discard: float = 0.0, residual: float = 0.5
) -> Tensor:
    maps = case.open().maps[start_block:]
    protect = case.model.num_prefix_tokens
    heads = [list(m) if head_fusion == "separate" else [FUSE[head_fusion](m)] for m in maps]  # block -> fused maps
    every = [rolled([drop(m, discard, protect) for m in chain], residual) for chain in zip(*heads, strict=True)]
    return case.row @ (sum(every) / len(every))


SETTINGS = [
    *({"head_fusion": f} for f in ("max", "min", "separate")),
    {"start_block": 1},
    {"start_block": 2, "head_fusion": "separate"},
    {"residual": 0.2},
    {"residual": 0.0},
    {"discard": 0.5},
    {"discard": 0.9, "head_fusion": "max"},
    {"discard": 0.3, "head_fusion": "separate", "residual": 0.7},
]


@pytest.mark.parametrize("network", PLAIN)
def test_equals_the_matrix_product(network):
    agree(reference, "rollout", network)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings(settings):
    agree(reference, "rollout", "vit_registers", **settings)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(reference, "rollout", "vit_registers", readout=readout)


def test_rows_sum_to_one_after_every_step():
    import tiny

    inside = tiny.explain("vit", "rollout", insides=True, discard=0.4, head_fusion="max").insides["partial product"]
    assert sorted(inside) == [0, 1, 2]
    for row in inside.values():
        tiny.close(row.sum(-1), torch.ones(3), 1e-12)
