"""Explanations as a document for a page: what a file holds, and what a server sends piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patchlight.core.errors import PatchlightError, PictureError
from patchlight.core.layout import Layout
from patchlight.core.registry import Method, get
from patchlight.core.scoring import Scorer
from patchlight.core.source import Source
from patchlight.explanation import Explanation, is_plain
from patchlight.models.subject import Subject
from patchlight.render.pack import packed, packed_order, picture_url
from patchlight.viewer import insides
from patchlight.viewer.attention import BUDGET, see
from patchlight.viewer.attention import packed as packed_blocks
from patchlight.viewer.removal import Curves, patch_scores, removal_curves

CLASSES = 8  # shown of a picture
TOP = 5  # classes at each point of a curve
CHEAP = 3  # passes
Tick = Callable[[str], None]
Found = Mapping[str, Explanation]


@dataclass(frozen=True)
class Extras:
    """What a file holds beyond the given maps: `classes` that can be chosen, curves, and attention for clicks."""

    classes: int = 3
    curves: bool = True
    attention: bool = True
    budget: int = BUDGET


def document(found: Found, extras: Extras, tick: Tick = lambda _: None) -> dict[str, Any]:
    """All that a file shows. Where the model is at hand, it is asked for the other classes, the attention and the curves."""
    some = check(found)
    one_budget = Extras(extras.classes, extras.curves, extras.attention, extras.budget // len(some))
    pictures = []
    for index in range(len(some)):
        pictures.append(picture(found, index, one_budget, tick))
        tick("picture")
    return {"format": 1, **head(some), "methods": {label: about(e) for label, e in found.items()}, "pictures": pictures}


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One document from those of several batches."""
    methods = {
        label: {**one, "seconds": round(sum(p["methods"][label]["seconds"] for p in parts), 4)}
        for label, one in parts[0]["methods"].items()
    }
    return {**parts[0], "methods": methods, "pictures": [picture for p in parts for picture in p["pictures"]]}


def check(found: Found) -> Explanation:
    """All explanations are of the same pictures."""
    if not found:
        raise PictureError("a page shows at least one explanation, but none came. Give what explain or compare returned.")
    some = next(iter(found.values()))
    for label, other in found.items():
        if len(other) != len(some) or other.model != some.model or other.size != some.size:
            raise PictureError(
                f"a page shows explanations of the same pictures and model, but {label} has {len(other)} of {other.model} "
                f"and the first {len(some)} of {some.model}. Make them by one compare."
            )
    return some


def head(some: Explanation) -> dict[str, Any]:
    from patchlight import __version__

    origin = "" if some.subject is None else some.subject.origin
    model = {"name": some.model, "size": list(some.size), "classes": some.logits.shape[1], "origin": origin}
    return {"version": __version__, "torch": str(torch.__version__), "model": model}


def about(e: Explanation) -> dict[str, Any]:
    """All that decided the numbers."""
    method = get(e.method)
    return {
        "name": method.name,
        "family": method.family,
        "summary": method.summary,
        "paper": method.paper,
        "equation": method.equation,
        "blind": method.class_blind,
        "settings": {k: plain(v) for k, v in e.settings.items()},
        "seconds": round(e.seconds, 4),
    }


def plain(value: Any) -> Any:
    if not is_plain(value):
        return f"tensor {tuple(value.shape)}"
    return value if isinstance(value, (bool, int, float, str, type(None), list, tuple)) else str(value)


def picture(found: Found, index: int, extras: Extras, tick: Tick) -> dict[str, Any]:
    some = next(iter(found.values()))
    runs = [run(found, index)]
    subject, image = some.subject, None
    if subject is not None:
        image = some.source.batch(index, index + 1, like=some.logits.new_empty(0, dtype=subject.dtype))[0].to(subject.device)
        runs[0]["insides"] = inside(found, index, subject, image)
        runs += other_classes(found, index, subject, image, extras.classes, tick)
        if extras.curves and runs[0]["target"] >= 0:
            runs[0]["curves"] = dict(all_curves(found, index, subject, image, tick))
    else:
        runs[0]["insides"] = kept_insides(found, index)
    shown = {**photo_of(some.source, index), "classes": top(some.logits[index], some.labels, CLASSES), "runs": runs}
    shown["labels"] = names(shown, some.labels)
    if subject is not None and image is not None and extras.attention:
        shown["attention"] = seen(subject, image, extras.budget)
    return shown


