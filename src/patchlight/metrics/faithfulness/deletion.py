from __future__ import annotations

from patchlight.core.metric import HIGH, Case, Edit, Fill, Steps, metric
from patchlight.metrics import _curves as curves


@metric(
    paper="Petsiuk et al. 2018, RISE, arXiv:1806.07421",
    equation="AUC_j p_c(x without the pixels of the j N / steps highest scores), j = 0 ... steps",
    better="lower",
    needs=curves.label_needed,
)
def deletion(
    case: Case, *, steps: int = 28, fill: Fill = "mean", of: curves.Of = "predicted", whole_steps: bool = False
) -> Steps:
    """The area under the probability while pixels are painted over, the highest score first.

    RISE's data-set protocol: 28 steps (1,792 pixels each at 224 x 224), painted with 0 after normalising, the class predicted on
    the whole picture, the trapezoid rule. `of` reads another class: the one explained, or the label. `whole_steps` takes
    floor(N / steps) pixels a step and leaves the rest, as the review's notebook does (steps=100, fill="black").
    """
    counts = curves.levels(case.cells, steps, whole=whole_steps, metric="deletion")
    logits = yield [Edit(HIGH, 0, k, fill) for k in counts]
    classes, notes = curves.chosen(case, logits[:, 0], of)
    return curves.of_curve(curves.probabilities(logits, classes), curves.shares(counts, case.cells, logits), notes)
