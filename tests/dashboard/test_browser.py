"""The dashboard in a real browser: what a person does and sees."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from tenure.engine import agents, boards, claims, endings, liveness, notes, observe, projects, tasks
from tenure.store.sqlite import SqliteStore
from tests.dashboard.chromium import live, opened, until
from tests.gates.support import faking
from tests.http.serving import ANSWERS_WITHIN_S, TENURE, Server
from tests.support import add, ok

SCRIPT = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"


def card(page: Page, task_id: str, column: str = "") -> Locator:
    return page.locator(f"{f'.column.{column} ' if column else ''}.card[data-id='{task_id}']")


def status(store: SqliteStore, task_id: str) -> str:
    return ok(observe.show_task(store, task_id=task_id)).view.status


def hold(store: SqliteStore, task_id: str, agent_id: str = "A1", ttl_s: int = 600) -> None:
    ok(claims.claim(store, task_id=task_id, agent_id=agent_id, profile="cli", ttl_s=ttl_s))


def dead(store: SqliteStore, task_id: str) -> None:
    """A task that its holder cancelled."""
    from tenure.engine.receipts import submit_receipt

    ok(claims.claim(store, task_id=task_id, agent_id="w.1", profile="worker"))
    body = {
        "phase": "complete",
        "task_id": task_id,
        "source_system": "w.1",
        "status": "canceled",
        "outcome_kind": "none",
    }
    ok(submit_receipt(store, body=body))
    assert status(store, task_id) == "dead"


# -- looking ----------------------------------------------------------------------------------------------------------


def test_task_added_on_the_command_line_appears_without_a_reload(
    browser: Browser, server: Server, beside: SqliteStore
) -> None:
    add(beside, "F000")
    with opened(browser, server.url) as page:
        live(page)
        page.evaluate("() => { window.sameDocument = true; }")
        words = [TENURE, "task", "add", "Shown at once", "--id", "F001", "--store", server.store]
        subprocess.run(words, check=True, capture_output=True, timeout=ANSWERS_WITHIN_S)
        expect(card(page, "F001", "todo")).to_contain_text("Shown at once")
        expect(page.locator(".feed")).to_contain_text("F001")
        assert page.evaluate("() => window.sameDocument")


def test_lease_ring_drains_and_the_recovery_shows(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    with opened(browser, server.url) as page:
        live(page)
        hold(beside, "F001", ttl_s=60)
        ring = page.locator(".column.in_progress .card[data-id=F001] .ring")
        ring.wait_for()
        first = ring.locator(".ring-term").get_attribute("d")
        until(lambda: ring.locator(".ring-term").get_attribute("d") != first)
        ok(liveness.renew(beside, task_id="F001", agent_id="A1", ttl_s=1))
        expect(page.locator(".feed .event[data-kind=recovered]")).to_contain_text("recovered from A1")
        expect(card(page, "F001", "todo")).to_be_visible()
        expect(ring).to_have_count(0)


def test_touch_by_another_process_refills_the_ring(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    ok(agents.register(beside, agent_id="A1"))
    ok(claims.claim(beside, task_id="F001", agent_id="A1", profile="agent"))
    with opened(browser, server.url) as page:
        live(page)
        left = "document.querySelector('.card .ring').getAttribute('aria-label')"
        page.wait_for_function(f"() => !/1 m 20|1 m 19/.test({left})")
        ok(liveness.report(beside, task_id="F001", agent_id="A1", progress=10))
        page.wait_for_function(f"() => /working, (1 m [2-5][0-9]|2 m)/.test({left})")


def test_connection_lost_shows_itself_and_a_restarted_server_is_found_again(
    browser: Browser, tmp_path: Path, server: Server, beside: SqliteStore
) -> None:
    add(beside, "F001")
    with opened(browser, server.url) as page:
        live(page)
        page.evaluate("() => { window.sameDocument = true; }")
        server.end()
        expect(page.locator("#notice")).to_contain_text("connection to the server is lost")
        assert page.evaluate("() => document.body.dataset.connection") == "lost"
        add(beside, "F002", title="Added while nobody served")
        with Server(tmp_path / "tenure.db", port=server.port):
            live(page)
            expect(page.locator("#notice")).to_be_hidden()
            expect(card(page, "F002")).to_contain_text("Added while nobody served")
            assert page.evaluate("() => window.sameDocument")


def test_title_that_is_a_script_is_text(browser: Browser, server: Server, beside: SqliteStore) -> None:
    ok(tasks.add_task(beside, task_id="F001", title=SCRIPT, body=SCRIPT, kind="code"))
    ok(agents.register(beside, agent_id="A1", name=SCRIPT, role=SCRIPT))
    ok(claims.claim(beside, task_id="F001", agent_id="A1", profile="agent"))
    ok(liveness.report(beside, task_id="F001", agent_id="A1", progress=10, message=SCRIPT))
    ok(notes.log_decision(beside, task_id="F001", agent_id="A1", decision=SCRIPT))
    ok(notes.send_message(beside, task_id="F001", sender=SCRIPT, text=SCRIPT))
    ok(endings.block(beside, task_id="F001", agent_id="A1", reason=SCRIPT))
    with opened(browser, server.url) as page:
        live(page)
        assert page.locator(".card-title").inner_text() == SCRIPT
        for address in ("?task=F001", "?view=fleet", "?view=agent&agent=A1", "?view=operations"):
            page.goto(f"{server.url}/{address}")
            live(page)
            page.wait_for_selector("main h1")
        page.goto(f"{server.url}/?task=F001")
        expect(page.locator(".instructions")).to_contain_text("window.pwned")
        assert page.evaluate("() => window.pwned") is None
        assert page.locator("img").count() == 0


def test_five_thousand_tasks_are_drawn_by_their_visible_part(
    browser: Browser, server: Server, beside: SqliteStore
) -> None:
    many = [{"task_id": f"T{number:04}", "title": f"Number {number}"} for number in range(5_000)]
    ok(tasks.add_tasks(beside, tasks=many))
    with opened(browser, server.url) as page:
        live(page)
        expect(page.locator(".column.todo .column-count")).to_have_text("5000")
        assert page.locator(".card").count() < 60
        scrolls = """async () => {
              const scroller = document.querySelector('.column.todo .column-scroll');
              const took = [];
              for (let step = 0; step < 40; step += 1) {
                const began = performance.now();
                scroller.scrollTop = (scroller.scrollHeight / 40) * (step + 1);
                await new Promise(requestAnimationFrame);
                await new Promise(requestAnimationFrame);
                took.push(performance.now() - began);
              }
              return took;
            }"""
        took = page.evaluate(scrolls)
        for _ in range(4):
            # A machine may stand still during a scroll, but not each time during the same one.
            if max(took) >= 1_000:
                took = list(map(min, took, page.evaluate(scrolls)))
        assert max(took) < 1_000, f"a scroll took {max(took):.0f} ms"
        expect(card(page, "T4999")).to_be_visible()
        assert page.locator(".card").count() < 60


def test_filters_and_search_are_in_the_address(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001", title="Red apple", kind="fruit", priority="high")
    add(beside, "F002", title="Green apple", kind="fruit")
    add(beside, "F003", title="Carrot", kind="root")
    with opened(browser, server.url) as page:
        live(page)
        page.keyboard.press("/")
        page.keyboard.type("APPLE")
        expect(page.locator(".card")).to_have_count(2)
        page.select_option("[data-filter=priority]", "high")
        expect(page.locator(".card")).to_have_count(1)
        page.wait_for_url("**/?q=APPLE&priority=high")
        page.reload()
        expect(page.locator(".card")).to_have_count(1)
        expect(page.locator("#search")).to_have_value("APPLE")
        page.get_by_role("button", name="Clear filters").click()
        expect(page.locator(".card")).to_have_count(3)
        assert page.url == f"{server.url}/"


def test_dark_mode_follows_the_system_and_the_button(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    colour = "() => getComputedStyle(document.body).backgroundColor"
    with opened(browser, server.url, color_scheme="dark") as page:
        live(page)
        assert page.evaluate(colour) == "rgb(15, 18, 22)"
        page.get_by_role("button", name="Theme").click()
        assert page.evaluate(colour) == "rgb(245, 246, 248)"
        page.reload()
        live(page)
        assert page.evaluate(colour) == "rgb(245, 246, 248)"
    with opened(browser, server.url, color_scheme="light") as page:
        live(page)
        assert page.evaluate(colour) == "rgb(245, 246, 248)"


def test_phone_has_every_view_and_nothing_hangs_over(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001", title="x" * 300)
    hold(beside, "F001", "an-agent-with-a-very-long-name-indeed")
    phone = {"width": 360, "height": 740}
    with opened(browser, server.url, viewport=phone, has_touch=True, is_mobile=True) as page:
        for address in (
            "",
            "?view=fleet",
            "?view=operations",
            "?task=F001",
            "?view=agent&agent=an-agent-with-a-very-long-name-indeed",
        ):
            page.goto(f"{server.url}/{address}")
            live(page)
            page.wait_for_selector("main h1")
            over = page.evaluate("() => document.scrollingElement.scrollWidth - innerWidth")
            assert over <= 0, address
            assert page.evaluate("() => document.querySelector('main').scrollWidth <= innerWidth"), address


# -- doing ------------------------------------------------------------------------------------------------------------


def test_drag_of_a_held_card_asks_and_then_revokes(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    hold(beside, "F001", "A1")
    with opened(browser, server.url) as page:
        live(page)
        held = page.locator(".column.in_progress .card[data-id=F001]")
        held.drag_to(page.locator(".column.todo"))
        dialog = page.locator("dialog")
        expect(dialog).to_contain_text("A1 holds F001")
        dialog.get_by_role("button", name="Keep it").click()
        assert status(beside, "F001") == "in_progress"
        held.drag_to(page.locator(".column.todo"))
        dialog.locator("[data-confirm]").click()
        expect(card(page, "F001", "todo")).to_be_visible()
        assert status(beside, "F001") == "todo"
        told = [event for event in ok(observe.events(beside, task_id="F001")) if event.kind == "revoked"]
        assert json.loads(told[0].data)["reason"] == "moved_on_board"


def test_drag_of_a_free_card_to_done_completes_it(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    add(beside, "F002", after=["F001"])
    with opened(browser, server.url) as page:
        live(page)
        expect(card(page, "F002")).to_contain_text("waits for F001")
        page.locator(".card[data-id=F001]").drag_to(page.locator(".column.done"))
        expect(card(page, "F001", "done")).to_be_visible()
        assert status(beside, "F001") == "done"


def test_requeue_is_done_with_the_keyboard_alone(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001", title="To be revived")
    add(beside, "F002")
    dead(beside, "F001")
    with opened(browser, server.url) as page:
        live(page)
        expect(card(page, "F001", "dead")).to_be_visible()
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("() => document.activeElement.dataset.id") == "F002":
                break
        page.keyboard.press("ArrowRight")
        assert page.evaluate("() => document.activeElement.dataset.id") == "F001"
        page.keyboard.press("m")
        expect(page.locator("dialog")).to_contain_text("Requeue")
        page.keyboard.press("Enter")
        expect(card(page, "F001", "todo")).to_be_visible()
        assert status(beside, "F001") == "todo"


def test_dead_letters_are_requeued_from_operations(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    dead(beside, "F001")
    with opened(browser, f"{server.url}/?view=operations") as page:
        page.get_by_role("button", name="Requeue F001").click()
        expect(page.locator("#dead-letters")).to_contain_text("None.")
        assert status(beside, "F001") == "todo"


def test_gridlock_is_named_in_a_banner(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    add(beside, "F002", after=["F001"])
    ok(endings.block(beside, task_id="F001", reason="No key."))
    with opened(browser, f"{server.url}/?view=operations") as page:
        expect(page.locator(".banner")).to_contain_text("F001 is blocked")


def test_first_run_explains_and_loads_an_example(browser: Browser, server: Server, beside: SqliteStore) -> None:
    with opened(browser, server.url) as page:
        live(page)
        expect(page.locator(".ways li")).to_have_count(3)
        page.click("#load-example")
        expect(card(page, "EX-1", "todo")).to_be_visible()
        expect(page.locator(".first")).to_have_count(0)
        assert len(ok(observe.list_tasks(beside))) == 7


def test_message_written_by_a_person_reaches_the_thread(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    with opened(browser, f"{server.url}/?task=F001") as page:
        page.fill("#message-text", "Look at the lock order.")
        page.fill("#message-name", "mira")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".thread")).to_contain_text("Look at the lock order.")
        message = ok(notes.thread(beside, task_id="F001"))[0]
        assert (message.sender, message.text) == ("mira", "Look at the lock order.")


def test_task_is_added_by_the_form(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    with opened(browser, server.url) as page:
        live(page)
        page.keyboard.press("n")
        page.fill("#new-title", "Made here")
        page.select_option("#new-priority", "critical")
        page.locator("dialog [data-confirm]").click()
        expect(page.locator(".column.todo .card").first).to_contain_text("Made here")


# -- signing in -------------------------------------------------------------------------------------------------------


def test_token_becomes_a_session_that_scripts_cannot_read(browser: Browser, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"operator-token-0001": "*"}))
    with Server(tmp_path / "tenure.db", "--tokens", str(tokens)) as server, opened(browser, server.url) as page:
        page.fill("#token", "not-the-token-at-all")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know")
        page.fill("#token", "operator-token-0001")
        page.get_by_role("button", name="Sign in").click()
        live(page)
        kept = page.context.cookies()[0]
        assert (kept["httpOnly"], kept["sameSite"]) == (True, "Strict")
        assert "operator-token-0001" not in kept["value"]
        assert page.evaluate("() => document.cookie") == ""
        page.click("#load-example")
        expect(card(page, "EX-1")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_selector("#token")


def test_typing_a_message_is_not_disturbed_by_a_change_of_the_task(
    browser: Browser, server: Server, beside: SqliteStore
) -> None:
    add(beside, "F001")
    with opened(browser, f"{server.url}/?task=F001") as page:
        live(page)
        page.click("#message-text")
        page.keyboard.type("Half a sen")
        ok(notes.send_message(beside, task_id="F001", sender="A1", text="A word in between."))
        expect(page.locator(".thread")).to_contain_text("A word in between.")
        page.keyboard.type("tence")
        expect(page.locator("#message-text")).to_have_value("Half a sentence")


# -- what a lost holder left ------------------------------------------------------------------------------------------

KILLED = """
echo one > committed.txt && git add . && git commit -qm "Add the first half"
echo theirs > shared.txt && git commit -qam "Rewrite what is shared"
echo two > uncommitted.txt; echo SECRET=1 > .env
(cd "$1" && echo ours > shared.txt && git commit -qam "Rewrite it here")
echo "cannot connect"
kill -9 $$
"""


def test_handoff_panel_shows_what_was_rescued_from_a_killed_agent(
    browser: Browser, server: Server, beside: SqliteStore, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "shared.txt").write_text("both\n")
    for line in ("init -q -b main", "config user.name A", "config user.email a@x.org", "add .", "commit -qm Begin"):
        subprocess.run(["git", *line.split()], cwd=repository, check=True)
    add(beside, "F001")
    with opened(browser, f"{server.url}/?task=F001") as page:
        live(page)
        words = [TENURE, "run", "--agent", "ada", "--task", "F001", "--worktree", "--store", server.store, "--"]
        command = [*words, "sh", "-c", KILLED, "sh", str(repository)]
        told = subprocess.run(
            command, cwd=repository, check=False, capture_output=True, text=True, timeout=ANSWERS_WITHIN_S
        )
        assert "ended by SIGKILL" in told.stderr, told.stderr
        panel = page.locator(".handoff-panel")
        expect(panel).to_be_visible()
        token = ok(observe.show_task(beside, task_id="F001")).handoffs[0].token
        for shown in (
            f"refs/tenure/rescue/F001/{token}",
            f"tenure rescue apply F001/{token}",
            "Add the first half",
            "committed.txt",
            "conflict in",
            ".env (its name looks secret)",
            "ended by SIGKILL",
            "cannot connect",
        ):
            expect(panel).to_contain_text(shown)
        expect(panel).not_to_contain_text("pending")


# -- a phone ----------------------------------------------------------------------------------------------------------


def test_card_on_a_touch_screen_is_moved_by_its_button(browser: Browser, server: Server, beside: SqliteStore) -> None:
    add(beside, "F001")
    phone = {"width": 390, "height": 780}
    with opened(browser, server.url, viewport=phone, has_touch=True, is_mobile=True) as page:
        live(page)
        button = page.get_by_role("button", name="Move F001")
        box = button.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 44
        button.tap()
        page.locator("dialog [data-to=done]").tap()
        until(lambda: status(beside, "F001") == "done")


def test_token_of_an_agent_is_shown_nothing_that_it_may_not_do(browser: Browser, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"agent-token-000001": "A1"}))
    with Server(tmp_path / "tenure.db", "--tokens", str(tokens)) as server:
        store = SqliteStore(server.store)
        add(store, "F001")
        store.close()
        with opened(browser, server.url) as page:
            page.fill("#token", "agent-token-000001")
            page.get_by_role("button", name="Sign in").click()
            live(page)
            expect(card(page, "F001")).to_have_attribute("draggable", "false")
            expect(page.get_by_role("button", name="New task")).to_have_count(0)
            card(page, "F001").click()
            page.wait_for_selector("#message-name")
            expect(page.locator("#message-name")).to_have_value("A1")
            expect(page.get_by_role("button", name="Move")).to_have_count(0)


# -- deliveries -------------------------------------------------------------------------------------------------------


def test_operations_show_what_a_board_has_not_been_told(browser: Browser, server: Server, beside: SqliteStore) -> None:
    # Nobody listens there, so that everything waits.
    ok(boards.connect_board(beside, url="http://127.0.0.1:9", board="Shop", token="a-token"))
    add(beside, "F001")
    with opened(browser, f"{server.url}/?view=operations") as page:
        live(page)
        deliveries = page.locator("#deliveries")
        expect(deliveries).to_contain_text("kanboard Shop")
        expect(deliveries.locator("td .bad")).to_be_visible()
        with contextlib.closing(sqlite3.connect(server.store, timeout=30)) as connection, connection:
            columns = (
                "project_id, task_key, task_id, card_id, born, change_no, version, dirty, busy_until_ms, retry_at_ms, "
                "attempts, parked, error, gone, reversions, said_seq"
            )
            values = "'default', 1, 'F001', '', '', 0, 0, 1, 0, 0, 8, 1, 'the board refuses it', 0, 0, 0"
            connection.execute(f"INSERT INTO board_cards ({columns}) VALUES ({values})")
        add(beside, "F002")
        expect(deliveries).to_contain_text("F001 (card none yet): the board refuses it")
        page.get_by_role("button", name="Try parked writes again").click()
        expect(page.locator(".toast")).to_contain_text("tried again")
        until(lambda: ok(boards.show_board(beside)).parked == 0)


def test_operations_show_what_a_gate_refused_and_have_it_sent_again(
    browser: Browser, server: Server, beside: SqliteStore
) -> None:
    taken: list[str] = []
    willing: list[bool] = []

    def answer(method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "GET":
            return 200, {"receipts": []}
        if not willing:
            return 422, {"code": "invalid_receipt", "detail": "not today"}
        taken.append(body["task_id"])
        return 201, {}

    with faking(answer) as gate, opened(browser, f"{server.url}/?view=operations") as page:
        live(page)
        ok(projects.configure(beside, document={"tenure": {"receiptgate_url": gate.url}}))
        add(beside, "F001")
        hold(beside, "F001")
        deliveries = page.locator("#deliveries")
        expect(deliveries).to_contain_text("(F001, accepted): HTTP 422 invalid_receipt: not today")
        willing.append(True)
        page.get_by_role("button", name="Send parked receipts again").click()
        expect(page.locator(".toast")).to_contain_text("sent again")
        until(lambda: taken == ["F001"])
        expect(page.get_by_role("button", name="Send parked receipts again")).to_have_count(0)
