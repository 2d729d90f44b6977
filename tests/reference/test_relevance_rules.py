"""Each rule of relevance against its equation: contributions one by one, in float64; and what it keeps back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_flatten

import open_relevance as by_hand
from patchlight.methods.relevance import _rules as r
from patchlight.tracing.operations import OPERATIONS
from patchlight.tracing.tape import Call
from tiny import close


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def called(function: Callable[..., Tensor], *args: Any, wanted: tuple[int, ...] = (0,), **kwargs: Any) -> Call:
    """One operation, with the arguments `wanted` as what depends on the picture."""
    leaves, spec = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if any(leaf is args[w] for w in wanted)]
    call = Call(OPERATIONS.get(function, "linear"), function, leaves, spec, places, pictures=2)
    call.compute()
    return call


def answer(rule: r.Rule, call: Call, message: Tensor) -> Tensor:
    (found,) = rule(call, message)
    assert found is not None
    return found


X, W, B, R = draw(5, 4), draw(6, 4, seed=1), draw(6, seed=2), draw(5, 6, seed=3)
LINEAR = called(F.linear, X, W, B)


def alive(x: Tensor, w: Tensor, sign: int = 0) -> Tensor:
    """(n, o) which outputs have a positive contribution, from x^+ w^+ (1), from x^- w^- (-1) or from either (0)."""
    c = x[:, None] * w
    return ((c > 0) & ((x[:, None].sign() == sign) | (sign == 0))).any(-1)


@pytest.mark.parametrize("bias", [None, B], ids=["no bias", "bias"])
@pytest.mark.parametrize("name", ["joint", "separate", "aligned"])
def test_linear_rules(name, bias):
    """The bias has no part; what is lost belongs to outputs without a contribution to share it."""
    found = answer(getattr(r, f"linear_{name}"), called(F.linear, X, W, bias), R)
    close(found, getattr(by_hand, name)(X, W, R), 1e-7)
    kept = {"joint": [alive(X, W)], "separate": [alive(X, W, 1), alive(X, W, -1)], "aligned": [torch.ones_like(R)]}[name]
    close(found.sum(), sum((R * k).sum() for k in kept), 1e-6)


def unrolled(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """A convolution with steps of its own size as a linear layer: patches (b N, i) and weights (o, i)."""
    return F.unfold(x, w.shape[-1], stride=w.shape[-1]).transpose(1, 2).flatten(0, 1), w.flatten(1)


@pytest.mark.parametrize("name", ["joint", "separate", "aligned"])
def test_linear_rules_of_a_convolution(name):
    x, w, b = draw(2, 3, 4, 4), draw(5, 3, 2, 2, seed=1), draw(5, seed=2)
    message = draw(2, 5, 2, 2, seed=3)
    found = answer(getattr(r, f"linear_{name}"), called(F.conv2d, x, w, b, stride=2), message)
    patches, matrix = unrolled(x, w)
    expected = getattr(by_hand, name)(patches, matrix, message.flatten(2).transpose(1, 2).flatten(0, 1))
    close(found, F.fold(expected.unflatten(0, (2, 4)).transpose(1, 2), (4, 4), 2, stride=2), 1e-7)


def gamma_by_hand(x: Tensor, w: Tensor, b: Tensor, relevance: Tensor, amount: float) -> Tensor:
    """R_i = Σ_j (c_ij + γ c_ij^±) / (z_j + γ z_j^±) R_j with ± the sign of z_j, the bias among the contributions."""
    c = torch.cat([x[:, None] * w, b[:, None].expand(len(x), -1, 1)], -1)
    z = c.sum(-1, keepdim=True)
    c = c + amount * torch.where(c.sign() == torch.where(z < 0, -1.0, 1.0), c, 0.0)
    return (c / (c.sum(-1, keepdim=True)) * relevance[..., None])[..., :-1].sum(1)


@pytest.mark.parametrize("amount", [0.05, 0.25, 100.0])
def test_gamma(amount):
    """Multipliers m belong to relevances x m."""
    found = X * answer(r.gamma(amount), LINEAR, R / LINEAR.out)
    close(found, gamma_by_hand(X, W, B, R, amount), 1e-4)  # zennit's stabiliser of 1e-6


def test_gamma_of_zero_is_the_gradient():
    close(answer(r.gamma(0.0), LINEAR, R), R @ W, 1e-14)


def test_gamma_keeps_back_the_share_of_the_bias():
    amount, m = 0.25, R / LINEAR.out
    kept = R.sum() - (X * answer(r.gamma(amount), LINEAR, m)).sum()
    z = LINEAR.out
    c = torch.cat([X[:, None] * W, B[:, None].expand(5, -1, 1)], -1)
    along = torch.where(c.sign() == z.sign()[..., None], c, 0.0)
    share_of_bias = (c[..., -1] + amount * along[..., -1]) / (z + amount * along.sum(-1))
    close(kept, (share_of_bias * R).sum(), 1e-4)


# -- sums ---------------------------------------------------------------------------------------------------------------

ONE, OTHER, RS = draw(2, 3, 4), draw(2, 3, 4, seed=1), draw(2, 3, 4, seed=2)


@pytest.mark.parametrize(
    ("rule", "equation"),
    [(r.proportional_sum, by_hand.proportional), (r.balanced_sum, by_hand.balanced), (r.sum_by_size, by_hand.by_size)],
    ids=["proportional", "balanced", "by size"],
)
def test_sums_share_for_each_picture_by_itself(rule, equation):
    found = rule(called(torch.add, ONE, OTHER, wanted=(0, 1)), RS)
    for picture in range(2):
        expected = equation(ONE[picture], OTHER[picture], RS[picture])
        for one, part in zip(found, expected, strict=True):
            close(one[picture], part, 1e-7)
        close(sum(expected).sum(), RS[picture].sum(), 1e-5)


@pytest.mark.parametrize("rule", [r.proportional_sum, r.balanced_sum, r.sum_by_size])
def test_what_falls_to_a_constant_goes_no_further(rule):
    whole = rule(called(torch.add, ONE, OTHER, wanted=(0, 1)), RS)
    (alone,) = rule(called(torch.add, ONE, OTHER), RS)
    close(alone, whole[0], 1e-14)


def test_a_difference_is_a_sum_with_the_sign_turned():
    one, other = r.proportional_sum(called(torch.sub, ONE, OTHER, wanted=(0, 1)), RS)
    close(one, ONE / (ONE - OTHER) * RS, 1e-6)
    close(other, -OTHER / (ONE - OTHER) * RS, 1e-6)


@pytest.mark.parametrize("rule", [r.proportional, r.pooled_by_size])
def test_pooling_shares_in_proportion(rule):
    message = draw(2, 4, seed=4)
    found = answer(rule, called(torch.mean, ONE, 1), message)
    parts = ONE.abs() if rule is r.pooled_by_size else ONE
    close(found, parts / parts.sum(1, keepdim=True) * message[:, None], 1e-6)
    close(found.sum(1), message, 1e-6)


def test_what_has_several_readers_is_collected_as_z_over_z_plus_the_shift():
    call = called(torch.add, ONE, OTHER, wanted=(0, 1))
    call.readers = 2
    close(r.collected(call, RS), call.out * RS / (call.out + 1e-9), 1e-12)
    call.readers = 1
    assert r.collected(call, RS) is RS


# -- products -----------------------------------------------------------------------------------------------------------

A, V, RP = draw(2, 3, 5).softmax(-1), draw(2, 5, 4, seed=1), draw(2, 3, 4, seed=2)
PRODUCT = called(torch.matmul, A, V, wanted=(0, 1))


@pytest.mark.parametrize("rule", ["halves", "aligned_halves"])
def test_products_give_each_factor_half(rule):
    found, expected = getattr(r, rule)(PRODUCT, RP), getattr(by_hand, rule)(A, V, RP)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-6)
        close(other.sum(), RP.sum() / 2, 1e-5)


def test_products_of_multipliers_give_each_factor_half():
    """Achtibat et al. 2024, proposition 3.3: R_ij(A) = Σ_p A_ij V_jp R_ip / (2 O_ip)."""
    m = RP / PRODUCT.out
    found_a, found_v = r.multiplier_halves(PRODUCT, m)
    each = A[..., None] * V[:, None] * (RP / (2 * PRODUCT.out))[:, :, None]  # (b, i, j, p)
    close(A * found_a, each.sum(3), 1e-10)
    close(V * found_v, each.sum(1), 1e-10)
    close((A * found_a).sum() + (V * found_v).sum(), RP.sum(), 1e-10)


def test_with_attention_held_constant_values_get_all():
    found_a, found_v = r.values_only(PRODUCT, RP / PRODUCT.out)
    assert found_a is None
    close((V * found_v).sum(), RP.sum(), 1e-10)


@pytest.mark.parametrize("rule", [r.halves, r.aligned_halves, r.multiplier_halves])
def test_a_gate_gets_nothing_and_what_it_lets_through_gets_all(rule):
    x, gate = draw(2, 3), draw(2, 3, seed=1).sigmoid()
    call = called(torch.mul, x, gate, wanted=(0, 1))
    call.gated = 1
    message = draw(2, 3, seed=2)
    found, none = rule(call, message)
    assert none is None
    close(found, message * gate if rule is r.multiplier_halves else message, 1e-14)


# -- activations, norms, softmax ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [F.gelu, F.relu, F.silu, torch.tanh])
def test_an_activation_by_the_identity_keeps_everything(function):
    call = called(function, X)
    m = R[:, :4] / torch.where(call.out == 0, 1.0, call.out)
    close(X * answer(r.activation_identity, call, m), call.out * m, 1e-7)


def test_an_activation_at_zero_hands_on_its_slope():
    call = called(F.gelu, torch.zeros(2, 3, dtype=torch.float64))
    close(answer(r.activation_identity, call, torch.ones(2, 3).double()), torch.full((2, 3), 0.5).double(), 1e-14)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_layer_norm_with_its_scale_held_constant(shape):
    """Achtibat et al. 2024, proposition 3.4; Ali et al. 2022: y = (x - mean) / [σ] w + b, and only b keeps relevance back."""
    x, w, b, m = draw(2, 3, 4), draw(*shape, seed=1), draw(*shape, seed=2), draw(2, 3, 4, seed=3)
    dims = tuple(range(-len(shape), 0))
    leaf = x.clone().requires_grad_()
    scale = (x.var(dims, unbiased=False, keepdim=True) + 1e-5).sqrt()
    y = (leaf - leaf.mean(dims, keepdim=True)) / scale * w + b
    call = called(F.layer_norm, x, shape, w, b, 1e-5)
    found = answer(r.layer_norm_detached, call, m)
    close(found, torch.autograd.grad(y, leaf, m)[0], 1e-12)
    close((x * found).sum(), ((call.out - b) * m).sum(), 1e-12)


def test_rms_norm_with_its_scale_held_constant_keeps_everything():
    x, w, m = draw(2, 3, 4), draw(4, seed=1), draw(2, 3, 4, seed=3)
    call = called(F.rms_norm, x, (4,), w, 1e-5)
    close(x * answer(r.rms_norm_detached, call, m), call.out * m, 1e-12)


@pytest.mark.parametrize("dim", [-1, 2, 1])
def test_normalize_with_its_scale_held_constant_keeps_everything(dim):
    x, m = draw(2, 3, 4), draw(2, 3, 4, seed=3)
    call = called(F.normalize, x, dim=dim)
    found = answer(r.normalize_detached, call, m)
    close(found, m / x.norm(dim=dim, keepdim=True), 1e-12)


def test_softmax_by_its_taylor_expansion():
    """Achtibat et al. 2024, proposition 3.1: R_i = x_i (R_i - s_i Σ_j R_j)."""
    x, relevance = draw(2, 3, 5), draw(2, 3, 5, seed=1)
    call = called(torch.softmax, x, -1)
    found = x * answer(r.by_gradient, call, relevance / call.out)
    close(found, x * (relevance - call.out * relevance.sum(-1, keepdim=True)), 1e-12)


def test_a_quotient_hands_all_to_the_numerator():
    top, below, m = draw(2, 3), draw(2, 3, seed=1), draw(2, 3, seed=2)
    found, none = r.numerator(called(torch.div, top, below, wanted=(0, 1)), m)
    assert none is None
    close(top * found, m * top / below, 1e-12)
    assert r.numerator(called(torch.div, 1.0, below, wanted=(1,)), m) == (None,)


# -- pixels -------------------------------------------------------------------------------------------------------------


def test_pixels_by_the_box_of_each_picture():
    x, w, b, message = draw(2, 3, 4, 4), draw(5, 3, 2, 2, seed=1), draw(5, seed=2), draw(2, 5, 2, 2, seed=3)
    found = answer(r.pixel_box, called(F.conv2d, x, w, b, stride=2), message)
    for picture in range(2):
        patches, matrix = unrolled(x[picture : picture + 1], w)
        low, high = x[picture].min(), x[picture].max()
        c = patches[:, None] * matrix - low * matrix.clamp_min(0) - high * matrix.clamp_max(0)
        expected = (c / c.sum(-1, keepdim=True) * message[picture].flatten(1).T[..., None]).sum(1)
        close(found[picture], F.fold(expected.T[None], (4, 4), 2, stride=2)[0], 1e-6)
        close(found[picture].sum(), message[picture].sum(), 1e-6)
