"""New weights: drawn as the library draws them, part by part, and the model gets its own back."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import patchlight as pl
import tiny
from patchlight.metrics.sanity import _randomise as r


def layout(name):
    return tiny.subject(name).layout()


@pytest.mark.parametrize("name", tiny.KINDS)
def test_parts_go_from_the_head_down_and_hold_every_parameter_once(name):
    model = tiny.subject(name).model
    found = r.parts(model, layout(name))
    every = [p for names in found.values() for p in names]
    assert sorted(every) == sorted(n for n, _ in model.named_parameters())
    if name != "cnn":
        blocks = [b.name for b in layout(name).blocks]
        assert list(found) == ["head", *reversed(blocks), "embedding"]
        between = ("merg", "downsample", "features.2", "norm.")  # goes with the block before it
        assert all(n.startswith(f"{b}.") or any(w in n for w in between) for b in blocks for n in found[b])


def test_a_model_without_blocks_is_cut_into_its_layers():
    assert list(r.parts(tiny.subject("cnn").model, layout("cnn"))) == ["6", "2", "0"]
    assert list(r.parts(tiny.subject("cnn").model, None)) == ["6", "2", "0"]


@pytest.mark.parametrize("name", tiny.KINDS)
def test_new_weights_are_finite_new_and_depend_on_the_seed_alone(name):
    model = tiny.subject(name).model
    before = torch.get_rng_state()
    new, _ = r.fresh(model, 3)
    assert torch.equal(before, torch.get_rng_state())
    again, other = r.fresh(model, 3)[0], r.fresh(model, 4)[0]
    changed = 0
    for key, parameter in model.named_parameters():
        assert new[key].isfinite().all()
        assert new[key].shape == parameter.shape
        assert new[key].dtype == parameter.dtype
        assert torch.equal(new[key], again[key])
        assert not torch.equal(new[key], parameter)
        changed += not torch.equal(new[key], other[key])
    assert changed >= sum(p.dim() >= 2 for p in model.parameters()) * 0.8


def spread(name, key):
    return r.fresh(tiny.subject(name).model, 0)[0][key].std().item()


def test_the_librarys_own_initialisation_is_used():
    # timm: normal with 0.02, cut at 2; the class token 1e-6. PyTorch's own would be uniform with 1 / sqrt(3 x 24) = 0.118
    assert spread("vit", "blocks.0.attn.qkv.weight") == pytest.approx(0.02, rel=0.05)
    assert spread("vit", "cls_token") < 3e-6
    # transformers: initializer_range
    assert spread("hf_vit", "vit.layers.0.attention.q_proj.weight") == pytest.approx(0.02, rel=0.1)
    # torchvision: layers know theirs (uniform, xavier); the embedding's place only the constructor knows
    assert spread("torchvision_vit", "encoder.layers.encoder_layer_0.self_attention.in_proj_weight") == pytest.approx(
        math.sqrt(2 / (72 + 24)), rel=0.05
    )
    for name in ("vit", "vit_layer_scale", "hf_vit", "hf_swin", "swin"):
        assert r.fresh(tiny.subject(name).model, 0)[1] == []


def test_what_nobody_initialises_keeps_its_mean_and_spread_and_is_named():
    model = tiny.subject("torchvision_vit").model
    new, unknown = r.fresh(model, 0)
    assert unknown == ["class_token", "encoder.pos_embedding"]
    old = dict(model.named_parameters())["encoder.pos_embedding"]
    assert new["encoder.pos_embedding"].std().item() == pytest.approx(old.std().item(), rel=0.2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_is_drawn_wide_and_rounded(dtype):
    model = tiny.fresh("torchvision_vit").to(dtype)
    new, _ = r.fresh(model, 0)
    wide, _ = r.fresh(tiny.fresh("torchvision_vit").float(), 0)
    assert {t.dtype for t in new.values()} == {dtype}
    assert all(torch.equal(new[n], wide[n].to(dtype)) for n in new if "class_token" not in n and "pos" not in n)


def test_a_model_that_cannot_be_copied_says_so():
    class Stubborn(nn.Linear):
        def __deepcopy__(self, memo):
            raise RuntimeError("no copies")

    with pytest.raises(pl.PatchlightError, match="randomising works on a copy, but Stubborn cannot be copied"):
        r.fresh(Stubborn(2, 2), 0)


def test_tensors_stand_in_and_step_back_even_after_an_error():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    tied = nn.Linear(2, 2)
    model.append(tied)
    tied.weight = model[0].weight
    ids = {n: id(t) for n, t in model.state_dict(keep_vars=True).items()}
    values = {n: t.detach() + 1 for n, t in model.state_dict(keep_vars=True).items()}
    copies = {n: t.clone() for n, t in model.state_dict().items()}
    model[0].weight.requires_grad_(requires_grad=False)

    def use():
        with r.standing_in(model, values):
            for name, tensor in model.state_dict().items():
                assert torch.equal(tensor, values[name])
            assert model[2].weight.requires_grad is model[0].weight.requires_grad is False
            raise RuntimeError("within")

    with pytest.raises(RuntimeError, match="within"):
        use()
    assert {n: id(t) for n, t in model.state_dict(keep_vars=True).items()} == ids
    assert model[2].weight is model[0].weight
    assert all(torch.equal(t, copies[n]) for n, t in model.state_dict().items())
