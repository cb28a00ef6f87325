"""Take the screenshots of the documentation: a staged fleet (tools/stage.py), a real server, a real browser.

    make screenshots

The browser is the system's Chromium, driven by Playwright; CHROMIUM names another one.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tenure.store.sqlite import SqliteStore
from tenure.surfaces.http.server import Server, build, configured
from tools.stage import Stage

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
# name: (address, width, height, colours, what to wait for)
SHOTS: dict[str, tuple[str, int, int, str, str]] = {
    "board": ("/", 1600, 900, "light", ".card .ring"),
    "board-dark": ("/", 1600, 900, "dark", ".card .ring"),
    "fleet": ("/?view=fleet", 1440, 620, "light", ".lane .span"),
    "task": ("/?task=SHOP-118", 1440, 1000, "light", ".handoff-panel"),
    "silence": ("/?view=agent&agent=codex-1", 1440, 760, "light", ".gap"),
    "operations": ("/?view=operations", 1440, 1000, "light", ".tile"),
    "phone": ("/", 390, 780, "light", ".card .ring"),
}


class Served:
    """A server in this process, so that it may keep the play's own clock."""

    def __init__(self, store: SqliteStore) -> None:
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        # Before the server runs: who connects at once waits for it instead of being refused.
        self.listener.listen()
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.server = Server(configured(build(store, "stage")))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})

    def __enter__(self) -> Served:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join()


def chromium() -> str | None:
    """Where the browser is, if there is one."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def shoot(browser: Any, url: str, name: str, target: Path) -> None:
    address, width, height, colours, awaited = SHOTS[name]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=colours, timezone_id="UTC", locale="en-GB"
    )
    page = context.new_page()
    page.goto(url + address)
    page.wait_for_selector(awaited)
    page.wait_for_selector("body[data-connection=live]")
    if name == "phone":
        page.locator(".column.in_progress").scroll_into_view_if_needed()
    page.evaluate("() => document.fonts.ready")
    page.wait_for_timeout(400)
    page.screenshot(path=str(target / f"{name}.png"))
    context.close()


def main(arguments: list[str]) -> int:
    """Take all of them, or those that are named."""
    found = chromium()
    if found is None:
        print("There is no Chromium here: apt-get install chromium, or name one in CHROMIUM.", file=sys.stderr)
        return 1
    names = arguments or list(SHOTS)
    target = Path(os.environ.get("SCREENSHOTS_TO", IMAGES))
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(f"{folder}/tenure.db")
        stage.play()
        with Served(stage.store) as served, sync_playwright() as playwright:
            flags = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = playwright.chromium.launch(executable_path=found, args=flags)
            for name in names:
                shoot(browser, served.url, name, target)
                print(f"{name}.png")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main(sys.argv[1:]))
