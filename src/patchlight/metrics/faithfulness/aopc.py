from __future__ import annotations

from patchlight.core.metric import HIGH, Case, Edit, Fill, Found, Steps, metric
from patchlight.metrics import _curves as curves


@metric(
    paper="Samek et al. 2017, arXiv:1509.06321; as VTranM eq. 21 (Wu et al. 2024, arXiv:2403.14552)",
    equation="mean_k p_c(x) - p_c(x without the share k of highest scores), k = 0, 5, ..., 100 %",
    better="higher",
    needs=curves.label_needed,
)
def aopc(
    case: Case,
    *,
    levels: int = 21,
    ends: bool = True,
    fill: Fill = "black",
    of: curves.Of = "predicted",
    absolute: bool = False,
) -> Steps:
    """The mean fall of the probability while pixels are painted black, the highest score first.

    Signed, so that a rise counts against the map; AttCAT's code takes absolute differences at nine levels
    (levels=9, ends=False, absolute=True). The levels 0 and 100 % are the same for every map.
    """
    counts = curves.spaced(case.cells, levels, ends=ends, metric="aopc")
    logits = yield [Edit(), *(Edit(HIGH, 0, k, fill) for k in counts)]
    classes, notes = curves.chosen(case, logits[:, 0], of)
    p = curves.probabilities(logits, classes)
    fall = p[:, :1] - p[:, 1:]
    fall = fall.abs() if absolute else fall
    return Found(fall.mean(1), fall, curves.shares(counts, case.cells, logits), notes=notes)
