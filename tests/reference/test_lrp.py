"""lrp = the rules of its papers, walked by hand through the network."""

from __future__ import annotations

import pytest
from torch import Tensor

import tiny
from open_relevance import JOINT, SEPARATE, relevance
from open_vit import PLAIN, Case, agree

# both divide by sums that nearly cancel: a difference of 1e-16 in the order of a sum is amplified
CONDITIONED = 1e-7


def reference(case: Case, *, rules: str = "separate", at: str = "pixels") -> Tensor:
    found = relevance(case, JOINT if rules == "joint" else SEPARATE)
    return found.pixels if at == "pixels" else found.tokens.sum(1)


@pytest.mark.parametrize("rules", ["separate", "joint"])
@pytest.mark.parametrize("network", PLAIN)
def test_equals_its_equations_at_the_pixels(network, rules):
    agree(reference, "lrp", network, tolerance=CONDITIONED, rules=rules)


@pytest.mark.parametrize("rules", ["separate", "joint"])
@pytest.mark.parametrize("network", PLAIN)
def test_equals_its_equations_at_the_tokens(network, rules):
    agree(reference, "lrp", network, tolerance=CONDITIONED, rules=rules, at="tokens")


def test_separate_halves_double_relevance_in_every_linear_layer():
    """As the baseline of the literature does: what arrives has no unit."""
    single, double = (tiny.explain("vit", "lrp", rules=rules).conservation["arrived"].abs() for rules in ("joint", "separate"))
    assert (double > 100 * single).all()
