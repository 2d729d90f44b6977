from __future__ import annotations

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics.sanity._again import check_count, compared, remade
from patchlight.metrics.sanity._alike import Measure, every


@metric(
    paper="patchlight; after Alvarez-Melis & Jaakkola 2018, On the Robustness of Interpretability Methods, arXiv:1806.08049",
    equation="mean_s alike(M_0, M_s), M_s with seed s",
    better="higher",
    needs=("method",),
)
def seed_agreement(case: Case, *, measure: Measure = "spearman", seeds: int = 3) -> Found:
    """How alike the maps of one method are when it draws other random numbers: 1 for a method that draws none.

    Low means that more samples are needed before any other number of this method can be read.
    """
    check_count("seed_agreement", seeds=seeds)
    rounds = [remade(case, "seed_agreement", seed=case.seed + s) for s in range(1, seeds + 1)]
    return compared([every(case.pixels, maps, measure) for maps in rounds], measure)
