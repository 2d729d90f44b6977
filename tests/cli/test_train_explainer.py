"""`patchlight train-explainer`: from a folder of pictures to maps of vit_shapley."""

from __future__ import annotations

import json

import numpy as np

QUICK = ("--device", "cpu", "--epochs", 1, "--surrogate-epochs", 0, "--coalitions", 2, "--head-only", "--grid", "2x2")


def test_from_pictures_to_an_explainer_to_a_map(run, photo, tmp_path):
    for i in range(8):
        photo(f"pictures/{i}.png", seed=i)
    broken = tmp_path / "pictures" / "broken.png"
    broken.write_bytes(b"\x89PNG no more")
    file = tmp_path / "e.safetensors"
    result = run("train-explainer", tmp_path / "pictures", "--out", file, *QUICK)
    assert result.exit_code == 1
    assert "broken.png" in result.stderr
    assert "explainer, epoch 1: held-out foresees" in result.stderr
    assert f"{file}: trained for pets-vit on 6 pictures" in result.stdout

    picture = tmp_path / "pictures" / "0.png"
    options = ("--set", f"explainer={file}", "--device", "cpu", "--out", tmp_path / "out")
    result = run("explain", picture, "--method", "vit_shapley", *options)
    assert result.exit_code == 0, result.stderr
    with np.load(tmp_path / "out" / "0.vit_shapley.npz") as arrays:
        assert arrays["tokens"].shape == (1, 2, 2)
        assert json.loads(str(arrays["record"]))["settings"]["explainer"] == str(file)


def test_wrong_options_are_told_before_any_work(run, photo, tmp_path):
    picture = photo("a.png")
    result = run("train-explainer", picture, "--out", tmp_path / "e", "--device", "cpu", "--grid", "seven")
    assert result.exit_code == 2
    assert "--grid takes ROWSxCOLUMNS such as 7x7, but 'seven' came" in result.stderr
    result = run("train-explainer", picture, "--out", tmp_path / "e", "--device", "cpu", "--remove", "dorp")
    assert "--remove takes drop or paint, but 'dorp' came. Did you mean 'drop'" in result.stderr
    result = run("train-explainer", picture, "--out", tmp_path / "e", "--device", "cpu")
    assert result.exit_code == 2
    assert "takes 8 pictures or more, but 1 came" in result.stderr
