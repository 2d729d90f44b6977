"""Every relevance method accounts for all that it received: what arrived, and what each cause kept back."""

from __future__ import annotations

import json

import pytest
import torch

import tiny
from patchlight.core.registry import discover

PAIRS = [(n, m) for n, m in tiny.pairs() if discover()[m].family == "relevance"]


@pytest.mark.parametrize(("network", "method"), PAIRS)
def test_what_was_received_arrived_or_was_kept_back_by_a_cause(network, method):
    found = tiny.explain(network, method, target=3)
    account = dict(found.conservation)
    received = account.pop("received")
    assert received.shape == (3,)
    multiplies = discover()[method].function.__name__ in ("conservative_lrp", "attn_lrp")
    tiny.close(received, found.logits[:, 3] if multiplies else torch.ones(3).double(), 1e-12)
    whole = sum(v.abs() for v in account.values())
    assert ((sum(account.values()) - received).abs() <= 1e-9 * whole).all()
    assert (account["rounding"].abs() <= 1e-7 * whole).all()  # f(x) / (x + 1e-10) of activations
    if found.tokens is None:
        tiny.close(account["arrived"], found.pixels.flatten(1).sum(1), 1e-12)


@pytest.mark.parametrize("method", ["lrp", "conservative_lrp", "attn_lrp", "deep_taylor"])
@pytest.mark.parametrize("network", ["vit", "vit_registers", "swin", "hf_deit"])
def test_at_the_tokens_the_map_is_what_arrived(network, method):
    found = tiny.explain(network, method, at="tokens")
    tiny.close(found.tokens.flatten(1).sum(1), found.conservation["arrived"], 1e-10)
    assert ("class token" in found.conservation) == bool(tiny.KINDS[network].prefix)


@pytest.mark.parametrize("method", ["lrp", "conservative_lrp"])
def test_the_account_of_a_batch_is_that_of_each_picture(method):
    whole = tiny.explain("vit", method, target=3).conservation
    for size in (1, 2):
        parts = tiny.explain("vit", method, target=3, batch_size=size).conservation
        assert list(parts) == list(whole)
        for cause, values in whole.items():
            assert (parts[cause] - values).abs().max() <= 1e-8 * whole["arrived"].abs().max()


def test_the_account_is_part_of_the_record():
    found = tiny.explain("vit", "conservative_lrp")
    record = json.loads(json.dumps(found.record()))["conservation"]
    assert record == {cause: values.tolist() for cause, values in found.conservation.items()}
    assert {"received", "arrived", "bias", "normalisation", "class token", "position embedding"} <= set(record)


CAUSES = [
    ("vit", "position embedding"),
    ("vit_registers", "class token"),
    ("hf_deit", "position embedding"),
    ("torchvision_vit", "class token"),
    ("swin", "relative position"),
    ("hf_swin", "relative position"),
    ("torchvision_swin", "relative position"),
]


@pytest.mark.parametrize(("network", "cause"), CAUSES)
def test_what_kept_relevance_back_is_named_after_its_parameter(network, cause):
    kept = tiny.explain(network, "deep_taylor").conservation
    assert (kept[cause] > 1e-3).all()
    assert kept.get("constants", torch.zeros(1)).abs().max() < 1e-6
