"""Boxes, masks and maps go where their picture's pixels go."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import patchlight as pl
import tiny
from patchlight.core.item import seen_boxes, seen_mask
from patchlight.core.maps import find_map, read_maps, seen_map

PLAIN = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
WAYS = {
    "cover and crop": pl.Preprocess((32, 32), *PLAIN, resize=40),
    "squash": pl.Preprocess((32, 48), *PLAIN, resize=(32, 48)),
    "no resize": pl.Preprocess((32, 32), *PLAIN),
    "contain": pl.Preprocess((64, 64), *PLAIN, resize=(64, 64), fit="contain"),
    "beyond the picture": pl.Preprocess((96, 96), *PLAIN, resize=64),
}


def scene(size=(120, 80), box=(30, 20, 72, 61)):
    """A white rectangle on black, as picture and as mask."""
    mask = np.zeros(size[::-1], dtype=np.uint8)
    mask[box[1] : box[3], box[0] : box[2]] = 1
    return Image.fromarray(np.repeat(255 * mask[..., None], 3, 2)), mask, box


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [(120, 80), (80, 120), (77, 93)])
def test_mask_and_box_lie_where_the_model_sees_the_object(way, size):
    picture, mask, box = scene(size)
    preprocess = WAYS[way]
    seen = preprocess(picture)[0] > 0.5
    found = seen_mask(preprocess, mask)
    assert found.shape == seen.shape
    edge = 2 * (preprocess.size[0] + preprocess.size[1])  # the outline may differ by a pixel
    assert int(((found == 1) != seen).sum()) <= edge
    (moved,) = seen_boxes(preprocess, size, [box]).tolist()
    rows, columns = seen.any(1).nonzero()[:, 0], seen.any(0).nonzero()[:, 0]
    outline = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    assert moved == pytest.approx([float(v) for v in outline], abs=1.0)
    x0, y0, x1, y1 = preprocess.box(*size)
    outside = 1 - (min(x1, size[0]) - max(x0, 0)) * (min(y1, size[1]) - max(y0, 0)) / ((x1 - x0) * (y1 - y0))
    assert float((found < 0).double().mean()) == pytest.approx(max(0.0, outside), abs=0.06)


def test_void_and_background_stay_apart():
    mask = np.array([[1, 0], [-1, 7]], dtype=np.int16).repeat(16, 0).repeat(16, 1)
    found = seen_mask(pl.Preprocess((32, 32), *PLAIN), mask)
    assert found[::16, ::16].tolist() == [[1, 0], [-1, 1]]
    assert seen_mask(pl.Preprocess((32, 32), *PLAIN), mask > 0).unique().tolist() == [0, 1]


def test_a_box_outside_the_crop_is_gone():
    preprocess = pl.Preprocess((32, 32), *PLAIN)
    assert seen_boxes(preprocess, (100, 32), [(0, 0, 10, 10), (40, 4, 90, 20)]).tolist() == [[6.0, 4.0, 32.0, 20.0]]


def test_items_bring_what_is_known_of_them(tmp_path):
    picture, mask, box = scene()
    picture.save(tmp_path / "a.png")
    subject = tiny.subject("vit")
    items = [pl.Item("one", tmp_path / "a.png", 3, (box,), mask), pl.Item("two", picture, 4, (box,), lambda: mask)]
    e = pl.explain(subject, items, "transformer_mm")
    told = pl.evaluate_many(subject, items, e, ["positive_perturbation", "area", "pointing_game"])
    assert told["area"].names == ("one", "two")
    plain = pl.evaluate(subject, [picture, picture], e, "area", masks=[mask, mask])
    assert told["area"].values.tolist() == plain.values.tolist()
    boxes = pl.evaluate(subject, [picture, picture], e, "area", boxes=[[box], [box]])
    assert boxes.mean == pytest.approx(plain.mean, abs=0.05)
    given = pl.evaluate(subject, items, e, "positive_perturbation", labels=3)
    assert given.values[0] == told["positive_perturbation"].values[0]


def test_a_mask_at_the_input_size_is_used_as_it_is():
    picture, _, _ = scene()
    subject = tiny.subject("vit")
    e = pl.explain(subject, [picture], "transformer_mm")
    seen = torch.zeros(1, 32, 32, dtype=torch.int8)
    seen[0, :8] = 1
    assert pl.evaluate(subject, [picture], e, "area", masks=seen).mean == 0.25


# -- maps made elsewhere -----------------------------------------------------------------------------------------------


def test_maps_are_read_from_every_format(tmp_path):
    rows = np.random.default_rng(0).random((14, 14))
    np.save(tmp_path / "a.npy", rows)
    np.savez(tmp_path / "b.npz", other=rows + 1, heatmap=rows)
    np.savez(tmp_path / "c.npz", anything=rows[None].astype(np.float32))
    Image.fromarray((65535 * rows).astype(np.uint16)).save(tmp_path / "d.png")
    Image.fromarray((255 * rows).astype(np.uint8)).save(tmp_path / "e.png")
    for name, gap in (("a.npy", 0), ("b.npz", 0), ("c.npz", 1e-7), ("d.png", 1e-4), ("e.png", 1e-2)):
        found = read_maps(tmp_path / name)
        scale = {"d.png": 65535, "e.png": 255}.get(name, 1)
        assert found.shape == (1, 14, 14)
        np.testing.assert_allclose(found[0] / scale, rows, atol=gap)


def test_our_own_files_come_back(tmp_path):
    subject, images = tiny.subject("vit"), tiny.pictures()
    e = pl.explain(subject, images, "transformer_mm")
    path = e.save(tmp_path / "x.npz")
    found = pl.evaluate(subject, images, path, "deletion")
    torch.testing.assert_close(found.values, pl.evaluate(subject, images, e, "deletion").values)


def test_a_map_as_large_as_its_picture_goes_through_the_crop():
    picture, mask, box = scene()
    for preprocess in WAYS.values():
        found = seen_map(preprocess, mask.astype(np.float64), picture.size)
        seen = np.asarray(preprocess(picture)[0] > 0.5)
        assert ((found > 0.5) != seen).sum() <= 2 * sum(preprocess.size)
    grid = np.eye(4)
    assert seen_map(WAYS["squash"], grid, (120, 80)) is grid
    subject = tiny.subject("vit")
    assert pl.evaluate(subject, [picture], torch.tensor(mask)[None].double(), "pointing_game", boxes=[[box]]).mean == 1


def test_a_map_of_a_picture_smaller_than_the_input_is_no_grid():
    """It goes through the crop as any other; a map that is smaller still is a grid."""
    subject = pl.load(tiny.fresh("vit"), preprocess=pl.Preprocess((32, 32), resize=32))
    picture, own, box = Image.new("RGB", (30, 15), (9, 99, 200)), torch.zeros(15, 30), [[15, 0, 17, 15]]
    own[7, 15] = 1  # in the middle; column 0 is cut off
    assert pl.evaluate(subject, picture, own, "pointing_game", boxes=box).mean == 1
    seen = torch.from_numpy(seen_map(subject.preprocess, own.numpy(), picture.size))
    for metric, options in {"energy": {"boxes": box}, "deletion": {"steps": 8}}.items():
        found, wanted = (pl.evaluate(subject, picture, m, metric, **options).mean for m in (own, seen))
        assert found == pytest.approx(wanted, rel=1e-6)
    grid = torch.rand(5, 5)
    found = pl.evaluate(subject, picture, grid, "energy", boxes=box).mean
    enlarged = torch.nn.functional.interpolate(grid[None, None], size=(32, 32), mode="bilinear")[0]
    assert found == pytest.approx(pl.evaluate(subject, picture, enlarged, "energy", boxes=box).mean, rel=1e-6)


def test_maps_of_pictures_of_different_sizes_come_as_a_list():
    subject = pl.load(tiny.fresh("vit"), preprocess=pl.Preprocess((32, 32), resize=32))
    pictures = [Image.new("RGB", size, (9, 99, 200)) for size in ((30, 15), (64, 48))]
    rows = [torch.rand(p.height, p.width) for p in pictures]
    found = pl.evaluate(subject, pictures, rows, "entropy").values
    alone = [pl.evaluate(subject, p, r, "entropy").mean for p, r in zip(pictures, rows, strict=True)]
    assert found.tolist() == pytest.approx(alone, rel=1e-6)


def test_the_map_of_a_picture_is_found_by_name(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"x")
    (tmp_path / "b.rollout.npz").write_bytes(b"x")
    assert find_map(tmp_path, "a").name == "a.npy"
    assert find_map(tmp_path, "b").name == "b.rollout.npz"
    (tmp_path / "b.tam.npz").write_bytes(b"x")
    with pytest.raises(pl.PatchlightError, match=r"has 2 maps .*for the picture 'b', but one was expected"):
        find_map(tmp_path, "b")
    with pytest.raises(pl.PatchlightError, match="has no map for the picture 'c'"):
        find_map(tmp_path, "c")
    with pytest.raises(pl.PatchlightError, match="There is no folder of maps at"):
        find_map(tmp_path / "none", "c")


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.txt", lambda p: p.write_text("1"), r"is no file of maps: expected .npz, .npy, .png"),
        ("a.npy", lambda _: None, "No file of maps lies at"),
        ("a.npy", lambda p: p.write_bytes(b"broken"), "cannot be read as maps"),
        ("a.npz", lambda p: np.savez(p, one=np.eye(2), two=np.eye(2)), "holds the arrays one, two, and none of them is called"),
        ("a.npy", lambda p: np.save(p, np.zeros((1, 3, 4, 4))), r"maps are numbers \(h, w\) or \(b, h, w\)"),
        ("a.png", lambda p: Image.new("RGB", (4, 4)).save(p), "a map must be grey: colours cannot be turned back"),
    ],
)
def test_a_file_that_is_no_map_is_told_so(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(pl.PatchlightError, match=message):
        read_maps(tmp_path / name)
