"""Anything that turns pictures into scores: a function, a service, an ONNX session. Masking methods need no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from patchlight.core.errors import ModelError, without_gradient
from patchlight.core.preprocess import Preprocess, column, from_timm

Inputs = Literal["tensor", "array", "pictures"]
Outputs = Literal["logits", "probabilities"]
CHOICES = {"inputs": ("tensor", "array", "pictures"), "outputs": ("logits", "probabilities")}
SLACK = 1e-2  # how far probabilities may be from summing to one


class BlackBox(nn.Module):
    """A function of pictures in the place of a module; its one parameter says on which device the pictures are made."""

    def __init__(self, function: Callable[[Any], Any], preprocess: Preprocess, *, inputs: Inputs, outputs: Outputs) -> None:
        super().__init__()
        self.function, self.preprocess, self.inputs, self.outputs = function, preprocess, inputs, outputs
        self.place = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        """Scores (b, k) as logits: of probabilities p the logarithm, as softmax(log p) = p."""
        try:
            found = self.function(self.given(images))
        except RuntimeError as error:
            if "numpy() on Tensor that requires grad" in str(error):
                raise without_gradient() from error
            raise
        scores = as_scores(found, len(images), images.device)
        if self.outputs == "logits":
            return scores
        if not torch.allclose(scores.sum(-1), torch.ones(()).to(scores), atol=SLACK) or bool((scores < 0).any()):
            raise ModelError(
                f"outputs='probabilities': each row should sum to one, but sums {scores.sum(-1)[:3].tolist()} came. "
                "Use outputs='logits', and score='logit' for scores that are no logits of one choice."
            )
        return scores.clamp_min(torch.finfo(scores.dtype).tiny).log()

    def given(self, images: Tensor) -> Any:
        """The pictures as the function takes them."""
        if self.inputs == "tensor":
            return images
        if self.inputs == "array":
            return images.detach().float().cpu().numpy()
        mean, std = (column(v).to(images) for v in (self.preprocess.mean, self.preprocess.std))
        rows = (images * std + mean).clamp(0, 1).mul(255).round().to(torch.uint8)  # x = (picture / 255 - mean) / std
        return rows.permute(0, 2, 3, 1).contiguous().cpu().numpy()


def as_scores(output: Any, count: int, device: torch.device) -> Tensor:
    """(b, k) in float32 or better from a tensor, an array or nested lists."""
    try:
        scores = output if isinstance(output, Tensor) else torch.from_numpy(np.array(output, dtype=np.float64)).float()
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"the function should give scores ({count}, k), but a {type(output).__name__} came that is no array of numbers. "
            "Give a tensor, an array or lists."
        ) from error
    if scores.dim() != 2 or len(scores) != count or not scores.shape[1]:
        raise ModelError(
            f"the function should give scores ({count}, k) for {count} pictures, but {tuple(scores.shape)} came. "
            "Give one row for each picture, with one score for each class."
        )
    return scores.to(device, torch.promote_types(scores.dtype, torch.float32))


def wrap(what: Any, preprocess: Preprocess | None, arguments: Mapping[str, Any]) -> BlackBox:
    """A callable or an ONNX session as a module; `arguments` may say how it takes pictures and what it gives."""
    for name, value in arguments.items():
        if name not in CHOICES:
            raise ModelError(f"load: {name}= belongs with a name, but a function came, which takes inputs= and outputs=.")
        if value not in CHOICES[name]:
            raise ModelError(f"{name}= takes {', '.join(map(repr, CHOICES[name]))}, but {value!r} came.")
    if is_session(what):
        return wrap_session(what, preprocess, arguments)
    inputs, outputs = arguments.get("inputs", "tensor"), arguments.get("outputs", "logits")
    return BlackBox(what, preprocess or from_timm({}), inputs=inputs, outputs=outputs)


# -- ONNX -------------------------------------------------------------------------------------------------------------


def is_session(what: Any) -> bool:
    """An onnxruntime.InferenceSession, or what behaves like one; its package need not be there."""
    return all(callable(getattr(what, name, None)) for name in ("run", "get_inputs", "get_outputs"))


def wrap_session(session: Any, preprocess: Preprocess | None, arguments: Mapping[str, Any]) -> BlackBox:
    """The first input gets the pictures, the first output is taken as the scores."""
    entry = session.get_inputs()[0]
    shape = tuple(entry.shape)
    last = len(shape) == 4 and shape[3] == 3 and shape[1] != 3
    if len(shape) != 4 or 3 not in (shape[1], shape[3]):
        raise ModelError(
            f"the ONNX session should take pictures (b, 3, H, W) or (b, H, W, 3), but its input {entry.name!r} is {shape}. "
            "Wrap it in a function of a tensor (b, 3, H, W) and load that."
        )
    sides = shape[1:3] if last else shape[2:]
    size = sides if all(isinstance(s, int) for s in sides) else (224, 224)
    dtype = {"tensor(float16)": np.float16, "tensor(double)": np.float64}.get(entry.type, np.float32)
    fixed = shape[0] if isinstance(shape[0], int) else None

    def run(images: np.ndarray) -> np.ndarray:
        rows = (np.moveaxis(images, 1, 3) if last else images).astype(dtype)
        parts = [rows] if fixed is None else [rows[i : i + fixed] for i in range(0, len(rows), fixed)]
        found = [session.run(None, {entry.name: np.ascontiguousarray(filled(part, fixed))})[0][: len(part)] for part in parts]
        return np.concatenate(found)

    preprocess = preprocess or from_timm({"input_size": (3, *size)})
    return BlackBox(run, preprocess, inputs="array", outputs=arguments.get("outputs", "logits"))


def filled(rows: np.ndarray, count: int | None) -> np.ndarray:
    """As many rows as a session of one fixed batch wants; the last one is repeated."""
    return rows if count is None or len(rows) == count else np.concatenate([rows, rows[-1:].repeat(count - len(rows), 0)])
