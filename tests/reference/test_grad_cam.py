"""grad_cam on tokens (pytorch-grad-cam) and on attention (Chefer): features weighted by their mean gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_vit import PLAIN, READOUTS, Case, agree


def reference(case: Case, *, features: str = "tokens", block: int = -1, relu: bool = True) -> Tensor:
    seen, first = case.open(), case.model.num_prefix_tokens
    total: Tensor | float = 0.0
    if features == "tokens":
        tokens = seen.normed[block]
        gradient = seen.gradient([tokens], case.target)[0][first:]
        for k in range(tokens.shape[1]):
            total = total + gradient[:, k].mean() * tokens[first:, k]
    else:
        maps = seen.maps[block]
        gradient = seen.gradient([maps], case.target)[0]
        for one, slope in zip(maps, gradient, strict=True):
            total = total + (case.row @ slope)[first:].mean() * (case.row @ one)[first:] / len(maps)
    assert isinstance(total, Tensor)
    return torch.relu(total) if relu else total


@pytest.mark.parametrize("network", PLAIN)
@pytest.mark.parametrize("features", ["tokens", "attention"])
def test_equals_its_equation(network, features):
    agree(reference, "grad_cam", network, features=features, relu=False)


@pytest.mark.parametrize("features", ["tokens", "attention"])
@pytest.mark.parametrize("settings", [{"block": 0}, {"block": 1, "relu": False}, {"relu": True}], ids=str)
def test_settings(features, settings):
    agree(reference, "grad_cam", "vit_mean", features=features, **settings)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(reference, "grad_cam", "vit_registers", features="attention", relu=False, readout=readout)
