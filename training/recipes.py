"""All numbers of the recipe: what is cut out of a picture, how long and how fast to learn, which network follows which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Crops:
    """What is done to a picture before teacher and student see it; shares are probabilities."""

    area: tuple[float, float] = (0.2, 1.0)
    turned: float = 0.5
    degrees: float = 12.0
    jitter: float = 0.4
    hue: float = 0.05
    grey: float = 0.05
    mixed: float = 0.5


@dataclass(frozen=True)
class Pace:
    """How long and in what rhythm: the rate warms up, then falls along half a cosine to `floor` of its peak."""

    steps: int
    batch: int
    warm_up: int
    floor: float = 0.0
    seed: int = 0
    clip: float = 1.0
    log_every: int = 20
    save_every: int = 500


@dataclass(frozen=True)
class Tuning:
    """Fine-tuning of the teacher: a rate that falls from layer to layer, and a running mean of the weights."""

    pace: Pace = Pace(steps=1_030, batch=256, warm_up=50, log_every=20, save_every=100)
    crops: Crops = Crops(area=(0.25, 1.0), mixed=0.3)
    rate: float = 1.5e-4
    layer_decay: float = 0.8
    weight_decay: float = 0.05
    drop_path: float = 0.1
    mean_decay: float = 0.995


@dataclass(frozen=True)
class Network:
    """A timm architecture; `follows` has the block of the teacher, counted from 1, that each watched output shall match."""

    architecture: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    follows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Matching:
    """Function matching: Muon's rate for the matrices of the blocks, AdamW's for everything else."""

    student: Network
    pace: Pace
    crops: Crops = Crops()
    muon_rate: float = 5e-3
    adam_rate: float = 2e-3
    weight_decay: float = 0.02
    temperature: float = 2.0
    unlabelled: float = 0.4
    """The share of unlabelled pictures in a batch, where a folder of them is given."""


TEACHER = Network("vit_tiny_patch16_224", MappingProxyType({"num_classes": 37}))
VIT = Network("vit_tiny_patch16_224", MappingProxyType({"num_classes": 37}), follows=tuple(range(1, 13)))
SWIN = Network(
    "swin_tiny_patch4_window7_224",
    MappingProxyType({"num_classes": 37, "embed_dim": 48, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24), "mlp_ratio": 3.0}),
    follows=(3, 4, 6, 8, 9, 10, 11, 12),  # the six blocks of the third stage (14 x 14), the two of the fourth (7 x 7)
)
RECIPES: Mapping[str, Matching] = MappingProxyType(
    {
        "vit": Matching(VIT, Pace(steps=13_500, batch=512, warm_up=100, floor=0.005)),
        "swin": Matching(SWIN, Pace(steps=3_850, batch=512, warm_up=100, floor=0.005), muon_rate=3e-3),
    }
)
