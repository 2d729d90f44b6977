from __future__ import annotations

import torch

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics.sanity._shares import shares, told


@metric(
    paper="Chalasani et al. 2020, Concise Explanations of Neural Networks using Adversarial Training, arXiv:1810.06583",
    equation="Gini = sum_k (2k - n - 1) |M|_(k) / (n sum |M|), |M|_(1) <= ... <= |M|_(n)",
    better="neither",
)
def sparseness(case: Case) -> Found:
    """The Gini index of the absolute map: 0 where all pixels count the same, near 1 where one pixel has everything.

    It says how readable a map is, not how right: one pixel anywhere wins. Token maps are smooth after they are enlarged, so
    compare maps of one resolution only.
    """
    p, something = shares(case)
    ordered, count = p.sort(1).values, p.shape[1]
    weight = 2 * torch.arange(1, count + 1, dtype=torch.float64, device=p.device) - count - 1
    return told((ordered * weight).sum(1) / count, something)
