"""The tape of relevance: every operation meets its rule, and one without a rule is an error that names it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.core.errors import SettingError
from patchlight.core.registry import discover
from patchlight.methods.relevance._walk import check_device
from patchlight.tracing.tape import gradient, taped
from tiny import close, pictures

RELEVANCE = [m.name for m in discover().values() if m.family == "relevance"]
AT_PIXELS = [n for n in RELEVANCE if "at" in discover()[n].settings]
CHAINS = [n for n in RELEVANCE if n not in AT_PIXELS]


# -- the way back of every operation -----------------------------------------------------------------------------------


def flat(x: Tensor) -> Tensor:
    return x.flatten(1)


def written(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 0] = x[:, 1] * 2
    x += 1
    return flat(x.mul_(0.5))


def squeezed(x: Tensor) -> Tensor:
    """Squeeze and excitation, a softmax over pixels, a quotient, parts that are split and joined."""
    one, two, three = x.split(1, 1)
    gate = x.mean((2, 3), keepdim=True).sigmoid()
    weights = x.flatten(2).softmax(-1).view_as(x)
    return flat(torch.cat([one - two, 1 - three, x * gate, x * weights / x.pow(2).detach().add(1)], 1))


def normed(x: Tensor) -> Tensor:
    y = F.rms_norm(F.layer_norm(x, (8, 8)), (8,))
    return flat(F.normalize(F.gelu(y), dim=-1) + F.batch_norm(y, *torch.linspace(0.5, 1, 9, dtype=x.dtype).view(3, 3)))


def attended(x: Tensor) -> Tensor:
    q = x.flatten(2).transpose(1, 2)[:, None]
    mask = torch.ones(64, 64, dtype=torch.bool).tril()
    return flat(
        F.scaled_dot_product_attention(q, q * 2, -q, attn_mask=mask) + F.scaled_dot_product_attention(q, q, q, is_causal=True)
    )


def einsums(x: Tensor) -> Tensor:
    linear = torch.einsum("bchw,hk->bk", x, torch.ones(8, 64, dtype=x.dtype))
    return flat(torch.einsum("bchw,bcvw->bhv", x, x) @ x.mean(1)) + linear


def moved(x: Tensor) -> Tensor:
    """Everything that only moves numbers or takes some of them."""
    x = x.permute(0, 2, 3, 1).contiguous().movedim(-1, 1).swapaxes(2, 3).roll(1, 2).flip(3).clone()
    x = torch.stack([*x.chunk(3, 1)], 1).squeeze(2).unsqueeze(1).expand(-1, 2, -1, -1, -1).reshape(2, 6, 8, 8)
    x = F.pixel_shuffle(F.pixel_unshuffle(x, 2), 2).repeat(1, 2, 1, 1).narrow(1, 2, 6).repeat_interleave(2, 1)
    x = F.max_pool2d(x, 2).unflatten(1, (3, 4)).amax(1).view(2, -1).unfold(1, 4, 4).mT.tile(1, 1, 2)
    x = torch.cat([x[:, 0], x.select(1, 1), x.index_select(1, torch.tensor([2, 0])).ravel().view(2, -1)], 1)
    x = F.pad(x.to(torch.float64).nan_to_num(), (1, 2)).gather(1, torch.arange(20).expand(2, -1))
    return torch.cat(
        [torch.max(x, 1).values[:, None], *x.split(7, 1), x.t().T, torch.diagonal(x.view(2, 4, 5), dim1=1, dim2=2)], 1
    )


@pytest.mark.parametrize("network", [flat, written, moved, squeezed, normed, attended, einsums])
def test_with_plain_gradients_as_its_rules_a_walk_is_autograd(network):
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return network(x)

    leaf = images.clone().requires_grad_()
    expected = network(leaf)
    seeds = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model = Plain()
    with taped(model, model, images, None, dtype=torch.float64) as tape:
        assert tape.answer is gradient
        close(tape.logits, expected, 1e-12)
        found = torch.autograd.grad(tape.logits, tape.pixels, seeds)[0]
    close(found, torch.autograd.grad(expected, leaf, seeds)[0], 1e-10)


@pytest.mark.parametrize("network", tiny.KINDS)
def test_on_every_network_a_walk_with_plain_gradients_is_autograd(network):
    subject, images = tiny.subject(network), pictures(network, 2)
    leaf = images.clone().requires_grad_()
    expected = subject.forward(leaf)
    with taped(subject.model, subject.forward, images, subject.layout(), dtype=torch.float64) as tape:
        close(tape.logits, expected, 1e-12)
        found = torch.autograd.grad(tape.logits[:, 3].sum(), tape.pixels)[0]
    close(found, torch.autograd.grad(expected[:, 3].sum(), leaf)[0], 1e-10)


@pytest.mark.parametrize(
    "narrowed",
    [
        lambda x: x.softmax(-1, dtype=torch.float32).to(x.dtype),
        lambda x: F.softmax(x, dim=-1, dtype=torch.float32).type_as(x),
        lambda x: x.float().tanh().double(),
        lambda x: x.to(torch.float32).tanh().to(x.dtype),
        lambda x: x.to(dtype=torch.bfloat16).tanh().to(x.dtype),
        lambda x: x.half().mean((2, 3), dtype=torch.float32).double(),
    ],
)
def test_a_model_that_narrows_on_the_way_is_walked_in_the_precision_of_the_pass(narrowed):
    """transformers' eager attention goes to float32 for its softmax: the rules would amplify that rounding."""

    class Narrowing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out = narrowed(x).flatten(1)
            seen.append(out.dtype)
            return out

    seen, model, images = [], Narrowing(), pictures("vit", 2)
    with taped(model, model, images, None, dtype=torch.float64) as tape:
        assert not torch.equal(tape.logits, tape.logits.float().double())
    assert seen == [torch.float64]


