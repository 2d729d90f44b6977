"""What holds for the map of every method on every network: its shape, one picture alone, seeds, targets, precision."""

from __future__ import annotations

import copy
from functools import cache
from math import prod

import pytest
import torch

import patchlight as pl
import tiny
from patchlight.core.layout import MISSING
from patchlight.core.registry import discover
from tiny import KINDS, close, explain, pairs, pictures, quick, served, subject

ROUNDING = 1e-10  # float64: a batch is summed in another order than a picture alone
CNN_GRID = (6, 6)  # of the last convolution of the tiny CNN
FLOAT32 = 1e-4  # the tolerance of the golden numbers
every_pair = pytest.mark.parametrize(("network", "method"), pairs())


@pytest.mark.parametrize("network", KINDS)
def test_layout_is_what_the_code_of_the_network_says(network):
    kind, layout = KINDS[network], subject(network).layout()
    assert (layout.grid, layout.prefix, len(layout.blocks)) == (kind.grid, kind.prefix, kind.blocks)
    assert layout.pool == kind.pool
    assert {need for need in MISSING if layout.missing(need) is None} == kind.needs


@pytest.mark.parametrize("network", KINDS)
def test_methods_are_served_where_the_network_meets_their_needs(network):
    expected = {m.name for m in discover().values() if set(m.needs) <= KINDS[network].needs and not m.requires}
    assert {m.name for m in served(network)} == expected


@every_pair
def test_shape_and_finite(network, method):
    found = explain(network, method)
    kind = KINDS[network]
    assert found.pixels.shape == (3, *kind.size)
    chosen = discover()[method]
    if chosen.returns(chosen.resolve({})) == "tokens":
        plain = kind.grid if prod(kind.grid) else (CNN_GRID if chosen.name == "score_cam" else (14, 14))
        grid = quick(method).get("grid", plain)
        assert found.tokens.shape == (3, *grid)
    else:
        assert found.tokens is None
    assert found.pixels.isfinite().all()
    assert found.logits.shape == (3, tiny.CLASSES)
    assert torch.equal(found.target, found.logits.argmax(1))


@every_pair
def test_a_map_says_something_or_a_note_says_that_it_does_not(network, method):
    found = explain(network, method)
    flat = found.scores.flatten(1)
    for index in range(3):
        constant = bool(flat[index].amax() == flat[index].amin())
        assert constant == any(f"picture {index}: the map of {method} is constant" in note for note in found.notes)


@every_pair
def test_batch_equals_single(network, method):
    images = pictures(network)
    whole = explain(network, method)
    for index in range(3):
        alone = explain(network, method, images[index : index + 1])
        close(whole.scores[index : index + 1], alone.scores, ROUNDING)


@every_pair
def test_micro_batches_change_nothing(network, method):
    whole, targets = explain(network, method, target=[4, 0, 2]), []
    for size in (1, 2):
        parts = explain(network, method, target=[4, 0, 2], batch_size=size)
        close(parts.scores, whole.scores, ROUNDING)
        targets.append(parts.target.tolist())
    assert targets == [[4, 0, 2], [4, 0, 2]]


@pytest.mark.parametrize("method", [m.name for m in discover().values() if not m.requires])
def test_same_seed_same_numbers_and_other_seed_other_numbers(method):
    network = next(n for n in KINDS if discover()[method] in served(n))
    first, again, other = (explain(network, method, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.scores, again.scores)
    assert torch.equal(first.scores, other.scores) != discover()[method].stochastic


@every_pair
def test_targets_matter_unless_the_method_says_that_they_do_not(network, method):
    one, other = (explain(network, method, target=t) for t in (1, 5))
    blind = discover()[method].class_blind
    assert torch.equal(one.scores, other.scores) == blind
    for found in (one, other):
        assert any("class-blind" in note for note in found.notes) == blind
    if not blind:
        gap = (one.scores - other.scores).abs().flatten(1).amax(1)
        assert (gap > 1e-6 * one.scores.abs().flatten(1).amax(1)).all()


@every_pair
def test_float32_is_close_to_float64(network, method):
    narrow, wide = both_precisions(network)
    found = pl.explain(narrow, pictures(network).float(), method, 3, **quick(method))
    close(found.scores, pl.explain(wide, pictures(network).float().double(), method, 3, **quick(method)).scores, FLOAT32)


@cache
def both_precisions(network: str) -> tuple[pl.Subject, pl.Subject]:
    """The same weights in float32 and in float64."""
    narrow = tiny.fresh(network).float()
    return pl.load(narrow), pl.load(copy.deepcopy(narrow).double())
