"""Rules: what an operation makes of the message that comes back to it, one small function for each equation.

In tables that carry relevance the message R has the unit of the score and is divided among the inputs. In tables that carry a
multiplier the message m belongs to a number x as the relevance x m; it needs no division, so it is the better conditioned one.
Every sum is taken for each picture by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from patchlight.tracing.tape import Call, Messages

Rule = Callable[[Call, Tensor], Messages]
SHIFT = 1e-9  # Chefer et al. 2021 shift every denominator by it
ZENNIT = 1e-6  # the stabiliser of the gamma rule in zennit
LXT = 1e-10  # the stabiliser of the identity rule in LXT, the code of AttnLRP


def shifted(numerator: Tensor, denominator: Tensor) -> Tensor:
    """a / (b + 1e-9), and 0 where b is 0."""
    return torch.where(denominator == 0, 0.0, numerator / (denominator + SHIFT))


# -- rules of both kinds ------------------------------------------------------------------------------------------------


def by_gradient(call: Call, message: Tensor) -> Messages:
    """Jᵀ m: what moves numbers, and what is linear in them when multipliers are carried."""
    return call.gradient(message)


def stop(call: Call, message: Tensor) -> Messages:  # noqa: ARG001
    """Nothing flows on: the operation is held constant."""
    return (None,) * len(call.inputs)


# -- relevance: sums ----------------------------------------------------------------------------------------------------


def unchanged(call: Call, relevance: Tensor) -> Messages:
    """R_in = R_out, for norms, activations, softmax and scales; a divisor or other input gets nothing."""
    return (relevance.sum_to_size(call.inputs[0].shape), *(None,) * (len(call.inputs) - 1))


def terms(call: Call) -> list[Tensor]:
    """The two terms of a sum as they are added, (the shape of the sum), constants included."""
    first, second, *rest = call.leaves
    sign = -1 if "sub" in name_of(call) else 1
    scale = sign * next((v for v in rest if isinstance(v, (int, float))), 1)
    pair = (first, second if scale == 1 else second * scale)
    if call.op == "subtract from":
        pair = (-first, second)
    return [torch.as_tensor(t, dtype=call.out.dtype, device=call.out.device).expand_as(call.out) for t in pair]


def name_of(call: Call) -> str:
    return getattr(call.function, "__name__", "")


def shared(call: Call, parts: list[Tensor]) -> Messages:
    """The parts of a sum that belong to its inputs, in their shapes; what belongs to a constant goes no further."""
    return tuple(parts[i].sum_to_size(call.leaves[i].shape) for i in call.places)


def collected(call: Call, relevance: Tensor) -> Tensor:
    """Σ R of the readers of a sum z; where there are several, Chefer et al. 2021 write it as z (Σ R) / (z + 1e-9).

    Relevance is largest where a sum nearly vanishes, so that shift shows in their numbers.
    """
    return call.out * shifted(relevance, call.out) if call.readers > 1 else relevance


def proportional_sum(call: Call, relevance: Tensor) -> Messages:
    """R_k = x_k / (x_1 + x_2) R"""
    ratio = shifted(collected(call, relevance), call.out)
    return shared(call, [t * ratio for t in terms(call)])


def balanced_sum(call: Call, relevance: Tensor) -> Messages:
    """R_k = x_k / (x_1 + x_2) R, scaled so that Σ R_k is to Σ R as |Σ x_k R / z| to the sum of both (Chefer et al. 2021)."""
    relevance = collected(call, relevance)
    ratio = shifted(relevance, call.out)
    parts = [(t * ratio).reshape(call.pictures, -1) for t in terms(call)]
    sums = [p.sum(1, keepdim=True) for p in parts]
    total = relevance.reshape(call.pictures, -1).sum(1, keepdim=True)
    whole = sums[0].abs() + sums[1].abs()
    fair = [p * shifted(shifted(s.abs(), whole) * total, s) for p, s in zip(parts, sums, strict=True)]
    return shared(call, [p.view_as(relevance) for p in fair])


def sum_by_size(call: Call, relevance: Tensor) -> Messages:
    """R_k = |x_k| / (|x_1| + |x_2|) R: nothing cancels."""
    sizes = [t.abs() for t in terms(call)]
    ratio = shifted(relevance, sizes[0] + sizes[1])
    return shared(call, [s * ratio for s in sizes])


def proportional(call: Call, relevance: Tensor) -> Messages:
    """R_i = x_i ∂z/∂x_i R / z, for pooling: x_i / Σ x R."""
    return tuple(x * g for x, g in zip(call.inputs, known(call.gradient(shifted(relevance, call.out))), strict=True))


def pooled_by_size(call: Call, relevance: Tensor) -> Messages:
    """R_i = |x_i| / Σ |x| R"""
    (x,) = call.inputs
    ratio = shifted(relevance, call.run(x.abs()))
    return (x.abs() * known(call.gradient(ratio))[0],)


def known(messages: Messages) -> tuple[Tensor, ...]:
    assert all(m is not None for m in messages)
    return messages  # type: ignore[return-value]


# -- relevance: products ------------------------------------------------------------------------------------------------


def halves(call: Call, relevance: Tensor) -> Messages:
    """R_A = A ⊙ (S Vᵀ) / 2, R_V = V ⊙ (Aᵀ S) / 2, S = R / (A V): both factors share alike."""
    if call.gated is not None:
        return let_through(call, relevance)
    slopes = known(call.gradient(shifted(relevance, call.out)))
    return tuple(x * g / 2 for x, g in zip(call.inputs, slopes, strict=True))


def aligned_halves(call: Call, relevance: Tensor) -> Messages:
    """As `halves`, of the contributions c = a v alone that have the sign s of the output: (s c + |c|) / 2, never negative."""
    if call.gated is not None:
        return let_through(call, relevance)
    with torch.enable_grad():
        sizes = tuple(t.abs().requires_grad_() for t in call.inputs)
        absolute = call.run(*sizes)
    ratio = shifted(relevance, (call.out.abs() + absolute.detach()) / 2)
    along = known(call.gradient(ratio * call.out.sign()))
    whole = torch.autograd.grad(absolute, sizes, ratio)
    return tuple((x * g + x.abs() * a) / 4 for x, g, a in zip(call.inputs, along, whole, strict=True))


def let_through(call: Call, relevance: Tensor) -> Messages:
    """A gate is held constant: all goes to what it lets through."""
    return tuple(None if i == call.gated else relevance.sum_to_size(x.shape) for i, x in enumerate(call.inputs))


# -- relevance: linear layers -------------------------------------------------------------------------------------------


def transposed(call: Call, message: Tensor, weight: Tensor) -> Tensor:
    """Wᵀ m, with another weight in place of the layer's own."""
    if call.function is F.linear:
        return message @ weight
    with torch.enable_grad():
        probe = call.inputs[0].detach().requires_grad_()
        return torch.autograd.grad(without_bias(call, probe, weight), probe, message)[0]


