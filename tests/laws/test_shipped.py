"""Every registered method on both shipped models and all shipped photos; and the page that shows what comes of it."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import patchlight as pl
from patchlight.api import why_not
from patchlight.core.registry import alternatives, discover, get
from patchlight.doctor import MOST_TOKENS
from patchlight.models.embedded import EMBEDDED

ROOT = Path(__file__).parents[2]
PHOTOS = ROOT / "src" / "patchlight" / "assets" / "photos"
CONSTANT = {  # why a map may say nothing
    (
        "pets-vit",
        "partial_lrp",
    ): "the relevance that arrives at the last block is negative there, and the method keeps what is positive",
}
SERVED = [(model, name) for model in EMBEDDED for name, m in discover().items() if why_not(m, pl.load(model).layout()) is None]


CHEAP = {"steps": 2, "samples": 4, "window": 64, "stride": 64, "channels": 12}  # enough to see that a map says something
OWN = {"shapley": {"grid": (2, 2), "samples": 16}}  # the fewest for four cells
MANY = 60  # passes a picture, above which a method is tried on one photo only


def settings_and_photos(name: str) -> tuple[dict[str, Any], list[str]]:
    method = get(name)
    settings = {k: v for k, v in CHEAP.items() if k in method.settings and int in alternatives(method.settings[k].type)}
    settings |= OWN.get(name, {})
    passes = method.cost(method.resolve(settings))
    photos = sorted(str(p) for p in PHOTOS.glob("*.jpg"))
    heavy = passes.forwards + passes.backwards > MANY or name in MOST_TOKENS
    return settings, photos[:1] if heavy else photos


@cache
def subject(model: str) -> pl.Subject:
    return pl.load(model)


@pytest.mark.parametrize(("model", "name"), SERVED)
def test_a_method_gives_finite_maps_that_say_something_or_says_why_not(model, name):
    settings, photos = settings_and_photos(name)
    found = pl.explain(subject(model), photos, name, **settings)
    flat = found.scores.flatten(1)
    assert flat.isfinite().all()
    for index, silent in enumerate((flat.amax(1) == flat.amin(1)).tolist()):
        assert silent == any(f"{found.source.name(index)}: the map of {name} is constant" in note for note in found.notes)
        assert not silent or (model, name) in CONSTANT


@pytest.mark.parametrize("model", EMBEDDED)
def test_a_method_that_does_not_serve_a_model_says_why(model):
    others = set(discover()) - {name for m, name in SERVED if m == model}
    assert all(why_not(get(name), subject(model).layout()) for name in others)
    assert len(others) < len(discover()) / 2 or model == "pets-swin"


# -- the page of sanity -----------------------------------------------------------------------------------------------


@cache
def sanity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sanity", ROOT / "docs" / "sanity.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["sanity"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", EMBEDDED)
def test_both_animals_are_recognised_first_and_second(model):
    page = sanity()
    scores = subject(model).scores(subject(model).prepare(page.photo())[None])[0]
    assert {subject(model).label(k) for k in scores.topk(2).indices.tolist()} == set(page.SIDES)


@pytest.mark.parametrize(("model", "name"), [("pets-vit", "transformer_mm"), ("pets-vit", "vtranm"), ("pets-swin", "cam")])
def test_the_page_says_what_the_models_say(model, name):
    page = sanity()
    text = (ROOT / "docs" / "sanity.md").read_text(encoding="utf-8").partition(f"## {model}")[2]
    assert page.line(page.result(subject(model), get(name))) in text


def test_the_share_of_a_half_and_the_verdict():
    page = sanity()
    pixels = torch.tensor([[3.0, -5.0, 0.0, 1.0]])
    assert (page.share(pixels, "left"), page.share(pixels, "right")) == (0.75, 0.25)
    assert page.share(-pixels.abs(), "left") is None

    def verdict(*own):
        return page.Result(get("attcat"), {}, own, ()).verdict

    assert (verdict(0.6, 0.7), verdict(0.6, 0.4), verdict(0.3, 0.5)) == ("yes, both", "**Egyptian_Mau only**", "**neither**")
    assert verdict(None, 0.7) == "**no positive mass**"


def test_methods_with_thousands_of_passes_take_fewer_samples(monkeypatch):
    page = sanity()
    assert page.affordable(get("transformer_mm")) == {}
    monkeypatch.setattr(page, "MOST", 26)
    assert page.affordable(get("integrated_gradients")) == {"steps": 12}
