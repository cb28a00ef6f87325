"""The commands that move tasks about, and the ones that explain: block, requeue, depend, graph, update, why, prime."""

from __future__ import annotations

import re

import pytest

from tenure.surfaces.cli.lookup import by_words, find
from tenure.surfaces.cli.prime import DO, DONT
from tenure.surfaces.cli.spec import parse
from tests.cli.shell import AGENT, OTHER, Desk


@pytest.fixture
def scene(desk: Desk) -> Desk:
    """F001, then F002 and F003, then F004 after both."""
    desk.ok("task", "add", "Design", "--id", "F001", "--priority", "high")
    desk.ok("task", "add", "Build", "--id", "F002", "--after", "F001")
    desk.ok("task", "add", "Document", "--id", "F003", "--after", "F001")
    desk.ok("task", "add", "Ship", "--id", "F004", "--after", "F002,F003")
    return desk


def status(scene: Desk, task_id: str = "F001") -> str:
    return str(scene.data("task", "show", task_id)["status"])


# -- verbs ------------------------------------------------------------------------------------------------------------


def test_block_by_the_holder_ends_the_lease_and_unblock_returns_it(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    assert scene.ok("task", "block", "F001", "--message", "no key").lines == ["Blocked task F001: no key"]
    shown = scene.data("task", "show", "F001")
    assert (shown["status"], shown["blocked_reason"], shown["leases"]) == ("blocked", "no key", [])
    assert scene.run("task", "claim", "F001", "--agent", OTHER).status == 7
    assert scene.ok("task", "unblock", "F001").lines == ["Unblocked task F001"]
    claimed = scene.ok("task", "claim", "F001", "--agent", OTHER)
    assert "no key" in claimed.out


def test_block_without_a_reason_asks_for_it(scene: Desk) -> None:
    ran = scene.run("task", "block", "F001", "--agent", AGENT)
    assert ran.status == 2
    assert "--message" in ran.err


def test_requeue_gives_a_blocked_task_a_new_start(scene: Desk) -> None:
    scene.ok("task", "block", "F001", "--message", "no key", "--force")
    scene.ok("task", "requeue", "F001")
    assert status(scene) == "todo"
    assert scene.run("task", "requeue", "F001").status == 7


def test_reopen_of_a_done_task_locks_its_dependants_again(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.ok("task", "done", "F001")
    assert scene.data("task", "show", "F002")["unmet"] == 0
    scene.ok("task", "reopen", "F001", "--message", "it was wrong")
    assert status(scene) == "todo"
    assert scene.data("task", "show", "F002")["unmet"] == 1
    assert scene.run("task", "claim", "F002", "--agent", AGENT).status == 7


def test_delete_needs_force_where_others_wait_for_it(scene: Desk) -> None:
    assert scene.refused(7, "task", "delete", "F001")["code"] == "has_dependants"
    scene.ok("task", "delete", "F004")
    assert scene.run("task", "show", "F004").status == 3
    scene.ok("task", "delete", "F001", "--force")
    assert scene.run("task", "show", "F001").status == 3


def test_depend_adds_and_removes_and_refuses_a_cycle(scene: Desk) -> None:
    scene.ok("task", "add", "Late", "--id", "F005")
    assert scene.ok("task", "depend", "F005", "--after", "F004").lines == ["Task F005 waits for 1"]
    error = scene.refused(7, "task", "depend", "F001", "--after", "F005")
    assert error["code"] == "cycle"
    assert scene.ok("task", "depend", "F005", "--remove", "F004").lines == ["Task F005 waits for nothing"]
    assert scene.refused(3, "task", "depend", "F005", "--after", "F999")["code"] == "task_not_found"
    scene.ok("task", "depend", "F005", "--after", "F999", "--allow-missing")
    assert "F999 (missing)" in scene.ok("task", "show", "F005").out
    assert scene.run("task", "depend", "F005").status == 2


def test_update_changes_what_is_named_and_nothing_else(scene: Desk) -> None:
    before = scene.data("task", "show", "F001")
    scene.ok("task", "update", "F001", "--title", "New design", "--priority", "low", "--requires", "gpu,python")
    after = scene.data("task", "show", "F001")
    changed = {name for name in before if before[name] != after[name]}
    assert {"title", "priority", "requires"} <= changed <= {"title", "priority", "requires", "updated_at"}
    assert (after["title"], after["priority"], after["requires"]) == ("New design", "low", ["gpu", "python"])
    scene.ok("task", "update", "F001", "--assign", "Olga")
    assert scene.data("task", "show", "F001")["assigned_to"] == "Olga"
    scene.ok("task", "update", "F001", "--unassign")
    assert scene.data("task", "show", "F001")["assigned_to"] is None
    assert scene.run("task", "update", "F001").status == 2


def test_not_before_holds_a_task_back_until_its_moment(scene: Desk) -> None:
    scene.ok("task", "add", "Later", "--id", "F009", "--not-before", "30m")
    assert scene.run("task", "claim", "F009", "--agent", AGENT).status == 7
    scene.clock.advance(30 * 60)
    scene.ok("task", "claim", "F009", "--agent", AGENT)
    assert scene.run("task", "add", "Bad", "--not-before", "tomorrow").status == 2


def test_capabilities_decide_who_may_have_a_task(scene: Desk) -> None:
    scene.ok("task", "add", "Train", "--id", "G1", "--requires", "gpu", "--priority", "critical")
    assert scene.run("task", "claim", "G1", "--agent", AGENT, "--capability", "python").status == 7
    assert scene.data("next", "--agent", AGENT, "--capability", "gpu")["task_id"] == "G1"


def test_urgent_tasks_come_first(scene: Desk) -> None:
    for level in ("low", "medium", "critical"):
        scene.ok("task", "add", level, "--id", level, "--priority", level)
    assert [task["task_id"] for task in scene.data("ready")["tasks"]] == ["critical", "F001", "medium", "low"]
    assert scene.data("next", "--agent", AGENT)["task_id"] == "critical"


def test_agent_that_leaves_puts_what_it_held_on_offer(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    scene.ok("agent", "leave", "--agent", AGENT, "--message", "shift is over")
    assert scene.data("task", "claim", "F001", "--agent", OTHER)["handoff"]["recovered_from_agent"] == AGENT


def test_agent_that_leaves_with_a_message_leaves_it_in_the_threads_of_what_it_holds(scene: Desk) -> None:
    scene.ok("task", "claim", "F001", "--agent", AGENT)
    told = scene.ok("agent", "leave", "--agent", AGENT, "--message", "shift is over")
    assert told.lines == [f"{AGENT} has left; on offer now: F001."]
    assert f"{AGENT}: shift is over" in scene.ok("msg", "thread", "F001").out


def test_skills_are_the_capabilities_of_who_joined_with_them(scene: Desk) -> None:
    scene.ok("task", "add", "Train", "--id", "G1", "--requires", "gpu", "--priority", "critical")
    scene.ok("agent", "join", "--id", AGENT, "--skill", "python")
    assert "Skills: python" in scene.ok("agent", "show", AGENT).out
    assert scene.refused(7, "task", "claim", "G1", "--agent", AGENT)["code"] == "capabilities_missing"
    assert f"Given to {AGENT}: no" in scene.ok("why", "G1", "--agent", AGENT).out
    assert scene.data("next", "--agent", AGENT)["task_id"] == "F001"
    assert scene.data("task", "claim", "G1", "--agent", AGENT, "--capability", "gpu")["task_id"] == "G1"


def test_next_of_who_holds_a_task_says_so(scene: Desk) -> None:
    scene.ok("task", "add", "More", "--id", "F009")
    assert scene.ok("next", "--agent", AGENT).err == ""
    assert "you also hold F001 (expires in 15m)" in scene.ok("next", "--agent", AGENT).err


def test_delete_by_force_says_who_waits_for_nothing_now(scene: Desk) -> None:
    ran = scene.run("task", "delete", "F002")
    assert "F004 depends on F002." in ran.err
    assert "tenure task delete F002 --force" in ran.err
    forced = scene.ok("task", "delete", "F002", "--force")
    assert "F004 now waits for F002, which is missing" in forced.err
    assert re.search(r"dependencies: waits for .*F002 \(missing\)", scene.ok("why", "F004").out)


def test_message_to_an_agent_is_read_once_unless_kept(scene: Desk) -> None:
    scene.ok("agent", "join", "--id", OTHER)
    scene.ok("msg", "send", "--to", OTHER, "--from", AGENT, "--text", "look at F001")
    for words in (["--keep"], []):
        assert "look at F001" in scene.ok("msg", "inbox", "--agent", OTHER, *words).out
    assert scene.ok("msg", "inbox", "--agent", OTHER).lines == ["Nothing new."]


# -- graph ------------------------------------------------------------------------------------------------------------


def test_graph_is_a_tree_that_unfolds_each_task_once(scene: Desk) -> None:
    scene.ok("task", "add", "Party", "--id", "F005", "--after", "F004")
    assert scene.ok("task", "graph").lines == [
        "F001  todo  Design",
        "├─ F002  todo  Build",
        "│  └─ F004  todo  Ship",
        "│     └─ F005  todo  Party",
        "└─ F003  todo  Document",
        "   └─ F004  (see above)",
    ]


def test_graph_for_drawing_programs(scene: Desk) -> None:
    mermaid = scene.ok("task", "graph", "--format", "mermaid").lines
    assert mermaid[0] == "graph TD"
    assert '    n1["F001: Design"]' in mermaid
    assert "    n1 --> n2" in mermaid
    dot = scene.ok("task", "graph", "-o", "dot").lines
    assert (dot[0], dot[-1]) == ("digraph tasks {", "}")
    assert '    "F002" -> "F004";' in dot
    assert scene.run("task", "list", "--format", "dot").status == 2


def test_graph_has_tasks_without_dependencies_too(scene: Desk) -> None:
    scene.ok("task", "add", 'Say "end"', "--id", "end")
    assert scene.ok("task", "graph").lines[-3:] == ["", "Without dependencies:", '  end  todo  Say "end"']
    assert '    n5["end: Say #quot;end#quot;"]' in scene.ok("task", "graph", "--format", "mermaid").lines
    assert '    "end" [label="end: Say \\"end\\""];' in scene.ok("task", "graph", "--format", "dot").lines


def test_graph_around_one_task_and_of_nothing(scene: Desk) -> None:
    scene.ok("task", "add", "Alone", "--id", "F008")
    scene.ok("task", "add", "Apart", "--id", "F009", "--after", "F008")
    shown = scene.ok("task", "graph", "F009").out
    assert "F009" in shown
    assert "F002" not in shown
    scene.ok("task", "depend", "F009", "--remove", "F008")
    assert scene.ok("task", "graph", "F009").lines == ["No dependencies."]


# -- why --------------------------------------------------------------------------------------------------------------


def test_why_tells_the_story_in_order_with_the_recovery_in_numbers(scene: Desk) -> None:
    scene.ok("agent", "join", "--id", AGENT)
    scene.ok("task", "claim", "F001", "--agent", AGENT, "--profile", "agent")
    scene.clock.advance(15)
    scene.ok("task", "renew", "F001", "--progress", "5", "--agent", AGENT)
    scene.clock.advance(25)
    scene.ok("task", "renew", "F001", "--progress", "15", "--agent", AGENT, "--message", "parser works")
    scene.clock.advance(15)
    scene.ok("touch", "--agent", AGENT)
    scene.clock.advance(120)
    scene.ok("task", "claim", "F001", "--agent", OTHER)
    scene.ok("msg", "send", "--task", "F001", "--from", OTHER, "--text", "taking over")
    scene.ok("task", "done", "F001", "--agent", OTHER, "--message", "finished")
    story = scene.ok("why", "F001").out
    found = [
        "added",
        f"claimed by {AGENT}",
        f"{AGENT} reports 5%",
        f"{AGENT} reports 15%: parser works",
        f"recovered from {AGENT}",
        "silent 120 s; allowed lease 90 + grace 30; cadence 37.5",
        f"claimed by {OTHER}",
        f"{OTHER} wrote: taking over",
        f"completed by {OTHER}: finished",
    ]
    places = [story.find(words) for words in found]
    assert -1 not in places, [words for words, place in zip(found, places, strict=True) if place < 0]
    assert places == sorted(places)


def test_why_of_a_task_nobody_gets_has_every_condition_with_its_verdict(scene: Desk) -> None:
    told = scene.data("why", "F002")
    verdicts = {condition["name"]: condition["holds"] for condition in told["conditions"]}
    assert verdicts.pop("dependencies") is False
    assert all(verdicts.values())
    assert {"lease", "status", "assigned_to", "not_before", "capabilities", "reserved_owner"} <= verdicts.keys()
    text = scene.ok("why", "F002").out
    assert "Given to anyone: no" in text
    assert re.search(r"no +dependencies: waits for F001", text)


def test_why_for_an_agent_says_what_it_lacks(scene: Desk) -> None:
    scene.ok("task", "add", "Train", "--id", "G1", "--requires", "gpu")
    text = scene.ok("why", "G1", "--agent", AGENT, "--capability", "python").out
    assert f"Given to {AGENT}: no" in text
    assert re.search(r"no +capabilities: .*gpu", text)


# -- prime ------------------------------------------------------------------------------------------------------------


def test_prime_is_short_and_has_the_specifications_do_and_dont(scene: Desk) -> None:
    text = scene.ok("prime").out
    assert len(text.split()) < 300
    assert DO[0] == "Claim before starting work"
    assert DONT[-1] == "Work on unclaimed tasks"
    for line in (*DO, *DONT):
        assert f"- {line}\n" in text
    assert text.index("Do:") < text.index("Don't:")


def test_prime_names_only_commands_and_options_that_exist(scene: Desk) -> None:
    known = by_words()
    named = re.findall(r"^  tenure ([a-z]+(?: [a-z]+)?)", scene.ok("prime").out, re.MULTILINE)
    assert len(named) > 8
    for words in named:
        assert words in known or words.split()[0] in known
    for words in re.findall(r"^  tenure (.+?)  ", scene.ok("prime").out, re.MULTILINE):
        found = find(words.split())
        assert isinstance(found, tuple)
        assert isinstance(parse(*found), dict), words
    assert "TENURE_AGENT" in scene.ok("prime").out
    options = {option.name for command in known.values() for option in command.options} | {"--json", "--help"}
    assert set(re.findall(r"--[a-z-]+", scene.ok("prime").out)) <= options