def without_bias(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    return call.run(x, constants=[weight, *(None,) * (len(call.constants) - 1)])


def plain_product(call: Call) -> Tensor:
    """x w without the bias, which the forward pass has worked out already."""
    weight, *bias = call.constants
    if call.function is F.linear:
        return call.out - bias[0] if bias else call.out
    return without_bias(call, call.inputs[0], weight) if bias else call.out


def linear_joint(call: Call, relevance: Tensor) -> Messages:
    """R_i = Σ_j (x_i w_ij)^+ / Σ_k (x_k w_kj)^+ R_j (alpha 1, beta 0; Chefer et al. 2021).

    With (x w)^+ = (x w + |x| |w|) / 2 it costs three products in place of four.
    """
    x, weight = call.inputs[0], call.constants[0]
    size, weights = x.abs(), weight.abs()
    ratio = shifted(relevance, (plain_product(call) + without_bias(call, size, weights)) / 2)
    return ((x * transposed(call, ratio, weight) + size * transposed(call, ratio, weights)) / 2,)


def linear_aligned(call: Call, relevance: Tensor) -> Messages:
    """R_i = Σ_j c_ij^± / Σ_k c_kj^± R_j, c_ij = x_i w_ij, ± the sign of z_j = Σ_k c_kj: z-plus, and its mirror where z_j < 0.

    The denominator (|z| + |x| |w|) / 2 cannot vanish, so nothing is amplified or lost.
    """
    x, weight = call.inputs[0], call.constants[0]
    z, size, weights = plain_product(call), x.abs(), weight.abs()
    ratio = shifted(relevance, (z.abs() + without_bias(call, size, weights)) / 2)
    return ((x * transposed(call, ratio * z.sign(), weight) + size * transposed(call, ratio, weights)) / 2,)


def linear_separate(call: Call, relevance: Tensor) -> Messages:
    """R_i = Σ_j x_i^+ w_ij^+ / Σ_k x_k^+ w_kj^+ R_j + the same of x^- w^-: each half gets all of R, so it doubles.

    As in the LRP baseline of Chefer et al. 2021.
    """
    x, weight = call.inputs[0], call.constants[0]
    found = torch.zeros_like(x)
    for sign in (1, -1):
        part, half = (sign * x).clamp_min(0), (sign * weight).clamp_min(0)
        found += part * transposed(call, shifted(relevance, without_bias(call, part, half)), half)
    return (found,)


def pixel_box(call: Call, relevance: Tensor) -> Messages:
    """R_i = Σ_j (x_i w_ij - l w_ij^+ - h w_ij^-) / Σ_k (...) R_j with l, h the least and largest number of the picture (z^B)."""
    x, weight = call.inputs[0], call.constants[0]
    low, high = (f(x, dim=tuple(range(1, x.dim())), keepdim=True).expand_as(x) for f in (torch.amin, torch.amax))
    parts = ((x, weight), (-low, weight.clamp_min(0)), (-high, weight.clamp_max(0)))
    ratio = relevance / (sum(without_bias(call, *p) for p in parts) + SHIFT)
    return (sum((v * transposed(call, ratio, w) for v, w in parts), torch.zeros_like(x)),)


# -- multipliers --------------------------------------------------------------------------------------------------------


def activation_identity(call: Call, multiplier: Tensor) -> Messages:
    """m f(x) / x: the relevance of an output is that of its input. Where x is 0, the slope."""
    (x,) = call.inputs
    base = x + LXT
    found = call.out / base
    if (held := (x == 0) | (base == 0)).any():
        found = torch.where(held, known(call.gradient(torch.ones_like(multiplier)))[0], found)
    return (multiplier * found,)


def settings_of(call: Call) -> tuple[Tensor | None, float]:
    """Weight and epsilon of a norm."""
    numbers = [v for v in call.leaves if isinstance(v, float)]
    weight = next(iter(call.constants), None)
    return weight, numbers[0] if numbers else 1e-5


def layer_norm_detached(call: Call, multiplier: Tensor) -> Messages:
    """y = (x - mean x) / σ w + b with σ held constant: m_x = g - mean g, g = m w / σ."""
    (x,) = call.inputs
    weight, epsilon = settings_of(call)
    dims = trailing(call)
    spread = (x.var(dims, unbiased=False, keepdim=True) + epsilon).sqrt()
    slope = (multiplier if weight is None else multiplier * weight) / spread
    return (slope - slope.mean(dims, keepdim=True),)


def rms_norm_detached(call: Call, multiplier: Tensor) -> Messages:
    """y = x / rms w with rms held constant."""
    (x,) = call.inputs
    weight, epsilon = settings_of(call)
    epsilon = epsilon if any(isinstance(v, float) for v in call.leaves) else torch.finfo(x.dtype).eps
    size = (x.square().mean(trailing(call), keepdim=True) + epsilon).sqrt()
    return ((multiplier if weight is None else multiplier * weight) / size,)


def trailing(call: Call) -> tuple[int, ...]:
    """The axes that a norm is taken over: as many as its shape has."""
    shape = [v for v in call.leaves[1:] if isinstance(v, int) and not isinstance(v, bool)]
    return tuple(range(-max(1, len(shape)), 0))


def normalize_detached(call: Call, multiplier: Tensor) -> Messages:
    """y = x / |x| with |x| held constant: m y / x, and 1 / |x| is y / x for every entry."""
    (x,) = call.inputs
    size = torch.where(x == 0, 0.0, call.out / x).amax(-1, keepdim=True) if normalises_last(call) else call.out / x
    return (multiplier * size,)


def normalises_last(call: Call) -> bool:
    dims = [v for v in call.leaves[1:] if isinstance(v, int)]
    return bool(dims) and dims[-1] in (-1, call.out.dim() - 1)


def multiplier_halves(call: Call, multiplier: Tensor) -> Messages:
    """y = a b: m_a = m b / 2, m_b = m a / 2, so that the relevance of y is shared alike."""
    if call.gated is not None:
        other = call.inputs[call.gated]
        return tuple(None if i == call.gated else (multiplier * other).sum_to_size(x.shape) for i, x in enumerate(call.inputs))
    return tuple(g / 2 for g in known(call.gradient(multiplier)))


def values_only(call: Call, multiplier: Tensor) -> Messages:
    """y = A v with A held constant: m_v = Aᵀ m."""
    if name_of(call) == "einsum":
        return None, call.gradient(multiplier)[1]
    return None, call.inputs[0].transpose(-2, -1) @ multiplier


def numerator(call: Call, multiplier: Tensor) -> Messages:
    """y = a / b with b held constant: m_a = m / b."""
    if call.places[0] != 0:
        return (None,)
    return (call.gradient(multiplier)[0], *(None,) * (len(call.inputs) - 1))


def gamma(amount: float) -> Rule:
    """Contributions with the sign of the output count 1 + γ times (Montavon et al. 2019; for both signs as in zennit)."""
    return partial(linear_gamma, amount=amount) if amount else by_gradient


def linear_gamma(call: Call, multiplier: Tensor, *, amount: float) -> Messages:
    """R_i = Σ_j (c_ij + γ c_ij^±) / (z_j + γ z_j^±) R_j, c_ij = x_i w_ij, ± the sign of z_j; the bias b is one more contribution.

    As multipliers: m_i = (1 + γ/2) (S w)_i + γ/2 sign(x_i) ((± S) |w|)_i with S = z m / (z + γ z^±).
    """
    x, (weight, *bias) = call.inputs[0], call.constants
    z = call.out
    sign = torch.where(z < 0, -1.0, 1.0)
    z_signed = (plain_product(call) + sign * without_bias(call, x.abs(), weight.abs())) / 2
    if bias:
        b = bias[0].view(-1, *(1,) * (z.dim() - 2)) if call.op == "convolution" else bias[0]
        z_signed = z_signed + torch.where(sign > 0, b.clamp_min(0), b.clamp_max(0))
    ratio = torch.where(z == 0, 0.0, z * multiplier / (z + amount * z_signed + sign * ZENNIT))
    along = transposed(call, ratio, weight)
    size = x.sign() * transposed(call, ratio * sign, weight.abs())
    return ((1 + amount / 2) * along + amount / 2 * size,)


# rules under which an operation keeps nothing back
KEEPING = (unchanged, activation_identity, values_only, multiplier_halves, numerator, normalize_detached, rms_norm_detached)
