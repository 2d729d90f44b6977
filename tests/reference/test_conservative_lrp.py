"""conservative_lrp = input times gradient of the same network with attention maps, norm scales and f(x)/x held constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import patchlight as pl
import tiny
from open_vit import PLAIN, Case, agree

Held = Callable[[Tensor], Tensor]


def held(values: Tensor) -> Tensor:
    return values.detach()


def share(values: Tensor, part: float) -> Tensor:
    """The values, of whose gradient only a part flows on."""
    return values * part + values.detach() * (1 - part)


@dataclass(frozen=True)
class Network:
    """A timm ViT by plain torch, with what its gradient shall not see."""

    model: nn.Module
    attention: Held = held
    product: float = 1.0
    activation: str = "identity"

    def norm(self, x: Tensor, layer: nn.Module) -> Tensor:
        if isinstance(layer, nn.Identity):
            return x
        scale = (x.var(-1, unbiased=False, keepdim=True) + layer.eps).sqrt().detach()
        return (x - x.mean(-1, keepdim=True)) / scale * layer.weight + layer.bias

    def tokens(self, image: Tensor) -> Tensor:
        model = self.model
        patches = F.conv2d(image[None], model.patch_embed.proj.weight, model.patch_embed.proj.bias, stride=8)[0].flatten(1).T
        extra = [t[0] for t in (model.cls_token, model.reg_token) if t is not None]
        return torch.cat([*extra, patches]) + model.pos_embed[0]

    def block(self, block: nn.Module, x: Tensor) -> Tensor:
        attention = block.attn
        qkv = attention.qkv(self.norm(x, block.norm1)).unflatten(1, (3, attention.num_heads, -1))
        q, k, v = (share(t, self.product) for t in qkv.permute(1, 2, 0, 3))
        maps = share(self.attention((q @ k.transpose(1, 2) * q.shape[-1] ** -0.5).softmax(-1)), self.product)
        x = x + attention.proj((maps @ v).transpose(0, 1).flatten(1)) * getattr(block.ls1, "gamma", 1.0)
        hidden = block.mlp.fc1(self.norm(x, block.norm2))
        hidden = hidden * (F.gelu(hidden) / (hidden + 1e-10)).detach() if self.activation == "identity" else F.gelu(hidden)
        return x + block.mlp.fc2(hidden) * getattr(block.ls2, "gamma", 1.0)

    def logits(self, x: Tensor) -> Tensor:
        for block in self.model.blocks:
            x = self.block(block, x)
        x = self.norm(x, self.model.norm)
        pooled = x[0] if self.model.global_pool == "token" else x[self.model.num_prefix_tokens :].mean(0)
        return self.model.head(self.norm(pooled, self.model.fc_norm))

    def input_x_gradient(self, case: Case, at: str) -> Tensor:
        image = case.image.clone().requires_grad_()
        tokens = self.tokens(image)
        wanted = image if at == "pixels" else tokens
        (slope,) = torch.autograd.grad(self.logits(tokens)[case.target], wanted)
        return (wanted * slope).sum(0 if at == "pixels" else -1)


def reference(case: Case, *, activation: str = "identity", at: str = "pixels") -> Tensor:
    return Network(case.model, activation=activation).input_x_gradient(case, at)


NEAR_ZERO = 1e-9  # f(x)/x hands on the relative error of an x near 0


@pytest.mark.parametrize("at", ["pixels", "tokens"])
@pytest.mark.parametrize("activation", ["identity", "gradient"])
@pytest.mark.parametrize("network", PLAIN)
def test_equals_input_times_gradient_of_the_network_held_constant(network, activation, at):
    agree(reference, "conservative_lrp", network, tolerance=NEAR_ZERO, activation=activation, at=at)


def softmax_too(case: Case, *, at: str = "pixels", gamma_conv: float = 0.0, gamma_linear: float = 0.0) -> Tensor:
    assert gamma_conv == gamma_linear == 0.0
    return Network(case.model, attention=lambda maps: maps, product=0.5).input_x_gradient(case, at)


@pytest.mark.parametrize("at", ["pixels", "tokens"])
@pytest.mark.parametrize("network", PLAIN)
def test_attn_lrp_is_the_same_with_softmax_in_the_gradient_and_halves_for_both_factors(network, at):
    """Achtibat et al. 2024, propositions 3.1 and 3.3: softmax by its Taylor expansion, products uniformly."""
    agree(softmax_too, "attn_lrp", network, tolerance=NEAR_ZERO, at=at, gamma_conv=0.0, gamma_linear=0.0)


# -- conservation -------------------------------------------------------------------------------------------------------


def without_biases(*, constants: bool) -> pl.Subject:
    """A ViT without any bias, and without position embedding and class token where `constants` is False."""
    model = tiny.fresh("vit" if constants else "vit_no_prefix")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or (name == "pos_embed" and not constants):
                parameter.zero_()
    return pl.load(model)


@pytest.mark.parametrize("at", ["pixels", "tokens"])
def test_without_biases_the_relevance_of_the_pixels_is_the_logit(at):
    subject, images = without_biases(constants=False), tiny.pictures("vit_no_prefix")
    found = pl.explain(subject, images, "conservative_lrp", 3, at=at)
    tiny.close(found.scores.flatten(1).sum(1), found.logits[:, 3], 1e-9)


def test_without_biases_what_does_not_arrive_went_to_class_token_and_position_embedding():
    found = pl.explain(without_biases(constants=True), tiny.pictures(), "conservative_lrp", 3)
    kept = found.conservation
    tiny.close(kept["arrived"] + kept["class token"] + kept["position embedding"], found.logits[:, 3], 1e-9)
    for cause in ("bias", "normalisation", "rounding"):
        assert kept[cause].abs().max() < 1e-9


def test_with_biases_each_keeps_its_own_share():
    """The share of a bias is its value times the gradient at it: what the books say of the head is the head's bias."""
    model = tiny.fresh("vit")
    found = pl.explain(pl.load(model), tiny.pictures(), "conservative_lrp", 3).conservation
    with torch.no_grad():
        model.head.bias[3] += 0.5
    moved = pl.explain(pl.load(model), tiny.pictures(), "conservative_lrp", 3).conservation
    tiny.close(moved["bias"] - found["bias"], torch.full((3,), 0.5).double(), 1e-10)
    tiny.close(moved["received"] - found["received"], torch.full((3,), 0.5).double(), 1e-10)
    tiny.close(moved["arrived"], found["arrived"], 1e-12)


def test_without_constants_joint_lrp_keeps_what_the_logit_sends():
    found = pl.explain(without_biases(constants=False), tiny.pictures("vit_no_prefix"), "lrp", 3, rules="joint")
    tiny.close(found.pixels.flatten(1).sum(1), torch.ones(3).double(), 1e-4)


@pytest.mark.parametrize("method", ["conservative_lrp", "attn_lrp"])
@pytest.mark.parametrize("setting", ["gamma_conv", "gamma_linear"])
def test_a_gamma_below_zero_is_an_error(method, setting):
    with pytest.raises(pl.PatchlightError, match=f"{method}: gamma takes a number from 0 up, but -0.5 came. 0 is the plain rule"):
        tiny.explain("vit", method, **{setting: -0.5})
