"""What all data sets have in common: slices, samples, digests, broken files, and errors that say what to get."""

from __future__ import annotations

import logging
import pickle
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import patchlight as pl
from disk import cut_off, grey, photo, square
from patchlight import data


@pytest.fixture
def root(tmp_path):
    for i in range(5):
        photo(tmp_path / "images" / f"{i}.png", seed=i)
        grey(tmp_path / "masks" / f"{i}.png", square(8, 12, (i, 1, i + 3, 4)))
    lines = [f'{i}.png,{i % 2},"[[{i}, 1, {i + 3}, 4]]"' for i in range(5)]
    (tmp_path / "index.csv").write_text("\n".join(["file,label,boxes", *lines]))
    return tmp_path


def test_a_number_gives_an_item_and_a_slice_a_data_set(root):
    found = data.open("csv_index", root, masks="masks")
    assert len(found) == 5
    assert isinstance(found[1], pl.Item)
    assert found[-1].name == "4.png"
    assert found[1:3].names == ("1.png", "2.png")
    assert [len(b) for b in found.batches(2)] == [2, 2, 1]
    assert "5 pictures" in repr(found)
    with pytest.raises(pl.PatchlightError, match=r"5 pictures, but number 5 was asked for"):
        found[5]


def test_a_sample_is_drawn_once_from_a_seed_and_kept_in_order(root):
    found = data.open("csv_index", root)
    names = found.sample(3, seed=1).names
    assert names == found.sample(3, seed=1).names == tuple(sorted(names))
    assert len({found.sample(3, seed=s).names for s in range(9)}) > 1
    with pytest.raises(pl.PatchlightError, match=r"a sample of 6 was asked for"):
        found.sample(6)


def test_a_digest_is_that_of_the_content_and_not_of_the_place(root, tmp_path_factory):
    digest = data.open("csv_index", root, masks="masks").digest()
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(root, elsewhere)
    assert data.open("csv_index", elsewhere, masks="masks").digest() == digest
    found = data.open("csv_index", root, masks="masks")
    assert len({found[:2].digest(), found[:3].digest(), found[1:3].digest(), digest}) == 4


def new_pixel(root):
    photo(root / "images" / "2.png", seed=99)


def new_mask(root):
    grey(root / "masks" / "2.png", square(8, 12, (0, 0, 1, 1)))


def new_label(root):
    rewrite(root, "2.png,0", "2.png,1")


def new_box(root):
    rewrite(root, "[[2, 1, 5, 4]]", "[[2, 1, 5, 5]]")


def rewrite(root, old, new):
    text = (root / "index.csv").read_text()
    assert old in text
    (root / "index.csv").write_text(text.replace(old, new))


@pytest.mark.parametrize("change", [new_pixel, new_mask, new_label, new_box])
def test_a_digest_changes_with_anything_that_is_measured_on(root, change):
    before = data.open("csv_index", root, masks="masks")
    digest, untouched = before.digest(), before[3:].digest()
    change(root)
    after = data.open("csv_index", root, masks="masks")
    assert after.digest() != digest
    assert after[3:].digest() == untouched


def test_a_digest_sees_a_file_that_is_gone(root):
    found = data.open("csv_index", root)
    digest = found.digest()
    (root / "images" / "0.png").unlink()
    assert found.digest() != digest


def test_broken_files_are_named_and_skipped_with_a_count(root, caplog):
    cut_off(root / "images" / "1.png")
    (root / "images" / "3.png").unlink()
    found = data.open("csv_index", root)
    with caplog.at_level(logging.WARNING):
        assert [item.name for item in found] == ["0.png", "2.png", "4.png"]
    assert [b.name for b in found.broken] == ["1.png", "3.png"]
    assert "cut off or damaged" in found.broken[0].reason
    assert "There is no file" in found.broken[1].reason
    assert "2 of 5 pictures were skipped" in caplog.text
    list(found)
    assert len(found.broken) == 2
    assert found[:2].check() == (found.broken[0],)
    with pytest.raises(pl.PatchlightError, match=r"cut off or damaged"):
        found[1]


def test_nothing_that_can_be_read_is_an_error_and_no_empty_result(root):
    for path in (root / "images").iterdir():
        cut_off(path)
    with pytest.raises(
        pl.PatchlightError, match=r"all 5 pictures are broken, and nothing is left. The first: .*0.png cannot be decoded"
    ):
        list(data.open("csv_index", root))


