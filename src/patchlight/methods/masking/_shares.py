"""From the values of coalitions to the share of each player, with a standard error that says how far the draw may be off."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import torch
from torch import Tensor

from patchlight.methods.masking._coalitions import every


@dataclass(frozen=True, eq=False)
class Shares:
    """(n,) what each player is worth, and the standard error of that."""

    values: Tensor
    errors: Tensor


def enumerated(values: Tensor) -> Tensor:
    """(n,) φ_i = Σ_{S without i} |S|! (n - |S| - 1)! / n! (v(S + i) - v(S)), from the values (2^n,) of `every` coalition."""
    players = len(values).bit_length() - 1
    inside = every(players).to(values.device)
    sizes = inside.sum(1)
    weights = torch.tensor(
        [factorial(s) * factorial(players - s - 1) / factorial(players) for s in range(players)], dtype=torch.float64
    ).to(values.device)
    rows = torch.arange(len(values), device=values.device)
    shares = []
    for player in range(players):
        without = rows[~inside[:, player]]
        gains = values[without + 2**player] - values[without]
        shares.append((weights[sizes[without]] * gains.double()).sum())
    return torch.stack(shares)


def from_walks(orders: Tensor, values: Tensor, empty: Tensor, full: Tensor) -> Shares:
    """What each player adds when it comes in, averaged over orders (m, 2, n); values (m, 2, n - 1) of their `walks`.

    A pair of reversed orders is one draw; φ̂ = mean_m φ_m and its error = sd_m / sqrt(m).
    """
    ends = values.new_zeros(*values.shape[:-1], 1)
    gains = torch.cat([ends + empty, values, ends + full], -1).diff(dim=-1)  # (m, 2, n) in the order of coming in
    drawn = torch.zeros_like(gains).scatter(-1, orders, gains).mean(1)  # (m, n)
    return Shares(drawn.mean(0), drawn.std(0) / len(drawn) ** 0.5)


def from_pairs(coalitions: Tensor, values: Tensor, empty: Tensor, full: Tensor) -> Shares:
    """KernelSHAP: min Σ_S (v(S) - v(∅) - Σ_{i in S} φ_i)² with Σ φ = v(all) - v(∅), over drawn pairs (m, 2, n) and values (m, 2).

    With φ = Δ/n + δ and Σ δ = 0, a coalition z and its complement are one row of a plain least squares problem in δ, whose
    response is half the difference of the two residuals.
    """
    players = coalitions.shape[-1]
    gap = full - empty
    rows = coalitions[:, 0].to(values) - 0.5
    centred = rows - rows.mean(1, keepdim=True)
    even = coalitions.sum(-1) * gap / players  # what the coalition has if all players are alike
    responses = (values - empty - even).to(centred)
    return_to = torch.ones(players, players, dtype=centred.dtype, device=centred.device)  # 1 1ᵀ: only keeps Σ δ = 0
    found = least_squares(centred, (responses[:, 0] - responses[:, 1]) / 2, penalty=return_to)
    return Shares(found.values + gap / players, found.errors)


def least_squares(rows: Tensor, responses: Tensor, *, penalty: Tensor, weights: Tensor | None = None) -> Shares:
    """β = (XᵀWX + P)⁻¹ XᵀWy with rows X (m, n), and its error where every row may have a spread of its own.

    G = XᵀWX + P, residuals e, leverages h_j = w_j x_jᵀ G⁻¹ x_j: error² = Σ_j (G⁻¹ x_j w_j)² e_j² / (1 - h_j), the sandwich of
    MacKinnon and White 1985 (HC2). Without 1 - h it is too small where rows are few, with its square (a jackknife) too large.
    """
    weights = torch.ones_like(responses) if weights is None else weights
    gram = rows.T @ (weights[:, None] * rows) + penalty
    scaled = torch.linalg.solve(gram, (weights[:, None] * rows).T)  # (n, m) G⁻¹ x_j w_j
    found = scaled @ responses
    leverage = (scaled * rows.T).sum(0)
    freed = (responses - rows @ found).square() / (1 - leverage).clamp_min(1e-12)
    return Shares(found, (scaled.square() @ freed).sqrt())
