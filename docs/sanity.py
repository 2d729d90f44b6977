"""Write docs/sanity.md and its pictures: what every registered method finds for each of two animals in one photo.

python docs/sanity.py        some minutes on two cores; methods that are registered later appear when it is run again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

import patchlight as pl
from patchlight.api import why_not
from patchlight.cli._settings import by_family
from patchlight.cli.methods import cost, defaults
from patchlight.core.registry import Method
from patchlight.models.embedded import EMBEDDED, asset
from patchlight.render.sheet import Row, sheet

DOCS = Path(__file__).parent
SIDES = {"Egyptian_Mau": "left", "leonberger": "right"}  # the class that each animal is given when it is alone, and its half
SHOWN = (
    "random",
    "centre",
    "raw_attention",
    "rollout",
    "cam",
    "grad_cam",
    "transformer_mm",
    "vtranm",
    "transformer_attribution",
    "vit_cx",
)
MOST = 800  # passes a picture, above which a method takes fewer samples; shapley wants four for each of 196 patches
NOISE = ("samples", "steps")  # settings that trade time for noise


@dataclass(frozen=True)
class Result:
    """What a method put on the half of each class: shares of its positive mass, None where it has none."""

    method: Method
    settings: Mapping[str, Any]
    own: tuple[float | None, ...]
    maps: tuple[Any, ...]
    note: str = ""

    @property
    def verdict(self) -> str:
        if None in self.own:
            return "**no positive mass**"
        right = [label for label, share in zip(SIDES, self.own, strict=True) if share is not None and share > 0.5]
        if len(right) == len(SIDES):
            return "yes, both"
        if right:
            return f"**{right[0]} only**"
        return "**neither**"

    @property
    def moved(self) -> str:
        """How far the mass moves towards the class that is asked for: own share of one, less the other's share there."""
        first, second = self.own
        return "" if first is None or second is None else f"{first + second - 1:+.2f}"


def photo() -> Image.Image:
    with (asset("photos") / "cat_and_dog.jpg").open("rb") as file:
        return Image.open(file).convert("RGB")


def results(subject: pl.Subject, methods: Sequence[Method]) -> list[Result]:
    return [result(subject, m) for m in methods if why_not(m, subject.layout()) is None]


def result(subject: pl.Subject, method: Method) -> Result:
    settings = affordable(method)
    found = pl.explain(subject, [photo()] * len(SIDES), method.name, list(SIDES), **settings)
    own = tuple(share(found.pixels[k], side) for k, side in enumerate(SIDES.values()))
    maps = tuple(found.array(k) for k in range(len(SIDES)))
    return Result(method, settings, own, maps, "; ".join(f"{k}={v}" for k, v in settings.items()))


def affordable(method: Method) -> dict[str, Any]:
    """The defaults, or fewer samples where these take too many passes."""
    passes = cost(method).forwards + cost(method).backwards
    if passes <= MOST:
        return {}
    return {name: max(2, int(defaults(method)[name] * MOST / passes)) for name in NOISE if name in method.settings}


def share(pixels: Tensor, side: str) -> float | None:
    """Σ [m]^+ over a half, divided by Σ [m]^+ over the picture (H, W)."""
    positive = pixels.double().clamp_min(0)
    middle = positive.shape[1] // 2
    half = positive[:, :middle] if side == "left" else positive[:, middle:]
    return float(half.sum() / positive.sum()) if positive.sum() > 0 else None


# -- the page ---------------------------------------------------------------------------------------------------------


def page(found: Mapping[str, Sequence[Result]], seen: Mapping[str, str]) -> str:
    return HEAD + "".join(section(model, results, seen[model]) for model, results in found.items()) + FOOT


def section(model: str, found: Sequence[Result], seen: str) -> str:
    specific = [r for r in found if not r.method.class_blind]
    failing = [r.method.name for r in specific if not r.verdict.startswith("yes")]
    return f"""
## {model}

{seen}

![both classes by some methods]({picture_file(model).name})

Methods that ask for a class: {len(specific) - len(failing)} of {len(specific)} put more than half of their positive mass on the
right animal for both classes. {failed(failing)}

{table(specific)}
Methods that ask for none have one map for both classes, so they are wrong for one of them:

{table([r for r in found if r.method.class_blind])}"""


