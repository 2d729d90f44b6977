"""raw_attention = the row of one block's mean attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_vit import PLAIN, READOUTS, Case, agree

FUSE = {"mean": lambda rows: sum(rows) / len(rows), "max": lambda rows: rows.amax(0), "min": lambda rows: rows.amin(0)}


def reference(case: Case, *, block: int = -1, head_fusion: str = "mean", head: int | None = None) -> Tensor:
    maps = case.open().maps[block]
    rows = torch.stack([sum(case.row[i] * m[i] for i in range(len(m))) for m in maps])
    return rows[head] if head is not None else FUSE[head_fusion](rows)


SETTINGS = [{}, {"block": 0}, {"block": -2, "head_fusion": "max"}, {"head_fusion": "min"}, {"head": 1}, {"block": 1, "head": -2}]


@pytest.mark.parametrize("network", PLAIN)
def test_equals_its_equation(network):
    agree(reference, "raw_attention", network)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings(settings):
    agree(reference, "raw_attention", "vit", **settings)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(reference, "raw_attention", "vit_registers", readout=readout, block=1)