def photo_of(source: Source, index: int = 0) -> dict[str, Any]:
    """The picture, smaller, and the part of it that the model saw; `fill` is the colour of what is taken away."""
    image = source.picture(index).image
    url, size = picture_url(image)
    ratio = size[0] / image.width, size[1] / image.height
    x0, y0, x1, y1 = source.box(image.size)
    box = [round(v, 2) for v in (x0 * ratio[0], y0 * ratio[1], x1 * ratio[0], y1 * ratio[1])]
    fill = [round(255 * m) for m in source.preprocess.mean]
    return {"name": source.name(index), "src": url, "size": list(size), "box": box, "fill": fill}


def top(logits: Tensor, labels: Sequence[str], count: int) -> list[list[Any]]:
    """[class, name, probability], the likeliest first."""
    shares, classes = logits.double().softmax(-1).topk(min(count, logits.shape[-1]))
    return [[k, label_of(labels, k), round(p, 6)] for k, p in zip(classes.tolist(), shares.tolist(), strict=True)]


def label_of(labels: Sequence[str], index: int) -> str:
    return labels[index] if 0 <= index < len(labels) else f"class {index}"


def names(shown: Mapping[str, Any], labels: Sequence[str]) -> dict[str, str]:
    """The names of all classes that the page speaks of."""
    used = {row[0] for row in shown["classes"]}
    for one in shown["runs"]:
        used |= {one["target"], one["against"]}
        for curve in one.get("curves", {}).values():
            used |= {k for side in ("deletion", "insertion") for point in curve[side]["top"] for k, _ in point}
    return {str(k): label_of(labels, k) for k in sorted(k for k in used if k is not None and k >= 0)}


def run(found: Found, index: int) -> dict[str, Any]:
    """The maps of one picture for one target."""
    some = next(iter(found.values()))
    against = None if some.against is None else int(some.against[index])
    maps = {label: packed(e.array(index)) for label, e in found.items()}
    notes = {label: notes_of(e, index) for label, e in found.items()}
    return {
        "target": int(some.target[index]),
        "against": against,
        "label": some.label(index),
        "maps": maps,
        "notes": {label: text for label, text in notes.items() if text},
    }


def notes_of(e: Explanation, index: int) -> list[str]:
    """What concerns this picture, and what concerns all."""
    others = {e.source.name(i) for i in range(len(e))} - {e.source.name(index)}
    kept = [n for n in e.notes if not any(n.startswith(f"{other}: ") for other in others)]
    return list(dict.fromkeys([*kept, *e.source.picture(index).notes]))


def is_cheap(method: Method, settings: Mapping[str, Any]) -> bool:
    """At most three passes and little work beside them."""
    from patchlight.doctor import MOST_TOKENS

    cost = method.cost(settings)
    return cost.forwards + cost.backwards <= CHEAP and method.name not in MOST_TOKENS


def jobs(found: Found, keep: Callable[[Method, Explanation], bool]) -> dict[str, dict[str, Any]]:
    """label -> settings, of the methods that are to run again."""
    return {n: {"method": e.method, **e.settings} for n, e in found.items() if keep(get(e.method), e)}


def again(subject: Subject, image: Tensor, methods: Mapping[str, Mapping[str, Any]], target: Any, **options: Any) -> Found:
    from patchlight.api import compare

    return compare(subject, image[None], methods, target, **options) if methods else {}


def kept_insides(found: Found, index: int) -> dict[str, Any]:
    """Without the model, the layout is not at hand: insides that lie on the grid of the map itself."""
    rows = {}
    for label, e in found.items():
        if e.insides and e.tokens is not None:
            tokens = (e.tokens.shape[1], e.tokens.shape[2])
            rows[label] = insides.shown(e.insides, Layout(tokens, prefix=prefix(e, prod(tokens))), index)
    return {label: found_rows for label, found_rows in rows.items() if found_rows}


def prefix(e: Explanation, patches: int) -> int:
    """How many tokens stand in front of the patches, from the last axis of what was kept."""
    tensors = [t for v in e.insides.values() for t in (v.values() if isinstance(v, Mapping) else [v[0]])]
    extra = [t.shape[-1] - patches for t in tensors if t.dim() and 0 < t.shape[-1] - patches < 32]
    return extra[0] if extra else 0


