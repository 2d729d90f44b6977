"""`load`: a name or a module becomes a `Subject`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn

from patchlight.core.errors import ModelError
from patchlight.core.layout import Layout
from patchlight.core.preprocess import Preprocess, from_timm
from patchlight.models import blackbox, embedded, hf, timm, torchvision
from patchlight.models.sizes import input_size
from patchlight.models.subject import Subject, brief, hidden, unwrap

LOADERS: Mapping[str, Callable[..., Subject]] = {"timm": timm.load, "hf": hf.load, "torchvision": torchvision.load}
FORMS = (
    '"timm:NAME", "hf:NAME_OR_FOLDER", "torchvision:NAME", "pets-vit", "pets-swin", a torch.nn.Module or a function of pictures'
)


def load(
    what: str | nn.Module | Subject | Callable[[Any], Any],
    *,
    weights: str | Path | None = None,
    layout: Layout | None = None,
    preprocess: Preprocess | None = None,
    labels: Sequence[str] | None = None,
    device: str | torch.device | None = None,
    **arguments: Any,
) -> Subject:
    """A model to explain, from a name (`timm:`, `hf:`, `torchvision:`, `pets-vit`, `pets-swin`), any module, or any function.

    `weights` is a file of tensors, `"random"`, or None for the library's own. `layout`, `preprocess` and `labels` replace what
    would be found. `device` moves the model ("auto": cuda, mps or cpu). Further arguments go to the constructor of a named model
    (`img_size=(224, 448)` for timm, `image_size=` for torchvision, any entry of the configuration for hf).

    A function of pictures, or an ONNX session, is explained by the masking methods. `inputs` says how it takes them: "tensor"
    (b, 3, H, W), normalised by `preprocess`; "array", the same in numpy; "pictures", uint8 (b, H, W, 3). `outputs` says what it
    gives (b, k): "logits" or "probabilities".
    """
    check(weights, layout, preprocess, labels)
    options = {"weights": weights, "layout": layout, "preprocess": preprocess, "labels": labels, **arguments}
    given = [name for name, value in options.items() if value is not None]
    if isinstance(what, Subject):
        refuse(
            given, "belongs with a name or a module, but a Subject came, which has all of that. Use dataclasses.replace on it."
        )
        return moved(what, device)
    if isinstance(what, str):
        subject = named(what, weights=weights, preprocess=preprocess, arguments=arguments)
    elif is_black_box(what):
        refuse([n for n in given if n in ("weights", "layout")], "belongs with a model, but a function came: it shows no inside.")
        subject = black_box(what, preprocess, arguments)
    else:
        refuse(
            [n for n in given if n == "weights" or n in arguments],
            "belongs with a name, but a module came. Fill the module first.",
        )
        subject = bare(what, preprocess)
    subject = replace(subject, given=layout, labels=subject.labels if labels is None else tuple(labels))
    subject = moved(subject, device)
    if not isinstance(what, str):
        subject.layout()
    return subject


def check(weights: Any, layout: Any, preprocess: Any, labels: Any) -> None:
    """That what replaces the found is of the right kind."""
    if weights is not None and not isinstance(weights, str | Path):
        raise ModelError(
            f"weights= takes a file, 'random' or None, but a {type(weights).__name__} came. Give a path; tensors that are "
            "already in memory go into a module by its load_state_dict, and the module goes into load."
        )
    if layout is not None and not isinstance(layout, Layout):
        raise ModelError(f"layout= takes a patchlight Layout, but a {type(layout).__name__} came. Give Layout(grid=(h, w), ...).")
    if preprocess is not None and not isinstance(preprocess, Preprocess):
        raise ModelError(
            f"preprocess= takes a patchlight Preprocess, but a {type(preprocess).__name__} came. Give Preprocess(size=(H, W)), "
            "or make one with from_timm, from_hf or from_torchvision of patchlight.core.preprocess."
        )
    wrong = isinstance(labels, str) or not isinstance(labels, Sequence) or not all(isinstance(n, str) for n in labels)
    if labels is not None and wrong:
        raise ModelError(
            f"labels= takes the class names in order, as a list of str, but a {type(labels).__name__} came. Give a list."
        )


def refuse(options: list[str], reason: str) -> None:
    if options:
        raise ModelError(f"load: {', '.join(f'{o}=' for o in options)} {reason}")


def named(name: str, *, weights: str | Path | None, preprocess: Preprocess | None, arguments: Mapping[str, Any]) -> Subject:
    prefix, colon, rest = name.partition(":")
    if name in embedded.EMBEDDED:
        loader, rest = embedded.load, name
    elif colon and prefix in LOADERS and rest:
        loader = LOADERS[prefix]
    else:
        raise ModelError(f"A model is {FORMS}, but the name {name!r} came.{suggestion(name)}")
    if weights == "random":
        return loader(rest, weights=weights, preprocess=preprocess, arguments=arguments)
    with torch.random.fork_rng(devices=[]):  # first values that the weights replace at once: the caller's random numbers stay
        return loader(rest, weights=weights, preprocess=preprocess, arguments=arguments)


def suggestion(name: str) -> str:
    """What a name without a prefix may have meant."""
    import timm as timm_library
    from torchvision import models

    path = Path(name).expanduser()
    if path.is_dir():
        return f" For this folder: load({'hf:' + name!r})."
    if path.is_file():
        return f' For this file: load("timm:NAME", weights={name!r}), with the architecture that it was made with.'
    bare_name = name.partition(":")[2] or name
    known = [*embedded.EMBEDDED, *(f"torchvision:{n}" for n in models.list_models(module=models))]
    known += [f"timm:{n}" for n in timm_library.list_models()]
    exact = [k for k in known if k.rpartition(":")[2] == bare_name]
    if timm_library.is_model(bare_name) and not exact:
        exact = [f"timm:{bare_name}"]
    if exact:
        return f" Did you mean {' or '.join(map(repr, exact))}?"
    plain = {k.rpartition(":")[2]: k for k in known}
    close = get_close_matches(bare_name.lower(), list(plain), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(plain[c]) for c in close)}?" if close else " No name is near it."


def bare(module: Any, preprocess: Preprocess | None) -> Subject:
    """A module as it comes; its training flag stays, as it is the caller's."""
    model = unwrap(module)
    if not isinstance(model, nn.Module):
        hint = " Make an instance of the class first." if isinstance(module, type) else ""
        hint = f" Give str(path) with a prefix: load('hf:{module}') for a folder." if isinstance(module, Path) else hint
        raise ModelError(f"A model is {FORMS}, but a {type(module).__name__} came.{hint}")
    return Subject(model, type(model).__name__, preprocess or guess(model), labels=known_labels(model), origin="given")


