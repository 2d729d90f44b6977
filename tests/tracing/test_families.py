"""Every family that the README names: its layout is found, its blocks are watched without a change, its methods answer."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import ceil

import pytest
import torch
from torch import nn

import patchlight as pl
from patchlight.core.registry import Taps
from patchlight.core.targets import Target
from patchlight.doctor import examine, redrawn
from patchlight.tracing.seen import as_tokens
from patchlight.tracing.trace import trace

TINY = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 64, "patch_size": 8}
WIDE = TINY | {"intermediate_size": 64}
SWIN = {"image_size": 64, "patch_size": 4, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
# the class that a family's name stands for, with its own options, but narrow, shallow and on small pictures
SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 2}
PATCH14, PATCH16 = SMALL | {"img_size": 56}, SMALL | {"img_size": 64}
STAGES = {"embed_dim": 12, "depths": (2, 2, 1), "num_heads": (1, 2, 3)}
PVT = {"embed_dims": (8, 16, 24, 32), "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 4)}
DAVIT = {"embed_dims": (12, 24, 36, 48), "depths": (1, 1, 1, 1), "num_heads": (1, 2, 3, 4), "window_size": 4}
MAXVIT = {"img_size": 128, "embed_dim": (32, 32, 64, 64), "depths": (1, 1, 2, 2), "stem_width": 16}
LEVIT = {"img_size": 224, "embed_dim": (32, 48, 64), "depth": (1, 1, 1), "num_heads": (2, 3, 4), "key_dim": 8}
HIERA = {"img_size": (128, 128), "embed_dim": 16, "stages": (1, 1, 2, 1)}

# name: (arguments, grid of the last block, prefix tokens, how the head reads, kinds of blocks)
FAMILIES = {
    "timm:vit_tiny_patch16_224": (PATCH16, (4, 4), 1, "class", {"global"}),
    "timm:vit_tiny_patch16_224 wide": (SMALL | {"img_size": (64, 160)}, (4, 10), 1, "class", {"global"}),
    "timm:deit_tiny_patch16_224": (PATCH16, (4, 4), 1, "class", {"global"}),
    "timm:deit_tiny_distilled_patch16_224": (PATCH16, (4, 4), 2, "class", {"global"}),
    "timm:deit3_small_patch16_224": (PATCH16, (4, 4), 1, "class", {"global"}),
    "timm:vit_small_patch14_dinov2": (PATCH14, (4, 4), 1, "class", {"global"}),
    "timm:vit_small_patch14_reg4_dinov2": (PATCH14, (4, 4), 5, "class", {"global"}),
    "timm:vit_small_patch16_dinov3": (PATCH16, (4, 4), 5, "mean", {"global"}),
    "timm:eva02_tiny_patch14_224": (PATCH14, (4, 4), 1, "mean", {"global"}),
    "timm:beit_base_patch16_224": (PATCH16, (4, 4), 1, "mean", {"global"}),
    "timm:vit_base_patch16_clip_224": (PATCH16, (4, 4), 1, "class", {"global"}),
    "timm:vit_base_patch16_siglip_224": (PATCH16, (4, 4), 0, "attention", {"global", "pool"}),
    "timm:cait_xxs24_224": (PATCH16, (4, 4), 0, "attention", {"global", "class"}),
    "timm:xcit_nano_12_p16_224": (PATCH16, (4, 4), 0, "attention", {"channel", "class"}),
    "timm:swin_tiny_patch4_window7_224": (STAGES | {"img_size": 112}, (7, 7), 0, "mean", {"window", "global"}),
    "timm:swinv2_tiny_window8_256": (STAGES | {"img_size": 64, "window_size": 4}, (4, 4), 0, "mean", {"window", "global"}),
    "timm:pvt_v2_b0": (PVT, (4, 4), 0, "mean", {"reduced", "global"}),
    "timm:mvitv2_tiny": ({"img_size": 128}, (4, 4), 0, "mean", {"reduced", "merging", "global"}),
    "timm:hiera_tiny_224": (HIERA, (4, 4), 0, "mean", {"window", "merging", "global"}),
    "timm:davit_tiny": (DAVIT, (4, 4), 0, "mean", {"window", "channel", "global"}),
    "timm:maxvit_tiny_tf_224": (MAXVIT, (4, 4), 0, "mean", {"window", "merging", "global"}),
    "timm:levit_128s": (LEVIT, (4, 4), 0, "mean", {"merging", "global"}),
    "hf:vit": (WIDE, (8, 8), 1, "class", {"global"}),
    "hf:deit": (WIDE, (8, 8), 2, "class", {"global"}),
    "hf:dinov2": (TINY, (8, 8), 1, "class and mean", {"global"}),
    "hf:dinov2_with_registers": (TINY, (8, 8), 5, "class and mean", {"global"}),
    "hf:beit": (WIDE, (8, 8), 1, "mean", {"global"}),
    "hf:siglip": ({"vision_config": WIDE}, (8, 8), 0, "mean", {"global"}),
    "hf:clip": ({"vision_config": WIDE}, (8, 8), 1, "mean", {"global"}),
    "hf:swin": (SWIN, (8, 8), 0, "mean", {"window"}),
    "torchvision:vit_b_16": ({"image_size": 64}, (4, 4), 1, "class", {"global"}),
    "torchvision:swin_t": ({}, (4, 4), 0, "mean", {"window", "global"}),  # its last stage is padded to one window
    "torchvision:swin_v2_t": ({}, (4, 4), 0, "mean", {"window", "global"}),
}
SIDE = {"timm:pvt_v2_b0": 128, "timm:davit_tiny": 128, "torchvision:swin_t": 112, "torchvision:swin_v2_t": 128}  # takes any
CUT = {  # what takes no depth as an argument loses blocks
    "timm:mvitv2_tiny": lambda m: cut(m.stages[2], "blocks", 2),
    "torchvision:vit_b_16": lambda m: cut(m.encoder, "layers", 2),
    "torchvision:swin_t": lambda m: cut(m.features, "5", 2),
    "torchvision:swin_v2_t": lambda m: cut(m.features, "5", 2),
}


def cut(parent: nn.Module, name: str, count: int) -> None:
    setattr(parent, name, getattr(parent, name)[:count])


@cache
def family(name: str) -> pl.Subject:
    side = SIDE.get(name)
    preprocess = None if side is None else pl.Preprocess(size=(side, side), resize=side)
    subject = pl.load(name.split()[0], weights="random", preprocess=preprocess, **FAMILIES[name][0])
    CUT.get(name, lambda _: None)(subject.model)
    return redrawn(subject)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_doctor_finds_the_layout_and_every_method_answers(name):
    _, grid, prefix, pool, kinds = FAMILIES[name]
    report = examine(family(name))
    assert report.healthy, (report.problem, report.findings)
    assert (report.layout.grid, report.layout.prefix, report.layout.pool) == (grid, prefix, pool)
    assert {b.kind for b in report.layout.blocks} == kinds
    assert report.seen == report.expected > 0
    assert report.dtype == torch.float64
    assert report.difference <= 1e-12
    assert sum(f.works for f in report.findings) >= 7
    assert all(f.works or f.reason for f in report.findings)


# levit merges by attention without a skip: none of its last tokens belongs to one patch
@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "timm:levit_128s"])
def test_the_token_of_a_patch_stands_where_the_patch_lies(name):
    """Changing the pixels under one cell of the last grid changes that cell's token most, when no attention mixes them."""
    subject, (height, width) = without_attention(family(name)), FAMILIES[name][1]
    (high, wide), (row, column) = subject.preprocess.size, (height - 2, 1)
    step = (high // height, wide // width)
    # a smooth picture, so that what changes is the patch and not its neighbours
    plain = torch.randn(1, 3, 1, 1, generator=torch.Generator().manual_seed(0)).expand(1, 3, high, wide).clone()
    changed = plain.clone()
    rows, columns = (slice(i * s, (i + 1) * s) for i, s in zip((row, column), step, strict=True))
    changed[:, :, rows, columns] += torch.randn(3, *step, generator=torch.Generator().manual_seed(1))
    moved = (last_tokens(subject, changed) - last_tokens(subject, plain)).norm(dim=-1)[0]
    patches = moved[-height * width :].unflatten(0, (height, width))
    found = divmod(int(patches.argmax()), width)
    near = name in ("timm:xcit_nano_12_p16_224", "timm:pvt_v2_b0")  # their convolutions blur across cells
    assert max(abs(found[0] - row), abs(found[1] - column)) <= int(near)


def without_attention(subject: pl.Subject) -> pl.Subject:
    """What the attention of each block adds is set to zero."""
    subject = replace(subject, model=deepcopy(subject.model))
    layout = subject.layout()
    images = torch.zeros(1, 3, *layout.size)
    found = trace(subject.model, subject.forward, images, layout, taps=[Taps()], target=lambda y: Target(y.argmax(-1)))
    with torch.no_grad():
        for block in found.recorder.seen:
            if block.projection is not None and block.block.kind not in ("class", "pool"):
                block.projection.zero_()
    return subject


def last_tokens(subject: pl.Subject, images: torch.Tensor) -> torch.Tensor:
    layout = subject.layout()
    found = trace(subject.model, subject.forward, images, layout, taps=[Taps()], target=lambda y: Target(y.argmax(-1)))
    last = found.recorder.seen[len(layout.trunk) - 1]
    assert last.leaving is not None
    return as_tokens(last.leaving, layout.trunk[-1].grid)


SHIFTED = [("timm:swin_tiny_patch4_window7_224", 3, 3), ("hf:swin", 2, 2), ("torchvision:swin_t", 3, 4)]


@pytest.mark.parametrize(("name", "shift", "stages"), SHIFTED)
def test_windows_shifts_and_merges_are_read(name, shift, stages):
    layout = family(name).layout()
    window = [b for b in layout.trunk if b.kind == "window"]
    assert {b.shift for b in window} == {(0, 0), (shift, shift)}
    assert all(b.window is not None and b.window[0] * b.window[1] == b.keys for b in window)
    grids = [g for g, _ in layout.stages]
    assert all(ceil(a[0] / 2) == b[0] for a, b in pairwise(grids))
    assert len(grids) == stages


TABLES = {  # the methods that go down to the pixels, and with them every table of rules
    "conservative_lrp": {},
    "attn_lrp": {},
    "deep_taylor": {},
    "lrp": {},
    "lrp joint": {"rules": "joint"},
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", FAMILIES)
def test_relevance_knows_every_operation_and_accounts_for_all_of_it(name, table):
    subject = family(name)
    images = torch.randn(1, 3, *subject.layout().size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = pl.explain(subject, images, table.split()[0], 1, **TABLES[table])
    assert found.pixels.isfinite().all()
    assert found.pixels.abs().amax() > 0
    kept = {cause: values.item() for cause, values in found.conservation.items()}
    whole = sum(map(abs, kept.values()))
    assert abs(2 * kept["received"] - sum(kept.values())) <= 1e-10 * whole
    assert abs(kept["rounding"]) <= 1e-7 * whole  # f(x) / (x + 1e-10) of activations
