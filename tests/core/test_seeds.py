"""Numbers that hang on a seed alone: whatever stands beside it in a batch."""

from __future__ import annotations

import torch

from patchlight.core.seeds import mixed, normals


def test_normal_numbers_are_normal():
    found = normals(torch.arange(20), (3, 101, 97), torch.float64).flatten(1)
    assert found.isfinite().all()
    assert found.mean().abs() < 4 / found.numel() ** 0.5
    assert (found.var() - 1).abs() < 4 * (2 / found.numel()) ** 0.5
    assert (found.pow(4).mean() - 3).abs() < 4 * (96 / found.numel()) ** 0.5
    assert found.abs().max() > 4.5
    between = torch.corrcoef(found)
    assert (between - torch.eye(20)).abs().max() < 5 / found.shape[1] ** 0.5
    for lag in (1, 2, 97):
        assert (found[:, lag:] * found[:, :-lag]).mean().abs() < 4 / found.numel() ** 0.5


def test_a_row_hangs_on_its_seed_alone():
    seeds = torch.tensor([5, -7, 2**62])
    whole = normals(seeds, (2, 5, 3), torch.float32)
    for index in range(3):
        assert torch.equal(normals(seeds[index : index + 1], (2, 5, 3), torch.float32)[0], whole[index])


def test_the_hash_is_splitmix64():
    state = (0 + 0x9E3779B97F4A7C15) % 2**64
    first = mixed(torch.tensor([state - 2**64]))
    assert first.item() % 2**64 == 0xE220A8397B1DCDAF  # the first output of the published generator for seed 0
