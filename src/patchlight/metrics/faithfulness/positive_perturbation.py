from __future__ import annotations

from patchlight.core.metric import HIGH, Case, Fill, Steps, metric
from patchlight.metrics.faithfulness import _perturbation as perturbation


@metric(
    paper="Chefer et al. 2021, arXiv:2012.09838; levels as VTranM (Wu et al. 2024, arXiv:2403.14552)",
    equation="AUC_k 1[argmax y(x without the share k of highest scores) = truth], k = 0, 5, ..., 100 %",
    better="lower",
    needs=perturbation.needs,
)
def positive_perturbation(
    case: Case, *, levels: int = 21, ends: bool = True, fill: Fill = "black", truth: perturbation.Truth = "label"
) -> Steps:
    """The area under the accuracy while pixels are painted black, the highest score first.

    The published tables are 100 times `mean`. The accuracy is against the label whatever class the maps are for: explain the
    predicted class or the label for the two columns of the tables. truth="predicted" asks instead how long the model keeps its
    own answer. Without `ends` the levels lie inside: levels=9, ends=False are the 10 % to 90 % of Chefer's code.
    """
    return perturbation.accuracy(case, HIGH, levels=levels, ends=ends, fill=fill, truth=truth, metric="positive_perturbation")
