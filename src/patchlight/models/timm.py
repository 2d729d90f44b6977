"""Models of timm: `timm:NAME`, `timm:hf-hub:OWNER/NAME`, `timm:local-dir:FOLDER`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from patchlight.core.errors import ModelError
from patchlight.core.pictures import near_files
from patchlight.core.preprocess import Preprocess, from_timm
from patchlight.models.hub import answers, hub_answers, hub_folder, torch_cached
from patchlight.models.names import cannot_make, close_names, no_weights
from patchlight.models.subject import Subject
from patchlight.models.weights import Weights, fill, last_linear, misfit, read, renamed

SOURCES = ("hf-hub:", "hf_hub:", "local-dir:")
HUB = ("hf-hub:", "hf_hub:")


def load(name: str, *, weights: str | Path | None, preprocess: Preprocess | None, arguments: Mapping[str, Any]) -> Subject:
    """A model of timm, with its own preprocessing and label names."""
    import timm

    if not name.startswith(SOURCES) and not timm.is_model(name):
        raise ModelError(f"timm {timm.__version__} has no model {name!r}.{close_names(name, timm.list_models())}")
    source = at_hand(name)
    if weights is None:
        model, origin = pretrained(name, source, arguments), "timm's own"
    elif weights == "random":
        model, origin = build(source, arguments), "random"
    else:
        model, origin = from_file(source, read(weights), arguments)
    labels = () if weights == "random" else label_names(model)
    preprocess = preprocess or find_preprocess(model, arguments.get("img_size"))
    return Subject(model.eval(), f"timm:{name}", preprocess, labels=labels, origin=origin)


def at_hand(name: str) -> str:
    """The name itself, or the cached folder of a hub model where the hub does not answer."""
    source, _, where = name.partition(":")
    if source == "local-dir" and not (Path(where) / "config.json").is_file():
        raise ModelError(
            f"There is no config.json in the folder {where} of timm:{name}.{near_files(Path(where))} timm writes one there."
        )
    if not name.startswith(HUB) or hub_answers():
        return name
    folder = hub_folder(where)
    if folder is None:
        raise no_weights(
            f"timm:{name}", "the Hugging Face hub does not answer, and the local cache does not have it", folder=True
        )
    return f"local-dir:{folder}"


def build(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    import timm

    try:
        return timm.create_model(name, **arguments)
    except Exception as error:  # constructors raise whatever they like
        raise cannot_make(f"timm:{name}", arguments, error) from error


def pretrained(name: str, source: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The model with the weights that timm offers for it."""
    import timm

    extra = {} if source.startswith(SOURCES) else overlay(name, arguments)
    try:
        return timm.create_model(source, pretrained=True, **extra, **arguments)
    except OSError as error:
        raise no_weights(f"timm:{name}", f"{type(error).__name__} while fetching them") from error
    except Exception as error:  # constructors raise whatever they like
        raise cannot_make(f"timm:{name}", arguments, error) from error


def overlay(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """How `create_model` is told of a cached file where the network does not answer; an error where there is none."""
    import timm

    config = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise no_weights(f"timm:{name}", "timm has none for it")
    asked = arguments.get("num_classes")
    if asked not in (None, 0, config.num_classes):
        raise ModelError(
            f"timm's weights of {name} know {config.num_classes} classes, but num_classes={asked} was asked for, which would "
            "leave the classifier random. Leave num_classes out, or give weights=FILE of a model trained on those classes."
        )
    if not config.hf_hub_id:
        url = config.url if isinstance(config.url, str) else ""
        if url and not torch_cached(url) and not answers(url):
            raise no_weights(f"timm:{name}", f"{url} does not answer")
        return {}
    if hub_answers():
        return {}
    folder = hub_folder(config.hf_hub_id)
    files = [folder / f for f in ("model.safetensors", "pytorch_model.bin")] if folder else []
    cached = next((f for f in files if f.is_file()), None)
    if cached is None:
        raise no_weights(f"timm:{name}", "the Hugging Face hub does not answer, and the local cache does not have them")
    return {"pretrained_cfg_overlay": {"file": str(cached), "custom_load": False, "hf_hub_id": None}}


def from_file(name: str, weights: Weights, arguments: Mapping[str, Any]) -> tuple[nn.Module, str]:
    """(the model filled from a file, with as many classes as the file has; the origin)."""
    model = build(name, arguments)
    found = weights.classes(classifiers(model))
    if "num_classes" not in arguments and found not in (None, getattr(model, "num_classes", None)):
        model = build(name, {**arguments, "num_classes": found})
    if misfit(model, weights.tensors):
        weights = converted(model, weights, resize="img_size" in arguments)
    return fill(model, weights, name=f"timm:{name}"), weights.origin


def classifiers(model: nn.Module) -> tuple[str, ...]:
    named = data_config(model).get("classifier") or ()
    return (named,) if isinstance(named, str) else tuple(named) or last_linear(model)


def converted(model: nn.Module, weights: Weights, *, resize: bool) -> Weights:
    """The file as timm's own converter for this family (older and original checkpoints) makes it, where that helps.

    It may rename tensors; only position embeddings may change their shape, and only where an image size was asked for.
    """
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if convert is None:
        return weights
    try:
        tensors: dict[str, Tensor] = convert(dict(weights.tensors), model)
    except Exception:  # not a checkpoint that it knows: the misfit with the file as it is says more
        return weights
    changed = [n for n, t in tensors.items() if n in weights.tensors and t.shape != weights.tensors[n].shape]
    if misfit(model, tensors) or any(not (resize and "pos" in n) for n in changed):
        return weights
    how = f"{len(changed)} position embeddings resized" if changed else "names converted by timm"
    return renamed(weights, tensors, how=how)


def data_config(model: nn.Module) -> dict[str, Any]:
    """The `pretrained_cfg` of a timm module, empty for others."""
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None) or {}
    if is_dataclass(config) and not isinstance(config, type):
        return asdict(config)
    return dict(config) if isinstance(config, Mapping) else {}


def find_preprocess(model: nn.Module, size: Any = None) -> Preprocess:
    """timm's preprocessing, at the size that the model was built for."""
    from timm.data.config import resolve_model_data_config

    config = resolve_model_data_config(model, pretrained_cfg=data_config(model))
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or size or config["input_size"][-2:]
    height, width = size if isinstance(size, Sequence) else (size, size)
    return from_timm({**config, "input_size": (config["input_size"][0], height, width)})


def label_names(model: nn.Module) -> tuple[str, ...]:
    """The names in the model's configuration, or those of the ImageNet subset that its number of classes tells."""
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    count = getattr(model, "num_classes", 0)
    config = data_config(model)
    if len(own := config.get("label_names") or ()) == count and count:
        descriptions = config.get("label_descriptions") or {}
        named = descriptions if isinstance(descriptions, Mapping) else {}
        return short_names([named.get(n, n) for n in own])
    subset = infer_imagenet_subset({"num_classes": count})
    return short_names(list(ImageNetInfo(subset).label_descriptions())) if subset else ()


def short_names(descriptions: Sequence[str]) -> tuple[str, ...]:
    """The first synonym of each; all synonyms where two classes share the first."""
    firsts = [d.split(",")[0].strip() for d in descriptions]
    times = Counter(firsts)
    return tuple(f if times[f] == 1 else d for f, d in zip(firsts, descriptions, strict=True))
