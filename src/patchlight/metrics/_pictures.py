"""The changed pictures of all metrics, made in batches on the device as the scorer asks for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import HIGH, LOW, Case, Edit
from patchlight.core.scoring import Scorer
from patchlight.metrics._linear import imputed

ALL = "all"
WHOLE = Edit()
Painted = Callable[[Tensor, Tensor], Tensor]


@dataclass(eq=False)
class Pictures:
    """Makes and scores the changed pictures of one batch; `black` is what zero before normalising becomes."""

    case: Case
    scorer: Scorer
    black: tuple[float, float, float]
    known: dict[Edit, Tensor] = field(default_factory=dict)  # (b, K) each
    canvases: dict[str, Tensor] = field(default_factory=dict)

    def answer(self, edits: Sequence[Edit]) -> Tensor:
        """(b, edits, K) logits, from `known`."""
        return torch.stack([self.known[plain(self.case, edit)] for edit in edits], 1)

    def learn(self, edits: Iterable[Edit], advance: Callable[[int], None] = lambda _: None) -> None:
        """Score every distinct picture that was not scored before, in one stream."""
        new = dict.fromkeys(p for e in edits if (p := plain(self.case, e)) not in self.known)
        todo = sorted(new, key=lambda e: (e.order, e.fill, e.start, e.stop))
        if not todo:
            return
        batch, rows = len(self.case), []
        make = Maker(self, todo)
        for start, stop, logits in self.scorer.stream(make, len(todo) * batch):
            rows.append(logits)
            advance(stop - start)
        every = torch.cat(rows).unflatten(0, (len(todo), batch))
        self.known.update(zip(todo, every, strict=True))

    def canvas(self, fill: str) -> Tensor:
        """(b, 3, H, W) what is laid over the places that an edit names."""
        if fill not in self.canvases:
            self.canvases[fill] = canvas(fill, self.case, self.black)
        return self.canvases[fill]


def plain(case: Case, edit: Edit) -> Edit:
    """One name for the same picture: nothing painted over is the picture, everything painted over knows no order."""
    if edit.stop <= edit.start:
        return WHOLE
    if edit.start <= 0 and edit.stop >= places(case, edit.order):
        return Edit(ALL, 0, 1, edit.fill)
    return edit


def places(case: Case, order: str) -> int:
    """How many places an order ranks."""
    if order in (HIGH, LOW):
        return case.cells
    return 1 if order == ALL else prod(case.order(order).shape[1:])


class Maker:
    """make(start, stop) of the pictures edit by edit, all pictures of the batch within each edit."""

    def __init__(self, pictures: Pictures, edits: Sequence[Edit]) -> None:
        self.pictures, self.edits, self.batch = pictures, edits, len(pictures.case)
        device = pictures.case.images.device
        self.first = torch.tensor([e.start for e in edits], device=device).repeat_interleave(self.batch)
        self.last = torch.tensor([e.stop for e in edits], device=device).repeat_interleave(self.batch)
        self.index = torch.arange(self.batch, device=device).repeat(len(edits))

    def __call__(self, start: int, stop: int) -> Tensor:
        return torch.cat([self.run(first, last) for first, last in self.runs(start, stop)])

    def runs(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The stretches within which order and fill stay the same."""
        kinds = [(e.order, e.fill) for e in self.edits]
        cuts = [k * self.batch for k in range(1, len(kinds)) if kinds[k] != kinds[k - 1]]
        inner = [start, *(c for c in cuts if start < c < stop), stop]
        return list(itertools.pairwise(inner))

    def run(self, start: int, stop: int) -> Tensor:
        """(m, 3, H, W)"""
        case, edit = self.pictures.case, self.edits[start // self.batch]
        who = self.index[start:stop]
        if edit == WHOLE:
            return case.images[who]
        if edit.order == ALL:
            return self.pictures.canvas(edit.fill)[who]
        rank = case.order(edit.order)[who]
        painted = (rank >= self.first[start:stop, None, None]) & (rank < self.last[start:stop, None, None])
        size = case.images.shape[-2:]
        if painted.shape[1:] != size:
            painted = F.interpolate(painted[:, None].to(torch.uint8), size=size, mode="nearest")[:, 0].bool()
        if edit.fill == "linear":
            return imputed(case.images[who], painted, self.pictures.canvas("noise")[who])
        return torch.where(painted[:, None], self.pictures.canvas(edit.fill)[who], case.images[who])


def canvas(fill: str, case: Case, black: tuple[float, float, float]) -> Tensor:
    """mean: 0 after normalising. black: 0 before it. average: the picture's own mean colour. blur: RISE's. noise: N(0, 1)."""
    images = case.images
    if fill == "mean":
        return torch.zeros_like(images)
    if fill == "black":
        return torch.tensor(black).to(images)[None, :, None, None].expand_as(images)
    if fill == "average":
        return images.mean((2, 3), keepdim=True).expand_as(images)
    if fill == "blur":
        return blurred(images)
    if fill == "noise":
        shape = images.shape[1:]
        return torch.stack([torch.randn(shape, generator=g) for g in case.generators()]).to(images)
    raise SettingError(
        "fill='linear' draws from the pixels around, and nothing is left around a whole picture. "
        "Use mean, black, average, blur or noise where every pixel is painted."
    )


def blurred(images: Tensor) -> Tensor:
    """11 x 11 Gaussian of sigma 5, folded back at its own edges so that it sums to one; zeros beyond the picture."""
    delta = torch.zeros(11, dtype=torch.float64)
    delta[5] = 1
    line = torch.from_numpy(gaussian_filter1d(delta.numpy(), 5.0)).to(images)
    channels = images.shape[1]
    down = line[None, None, :, None].expand(channels, 1, -1, 1)
    found = F.conv2d(images, down, padding=(5, 0), groups=channels)
    return F.conv2d(found, down.transpose(2, 3), padding=(0, 5), groups=channels)
