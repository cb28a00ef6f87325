"""The staged fleet in a browser: what the screenshots show is there, and everybody can use it (axe-core)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.chromium import live, opened, violations
from tools.screenshots import SHOTS, Served, shoot
from tools.stage import Stage

VIEWS = {
    "board": ("/", ".card .ring"),
    "fleet": ("/?view=fleet", ".lane .span"),
    "agent": ("/?view=agent&agent=codex-1", ".gap"),
    "task": ("/?task=SHOP-118", ".handoff-panel"),
    "held task": ("/?task=SHOP-110", ".holder"),
    "operations": ("/?view=operations", ".tile"),
}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    stage = Stage(str(tmp_path_factory.mktemp("stage") / "tenure.db"))
    stage.play()
    with Served(stage.store) as served:
        yield served


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_view_has_no_serious_violation(browser: Browser, staged: Served, view: str, colours: str) -> None:
    address, awaited = VIEWS[view]
    with opened(browser, staged.url + address, color_scheme=colours) as page:
        live(page)
        page.wait_for_selector(awaited)
        assert violations(page) == []


def test_dialogs_have_no_serious_violation(browser: Browser, staged: Served) -> None:
    with opened(browser, staged.url) as page:
        live(page)
        for key in ("n", "?"):
            page.keyboard.press(key)
            page.wait_for_selector("dialog[open]")
            assert violations(page) == []
            page.keyboard.press("Escape")
            page.wait_for_selector("dialog", state="detached")


def test_parts_of_a_ring_differ_in_colour_and_in_shape(browser: Browser, staged: Served) -> None:
    with opened(browser, staged.url) as page:
        live(page)
        looks = {}
        for part in ("term", "grace", "extension"):
            held = page.locator(f".card[data-part={part}]").first
            held.wait_for()
            looks[part] = held.locator(f".ring-{part}").evaluate(
                "path => { const style = getComputedStyle(path);"
                " return [style.stroke, style.strokeDasharray, !!path.getAttribute('d')]; }"
            )
            assert looks[part][2], part
        assert len({stroke for stroke, _, _ in looks.values()}) == 3
        assert len({dashes for _, dashes, _ in looks.values()}) == 3
        expect(page.locator(".card[data-part=extension] .card-phase")).to_have_text("cadence")
        expect(page.locator(".card[data-part=grace] .card-phase")).to_have_text("grace")


def test_fleet_marks_recoveries_handoffs_and_returns_and_explains_them(browser: Browser, staged: Served) -> None:
    with opened(browser, f"{staged.url}/?view=fleet") as page:
        live(page)
        page.wait_for_selector(".mark.recovery")
        assert page.locator(".mark.handover").count() > 0
        assert page.locator(".mark.zombie").count() > 0
        assert page.locator(".sign").count() > 50
        page.locator(".span.recovered").last.hover()
        expect(page.locator(".tip")).to_contain_text("silent 151 s; allowed lease 120 + grace 30")
        bars = page.locator(".span").count()
        page.get_by_role("button", name="15 m").click()
        page.wait_for_function(f"() => document.querySelectorAll('.span').length < {bars}")
        assert "span=900000" in page.url


def test_task_page_shows_what_was_handed_over(browser: Browser, staged: Served) -> None:
    with opened(browser, f"{staged.url}/?task=SHOP-118") as page:
        panel = page.locator(".handoff-panel").first
        expect(panel).to_contain_text("Handoff from claude-web")
        expect(panel).to_contain_text("refs/tenure/rescue/SHOP-118/")
        expect(panel).to_contain_text("3 files changed, 170 insertions")
        expect(page.locator(".instructions")).to_contain_text("RECOVERY ADDENDUM")
        expect(page.get_by_text("verified")).to_be_visible()
        assert page.locator(".graph .node").count() >= 3
        expect(page.locator(".story")).to_contain_text("recovered from claude-web")


def test_screenshots_are_taken_and_modest(browser: Browser, staged: Served, tmp_path: Path) -> None:
    for name in SHOTS:
        shoot(browser, staged.url, name, tmp_path)
        assert 8_000 < (tmp_path / f"{name}.png").stat().st_size < 400_000, name
