"""The recipe on a few pictures and tiny networks: the loss falls, and a killed run ends with the same weights."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

from patchlight.core.errors import ModelError, PictureError, SettingError
from training import crops, loop, matching, networks, pictures, teacher
from training.__main__ import app
from training.log import Log
from training.measure import accuracy
from training.recipes import RECIPES, TEACHER, Crops, Matching, Network, Pace, Tuning

TINY = {"num_classes": 3, "embed_dim": 24, "num_heads": 3}
GUIDE = Network("vit_tiny_patch16_224", {**TINY, "depth": 3})
VIT = replace(GUIDE, follows=(1, 2, 3))
SWIN = Network(
    "swin_tiny_patch4_window7_224",
    {"num_classes": 3, "embed_dim": 8, "depths": (1, 1, 2, 1), "num_heads": (1, 1, 2, 2)},
    follows=(1, 2, 3),
)
QUICK = Pace(steps=6, batch=4, warm_up=2, log_every=2, save_every=2)


@pytest.fixture(scope="module")
def pets(tmp_path_factory) -> Path:
    """Twelve pictures of three classes, which differ in colour, laid out like the pets."""
    folder = tmp_path_factory.mktemp("pets")
    (folder / "images").mkdir()
    draw = np.random.default_rng(0)
    rows = []
    for k in range(12):
        rows.append({"file": f"{k}.png", "breed": k % 3, "split": "test" if k >= 9 else "trainval"})
        pixels = draw.integers(0, 120, (60 + k, 80, 3), dtype=np.uint8)
        pixels[..., k % 3] += 130
        Image.fromarray(pixels).save(folder / "images" / f"{k}.png")
    with (folder / "index.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


@pytest.fixture(scope="module")
def guide() -> nn.Module:
    torch.manual_seed(5)
    return networks.frozen(networks.build(GUIDE))


def lines(folder: Path) -> list[dict[str, float]]:
    found = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{k: v for k, v in line.items() if k != "pictures_per_second"} for line in found]


# -- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("student", [VIT, SWIN], ids=["vit", "swin"])
def test_the_student_comes_nearer_to_the_teacher(pets, guide, tmp_path, student):
    recipe = Matching(student, replace(QUICK, steps=24, log_every=8, save_every=24), crops=Crops(area=(0.6, 1)), muon_rate=0.02)
    found = pictures.load(pictures.examples(pets, "trainval"), 96)
    matching.make(guide, found, recipe, tmp_path, quiet=True)
    told = lines(tmp_path)
    assert [line["step"] for line in told] == [8, 16, 24]
    for part in ("loss", "patch", "feature"):
        assert told[-1][part] < 0.9 * told[0][part], part
    assert (told[0]["token"] == 0) == (student is SWIN)


class KilledError(Exception):
    """The machine goes down."""


def test_a_killed_run_ends_with_the_same_weights_and_log(pets, guide, tmp_path, monkeypatch):
    recipe = Matching(VIT, replace(QUICK, save_every=3))
    found = pictures.load(pictures.examples(pets, "trainval"), 96)
    matching.make(guide, found, recipe, tmp_path / "whole", quiet=True)
    learn = loop.learn

    def killed(task, pace, step):
        if step == 5:
            raise KilledError("the machine went down")
        return learn(task, pace, step)

    monkeypatch.setattr(loop, "learn", killed)
    with pytest.raises(KilledError, match="the machine went down"):
        matching.make(guide, found, recipe, tmp_path / "killed", quiet=True)
    assert not (tmp_path / "killed" / "weights.safetensors").exists()
    monkeypatch.setattr(loop, "learn", learn)
    torch.rand(7)  # whatever was drawn in between does not matter
    matching.make(guide, found, recipe, tmp_path / "killed", quiet=True)
    whole, again = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")
    matching.make(guide, found, replace(recipe, pace=replace(recipe.pace, seed=1)), tmp_path / "other", quiet=True)
    other = load_file(tmp_path / "other" / "weights.safetensors")
    assert not torch.equal(whole["blocks.0.mlp.fc1.weight"], other["blocks.0.mlp.fc1.weight"])


def test_the_teacher_learns_its_classes_and_goes_on_after_a_stop(pets, tmp_path, monkeypatch):
    torch.manual_seed(3)
    body = networks.build(GUIDE)
    save_file({k: v for k, v in body.state_dict().items() if not k.startswith("head")}, tmp_path / "body.safetensors")
    tuning = Tuning(replace(QUICK, steps=4), crops=Crops(area=(0.8, 1), mixed=0))
    found = pictures.examples(pets, "trainval")
    cpu = torch.device("cpu")

    def make(folder):
        return teacher.make(tmp_path / "body.safetensors", found, folder, network=GUIDE, tuning=tuning, device=cpu, quiet=True)

    model = make(tmp_path / "whole")
    assert accuracy(networks.subject(model, "teacher"), pictures.examples(pets, "test")).share == 1
    learn = loop.learn
    monkeypatch.setattr(loop, "learn", lambda task, pace, step: learn(task, pace, step) if step < 3 else 1 / 0)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        make(tmp_path / "stopped")
    monkeypatch.setattr(loop, "learn", learn)
    make(tmp_path / "stopped")
    whole, again = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    loaded = networks.load(GUIDE, tmp_path / "whole" / "weights.safetensors")
    assert torch.allclose(loaded.get_parameter("head.bias"), model.get_parameter("head.bias"), rtol=1e-3)


# -- the parts --------------------------------------------------------------------------------------------------------


def test_a_crop_lies_in_the_picture_and_a_plain_one_is_the_picture_itself(pets):
    found = pictures.load(pictures.examples(pets, "trainval"), 96)
    torch.manual_seed(0)
    drawn = crops.draw(found.sizes, Crops(turned=0))
    reach = drawn.where[:, :, :2].abs().sum(2)
    assert (drawn.where[:, :, 2] - reach >= -1e-3).all()
    assert (drawn.where[:, :, 2] + reach <= found.sizes.flip(1) + 1e-3).all()
    plain = crops.draw(found.sizes, Crops(turned=0, jitter=0, hue=0, grey=0, mixed=0))
    middle = torch.tensor([[30.0, 0, 30], [0, 30, 30]]).expand(len(found), 2, 3)
    x = crops.cut(found.pixels, found.sizes, replace(plain, where=middle), size=60)
    assert torch.allclose(x, crops.normalised(found.pixels[:, :, :60, :60].float() / 255), atol=1e-4)
    mirrored = crops.cut(found.pixels, found.sizes, replace(plain, where=middle * torch.tensor([-1.0, 1, 1])), size=60)
    assert torch.allclose(mirrored, x.flip(3), atol=1e-4)


def test_colours_keep_grey_grey_and_turn_by_the_drawn_angle():
    torch.manual_seed(0)
    found = crops.colours(50, Crops(jitter=0, hue=0.1, grey=0))
    assert torch.allclose(found @ torch.ones(3), torch.ones(50, 3), atol=1e-6)
    assert torch.allclose(found @ found.mT, torch.eye(3).expand(50, 3, 3), atol=1e-5)
    grey = crops.colours(50, Crops(jitter=0, hue=0, grey=1))
    assert torch.allclose(grey, torch.tensor(crops.LUMINANCE).expand(50, 3, 3), atol=1e-6)


def test_a_student_equal_to_the_teacher_has_no_loss(guide):
    x = torch.randn(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = networks.outputs(guide, x)
        found = matching.terms(theirs, theirs, VIT.follows, matching.measured(guide, [x]), 2.0)
        assert torch.equal(theirs.logits, guide(x))
    assert {name: round(float(v), 6) for name, v in found.items()} == {"patch": 0, "token": 0, "feature": 0, "kl": 0}


def test_the_swins_watched_outputs_and_logits_are_those_of_its_forward_pass():
    torch.manual_seed(0)
    model = networks.build(SWIN).eval()
    x = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        found = networks.outputs(model, x)
        assert torch.equal(found.logits, model(x))
    assert [tuple(b.shape[1:3]) for b in found.blocks] == [(14, 14), (14, 14), (7, 7)]


def test_coarser_grids_are_averaged():
    theirs = torch.arange(17.0)[None, :, None]
    found = matching.on_grid(torch.zeros(1, 2, 2, 1), theirs)
    assert found.flatten().tolist() == [3.5, 5.5, 11.5, 13.5]


def test_every_weight_has_one_optimiser_and_matrices_of_blocks_have_muon(guide):
    x = torch.zeros(1, 3, 224, 224)
    for student in (VIT, SWIN):
        model = networks.build(student)
        with torch.no_grad():
            pair = matching.Pair(model, networks.outputs(model, x), networks.outputs(guide, x))
        muon, adam = matching.optimisers(pair, Matching(student, QUICK))
        names = {id(p): n for n, p in pair.named_parameters()}
        one, other = ([names[id(p)] for g in o.param_groups for p in g["params"]] for o in (muon, adam))
        assert sorted(one + other) == sorted(names.values())
        assert "student.blocks.0.attn.qkv.weight" in one or "student.layers.1.downsample.reduction.weight" in one
        assert not [n for n in one if "bias" in n or "norm" in n or "patch_embed" in n or "head" in n]
        assert all(isinstance(b, nn.Identity) == (student is VIT) for b in pair.blocks)


def test_the_rate_warms_up_and_falls():
    pace = Pace(steps=100, batch=1, warm_up=10, floor=0.01)
    assert loop.rate(0, pace) == pytest.approx(0.1)
    assert loop.rate(50, pace) == pytest.approx(0.5)
    assert loop.rate(99, pace) == 0.01


def test_unlabelled_pictures_come_in_their_share(pets):
    own = pictures.load(pictures.examples(pets, "trainval"), 96)
    foreign = pictures.load(pictures.unlabelled(pets / "images"), 96)
    assert set(foreign.labels.tolist()) == {pictures.NOBODY}
    both = pictures.joined([own, foreign])
    marked = pictures.Canvases(
        torch.where(both.labels[:, None, None, None] < 0, 255, 0).to(torch.uint8).expand(both.pixels.shape),
        both.sizes,
        both.labels,
    )
    torch.manual_seed(0)
    still = Crops(jitter=0, hue=0, grey=0, mixed=0)
    x = matching.next_batch(marked, Matching(VIT, replace(QUICK, batch=200), still, unlabelled=0.25))
    assert 0.17 < (x[:, 0, 0, 0] > 0).float().mean() < 0.33


def test_oxfords_own_lists_are_read(pets, tmp_path):
    (tmp_path / "annotations").mkdir()
    text = "#Image CLASS-ID SPECIES BREED ID\nAbyssinian_1 1 1 1\nbeagle_2 5 2 1\n"
    (tmp_path / "annotations" / "test.txt").write_text(text, encoding="utf-8")
    found = pictures.examples(tmp_path, "test")
    assert [(e.path.name, e.label) for e in found] == [("Abyssinian_1.jpg", 0), ("beagle_2.jpg", 4)]
    every = pictures.examples(pets, "trainval")
    assert [e.label for e in pictures.evenly(every, 3)] == [0, 0, 0]
    assert pictures.evenly(every, None) == every


# -- the command and its errors ---------------------------------------------------------------------------------------


def test_the_recipes_describe_the_shipped_models():
    from patchlight.models.embedded import EMBEDDED

    for name, entry in (("vit", EMBEDDED["pets-vit"]), ("swin", EMBEDDED["pets-swin"])):
        student = RECIPES[name].student
        assert (student.architecture, dict(student.arguments)) == (entry.architecture, dict(entry.arguments))
        assert max(student.follows) == 12
    assert entry.preprocess == networks.PREPROCESS
    assert TEACHER.arguments["num_classes"] == 37


def test_errors_say_what_to_do(pets, guide, tmp_path):
    with pytest.raises(PictureError, match=r"has neither index\.csv nor annotations/test\.txt"):
        pictures.examples(tmp_path, "test")
    with pytest.raises(PictureError, match="lists no pictures of the split 'val'"):
        pictures.examples(pets, "val")
    with pytest.raises(ModelError, match="knows timm's VisionTransformer and SwinTransformer, but a Linear came"):
        networks.outputs(nn.Linear(1, 1), torch.zeros(1, 1))
    save_file({"blocks.0.norm1.weight": torch.ones(24)}, tmp_path / "part.safetensors")
    with pytest.raises(ModelError, match="does not fit the body of vit_tiny_patch16_224"):
        teacher.pretrained(GUIDE, tmp_path / "part.safetensors", Tuning())
    with pytest.raises(SettingError, match=r"follows the blocks \(1, 2, 9\) of a teacher that has 3"):
        matching.check(guide, Matching(replace(VIT, follows=(1, 2, 9)), QUICK))


def test_a_run_is_not_mixed_with_another_and_stops_when_the_loss_is_lost(tmp_path):
    weight = nn.Parameter(torch.ones(2))
    module = nn.Module()
    module.register_parameter("weight", weight)

    def task(settings, factor=1.0):
        adam = torch.optim.AdamW([weight], lr=0.1)
        return loop.Task(module, [adam], lambda _: {"loss": (weight * factor).sum()}, [weight], settings)

    loop.run(task("one"), QUICK, tmp_path, quiet=True)
    with pytest.raises(SettingError, match=r"was begun with other settings \(one\) than are given now \(two\)"):
        loop.run(task("two"), QUICK, tmp_path, quiet=True)
    with pytest.raises(SettingError, match=r"before step 2 the loss was no longer finite \(loss nan\)"):
        loop.run(task("one", math.nan), QUICK, tmp_path / "lost", quiet=True)
    assert not (tmp_path / "lost" / "checkpoint.pt").exists()


def test_progress_is_told(tmp_path, capsys):
    log = Log(tmp_path / "log.jsonl")
    log.add({"loss": torch.tensor(2.0)}, 4)
    log.add({"loss": torch.tensor(1.0)}, 4)
    log.write(2, 10)
    assert capsys.readouterr().err.startswith("step 2 of 10: loss 1.5000; ")


def test_the_command(pets, tmp_path):
    result = CliRunner().invoke(app, ["accuracy", "pets-vit", "--pets", str(pets), "--pictures", "2", "--device", "cpu"])
    assert result.stdout.startswith("pets-vit: ")
    assert "of 2 pictures" in result.stdout
    given = ["--pets", str(pets), "--teacher", str(tmp_path / "none")]
    result = CliRunner().invoke(app, ["student", "vitt", *given])
    assert isinstance(result.exception, SettingError)
    assert str(result.exception).startswith("There is no student 'vitt'. Did you mean 'vit'?")
