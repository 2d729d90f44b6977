"""The file as its reader has it: opened from disk in a real browser, with the network off."""

from __future__ import annotations

import copy
import io
import zipfile

import numpy as np
import pytest

import patchlight as pl
from browser import opened, until
from patchlight.viewer.write import save_document


@pytest.fixture
def page(browser, file):
    with opened(browser, file, offline=True) as found:
        yield found


def center(page) -> tuple[float, float]:
    box = page.locator(".stage canvas").first.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_eight_methods_on_one_picture_stay_under_two_megabytes(shown, tmp_path):
    """The five of the page, and the one whose maps are largest three times more."""
    eight = copy.deepcopy(shown)
    run = eight["pictures"][0]["runs"][0]
    for name in ("one", "two", "three"):
        eight["methods"][name] = eight["methods"]["saliency"]
        for part in ("maps", "curves"):
            run[part][name] = run[part]["saliency"]
        run["insides"][name] = run["insides"]["vtranm"]
    assert len(run["maps"]) == 8
    assert save_document(eight, tmp_path / "eight.html").stat().st_size < 2_000_000


def test_the_file_shows_every_method_and_asks_nobody(browser, file, found):
    asked: list[str] = []
    context = browser.new_context(offline=True)
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator(".tile canvas").count() >= len(found)
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]
    context.close()


def test_hovering_reads_the_score_of_the_patch(page, found):
    page.click('[data-key="tile-transformer_mm"]')
    box = page.locator(".stage canvas").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 + 3, box["y"] + box["height"] / 2 + 3)
    until(page, "document.querySelector('#reading').textContent.includes('transformer_mm')")
    text = page.text_content("#reading")
    row, column = (int(part.split()[-1]) for part in text.split(":")[0].split(","))
    score = float(found["transformer_mm"].tokens[0, row - 1, column - 1])
    shown = float(text.split("transformer_mm ")[1].split(",")[0].replace("\N{MINUS SIGN}", "-"))
    assert shown == pytest.approx(score, rel=0.06)


def test_clicking_a_patch_shows_where_it_attends_at_every_block_and_head(page):
    page.mouse.click(*center(page))
    page.wait_for_selector(".strip")
    assert page.locator(".strip .cell").count() == 12 * (3 + 1)
    page.click('[data-key="cell-3-1"]')
    until(page, "document.querySelector('#panel').textContent.includes('block 4, head 2')")
    until(page, "document.querySelector('#reading').textContent.includes('attention')")
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('#reading').textContent.includes('attention')")


def test_a_class_and_a_contrast_can_be_chosen(page):
    before = page.locator(".class.target .label").first.text_content()
    page.locator("#classes li button:not([disabled])").nth(1).click()
    until(page, f"document.querySelector('.class.target .label').textContent !== {before!r}")
    page.click('[data-key="rather"]')
    page.wait_for_selector(".class.against")
    assert page.locator(".class.target .label").first.text_content() == before


def test_taking_away_moves_the_curve_and_what_the_model_says(page):
    page.click("#tab-removal")
    first = page.text_content(".says")
    page.fill('[data-key="removed"]', "80")
    until(page, f"document.querySelector('.says').textContent !== {first!r}")
    assert "area" in page.text_content(".chart")
    page.click('[data-key="side-insertion"]')
    page.wait_for_selector(".curve.insertion.on")
    page.click('[data-key="play"]')
    until(page, "document.querySelector('[data-key=removed]').value !== '80'")


def test_the_inside_of_a_method_is_shown_block_by_block(page):
    page.click('[data-key="tile-vtranm"]')
    page.click("#tab-insides")
    page.wait_for_selector(".inside canvas")
    titles = page.locator("#panel h3").all_text_contents()
    assert any(t.startswith("attention, mean of heads") for t in titles)
    assert any(t.startswith("mlp length ratio") for t in titles)
    assert any(t.startswith("contribution") for t in titles)


def test_everything_can_be_done_by_keys(page):
    page.focus(".stage")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector(".strip")
    page.keyboard.press("]")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.keyboard.press("p")
    until(page, "document.querySelector('[data-key=grid]').checked && !document.querySelector('[data-key=smooth]').checked")
    assert page.input_value('[data-key="scale"]') == "percentile"
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.focus("#tab-attention")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tab-removal[aria-selected=true]")


def test_the_link_brings_the_view_back(browser, page, file):
    page.click('[data-key="tile-vtranm"]')
    page.check('[data-key="grid"]')
    page.wait_for_timeout(400)
    page.click("#tab-about")
    until(page, "location.hash.includes('t=about')")
    link = page.evaluate("location.hash")
    with opened(browser, file.as_uri() + link, offline=True) as again:
        assert again.get_attribute('[data-key="tile-vtranm"]', "aria-pressed") == "true"
        assert again.is_checked('[data-key="grid"]')
        assert again.get_attribute("#tab-about", "aria-selected") == "true"


def saved(page, name: str) -> bytes:
    page.click('[data-key="export"]')
    with page.expect_download() as download:
        page.get_by_role("button", name=name).click()
    return download.value.path().read_bytes()


def test_what_is_shown_can_be_saved(page, found):
    assert saved(page, "PNG picture").startswith(b"\x89PNG")
    drawing = saved(page, "SVG drawing").decode()
    assert drawing.startswith("<svg")
    assert drawing.count("<rect") > 50
    assert saved(page, "HTML page").startswith(b"<!doctype html>")
    arrays = np.load(io.BytesIO(scores := saved(page, "NPZ scores")))
    assert set(zipfile.ZipFile(io.BytesIO(scores)).namelist()) >= {f"{name}.npy" for name in found} | {"record.json"}
    for name, e in found.items():
        wanted = e.array(0)
        shown = arrays[name]
        assert shown.shape == wanted.shape
        assert np.abs(shown - wanted).max() <= np.abs(wanted).max() * (1e-4 if e.tokens is not None else 0.02)


def test_a_saved_page_is_the_page(browser, page, tmp_path):
    copy = tmp_path / "copy.html"
    copy.write_bytes(saved(page, "HTML page"))
    with opened(browser, copy, offline=True) as again:
        assert again.locator(".tile canvas").count() == page.locator(".tile canvas").count()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (1920, "light")])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_window(browser, file, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    with opened(browser, file, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        for tab in ("attention", "removal", "insides", "region", "about"):
            page.click(f"#tab-{tab}")
            page.wait_for_timeout(80)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            found = Axe().run(page).response["violations"]
            serious = [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]
            assert not serious, (tab, serious)


def test_an_explanation_writes_its_own_page(browser, tmp_path):
    e = pl.explain("pets-vit", np.random.default_rng(0).integers(0, 255, (90, 60, 3), dtype=np.uint8), "rollout")
    file = e.to_html(tmp_path / "deep" / "one.html", curves=False, classes=1)
    assert [p.name for p in file.parent.iterdir()] == ["one.html"]
    with opened(browser, file, offline=True) as page:
        page.click("#tab-removal")
        until(page, "document.querySelector('#panel').textContent.includes('No curves are in this file')")
