"""Leaving tokens out gives what hiding them from attention gives, block by block, and nothing stays on the model."""

from __future__ import annotations

from math import prod

import pytest
import timm.models as tm
import torch

import patchlight as pl
import tiny
from patchlight.tracing.as_found import as_found
from patchlight.tracing.drop import Hidden, dropped, undroppable
from tiny import close, pictures, subject

PLAIN = [name for name, kind in tiny.KINDS.items() if kind.pool == "class"]


def chosen(name: str, kept: int) -> torch.Tensor:
    """(3, n) other patches in each picture."""
    patches = prod(subject(name).layout().grid)
    return torch.rand(3, patches, generator=torch.Generator().manual_seed(kept)).argsort(1).argsort(1) < kept


@pytest.mark.parametrize("kept", [0, 1, 7, 15])
@pytest.mark.parametrize("name", PLAIN)
def test_left_out_equals_hidden(name, kept):
    held, images, present = subject(name), pictures(name), chosen(name, kept)
    with as_found(held.model), torch.no_grad():
        with dropped(held.model, held.layout(), present):
            left_out = held.forward(images)
        with Hidden(held.layout(), present):
            hidden = held.forward(images)
        whole = held.forward(images)
    close(left_out, hidden, 1e-12)
    assert not torch.allclose(left_out, whole, rtol=0.01)


@pytest.mark.parametrize("name", PLAIN)
def test_pictures_may_keep_different_numbers_of_patches(name):
    held, images = subject(name), pictures(name)
    present = torch.cat([chosen(name, kept)[i : i + 1] for i, kept in enumerate((0, 9, 4))])
    with as_found(held.model), torch.no_grad():
        with dropped(held.model, held.layout(), present):
            together = held.forward(images)
        for i in range(3):
            with dropped(held.model, held.layout(), present[i : i + 1]):
                close(held.forward(images[i : i + 1]), together[i : i + 1], 1e-12)


def test_nothing_hidden_or_left_out_changes_nothing():
    held, images, present = subject("vit"), pictures(), torch.ones(3, 16, dtype=torch.bool)
    with as_found(held.model), torch.no_grad():
        whole = held.forward(images)
        with dropped(held.model, held.layout(), present):
            assert torch.equal(held.forward(images), whole)
        with Hidden(held.layout(), present):
            close(held.forward(images), whole, 1e-14)
        assert torch.equal(held.forward(images), whole)


def test_the_blocks_see_fewer_tokens():
    held, seen = pl.load(tiny.fresh("vit")), []
    held.model.blocks[1].register_forward_hook(lambda _m, _a, out: seen.append(tuple(out.shape)))
    with dropped(held.model, held.layout(), chosen("vit", 5)), torch.no_grad():
        held.forward(pictures())
    assert seen[-1] == (3, 6, 24)


def test_gradients_pass_through_what_is_left():
    held, images, present = subject("vit"), pictures().requires_grad_(), chosen("vit", 5)
    with as_found(held.model), torch.enable_grad(), dropped(held.model, held.layout(), present):
        (found,) = torch.autograd.grad(held.forward(images).sum(), images)
    alive = found.abs().sum(1).unflatten(1, (4, 8)).unflatten(3, (4, 8)).sum((2, 4)).flatten(1) > 0
    assert torch.equal(alive, present)


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_vit_is_found_to_be_one(name):
    held = subject(name)
    assert undroppable(held.model, held.forward, held.layout(), pictures(name)) is None


WRONG = {
    "vit_mean": "its head reads the mean of the patches, not a class token",
    "vit_map": "its head reads the tokens through attention, not a class token",
    "swin": "does not join all tokens with one map",
    "cnn": "it has no attention",
}


@pytest.mark.parametrize("name", WRONG)
def test_other_networks_say_why_not(name):
    held = subject(name)
    assert WRONG[name] in undroppable(held.model, held.forward, held.layout(), pictures(name))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tm.Beit(**tiny.WIDTH, img_size=32, use_abs_pos_emb=False, use_rel_pos_bias=True, global_pool="token"),
        lambda: tm.Eva(**tiny.WIDTH, img_size=32, use_rot_pos_emb=True, global_pool="token"),
    ],
    ids=["relative positions", "rotary positions"],
)
def test_positions_inside_the_blocks_are_noticed(make):
    held = pl.load(tiny.redrawn(make()))
    reason = undroppable(held.model, held.forward, held.layout((32, 32)), pictures())
    assert "its blocks need all of its tokens" in reason


class Shifted(torch.nn.Module):
    """Adds positions by the place in the sequence, inside the first block."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.img_size = tiny.fresh("vit"), (32, 32)
        self.model.blocks[0] = Late(self.model.blocks[0])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images)


class Late(torch.nn.Module):
    def __init__(self, block: torch.nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places, channels = (torch.arange(n).to(tokens) for n in tokens.shape[1:])
        return self.block(tokens + (places[:, None] * channels).sin())


def test_a_network_that_would_be_silently_wrong_is_noticed():
    held = pl.load(Shifted())
    reason = undroppable(held.model, held.forward, held.layout(), pictures())
    assert "is not its output with the same tokens hidden" in reason
