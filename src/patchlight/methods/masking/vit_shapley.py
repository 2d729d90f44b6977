from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from patchlight.core.errors import TargetError
from patchlight.core.registry import Cost, method
from patchlight.core.targets import Target
from patchlight.methods.masking._explainer import explain, fitted, read
from patchlight.tracing.ask import Ask


@method(
    paper="Covert, Kim and Lee 2023, Learning to estimate Shapley values with vision transformers",
    equation="φ = head(tokens of x) + (p(x) - v(∅) - Σ φ) / n, the head trained by E_S |v(S) - v(∅) - Σ_{i in S} φ_i|²",
    needs=("tokens",),
    cost=Cost(2, 0),
    requires=("explainer",),
)
def vit_shapley(ask: Ask, *, explainer: str | None = None) -> Tensor:
    """Shapley values of all patches from one pass, by an explainer trained for this model.

    `explainer` is the file that `patchlight train-explainer` or `patchlight.train_explainer` wrote. The values are of
    probabilities, and add up to the probability of the picture less that of a picture without patches. What the authors take
    from their surrogate for the whole picture comes from the model itself here. An explainer may have been trained for blocks of
    patches: then the map lies on their grid.
    """
    assert explainer is not None  # it is required
    logits, target = ask.look()
    if target.function is not None:
        raise TargetError(
            "vit_shapley was trained on the probabilities of the classes, and cannot explain a function of the logits. "
            "Give a class or a pair of classes, or use shapley."
        )
    wide = torch.promote_types(logits.dtype, torch.float32)
    known = fitted(read(Path(explainer).expanduser()), ask.model, ask.layout(), ask.images)
    shares = explain(known, ask.model, ask.forward, ask.layout(), ask.images, logits.to(wide).softmax(-1))  # (b, n, k)
    return chosen(shares, target).unflatten(1, known.about.grid)


def chosen(shares: Tensor, target: Target) -> Tensor:
    """(b, n) of (b, n, k): the shares of the target's class, less those of the class it is set against."""
    found = shares.gather(2, target.index[:, None, None].expand(-1, shares.shape[1], 1))[..., 0]
    if target.against is None:
        return found
    return found - shares.gather(2, target.against[:, None, None].expand(-1, shares.shape[1], 1))[..., 0]
