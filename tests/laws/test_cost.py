"""`cost` is a claim: the pictures that pass forward and backward are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import patchlight as pl
import tiny
from patchlight.core.registry import Cost, discover
from tiny import Passes, counted, pairs, pictures, served, subject


def passes(network: str, methods: Any, count: int = 3, batch_size: int | None = None) -> Cost:
    """Passes for each picture."""
    held = subject(network)
    held.layout()
    with Passes().of(held.model) as seen:
        pl.compare(held, pictures(network, count), methods, batch_size=batch_size)
    return Cost(seen.forwards / count, seen.backwards / count)


@pytest.mark.parametrize(("network", "method"), pairs())
def test_cost_is_true(network, method):
    seen = counted(network, method)[1]
    chosen = discover()[method]
    assert Cost(seen.forwards / 3, seen.backwards / 3) == chosen.cost(chosen.resolve(tiny.quick(method)))


@pytest.mark.parametrize("method", [m.name for m in served("vit_mean")])
def test_cost_is_true_in_micro_batches(method):
    settings = {name: 2 * value for name, value in tiny.quick(method).items()}
    chosen = discover()[method]
    assert passes("vit_mean", {method: settings}, count=2, batch_size=1) == chosen.cost(chosen.resolve(settings))


OTHER = [
    ("tam", {"steps": 5}),
    ("tam", {"integrate": False}),
    ("tam", {"steps": 4, "chain": False}),
    ("integrated_gradients", {"steps": 7, "quadrature": "trapezoid"}),
    ("smooth_grad", {"samples": 6}),
    ("smooth_grad", {"noise": torch.zeros(4, 3, 32, 32)}),
    ("grad_cam", {"features": "attention", "block": 0}),
    ("ag_cam", {"gradient": "full"}),
    ("vtranm", {"gradient": "logit", "aggregate": False}),
    ("raw_attention", {"block": 1}),
    ("rollout", {"head_fusion": "separate"}),
]


@pytest.mark.parametrize(("method", "settings"), OTHER, ids=str)
def test_cost_of_other_settings_is_true(method, settings):
    chosen = discover()[method]
    assert passes("vit", {method: settings}) == chosen.cost(chosen.resolve(settings))


SHARED = {
    "raw_attention": {},
    "rollout": {},
    "tam": {"integrate": False},
    "grad_cam": {},
    "attcat": {},
    "transformer_mm": {},
    "grad_rollout": {},
    "vtranm": {"gradient": "logit"},
}
ADDED = [
    ({}, Cost(1, 1)),
    ({"vtranm p": {"method": "vtranm"}}, Cost(1, 2)),
    ({"ag_cam": {}}, Cost(1, 2)),
    ({"vtranm p": {"method": "vtranm"}, "ag_cam": {}, "ag_cam full": {"method": "ag_cam", "gradient": "full"}}, Cost(1, 3)),
    ({"random": {}, "centre": {}}, Cost(1, 1)),
]


@pytest.mark.parametrize("network", ["vit", "torchvision_vit", "cait"])
@pytest.mark.parametrize(("added", "expected"), ADDED, ids=lambda v: " + ".join(v) if isinstance(v, dict) else None)
def test_compare_shares_one_forward_pass_and_one_backward_pass_for_each_objective(network, added, expected):
    assert passes(network, SHARED | added) == expected


def test_compare_of_methods_that_read_attention_only_takes_no_backward_pass():
    assert passes("vit", ["raw_attention", "rollout", "attention_flow"]) == Cost(1, 0)
