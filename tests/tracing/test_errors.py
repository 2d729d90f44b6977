"""What cannot be traced is an error that names the block and says what to do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.core.layout import Layout
from patchlight.core.registry import discover
from patchlight.tracing.trace import Trace, finish
from tiny import pictures


def test_an_attention_with_keys_of_its_own_is_an_error():
    model = tiny.torchvision_vit()
    for layer in model.encoder.layers:
        layer.self_attention = nn.MultiheadAttention(24, 2, add_bias_kv=True, batch_first=True)
    with pytest.raises(pl.PatchlightError, match=r"nn\.MultiheadAttention with bias_k, bias_v, add_zero_attn or static keys"):
        pl.explain(tiny.redrawn(model), pictures(), "transformer_mm")


def test_a_given_layout_with_a_block_that_is_not_there_is_an_error():
    layout = Layout(grid=(4, 4), prefix=1, blocks=("blocks.0", "blocks.1", "block.2"), pool="class")
    with pytest.raises(pl.PatchlightError, match=r"the layout names a block 'block\.2' that the model does not have"):
        pl.explain(pl.load(tiny.fresh("vit"), layout=layout), pictures(), "transformer_mm")


@pytest.mark.parametrize(("grid", "prefix", "told"), [((2, 2), 1, 5), ((4, 4), 0, 16)])
def test_a_given_layout_with_other_tokens_is_an_error(grid, prefix, told):
    layout = Layout(grid=grid, prefix=prefix, blocks=("blocks.0", "blocks.1", "blocks.2"), pool="class")
    with pytest.raises(pl.PatchlightError, match=rf"{told} in all, but block blocks\.2 joins 17 tokens\. Give the grid"):
        pl.explain(pl.load(tiny.fresh("vit"), layout=layout), pictures(), "rollout")


def test_a_given_layout_explains_as_the_found_one_does():
    layout = Layout(grid=(4, 4), prefix=1, blocks=("blocks.0", "blocks.1", "blocks.2"), pool="class")
    found = pl.explain(pl.load(tiny.fresh("vit"), layout=layout), pictures(), "transformer_mm", 3)
    assert torch.equal(found.tokens, tiny.explain("vit", "transformer_mm", target=3).tokens)


class Side(nn.Module):
    """The last block does not feed the output."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.img_size = tiny.fresh("vit"), (32, 32)

    def forward(self, images: Tensor) -> Tensor:
        model = self.model
        x = model._pos_embed(model.patch_embed(images))
        x = model.blocks[1](model.blocks[0](x))
        self.seen = model.blocks[2](x).sum().item()
        return model.head(model.norm(x)[:, 0])


@pytest.mark.parametrize("method", ["transformer_mm", "vtranm", "ag_cam", "tam"])
def test_a_block_that_does_not_feed_the_output_is_an_error_that_names_it(method):
    with pytest.raises(pl.PatchlightError, match=r"no gradient reached the attention of .*blocks\.2: these blocks do not feed"):
        pl.explain(Side(), pictures(), method, **tiny.quick(method))


class PostNorm(nn.Module):
    """The blocks of the first transformers: the norm comes behind the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.img_size = nn.Conv2d(3, 24, 8, 8), (32, 32)
        self.token, self.pos = (nn.Parameter(torch.zeros(1, n, 24)) for n in (1, 17))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(24, 2, 48, batch_first=True) for _ in range(3))
        self.head = nn.Linear(24, 7)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def test_vtranm_on_post_norm_blocks_is_an_error_that_names_the_tokens_it_misses():
    with pytest.raises(pl.PatchlightError, match=r"block blocks\.\d shows no '.*' tokens: expected a pre-norm residual block"):
        pl.explain(tiny.redrawn(PostNorm()), pictures(), "vtranm")


@pytest.mark.parametrize("method", ["rollout", "transformer_mm", "ag_cam", "attcat", "grad_cam"])
def test_other_methods_explain_post_norm_blocks(method):
    found = pl.explain(tiny.redrawn(PostNorm()), pictures(), method)
    assert found.tokens.shape == (3, 4, 4)
    assert found.tokens.isfinite().all()


def test_vtranm_with_a_norm_in_front_of_the_projection_is_an_error():
    model = tiny.redrawn(tiny.vit(scale_attn_norm=True))
    with pytest.raises(pl.PatchlightError, match=r"block blocks\.\d does not show how a head's values reach the residual stream"):
        pl.explain(model, pictures(), "vtranm")


class Blind(nn.Module):
    """Its output does not depend on the picture through differentiable steps."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.img_size = nn.Linear(3 * 32 * 32, 7).double(), (32, 32)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.detach().flatten(1))


@pytest.mark.parametrize("method", ["saliency", "input_x_gradient", "integrated_gradients", "smooth_grad", "lrp", "attn_lrp"])
def test_an_output_without_a_gradient_is_an_error(method):
    with pytest.raises(pl.PatchlightError, match="the output does not depend on the pictures through differentiable steps"):
        pl.explain(Blind(), pictures(), method, **tiny.quick(method))


class Summed(nn.Module):
    """An operation in the way for which no rule of relevance is written."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.img_size = tiny.fresh("vit"), (32, 32)

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images).cumsum(-1)


@pytest.mark.parametrize("method", [m.name for m in discover().values() if m.family == "relevance"])
def test_an_operation_without_a_rule_is_an_error_that_names_it(method):
    with pytest.raises(pl.PatchlightError, match=f"{method}: the operation 'cumsum.*' in the model itself has no rule"):
        pl.explain(Summed(), pictures(), method)


# -- guards that a method's author meets ------------------------------------------------------------------------------


def test_a_method_that_goes_on_after_the_last_block_is_an_error():
    def endless():
        while True:
            yield

    steps = endless()
    next(steps)
    with pytest.raises(pl.PatchlightError, match="a trace method must return its scores after it was sent None"):
        finish(steps)


def test_tokens_in_front_of_the_pooling_that_were_not_seen_are_an_error():
    held = Trace(*[None] * 4, recorder=SimpleNamespace(final=None, final_gradient=None), again=None)
    with pytest.raises(pl.PatchlightError, match="the tokens in front of the pooling were not seen"):
        _ = held.final


def test_attention_flow_without_a_block_over_all_tokens_is_an_error():
    steps = discover()["attention_flow"].function(SimpleNamespace(layout=None))
    next(steps)
    with pytest.raises(pl.PatchlightError, match="attention_flow: no block attends over all tokens"):
        steps.send(None)
