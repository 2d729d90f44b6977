"""`compare`, `methods`, `doctor`, `demo` and the program itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from PIL import Image

import patchlight as pl
from patchlight import doctor
from patchlight.cli import app, bench, compare, demo
from patchlight.cli._settings import chosen, missing
from patchlight.core.registry import discover

TINY = "timm:test_vit"


def program(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The program in a process of its own."""
    code = "from patchlight.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], input=stdin, capture_output=True, check=False)


# -- compare ----------------------------------------------------------------------------------------------------------


def test_compare_draws_one_sheet(run, photo, tmp_path):
    photo("a.png"), photo("b.jpg", width=40, height=60)
    sheet = tmp_path / "made" / "sheet.png"
    result = run("compare", tmp_path, "--methods", "rollout,cam,random", "--out", sheet, "--device", "cpu")
    assert result.exit_code == 0
    assert "cam cannot explain pets-vit: its head reads the class token" in result.stdout
    with Image.open(sheet) as image:
        assert image.width > image.height


def test_a_word_leaves_no_empty_column(run, photo, tmp_path, monkeypatch):
    monkeypatch.setattr("patchlight.cli._settings.chosen", lambda _: ["rollout", "cam"])
    found = json.loads(run("compare", photo("a.png"), "--methods", "fast", "--out", tmp_path / "s.png", "--json").stdout)
    assert found["methods"] == ["rollout"]
    assert list(found["left_out"]) == ["cam"]


def test_compare_in_json_with_a_picture_that_cannot_be_read(run, photo, tmp_path):
    photo("a.png")
    (tmp_path / "b.png").write_bytes(b"x")
    sheet = tmp_path / "out" / "sheet.jpg"
    result = run("compare", tmp_path, "--methods", "cam,transformer_mm", "--out", sheet, "--target", "pug", "--dark", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["methods"] == ["cam", "transformer_mm"]
    assert list(found["left_out"]) == ["cam"]
    assert [p["label"] for p in found["pictures"]] == ["pug"]
    assert len(found["failures"]) == 1
    with Image.open(found["files"][0]) as image:
        assert image.format == "JPEG"


def test_the_usual_methods_where_they_serve_and_fast_ones_elsewhere(run, photo, tmp_path):
    result = run("compare", photo("a.png"), "--out", tmp_path / "s.png", "--json")
    assert json.loads(result.stdout)["methods"] == list(compare.DEFAULT)
    subject = pl.load("timm:resnet18", weights="random")
    assert "saliency" in compare.selection(subject.layout())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "cam"], "none of the methods can explain"),
        (["--methods", "rolout"], "Did you mean 'rollout'"),
        (["--model", "nope", "--out", "sheet.mp3"], "no picture format has the ending"),
        (["--methods", "rollout", "--set", "x=1"], "has a setting 'x'"),
        (["--methods", "rollout", "--against", "pug"], "needs --target"),
    ],
)
def test_a_wrong_compare(run, photo, arguments, message):
    result = run("compare", photo("a.png"), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_sheet_has_an_end(run, photo, tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "MOST", 1)
    photo("a.png"), photo("b.png")
    result = run("compare", tmp_path, "--out", tmp_path / "s.png")
    assert result.exit_code == 2
    assert "a sheet holds at most 1 pictures, but 2 came" in result.stderr


# -- methods ----------------------------------------------------------------------------------------------------------


def test_methods_are_listed(run):
    result = run("methods")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in pl.methods())
    found = json.loads(run("methods", "--json").stdout)
    assert {m["name"] for m in found} == set(pl.methods())


@pytest.mark.parametrize("name", list(pl.methods()))
def test_all_about_one_method(run, name):
    method = pl.methods()[name]
    shown = run("methods", name)
    assert shown.exit_code == 0
    for text in (method.equation, method.paper, *method.settings):
        assert text in shown.stdout
    assert "=None\n" not in shown.stdout
    found = json.loads(run("methods", name, "--json").stdout)
    assert [s["name"] for s in found["settings"]] == list(method.settings)


def test_a_wrong_method_name(run):
    result = run("methods", "transformermm")
    assert result.exit_code == 2
    assert "Did you mean 'transformer_mm'" in result.stderr


