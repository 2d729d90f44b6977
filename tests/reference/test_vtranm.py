"""vtranm = equations 8 to 20 of its paper with whole update matrices and loops over tokens and heads."""

from __future__ import annotations

from math import exp

import pytest
import torch
from torch import Tensor

import tiny
from open_vit import PLAIN, READOUTS, Case, Opened, agree


def weights(before: Tensor, after: Tensor, *, lengths: bool, directions: bool) -> Tensor:
    """diag of W: the length ratio times the softmax over tokens of the cosine."""
    ratios, cosines = [], []
    for e, new in zip(before.detach(), after.detach(), strict=True):
        ratios.append(new.norm().item() / e.norm().item())
        cosines.append((e @ new).item() / (e.norm().item() * new.norm().item()))
    total = sum(exp(c) for c in cosines)
    both = [(r if lengths else 1.0) * (exp(c) / total if directions else 1.0) for r, c in zip(ratios, cosines, strict=True)]
    return torch.tensor(both, dtype=torch.float64)


def updates(seen: Opened, case: Case, *, gradient: str, lengths: bool, directions: bool, reference: str) -> list[Tensor]:
    """U of attention and MLP, block after block."""
    slopes = seen.gradient(seen.maps, case.target, probability=gradient == "probability")
    eye, found = torch.eye(len(case.row), dtype=torch.float64), []
    for block, (maps, slope) in enumerate(zip(seen.maps, slopes, strict=True)):
        before = (seen.entering if reference == "residual" else seen.normed)[block]
        total = torch.zeros_like(eye)
        for head in range(len(maps)):
            w = weights(before, seen.head_updates[block][head], lengths=lengths, directions=directions)
            total = total + torch.relu(slope[head]) * (maps[head] @ torch.diag(w)) / len(maps)
        between = (seen.middle if reference == "residual" else seen.normed_middle)[block]
        w = weights(between, seen.mlp_updates[block], lengths=lengths, directions=directions)
        found += [eye + total, eye + torch.diag(w) * float(lengths or directions)]
    return found


def reference(
    case: Case,
    *,
    gradient: str = "probability",
    lengths: bool = True,
    directions: bool = True,
    init: str | None = None,
    reference: str = "residual",
    aggregate: bool = True,
    block: int = 0,
) -> Tensor:
    seen = case.open()
    if not aggregate:
        slope = seen.gradient([seen.maps[block]], case.target, probability=gradient == "probability")[0]
        return case.row @ (torch.relu(slope) * seen.maps[block]).mean(0)
    start = (
        [e.norm().item() for e in seen.entering[0]] if init == "lengths" or (init is None and lengths) else [1.0] * len(case.row)
    )
    running = torch.diag(torch.tensor(start, dtype=torch.float64))
    for update in updates(seen, case, gradient=gradient, lengths=lengths, directions=directions, reference=reference):
        running = update @ running
    return case.row @ running


ABLATIONS = [
    {"gradient": "logit"},
    {"reference": "norm"},
    {"lengths": False},
    {"directions": False},
    {"directions": False, "init": "identity"},
    {"lengths": False, "directions": False},
    {"lengths": False, "directions": False, "init": "lengths", "gradient": "logit"},
    {"aggregate": False},
    {"aggregate": False, "block": -1, "gradient": "logit"},
]


@pytest.mark.parametrize("network", PLAIN)
def test_equals_its_equations(network):
    agree(reference, "vtranm", network)


@pytest.mark.parametrize("network", ["vit", "vit_layer_scale"])
@pytest.mark.parametrize("settings", ABLATIONS, ids=str)
def test_ablations(network, settings):
    agree(reference, "vtranm", network, **settings)


@pytest.mark.parametrize("aggregate", [True, False])
@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readout(readout, aggregate):
    agree(reference, "vtranm", "vit_registers", readout=readout, aggregate=aggregate)


@pytest.mark.parametrize("network", ["vit_mean", "vit_no_prefix"])
def test_one_block_alone_reads_the_mean_where_the_head_pools(network):
    agree(reference, "vtranm", network, aggregate=False)


def test_without_lengths_and_directions_it_is_transformer_mm():
    found = tiny.explain("vit", "vtranm", lengths=False, directions=False, gradient="logit")
    tiny.close(found.tokens, tiny.explain("vit", "transformer_mm").tokens, 1e-12)


@pytest.mark.parametrize("network", ["vit", "vit_layer_scale"])
def test_insides_are_the_matrices_of_the_equations(network):
    image = tiny.pictures(network, 1)
    inside = tiny.explain(network, "vtranm", image, 1, insides=True).insides
    case = Case(tiny.subject(network).model, image[0], 1)
    settings = {"gradient": "probability", "lengths": True, "directions": True, "reference": "residual"}
    every = updates(case.open(), case, **settings)
    running = torch.diag(case.open().entering[0].detach().norm(dim=1))
    for block in range(3):
        attention, mlp = every[2 * block].detach(), every[2 * block + 1].detach()
        running = mlp @ attention @ running
        tiny.close(inside["update"][block][0], torch.stack([attention, mlp]), 1e-10)
        tiny.close(inside["contribution"][block][0], running, 1e-10)
