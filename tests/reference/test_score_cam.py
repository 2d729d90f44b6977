"""Score-CAM's three forms, one channel at a time, on transformers and on a CNN."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.core.grid import to_pixels
from patchlight.methods.masking import _channels
from tiny import close, pictures, subject


def features_of(network: str, image: Tensor) -> Tensor:
    model, held = subject(network).model, []
    place = model[2] if network == "cnn" else model.blocks[-1].norm1
    handle = place.register_forward_hook(lambda *args: held.append(args[2]))
    with torch.no_grad():
        model(image[None])
    handle.remove()
    return held[0][0] if network == "cnn" else held[0][0, -16:].T.unflatten(1, (4, 4))


def slow(network: str, image: Tensor, target: int, variant: str) -> tuple[Tensor, Tensor]:
    model, features = subject(network).model, features_of(network, image)
    aligned = variant == "softmax_logit"
    scores, scaled = [], []
    for channel in features:
        big = F.interpolate(channel[None, None], size=(32, 32), mode="bilinear", align_corners=aligned)[0, 0]
        mask = (big - big.min()) / (big.max() - big.min())
        with torch.no_grad():
            logits = model((image * mask)[None])[0]
        scores.append(logits[target] if aligned else logits.softmax(-1)[target])
        scaled.append((channel - big.min()) / (big.max() - big.min()))
    weights = torch.stack(scores)
    weights = weights.softmax(0) if aligned else weights
    maps = torch.stack(scaled) if variant == "vit_cx" else features
    return (weights[:, None, None] * maps).sum(0), weights


@pytest.mark.parametrize("network", ["vit", "vit_mean", "vit_registers", "cnn"])
@pytest.mark.parametrize("variant", ["original", "softmax_logit", "vit_cx"])
def test_equals_the_formula(network, variant):
    shown = pictures(network, 2)
    signed, plain = (
        pl.explain(subject(network), shown, "score_cam", 3, variant=variant, relu=relu, insides=True) for relu in (False, True)
    )
    for index, image in enumerate(shown):
        expected, weights = slow(network, image, 3, variant)
        close(signed.tokens[index], expected, 1e-9)
        close(signed.insides["weights"][index], weights, 1e-9)
        close(plain.tokens[index], expected if variant == "vit_cx" else expected.clamp_min(0), 1e-9)
    assert signed.samples.tolist() == [8 if network == "cnn" else 24] * 2


def test_the_channels_that_vary_most():
    shown = pictures(count=1)
    found = pl.explain(subject("vit"), shown, "score_cam", 3, top=5, relu=False, insides=True)
    features = features_of("vit", shown[0])
    order = features.flatten(1).var(1).argsort(descending=True)[:5]
    _, weights = slow("vit", shown[0], 3, "original")
    close(found.insides["weights"][0], weights[order], 1e-9)
    close(found.tokens[0], (weights[order, None, None] * features[order]).sum(0), 1e-9)


def test_a_constant_channel_has_no_weight():
    model = tiny.fresh("vit")
    with torch.no_grad():
        model.blocks[-1].norm1.weight[4] = 0.0
    found = pl.explain(model, pictures(count=1), "score_cam", 3, insides=True)
    assert [i for i, w in enumerate(found.insides["weights"][0].tolist()) if w == 0] == [4]


def test_an_earlier_block_lies_on_its_own_grid():
    assert pl.explain(subject("swin"), pictures("swin", 1), "score_cam", 3, block=0).tokens.shape == (1, 8, 8)


def test_a_model_without_maps_is_an_error():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5)).double()
    model.image_size = 32
    with pytest.raises(pl.PatchlightError, match="score_cam needs feature maps, but no block and no convolution can be seen"):
        pl.explain(model, pictures(count=1), "score_cam")


def test_no_channels_are_an_error():
    with pytest.raises(pl.PatchlightError, match="score_cam: top takes 1 or more, or None for all, but 0 came"):
        tiny.explain("vit", "score_cam", top=0)


def test_enlarged_maps_are_not_held_together(monkeypatch):
    """Their extremes are found chunk by chunk: the channels of a batch at full size would fill gigabytes."""
    enlarged, alive = [], []

    def watched(*args, **kwargs):
        alive.append(sum(held() is not None for held in enlarged))
        found = to_pixels(*args, **kwargs).numpy().copy()
        enlarged.append(weakref.ref(found))  # lives as long as the memory of the tensor made of it
        return torch.from_numpy(found)

    monkeypatch.setattr(_channels, "to_pixels", watched)
    made = _channels.bank(torch.rand(5 * _channels.CHUNK, 3, 3), (6, 6))
    assert len(enlarged) == 5
    assert max(alive) <= 1
    assert made.low.shape == made.scale.shape == (5 * _channels.CHUNK, 1, 1)
