"""Models of torchvision: `torchvision:NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from patchlight.core.errors import ModelError
from patchlight.core.preprocess import Preprocess, from_torchvision
from patchlight.models.hub import answers, torch_cached
from patchlight.models.names import cannot_make, close_names, no_weights
from patchlight.models.sizes import resized
from patchlight.models.subject import Subject
from patchlight.models.weights import Weights, fill, last_linear, read


def load(name: str, *, weights: str | Path | None, preprocess: Preprocess | None, arguments: Mapping[str, Any]) -> Subject:
    """A classifier of torchvision, with the preprocessing and the categories of its default weights."""
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        raise ModelError(f"torchvision has no classifier {name!r}.{close_names(name, known)}")
    default = models.get_model_weights(name).DEFAULT  # type: ignore[attr-defined]
    if weights is None:
        model, origin = pretrained(name, default, arguments), f"torchvision's {default.name}"
    elif weights == "random":
        model, origin = build(name, arguments), "random"
    else:
        model, origin = from_file(name, read(weights), arguments)
    if preprocess is None:
        size = arguments.get("image_size")
        preprocess = from_torchvision(default.transforms())
        preprocess = resized(preprocess, (size, size)) if size else preprocess
    names = () if weights == "random" else default.meta["categories"]
    labels = tuple(names) if len(names) == outputs(model) else ()
    return Subject(model.eval(), f"torchvision:{name}", preprocess, labels=labels, origin=origin)


def build(name: str, arguments: Mapping[str, Any], *, weights: Any = None) -> nn.Module:
    from torchvision import models

    try:
        return models.get_model(name, weights=weights, **arguments)
    except OSError as error:
        raise no_weights(f"torchvision:{name}", f"{type(error).__name__} while fetching them") from error
    except Exception as error:  # constructors raise whatever they like
        raise cannot_make(f"torchvision:{name}", arguments, error) from error


def pretrained(name: str, default: Any, arguments: Mapping[str, Any]) -> nn.Module:
    if not torch_cached(default.url) and not answers(default.url):
        raise no_weights(f"torchvision:{name}", f"{default.url} does not answer, and the local cache does not have them")
    return build(name, arguments, weights=default)


def from_file(name: str, weights: Weights, arguments: Mapping[str, Any]) -> tuple[nn.Module, str]:
    """(the model filled from a file, with as many classes as the file has; the origin)."""
    model = build(name, arguments)
    found = weights.classes(last_linear(model))
    if "num_classes" not in arguments and found not in (None, outputs(model)):
        model = build(name, {**arguments, "num_classes": found})
    return fill(model, weights, name=f"torchvision:{name}"), weights.origin


def outputs(model: nn.Module) -> int | None:
    """How many classes the last linear layer has."""
    return next((model.get_submodule(n).out_features for n in last_linear(model)), None)  # type: ignore[return-value]
