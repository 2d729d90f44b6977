"""Models of transformers: `hf:OWNER/NAME`, `hf:FOLDER`, and `hf:vit` and other model types with random or own weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from patchlight.core.errors import ModelError
from patchlight.core.pictures import near_files
from patchlight.core.preprocess import Preprocess, from_hf, from_timm
from patchlight.models.hub import hub_answers
from patchlight.models.names import cannot_make, close_names, no_weights
from patchlight.models.sizes import USUAL, pair, resized
from patchlight.models.subject import Subject, brief
from patchlight.models.weights import Misfit, Weights, last_linear, read, refuse

Loaded = tuple[nn.Module, str]


def load(name: str, *, weights: str | Path | None, preprocess: Preprocess | None, arguments: Mapping[str, Any]) -> Subject:
    """An image classifier of transformers, with its own attention implementation, image processor and label names."""
    transformers = library()
    offline = is_local(name) or not hub_answers()
    config = find_config(transformers, name, weights, arguments, offline=offline)
    if weights is None:
        model, origin = pretrained(transformers, name, config, offline=offline), f"hf:{name}"
    elif weights == "random":
        model, origin = build(transformers, name, config), "random"
    else:
        model, origin = from_file(transformers, name, config, read(weights), arguments)
    preprocess = preprocess or processor(transformers, name, config, offline=offline) or config_preprocess(config)
    if "image_size" in arguments and (size := pair(arguments["image_size"])):
        preprocess = resized(preprocess, size)
    return Subject(model.eval(), f"hf:{name}", preprocess, labels=label_names(model.config), origin=origin)


def library() -> ModuleType:
    try:
        import transformers
    except ImportError as error:
        raise ModelError("hf: models need transformers, which is not installed. Run: pip install 'patchlight[hf]'") from error
    return transformers


def model_types() -> list[str]:
    """The model types of transformers that have an image classifier."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES

    return sorted(MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)


def is_local(name: str) -> bool:
    return Path(name).expanduser().is_dir() or name in model_types()


def find_config(transformers: ModuleType, name: str, weights: Any, arguments: Mapping[str, Any], *, offline: bool) -> Any:
    if not (folder := Path(name).expanduser()).is_dir() and name in model_types():
        config = default_config(transformers, name, weights, arguments)
    elif not folder.is_dir() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise ModelError(f"There is no model folder {name}.{near_files(folder)}")
    else:
        config = stored_config(transformers, name, arguments, offline=offline)
    if config.model_type not in model_types():
        raise ModelError(
            f"hf:{name} is a model of the type {config.model_type!r}, for which transformers has no image classifier. "
            f"patchlight explains image classifiers: give one, for example of the type vit, deit, swin or dinov2."
        )
    config.dtype = torch.float32  # else a file would be rounded to the precision that the configuration was saved with
    return config


def default_config(transformers: ModuleType, name: str, weights: Any, arguments: Mapping[str, Any]) -> Any:
    """The default architecture of a model type; transformers itself would swallow a misspelt argument."""
    if weights is None:
        raise no_weights(f"hf:{name}", f"{name!r} names a model type, which has no weights of its own (OWNER/NAME has)")
    plain = transformers.AutoConfig.for_model(name)
    check_arguments(name, [a for a in arguments if not hasattr(plain, a)], plain)
    try:
        return transformers.AutoConfig.for_model(name, **arguments)
    except Exception as error:  # configurations raise whatever they like
        raise cannot_make(f"hf:{name}", arguments, error) from error


def stored_config(transformers: ModuleType, name: str, arguments: Mapping[str, Any], *, offline: bool) -> Any:
    try:
        config, unused = transformers.AutoConfig.from_pretrained(
            str(Path(name).expanduser()) if name.startswith("~") else name,
            local_files_only=offline,
            return_unused_kwargs=True,
            **arguments,
        )
    except (OSError, ValueError) as error:
        if Path(name).expanduser().is_dir():
            raise ModelError(
                f"The folder {name} should hold a model of transformers (config.json and weights), but: {brief(error)} "
                "Give the folder that save_pretrained wrote."
            ) from error
        if "/" not in name:
            raise ModelError(
                f"hf:{name} is neither a folder, nor a name on the hub (OWNER/NAME), nor a model type of transformers "
                f"with an image classifier.{close_names(name, model_types())}"
            ) from error
        reason = (
            "the Hugging Face hub does not answer, and the local cache does not have it" if offline else brief(error).rstrip(".")
        )
        raise no_weights(f"hf:{name}", reason, folder=True) from error
    check_arguments(name, list(unused), config)
    return config


