"""What `explain` returns: raw signed scores, and everything needed to read, draw and store them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from patchlight.core.errors import PictureError
from patchlight.core.grid import to_pixels
from patchlight.core.source import Source

if TYPE_CHECKING:
    from PIL import Image

    from patchlight.models.subject import Subject


@dataclass(frozen=True, eq=False)
class Explanation:
    """The scores of one method for a batch of pictures, on the device of the model."""

    method: str
    settings: Mapping[str, Any]
    tokens: Tensor | None
    """(B, h, w) on the patch grid, raw and signed; None for methods that score pixels only."""
    target: Tensor
    """(B,) class indices; -1 where a function of the logits is explained."""
    logits: Tensor
    """(B, K)"""
    seconds: float
    """Wall-clock time; in a `compare` the methods that share one trace share its time too."""
    size: tuple[int, int]
    """(H, W) of the model's input."""
    model: str
    source: Source
    labels: tuple[str, ...] = ()
    pixel_scores: Tensor | None = None
    against: Tensor | None = None
    notes: tuple[str, ...] = ()
    conservation: Mapping[str, Tensor] = field(default_factory=dict)
    """Of relevance methods, (B,) each: what was received, what arrived, and what every cause kept back."""
    error: Tensor | None = None
    """The standard error of `scores`, in their shape, from methods that sample; None for the others."""
    samples: Tensor | None = None
    """(B,) how many samples each picture took."""
    insides: Mapping[str, Any] = field(default_factory=dict)
    """What went on inside when asked for: name -> {block: (B, ...)}, (B, ...), or a list where pictures differ in shape."""
    subject: Subject | None = field(default=None, repr=False)
    """The model that was explained, for pages; a pickled explanation goes without."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "subject": None}

    def __len__(self) -> int:
        return len(self.target)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.size))
        grid = "pixels" if self.tokens is None else "x".join(map(str, self.tokens.shape[1:])) + " tokens"
        return f"Explanation({self.method} of {len(self)} pictures {shape}, {grid}, {self.model}, {self.seconds:.2f} s)"

    @property
    def pixels(self) -> Tensor:
        """(B, H, W) at the model's input size, raw and signed; token scores are enlarged bilinearly."""
        if self.pixel_scores is not None:
            return self.pixel_scores
        assert self.tokens is not None
        return to_pixels(self.tokens, self.size)

    @property
    def scores(self) -> Tensor:
        """The map as the method made it: tokens where it has them, else pixels."""
        return self.pixels if self.tokens is None else self.tokens

    def label(self, index: int) -> str:
        """The name of what is explained in picture `index`, and its probability: `tabby 0.87`."""
        target = int(self.target[index])
        if target < 0:
            return "function of the logits"
        share = self.logits[index].float().softmax(-1)
        name = f"{self.class_name(target)} {share[target]:.2f}"
        return name if self.against is None else f"{name} rather than {self.class_name(int(self.against[index]))}"

    def class_name(self, index: int) -> str:
        return self.labels[index] if index < len(self.labels) else f"class {index}"

    def overlay(self, index: int = 0, **options: Any) -> Image.Image:
        """The map over the photo, at the photo's own size and on the part that the model saw."""
        from patchlight.render.overlay import overlay

        if not -len(self) <= index < len(self):
            raise PictureError(
                f"picture {index} was asked for, but there are {len(self)}. Give a number from 0 to {len(self) - 1}."
            )
        photo = self.source.picture(index % len(self)).image
        return overlay(photo, self.array(index), box=self.source.box(photo.size), **options)

    def to_html(self, path: str | Path, **options: Any) -> Path:
        """Write one self-contained page that opens offline; what the model must be asked for (`classes` to choose from,
        `curves`, `attention` of a clicked patch) is worked out now."""
        from patchlight.viewer.write import write_html

        return write_html({self.method: self}, path, **options)

    def array(self, index: int) -> np.ndarray:
        """The map of one picture as a numpy array."""
        return self.scores[index].detach().double().cpu().numpy()

    def save(self, path: str | Path) -> Path:
        """Write an .npz with the scores and how they came about; written aside and renamed, so never half a file."""
        path = Path(path)
        path = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.stem}.{os.getpid()}.npz")
        try:
            np.savez_compressed(aside, **self.arrays())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        return path

    def arrays(self) -> dict[str, Any]:
        tensors = {"tokens": self.tokens, "pixels": self.pixels, "target": self.target, "logits": self.logits}
        tensors |= {"error": self.error, "samples": self.samples}
        tensors |= flat(self.insides, "inside")
        found = {name: t.detach().cpu() for name, t in tensors.items() if t is not None}
        # numpy has no bfloat16
        arrays = {n: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for n, t in found.items()}
        return arrays | {"record": np.array(json.dumps(self.record()))}

    def record(self) -> dict[str, Any]:
        """How the numbers came about, ready for JSON."""
        from patchlight import __version__

        return {
            "method": self.method,
            "settings": {k: v if is_plain(v) else f"tensor {tuple(v.shape)}" for k, v in self.settings.items()},
            "model": self.model,
            "pictures": [self.source.name(i) for i in range(len(self))],
            "target": self.target.tolist(),
            "label": [self.label(i) for i in range(len(self))],
            "size": list(self.size),
            "seconds": round(self.seconds, 4),
            "notes": list(self.notes),
            **({} if self.samples is None else {"samples": self.samples.tolist()}),
            **({"conservation": {n: v.tolist() for n, v in self.conservation.items()}} if self.conservation else {}),
            "patchlight": __version__,
            "torch": str(torch.__version__),
        }


def is_plain(value: Any) -> bool:
    return not isinstance(value, Tensor)


def flat(found: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """`inside/name`, or `inside/name/block` where there is one for each block, or `inside/name/picture`."""
    found = {k: dict(enumerate(v)) if isinstance(v, list) else v for k, v in found.items()}
    parts = (flat(v, f"{prefix}/{k}") if isinstance(v, Mapping) else {f"{prefix}/{k}": v} for k, v in found.items())
    return {name: tensor for part in parts for name, tensor in part.items()}