@pytest.mark.parametrize("method", ["lrp", "transformer_attribution"])
def test_relevance_does_not_depend_on_the_code_of_attention(method):
    eager = tiny.fresh("hf_vit")
    eager.set_attn_implementation("eager")
    found = pl.explain(eager, pictures("hf_vit", 2), method, 3)
    close(
        found.scores / found.scores.abs().max(),
        (e := tiny.explain("hf_vit", method, pictures("hf_vit", 2), 3)).scores / e.scores.abs().max(),
        1e-10,
    )


# -- an operation without a rule ----------------------------------------------------------------------------------------


class Changed(nn.Module):
    """A ViT whose second MLP has an activation of its own."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.img_size = tiny.fresh("vit"), (32, 32)
        self.model.blocks[1].mlp.act = Own(change)

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images)


class Own(nn.Module):
    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(x)


class Kernel(torch.autograd.Function):
    """A kernel of its own, with its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * (ctx.saved_tensors[0] > 0)


@pytest.mark.parametrize("method", RELEVANCE)
def test_an_operation_without_a_rule_is_an_error_that_names_it(method):
    match = rf"{method}: the operation 'cumsum\(\)' in model\.blocks\.1\.mlp\.act has no rule\. Rules are known for linear"
    with pytest.raises(pl.PatchlightError, match=match.replace("linear", ".*linear")):
        pl.explain(Changed(lambda x: x.cumsum(-1)), pictures(), method, **({"block": 0} if method == "partial_lrp" else {}))


@pytest.mark.parametrize("method", RELEVANCE)
def test_an_operation_out_of_sight_is_an_error_and_never_a_plain_gradient(method):
    match = r"KernelBackward in front of linear in model\.blocks\.1\.mlp\.fc2 runs where no torch function shows it"
    with pytest.raises(pl.PatchlightError, match=match):
        pl.explain(Changed(Kernel.apply), pictures(), method)


def test_an_operation_without_a_rule_that_no_relevance_reaches_does_no_harm():
    """Partial LRP ends at the last map: what stands in front of it is never asked."""
    assert pl.explain(Changed(lambda x: x.cumsum(-1)), pictures(), "partial_lrp").tokens.isfinite().all()


