from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patchlight.core.errors import ModelError
from patchlight.core.metric import Case, Found, Need, metric
from patchlight.metrics.sanity._again import compared, remade
from patchlight.metrics.sanity._alike import Measure, every
from patchlight.metrics.sanity._randomise import standing_in


def needed(settings: Mapping[str, Any]) -> tuple[Need, ...]:
    return ("method", "weights") if settings["weights"] is None else ("method",)


@metric(
    paper="Adebayo et al. 2018, Sanity Checks for Saliency Maps, arXiv:1810.03292",
    equation="alike(M, M'), M' by the same network trained on labels drawn at random",
    better="lower",
    needs=needed,
)
def data_randomisation(case: Case, *, weights: str | None = None, measure: Measure = "spearman") -> Found:
    """How alike the maps are of a model and of the same network that was trained on random labels (or other data).

    `weights` is a file of the other network's state (.safetensors, or .pt with tensors alone): train it until it knows its
    random labels by heart, else it tells nothing. Maps are made for the class that was explained first. A high value says that
    the map shows the picture rather than what the model knows of it. The model is left as it was.
    """
    assert weights is not None  # `needs` has been checked
    assert case.model is not None
    with standing_in(case.model, read(Path(weights).expanduser(), case.model)):
        maps = remade(case, "data_randomisation")
    return compared([every(case.pixels, maps, measure)], measure)


def read(path: Path, model: nn.Module) -> dict[str, Tensor]:
    """The tensors of the file, which must be exactly those of the model."""
    state = load(path)
    own = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    came = {name: tuple(t.shape) for name, t in state.items()}
    wrong = sorted(n for n in own.keys() | came.keys() if own.get(n) != came.get(n))
    if wrong:
        raise ModelError(
            f"{path} is not the state of this network: {len(wrong)} tensors differ in name or shape, such as {wrong[:3]}. "
            "Save the state_dict of the same network, trained on random labels."
        )
    return state


def load(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # both readers raise whatever they like
        raise ModelError(
            f"{path} cannot be read as the weights of the other network ({type(error).__name__}: {error}). "
            "Save them with safetensors.torch.save_file or torch.save of a state_dict."
        ) from error
