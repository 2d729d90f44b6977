"""How often a model is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from patchlight.core.pictures import read_picture
from patchlight.models.subject import Subject
from training.pictures import Example


@dataclass(frozen=True)
class Accuracy:
    right: int
    count: int

    @property
    def share(self) -> float:
        return self.right / self.count

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % of {self.count} pictures"


def accuracy(subject: Subject, found: Sequence[Example], *, batch: int = 32) -> Accuracy:
    """Over whole pictures, prepared as the model's own preprocessing says."""
    right = 0
    for start in range(0, len(found), batch):
        part = found[start : start + batch]
        images = torch.stack([subject.preprocess(read_picture(e.path).image) for e in part])
        predicted = subject.scores(images.to(subject.device, subject.dtype)).argmax(1).cpu()
        right += int((predicted == torch.tensor([e.label for e in part])).sum())
    return Accuracy(right, len(found))