def check_arguments(name: str, unknown: list[str], config: Any) -> None:
    if unknown:
        raise ModelError(
            f"The configuration of hf:{name} has no {', '.join(map(repr, unknown))}.{close_names(unknown[0], config.to_dict())} "
            f"See transformers.{type(config).__name__}."
        )


def build(transformers: ModuleType, name: str, config: Any) -> nn.Module:
    config.architectures = config.architectures or []  # transformers takes it for a list where a type has two classifiers
    try:
        return transformers.AutoModelForImageClassification.from_config(config)
    except Exception as error:  # constructors raise whatever they like
        raise cannot_make(f"hf:{name}", {}, error) from error


def pretrained(transformers: ModuleType, name: str, config: Any, *, offline: bool) -> nn.Module:
    """The model with the weights of its folder or repository; a classifier that is not among them is an error, not noise."""
    try:
        model, info = transformers.AutoModelForImageClassification.from_pretrained(
            name, config=config, local_files_only=offline, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except OSError as error:
        raise no_weights(f"hf:{name}", brief(error).rstrip(".")) from error
    except Exception as error:  # damaged files, impossible configurations
        raise cannot_make(f"hf:{name}", {}, error) from error
    found = misfit_of(info)
    if found.missing or found.wrong:
        raise ModelError(
            f"The weights of hf:{name} do not fill {type(model).__name__}; of their tensors there are {found}. "
            "Give a checkpoint that was trained as an image classifier."
        )
    return model


def from_file(transformers: ModuleType, name: str, config: Any, weights: Weights, arguments: Mapping[str, Any]) -> Loaded:
    """(the model filled from a file, with as many classes as the file has; the origin)."""
    with torch.device("meta"):
        empty = build(transformers, name, config)
    found = weights.classes(last_linear(empty))
    if not {"num_labels", "id2label"} & set(arguments) and found not in (None, config.num_labels):
        config.num_labels = found
    model, info = type(empty).from_pretrained(  # type: ignore[attr-defined]  # it knows the older names of tensors
        None, config=config, state_dict=weights.tensors, output_loading_info=True, ignore_mismatched_sizes=True
    )
    refuse(misfit_of(info), weights, name=f"hf:{name}")
    return model, weights.origin


def misfit_of(info: Mapping[str, Any]) -> Misfit:
    """What transformers says of a loading."""
    wrong = sorted((n, tuple(there), tuple(here)) for n, there, here in info["mismatched_keys"])
    return Misfit(tuple(sorted(info["missing_keys"])), tuple(sorted(info["unexpected_keys"])), tuple(wrong))


def processor(transformers: ModuleType, name: str, config: Any, *, offline: bool) -> Preprocess | None:
    """The preprocessing of the stored image processor; None where there is none."""
    if getattr(config, "pretrained_cfg", None):
        return from_timm(config.pretrained_cfg)
    try:
        found = transformers.AutoImageProcessor.from_pretrained(name, local_files_only=offline)
    except (OSError, ValueError, ImportError):
        return None
    return from_hf(found.to_dict())


def config_preprocess(config: Any) -> Preprocess:
    """Both sides squashed to the size that a configuration tells; as it tells no mean and deviation, those of ImageNet."""
    told = (getattr(config, "image_size", None), getattr(getattr(config, "vision_config", None), "image_size", None))
    size = next((found for s in told if (found := pair(s))), (USUAL, USUAL))
    return Preprocess(size=size, resize=size)


def label_names(config: Any) -> tuple[str, ...]:
    """The names in a configuration, where they are more than LABEL_0, LABEL_1, ..."""
    named = getattr(config, "id2label", None) or {}
    names = tuple(str(named[i]) for i in sorted(named))
    return () if all(n == f"LABEL_{i}" for i, n in enumerate(names)) else names
