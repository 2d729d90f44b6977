"""Drawn scenes and a network that is known to read the mark alone: the metrics say where it looked."""

from __future__ import annotations

import colorsys

import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
from patchlight import data

CLASSES = 4
SETTINGS = {"count": 12, "size": 48, "classes": CLASSES, "mark": 0.5}


class ReadsTheMark(nn.Module):
    """y_k = sum over the pixels of max(0, 0.1 - |x - colour_k|): nothing but the mark has such colours."""

    def __init__(self) -> None:
        super().__init__()
        colours = torch.tensor([colorsys.hsv_to_rgb(k / CLASSES, 1.0, 0.9) for k in range(CLASSES)])
        self.colours = nn.Parameter(colours + 0.01)  # beside the colour, so that the slope is not zero on it

    def forward(self, images: Tensor) -> Tensor:
        distance = (images[:, None] - self.colours[None, :, :, None, None]).abs().sum(2)  # (b, k, H, W)
        return (0.1 - distance).clamp_min(0).sum((2, 3))


@pytest.fixture(scope="module")
def subject():
    return pl.load(ReadsTheMark(), preprocess=pl.Preprocess(size=(48, 48), mean=(0, 0, 0), std=(1, 1, 1)))


def share(subject, items, part: str) -> float:
    maps = pl.explain(subject, items, "saliency")
    return pl.evaluate(subject, items, maps, metric="energy", masks=[i.parts[part] for i in items]).mean


def test_the_map_lies_on_what_the_network_reads_and_not_on_what_the_label_means(subject):
    items = list(data.open("scenes", **SETTINGS))
    assert share(subject, items, "mark") == pytest.approx(1)
    assert share(subject, items, "object") == pytest.approx(0)
    assert share(subject, items, "distractors") == pytest.approx(0)


def test_the_network_answers_the_mark_and_not_the_object(subject):
    causes = {cause: data.open("scenes", cause=cause, **SETTINGS) for cause in ("mark", "object")}
    right = {}
    for cause, found in causes.items():
        logits = pl.explain(subject, list(found), "saliency").logits
        right[cause] = (logits.argmax(1) == torch.tensor([i.label for i in found])).double().mean().item()
    assert right["mark"] == 1
    assert right["object"] < 0.9


def test_leaving_the_mark_out_takes_the_answer_away_and_leaving_the_object_out_does_not(subject):
    def logits(leave_out):
        found = data.open("scenes", leave_out=leave_out, **SETTINGS)
        return subject.scores(torch.stack([subject.prepare(item.picture) for item in found]))

    whole = logits("nothing")
    assert torch.equal(logits("object"), whole)
    assert torch.equal(logits("distractors"), whole)
    assert (logits("mark").abs().sum(1) == 0).all()
    assert (whole.amax(1) > 0).all()
