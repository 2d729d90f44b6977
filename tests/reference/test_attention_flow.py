"""attention_flow = maximum flows found by another solver, on the graph as the paper draws it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor

import tiny
from open_vit import Case, agree


def reference(case: Case, *, normalise: bool = False) -> Tensor:
    maps = [m.detach().mean(0).numpy() for m in case.open().maps]
    n, graph = len(maps[0]), nx.DiGraph()
    for level, fused in enumerate(maps, 1):
        step = fused + np.eye(n)
        step = step / step.sum(1, keepdims=True)
        for i in range(n):
            for j in range(n):
                graph.add_edge((level, i), (level - 1, j), capacity=step[i, j])
    for i, share in enumerate(case.row.tolist()):
        if share:
            graph.add_edge("source", (len(maps), i), capacity=share)
    found = [nx.maximum_flow_value(graph, "source", (0, v)) for v in range(n)]
    found = torch.tensor(found, dtype=torch.float64)
    return found / found.sum() if normalise else found


@pytest.mark.parametrize("settings", [{}, {"normalise": True}, {"readout": "mean"}, {"readout": (1, 2)}], ids=str)
def test_equals_another_solver(settings):
    agree(reference, "attention_flow", "vit", tolerance=1e-6, **settings)  # capacities are rounded to 1e-8


def test_flow_never_exceeds_the_edges_into_the_sink():
    found = tiny.explain("vit", "attention_flow", insides=True)
    bound = found.insides["capacity"][0].sum(1).clamp_max(1)[:, 1:]
    assert (found.tokens.flatten(1) <= bound + 1e-6).all()
