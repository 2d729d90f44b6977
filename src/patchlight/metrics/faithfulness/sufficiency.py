from __future__ import annotations

from patchlight.core.metric import HIGH, Case, Edit, Fill, Found, Steps, metric
from patchlight.metrics import _curves as curves


@metric(
    paper="DeYoung et al. 2020, ERASER, arXiv:1911.03429",
    equation="mean_k p_c(x) - p_c(only the share k of highest scores of x), k = 1, 5, 10, 20, 50 %",
    better="lower",
    needs=curves.label_needed,
)
def sufficiency(
    case: Case,
    *,
    at: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.5),
    fill: Fill = "mean",
    of: curves.Of = "predicted",
) -> Steps:
    """How far the probability falls when only the few highest scores are left; below zero where they alone say more."""
    counts = curves.parts_of(case.cells, at, metric="sufficiency")
    logits = yield [Edit(), *(Edit(HIGH, k, case.cells, fill) for k in counts)]
    classes, notes = curves.chosen(case, logits[:, 0], of)
    p = curves.probabilities(logits, classes)
    fall = p[:, :1] - p[:, 1:]
    return Found(fall.mean(1), fall, curves.shares(counts, case.cells, logits), notes=notes)
