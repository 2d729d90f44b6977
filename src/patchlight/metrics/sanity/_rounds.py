"""Both randomisation tests: part after part gets new weights, and the maps are made anew for the original class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from patchlight.core.metric import Case, Found
from patchlight.metrics.sanity._again import check_count, compared, remade
from patchlight.metrics.sanity._alike import Measure, every
from patchlight.metrics.sanity._randomise import fresh, parts, standing_in

Choose = Callable[[Mapping[str, list[str]]], Sequence[Sequence[str]]]
"""Part -> parameters, from the head down: the parameters that are new at every step."""


def randomised(case: Case, name: str, choose: Choose, *, measure: Measure, seeds: int) -> Found:
    """The mean over the seeds, at every step."""
    check_count(name, seeds=seeds)
    assert case.model is not None
    layout = None if case.layout is None else case.layout()  # found before anything is random
    named = parts(case.model, layout)
    rounds, notes = [], [f"parts from the head down: {', '.join(named)}"]
    unmoved = torch.ones(len(case), dtype=torch.bool, device=case.pixels.device)
    for seed in range(seeds):
        new, unknown = fresh(case.model, case.seed + seed)
        steps = []
        for step, names in enumerate(choose(named)):
            with standing_in(case.model, {n: new[n] for n in names}):
                maps = remade(case, name)
            steps.append(every(case.pixels, maps, measure))
            if not step:
                unmoved &= same(case.pixels, maps)
        rounds.append(steps)
        notes += [f"no initialisation known, drawn as they were spread: {', '.join(unknown)}"] if unknown and not seed else []
    if unmoved.any():
        notes.append(HEAD_ALONE.format(int(unmoved.sum()), len(case)))
    means = [{m: torch.stack([r[k][m] for r in rounds]).nanmean(0) for m in rounds[0][0]} for k in range(len(rounds[0]))]
    return compared(means, measure, notes)


def same(a: Tensor, b: Tensor) -> Tensor:
    """(b,) up to rounding."""
    a, b = a.flatten(1), b.flatten(1)
    return (a - b).abs().amax(1) <= 1e-5 * a.abs().amax(1)


HEAD_ALONE = (
    "{} of {} maps did not change when only the head was new: so it must be for a class-blind method (its map is not read off "
    "the head), and is a fault in any other"
)
