"""Coalitions and estimates: against the definition written out, exact where they should be, and errors that are true."""

from __future__ import annotations

from itertools import permutations
from math import comb

import pytest
import torch
from torch import Tensor

from patchlight.methods.masking._coalitions import every, kernel_shares, of_sizes, paired, paired_orders, walks
from patchlight.methods.masking._shares import Shares, enumerated, from_pairs, from_walks, least_squares


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def game(players: int, seed: int = 0, *, crossed: float = 1.0) -> Tensor:
    """(2^n,) values of a game: each player, pairs and one triple, and something for nothing at all."""
    draw, inside = generator(seed), every(players).double()
    alone = torch.randn(players, generator=draw, dtype=torch.float64)
    together = torch.randn(players, players, generator=draw, dtype=torch.float64).triu(1)
    triple = inside[:, 0] * inside[:, 1] * inside[:, 2] if players > 2 else 0
    return 0.3 + inside @ alone + crossed * (torch.einsum("ri,ij,rj->r", inside, together, inside) + 2 * triple)


def rows_of(coalitions: Tensor) -> Tensor:
    """The row of each coalition in `every`."""
    return (coalitions.long() << torch.arange(coalitions.shape[-1])).sum(-1)


def by_definition(values: Tensor) -> Tensor:
    """The mean over all n! orders of what a player adds."""
    players = len(values).bit_length() - 1
    total, count = torch.zeros(players, dtype=torch.float64), 0
    for order in permutations(range(players)):
        row, count = 0, count + 1
        for player in order:
            total[player] += values[row + 2**player] - values[row]
            row += 2**player
    return total / count


def test_every_coalition_is_there_once():
    found = every(4)
    assert found.shape == (16, 4)
    assert rows_of(found).tolist() == list(range(16))


@pytest.mark.parametrize("players", [1, 2, 3, 5, 6])
def test_enumeration_is_the_mean_over_all_orders(players):
    values = game(players)
    torch.testing.assert_close(enumerated(values), by_definition(values), rtol=0, atol=1e-12)


def test_efficiency_dummy_and_symmetry_of_the_enumeration():
    inside = every(8).double()
    values = inside[:, 0] * inside[:, 1] + 3 * inside[:, 2] * inside[:, 3] * inside[:, 4] + inside[:, 5:7].sum(1)
    found = enumerated(values)
    torch.testing.assert_close(found.sum(), values[-1] - values[0])
    torch.testing.assert_close(found, torch.tensor([0.5, 0.5, 1, 1, 1, 1, 1, 0], dtype=torch.float64), rtol=0, atol=1e-12)


# -- walks ------------------------------------------------------------------------------------------------------------


def test_a_walk_adds_one_player_after_the_other():
    found = walks(torch.tensor([[2, 0, 1]]))
    assert found.tolist() == [[[False, False, True], [True, False, True]]]


def test_orders_come_with_their_reverse():
    found = paired_orders(generator(), 5, 6)
    assert torch.equal(found[:, 0], found[:, 1].flip(-1))
    assert torch.equal(found[:, 0].sort(-1).values, torch.arange(6).expand(5, 6))


def walked(values: Tensor, pairs: int, seed: int = 0) -> Shares:
    orders = paired_orders(generator(seed), pairs, len(values).bit_length() - 1)
    return from_walks(orders, values[rows_of(walks(orders))], values[0], values[-1])


def test_all_orders_give_the_exact_values():
    values = game(5)
    orders = torch.tensor([(o, o[::-1]) for o in permutations(range(5))])
    found = from_walks(orders, values[rows_of(walks(orders))], values[0], values[-1])
    torch.testing.assert_close(found.values, enumerated(values), rtol=0, atol=1e-12)


def test_reversed_orders_are_exact_for_a_game_of_pairs():
    inside = every(6).double()
    together = torch.randn(6, 6, generator=generator(), dtype=torch.float64)
    values = torch.einsum("ri,ij,rj->r", inside, together, inside)
    found = walked(values, 2)
    torch.testing.assert_close(found.values, enumerated(values), rtol=0, atol=1e-12)
    assert found.errors.max() < 1e-12


# -- the kernel -------------------------------------------------------------------------------------------------------


def test_sizes_are_drawn_as_often_as_the_kernel_says():
    players = 7
    weights = [(players - 1) / (comb(players, s) * s * (players - s)) * comb(players, s) for s in range(1, players)]
    expected = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    torch.testing.assert_close(kernel_shares(players), expected)
    sizes = paired(generator(), 20_000, players)[:, 0].sum(-1)
    found = torch.bincount(sizes, minlength=players)[1:] / len(sizes)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.015)


def test_coalitions_of_one_size_are_alike_and_complements_follow():
    drawn = of_sizes(generator(), torch.full((30_000,), 2), 5)
    assert drawn.sum(-1).unique().tolist() == [2]
    torch.testing.assert_close(drawn.double().mean(0), torch.full((5,), 0.4, dtype=torch.float64), rtol=0, atol=0.015)
    both = paired(generator(), 9, 5)
    assert torch.equal(both[:, 0], ~both[:, 1])