@pytest.mark.parametrize("method", CHAINS)
def test_a_block_whose_attention_is_out_of_sight_is_an_error_that_names_it(method):
    class Hidden(nn.Module):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__()
            self.inner, self.hidden = attention, False

        def forward(self, x: Tensor, **_: Any) -> Tensor:
            if not self.hidden:
                return self.inner(x)
            return self.inner.proj(self.inner.qkv(x).chunk(3, -1)[2])

    model = tiny.fresh("vit")
    model.blocks[1].attn = Hidden(model.blocks[1].attn)
    held = pl.load(model)
    held.layout()
    model.blocks[1].attn.hidden = True
    with pytest.raises(pl.PatchlightError, match=rf"{method}: no attention map was seen in blocks\.1"):
        pl.explain(held, pictures(), method, **({"block": 1} if method == "partial_lrp" else {}))


def test_a_tensor_that_mixes_pictures_is_an_error():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.img_size = nn.Linear(3, 4), (8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.mean((2, 3)) + x.sum((0, 2, 3))[None])

    with pytest.raises(pl.PatchlightError, match=r"conservative_lrp: a tensor .* does not keep 3 pictures apart"):
        pl.explain(Mixed().double(), torch.randn(3, 3, 8, 8, dtype=torch.float64), "conservative_lrp")


@pytest.mark.parametrize("kind", ["bool", "-inf"])
@pytest.mark.parametrize("method", RELEVANCE)
def test_keys_that_a_mask_hides_get_nothing(method, kind):
    """The last four patches are hidden in every block: their tokens feed nothing but themselves."""
    shown = (torch.arange(17) < 13).expand(17, 17)
    mask = shown if kind == "bool" else torch.zeros(17, 17, dtype=torch.float64).masked_fill(~shown, float("-inf"))

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.img_size = tiny.fresh("vit"), (32, 32)

        def forward(self, images: Tensor) -> Tensor:
            x = self.model._pos_embed(self.model.patch_embed(images))
            for block in self.model.blocks:
                x = block(x, attn_mask=mask)
            return self.model.head(self.model.norm(x)[:, 0])

    found = pl.explain(Masked(), pictures(), method, 3, **({"at": "tokens"} if method in AT_PIXELS else {}))
    assert found.tokens[:, 3].abs().max() == 0
    assert found.tokens[:, :3].abs().amax() > 0
    account = dict(found.conservation)
    received = account.pop("received")
    assert ((sum(account.values()) - received).abs() <= 1e-9 * sum(v.abs() for v in account.values())).all()


# -- precision ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", RELEVANCE)
def test_float64_is_the_default_and_float32_is_warned_of(method):
    narrow = pl.load(tiny.fresh("vit").float())
    images = pictures().float()
    assert pl.explain(narrow, images, method).scores.dtype == torch.float64
    found = pl.explain(narrow, images, method, precision="float32")
    assert found.scores.dtype == torch.float32
    stable = method in ("conservative_lrp", "attn_lrp", "deep_taylor")
    told = "correlate with those of float64 by " + ("0.9999 and more" if stable else "-0.27 to 1.0")
    assert any(note.startswith("relevance in float32: on DeiT-tiny") and told in note for note in found.notes)
    assert next(narrow.model.parameters()).dtype == torch.float32


def test_a_device_without_float64_is_an_error_that_says_what_to_do():
    with pytest.raises(SettingError, match="lrp: relevance is computed in float64, which mps devices do not have"):
        check_device("mps", "float64", "lrp")
    check_device("mps", "float32", "lrp")


def test_tokens_of_a_network_without_tokens_are_an_error():
    with pytest.raises(pl.PatchlightError, match="lrp: at='tokens' takes a model whose first block reads tokens on a patch grid"):
        tiny.explain("cnn", "lrp", at="tokens")


# -- memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", RELEVANCE)
def test_the_tensors_of_a_walk_are_freed_without_the_collector(method):
    held: list[weakref.ref[Tensor]] = []
    model = tiny.fresh("vit")
    subject = pl.load(model)
    subject.layout()
    for block in model.blocks:
        block.register_forward_hook(lambda _m, _a, out: held.append(weakref.ref(out)))
    gc.collect()
    gc.disable()
    try:
        pl.explain(subject, pictures(), method, 1)
        assert held
        assert not [r for r in held if r() is not None]
    finally:
        gc.enable()
