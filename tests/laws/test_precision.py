"""Half precision and autocast: the maps stay finite and near those of float64."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

import patchlight as pl
import tiny
from patchlight.core.registry import discover
from tiny import known, pictures, quick

NETWORKS = ("vit", "vit_map", "cait", "hf_vit", "torchvision_vit", "swin", "cnn")
# a bfloat16 has 8 bits, a float16 11: three blocks of tiny random networks, whose maps hold small differences of large terms
ALIKE = {torch.bfloat16: 0.97, torch.float16: 0.999}
every_pair = pytest.mark.parametrize(("network", "method"), tiny.pairs(*NETWORKS))


@cache
def narrow(network: str, dtype: torch.dtype) -> pl.Subject:
    return pl.load(tiny.fresh(network).to(dtype))


def cosine(one: Tensor, other: Tensor) -> float:
    return torch.nn.functional.cosine_similarity(one.double().flatten(), other.double().flatten(), dim=0).item()


def check(found: pl.Explanation, network: str, method: str, dtype: torch.dtype) -> None:
    """Against the same network in float64: its weights and pictures are values that every precision holds."""
    assert found.scores.dtype in (torch.float32, torch.float64)
    assert found.scores.isfinite().all()
    assert not any("overflowed" in note for note in found.notes)
    if not discover()[method].stochastic:
        assert cosine(found.scores, known(network, method).scores) > ALIKE[dtype]


def targets(network: str, method: str) -> list[int]:
    return known(network, method).target.tolist()


@every_pair
@pytest.mark.parametrize("dtype", ALIKE, ids=str)
def test_a_model_in_half_precision(network, method, dtype):
    found = pl.explain(narrow(network, dtype), pictures(network), method, targets(network, method), **quick(method))
    check(found, network, method, dtype)


@every_pair
def test_under_autocast(network, method):
    subject = narrow(network, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = pl.explain(subject, pictures(network), method, targets(network, method), **quick(method))
    check(found, network, method, torch.bfloat16)
