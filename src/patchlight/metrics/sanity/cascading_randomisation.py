from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics.sanity._alike import Measure
from patchlight.metrics.sanity._rounds import randomised


@metric(
    paper="Adebayo et al. 2018, Sanity Checks for Saliency Maps, arXiv:1810.03292",
    equation="mean_k alike(M, M_k), M_k by the model whose topmost k parts are new, k = 1 ... parts",
    better="lower",
    needs=("method",),
)
def cascading_randomisation(case: Case, *, measure: Measure = "spearman", seeds: int = 3) -> Found:
    """How alike the map stays while the model loses what it learned, from the head down to the patch embedding.

    Parts are the head (with the last norm), each block, and the embedding; new weights are drawn as the model's own library
    draws them, for every seed the same in all pictures. Maps are made anew for the class that was explained first, whatever the
    new model predicts. The curve has the likeness at every share of new parts; `parts` has the rank correlation of the signed
    and of the absolute map and SSIM, whichever is the value. A constant map correlates with nothing (0). A class-blind method
    does not change while only the head is new; that is noted. The model is left as it was.
    """
    return randomised(case, "cascading_randomisation", cascade, measure=measure, seeds=seeds)


def cascade(parts: Mapping[str, list[str]]) -> list[list[str]]:
    return list(accumulate(parts.values(), lambda above, more: above + more))
