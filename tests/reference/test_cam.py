"""cam = tokens in front of the mean, weighted by the row of the head that belongs to the class."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from open_vit import Case, agree


def reference(case: Case) -> Tensor:
    """F ⊙ ∂y/∂F: where a norm follows the mean, its linearisation."""
    seen = case.open()
    return (seen.final * seen.gradient([seen.final], case.target)[0]).sum(1)


@pytest.mark.parametrize("network", ["vit_mean", "vit_no_prefix"])
def test_with_a_norm_behind_the_mean(network):
    agree(reference, "cam", network)


def seen_at(module: nn.Module, model: nn.Module, images: Tensor) -> Tensor:
    found = []
    handle = module.register_forward_hook(lambda _module, _args, out: found.append(out.detach()))
    model(images)
    handle.remove()
    return found[0]


def swin_parts(name: str, model: nn.Module) -> tuple[nn.Module, nn.Linear]:
    parts = {"swin": ("norm", "head.fc"), "torchvision_swin": ("norm", "head"), "hf_swin": ("swin.layernorm", "classifier")}
    norm, head = (model.get_submodule(p) for p in parts[name])
    assert isinstance(head, nn.Linear)
    return norm, head


@pytest.mark.parametrize("name", ["swin", "torchvision_swin", "hf_swin"])
def test_closed_form_on_swin(name):
    model, images = tiny.subject(name).model, tiny.pictures(name)
    norm, head = swin_parts(name, model)
    features = seen_at(norm, model, images).reshape(3, 16, -1)
    expected = (features @ head.weight[4].detach() / 16).reshape(3, 4, 4)
    tiny.close(tiny.explain(name, "cam", images, 4).tokens, expected, 1e-10)


def test_closed_form_on_a_vit_with_the_norm_in_front_of_the_mean():
    model = tiny.redrawn(tiny.vit(class_token=False, global_pool="avg", fc_norm=False))
    images = tiny.pictures()
    features = seen_at(model.norm, model, images)
    expected = (features @ model.head.weight[4].detach() / 16).reshape(3, 4, 4)
    found = pl.explain(model, images, "cam", 4).tokens
    tiny.close(found, expected, 1e-10)
    logits = found.flatten(1).sum(1) + model.head.bias[4].detach()
    tiny.close(logits, torch.as_tensor(model(images)[:, 4].detach()), 1e-10)
