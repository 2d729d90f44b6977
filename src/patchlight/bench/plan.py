"""A plan is a small TOML file: models, data, methods, metrics, and which of them are crossed with which."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast, get_args

from patchlight.core.errors import SettingError, nearest
from patchlight.core.metric import get_metric
from patchlight.core.registry import get

# in the standard library from Python 3.11 on
tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

Precision = Literal["float32", "float64", "bf16", "fp16"]
Target = Literal["predicted", "label"]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Block:
    """Names of models, data, methods and metrics that are all crossed with one another."""

    models: tuple[str, ...]
    data: tuple[str, ...]
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    target: Target = "predicted"


@dataclass(frozen=True)
class Plan:
    """What is to be measured. The four mappings hold label -> entry; `blocks` cross labels."""

    name: str
    title: str
    models: Mapping[str, Settings]
    data: Mapping[str, Settings]
    methods: Mapping[str, Settings]
    metrics: Mapping[str, Settings]
    blocks: tuple[Block, ...]
    source: str = ""
    published: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    precision: Precision = "float32"
    batch: int = 16
    shard: int = 20
    text: str = field(default="", repr=False)

    @property
    def digest(self) -> str:
        return hashlib.blake2b(self.text.encode(), digest_size=8).hexdigest()

    def method(self, label: str) -> tuple[str, dict[str, Any]]:
        """The registered name of a method and its settings, all of them, checked."""
        settings = dict(self.methods[label])
        method = get(str(settings.pop("method", label)))
        return method.name, method.resolve(settings)

    def metric(self, label: str) -> tuple[str, dict[str, Any]]:
        """The same of a metric."""
        settings = dict(self.metrics[label])
        metric = get_metric(str(settings.pop("metric", label)))
        return metric.name, metric.resolve(settings)


FIELDS = {"title", "source", "seeds", "precision", "batch", "shard", "models", "data", "methods", "metrics", "block", "published"}
AXES = ("models", "data", "methods", "metrics")
READY = files("patchlight") / "bench" / "plans"


def ready_plans() -> list[str]:
    """The names of the plans that come with patchlight."""
    return sorted(Path(p.name).stem for p in READY.iterdir() if p.name.endswith(".toml"))


def open_plan(what: str | Path) -> Plan:
    """A plan from a TOML file, or one that comes with patchlight by its name."""
    path = Path(what)
    if path.suffix != ".toml" and str(what) in ready_plans():
        return read_plan((READY / f"{what}.toml").read_text(encoding="utf-8"), name=str(what))
    if not path.is_file():
        raise SettingError(
            f"there is no plan {str(what)!r}: give a TOML file or a ready plan.{nearest(str(what), ready_plans())}"
        )
    return read_plan(path.read_text(encoding="utf-8"), name=path.stem)


def read_plan(text: str, *, name: str) -> Plan:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"plan {name}: not TOML ({error}). See docs/bench.md for a plan to start from.") from error
    for key in found:
        if key not in FIELDS:
            raise SettingError(f"plan {name}: unknown entry {key!r}.{nearest(key, FIELDS)}")
    axes = {axis: checked_axis(name, axis, found) for axis in AXES}
    blocks = tuple(make_block(name, block, axes) for block in found.get("block", [{}]))
    plan = Plan(
        name=name,
        title=str(found.get("title", name)),
        source=str(found.get("source", "")),
        blocks=blocks,
        published=found.get("published", {}),
        seeds=checked_seeds(name, found.get("seeds", [0])),
        precision=checked_choice(name, "precision", found.get("precision", "float32"), get_args(Precision)),
        batch=checked_count(name, "batch", found.get("batch", 16)),
        shard=checked_count(name, "shard", found.get("shard", 20)),
        text=text,
        **axes,
    )
    for label in plan.methods:
        plan.method(label)
    for label in plan.metrics:
        plan.metric(label)
    return plan


def checked_axis(plan: str, axis: str, found: Mapping[str, Any]) -> Mapping[str, Settings]:
    entries = found.get(axis)
    if not isinstance(entries, dict) or not entries or not all(isinstance(e, dict) for e in entries.values()):
        raise SettingError(f"plan {plan}: [{axis}.NAME] is needed, one table for each; an empty one takes the defaults.")
    return entries


def make_block(plan: str, given: Mapping[str, Any], axes: Mapping[str, Mapping[str, Settings]]) -> Block:
    """All of an axis where the block does not choose."""
    chosen = {}
    for key in given:
        if key not in (*AXES, "target"):
            raise SettingError(f"plan {plan}: a [[block]] has no entry {key!r}.{nearest(key, (*AXES, 'target'))}")
    for axis in AXES:
        names = tuple(given.get(axis, axes[axis]))
        for label in names:
            if label not in axes[axis]:
                raise SettingError(
                    f"plan {plan}: a block names {axis} {label!r}, which has no table.{nearest(label, axes[axis])}"
                )
        chosen[axis] = names
    return Block(**chosen, target=checked_choice(plan, "target", given.get("target", "predicted"), get_args(Target)))


def checked_choice(plan: str, key: str, value: Any, choices: Sequence[Any]) -> Any:
    if value not in choices:
        raise SettingError(f"plan {plan}: {key} = {value!r} came, but it takes one of {', '.join(map(str, choices))}.")
    return value


def checked_seeds(plan: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(s, int) and not isinstance(s, bool) for s in value):
        raise SettingError(f"plan {plan}: seeds takes a list of whole numbers, such as [0, 1, 2], but {value!r} came.")
    return tuple(dict.fromkeys(value))


def checked_count(plan: str, key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise SettingError(f"plan {plan}: {key} takes a whole number from 1 up, but {value!r} came.")
    return value


def changed(
    plan: Plan,
    *,
    roots: Mapping[str, str] | None = None,
    weights: Mapping[str, str] | None = None,
    count: int | None = None,
    only: Sequence[str] = (),
) -> Plan:
    """The plan with the folders and files of this machine, with fewer pictures, or with some of its methods only."""
    data = {label: dict(entry) for label, entry in plan.data.items()}
    models = {label: dict(entry) for label, entry in plan.models.items()}
    for label, root in (roots or {}).items():
        owned(plan.name, "data", label, data)["root"] = root
    for label, file in (weights or {}).items():
        owned(plan.name, "models", label, models)["weights"] = file
    if count is not None:
        data = {label: {**entry, "count": count} for label, entry in data.items()}
    blocks = plan.blocks
    if only:
        for label in only:
            owned(plan.name, "methods", label, cast(dict[str, dict[str, Any]], plan.methods))
        blocks = tuple(replace(b, methods=tuple(m for m in b.methods if m in only)) for b in blocks)
    return replace(plan, data=data, models=models, blocks=blocks)


def owned(plan: str, axis: str, label: str, entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if label not in entries:
        raise SettingError(f"plan {plan} has no {axis} of the name {label!r}.{nearest(label, entries)}")
    return entries[label]
