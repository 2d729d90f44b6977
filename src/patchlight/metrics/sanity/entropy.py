from __future__ import annotations

import torch

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics.sanity._shares import shares, told


@metric(
    paper="Bhatt et al. 2020, Evaluating and Aggregating Feature-based Model Explanations, arXiv:2005.00631",
    equation="H = -sum p log p, p = |M| / sum |M|",
    better="neither",
)
def entropy(case: Case) -> Found:
    """The entropy of the absolute map, in nats: 0 where one pixel has everything, log n where all n count the same."""
    p, something = shares(case)
    return told(-torch.special.xlogy(p, p).sum(1), something)
