"""Bad input to every verb: a refusal with a stable code and what to do, never an exception, and nothing written.

The walk takes the verbs and their arguments from the registry, so a new verb is walked the day it is written.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import tenure.engine
from tenure.clock import ManualClock
from tenure.core.errors import CODES, Refused
from tenure.engine import agents, boards, claims, dependencies, endings, liveness, notes, projects, tasks
from tenure.engine.callers import CALLER
from tenure.engine.claims import CLAIMANT
from tenure.engine.observe import show_task
from tenure.engine.receipts import list_receipts, submit_receipt
from tenure.engine.tasks import FIELDS
from tenure.engine.verb import VERBS
from tenure.store.sqlite import SqliteStore
from tests.engine.scene import call, whole
from tests.support import add, join, ok, refused, take

for _module in pkgutil.iter_modules(tenure.engine.__path__):
    importlib.import_module(f"tenure.engine.{_module.name}")

NAMES = sorted(VERBS)

# A good value for each argument that some verb cannot do without.
GOOD: dict[str, Any] = {
    "agent_id": "A1",
    "assigned_to": "Bob",
    "board": "WEB",
    "body": {"phase": "progress", "task_id": "F001", "source_system": "A1", "progress": 10},
    "decision": "Use pandas.",
    "boot_id": "boot-1",
    "died": False,
    "document": {},
    "exited": "exited with 1",
    "facts": {"output_tail": "Killed."},
    "filename": "out.csv",
    "handoff_id": "H1",
    "host": "here",
    "kind": "task",
    "link_id": "link-1",
    "needs": "F003",
    "pid_ns": "pid:[1]",
    "progress": 10,
    "project_id": "default",
    "reason": "no keys",
    "receipt_id": "r1",
    "records": [],
    "sender": "ann",
    "server_id": "s1",
    "status": "todo",
    "task_id": "F001",
    "tasks": [{"title": "one more"}],
    "text": "hello",
    "title": "one more",
    "url": "http://127.0.0.1:1",
    "worktree": "/src",
}
# What some verbs need besides the arguments that have no default.
ALSO: dict[str, dict[str, Any]] = {
    "add_task": {"title": "one more"},
    "create_project": {"project_id": "new"},
    "log_artifact": {"content": "1,2"},
    "offer": {"agent_id": "w.1", "profile": "worker"},
    "send_message": {"task_id": "F001"},
    "add_dependency": {"task_id": "F002"},
    "remove_dependency": {"task_id": "F002", "needs": "F001"},
    "claim": {"task_id": "F003"},
    "assign_task": {"task_id": "F003"},
    "delete_task": {"task_id": "F003"},
    "last_words": {"link_id": "{link}"},
    "attach_facts": {"handoff_id": "{handoff}"},
    "fence": {"lease_id": "{lease}"},
    "link_down": {"link_id": "{link}"},
    "move_task": {"task_id": "F003", "status": "done"},
    "pulse": {"link_id": "{link}"},
    "show_receipt": {"receipt_id": "{receipt}"},
}


def _deep(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


BAD: dict[str, Any] = {
    "none": None,
    "empty": "",
    "blank": "  ",
    "flag": "-x",
    "reserved": "Marcus",
    "dots": "..",
    "path": "a/b",
    "sentinel": "NA",
    "nul": "a\x00b",
    "escape": "a\x1b[31m",
    "newline": "a\nb",
    "surrogate": "a\ud800",
    "accents": "é" * 40,
    "megabyte": "x" * (1 << 20),
    "braces": "{agent} %s",
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -1,
    "fraction": 1.5,
    "nan": math.nan,
    "infinity": math.inf,
    "large": 1 << 53,
    "larger": 1 << 64,
    "endless": 10**5000,
    "list": ["x"],
    "list-of-none": [None],
    "list-of-lists": [["x"]],
    "list-of-long": ["x" * (1 << 20)],
    "list-too-long": ["x"] * 20_000,
    "list-endless": [10**5000],
    "list-of-objects": [{"title": "\ud800"}, {"nonsense": 1}],
    "records": [{"record": "task"}, {"record": "task", "task_id": "X1", "title": None, "after": "F001"}],
    "odd-records": [{"record": "message", "text": 1}, {"record": "receipt", "body": []}, {"record": "project"}],
    "deep": _deep(100_000),
    "object": {},
    "strange-object": {"a": math.nan, "b": "\ud800"},
    "odd-keys": {1: 2, None: 3},
    "deep-object": {"metadata": _deep(5_000)},
    "long-key": {"x" * (1 << 20): 1},
    "settings": {"task_lease": {"default_hours": -1}},
    "long-setting": {"task_lease": {"x" * (1 << 20): 1}},
    "escaped-setting": {"tenure": {"a\x1b[31m\ud800": 1}},
    "long-profile": {"profiles": {"x" * (1 << 20): {"base": "cli"}}},
    "endless-settings": {"task_lease": {"default_hours": 10**5000}},
    "bytes": b"x",
    "thing": object(),
}


def arguments_of(name: str, world: World) -> dict[str, Any]:
    """Arguments with which the verb can be called, in the world of these tests."""
    parameters = inspect.signature(VERBS[name].body).parameters
    good = {
        argument: GOOD[argument]
        for argument, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    }
    if "caller" in parameters:
        good.update(task_id="F001", agent_id="A1")
    if "claimant" in parameters:
        good.update(agent_id="A1", profile="agent")
    good.update(ALSO.get(name, {}))
    return {argument: world.named.get(str(value), value) for argument, value in good.items()}


class World:
    """A little of everything: a held task, one that waits for it, a free one, links, servers, messages, receipts."""

    def __init__(self) -> None:
        self.store = SqliteStore(":memory:", clock=ManualClock())
        ok(projects.create_project(self.store, project_id="other"))
        for agent in ("A1", "A2"):
            join(self.store, agent)
        add(self.store)
        add(self.store, "F002", after=["F001"])
        add(self.store, "F003")
        lease = take(self.store, "A1")
        given_back = take(self.store, "A2", "F003")
        ok(endings.release(self.store, lease_id=given_back.lease_id, message="over to you"))
        link = ok(agents.link_up(self.store, agent_id="A1", incarnation=1))
        ok(agents.start_server(self.store, server_id="s1"))
        ok(notes.send_message(self.store, text="hi", sender="ann", task_id="F001", to="A1"))
        receipt = ok(list_receipts(self.store))[0]
        # What only this world knows the names of.
        handoff = ok(show_task(self.store, task_id="F003")).handoffs[0]
        ok(boards.connect_board(self.store, url="http://127.0.0.1:1", board="WEB", token="t"))
        ok(projects.configure(self.store, document={"tenure": {"receiptgate_url": "http://127.0.0.1:1"}}))
        self.named = {
            "{link}": link.link_id,
            "{receipt}": receipt.receipt_id,
            "{handoff}": handoff.handoff_id,
            "{lease}": lease.lease_id,
        }
        self.good = whole(self.store)
        self.saved = SqliteStore(":memory:", clock=ManualClock())
        self.store.connection.backup(self.saved.connection)

    def reset(self) -> None:
        self.saved.connection.backup(self.store.connection)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.store.close()
    made.saved.close()


def well_refused(answer: Any) -> bool:
    """Whether the answer is a refusal; then it must be a good one."""
    if not isinstance(answer, Refused):
        return False
    assert answer.code in CODES
    assert answer.message.strip()
    assert answer.next.strip()
    assert len(answer.message) < 2_000, "a refusal does not repeat a megabyte"
    answer.message.encode()
    return True


def attempt(world: World, name: str, arguments: dict[str, Any]) -> Any:
    """Call the verb. A refusal must have written nothing, except what design says commits with it."""
    answer = call(world.store, name, **arguments)
    # A poll is a sign of life, and what a lost holder had to say goes to the thread.
    if well_refused(answer) and answer.code not in ("nothing_ready", "lease_lost"):
        assert whole(world.store) == world.good, f"{answer.code} left something behind"
    else:
        world.reset()
    return answer


@pytest.mark.parametrize("name", NAMES)
def test_call_verb_with_bad_values_refuses_and_writes_nothing(world: World, name: str) -> None:
    world.reset()
    good = arguments_of(name, world)
    for argument in VERBS[name].inputs:
        for value_name, value in BAD.items():
            try:
                attempt(world, name, {**good, argument: value})
            except BaseException as error:
                world.reset()
                raise AssertionError(f"{name}({argument}={value_name}): {error!r}") from error


@pytest.mark.parametrize("name", NAMES)
def test_call_verb_with_good_values_is_not_refused_for_them(world: World, name: str) -> None:
    """Without this the walk could be refused at the door for another argument each time."""
    world.reset()
    answer = attempt(world, name, arguments_of(name, world))
    if isinstance(answer, Refused):
        assert (name, answer.code) in {
            ("accept", "already_accepted"),
            ("reopen_task", "wrong_state"),
            ("requeue_task", "task_held"),
            ("unblock_task", "wrong_state"),
        }


@pytest.mark.parametrize("name", NAMES)
def test_declare_verb_checks_every_argument_and_no_other(name: str) -> None:
    made = VERBS[name]
    several = {"caller": set(CALLER), "claimant": set(CLAIMANT), "fields": set(FIELDS)}
    declared: set[str] = set()
    for argument, parameter in inspect.signature(made.body).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            # Other names pass everything on to another verb's body, which is walked itself.
            declared |= several.get(argument, set(made.inputs)) & set(made.inputs)
            if argument in ("caller", "claimant"):
                assert several[argument] <= set(made.inputs)
        elif argument != "tx":
            assert parameter.kind is parameter.KEYWORD_ONLY
            declared.add(argument)
    assert declared == set(made.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_declare_verb_has_a_docstring(name: str) -> None:
    doc = VERBS[name].__doc__
    assert doc
    assert doc.strip().splitlines()[0].endswith("."), "surfaces print its first line"


# Verbs that only filter by the name, or make what it names, or speak of it without needing it.
FILTERS = {
    "events",
    "list_receipts",
    "recent_events",
    "recent_receipts",
    "list_tasks",
    "list_page",
    "export_page",
    "agents_in",
    "statistics",
    "obligations",
    "list_agents",
    "handoffs_named",
}
MAKES = {"add_task", "add_tasks", "create_project", "register", "start_server", "import_records"}


@pytest.mark.parametrize("name", sorted(set(NAMES) - FILTERS - MAKES))
def test_call_verb_with_an_unknown_name_says_what_is_unknown(world: World, name: str) -> None:
    world.reset()
    good = arguments_of(name, world)
    unknown = {
        "task_id": ("F404", {"task_not_found"}),
        "agent_id": ("A404", {"agent_not_found", "nothing_ready", "already_claimed", "not_holder", "wrong_state"}),
        "lease_id": ("lease-404", {"not_holder", "lease_not_found", "lease_lost"}),
        "link_id": ("link-404", {"link_not_found"}),
        "receipt_id": ("r404", {"receipt_not_found"}),
        "handoff_id": ("h404", {"handoff_not_found"}),
        "needs": ("F404", {"task_not_found", "dependency_not_found"}),
        "to": ("A404", {"agent_not_found"}),
        "project_id": ("nowhere", {"project_not_found", "task_not_found"}),
        "profile": ("nothing", {"invalid_argument"}),
    }
    for argument in VERBS[name].inputs:
        if argument not in unknown:
            continue
        value, codes = unknown[argument]
        answer = attempt(world, name, {**good, argument: value})
        if isinstance(answer, Refused):
            assert answer.code in codes, f"{name}({argument}={value}): {answer.code}"
        else:
            # A first claim registers, an operator needs no registration, and a look at nothing shows nothing.
            assert (name, argument) in {
                ("briefing", "agent_id"),
                ("task_context", "agent_id"),
                ("prospects", "agent_id"),
                ("why", "agent_id"),
                ("offer", "agent_id"),
                ("claim_next", "agent_id"),
                ("submit_receipt", "agent_id"),
                ("ready_tasks", "project_id"),
                ("graph", "project_id"),
                ("verify", "project_id"),
                ("send_message", "agent_id"),
                ("submit_receipt", "project_id"),
            }, f"{name}({argument}={value}) was accepted: {answer!r}"


@pytest.mark.parametrize(
    ("verb", "given", "missing"),
    [
        (claims.claim_next, {}, "agent_id"),
        (claims.claim, {"agent_id": "A1"}, "task_id"),
        (claims.claim, {}, "agent_id"),
        (liveness.report, {"task_id": "F001"}, "progress"),
    ],
)
def test_call_verb_without_what_it_needs_names_the_first(
    world: World, verb: Any, given: dict[str, Any], missing: str
) -> None:
    assert refused(verb(world.store, **given), "invalid_argument").facts["argument"] == missing


def test_call_verb_twice_for_a_dependency_cycle_refuses(world: World) -> None:
    world.reset()
    store = world.store
    for task_id, needs in (("F001", "F002"), ("F001", "F001")):
        refused(dependencies.add_dependency(store, task_id=task_id, needs=needs), "cycle")
    assert whole(store) == world.good


@pytest.mark.parametrize("agent_id", ["-x", "Marcus", "marcus", "", "..", "a b", "x" * 129])
def test_register_under_an_impossible_name_is_refused(world: World, agent_id: str) -> None:
    world.reset()
    answer = attempt(world, "register", {"agent_id": agent_id})
    assert isinstance(answer, Refused)
    assert answer.code in ("invalid_argument", "reserved_name")


@pytest.mark.parametrize(
    "body",
    [
        {"phase": "teleported"},
        {"phase": "progress", "progress": 101},
        {"phase": "progress", "progress": -1},
        {"phase": "progress", "progress": True},
        {"phase": "progress", "status": "success"},
        {"phase": "complete"},
        {"phase": "complete", "status": "victory"},
        {"phase": "complete", "status": "success"},
        {"phase": "complete", "status": "success", "outcome_kind": "artifact_pointer"},
        {"phase": "complete", "status": ["success"]},
        {"phase": "escalate"},
        {"phase": "escalate", "escalation_class": "policy"},
        {"phase": "progress", "dedupe_key": "x" * 257},
        {"phase": "progress", "nonsense": 1},
        {"phase": "progress", "message": "a\x00b"},
        {"phase": "progress", "metadata": {"deep": _deep(10_000)}},
        {"phase": ["progress"]},
        {},
    ],
    ids=lambda body: ",".join(body) or "empty",
)
def test_submit_bad_receipt_refuses_and_records_nothing(world: World, body: dict[str, Any]) -> None:
    world.reset()
    answer = attempt(world, "submit_receipt", {"body": {"task_id": "F001", "source_system": "A1", **body}})
    assert refused(answer, "invalid_receipt").http_status == 422


AT = {"task_id": "F001", "at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    "record",
    [
        {"record": "project", "project_id": {}},
        {"record": "project", "project_id": "p", "settings": {"nonsense": {}}},
        {"record": "task"},
        {"record": "task", "title": "T", "project_id": ["x"]},
        {"record": "task", "title": "T", "not_before": "tomorrow"},
        {"record": "task", "title": "T", "status": ["done"]},
        {"record": "task", "title": "T", "progress": 101},
        {"record": "task", "title": "T", "status": "blocked", "blocked_reason": "a\ud800"},
        {"record": "task", "title": "T", "status": "blocked", "blocked_reason": ["x"]},
        {"record": "message", **AT, "project_id": ["x"], "text": "x"},
        {"record": "message", **AT, "text": "a\x00b"},
        {"record": "message", **AT, "text": "x", "at": 5},
        {"record": "message", **AT, "text": "x", "task_id": "F404"},
        {"record": "decision", **AT, "decision": ["x"]},
        {"record": "artifact", **AT, "filename": "a", "location": ["x"]},
        {"record": "artifact", **AT, "filename": "a", "content": {"x": 1}},
    ],
    ids=lambda record: ",".join(record),
)
def test_import_bad_record_refuses_and_writes_nothing(world: World, record: dict[str, Any]) -> None:
    world.reset()
    good = {"record": "task", "task_id": "X1", "title": "a good one before it"}
    answer = attempt(world, "import_records", {"records": [good, record]})
    assert isinstance(answer, Refused)


@pytest.mark.parametrize("content", [None, [], False, ""])
def test_import_artifact_that_has_no_content_keeps_its_place(world: World, content: Any) -> None:
    world.reset()
    record = {"record": "artifact", **AT, "filename": "a", "location": "s3://b/a", "content": content}
    assert ok(call(world.store, "import_records", records=[record])) == {"artifacts": 1}
    (made,) = ok(notes.artifacts(world.store, task_id="F001"))
    assert (made.location, made.content or "") == ("s3://b/a", "")


def test_call_with_neither_task_nor_lease_says_which_is_needed(world: World) -> None:
    world.reset()
    for answer in (
        liveness.renew(world.store, agent_id="A1"),
        endings.complete(world.store, agent_id="A1"),
        liveness.report(world.store, task_id="F001", progress=1),
        claims.accept(world.store),
        endings.block(world.store, agent_id="A1", reason="x"),
        endings.complete(world.store, agent_id="A1", force=True),
        tasks.add_task(world.store, project_id="default"),
        notes.send_message(world.store, text="x", sender="ann"),
        notes.log_artifact(world.store, task_id="F001", agent_id="A1", filename="x"),
        submit_receipt(world.store, body={"phase": "progress"}),
    ):
        assert well_refused(answer)
    assert whole(world.store) == world.good
