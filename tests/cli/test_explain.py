"""`patchlight explain` on whatever pictures users have: results on disk, words, JSON and exit codes."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

PLAIN = ("--device", "cpu")


def explain(run, *arguments, stdin=None):
    return run("explain", *arguments, *PLAIN, stdin=stdin)


def test_an_overlay_of_the_photos_size_and_the_scores(run, photo, tmp_path):
    out = tmp_path / "out"
    result = explain(run, photo("cat.jpg", width=90, height=61), "--method", "transformer_mm,rollout", "--out", out)
    assert result.exit_code == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "cat.rollout.npz", "cat.rollout.png", "cat.transformer_mm.npz", "cat.transformer_mm.png",
    ]  # fmt: skip
    with Image.open(out / "cat.rollout.png") as image:
        assert image.size == (90, 61)
    with np.load(out / "cat.transformer_mm.npz") as arrays:
        assert arrays["tokens"].shape == (1, 14, 14)
        assert json.loads(str(arrays["record"]))["pictures"] == ["cat.jpg"]
    assert "class-blind" in result.stdout
    assert result.stderr == ""


def every_kind(photo, tmp_path):
    """Pictures that can be read, by name -> size on the screen."""
    photo("grey.png", mode="L")
    photo("cmyk.jpg", mode="CMYK")
    rotation = Image.Exif()
    rotation[0x0112] = 6
    photo("turned.jpg", exif=rotation)
    deep = np.random.default_rng(1).integers(0, 2**16, (40, 60), dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.tif")
    frames = [Image.new("RGB", (60, 40), c) for c in ("red", "green")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    return {"grey": (60, 40), "cmyk": (60, 40), "turned": (40, 60), "deep": (60, 40), "moving": (60, 40)}


def test_every_kind_of_picture_and_those_that_cannot_be_read(run, photo, tmp_path):
    sizes = every_kind(photo, tmp_path)
    whole = photo("whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "whole.jpg").unlink()
    text = tmp_path / "notes.txt"
    text.write_text("no picture", encoding="utf-8")
    out = tmp_path / "out"
    result = explain(run, tmp_path, text, "--out", out, "--json", "--method", "raw_attention", "--batch-size", "2")
    assert result.exit_code == 1
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert {f["file"].rpartition("/")[2] for f in found["failures"]} == {"cut.jpg", "notes.txt"}
    assert all(f["reason"] for f in found["failures"])
    assert {p.name for p in out.glob("*.png")} == {f"{name}.raw_attention.png" for name in sizes}
    for record in found["records"]:
        with Image.open(record["files"][0]) as image:
            assert image.size == sizes[image.filename.rpartition("/")[2].partition(".")[0]]
        assert record["method"] == "raw_attention"
        assert 0 < record["probability"] <= 1
        assert isinstance(record["target"], int)
        assert record["settings"]["head_fusion"] == "mean"
    notes = {r["file"].rpartition("/")[2]: r["notes"] for r in found["records"]}
    assert "the first of 2 frames" in notes["moving.gif"]
    assert any("16 bits" in n for n in notes["deep.tif"])


def test_failures_are_named_at_the_end(run, photo, tmp_path):
    photo("good.png")
    (tmp_path / "bad.png").write_bytes(b"nothing")
    result = explain(run, tmp_path / "*.png", "--out", tmp_path / "out", "--no-npz", "--method", "centre")
    assert result.exit_code == 1
    assert "1 picture could not be read:" in result.stderr
    assert "bad.png" in result.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["good.centre.png"]


def test_pictures_of_one_name_do_not_overwrite_each_other(run, photo, tmp_path):
    given = [
        photo(f"{folder}/{name}", seed=i) for i, (folder, name) in enumerate([("a", "x.png"), ("b", "x.png"), ("c", "X.jpg")])
    ]
    result = explain(run, *given, given[0], "--out", tmp_path / "out", "--method", "random", "--no-npz", "--json")
    files = [r["files"][0].rpartition("/")[2] for r in json.loads(result.stdout)["records"]]
    assert files == ["x.random.png", "x-2.random.png", "X-3.random.png"]
    assert len({(tmp_path / "out" / f).read_bytes() for f in files}) == 3


def test_standard_input_is_a_picture_or_a_list_of_paths(run, photo, tmp_path):
    one, two = photo("one.png"), photo("two.png")
    result = explain(run, "-", "--out", tmp_path / "a", "--method", "centre", "--no-npz", stdin=one.read_bytes())
    assert result.exit_code == 0
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["stdin.centre.png"]
    paths = f"{one}\n\n{two}\n".encode()
    result = explain(run, "-", "--out", tmp_path / "b", "--method", "centre", "--no-npz", stdin=paths)
    assert result.exit_code == 0
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["one.centre.png", "two.centre.png"]


def test_a_cut_off_picture_on_standard_input_is_named(run, photo, tmp_path):
    whole = photo("whole.jpg", width=200, height=200).read_bytes()
    result = explain(run, "-", "--out", tmp_path / "a", "--method", "centre", stdin=whole[: len(whole) // 2])
    assert result.exit_code == 1
    assert "stdin: " in result.stderr


def test_the_same_results_whatever_the_batch(run, photo, tmp_path):
    given = [photo(f"{i}.png", seed=i) for i in range(3)]
    for size in ("1", "3"):
        explain(run, *given, "--out", tmp_path / size, "--method", "random,attcat", "--batch-size", size)
    for path in (tmp_path / "1").glob("*.npz"):
        with np.load(path) as a, np.load(tmp_path / "3" / path.name) as b:
            np.testing.assert_allclose(a["tokens"], b["tokens"], rtol=1e-3, atol=1e-6)


def test_a_contrast_settings_seed_and_precision(run, photo, tmp_path):
    wanted = ("--target", "beagle", "--against", "Bengal", "--method", "grad_cam,rollout", "--set", "rollout.discard=0.1")
    given = (*wanted, "--set", "block=-2", "--precision", "float64", "--seed", "3", "--json", "--no-npz")
    result = explain(run, photo("a.png"), "--out", tmp_path / "o", *given)
    cam, rollout = json.loads(result.stdout)["records"]
    assert (cam["label"], cam["against"], cam["target"]) == ("beagle", "Bengal", 4)
    assert (cam["settings"]["block"], rollout["settings"]["discard"]) == (-2, 0.1)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision(run, photo, tmp_path, precision):
    result = explain(run, photo("a.png"), "--out", tmp_path, "--precision", precision)
    assert result.exit_code == 0


def test_insides_are_kept(run, photo, tmp_path):
    explain(run, photo("a.png"), "--out", tmp_path, "--method", "raw_attention", "--insides")
    with np.load(tmp_path / "a.raw_attention.npz") as arrays:
        assert [n for n in arrays if n.startswith("inside/")]


def test_labels_from_a_file(run, photo, tmp_path):
    names = tmp_path / "names.json"
    names.write_text(json.dumps([f"kind {i}" for i in range(37)]), encoding="utf-8")
    result = explain(run, photo("a.png"), "--out", tmp_path, "--labels", names, "--target", "kind 7", "--method", "centre")
    assert "kind 7 0." in result.stdout
    names.write_text("\n".join(f"sort {i}" for i in range(37)), encoding="utf-8")
    result = explain(run, photo("a.png"), "--out", tmp_path, "--labels", names, "--target", "sort 7", "--method", "centre")
    assert "sort 7 0." in result.stdout


def test_what_was_written_before_ctrl_c_stays(run, photo, tmp_path, monkeypatch):
    from patchlight.cli import _run

    given, explained = [photo(f"{i}.png") for i in range(3)], _run.Job.explain

    def once(self, batch, *others):
        if batch.name(0) == "1.png":
            raise KeyboardInterrupt
        return explained(self, batch, *others)

    monkeypatch.setattr(_run.Job, "explain", once)
    result = explain(run, *given, "--out", tmp_path / "out", "--batch-size", "1", "--method", "centre")
    assert result.exit_code == 130
    assert "stopped" in result.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["0.centre.npz", "0.centre.png"]


WRONG = {
    "no file": (["gone.png"], "There is no file"),
    "a glob that matches nothing": (["gone*.png"], "matches nothing"),
    "a method": (["IMG", "--method", "rolout"], "Did you mean 'rollout'"),
    "no method at all": (["IMG", "--method", ","], "no method was named"),
    "a setting": (
        ["IMG", "--set", "start_blok=1"],
        "none of transformer_mm has a setting 'start_blok'. Did you mean 'start_block'",
    ),
    "a setting of one method": (["IMG", "--set", "transformer_mm.blok=1"], "transformer_mm has no setting 'blok'"),
    "a method's setting that is not called": (["IMG", "--set", "rollout.discard=1"], "is not among the methods of this call"),
    "a value": (["IMG", "--set", "start_block=x"], "start_block takes int, but 'x' came"),
    "no value": (["IMG", "--set", "start_block"], "takes NAME=VALUE or METHOD.NAME=VALUE"),
    "a target": (["IMG", "--target", "beagel"], "there is no label 'beagel'"),
    "a class number": (["IMG", "--target", "99"], "99 came, but the model counts its classes from 0 to 36"),
    "a contrast without a target": (["IMG", "--against", "beagle"], "needs --target: a contrast"),
    "a model": (["IMG", "--model", "pets-vitt"], "Did you mean 'pets-vit'"),
    "a need": (["IMG", "--method", "cam"], "cam cannot explain pets-vit"),
    "labels": (["IMG", "--labels", "IMG"], "cannot be read as text"),
    "weights": (["IMG", "--weights", "gone.safetensors"], "gone.safetensors"),
    "a folder": (["IMG", "--out", "IMG/under"], "cannot be made a folder"),
    "a device": (["IMG", "--device", "toaster"], "cannot be moved to the device"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_one_message_and_exit_code_2(run, photo, tmp_path, case):
    arguments, message = WRONG[case]
    img = str(photo("img.png"))
    arguments = [a.replace("IMG", img).replace("gone", str(tmp_path / "gone")) for a in arguments]
    result = run("explain", *arguments, *([] if "--out" in arguments else ["--out", tmp_path / "out"]))
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_broken_lists_of_labels(run, photo, tmp_path):
    names = tmp_path / "names.json"
    names.write_text("[1, ", encoding="utf-8")
    result = explain(run, photo("a.png"), "--labels", names, "--out", tmp_path)
    assert result.exit_code == 2
    assert "begins like a JSON list, but is none" in result.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [(b" ", "Standard input is empty, but"), (b"\xff\xfe\x00", "neither a picture that Pillow can read nor")],
)
def test_standard_input_that_is_nothing(run, tmp_path, given, message):
    result = explain(run, "-", "--out", tmp_path, stdin=given)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_cnn_is_explained_by_what_needs_no_attention_and_told_what_works(run, photo, tmp_path):
    cnn = ("--model", "timm:resnet18", "--weights", "random", "--out", tmp_path / "out")
    result = explain(run, photo("a.png"), *cnn)
    assert result.exit_code == 2
    assert "it has no attention" in result.stderr
    assert "saliency" in result.stderr
    assert explain(run, photo("a.png"), *cnn, "--method", "saliency").exit_code == 0


def test_a_16_bit_picture_from_memory(run, tmp_path):
    buffer = io.BytesIO()
    Image.fromarray(np.full((30, 30), 40000, dtype=np.uint16)).save(buffer, "PNG")
    result = explain(run, "-", "--out", tmp_path, "--method", "random", "--no-npz", stdin=buffer.getvalue())
    assert result.exit_code == 0
