"""What the model says when patches are taken away: for curves, a slider, and regions that somebody paints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from patchlight.core.scoring import Scorer

STEPS = 20


def patch_scores(scores: Tensor, grid: tuple[int, int]) -> Tensor:
    """(H, W) -> (h, w): the mean of each patch; a map on the grid stays as it is."""
    if tuple(scores.shape) == grid:
        return scores
    return F.adaptive_avg_pool2d(scores[None, None].float(), grid)[0, 0]


def patch_order(scores: Tensor) -> Tensor:
    """(h, w) -> (n,) patches from the highest score down, the first of equal ones first."""
    return scores.flatten().nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)


def counts(patches: int, steps: int = STEPS) -> list[int]:
    """How many patches are gone at each of the steps + 1 points, 0 and all among them."""
    return sorted({round(patches * k / steps) for k in range(steps + 1)})


def without(image: Tensor, kept: Tensor) -> Tensor:
    """x m with m (m, h, w) enlarged to pixels: what is gone is 0, the mean colour that the model was normalised by."""
    masks = F.interpolate(kept[:, None].to(image.dtype), size=image.shape[-2:], mode="nearest")
    return image[None] * masks


def score_without(scorer: Scorer, image: Tensor, kept: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(start, logits (b, k)) of the picture (3, H, W) with only the patches of each mask (m, h, w), batch by batch."""

    def make(start: int, stop: int) -> Tensor:
        return without(image, kept[start:stop].to(image.device))

    for start, _, logits in scorer.stream(make, len(kept)):
        yield start, logits


@dataclass(frozen=True, eq=False)
class Curves:
    """Logits (s, k) at each of the `counts` (s): patches deleted from the picture, or inserted into a blank one."""

    order: Tensor
    counts: Sequence[int]
    deletion: Tensor
    insertion: Tensor


def masks_for(order: Tensor, grid: tuple[int, int], steps: Sequence[int]) -> Tensor:
    """(2 s, h, w) kept patches: first all deletions, then all insertions."""
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    gone = torch.stack([rank < count for count in steps]).unflatten(1, grid)
    return torch.cat([~gone, gone])


def removal_curves(
    scorer: Scorer, image: Tensor, scores: Tensor, *, steps: int = STEPS, tick: Callable[[], None] = lambda: None
) -> Curves:
    """Both curves of one picture (3, H, W) in the order of its scores (h, w)."""
    order = patch_order(scores).cpu()
    at = counts(len(order), steps)
    masks = masks_for(order, (scores.shape[0], scores.shape[1]), at)
    found = []
    for _, logits in score_without(scorer, image, masks):
        found.append(logits.float().cpu())
        tick()
    logits = torch.cat(found)
    return Curves(order, at, logits[: len(at)], logits[len(at) :])
