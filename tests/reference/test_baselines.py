"""random, centre and edge: what any method must beat."""

from __future__ import annotations

import numpy as np
import skimage.filters
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


def test_edge_is_the_sobel_filter_of_the_grey_picture():
    images = tiny.pictures("vit_non_square")
    found = tiny.explain("vit_non_square", "edge", images).pixels
    grey = images.mean(1).numpy()
    # scikit-image divides by 4 for each direction and by sqrt(2) for both; ours is the Sobel filter over 8
    slow = [np.hypot(skimage.filters.sobel_h(g), skimage.filters.sobel_v(g)) for g in grey]
    inner = np.stack(slow)[:, 1:-1, 1:-1] / 2
    tiny.close(found[:, 1:-1, 1:-1], torch.from_numpy(inner), 1e-9)
    assert tiny.explain("vit", "edge", torch.ones(1, 3, 32, 32, dtype=torch.float64)).pixels.abs().max() < 1e-12