def table(found: Sequence[Result]) -> str:
    shares = " | ".join(f"{label}: share on the {side}" for label, side in SIDES.items())
    return f"| method | family | {shares} | moved | on its half? |\n|---|---|---|---|---|---|\n{''.join(map(line, found))}"


def failed(names: Sequence[str]) -> str:
    return f"Not so: {', '.join(f'`{n}`' for n in names)}." if names else "None fails."


def line(r: Result) -> str:
    name = f"`{r.method.name}`" + (f" ({r.note})" if r.note else "")
    shares = " | ".join("none" if s is None else f"{s:.2f}" for s in r.own)
    verdict = "" if r.method.class_blind else r.verdict
    return f"| {name} | {r.method.family} | {shares} | {'' if r.method.class_blind else r.moved} | {verdict} |\n"


HEAD = f"""# Does an explanation look at the right animal?

Made by `python docs/sanity.py`. One photo, two animals: a cat on the left, which both models take for an Egyptian Mau, and a dog
on the right, which they take for a leonberger (it is a German shepherd, a breed that they do not know). Each method is asked
twice: what speaks for {" and what for ".join(SIDES)}? A good answer lies on the animal that was asked for, and moves when the
question changes. A bad one does not move, or lies anywhere.

The tables have the share of a map's positive mass that lies on the half of the animal asked for. Chance is 0.50; `random` and
`centre` show what that looks like. *Moved* is how much of the mass follows the question: 0 for a map that stays, 1 for one that
goes over entirely. All methods are at their default settings unless the table says otherwise.

One photo proves nothing about a method in general, and a method that stays may be right about a model that mixes its evidence:
class tokens attend everywhere. This page catches what is plainly broken. For measurements over many pictures see the benchmark.
"""
FOOT = """
## How to read the pictures

* **Good**: bright on one animal, on the other when the other class is asked for.
* **Class-blind** (`raw_attention`, `rollout`, `attention_flow`): where the network looked, whatever it concluded. Useful, but no
  answer to "why this class".
* **Single bright tokens** far from any animal: some tokens collect attention without being about their place.
* **Speckle** in pixel maps: gradients of a network with patches change from pixel to pixel; the shares are shares of all of it.
* **No positive mass**: the map is zero where it is not negative; where that makes it constant, patchlight says so in a note.
"""


# -- the pictures -----------------------------------------------------------------------------------------------------


def picture_file(model: str) -> Path:
    return DOCS / f"sanity_{model.replace('-', '_')}.jpg"


def picture(subject: pl.Subject, found: Sequence[Result]) -> Image.Image:
    """The photo for each class, by the methods of `SHOWN` that are registered and serve the model."""
    by_name = {r.method.name: r for r in found}
    names = [n for n in SHOWN if n in by_name]
    image = photo()
    box = subject.preprocess.box(*image.size)
    rows = [
        Row(image, f"What speaks for {label}?", f"the animal on the {side}", tuple(by_name[n].maps[k] for n in names), box)
        for k, (label, side) in enumerate(SIDES.items())
    ]
    return sheet(rows, names, cell=136, scale="picture")


def seen(subject: pl.Subject) -> str:
    shares = subject.scores(subject.prepare(photo())[None])[0].softmax(-1)
    told = ", ".join(f"{subject.label(k)} {float(shares[k]):.2f}" for k in shares.topk(4).indices.tolist())
    return f"It sees: {told}."


def main() -> None:
    subjects = {name: pl.load(name) for name in EMBEDDED}
    found = {name: results(subject, by_family()) for name, subject in subjects.items()}
    for name, subject in subjects.items():
        picture(subject, found[name]).save(picture_file(name), quality=88)
    text = page(found, {name: seen(subject) for name, subject in subjects.items()})
    (DOCS / "sanity.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
