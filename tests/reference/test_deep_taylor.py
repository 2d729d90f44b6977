"""deep_taylor = contributions with the sign of the output, walked by hand through the network; nothing turns negative."""

from __future__ import annotations

import pytest
from torch import Tensor

import tiny
from open_relevance import ALIGNED, relevance
from open_vit import PLAIN, Case, agree


def reference(case: Case, *, at: str = "pixels") -> Tensor:
    found = relevance(case, ALIGNED)
    return found.pixels if at == "pixels" else found.tokens.sum(1)


@pytest.mark.parametrize("at", ["pixels", "tokens"])
@pytest.mark.parametrize("network", PLAIN)
def test_equals_its_equations(network, at):
    agree(reference, "deep_taylor", network, tolerance=1e-7, at=at)  # a shift of 1e-9 against a value clamped at 0


@pytest.mark.parametrize("network", ["vit", "vit_mean", "hf_deit", "torchvision_vit", "swin", "cnn"])
def test_no_relevance_is_negative_and_all_of_it_is_accounted_for(network):
    found = tiny.explain(network, "deep_taylor")
    assert found.scores.min() >= -1e-12 * found.scores.max()
    kept = found.conservation
    assert (kept["arrived"] > 0.05).all()
    constants = sum(
        v for name, v in kept.items() if name in ("class token", "position embedding", "relative position", "constants")
    )
    tiny.close(kept["arrived"] + constants, kept["received"], 1e-6)