def inside(found: Found, index: int, subject: Subject, image: Tensor) -> dict[str, Any]:
    """The insides that were kept, and those of cheap methods from another pass."""
    rows = {}
    target = target_of(next(iter(found.values())), index)
    wanted = jobs(found, lambda m, e: not e.insides and is_cheap(m, e.settings)) if target is not None else {}
    new = again(subject, image, wanted, target, insides=True)
    for label, e in found.items():
        known = (e.insides, index) if e.insides else (new[label].insides, 0) if label in new else ({}, 0)
        shown = insides.shown(known[0], subject.layout(some_size(image)), known[1]) if known[0] else []
        if shown:
            rows[label] = shown
    return rows


def some_size(image: Tensor) -> tuple[int, int]:
    return int(image.shape[-2]), int(image.shape[-1])


def target_of(some: Explanation, index: int) -> Any:
    """What explain would take as target to explain the same; None where it was a function."""
    one = int(some.target[index])
    return None if one < 0 else one if some.against is None else (one, int(some.against[index]))


def other_classes(found: Found, index: int, subject: Subject, image: Tensor, count: int, tick: Tick) -> list[dict[str, Any]]:
    """The likeliest other classes, and the first rather than the second, by the methods that are cheap and not blind to it."""
    some = next(iter(found.values()))
    first = int(some.target[index])
    if count < 2 or first < 0 or not (wanted := jobs(found, lambda m, e: is_cheap(m, e.settings) and not m.class_blind)):
        return []
    likely = some.logits[index].topk(min(count + 1, some.logits.shape[1])).indices.tolist()
    others = [k for k in likely if k != first][: count - 1]
    targets: list[Any] = list(others) if some.against is None else [first, *others]
    if some.against is None and others:
        targets.append((first, others[0]))
    runs = []
    for target in targets:
        runs.append(run(again(subject, image, wanted, target), 0))
        tick("class")
    return runs


def all_curves(found: Found, index: int, subject: Subject, image: Tensor, tick: Tick) -> Iterator[tuple[str, dict[str, Any]]]:
    grid = grid_of(next(iter(found.values())), subject)
    for label, e in found.items():
        scores = (e.tokens if e.tokens is not None else e.pixels)[index]
        on = (scores.shape[0], scores.shape[1]) if e.tokens is not None else grid
        yield label, curves_of(subject.scorer, image, patch_scores(scores, on), e, index)
        tick("curve")


def grid_of(some: Explanation, subject: Subject) -> tuple[int, int]:
    """The patch grid; 14 x 14 for a model without one."""
    try:
        grid = subject.layout(some.size).grid
    except PatchlightError:
        grid = (0, 0)
    return grid if prod(grid) > 1 else (14, 14)


def curves_of(scorer: Scorer, image: Tensor, scores: Tensor, e: Explanation, index: int) -> dict[str, Any]:
    found = removal_curves(scorer, image, scores)
    against = None if e.against is None else int(e.against[index])
    return {
        "grid": list(scores.shape),
        "order": packed_order(found.order.numpy()),
        **curve_points(found, int(e.target[index]), against),
    }


def curve_points(found: Curves, target: int, against: int | None) -> dict[str, Any]:
    sides = {"deletion": found.deletion, "insertion": found.insertion}
    return {"counts": list(found.counts), **{name: points(logits, target, against) for name, logits in sides.items()}}


def points(logits: Tensor, target: int, against: int | None) -> dict[str, Any]:
    """At each step: the probability of the target (less that of the class it is held against), and the likeliest classes."""
    shares = logits.double().softmax(-1)
    value = shares[:, target] - (shares[:, against] if against is not None else 0)
    likely, classes = shares.topk(min(TOP, shares.shape[1]))
    tops = [
        [[k, round(p, 4)] for k, p in zip(ks, ps, strict=True)] for ks, ps in zip(classes.tolist(), likely.tolist(), strict=True)
    ]
    return {"value": np.round(value.numpy(), 5).tolist(), "top": tops}


def seen(subject: Subject, image: Tensor, budget: int) -> dict[str, Any] | None:
    """Attention for clicks; None for a model that has none to show."""
    try:
        return packed_blocks(see(subject, image), budget)
    except PatchlightError:
        return None
