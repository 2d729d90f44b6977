"""What may be explained: a class, a label, one for each picture, one class rather than another, any function of the logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import patchlight as pl
import tiny
from patchlight.core.registry import discover
from tiny import close, explain, pictures, quick, served, subject

LABELS = ["tabby cat", "tiger cat", "dog", "Sea_Snake", "owl", "ape", "crow"]
OBJECTIVES = [m.name for m in served("vit_mean") if not m.class_blind]


@pytest.fixture(scope="module")
def labelled() -> pl.Subject:
    return pl.load(tiny.fresh("vit"), labels=LABELS)


SAME = [2, "2", "dog", "DOG", [2, 2, 2], ["dog", 2, "2"], torch.tensor([2, 2, 2]), np.array([2, 2, 2]), torch.tensor(2)]


@pytest.mark.parametrize("target", SAME, ids=repr)
def test_many_ways_to_say_one_class(labelled, target):
    found = pl.explain(labelled, pictures(), "transformer_mm", target)
    assert found.target.tolist() == [2, 2, 2]
    assert torch.equal(found.tokens, explain("vit", "transformer_mm", target=2).tokens)


@pytest.mark.parametrize(("label", "index"), [("sea snake", 3), ("snake", 3), ("tabby", 0), ("Tiger Cat", 1)])
def test_a_label_is_found_by_its_name_or_a_part_of_it(labelled, label, index):
    assert pl.explain(labelled, pictures(), "saliency", label).target.tolist() == [index] * 3


@pytest.mark.parametrize("method", OBJECTIVES)
def test_a_list_gives_each_picture_its_own(method):
    found = explain("vit_mean", method, target=[5, 0, 3])
    assert found.target.tolist() == [5, 0, 3]
    for index, target in enumerate((5, 0, 3)):
        close(found.scores[index], explain("vit_mean", method, target=target).scores[index], 1e-12)


@pytest.mark.parametrize("method", OBJECTIVES)
def test_none_is_the_predicted_class(method):
    found = explain("vit_mean", method)
    again = explain("vit_mean", method, target=found.logits.argmax(1))
    assert torch.equal(found.scores, again.scores)


@pytest.mark.parametrize("method", [m for m in OBJECTIVES if m != "vtranm"])
def test_a_function_that_picks_a_logit_is_that_class(method):
    # by default these explain the probability
    logit = {"score": "logit"} if "score" in discover()[method].settings else {}
    logit |= {"variant": "softmax_logit"} if method == "score_cam" else {}
    found = explain("vit_mean", method, target=lambda logits: logits[:, 3], **logit)
    assert found.target.tolist() == [-1, -1, -1]
    close(found.scores, explain("vit_mean", method, target=3, **logit).scores, 1e-12)
    assert found.label(0) == "function of the logits"


def test_a_function_that_picks_a_probability_is_vtranm_as_its_paper_has_it():
    found = explain("vit", "vtranm", target=lambda logits: logits.softmax(-1)[:, 3])
    close(found.scores, explain("vit", "vtranm", target=3).scores, 1e-12)


# maps that are linear in what is sent back
LINEAR = {
    "input_x_gradient": {},
    "integrated_gradients": {"steps": 4},
    "smooth_grad": {"channels": "sum", "samples": 2},
    "attcat": {},
    "cam": {},
    "grad_cam": {"relu": False},
    "grad_cam attention": {"relu": False, "features": "attention"},
    "lrp": {},
    "lrp joint": {"rules": "joint"},
    "deep_taylor": {},
    "conservative_lrp": {},
    "attn_lrp": {},
}


SHIFTED = 1e-6  # the published rule adds 1e-9 to the sum of what comes back, so that it is not quite odd
ON_SWIN = [m for m in LINEAR if m.split()[0] in {s.name for s in served("swin")} and "attention" not in m]


@pytest.mark.parametrize(("network", "method"), [("vit_mean", m) for m in LINEAR] + [("swin", m) for m in ON_SWIN])
def test_a_contrast_is_the_difference_of_two_classes(network, method):
    name = method.split()[0]
    both, one, other = (explain(network, name, target=t, **LINEAR[method]) for t in ((5, 2), 5, 2))
    close(both.scores, one.scores - other.scores, SHIFTED if method == "lrp joint" else 1e-10)
    assert both.target.tolist() == [5, 5, 5]
    assert both.against.tolist() == [2, 2, 2]


@pytest.mark.parametrize("method", OBJECTIVES)
def test_a_contrast_is_not_the_class_alone(method):
    both, one = (explain("vit_mean", method, target=t) for t in ((5, 2), 5))
    assert not torch.allclose(both.scores, one.scores)
    assert both.scores.abs().max() > 1e-9 * one.scores.abs().max()  # more than rounding


def test_a_contrast_of_labels_is_named(labelled):
    found = pl.explain(labelled, pictures(), "saliency", ("dog", "owl"))
    share = found.logits[0].softmax(-1)[2]
    assert found.label(0) == f"dog {share:.2f} rather than owl"


# -- errors -----------------------------------------------------------------------------------------------------------

WRONG = [
    (7, "7 came, but the model counts its classes from 0 to 6"),
    (-1, "-1 came, but the model counts its classes from 0 to 6"),
    (1.5, "expected a class number, a label, a list of them, a pair .* or a function, but 1.5 came"),
    (True, "expected a class number, .* but True came"),
    ([1, 2], "3 pictures need 3 targets, but 2 came"),
    ((1, 2, 3), r"a contrast is a pair \(class, other class\), but \(1, 2, 3\) came"),
    ("cat", "'cat' fits 2 labels .tabby cat, tiger cat.. Give the full name or a number"),
    ("dgo", "there is no label 'dgo'. Did you mean 'dog'"),
    (lambda logits: logits, r"a function must turn logits \(3, 7\) into \(3,\) scores, but \(3, 7\) came"),
    (lambda _: 1.0, r"into \(3,\) scores, but float came"),
]


@pytest.mark.parametrize("method", ["transformer_mm", "saliency"])
@pytest.mark.parametrize(("target", "message"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_a_wrong_target_is_an_error_that_says_what_would_do(labelled, method, target, message):
    with pytest.raises(pl.PatchlightError, match=message):
        pl.explain(labelled, pictures(), method, target)


def test_a_label_without_label_names_is_an_error():
    with pytest.raises(pl.PatchlightError, match="'dog' is a label, but the model has no label names"):
        pl.explain(subject("vit"), pictures(), "saliency", "dog", **quick("saliency"))


def test_a_label_of_an_output_that_the_model_does_not_have_is_an_error():
    held = pl.load(tiny.fresh("vit"), labels=[*LABELS, "newt"])
    with pytest.raises(pl.PatchlightError, match="'newt' is label number 7 of 8, but the model has 7 outputs"):
        pl.explain(held, pictures(), "saliency", "newt")


def test_a_long_list_of_labels_is_counted_and_not_printed():
    model = tiny.redrawn(tiny.vit(num_classes=70))
    held = pl.load(model, labels=[f"breed {i} of dogs" for i in range(70)])
    with pytest.raises(pl.PatchlightError, match=r"there is no label 'breed x of dogs'\. Did you mean .*The model has 70 labels"):
        pl.explain(held, pictures(), "saliency", "breed x of dogs")
