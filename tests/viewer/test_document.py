"""What a page is told: curves, insides, attention and the rest, against the model itself."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

import patchlight as pl
import tiny
from patchlight.core.layout import Block, Layout
from patchlight.viewer.attention import BUDGET, packed, row_of, see, spread
from patchlight.viewer.document import Extras, document, joined
from patchlight.viewer.insides import shown
from patchlight.viewer.removal import counts, masks_for, patch_order, patch_scores, removal_curves


@pytest.fixture(scope="module")
def small() -> pl.Subject:
    return pl.load(tiny.redrawn(tiny.vit()), preprocess=pl.Preprocess((32, 32)), labels=list("abcdefg"))


def pictures(count: int = 1) -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (40, 50, 3), dtype=np.uint8)) for _ in range(count)]


# -- curves ------------------------------------------------------------------------------------------------------------


def test_the_points_of_a_curve_are_what_the_model_says_without_the_highest_patches(small):
    x = small.prepare(pictures()[0]).double()
    scores = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    found = removal_curves(small.scorer, x, scores, steps=4)
    assert list(found.counts) == [0, 4, 8, 12, 16]
    for k, count in enumerate(found.counts):
        gone = torch.zeros(16, dtype=torch.bool)
        gone[scores.flatten().argsort(descending=True)[:count]] = True
        hidden = gone.view(4, 4).repeat_interleave(8, 0).repeat_interleave(8, 1)
        for curve, painted in ((found.deletion, hidden), (found.insertion, ~hidden)):
            wanted = small.scores(torch.where(painted, 0.0, x)[None])[0]
            assert torch.allclose(curve[k].double(), wanted, atol=1e-5)


def test_equal_scores_go_in_reading_order_and_what_is_no_number_last():
    assert patch_order(torch.tensor([[1.0, 2.0], [torch.nan, 2.0]])).tolist() == [1, 3, 0, 2]
    assert counts(16, 20)[-1] == 16
    assert counts(3, 20) == [0, 1, 2, 3]
    assert masks_for(torch.tensor([2, 0, 1, 3]), (2, 2), [0, 1]).flatten(1).tolist()[1] == [True, True, False, True]


def test_a_map_of_pixels_is_ranked_by_the_mean_of_each_patch():
    scores = torch.arange(64.0).view(8, 8)
    assert patch_scores(scores, (2, 2)).tolist() == [[13.5, 17.5], [45.5, 49.5]]


# -- attention ---------------------------------------------------------------------------------------------------------


def test_the_rows_of_a_patch_are_those_of_the_trace(small):
    x = small.prepare(pictures()[0]).double()
    seen = see(small, x)
    e = pl.explain(small, x[None], "raw_attention", insides=True, readout=(1, 2))
    last = len(seen.layout.blocks) - 1
    rows = row_of(seen.layout.blocks[last], seen.maps[last].float(), (1, 2))
    assert torch.allclose(rows.mean(0).double(), e.tokens[0], atol=1e-3)


@pytest.mark.parametrize("shift", [(0, 0), (2, 1)])
def test_a_window_lies_where_it_was_cut_out(shift):
    """Windows are cut by hand from a numbered grid; each query looks at itself alone."""
    block = Block("b", "window", grid=(8, 6), window=(4, 3), shift=shift)
    maps = torch.eye(12).expand(4, 1, 12, 12)
    for patch in ((0, 0), (7, 5), (3, 2), (5, 4)):
        row = row_of(block, maps, patch)
        assert row.sum() == 1
        assert row[0][patch] == 1
    numbers = torch.arange(48).view(8, 6).roll((-shift[0], -shift[1]), (0, 1))
    window = numbers.view(2, 4, 2, 3).transpose(1, 2).reshape(4, 12)
    everywhere = torch.zeros(4, 1, 12, 12)
    everywhere[2] = 1  # the third window looks at all of itself
    at = divmod(int(window[2][5]), 6)
    assert sorted(row_of(block, everywhere, at)[0].flatten().nonzero()[:, 0].tolist()) == sorted(window[2].tolist())


def test_windows_of_a_real_swin_are_seen():
    subject = pl.load(tiny.redrawn(tiny.timm_swin()), preprocess=pl.Preprocess((32, 32)))
    seen = see(subject, torch.randn(3, 32, 32, dtype=torch.float64))
    for index, maps in seen.maps.items():
        row = row_of(seen.layout.blocks[index], maps.float(), (1, 1))
        assert torch.allclose(row.flatten(1).sum(1), torch.ones(len(row)), atol=2e-3)
    assert packed(seen) is None


def test_attention_keeps_to_its_budget(small):
    seen = see(small, small.prepare(pictures()[0]).double())
    block = seen.maps[0].numel()
    assert len(packed(seen, BUDGET)["blocks"]) == 3
    some = packed(seen, 2 * block)  # two blocks with their heads would fit, so three means do
    assert [b["heads"] for b in some["blocks"]] == [1, 1, 1]
    assert some["heads"] is False
    assert packed(seen, 10) is None
    assert spread([0, 1, 2, 3, 4], 3) == [0, 2, 4]


# -- insides -----------------------------------------------------------------------------------------------------------


def test_insides_are_told_by_shape_alone():
    layout = Layout((4, 4), prefix=1, pool="class")
    masks = torch.rand(1, 30, 8, 8)
    insides = {
        "state": {0: torch.rand(1, 17), 1: torch.rand(1, 17)},
        "ratio": {0: torch.rand(1, 3, 17)},
        "update": {0: torch.rand(1, 2, 17, 17)},
        "diagonal": {0: torch.diag_embed(torch.rand(1, 17))},
        "mask": masks,
        "score": torch.arange(30.0)[None],
        "something else": torch.rand(1, 5, 3, 2, 2),
    }
    rows = {row["name"]: row for row in shown(insides, layout, 0)}
    assert set(rows) == {"state", "ratio, mean of heads", "update, attention", "update, MLP", "mask"}
    assert [m["block"] for m in rows["state"]["maps"]] == [0, 1]
    assert rows["mask"]["gallery"]
    assert rows["mask"]["maps"][0]["score"] == 29
    assert len(rows["mask"]["maps"]) == 24
    uneven = {"mask": [masks[0], masks[0, :5]], "score": [torch.arange(30.0), torch.arange(5.0)]}
    assert [len(shown(uneven, layout, k)[0]["maps"]) for k in (0, 1)] == [24, 5]


# -- documents ---------------------------------------------------------------------------------------------------------


def test_other_classes_and_a_contrast_come_with_the_file(small):
    found = pl.compare(small, pictures(2), ["rollout", "transformer_mm"])
    told = document(found, Extras(classes=3))
    json.dumps(told, allow_nan=False)
    for index, picture in enumerate(told["pictures"]):
        first = int(found["rollout"].target[index])
        targets = [(r["target"], r["against"]) for r in picture["runs"]]
        likely = found["rollout"].logits[index].topk(3).indices.tolist()
        assert targets == [(first, None), (likely[1], None), (likely[2], None), (first, likely[1])]
        assert set(picture["runs"][0]["maps"]) == {"rollout", "transformer_mm"}
        assert set(picture["runs"][1]["maps"]) == {"transformer_mm"}  # rollout does not depend on the class
        assert picture["labels"][str(first)] == "abcdefg"[first]
        again = pl.explain(small, found["rollout"].source.items[index], "transformer_mm", target=likely[1])
        most = float(again.tokens.abs().max())
        assert picture["runs"][1]["maps"]["transformer_mm"]["most"] == pytest.approx(most, rel=1e-6)


def test_a_function_of_the_outputs_can_be_shown(small):
    e = pl.explain(small, pictures(), "transformer_mm", target=lambda y: y.sum(-1))
    (picture,) = document({"mine": e}, Extras())["pictures"]
    (run,) = picture["runs"]
    assert run["target"] == -1
    assert "curves" not in run


def test_pages_without_the_model_show_what_was_kept(small):
    e = pl.explain(small, pictures(), "vtranm", insides=True)
    e = pickle.loads(pickle.dumps(e.__getstate__() | {"source": None})) | {"source": e.source}
    lone = pl.Explanation(**e)
    assert lone.subject is None
    (picture,) = document({"vtranm": lone}, Extras())["pictures"]
    assert any(r["name"] == "contribution" for r in picture["runs"][0]["insides"]["vtranm"])
    assert "attention" not in picture


def test_batches_are_joined_into_one_page(small):
    parts = [document(pl.compare(small, p, ["rollout"]), Extras(curves=False)) for p in (pictures(), pictures(2))]
    assert len(joined(parts)["pictures"]) == 3


def test_a_page_needs_explanations_of_the_same_pictures(small):
    with pytest.raises(pl.PatchlightError, match="a page shows at least one explanation, but none came"):
        document({}, Extras())
    one, two = (pl.explain(small, pictures(n), "rollout") for n in (1, 2))
    with pytest.raises(pl.PatchlightError, match="explanations of the same pictures and model, but two has 2 of"):
        document({"one": one, "two": two}, Extras())