# -- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_of_a_vit(run):
    result = run("doctor", TINY)
    assert result.exit_code == 0, result.stdout
    assert "the head reads the class token" in result.stdout
    assert "\ncard " not in result.stdout
    assert "blocks.0 ... blocks." in result.stdout
    assert re.search("\n  cam +no: its head reads the class token", result.stdout)


def test_doctor_in_json_at_another_size(run):
    result = run("doctor", TINY, "--size", "96x160", "--json")
    found = json.loads(result.stdout)
    assert found["healthy"]
    assert found["layout"]["grid"] == [6, 10]
    assert found["maps"]["seen"] == found["maps"]["expected"] > 0
    assert found["difference"]["largest"] < 1e-12
    assert found["difference"]["precision"] == "float64"


def test_doctor_of_a_cnn_says_that_it_has_no_attention(run):
    result = run("doctor", "timm:test_resnet", "--size", "64")
    assert result.exit_code == 1
    assert "it has no attention" in result.stdout
    assert re.search("\n  saliency +works", result.stdout)


def test_what_the_doctor_says_of_faults(monkeypatch):
    method = discover()["rollout"]
    subject = pl.load(TINY, weights="random")
    layout, images = subject.layout(), torch.zeros(1, 3, *subject.preprocess.size)
    monkeypatch.setitem(doctor.MOST_TOKENS, "rollout", 10)
    assert doctor.tried(method, subject, images, layout).reason.startswith("not tried: 101 tokens")
    monkeypatch.delitem(doctor.MOST_TOKENS, "rollout")
    for scores, reason in ((torch.zeros(1, 4, 4), "its map is constant"), (torch.full((1, 4, 4), torch.nan), "are not finite")):
        made = SimpleNamespace(scores=scores)
        monkeypatch.setattr(doctor, "compare", lambda *_, made=made: {"rollout": made})
        found = doctor.tried(method, subject, images, layout)
        assert found.broken
        assert reason in found.reason
    report = doctor.Report("m", (4, 4), layout, findings=(found,))
    assert not report.healthy
    assert doctor.largest_difference({"a": scores}, {"b": scores}) == ("a, b", float("inf"))


