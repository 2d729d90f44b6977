"""`cost` is a claim: the pictures that pass forward and backward are counted."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.core.registry import Cost, discover
from tiny import pairs, pictures, served

MANY = 300  # passes a picture: methods that take more by default are counted at quick settings


class Count(torch.autograd.Function):
    """The identity, which counts the pictures whose logits a gradient reaches."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, counter: Counting) -> Tensor:
        ctx.counter = counter
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.counter.backwards += len(gradients[0])
        return gradients[0], None


class Counting(nn.Module):
    """A network that counts the pictures that pass."""

    def __init__(self, model: nn.Module, size: tuple[int, int]) -> None:
        super().__init__()
        self.model, self.img_size = model, size
        self.forwards = self.backwards = 0

    def forward(self, images: Tensor) -> Tensor:
        self.forwards += len(images)
        out = self.model(images)
        return Count.apply(getattr(out, "logits", out), self)


@cache
def counted(network: str) -> pl.Subject:
    held = pl.load(Counting(tiny.fresh(network), tiny.KINDS[network].size))
    held.layout()
    return held


def passes(network: str, methods: Any, count: int = 3, batch_size: int | None = None) -> Cost:
    """Passes for each picture."""
    held = counted(network)
    held.model.forwards = held.model.backwards = 0
    told.clear()
    found = pl.compare(held, pictures(network, count), methods, batch_size=batch_size)
    told.update({name: None if e.samples is None else e.samples.double().mean().item() for name, e in found.items()})
    return Cost(held.model.forwards / count, held.model.backwards / count)


told: dict[str, float | None] = {}
"""Of the latest call: how many samples each method says it took of a picture."""


def agree(counted: Cost, claimed: Cost) -> None:
    """To the pass; where the picture decides, as many as claimed at most, or as many as the result says, and the first one."""
    assert counted.backwards == claimed.backwards
    if claimed.varies == "at most":
        assert counted.forwards <= claimed.forwards
    elif claimed.varies == "about":
        assert [counted.forwards - 1] == list(told.values())
    else:
        assert counted == claimed


@pytest.mark.parametrize(("network", "method"), pairs())
def test_cost_is_true(network, method):
    settings = tiny.quick(method)
    claimed = discover()[method].cost(discover()[method].resolve(settings), counted(network).layout())
    agree(passes(network, {method: settings}), claimed)


@pytest.mark.parametrize("method", [m.name for m in served("vit_mean")])
def test_cost_of_the_defaults_is_true_in_micro_batches(method):
    claimed = discover()[method].cost(discover()[method].resolve({}), counted("vit_mean").layout())
    settings = {} if claimed.forwards <= MANY else tiny.quick(method)
    claimed = discover()[method].cost(discover()[method].resolve(settings), counted("vit_mean").layout())
    agree(passes("vit_mean", {method: settings}, count=2, batch_size=1), claimed)


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
    agree(passes("vit", {method: settings}), chosen.cost(chosen.resolve(settings), counted("vit").layout()))


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