def test_boxes_and_masks_must_fit_their_picture(root):
    rewrite(root, "[[0, 1, 3, 4]]", "[[20, 1, 23, 4]]")
    rewrite(root, "[[1, 1, 4, 4]]", "[[-2, 1, 99, 4]]")
    grey(root / "masks" / "2.png", square(12, 8, (0, 0, 1, 1)))
    cut_off(root / "masks" / "3.png")
    found = data.open("csv_index", root, masks="masks")
    with pytest.raises(pl.PatchlightError, match=r"touch the picture of 12 x 8 pixels"):
        found[0]
    assert found[1].boxes == ((0, 1, 12, 4),)  # cut at the edges
    rewrite(root, "[[3, 1, 6, 4]]", "[[3, NaN, 6, 4]]")
    with pytest.raises(pl.PatchlightError, match=r"but \[3.0, nan, 6.0, 4.0\] came"):
        data.open("csv_index", root)[3]
    with pytest.raises(pl.PatchlightError, match=r"the mask has 8 x 12 pixels, but its picture 12 x 8"):
        found[2]
    with pytest.raises(pl.PatchlightError, match=r"3.png cannot be decoded"):
        found[3]


def test_what_is_annotated_is_not_turned_by_exif(tmp_path):
    path = photo(tmp_path / "turned.jpg", size=(12, 8))
    exif = Image.Exif()
    exif[274] = 6  # turn by a quarter
    Image.open(path).save(path, exif=exif)
    grey(tmp_path / "masks" / "turned.png", square(8, 12, (0, 0, 3, 3)))
    (tmp_path / "index.csv").write_text("file\nturned.jpg\n")
    assert data.open("csv_index", tmp_path, masks="masks")[0].picture.size == (12, 8)
    assert data.open("folder", tmp_path, masks="masks")[0].picture.size == (12, 8)
    shutil.rmtree(tmp_path / "masks")
    assert data.open("folder", tmp_path)[0].picture.size == (8, 12)


def test_a_data_set_can_be_sent_to_another_process(root):
    found = data.open("csv_index", root, masks="masks")
    assert pickle.loads(pickle.dumps(found)).digest() == found.digest()
    drawn = data.open("scenes", count=3)
    sent = pickle.loads(pickle.dumps(drawn))
    assert sent.digest() == drawn.digest()
    assert sent.kind is drawn.kind
    assert pickle.loads(pickle.dumps(sent[0])).label == drawn[0].label


def test_items_go_into_evaluate_as_they_come(root):
    found = data.open("csv_index", root, masks="masks")
    items = list(found)
    model = pl.load("pets-vit")
    maps = np.zeros((5, 224, 224), np.float32)
    maps[:, 100, 100] = 1
    score = pl.evaluate(model, items, torch.from_numpy(maps), metric="pointing_game")
    assert score.names == found.names
    assert score.values.shape == (5,)


def test_an_unknown_name_or_setting_says_what_there_is(root):
    with pytest.raises(pl.PatchlightError, match=r"There is no data set 'petz'. Did you mean 'pets'"):
        data.open("petz", root)
    with pytest.raises(pl.PatchlightError, match=r"csv_index has no setting 'mask'. Did you mean 'masks'"):
        data.open("csv_index", root, mask="masks")
    with pytest.raises(pl.PatchlightError, match=r"See `patchlight data csv_index`"):
        data.open("csv_index", root, masks=3)


def test_the_root_is_said_or_comes_from_the_environment(root, tmp_path, monkeypatch):
    monkeypatch.delenv("PATCHLIGHT_DATA", raising=False)
    with pytest.raises(pl.PatchlightError, match=r"pets: where is it\? Give root=, or set PATCHLIGHT_DATA .* Get images.tar.gz"):
        data.open("pets")
    with pytest.raises(pl.PatchlightError, match=r"there is nothing at .*nowhere"):
        data.open("csv_index", tmp_path / "nowhere")
    monkeypatch.setenv("PATCHLIGHT_DATA", str(tmp_path / "all"))
    shutil.copytree(root, tmp_path / "all" / "csv_index")
    assert len(data.open("csv_index")) == 5


def test_an_empty_place_is_an_error(tmp_path):
    with pytest.raises(pl.PatchlightError, match=r"no pictures lie in .*Nothing is downloaded by itself"):
        data.open("folder", tmp_path)
