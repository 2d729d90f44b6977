from __future__ import annotations

from collections.abc import Mapping

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics.sanity._alike import Measure
from patchlight.metrics.sanity._rounds import randomised


@metric(
    paper="Adebayo et al. 2018, Sanity Checks for Saliency Maps, arXiv:1810.03292",
    equation="mean_k alike(M, M_k), M_k by the model of which part k alone is new",
    better="lower",
    needs=("method",),
)
def independent_randomisation(case: Case, *, measure: Measure = "spearman", seeds: int = 3) -> Found:
    """How alike the map stays when one part of the model is new and all others are as learned, for each part in turn.

    As `cascading_randomisation` in everything else. Skip connections carry the picture past a single new block, so the map of a
    transformer changes less here than in a cascade, however good the method.
    """
    return randomised(case, "independent_randomisation", one_by_one, measure=measure, seeds=seeds)


def one_by_one(parts: Mapping[str, list[str]]) -> list[list[str]]:
    return list(parts.values())
