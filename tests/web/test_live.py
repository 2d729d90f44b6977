"""The live page in a real browser."""

from __future__ import annotations

import base64
from importlib.resources import as_file

import pytest

from browser import opened, until
from patchlight.models.embedded import asset
from web.conftest import picture


@pytest.fixture
def page(browser, client):
    with opened(browser, f"http://127.0.0.1:{client.port}/#model=pets-vit", bypass_csp=False) as found:
        yield found


DROP = """([data, name, type]) => {
  const raw = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const given = new DataTransfer();
  given.items.add(new File([raw], name, {type}));
  const make = (kind) => new DragEvent(kind, {dataTransfer: given, bubbles: true, cancelable: true});
  document.body.dispatchEvent(make("dragover"));
  document.body.dispatchEvent(make("drop"));
}"""


def drop(page, data: bytes, name: str, kind: str) -> None:
    page.evaluate(DROP, [base64.b64encode(data).decode(), name, kind])


def dog() -> bytes:
    with as_file(asset("photos")) as photos:
        return (photos / "dog.jpg").read_bytes()


def all_there(page, count: int = 8) -> None:
    until(page, f"document.querySelectorAll('.tile canvas:not([aria-hidden=false])').length >= {count}", 60)
    until(page, "!document.querySelector('[data-key=cancel]')", 60)


def test_a_dropped_picture_is_explained_and_its_patches_can_be_clicked(page):
    drop(page, dog(), "my dog.jpg", "image/jpeg")
    until(page, "document.querySelector('.class.target')", 30)
    assert "leonberger" in page.text_content(".class.target")
    all_there(page)
    box = page.locator(".stage canvas").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.55, box["y"] + box["height"] * 0.3)
    page.wait_for_selector(".strip .cell", timeout=20_000)
    assert page.locator(".strip .cell").count() == 12 * (3 + 1)
    until(page, "document.querySelector('#reading').textContent.includes('attention')")


def test_another_class_and_a_contrast_are_worked_out(page):
    drop(page, dog(), "dog.jpg", "image/jpeg")
    until(page, "document.querySelector('.class.target')", 30)
    all_there(page)
    page.locator("#classes li button").nth(2).click()
    until(page, "document.querySelectorAll('#classes li button')[2].classList.contains('target')")
    all_there(page)
    page.click('[data-key="rather"]')
    page.locator("#classes li button").nth(0).click()
    until(page, "document.querySelector('.class.against')")
    all_there(page)
    page.click("#tab-about")
    until(page, "document.querySelector('#panel').textContent.includes('rather than leonberger')", 20)
    page.click('[data-key="tile-vtranm"]')
    page.click("#tab-insides")
    until(page, "document.querySelector('#panel h3')?.textContent.startsWith('attention, mean of heads')", 20)
    assert page.locator(".inside canvas").count() >= 2 * 12


def test_curves_draw_themselves_and_a_region_can_be_taken_away(page):
    drop(page, dog(), "dog.jpg", "image/jpeg")
    until(page, "document.querySelector('.class.target')", 30)
    all_there(page)
    page.click("#tab-removal")
    until(page, "document.querySelector('.chart figcaption') && !document.querySelector('.chart').textContent.includes('…')", 60)
    page.click("#tab-region")
    page.click('[data-key="brush"]')
    box = page.locator(".stage canvas").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.3)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.62, box["y"] + box["height"] * 0.55, steps=8)
    page.mouse.up()
    until(page, "document.querySelector('.says')?.textContent.includes('without it')", 20)
    assert int(page.text_content(".controls .hint").split()[0]) > 2


