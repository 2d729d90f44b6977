"""The models that come with patchlight: quick to load, as good as their cards say, described."""

from __future__ import annotations

import time
from importlib.resources import files

import pytest

from patchlight.core.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from patchlight.models.embedded import EMBEDDED
from patchlight.models.load import load
from training.measure import accuracy
from training.pictures import evenly, examples

FILES = {
    "pets-vit": "pets_vit_tiny_patch16_224.safetensors (sha256 382d5f89e3ea",
    "pets-swin": "pets_swin_micro_patch4_window7_224.safetensors (sha256 ",
}
AT_LEAST = {"pets-vit": 0.86, "pets-swin": 0.82}  # the cards say 90 and 87 %, of all 3,669 test pictures at their full size


def test_every_model_is_named_here():
    assert set(EMBEDDED) == set(FILES) == set(AT_LEAST)


@pytest.mark.parametrize("name", FILES)
def test_a_model_loads_in_under_a_second_with_its_labels_and_preprocessing(name):
    load(name)  # imports timm
    start = time.perf_counter()
    subject = load(name)
    assert time.perf_counter() - start < 1
    assert (subject.name, len(subject.labels), subject.label(0), subject.label(36)) == (
        name,
        37,
        "Abyssinian",
        "yorkshire_terrier",
    )
    assert subject.origin.startswith(FILES[name])
    assert subject.preprocess == Preprocess(size=(224, 224), resize=248, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    assert not subject.model.training


@pytest.mark.parametrize("name", FILES)
def test_a_model_says_where_it_is_from_and_what_it_is_not_for(name):
    card = load(name).card
    for text in ("CC BY-SA 4.0", "Apache-2.0", "5,000 unlabelled ImageNet", f"{EMBEDDED[name].accuracy[0]} %", "not for telling"):
        assert text in card
    assert load(name, weights="random").card == ""
    page = (files("patchlight") / "assets" / "MODEL_CARD.md").read_text(encoding="utf-8")
    for text in (name, EMBEDDED[name].file, f"{EMBEDDED[name].accuracy[0]} %", f"{EMBEDDED[name].accuracy[1]} %"):
        assert text in page


@pytest.mark.parametrize("name", FILES)
def test_a_model_knows_the_pets(shared, name):
    found = evenly(examples(shared / "data" / "pets", "test"), 500)
    assert len({e.label for e in found}) == 37
    assert accuracy(load(name), found).share >= AT_LEAST[name]
