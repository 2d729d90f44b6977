from __future__ import annotations

from patchlight.core.metric import LOW, Case, Fill, Steps, metric
from patchlight.metrics.faithfulness import _perturbation as perturbation


@metric(
    paper="Chefer et al. 2021, arXiv:2012.09838; levels as VTranM (Wu et al. 2024, arXiv:2403.14552)",
    equation="AUC_k 1[argmax y(x without the share k of lowest scores) = truth], k = 0, 5, ..., 100 %",
    better="higher",
    needs=perturbation.needs,
)
def negative_perturbation(
    case: Case, *, levels: int = 21, ends: bool = True, fill: Fill = "black", truth: perturbation.Truth = "label"
) -> Steps:
    """The area under the accuracy while pixels are painted black, the lowest score first.

    The counterpart of `positive_perturbation`, with the same settings.
    """
    return perturbation.accuracy(case, LOW, levels=levels, ends=ends, fill=fill, truth=truth, metric="negative_perturbation")
