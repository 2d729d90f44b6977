"""Which patches stay: every coalition of a few players, walks through permutations, and draws from the Shapley kernel."""

from __future__ import annotations

import torch
from torch import Tensor


def every(players: int) -> Tensor:
    """(2^n, n) all coalitions: player i is in row r where bit i of r is set, so row 0 is empty and the last is full."""
    rows = torch.arange(2**players)
    return (rows[:, None] >> torch.arange(players)) & 1 == 1


def walks(orders: Tensor) -> Tensor:
    """(..., n - 1, n) what is there after 1, 2, ... n - 1 players of each order (..., n) have come in."""
    players = orders.shape[-1]
    return orders.argsort(-1)[..., None, :] < torch.arange(1, players)[:, None]


def paired_orders(draw: torch.Generator, pairs: int, players: int) -> Tensor:
    """(m, 2, n) random orders, each followed by its reverse: what one overrates because it comes late, the other underrates."""
    orders = torch.rand(pairs, players, generator=draw, dtype=torch.float64).argsort(-1)
    return torch.stack([orders, orders.flip(-1)], 1)


def kernel_shares(players: int) -> Tensor:
    """(n - 1,) p(s) ∝ 1 / (s (n - s)): how often the Shapley kernel draws coalitions of 1 ... n - 1 players.

    The kernel's weight of one coalition is (n - 1) / (C(n, s) s (n - s)), and there are C(n, s) of them.
    """
    sizes = torch.arange(1, players, dtype=torch.float64)
    shares = 1 / (sizes * (players - sizes))
    return shares / shares.sum()


def drawn_sizes(draw: torch.Generator, count: int, players: int) -> Tensor:
    """(m,) sizes of coalitions from the Shapley kernel."""
    return torch.multinomial(kernel_shares(players), count, replacement=True, generator=draw) + 1


def of_sizes(draw: torch.Generator, sizes: Tensor, players: int) -> Tensor:
    """(..., n) a coalition of each size (...), all coalitions of that size alike."""
    ranks = torch.rand(*sizes.shape, players, generator=draw, dtype=torch.float64).argsort(-1).argsort(-1)
    return ranks < sizes[..., None]


def paired(draw: torch.Generator, pairs: int, players: int) -> Tensor:
    """(m, 2, n) coalitions from the Shapley kernel, each followed by its complement."""
    drawn = of_sizes(draw, drawn_sizes(draw, pairs, players), players)
    return torch.stack([drawn, ~drawn], 1)
