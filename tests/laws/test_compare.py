"""`compare` gives what `explain` gives, method by method, and hands out insides in the shapes that it promises."""

from __future__ import annotations

import pytest
import torch

import patchlight as pl
import tiny
from tiny import KINDS, close, pictures, quick, served, subject

ROUNDING = 1e-12  # the same passes; the objectives of other methods may change the order of sums in the graph


@pytest.mark.parametrize("network", KINDS)
def test_compare_equals_explain(network):
    chosen = {m.name: quick(m.name) for m in served(network)}
    found = pl.compare(subject(network), pictures(network), chosen)
    assert list(found) == list(chosen)
    for method, explanation in found.items():
        alone = tiny.known(network, method)
        assert explanation.method == method
        assert explanation.settings.keys() == alone.settings.keys()
        close(explanation.scores, alone.scores, ROUNDING)
        close(explanation.logits, alone.logits, ROUNDING)
        assert sorted(explanation.notes) == sorted(alone.notes)


def test_the_order_of_methods_changes_nothing():
    chosen = {m.name: quick(m.name) for m in served("vit")}
    forth = pl.compare(subject("vit"), pictures(), chosen, 3)
    back = pl.compare(subject("vit"), pictures(), dict(reversed(chosen.items())), 3)
    for method, explanation in forth.items():
        close(back[method].scores, explanation.scores, ROUNDING)


def test_a_method_twice_under_names_of_ones_own():
    chosen = {"p": {"method": "vtranm"}, "y": {"method": "vtranm", "gradient": "logit"}, "ag_cam": {}}
    found = pl.compare(subject("vit"), pictures(), chosen, 3)
    close(found["p"].tokens, tiny.explain("vit", "vtranm", target=3).tokens, ROUNDING)
    close(found["y"].tokens, tiny.explain("vit", "vtranm", target=3, gradient="logit").tokens, ROUNDING)
    assert found["y"].settings["gradient"] == "logit"


def test_names_alone_are_enough():
    found = pl.compare(subject("vit"), pictures(), ["rollout", "saliency"])
    assert {name: e.method for name, e in found.items()} == {"rollout": "rollout", "saliency": "saliency"}


def test_progress_ends_at_all_pictures():
    steps = []
    tiny.explain("vit", "rollout", batch_size=2, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(2, 3), (3, 3)]


# -- insides ----------------------------------------------------------------------------------------------------------

N, HEADS = 17, 2
INSIDES = {
    "raw_attention": {"attention": {2: (3, HEADS, N, N)}},
    "rollout": {"partial product": dict.fromkeys(range(3), (3, N))},
    "attention_flow": {"capacity": dict.fromkeys(range(3), (3, N, N))},
    "tam": {"state": dict.fromkeys(range(3), (3, N))},
    "transformer_mm": {"update": dict.fromkeys(range(3), (3, N, N)), "row": dict.fromkeys(range(3), (3, N))},
    "grad_rollout": {"partial product": dict.fromkeys(range(3), (3, N))},
    "ag_cam": {"block map": dict.fromkeys(range(3), (3, N))},
    "attcat": {"block map": dict.fromkeys(range(3), (3, N))},
    "vtranm": {
        "attention length ratio": dict.fromkeys(range(3), (3, HEADS, N)),
        "attention direction": dict.fromkeys(range(3), (3, HEADS, N)),
        "mlp length ratio": dict.fromkeys(range(3), (3, N)),
        "mlp direction": dict.fromkeys(range(3), (3, N)),
        "update": dict.fromkeys(range(3), (3, 2, N, N)),
        "contribution": dict.fromkeys(range(3), (3, N, N)),
    },
    "saliency": {"gradient": (3, 3, 32, 32)},
    "smooth_grad": {"gradient": (3, 3, 32, 32)},
    "input_x_gradient": {"product": (3, 3, 32, 32)},
    "integrated_gradients": {"product": (3, 3, 32, 32), "completeness gap": (3,)},
}


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("method", INSIDES)
def test_insides_have_their_shapes(method, batch_size):
    found = tiny.explain("vit", method, insides=True, batch_size=batch_size).insides
    shapes = {n: {b: tuple(t.shape) for b, t in v.items()} if isinstance(v, dict) else tuple(v.shape) for n, v in found.items()}
    assert shapes == INSIDES[method]


@pytest.mark.parametrize("method", [m.name for m in served("vit")])
def test_no_insides_unless_asked_for_and_they_change_no_score(method):
    plain, kept = (tiny.explain("vit", method, insides=flag) for flag in (False, True))
    assert plain.insides == {}
    assert torch.equal(plain.scores, kept.scores)


def test_directions_sum_to_one_and_the_last_contribution_is_the_score():
    found = tiny.explain("vit", "vtranm", insides=True)
    for block in range(3):
        close(found.insides["attention direction"][block].sum(-1), torch.ones(3, 2), 1e-12)
        close(found.insides["mlp direction"][block].sum(-1), torch.ones(3), 1e-12)
    close(found.insides["contribution"][2][:, 0, 1:].unflatten(1, (4, 4)), found.tokens, 1e-10)


@pytest.mark.parametrize("method", ["ag_cam", "attcat"])
def test_block_maps_sum_to_the_score(method):
    found = tiny.explain("vit", method, insides=True)
    close(sum(found.insides["block map"].values())[:, 1:].unflatten(1, (4, 4)), found.tokens, 1e-12)


@pytest.mark.parametrize(("method", "name"), [("rollout", "partial product"), ("transformer_mm", "row")])
def test_the_row_behind_the_first_block_is_the_score(method, name):
    found = tiny.explain("vit", method, insides=True)
    close(found.insides[name][0][:, 1:].unflatten(1, (4, 4)), found.tokens, 1e-12)
