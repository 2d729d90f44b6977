"""`cost` is a claim: the pictures that pass forward and backward are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import patchlight as pl
import tiny
from patchlight.core.registry import Cost, discover
from tiny import Passes, counted, pairs, pictures, served, subject


def passes(network: str, methods: Any, count: int = 3, batch_size: int | None = None) -> tuple[Cost, dict[str, pl.Explanation]]:
    """Passes for each picture, and what was found."""
    held = subject(network)
    held.layout()
    with Passes().of(held.model) as seen:
        found = pl.compare(held, pictures(network, count), methods, batch_size=batch_size)
    return Cost(seen.forwards / count, seen.backwards / count), found


def claimed(network: str, method: str, settings: dict[str, Any]) -> Cost:
    chosen = discover()[method]
    return chosen.cost(chosen.resolve(settings), subject(network).layout())


def agree(counted: Cost, claim: Cost, found: pl.Explanation) -> None:
    """To the pass; where the picture decides, as many as claimed at most, or as many as the result says, and the first one."""
    assert counted.backwards == claim.backwards
    if claim.varies == "at most":
        assert counted.forwards <= claim.forwards
    elif claim.varies == "about":
        assert found.samples is not None
        assert counted.forwards - 1 == found.samples.double().mean().item()
    else:
        assert counted == claim


@pytest.mark.parametrize(("network", "method"), pairs())
def test_cost_is_true(network, method):
    found, seen = counted(network, method)
    agree(Cost(seen.forwards / 3, seen.backwards / 3), claimed(network, method, tiny.quick(method)), found)


@pytest.mark.parametrize("method", [m.name for m in served("vit_mean")])
def test_cost_is_true_in_micro_batches(method):
    settings = {name: 2 * value if name in ("steps", "samples") else value for name, value in tiny.quick(method).items()}
    counted, found = passes("vit_mean", {method: settings}, count=2, batch_size=1)
    agree(counted, claimed("vit_mean", method, settings), found[method])


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
    counted, found = passes("vit", {method: settings})
    agree(counted, claimed("vit", method, settings), found[method])


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
    assert passes(network, SHARED | added)[0] == expected


def test_compare_of_methods_that_read_attention_only_takes_no_backward_pass():
    assert passes("vit", ["raw_attention", "rollout", "attention_flow"])[0] == Cost(1, 0)
