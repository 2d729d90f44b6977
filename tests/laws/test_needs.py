"""A need that a network cannot meet is an error before any work, which names the methods that would do."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.api import why_not
from patchlight.core.registry import discover
from tiny import KINDS, pictures, served, subject

UNSERVED = [(n, m.name) for n in KINDS for m in discover().values() if m not in served(n)]


@pytest.mark.parametrize(("network", "method"), UNSERVED)
def test_an_unmet_need_is_an_error_before_any_forward_pass(network, method, monkeypatch):
    held = subject(network)
    reason = why_not(discover()[method], held.layout())
    assert reason is not None
    images, seen = pictures(network), []
    monkeypatch.setattr(held.model, "forward", lambda *args, **_: seen.append(args), raising=True)
    with pytest.raises(pl.PatchlightError, match=re.escape(f"{method} cannot explain {held.name}: {reason}")):
        pl.explain(held, images, method)
    assert seen == []
    others = reason.rpartition("Methods that work: ")[2].split(", ")
    assert set(others) == {m.name for m in served(network) if m.family != "baseline"}


REASONS = [
    ("cnn", "rollout", "it has no attention"),
    ("cnn", "grad_cam", "its tokens do not lie on a patch grid"),
    ("swin", "raw_attention", "it attends within windows"),
    ("torchvision_swin", "transformer_mm", "block .* does not join all tokens with one map: it attends within windows"),
    ("vit", "cam", "its head reads the class token, not the mean of the patches"),
    ("vit_map", "cam", "its head reads the tokens through attention"),
    ("hf_dinov2_registers", "cam", "its head reads the class token and the mean of the patches"),
]


@pytest.mark.parametrize(("network", "method", "reason"), REASONS)
def test_the_reason_is_told_in_words(network, method, reason):
    with pytest.raises(pl.PatchlightError, match=reason):
        tiny.explain(network, method)


# -- never silently empty ---------------------------------------------------------------------------------------------


class HiddenAttention(nn.Module):
    """Attention in a kernel of its own, as xformers or flash-attn have it: no torch function shows the map."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.inner, self.hidden = attention, True

    def forward(self, x: Tensor, **other: object) -> Tensor:
        if not self.hidden:
            return self.inner(x, **other)
        q, k, v = self.inner.qkv(x).unflatten(-1, (3, self.inner.num_heads, -1)).permute(2, 0, 3, 1, 4)
        with torch._C.DisableTorchFunction():
            out = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v
        return self.inner.proj(out.transpose(1, 2).flatten(2))


def half_hidden(*, hidden: bool) -> nn.Module:
    model = tiny.fresh("vit")
    model.blocks[1].attn = HiddenAttention(model.blocks[1].attn)
    model.blocks[1].attn.hidden = hidden
    return model


TRACED = [m.name for m in served("vit") if m.traced and {"chain", "attention", "last attention"} & set(m.needs)]


@pytest.mark.parametrize("method", TRACED)
def test_a_block_whose_attention_cannot_be_seen_is_an_error_that_names_it(method):
    with pytest.raises(pl.PatchlightError, match=r"its attention runs in a kernel that cannot be seen \(blocks\.1"):
        pl.explain(half_hidden(hidden=True), pictures(), method)


@pytest.mark.parametrize("method", TRACED)
def test_a_block_that_hides_its_attention_later_is_an_error_that_names_it(method):
    held = pl.load(half_hidden(hidden=False))
    held.model.blocks[1].attn.hidden = True
    with pytest.raises(pl.PatchlightError, match=r"3 attention blocks were expected, but no map was seen in blocks\.1"):
        pl.explain(held, pictures(), method)


@pytest.mark.parametrize("method", ["saliency", "input_x_gradient"])
def test_a_constant_map_is_reported(method):
    model = tiny.redrawn(tiny.vit())
    nn.init.zeros_(model.head.weight)
    found = pl.explain(model, pictures(), method)
    assert [f"picture {i}: the map of {method} is constant (0): it says nothing here" for i in range(3)] == list(found.notes)


@pytest.mark.parametrize("method", ["saliency", "transformer_mm"])
def test_logits_that_are_not_finite_are_an_error(method):
    model = tiny.redrawn(tiny.vit())
    held = pl.load(model)
    with torch.no_grad():
        model.head.bias[0] = float("nan")
    with pytest.raises(pl.PatchlightError, match=r"outputs for pictures \[0, 1, 2\] are not finite"):
        pl.explain(held, pictures(), method)
