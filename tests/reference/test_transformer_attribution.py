"""transformer_attribution and relevance_rollout = products over blocks of whole matrices I + the positive relevance."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tiny
from open_relevance import JOINT, SEPARATE, relevance
from open_vit import PLAIN, READOUTS, Case, agree

CONDITIONED = 1e-7


def attribution(
    case: Case, *, start_block: int = 1, normalise: bool = False, rules: str = "joint", weighted: bool = True
) -> Tensor:
    seen, found = case.open(), relevance(case, JOINT if rules == "joint" else SEPARATE).maps
    slopes = seen.gradient(seen.maps, case.target)
    running = torch.eye(len(case.row), dtype=torch.float64)
    for part, slope in list(zip(found, slopes, strict=True))[start_block:]:
        update = torch.eye(len(case.row)) + torch.relu(slope * part if weighted else part).mean(0)
        running = (update / update.sum(1, keepdim=True) if normalise else update) @ running
    return case.row @ running


def rollout(case: Case, *, start_block: int = 0, rules: str = "joint") -> Tensor:
    return attribution(case, start_block=start_block, rules=rules, weighted=False)


@pytest.mark.parametrize("network", PLAIN)
def test_equals_its_equations(network):
    agree(attribution, "transformer_attribution", network, tolerance=CONDITIONED)


@pytest.mark.parametrize("settings", [{"start_block": 0}, {"start_block": 2}, {"normalise": True}], ids=str)
def test_settings(settings):
    agree(attribution, "transformer_attribution", "vit", tolerance=CONDITIONED, **settings)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout):
    agree(attribution, "transformer_attribution", "vit_registers", tolerance=CONDITIONED, readout=readout)


@pytest.mark.parametrize("network", PLAIN)
def test_rollout_equals_its_equations(network):
    agree(rollout, "relevance_rollout", network, tolerance=CONDITIONED)


@pytest.mark.parametrize("settings", [{"start_block": 1}, {"rules": "separate"}, {"readout": (1, 2)}], ids=str)
def test_rollout_settings(settings):
    agree(rollout, "relevance_rollout", "vit_registers", tolerance=CONDITIONED, **settings)


def test_insides_hold_the_relevance_of_every_map():
    image = tiny.pictures(count=1)
    inside = tiny.explain("vit", "transformer_attribution", image, 1, start_block=0, insides=True).insides
    found = relevance(Case(tiny.subject("vit").model, image[0], 1), JOINT).maps
    assert sorted(inside["relevance"]) == sorted(inside["update"]) == [0, 1, 2]
    for block, expected in enumerate(found):
        tiny.close(inside["relevance"][block][0], expected, CONDITIONED)