def test_weighted_least_squares_over_every_coalition_are_the_shapley_values():
    """The theorem behind KernelSHAP, with the kernel as weights in place of draws."""
    players, values = 8, game(8)
    inside = every(8)[1:-1]
    sizes = inside.sum(1)
    weights = torch.tensor([(players - 1) / (comb(players, s) * s * (players - s)) for s in sizes.tolist()], dtype=torch.float64)
    rows = inside.double() - sizes[:, None] / players
    gap = values[-1] - values[0]
    found = least_squares(
        rows, values[1:-1] - values[0] - sizes * gap / players, penalty=torch.ones(8, 8).double(), weights=weights
    )
    torch.testing.assert_close(found.values + gap / players, enumerated(values), rtol=0, atol=1e-11)


def kernel(values: Tensor, pairs: int, seed: int = 0) -> Shares:
    coalitions = paired(generator(seed), pairs, len(values).bit_length() - 1)
    return from_pairs(coalitions, values[rows_of(coalitions)], values[0], values[-1])


def test_pairs_are_exact_for_an_additive_game_whatever_is_drawn():
    values = game(8, crossed=0.0)
    found = kernel(values, 40)
    torch.testing.assert_close(found.values, enumerated(values), rtol=0, atol=1e-11)
    assert found.errors.max() < 1e-11


def test_pairs_solve_the_constrained_problem():
    """Against a plain solution by Lagrange's multiplier, with each coalition a row of its own."""
    values, coalitions = game(6), paired(generator(3), 30, 6)
    rows, y = coalitions.flatten(0, 1).double(), values[rows_of(coalitions)].flatten() - values[0]
    border = torch.ones(6, 1, dtype=torch.float64)
    system = torch.cat([torch.cat([rows.T @ rows, border], 1), torch.cat([border.T, torch.zeros(1, 1)], 1)])
    solved = torch.linalg.solve(system, torch.cat([rows.T @ y, (values[-1] - values[0])[None]]))[:6]
    found = from_pairs(coalitions, values[rows_of(coalitions)], values[0], values[-1])
    torch.testing.assert_close(found.values, solved, rtol=0, atol=1e-10)


def test_least_squares_and_its_sandwich_written_out():
    draw = generator()
    rows, y = torch.randn(20, 3, generator=draw, dtype=torch.float64), torch.randn(20, generator=draw, dtype=torch.float64)
    weights, penalty = torch.rand(20, generator=draw, dtype=torch.float64), torch.diag(torch.tensor([0.0, 0.5, 0.5])).double()
    inverse = torch.linalg.inv(rows.T @ torch.diag(weights) @ rows + penalty)
    expected = inverse @ rows.T @ torch.diag(weights) @ y
    middle = torch.zeros(3, 3, dtype=torch.float64)
    for x, w, value in zip(rows, weights, y, strict=True):
        middle += w**2 * torch.outer(x, x) * (value - x @ expected) ** 2 / (1 - w * x @ inverse @ x)
    found = least_squares(rows, y, penalty=penalty, weights=weights)
    torch.testing.assert_close(found.values, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.errors, (inverse @ middle @ inverse).diagonal().sqrt(), rtol=1e-9, atol=0)


# -- errors are true --------------------------------------------------------------------------------------------------

DRAWS = 300


def rough(players: int) -> Tensor:
    """A game in which every coalition has a whim of its own."""
    return game(players, seed=1) + torch.randn(2**players, generator=generator(2), dtype=torch.float64)


@pytest.mark.parametrize(("estimate", "pairs"), [(walked, 12), (kernel, 60), (kernel, 400)])
def test_estimates_are_right_on_average_and_their_errors_are_true(estimate, pairs):
    """Over 300 seeds: no bias beyond chance, the stated error equals the spread, and 95 % lie within two errors or so."""
    values = rough(8)
    truth = enumerated(values)
    found = [estimate(values, pairs, seed) for seed in range(DRAWS)]
    shares, errors = torch.stack([f.values for f in found]), torch.stack([f.errors for f in found])
    torch.testing.assert_close(shares.sum(1), (values[-1] - values[0]).expand(DRAWS), rtol=0, atol=1e-9)
    spread = shares.std(0)
    assert ((shares.mean(0) - truth).abs() < 4 * spread / DRAWS**0.5 + 0.02 * spread).all()
    ratio = errors.square().mean(0).sqrt() / spread
    assert 0.93 < ratio.mean() < 1.07, ratio
    assert (ratio > 0.85).all(), ratio
    assert (ratio < 1.2).all(), ratio
    inside = ((shares - truth).abs() < 1.96 * errors).double().mean()
    assert 0.91 < inside < 0.97, inside


def test_errors_fall_with_the_root_of_the_draws():
    values = rough(8)
    for estimate in (walked, kernel):
        few, many = estimate(values, 100).errors.mean(), estimate(values, 1600).errors.mean()
        assert 0.2 < many / few < 0.31
