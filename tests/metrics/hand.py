"""A model made by hand whose probability is known exactly, and slow ways to change a picture, one pixel at a time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import patchlight as pl

SIDE, OBJECT = 8, 16


class Share(nn.Module):
    """p(class 1) is the share of the light in the object's pixels that is left; class 0 has the rest."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.zeros(SIDE, SIDE, dtype=torch.float64)
        weights[2:6, 2:6] = 1 / OBJECT
        self.weights = nn.Parameter(weights)

    def forward(self, images: Tensor) -> Tensor:
        share = (images.mean(1) * self.weights).sum((1, 2)).clamp(1e-12, 1 - 1e-12)
        return torch.stack([(1 - share).log(), share.log()], 1)


def subject() -> pl.Subject:
    plain = pl.Preprocess(size=(SIDE, SIDE), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return pl.load(Share(), preprocess=plain)


def white(count: int = 1) -> Tensor:
    return torch.ones(count, 3, SIDE, SIDE, dtype=torch.float64)


def maps() -> dict[str, Tensor]:
    """Without ties, so that the order is what it seems."""
    draw = torch.Generator().manual_seed(0)
    small = 1e-3 * torch.rand(SIDE, SIDE, generator=draw, dtype=torch.float64)
    perfect = Share().weights.detach() + small
    return {"perfect": perfect[None], "reversed": -perfect[None], "random": torch.rand(1, SIDE, SIDE, generator=draw).double()}


def order_of(scores: np.ndarray, *, highest: bool) -> list[int]:
    """Places by score, the lowest index first among equals, by comparing one after the other."""
    flat = scores.ravel().tolist()
    return sorted(range(len(flat)), key=lambda i: ((-flat[i] if highest else flat[i]), i))


def painted(image: np.ndarray, places: list[int], fill: np.ndarray) -> np.ndarray:
    found = image.copy()
    for place in places:
        row, column = divmod(place, image.shape[2])
        found[:, row, column] = fill[:, row, column]
    return found


def answer(subject: pl.Subject, images: list[np.ndarray]) -> np.ndarray:
    """(n, K) probabilities, one picture at a time."""
    with torch.no_grad():
        logits = [subject.model(torch.from_numpy(i)[None].double())[0] for i in images]
    rows = np.stack([row.numpy() for row in logits])
    rows = np.exp(rows - rows.max(1, keepdims=True))
    return rows / rows.sum(1, keepdims=True)
