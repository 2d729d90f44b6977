from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.io import savemat

import patchlight as pl
from disk import photo, voc_xml
from patchlight import data

TENCH, GOLDFISH, LIZARD = "n01440764", "n01443537", "n01693334"  # classes 0, 1 and 46
NAMES = [f"ILSVRC2012_val_{i:08d}" for i in (1, 2, 3)]


def sorted_into_folders(root):
    for name, wnid in zip(NAMES, (LIZARD, TENCH, GOLDFISH), strict=True):
        photo(root / "val" / wnid / f"{name}.JPEG")


def flat(root):
    for name in NAMES:
        photo(root / "val" / f"{name}.JPEG")


def devkit(root, numbers=(490, 1, 2)):
    """Its numbers are not those of the models: here 490 is the lizard, as in the real one 490 is no lizard but a chain."""
    folder = root / "ILSVRC2012_devkit_t12" / "data"
    folder.mkdir(parents=True)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text("\n".join(map(str, numbers)) + "\n")
    kinds = [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("words", "O")]
    rows = [(1, TENCH, "tench"), (2, GOLDFISH, "goldfish"), (490, LIZARD, "lizard"), (1001, "n00015388", "animal")]
    savemat(folder / "meta.mat", {"synsets": np.array(rows, dtype=kinds)[:, None]})


def kaggle(root):
    rows = [f"{NAMES[1]},{TENCH} 1 2 4 5 ", f"{NAMES[0]},{LIZARD} 0 0 2 2 {LIZARD} 5 1 7 3 ", f"{NAMES[2]},{GOLDFISH} 3 3 5 5 "]
    (root / "LOC_val_solution.csv").write_text("\n".join(["ImageId,PredictionString", *rows]) + "\n")


def xml(root, folder="ILSVRC2012_bbox_val_v3/val"):
    for name, wnid in zip(NAMES, (LIZARD, TENCH, GOLDFISH), strict=True):
        voc_xml(root / folder / f"{name}.xml", [(wnid, (1, 2, 4, 5)), ("n00000000", (0, 0, 1, 1))])


def test_folders_give_the_numbers_that_models_have(tmp_path):
    sorted_into_folders(tmp_path)
    found = data.open("imagenet", tmp_path)
    assert found.names == tuple(f"{n}.JPEG" for n in NAMES)
    assert [i.label for i in found] == [46, 0, 1]
    assert (len(found.labels), found.labels[0], found.labels[1]) == (1000, "tench", "goldfish")
    assert found[0].boxes == ()


def test_a_flat_folder_takes_the_devkit_and_translates_its_numbers(tmp_path):
    flat(tmp_path)
    devkit(tmp_path)
    assert [i.label for i in data.open("imagenet", tmp_path)] == [46, 0, 1]


def test_both_layouts_are_the_same_data(tmp_path):
    flat(tmp_path / "a")
    devkit(tmp_path / "a")
    xml(tmp_path / "a")
    sorted_into_folders(tmp_path / "b")
    kaggle(tmp_path / "b")
    one, other = (data.open("imagenet", tmp_path / x) for x in "ab")
    assert one[1:2].digest() == other[1:2].digest()
    assert all(pickle.loads(pickle.dumps(d)).digest() == d.digest() for d in (one, other))


def test_kaggle_has_labels_and_boxes_in_one_table(tmp_path):
    flat(tmp_path)
    kaggle(tmp_path)
    found = data.open("imagenet", tmp_path)
    assert [i.label for i in found] == [46, 0, 1]
    assert found[0].boxes == ((0, 0, 3, 3), (5, 1, 8, 4))  # the last pixel counts
    assert data.open("imagenet", tmp_path, boxes="none")[0].boxes == ()


@pytest.mark.parametrize("folder", ["ILSVRC2012_bbox_val_v3/val", "Annotations/CLS-LOC/val"])
def test_boxes_of_the_pictures_own_class_come_from_xml(tmp_path, folder):
    sorted_into_folders(tmp_path)
    xml(tmp_path, folder)
    assert [i.boxes for i in data.open("imagenet", tmp_path)] == [((1, 2, 5, 6),)] * 3


def test_a_broken_annotation_is_named_and_its_picture_skipped(tmp_path):
    sorted_into_folders(tmp_path)
    xml(tmp_path)
    (tmp_path / "ILSVRC2012_bbox_val_v3" / "val" / f"{NAMES[1]}.xml").write_text("<annotation><object>")
    found = data.open("imagenet", tmp_path)
    assert [i.name for i in found] == [f"{NAMES[0]}.JPEG", f"{NAMES[2]}.JPEG"]
    assert "cannot be read as a VOC annotation" in found.broken[0].reason


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(pl.PatchlightError, match=r"expected folders such as n01440764.*ILSVRC2012_img_val.tar"):
        data.open("imagenet", tmp_path)
    flat(tmp_path)
    with pytest.raises(pl.PatchlightError, match=r"the pictures lie flat in .* says their classes"):
        data.open("imagenet", tmp_path)
    devkit(tmp_path)
    with pytest.raises(pl.PatchlightError, match=r"expected boxes as xml in"):
        data.open("imagenet", tmp_path, boxes="xml")
    (tmp_path / "ILSVRC2012_devkit_t12" / "data" / "meta.mat").write_bytes(b"no matrix at all" * 20)
    with pytest.raises(pl.PatchlightError, match=r"cannot be read as the devkit's meta.mat"):
        data.open("imagenet", tmp_path)
    (tmp_path / "ILSVRC2012_devkit_t12" / "data" / "meta.mat").unlink()
    with pytest.raises(pl.PatchlightError, match=r"expected meta.mat beside"):
        data.open("imagenet", tmp_path)


def test_labels_that_do_not_fit_are_errors(tmp_path):
    flat(tmp_path)
    devkit(tmp_path, numbers=(490, 1, 1001))
    with pytest.raises(pl.PatchlightError, match=r"'n00015388', which is none of ImageNet-1k's 1,000"):
        data.open("imagenet", tmp_path)
    (tmp_path / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{NAMES[0]},{TENCH} 1 2 3 4\n")
    with pytest.raises(pl.PatchlightError, match=f"says no class for {NAMES[1]}.JPEG"):
        data.open("imagenet", tmp_path)
    (tmp_path / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{NAMES[0]},{TENCH} 1 2 3\n")
    with pytest.raises(pl.PatchlightError, match=r"expected ImageId and PredictionString"):
        data.open("imagenet", tmp_path)
    (tmp_path / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{NAMES[0]},\n")
    with pytest.raises(pl.PatchlightError, match=f"names no class for {NAMES[0]}"):
        data.open("imagenet", tmp_path)
