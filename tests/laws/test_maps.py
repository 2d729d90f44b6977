"""What holds for the map of every method on every network: its shape, one picture alone, seeds, targets, precision."""

from __future__ import annotations

from functools import cache
from math import prod

import pytest
import torch

import patchlight as pl
import tiny
from patchlight.core.layout import MISSING
from patchlight.core.registry import discover
from tiny import KINDS, close, explain, known, pairs, pictures, quick, served, subject

ROUNDING = 1e-10  # float64: a batch is summed in another order than a picture alone
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
    expected = {m.name for m in discover().values() if set(m.needs) <= KINDS[network].needs}
    assert {m.name for m in served(network)} == expected


@every_pair
def test_shape_and_finite(network, method):
    found = known(network, method)
    kind = KINDS[network]
    assert found.pixels.shape == (3, *kind.size)
    chosen = discover()[method]
    if chosen.returns(chosen.resolve({})) == "tokens":
        assert found.tokens.shape == (3, *(kind.grid if prod(kind.grid) else (14, 14)))
    else:
        assert found.tokens is None
    assert found.pixels.isfinite().all()
    assert found.logits.shape == (3, tiny.CLASSES)
    assert torch.equal(found.target, found.logits.argmax(1))


@every_pair
def test_a_map_says_something_or_a_note_says_that_it_does_not(network, method):
    found = known(network, method)
    flat = found.scores.flatten(1)
    for index in range(3):
        constant = bool(flat[index].amax() == flat[index].amin())
        assert constant == any(f"picture {index}: the map of {method} is constant" in note for note in found.notes)


@every_pair
def test_batch_equals_single(network, method):
    """In micro-batches of two and one with the predicted classes given as a list; and the second picture alone."""
    whole, images = known(network, method), pictures(network)
    parts = explain(network, method, images, target=whole.target.tolist(), batch_size=2)
    close(parts.scores, whole.scores, ROUNDING)
    assert torch.equal(parts.target, whole.target)
    alone = explain(network, method, images[1:2])
    close(alone.scores, whole.scores[1:2], ROUNDING)


@pytest.mark.parametrize("method", [m.name for m in discover().values()])
def test_same_seed_same_numbers_and_other_seed_other_numbers(method):
    network = next(n for n in KINDS if discover()[method] in served(n))
    first, again, other = (explain(network, method, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.scores, again.scores)
    assert torch.equal(first.scores, other.scores) != discover()[method].stochastic


@every_pair
def test_targets_matter_unless_the_method_says_that_they_do_not(network, method):
    one = known(network, method)
    other = explain(network, method, target=((one.target + 3) % tiny.CLASSES).tolist())
    blind = discover()[method].class_blind
    assert torch.equal(one.scores, other.scores) == blind
    for found in (one, other):
        assert any("class-blind" in note for note in found.notes) == blind
    if not blind:
        gap, size = ((s.abs().flatten(1).amax(1)) for s in (one.scores - other.scores, one.scores))
        assert (gap > 1e-6 * size)[size > 0].all()  # what is cut off may be everything, for both classes: a note says so
        assert (gap > 0).any()


@every_pair
def test_float32_is_close_to_float64(network, method):
    wide = known(network, method)
    found = pl.explain(narrow(network), pictures(network).float(), method, wide.target.tolist(), **quick(method))
    close(found.scores, wide.scores, FLOAT32)


@cache
def narrow(network: str) -> pl.Subject:
    """The same weights, which float32 holds as they are."""
    return pl.load(tiny.fresh(network).float())
