"""random and centre: what any method must beat."""

from __future__ import annotations

import torch

import tiny


def test_centre_falls_with_the_distance_from_the_middle():
    found = tiny.explain("vit_non_square", "centre").tokens
    for row in range(4):
        for column in range(6):
            distance = (((row + 0.5) / 4 - 0.5) ** 2 + ((column + 0.5) / 6 - 0.5) ** 2) ** 0.5
            expected = torch.full((3,), 1 - distance / 0.5**0.5)
            tiny.close(found[:, row, column], expected, 1e-6)  # computed in float32


def test_random_is_uniform():
    found = tiny.explain("vit", "random", tiny.pictures(count=64)).tokens.flatten()
    assert found.min() >= 0
    assert found.max() < 1
    assert abs(found.mean() - 0.5) < 4 / (12 * len(found)) ** 0.5  # four standard errors