def is_black_box(what: Any) -> bool:
    """A function, an object that can be called, or an ONNX session; a class is none, and a module shows its inside."""
    seen_into = isinstance(what, (nn.Module, type)) or hidden(what) is not None
    return not seen_into and (callable(what) or blackbox.is_session(what))


def black_box(what: Any, preprocess: Preprocess | None, arguments: Mapping[str, Any]) -> Subject:
    model = blackbox.wrap(what, preprocess, arguments)
    name = getattr(what, "__name__", type(what).__name__)
    return Subject(model, name, model.preprocess, origin="given")


def guess(model: nn.Module) -> Preprocess:
    """What a module tells of its preprocessing.

    A timm module has it all. A transformers module tells the size, but no mean and deviation, so those of ImageNet are taken; so
    they are for torchvision's and home-made modules, whose size is looked for in `patch_embed.img_size` and `image_size`.
    """
    if timm.data_config(model):
        return timm.find_preprocess(model)
    if is_hf(model):
        return hf.config_preprocess(model.config)
    smooth = "bilinear" if type(model).__module__.startswith("torchvision.") else "bicubic"
    return from_timm({"input_size": (3, *input_size(model)), "interpolation": smooth})


def known_labels(model: nn.Module) -> tuple[str, ...]:
    config = timm.data_config(model)
    if config and config.get("num_classes") == getattr(model, "num_classes", None):
        return timm.label_names(model)
    return hf.label_names(model.config) if is_hf(model) else ()


def is_hf(model: nn.Module) -> bool:
    return hasattr(getattr(model, "config", None), "model_type")


def moved(subject: Subject, device: str | torch.device | None) -> Subject:
    """The subject with its model on a device; None leaves it where it is."""
    if device is None:
        return subject
    try:
        subject.model.to(find_device() if device == "auto" else device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ModelError(
            f"{subject.name} cannot be moved to the device {device!r}: {brief(error)} Give auto, cpu, cuda or mps."
        ) from error
    return subject


def find_device() -> str:
    """cuda, mps or cpu: the first that there is."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
