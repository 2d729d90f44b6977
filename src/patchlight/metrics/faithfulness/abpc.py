from __future__ import annotations

from patchlight.core.metric import HIGH, LOW, Case, Edit, Fill, Found, Steps, metric
from patchlight.metrics import _curves as curves


@metric(
    paper="Leem and Seo 2024, AG-CAM, arXiv:2402.04563; Achtibat et al. 2024, AttnLRP, arXiv:2402.05602",
    equation="mean_k p_c(x without the share k of lowest scores) - p_c(x without the share k of highest), k = 0, 10, ..., 100 %",
    better="higher",
    needs=curves.label_needed,
)
def abpc(case: Case, *, levels: int = 11, ends: bool = True, fill: Fill = "mean", of: curves.Of = "predicted") -> Steps:
    """The area between the curves of removal from the bottom (LeRF) and from the top (MoRF) of the ranking.

    A map that is turned around changes the sign. As AG-CAM's code: painted with 0 after normalising, the plain mean over the
    levels; its probability is that of the label (of="label").
    """
    counts = curves.spaced(case.cells, levels, ends=ends, metric="abpc")
    logits = yield [Edit(), *(Edit(order, 0, k, fill) for order in (HIGH, LOW) for k in counts)]
    classes, notes = curves.chosen(case, logits[:, 0], of)
    most, least = curves.probabilities(logits[:, 1:], classes).chunk(2, 1)
    return Found((least - most).mean(1), least - most, curves.shares(counts, case.cells, logits), notes=notes)
