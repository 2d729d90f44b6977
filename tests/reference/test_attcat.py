"""attcat: gradient times token entering a block, weighted by the attention each token receives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from open_vit import PLAIN, Case, agree

SIGN = {"signed": lambda p: p, "positive": torch.relu, "absolute": torch.abs}


def reference(case: Case, *, sign: str = "signed") -> Tensor:
    seen = case.open()
    slopes = seen.gradient(seen.entering, case.target)
    total = torch.zeros(len(case.row), dtype=torch.float64)
    for tokens, slope, maps in zip(seen.entering, slopes, seen.maps, strict=True):
        for i in range(len(tokens)):
            received = maps[:, :, i].mean()
            total[i] = total[i] + SIGN[sign](received * (tokens[i] * slope[i]).sum())
    return total


@pytest.mark.parametrize("network", PLAIN)
@pytest.mark.parametrize("sign", SIGN)
def test_equals_its_equation(network, sign):
    agree(reference, "attcat", network, sign=sign)
