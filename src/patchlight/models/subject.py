"""A model that is to be explained, with its preprocessing and label names; and what was wrapped around it, taken off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from patchlight.core.errors import ModelError, PatchlightError
from patchlight.core.layout import Layout
from patchlight.core.pictures import read_picture
from patchlight.core.preprocess import Preprocess
from patchlight.core.scoring import Scorer
from patchlight.models.blackbox import BlackBox
from patchlight.tracing.as_found import as_found
from patchlight.tracing.probe import find_layout

WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"})
UNSEEN = "Load the eager model that it was made from (the Python class and its weights) and give that to patchlight.load."
ADVICE = "Give an image classifier; if it is one, give preprocess=Preprocess(size=(H, W)) with the input size that it takes."


@dataclass(frozen=True, eq=False, repr=False)
class Subject:
    """A model and what belongs to it.

    `given` is a layout told by hand; `origin` says in words where the weights are from, `card` what the model is good for.
    """

    model: nn.Module
    name: str
    preprocess: Preprocess
    labels: tuple[str, ...] = ()
    given: Layout | None = None
    origin: str = ""
    card: str = ""
    layouts: dict[tuple[int, int], Layout] = field(default_factory=dict, init=False)
    scorers: list[Scorer] = field(default_factory=list, init=False)

    def __repr__(self) -> str:
        height, width = self.preprocess.size
        labels = f", {len(self.labels)} labels" if self.labels else ""
        origin = f", weights: {self.origin}" if self.origin else ""
        return f"<Subject {self.name}: {type(self.model).__name__}, {height} x {width}{labels}{origin}>"

    def forward(self, images: Tensor) -> Tensor:
        """Logits (b, k) of images (b, 3, H, W), in float32 at least."""
        output = self.model(images)
        logits = find_logits(output)
        if logits is None or logits.ndim != 2 or not logits.is_floating_point():
            raise ModelError(
                f"{self.name}: the forward pass should give class scores (b, k), but {described(output)} came. "
                "Give a model with a classification head, or wrap it in a module whose forward returns the scores."
            )
        return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits

    @property
    def scorer(self) -> Scorer:
        """The model as a function of pictures, which remembers the batch that suits it; a new one when the model has moved."""
        if not self.scorers or (self.scorers[0].device, self.scorers[0].dtype) != (self.device, self.dtype):
            self.scorers[:] = [Scorer(self.scores, self.device, self.dtype)]
        return self.scorers[0]

    def scores(self, images: Tensor) -> Tensor:
        """Logits (b, k), with the model left as found."""
        with as_found(self.model), torch.no_grad():
            return self.forward(images.detach().clone())  # some models normalise in place

    @property
    def device(self) -> torch.device:
        return self.example.device

    @property
    def dtype(self) -> torch.dtype:
        return self.example.dtype

    @property
    def example(self) -> Tensor:
        """The first floating parameter; a scalar on the CPU for a model without any."""
        return next((p for p in self.model.parameters() if p.is_floating_point()), torch.zeros((), dtype=torch.float32))

    def layout(self, size: tuple[int, int] | None = None) -> Layout:
        """The layout at an input size (h, w), by default that of the preprocessing; found once for each size."""
        height, width = size or self.preprocess.size
        if (height, width) not in self.layouts:
            self.layouts[height, width] = self.find_layout((height, width))
        return self.layouts[height, width]

    def find_layout(self, size: tuple[int, int]) -> Layout:
        try:
            if isinstance(self.model, BlackBox):  # one call, so that a function that does not work is told at once
                self.scores(torch.zeros(1, 3, *size, device=self.device, dtype=self.dtype))
                return Layout(grid=(0, 0), size=size)
            return find_layout(self.model, self.forward, size=size, given=self.given)
        except PatchlightError:
            raise
        except Exception as error:  # a model that does not take pictures raises whatever it likes
            raise ModelError(
                f"patchlight explains image classifiers: it called {self.name} with a float tensor (1, 3, {size[0]}, {size[1]}) "
                f"and got: {type(error).__name__}: {brief(error)} {ADVICE}"
            ) from error

    def label(self, index: int) -> str:
        """The name of a class, `class 17` where it is not known."""
        return self.labels[index] if 0 <= index < len(self.labels) else f"class {index}"

    def prepare(self, image: Image.Image) -> Tensor:
        """A picture as the model takes it: (3, H, W), float32, on the CPU."""
        return self.preprocess(read_picture(image).image)


def find_logits(output: Any) -> Tensor | None:
    """The class scores in what a forward pass gave."""
    if isinstance(output, Tensor):
        return output
    if isinstance(scores := getattr(output, "logits", None), Tensor):
        return scores
    if isinstance(output, Mapping):
        scores = output.get("logits")
        return scores if isinstance(scores, Tensor) else None
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    return None


def described(output: Any) -> str:
    """What a forward pass gave, in words."""
    if isinstance(output, Tensor):
        return f"a tensor {tuple(output.shape)} of {output.dtype}"
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} with {', '.join(map(str, output)) or 'nothing'}"
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {', '.join(described(o) for o in output[:3]) or 'nothing'}"
    return f"a {type(output).__name__}"


def brief(error: BaseException, *, limit: int = 300) -> str:
    """The first line of an error, ending in a full stop."""
    line = (str(error).strip().splitlines() or ["no message"])[0]
    line = line if len(line) <= limit else line[:limit] + " ..."
    return line if line.endswith((".", "!", "?")) else line + "."


def unwrap(module: Any) -> Any:
    """The module inside torch.compile, DataParallel, DDP, FSDP and peft wrappers; what cannot be seen into is an error."""
    while (inner := inside(module)) is not None:
        module = inner
    if reason := hidden(module):
        raise ModelError(f"patchlight cannot see attention in {reason}. {UNSEEN}")
    return module


def inside(module: Any) -> nn.Module | None:
    """What one wrapper holds. The types are told by name, so that none of their packages has to be imported."""
    names = {c.__name__ for c in type(module).__mro__}
    if not isinstance(module, nn.Module):
        return None
    if "OptimizedModule" in names:
        return getattr(module, "_orig_mod", None)
    if names & WRAPPERS:
        return getattr(module, "module", None)
    if "PeftModel" in names:
        return module.get_base_model()  # type: ignore[operator]  # adapters live inside the layers and stay active
    return None


def hidden(module: Any) -> str | None:
    """Why the attention of a module cannot be seen; None where it can."""
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        return f"a TorchScript module ({name}), which runs outside Python"
    if name in ("ExportedProgram", "UnflattenedModule"):
        return f"a program of torch.export ({name}), which has no layers left"
    if isinstance(module, torch.fx.GraphModule) and any(isinstance(n.target, torch._ops.OpOverload) for n in module.graph.nodes):
        return f"a graph of bare operators ({name}; torch.export makes such), which has no layers left"
    return None