def test_the_doctor_sees_a_block_that_tracing_changes(monkeypatch):
    watched = doctor.watched

    def changed(*arguments):
        seen, outputs = watched(*arguments)
        return seen, outputs | {"blocks.2": outputs["blocks.2"] * 1.01}

    monkeypatch.setattr(doctor, "watched", changed)
    report = doctor.examine(doctor.redrawn(pl.load(TINY, weights="random")))
    assert not report.healthy
    assert report.problem.startswith("tracing changes the output of blocks.2 by 1.0e-02")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["timm:vit_tinyy"], "vit_tiny"), ([TINY, "--size", "big"], "takes HEIGHTxWIDTH in pixels, but 'big' came")],
)
def test_a_wrong_doctor(run, arguments, message):
    result = run("doctor", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


# -- demo and the program ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["pets-vit", "pets-swin"])
def test_demo(run, tmp_path, monkeypatch, model):
    fast, few = demo.serving, {"raw_attention", "rollout", "cam", "grad_cam", "transformer_mm", "random"}
    monkeypatch.setattr(demo, "serving", lambda layout: [n for n in fast(layout) if n in few])
    folder = tmp_path / "demo"
    result = run("demo", "--out", folder, "--model", model)
    assert result.exit_code == 0
    names = {p.name for p in folder.iterdir()}
    method = "transformer_mm" if model == "pets-vit" else "grad_cam"
    assert {
        "sheet.png",
        "methods.png",
        "demo.html",
        f"cat_and_dog.Egyptian_Mau.{method}.png",
        f"cat_and_dog.leonberger.{method}.png",
    } <= names
    for text in ("chelsea.jpg      Egyptian_Mau 0.7", "kitten.jpg       Ragdoll 0.8", str(folder / "sheet.png"), "Try next"):
        assert text in result.stdout


def test_demo_says_how_a_shell_finds_the_program(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    demo.tell_next("pets-vit")
    assert "activate" not in capsys.readouterr().out
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").touch()
    demo.tell_next("pets-vit")
    assert f". {tmp_path / 'bin' / 'activate'}" in capsys.readouterr().out


def test_every_fast_method_is_in_the_demo_and_the_first_sheet_stays_narrow():
    for model in ("pets-vit", "pets-swin"):
        layout = pl.load(model).layout()
        every = demo.serving(layout)
        assert set(every) == {n for n in chosen(["fast"]) if not missing(discover()[n], layout)}
        first = demo.selection(every)
        assert len(set(first)) == demo.BAND
        assert first[-1] == "random"
        assert [n for part in demo.bands(every) for n in part] == every
        assert all(0 < len(part) <= demo.BAND for part in demo.bands(every))


def test_every_photo_has_its_origin():
    photos = Path(pl.__file__).parent / "assets" / "photos"
    text = (photos / "ORIGINS.md").read_text(encoding="utf-8")
    assert all(f"`{p.name}`" in text for p in photos.glob("*.jpg"))
    assert all(p.stat().st_size < 150_000 for p in photos.glob("*.jpg"))


def test_help_starts_without_torch():
    code = "import sys, patchlight.cli; assert not {'torch', 'timm', 'numpy', 'matplotlib'} & set(sys.modules), 'slow import'"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    started = time.perf_counter()
    assert b"explain" in program("--help").stdout
    assert time.perf_counter() - started < 5  # 0.4 s on an idle machine


def verbs(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield from verbs(command, *path, name) if hasattr(command, "commands") else [((*path, name), command)]


EVERY = dict(verbs(typer.main.get_command(app)))


@pytest.mark.parametrize("verb", EVERY, ids=" ".join)
def test_help_shows_what_is_written(run, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = " ".join(run(*verb, "--help").stdout.replace("│", " ").split())
    for option in EVERY[verb].params:
        assert (option.help or "").replace("`", "") in shown


def test_version_and_wrong_options(run):
    assert run("--version").stdout == f"patchlight {pl.__version__}\n"
    assert run("explain").exit_code == 2
    assert run("nothing").exit_code == 2
    assert run("explain", "a.png", "--precision", "float8").exit_code == 2


def test_the_program_says_one_message_without_a_traceback(photo, tmp_path):
    done = program("explain", photo("a.png"), "--method", "rolout", "--out", tmp_path)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().startswith("patchlight: There is no method 'rolout'.")
    assert b"Traceback" not in done.stderr


def test_the_program_with_a_list_on_standard_input(photo, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"x")
    given = f"{photo('a.png')}\n{tmp_path / 'bad.png'}\n".encode()
    done = program("explain", "-", "--out", tmp_path / "out", "--json", "--method", "centre,saliency", stdin=given)
    assert done.returncode == 1, done.stderr
    assert len(json.loads(done.stdout)["records"]) == 2
    assert done.stderr == b""


# -- pages --------------------------------------------------------------------------------------------------------------


def test_compare_and_explain_write_pages(run, photo, tmp_path):
    photos = [photo("a.png"), photo("b.png", seed=1)]
    sheet, page = tmp_path / "sheet.png", tmp_path / "new" / "page.html"
    found = run("compare", *photos, "-M", "rollout,transformer_mm", "-o", sheet, "--html", page, "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["files"] == [str(sheet), str(page)]
    assert page.read_text().count('"src":"data:image/') >= 2
    found = run("explain", photos[0], "-M", "rollout", "-o", tmp_path / "seen", "--html")
    assert found.exit_code == 0
    assert str(tmp_path / "seen" / "a.html") in found.stdout
    assert (tmp_path / "seen" / "a.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(("name", "code"), [("pyarrow", 2), ("other", 1)])
def test_bench_says_what_is_missing(run, monkeypatch, name, code):
    def missing(*_):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(bench, "opened", missing)
    found = run("bench", "run", "quick")
    assert found.exit_code == code
    assert ("patchlight bench needs pyarrow. Install it with: pip install 'patchlight[bench]'" in found.stderr) is (code == 2)


def test_serve_says_what_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    found = run("serve")
    assert found.exit_code == 2
    assert "pip install 'patchlight[web]'" in found.stderr


def test_serve_listens_here_alone_and_makes_a_token_for_others(run, monkeypatch):
    seen = []
    monkeypatch.setattr("uvicorn.run", lambda _, **options: seen.append(options))
    assert "http://127.0.0.1:8000/\n" in run("serve").stdout
    assert "#token=" in run("serve", "--host", "0.0.0.0").stdout
    assert [options["host"] for options in seen] == ["127.0.0.1", "0.0.0.0"]
