"""No verb does more than a pinned number of statements, and none does more because there is more of everything.

A statement is a round trip to a database that may be far away, and holds the write lock of one that is near. A pin that
has to be raised is a change of cost, to be made on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tenure.clock import ManualClock
from tenure.core.errors import Refused
from tenure.engine import (
    agents,
    alerts,
    boards,
    claims,
    dependencies,
    endings,
    gates,
    handoffs,
    links,
    liveness,
    notes,
    observe,
    outbox,
    projects,
    receipts,
    recovery,
    transfer,
)
from tenure.engine import board as by_hand
from tenure.engine import tasks as board
from tenure.engine.touch import touch
from tenure.engine.verb import VERBS
from tenure.store.sqlite import SqliteStore
from tests.support import add, join, ok, take

# Counted on SQLite; on PostgreSQL most of these travel together (tests/postgres/test_round_trips.py).
pytestmark = pytest.mark.sqlite_only

Act = Callable[[], object]

MANY = 1_000
FEW = 10
DEPENDANTS = 50


def lease_of(store: SqliteStore, agent_id: str) -> str:
    return ok(claims.leases_of(store, agent_id=agent_id))[0].lease_id


def submitting(store: SqliteStore, agent_id: str, phase: str, **fields: object) -> Act:
    body = {"phase": phase, "lease_id": lease_of(store, agent_id), **fields}
    return partial(receipts.submit_receipt, store, body=body)


def connected(store: SqliteStore, verb: Callable[[SqliteStore], object]) -> Act:
    ok(boards.connect_board(store, url="http://b", board="B"))
    return partial(verb, store)


def with_a_gate(store: SqliteStore) -> Act:
    """Parked receipts of a gate."""
    ok(projects.configure(store, document={"tenure": {"receiptgate_url": "http://g"}}))
    name = gates.GateName(project_id="default", gate="http://g default")
    found = ok(receipts.list_receipts(store))
    for receipt in found:
        store.run(partial(gates.park, name=name, receipt=receipt, reason="HTTP 422"))
    return partial(outbox.resend_receipts, store, receipt_id=found[0].receipt_id)


def lapsed(store: SqliteStore) -> Act:
    """A look at the timers that finds one dead holder."""
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(3_600)
    return partial(recovery.advance, store, limit=1)


def handed_over(store: SqliteStore) -> Act:
    """What was seen of a holder that gave its task back."""
    ok(endings.release(store, task_id="HELD", agent_id="A1", message="Over to you."))
    handoff = ok(observe.show_task(store, task_id="HELD")).handoffs[0]
    return partial(handoffs.attach_facts, store, handoff_id=handoff.handoff_id, facts={"output_tail": "Killed."})


# verb, or verb and case: the most statements of its ordinary path (BEGIN, the clock and COMMIT are three of them), and
# how to make the call on the fleet below.
PINS: dict[str, tuple[int, Callable[[SqliteStore], Act]]] = {
    "touch": (7, lambda s: partial(touch, s, agent_id="A1")),
    "renew": (9, lambda s: partial(liveness.renew, s, task_id="HELD", agent_id="A1")),
    "renew by lease": (10, lambda s: partial(liveness.renew, s, lease_id=lease_of(s, "A1"))),
    "report": (11, lambda s: partial(liveness.report, s, task_id="HELD", agent_id="A1", progress=10)),
    "report by lease": (12, lambda s: partial(liveness.report, s, lease_id=lease_of(s, "A1"), progress=10)),
    "pulse": (8, lambda s: partial(agents.pulse, s, link_id=ok(agents.link_up(s, agent_id="A1")).link_id)),
    "pulse_server": (5, lambda s: partial(agents.pulse_server, s, server_id="S1")),
    "claim": (17, lambda s: partial(claims.claim, s, task_id="FREE", agent_id="A2", profile="agent")),
    "claim_next": (21, lambda s: partial(claims.claim_next, s, agent_id="A2", profile="agent")),
    "claim_next in vain": (12, lambda s: partial(claims.claim_next, s, agent_id="A2", project_id="empty")),
    "offer": (18, lambda s: partial(claims.offer, s, agent_id="A2")),
    "accept": (17, lambda s: partial(claims.accept, s, lease_id=lease_of(s, "W1"))),
    "release": (17, lambda s: partial(endings.release, s, task_id="HELD", agent_id="A1")),
    "complete": (15, lambda s: partial(endings.complete, s, task_id="HELD", agent_id="A1")),
    "complete by lease": (16, lambda s: partial(endings.complete, s, lease_id=lease_of(s, "A1"))),
    "block": (23, lambda s: partial(endings.block, s, task_id="HELD", agent_id="A1", reason="No key.")),
    "revoke": (18, lambda s: partial(endings.revoke, s, task_id="HELD")),
    "submit_receipt accepted": (12, lambda s: submitting(s, "W1", "accepted")),
    "submit_receipt progress": (11, lambda s: submitting(s, "W2", "progress", progress=50)),
    "submit_receipt complete": (
        14,
        lambda s: submitting(s, "W2", "complete", status="success", outcome_kind="none"),
    ),
    "advance": (5, lambda s: partial(recovery.advance, s)),
    "advance recovers": (23, lapsed),
    "attach_facts": (5, handed_over),
    "log_decision": (11, lambda s: partial(notes.log_decision, s, task_id="HELD", agent_id="A1", decision="Yes.")),
    "log_artifact": (
        12,
        lambda s: partial(notes.log_artifact, s, task_id="HELD", agent_id="A1", filename="a.md", content="Text."),
    ),
    "send_message": (7, lambda s: partial(notes.send_message, s, sender="A1", task_id="HELD", to="A2", text="Look.")),
    "inbox": (7, lambda s: partial(notes.inbox, s, agent_id="A2")),
    "read_messages": (8, lambda s: partial(notes.read_messages, s, task_id="HELD", agent_id="A2")),
    "add_task": (17, lambda s: partial(board.add_task, s, task_id="NEW", title="More", after=["FREE"])),
    "add_tasks": (13, lambda s: partial(board.add_tasks, s, tasks=[{"task_id": "NEW", "title": "More"}])),
    "edit_task": (9, lambda s: partial(board.edit_task, s, task_id="FREE", title="Other")),
    "assign_task": (9, lambda s: partial(board.assign_task, s, task_id="FREE", assigned_to="A2")),
    "unblock_task": (6, lambda s: partial(board.unblock_task, s, task_id="BLOCKED")),
    "requeue_task": (7, lambda s: partial(board.requeue_task, s, task_id="BLOCKED")),
    "reopen_task": (7, lambda s: partial(board.reopen_task, s, task_id="DONE")),
    "delete_task": (18, lambda s: partial(board.delete_task, s, task_id="FREE")),
    "add_dependency": (13, lambda s: partial(dependencies.add_dependency, s, task_id="FREE", needs="HELD")),
    "remove_dependency": (9, lambda s: partial(dependencies.remove_dependency, s, task_id="LATER", needs="HELD")),
    "register": (7, lambda s: partial(agents.register, s, agent_id="A2")),
    "arrive": (6, lambda s: partial(agents.arrive, s, agent_id="A2")),
    "depart": (10, lambda s: partial(agents.depart, s, agent_id="A1")),
    "hear": (12, lambda s: partial(notes.hear, s, agent_id="A2", task_id="HELD")),
    "link_up": (9, lambda s: partial(agents.link_up, s, agent_id="A1")),
    "link_down": (
        12,
        lambda s: partial(agents.link_down, s, link_id=ok(agents.link_up(s, agent_id="A1")).link_id, died=True),
    ),
    "last_words": (
        5,
        lambda s: partial(
            links.last_words, s, link_id=ok(agents.link_up(s, agent_id="A1")).link_id, exited="exited with 1"
        ),
    ),
    "start_server": (7, lambda s: partial(agents.start_server, s, server_id="S1")),
    "create_project": (7, lambda s: partial(projects.create_project, s, project_id="new")),
    "configure": (7, lambda s: partial(projects.configure, s, project_id="empty", document={})),
    "import_records": (
        17,
        lambda s: partial(transfer.import_records, s, records=[{"record": "task", "task_id": "NEW", "title": "More"}]),
    ),
    "alert_gridlock": (9, lambda s: partial(alerts.alert_gridlock, s)),
    "connect_board": (13, lambda s: partial(boards.connect_board, s, url="http://b", board="B")),
    "disconnect_board": (12, lambda s: connected(s, boards.disconnect_board)),
    "resend_receipts": (11, with_a_gate),
    "retry_board": (11, lambda s: connected(s, boards.retry_board)),
    "move_task": (20, lambda s: partial(by_hand.move_task, s, task_id="HELD", status="todo", revoke=True)),
    "seal": (6, lambda s: partial(receipts.seal, s)),
    "prune": (11, lambda s: partial(observe.prune, s)),
}


@pytest.fixture
def fleet(store: SqliteStore) -> SqliteStore:
    """A task in each state: one held by an agent, one offered to a worker, one accepted by another."""
    ok(projects.create_project(store, project_id="empty"))
    ok(agents.start_server(store, server_id="S1"))
    for agent_id in ("A1", "A2", "W1", "W2"):
        join(store, agent_id)
    for task_id in ("HELD", "OFFERED", "ACCEPTED", "DONE", "BLOCKED"):
        add(store, task_id)
    add(store, "LATER", after=["HELD"])
    take(store, "A1", "HELD")
    take(store, "W2", "ACCEPTED", "worker")
    ok(endings.complete(store, task_id="DONE", force=True))
    ok(endings.block(store, task_id="BLOCKED", reason="No key."))
    ok(claims.offer(store, agent_id="W1"))
    ok(notes.send_message(store, sender="A1", task_id="HELD", to="A2", text="Look."))
    add(store, "FREE")
    return store


def statements(store: SqliteStore, act: Act) -> int:
    """How many statements a verb executes; what a foreign key executes on its own is not among them."""
    seen: list[str] = []
    store.connection.set_trace_callback(seen.append)
    answer = act()
    store.connection.set_trace_callback(None)
    assert not isinstance(answer, Refused) or answer.code == "nothing_ready", answer
    return sum(not statement.startswith("--") for statement in seen)


def test_every_writing_verb_has_a_pin() -> None:
    pinned = {name.split()[0] for name in PINS}
    assert pinned == {name for name, verb in VERBS.items() if verb.writes}


@pytest.mark.parametrize("name", PINS)
def test_verb_does_no_more_statements_than_its_pin(name: str, fleet: SqliteStore) -> None:
    most, prepare = PINS[name]
    count = statements(fleet, prepare(fleet))
    assert count <= most, f"{name} does {count} statements"


def grown(count: int, clock: ManualClock) -> SqliteStore:
    """A store with so many ready tasks, agents and live leases."""
    store = SqliteStore(":memory:", clock=clock)
    names = [f"{prefix}-{number}" for prefix in ("HELD", "READY") for number in range(count)]
    ok(board.add_tasks(store, tasks=[{"task_id": name, "title": "A task"} for name in names]))
    for number in range(count):
        join(store, f"A-{number}")
        take(store, f"A-{number}", f"HELD-{number}")
    return store


def test_statements_of_hot_verbs_do_not_grow_with_the_fleet() -> None:
    acts: dict[str, Callable[[SqliteStore], Act]] = {
        "touch": lambda s: partial(touch, s, agent_id="A-5"),
        "report": lambda s: partial(liveness.report, s, task_id="HELD-5", agent_id="A-5", progress=10),
        "claim_next": lambda s: partial(claims.claim_next, s, agent_id="A-5", profile="agent"),
        "claim": lambda s: partial(claims.claim, s, task_id="READY-5", agent_id="A-5", profile="agent"),
        "complete": lambda s: partial(endings.complete, s, task_id="HELD-5", agent_id="A-5"),
        "advance": lambda s: partial(recovery.advance, s),
    }
    counts = []
    for count in (FEW, MANY):
        store = grown(count, ManualClock())
        counts.append({name: statements(store, prepare(store)) for name, prepare in acts.items()})
        store.close()
    assert counts[0] == counts[1]


@pytest.mark.parametrize("dependants", [0, 1, DEPENDANTS])
def test_complete_does_no_more_statements_for_more_dependants(store: SqliteStore, dependants: int) -> None:
    add(store, "FIRST")
    join(store, "A1")
    for number in range(dependants):
        add(store, f"NEXT-{number}", after=["FIRST"])
    take(store, "A1", "FIRST")
    act = partial(endings.complete, store, task_id="FIRST", agent_id="A1")
    assert statements(store, act) <= PINS["complete"][0]
    assert len(ok(observe.ready_tasks(store, limit=MANY))) == dependants
