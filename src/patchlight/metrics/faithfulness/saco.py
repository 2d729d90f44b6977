from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import HIGH, Case, Edit, Fill, Found, Steps, metric
from patchlight.metrics import _curves as curves


@metric(
    paper="Wu et al. 2024, SaCo, arXiv:2404.01415",
    equation="sum_{i<j} +-(s_i - s_j) / sum_{i<j} |s_i - s_j|, + where p_c falls as far without group i as without j, or further",
    better="higher",
    needs=curves.label_needed,
)
def saco(case: Case, *, groups: int = 10, fill: Fill = "average", of: curves.Of = "predicted") -> Steps:
    """Whether groups of pixels matter to the model in proportion to their scores: 1 for a faithful map, -1 for one turned around.

    The ranking is cut into `groups` of the same size, s_i is the sum of the scores in the i-th; each group alone is painted with
    the picture's own mean colour. A constant map gives 0.
    """
    if not 2 <= groups <= case.cells:
        raise SettingError(f"saco: groups takes 2 to {case.cells}, the number of pixels, but {groups} came.")
    bounds = [case.cells * j // groups for j in range(groups + 1)]
    logits = yield [Edit(), *(Edit(HIGH, a, b, fill) for a, b in pairwise(bounds))]
    classes, notes = curves.chosen(case, logits[:, 0], of)
    p = curves.probabilities(logits, classes)
    sums = group_sums(case, bounds)
    more = sums[:, :, None] - sums[:, None, :]  # (b, i, j)
    fall = p[:, :1] - p[:, 1:]
    agrees = fall[:, :, None] >= fall[:, None, :]
    pairs = torch.ones(groups, groups, device=sums.device).triu(1)
    total = (more.abs() * pairs).sum((1, 2))
    signed = (torch.where(agrees, more, -more) * pairs).sum((1, 2))
    return Found(torch.where(total > 0, signed / torch.where(total > 0, total, 1), 0.0), notes=notes)


def group_sums(case: Case, bounds: list[int]) -> Tensor:
    """(b, groups) the sum of the scores between two ranks."""
    ordered = case.pixels.flatten(1).double().sort(dim=1, descending=True).values
    return torch.stack([ordered[:, a:b].sum(1) for a, b in pairwise(bounds)], 1)
