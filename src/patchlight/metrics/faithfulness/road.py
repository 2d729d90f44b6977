from __future__ import annotations

from typing import Literal

from patchlight.core.metric import HIGH, LOW, Case, Edit, Found, Steps, metric
from patchlight.metrics import _curves as curves


@metric(
    paper="Rong et al. 2022, ROAD, arXiv:2202.00449",
    equation="mean_k p_c(x, lowest share k imputed) - p_c(x, highest share k imputed), k = 10, 20, 30, 40, 50, 70, 90 %",
    better="higher",
    needs=curves.label_needed,
)
def road(
    case: Case,
    *,
    at: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9),
    order: Literal["both", "highest", "lowest"] = "both",
    output: Literal["probability", "accuracy"] = "probability",
    of: curves.Of = "predicted",
) -> Steps:
    """Removal without a trace: pixels become the weighted mean of their eight neighbours, plus a little noise.

    The paper's noisy linear imputation (weights 1/6 beside and 1/12 across, noise 0.01), so that the shape of what was removed
    tells the model nothing. `order`: the lowest scores first minus the highest first; or one of them alone, as 1 minus the
    output for the highest. output="accuracy" reads whether the class is still the first.
    """
    counts = curves.parts_of(case.cells, at, metric="road", most=0.99)
    orders = {"both": (HIGH, LOW), "highest": (HIGH,), "lowest": (LOW,)}[order]
    logits = yield [Edit(), *(Edit(o, 0, k, "linear") for o in orders for k in counts)]
    classes, notes = curves.chosen(case, logits[:, 0], of)
    read = curves.probabilities(logits, classes) if output == "probability" else logits.argmax(-1).eq(classes[:, None]).double()
    runs = read[:, 1:].split(len(counts), 1)
    curve = runs[1] - runs[0] if order == "both" else runs[0] if order == "lowest" else 1 - runs[0]
    return Found(curve.mean(1), curve, curves.shares(counts, case.cells, logits), notes=notes)
