from __future__ import annotations

from patchlight.core.metric import HIGH, Case, Edit, Fill, Found, Steps, metric
from patchlight.metrics import _curves as curves


@metric(
    paper="Shrikumar et al. 2017, arXiv:1704.02685; as VTranM eq. 22 (Wu et al. 2024, arXiv:2403.14552)",
    equation="mean_k log p_c(x without the share k of highest scores) - log p_c(x), k = 0, 5, ..., 100 %",
    better="lower",
    needs=curves.label_needed,
)
def lodds(case: Case, *, levels: int = 21, ends: bool = True, fill: Fill = "black", of: curves.Of = "predicted") -> Steps:
    """The mean change of the log-probability while pixels are painted black, the highest score first.

    Natural logarithm, by log-softmax so that no probability is rounded to zero.
    """
    counts = curves.spaced(case.cells, levels, ends=ends, metric="lodds")
    logits = yield [Edit(), *(Edit(HIGH, 0, k, fill) for k in counts)]
    classes, notes = curves.chosen(case, logits[:, 0], of)
    log_p = curves.log_probabilities(logits, classes)
    change = log_p[:, 1:] - log_p[:, :1]
    return Found(change.mean(1), change, curves.shares(counts, case.cells, logits), notes=notes)
