"""Debian's Chromium, driven by Playwright, for the tests of pages."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),  # a webcam that shows a test picture
)


def chromium() -> str | None:
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def launched() -> Iterator[Any]:
    """A browser, or the test is skipped."""
    path = chromium()
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium, or set CHROMIUM to its path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, url: str | Path, **options: Any) -> Iterator[Any]:
    """A page that is ready; an error in its script fails the test."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **options})
    page = context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("console", lambda message: failures.append(message.text) if message.type == "error" else None)
    page.goto(url.as_uri() if isinstance(url, Path) else url)
    page.wait_for_selector("html[data-ready]", state="attached", timeout=30_000)
    page.failures = failures
    yield page
    context.close()
    assert not failures, failures


def until(page: Any, expression: str, seconds: float = 10) -> None:
    """Wait until JavaScript is true; asked from outside, for the page's own policy forbids to evaluate text."""
    end = time.monotonic() + seconds
    while not page.evaluate(f"() => Boolean({expression})"):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(30)