def test_methods_and_settings_come_from_the_registry_and_long_work_can_be_cancelled(page):
    drop(page, dog(), "dog.jpg", "image/jpeg")
    until(page, "document.querySelector('.class.target')", 30)
    all_there(page)
    page.click('[data-key="methods"]')
    page.get_by_role("button", name="None", exact=True).click()
    page.check("#use-smooth_grad")
    page.locator(".method", has=page.locator("#use-smooth_grad")).locator("summary").click()
    page.fill('[data-setting="smooth_grad.samples"]', "5000")
    page.click('[data-key="apply"]')
    until(page, "/\\d+ of 5000/.test(document.querySelector('.tile .empty')?.textContent ?? '')", 30)
    page.click('[data-key="cancel"]')
    until(page, "document.querySelector('.tile .empty')?.textContent.includes('stopped')")
    page.click('[data-key="methods"]')
    page.uncheck("#use-smooth_grad")
    page.check("#use-rollout")
    page.click('[data-key="apply"]')
    all_there(page, 1)


def test_a_text_file_is_refused_with_a_reason(page):
    drop(page, b"Dear diary", "diary.jpg", "image/jpeg")
    until(page, "document.querySelector('#alerts')?.textContent.includes('this is no picture')")
    page.failures.clear()  # the browser itself notes the 415
    drop(page, picture(), "noise.png", "image/png")
    until(page, "document.querySelector('.class.target')", 30)
    assert not page.text_content("#alerts")


def test_any_class_can_be_named(page):
    drop(page, dog(), "dog.jpg", "image/jpeg")
    until(page, "document.querySelector('.class.target')", 30)
    all_there(page)
    page.fill('[data-key="any"]', "Sphynx")
    page.mouse.move(200, 200)  # the scores under the pointer are read out, which draws the page again
    page.mouse.move(260, 260)
    assert page.input_value('[data-key="any"]') == "Sphynx"
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#classes').textContent.includes('Explained: Sphynx')")
    all_there(page)
    page.fill('[data-key="any"]', "unicorn")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#alerts').textContent.includes('There is no class unicorn')")


def test_a_frame_of_the_webcam_is_explained(page):
    page.locator('#welcome [data-key="webcam"]').click()
    page.wait_for_selector("dialog video")
    until(page, "document.querySelector('video').videoWidth > 0", 20)
    page.get_by_role("button", name="Take this frame").click()
    until(page, "document.querySelector('.class.target')", 30)
    assert page.locator("dialog").count() == 0


def test_a_pasted_picture_is_explained(page):
    page.evaluate(
        """(data) => {
          const given = new DataTransfer();
          given.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], "image.png", {type: "image/png"}));
          document.body.dispatchEvent(new ClipboardEvent("paste", {clipboardData: given, bubbles: true}));
        }""",
        base64.b64encode(picture(8)).decode(),
    )
    until(page, "document.querySelector('.class.target')", 30)


def test_another_model_can_be_picked_and_a_link_brings_all_of_it_back(browser, page):
    drop(page, picture(5), "noise.png", "image/png")
    until(page, "document.querySelector('.class.target')", 30)
    page.select_option('[data-key="model"]', "small")
    until(page, "location.hash.includes('model=small')")
    all_there(page, 6)
    page.wait_for_timeout(400)
    page.click("#tab-about")
    until(page, "location.hash.includes('t=about')")
    with opened(browser, page.evaluate("location.href")) as again:
        until(again, "document.querySelector('.class.target')", 30)
        assert "small" in again.input_value('[data-key="model"]')
        assert again.get_attribute("#tab-about", "aria-selected") == "true"


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_axe_finds_nothing_serious_on_the_live_page(browser, client, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    def serious(page) -> list[str]:
        found = Axe().run(page).response["violations"]
        return [f"{v['id']}: {v['nodes'][0]['html'][:150]}" for v in found if v["impact"] in ("serious", "critical")]

    address = f"http://127.0.0.1:{client.port}/#model=small"
    with opened(browser, address, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        assert not serious(page)
        drop(page, picture(), "noise.png", "image/png")
        until(page, "document.querySelector('.class.target')", 30)
        all_there(page, 6)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not serious(page)
        page.click('[data-key="methods"]')
        assert not serious(page)


def test_the_guide_shows_without_a_fault(browser, client):
    context = browser.new_context()
    page = context.new_page()
    failures: list[str] = []
    page.on("console", lambda message: failures.append(message.text))
    page.goto(f"http://127.0.0.1:{client.port}/docs")
    assert "POST /explain" in page.text_content("main")
    assert not failures
    context.close()
