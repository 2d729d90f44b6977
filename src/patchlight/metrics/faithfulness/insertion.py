from __future__ import annotations

from patchlight.core.metric import HIGH, Case, Edit, Fill, Steps, metric
from patchlight.metrics import _curves as curves


@metric(
    paper="Petsiuk et al. 2018, RISE, arXiv:1806.07421",
    equation="AUC_j p_c(canvas with the pixels of the j N / steps highest scores of x), j = 0 ... steps",
    better="higher",
    needs=curves.label_needed,
)
def insertion(
    case: Case, *, steps: int = 28, canvas: Fill = "blur", of: curves.Of = "predicted", whole_steps: bool = False
) -> Steps:
    """The area under the probability while the picture is uncovered on an empty canvas, the highest score first.

    RISE's data-set protocol: 28 steps, the canvas is the blurred picture (11 x 11 Gaussian of sigma 5, zeros beyond the edge),
    the class predicted on the whole picture, the trapezoid rule. TAM's code starts from canvas="mean". `of` and `whole_steps`
    are those of `deletion`; with whole steps the last picture still is the whole one.
    """
    counts = curves.levels(case.cells, steps, whole=whole_steps, metric="insertion")
    counts[-1] = case.cells
    logits = yield [Edit(HIGH, k, case.cells, canvas) for k in counts]
    classes, notes = curves.chosen(case, logits[:, -1], of)
    return curves.of_curve(curves.probabilities(logits, classes), curves.shares(counts, case.cells, logits), notes)
