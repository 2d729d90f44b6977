"""The models that come with patchlight: `pets-vit` and `pets-swin`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from patchlight.core.preprocess import Preprocess
from patchlight.models import timm
from patchlight.models.subject import Subject

CARD = (
    "{about}, that tells 37 breeds of cats and dogs apart. Trained for patchlight from random weights on the training split of "
    "Oxford-IIIT Pets (CC BY-SA 4.0) by matching a DeiT-tiny (Apache-2.0) fine-tuned on the same pictures; matching also used "
    "5,000 unlabelled ImageNet validation pictures. Accuracy on the 3,669 test pictures: {breeds} %; cat or dog: {species} %. "
    "It is for demonstrations, tests and teaching, not for telling breeds in earnest: it knows nothing but these 37 breeds, and "
    "every other picture gets one of them too. Licence: {licence}."
)


@dataclass(frozen=True)
class Embedded:
    """A file in `assets`, the timm architecture that it fills, its preprocessing, and what its model card says."""

    file: str
    architecture: str
    arguments: Mapping[str, Any]
    preprocess: Preprocess
    labels: str
    about: str
    accuracy: tuple[float, float]
    """Per cent on the 3,669 test pictures: of 37 breeds, and of cat or dog."""
    licence: str = "Apache-2.0"

    @property
    def card(self) -> str:
        return CARD.format(about=self.about, breeds=self.accuracy[0], species=self.accuracy[1], licence=self.licence)


PETS = Preprocess(size=(224, 224), resize=248, interpolation="bicubic")  # timm has another mean for this ViT
EMBEDDED: Mapping[str, Embedded] = MappingProxyType(
    {
        "pets-vit": Embedded(
            file="pets_vit_tiny_patch16_224.safetensors",
            architecture="vit_tiny_patch16_224",
            arguments=MappingProxyType({"num_classes": 37}),
            preprocess=PETS,
            labels="pets_labels.json",
            about="ViT-Tiny/16, 5.5 million parameters",
            accuracy=(90.1, 99.4),
        ),
        "pets-swin": Embedded(
            file="pets_swin_micro_patch4_window7_224.safetensors",
            architecture="swin_tiny_patch4_window7_224",
            arguments=MappingProxyType(
                {"num_classes": 37, "embed_dim": 48, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24), "mlp_ratio": 3.0}
            ),
            preprocess=PETS,
            labels="pets_labels.json",
            about="Swin of half the width of Swin-Tiny, 5.8 million parameters",
            accuracy=(87.1, 99.2),
        ),
    }
)


def load(name: str, *, weights: str | Path | None, preprocess: Preprocess | None, arguments: Mapping[str, Any]) -> Subject:
    """An embedded model by its name in `EMBEDDED`."""
    entry = EMBEDDED[name]
    with as_file(asset(entry.file)) as path:
        subject = timm.load(
            entry.architecture,
            weights=path if weights is None else weights,
            preprocess=preprocess or entry.preprocess,
            arguments={**entry.arguments, **arguments},
        )
    labels = tuple(json.loads(asset(entry.labels).read_text(encoding="utf-8")))
    card = entry.card if weights is None else ""
    return replace(subject, name=name, labels=labels, card=card)


def asset(name: str) -> Any:
    return files("patchlight") / "assets" / name
