"""A real browser for the tests of the dashboard: the system's Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tools.screenshots import chromium

# Bounds, not expectations: a machine that runs much else is slow.
WITHIN_MS = 120_000
# With this set, a missing browser is a failure: CI sets it after installing one.
REQUIRED = "TENURE_REQUIRE_CHROMIUM"
expect.set_options(timeout=WITHIN_MS)
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """The browser, or a skip that says how to get one."""
    found = chromium()
    if found is None:
        message = "NO CHROMIUM, so the dashboard is NOT TESTED in a browser: apt-get install chromium, or set CHROMIUM"
        assert not os.environ.get(REQUIRED), message
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page in a fresh profile. Anything it logs as an error fails the test."""
    context = browser.new_context(viewport=options.pop("viewport", {"width": 1600, "height": 900}), **options)
    context.set_default_timeout(WITHIN_MS)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.goto(url)
    yield page
    context.close()
    # A connection that a test cut off is reported by the browser itself.
    mine = [fault for fault in faults if "net::ERR" not in fault and "401" not in fault and "409" not in fault]
    assert not mine, mine


def live(page: Page) -> None:
    """Wait until the page hears the server."""
    page.wait_for_selector("body[data-connection=live]")


def violations(page: Page) -> list[str]:
    """What axe-core finds that would keep somebody from using the page."""
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']}: {rule['help']}: {[node['html'][:120] for node in rule['nodes']][:4]}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]


def until(condition: Callable[[], bool], within_s: float = WITHIN_MS / 1000) -> None:
    """Poll until something is so."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        threading.Event().wait(0.02)
