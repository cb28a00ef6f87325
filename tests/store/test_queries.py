"""The named queries: all used, all sound, and the ones on the hot path walk an index.

A query plan is a promise here: `ready` at ten million tasks must cost what it costs at ten, so a plan that reads a
whole table fails, however fast it is on a small one.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.clock import ManualClock
from tenure.engine import agents, claims, liveness, recovery, tasks, touch
from tenure.store import queries
from tenure.store.batch import Statement
from tenure.store.sqlite import SCHEMA_VERSION, SqliteStore
from tests.support import add, join, ok, take

NAMED = queries.load("queries.sql")
SOURCES = sorted(Path(tenure.__file__).parent.rglob("*.py"))


class Anything(dict[str, Any]):
    """Values for whatever parameters a query has."""

    def __missing__(self, name: str) -> None:
        return None


def named(expression: ast.expr) -> str:
    """The query an expression names; one made of a prefix and a variable ends with an asterisk."""
    if isinstance(expression, ast.Constant):
        return str(expression.value)
    start = expression.left if isinstance(expression, ast.BinOp) else expression
    if isinstance(expression, ast.JoinedStr):
        start = expression.values[0]
    assert isinstance(start, ast.Constant), (
        f"a query is named by {ast.unparse(expression)}, which nobody can search for"
    )
    return str(start.value) + "*"


def run_by(source: Path) -> Iterator[str]:
    """The queries that a module runs: in tx.one, tx.all and tx.do, and by queries[...]."""
    for node in ast.walk(ast.parse(source.read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("one", "all", "do", "put")
            and isinstance(node.func.value, ast.Name)
            and (
                node.func.value.id in ("tx", "transaction")
                # A batch runs queries of its own beside those it is given.
                or (source.stem == "batch" and isinstance(node.args[0], ast.Constant))
            )
        ):
            yield named(node.args[0])
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("queries", "self.queries"):
            yield named(node.slice)


def all_run() -> list[str]:
    """Outside store/store.py and the loader, which handle queries by whatever name they are given."""
    sources = [
        source for source in SOURCES if source.parent.name != "store" or source.stem in ("anchor", "batch", "sqlite")
    ]
    return sorted({name for source in sources for name in run_by(source)})


# -- the loader -------------------------------------------------------------------------------------------------------


def test_load_every_query_that_the_source_runs_exists() -> None:
    assert [name for name in all_run() if not fnmatch.filter(NAMED, name)] == []


def test_load_every_query_is_run_somewhere() -> None:
    patterns = all_run()
    assert [name for name in NAMED if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)] == []


@pytest.mark.parametrize("name", NAMED)
def test_compile_each_query_on_the_schema_succeeds(store: SqliteStore, name: str) -> None:
    assert "{" not in NAMED[name], "a fragment that nobody defined"
    store.connection.execute("EXPLAIN " + NAMED[name], Anything())


@pytest.mark.parametrize("name", NAMED)
def test_place_bound_statement_takes_the_values_of_the_named_one(store: SqliteStore, name: str) -> None:
    statement = Statement(name, NAMED[name])
    named = set(re.findall(r":([a-z]\w*)", re.sub(r"'[^']*'", "''", NAMED[name])))
    assert set(statement.names) == named
    store.connection.execute("EXPLAIN " + statement.text, statement.values(Anything()))


def test_parse_a_name_defined_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="the query one is defined twice"):
        queries.parse("-- name: one\nSELECT 1\n\n-- name: one\nSELECT 2\n")


def test_parse_a_query_ends_at_the_first_empty_line_and_takes_fragments() -> None:
    text = "-- fragment: what\n1 + 1\n\n-- name: sum\nSELECT {what}\nFROM t\n\nnot part of it\n-- name: next\nSELECT 2"
    assert queries.parse(text) == {"sum": "SELECT 1 + 1\nFROM t", "next": "SELECT 2"}


def test_migrations_are_numbered_in_order_to_the_schema_version() -> None:
    # Numbers may be left out: several changes were written at the same time, each with its own.
    numbers = [number for number, _ in queries.migrations()]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, SCHEMA_VERSION)


@pytest.mark.parametrize("name", queries.RECORDS)
def test_record_has_a_column_for_each_of_its_fields(store: SqliteStore, name: str) -> None:
    record, _, joined, _ = queries.RECORDS[name]
    columns = {row[1] for row in store.connection.execute(f"PRAGMA table_info({name}s)")}
    assert set(record._fields) - {joined} - columns == set()


# -- plans ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def populated(store: SqliteStore) -> SqliteStore:
    """A store with a history."""
    join(store, "A1")
    ok(tasks.add_tasks(store, tasks=[{"task_id": f"T{number}", "title": "T", "kind": "k"} for number in range(300)]))
    for number in range(0, 300, 3):
        take(store, "A1", f"T{number}", profile="cli")
    return store


def plan(store: SqliteStore, name: str) -> list[str]:
    return [row[3] for row in store.connection.execute("EXPLAIN QUERY PLAN " + NAMED[name], Anything())]


# query, the index it must seek, and whether a sort may stand: of the sets that were sought, or of one agent's leases.
PLANS = [
    ("ready", "tasks_ready (project_id=? AND requires=?)", True),
    ("ready_ahead", "tasks_ready (project_id=? AND requires=?)", False),
    ("ready_of_kind", "tasks_ready_kind (project_id=? AND kind=? AND requires=?)", True),
    ("kept_for", "tasks_kept (project_id=? AND assigned_to=?)", False),
    ("due_timers", "timers_wake (wake_at_ms<?)", False),
    ("next_wake", "timers_wake", False),
    ("unended_of_agent", "leases_of_agent (agent_id=?)", True),
    ("unended_of_task", "leases_one_per_slot (task_key=?)", False),
    ("receipts_to_resend", "gate_receipts_resend (project_id=? AND gate=? AND resend_seq>?)", False),
    ("newest_parked", "gate_receipts_parked (project_id=? AND gate=?)", False),
    ("tasks_named", "sqlite_autoindex_tasks_1 (task_id=?)", False),
]


def walks(steps: list[str]) -> list[str]:
    return [step for step in steps if step.startswith("SCAN") and "VIRTUAL TABLE" not in step]


@pytest.mark.parametrize(("name", "index", "may_sort"), PLANS, ids=[name for name, _, _ in PLANS])
def test_plan_of_a_hot_query_seeks_its_index_and_walks_no_table(
    populated: SqliteStore, name: str, index: str, may_sort: bool
) -> None:
    steps = plan(populated, name)
    assert any("INDEX " + index in step for step in steps), steps
    # The one walk that is a seek: to the first entry of the timer index, and no further.
    assert walks(steps) == (["SCAN timers USING COVERING INDEX timers_wake"] if name == "next_wake" else []), steps
    assert len([step for step in steps if "TEMP B-TREE" in step]) <= may_sort, steps


@pytest.mark.parametrize("name", [name for name, _, _ in PLANS if name != "next_wake"])
def test_plan_of_a_hot_query_after_analyze_still_walks_no_table(populated: SqliteStore, name: str) -> None:
    """Somebody's ANALYZE may choose another index of the same rows, but not the table."""
    populated.connection.execute("ANALYZE")
    assert walks(plan(populated, name)) == []


def test_plan_of_any_kept_seeks_what_the_project_keeps_and_not_what_it_has_to_do(populated: SqliteStore) -> None:
    assert plan(populated, "any_kept") == ["SEARCH t USING INDEX tasks_kept (project_id=? AND assigned_to>?)"]


@pytest.mark.parametrize("name", ["ready", "ready_of_kind"])
def test_plan_of_ready_sorts_only_the_best_of_each_set(populated: SqliteStore, name: str) -> None:
    """A sort inside the subquery would be of every ready task."""
    rows = populated.connection.execute("EXPLAIN QUERY PLAN " + NAMED[name], Anything()).fetchall()
    sorts = [parent for _, parent, _, step in rows if "TEMP B-TREE" in step]
    assert sorts in ([], [0]), rows


@pytest.mark.parametrize("sets", [1, 20])
def test_ready_with_many_tasks_reads_as_little_as_with_few(store: SqliteStore, sets: int) -> None:
    """Counted in the steps of SQLite's machine, not in time."""

    def steps() -> int:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        values = {"project_id": "default", "agent_id": "A1", "sets": "[" + ",".join(['""'] * sets) + "]"}
        store.connection.set_progress_handler(tick, 1)
        assert store.connection.execute(NAMED["ready"], values).fetchone() is not None
        store.connection.set_progress_handler(None, 0)
        return count

    add(store)
    few = steps()
    ok(tasks.add_tasks(store, tasks=[{"task_id": f"T{number}", "title": "T"} for number in range(900)]))
    assert steps() <= few * 1.1


# -- a touch moves no index -------------------------------------------------------------------------------------------


def index_writes(store: SqliteStore, statement: str) -> list[str]:
    opcodes = [row[1] for row in store.connection.execute("EXPLAIN " + statement, Anything())]
    return [opcode for opcode in opcodes if opcode in ("IdxInsert", "IdxDelete")]


@pytest.mark.parametrize("name", ["extend_lease", "see_agent", "pulse_link", "save_progress"])
def test_update_of_a_sign_of_life_rewrites_no_index(store: SqliteStore, name: str) -> None:
    assert index_writes(store, NAMED[name]) == []


def test_index_writes_are_seen_where_there_are_some(store: SqliteStore) -> None:
    assert index_writes(store, NAMED["end_lease"])


@pytest.mark.parametrize("sign", ["touch", "renew", "pulse", "announced"])
def test_sign_of_life_of_a_holder_writes_its_rows_and_no_index(
    store: SqliteStore, clock: ManualClock, sign: str
) -> None:
    """The whole verb, as it runs: every statement it sends is explained."""
    add(store)
    join(store, "A1")
    lease = take(store, "A1")
    link = ok(agents.link_up(store, agent_id="A1", incarnation=1))
    clock.advance(10)
    statements: list[str] = []
    store.connection.set_trace_callback(statements.append)
    if sign == "touch":
        ok(touch.touch(store, agent_id="A1"))
    elif sign == "renew":
        ok(liveness.renew(store, lease_id=lease.lease_id))
    elif sign == "announced":
        ok(touch.touch(store, agent_id="A1", expect_silence_s=600))
    else:
        ok(agents.pulse(store, link_id=link.link_id))
    store.connection.set_trace_callback(None)
    writes = [sql for sql in statements if sql.lstrip().startswith(("INSERT", "UPDATE", "DELETE"))]
    assert 1 <= len(writes) <= 2, writes
    assert [index_writes(store, sql) for sql in writes] == [[]] * len(writes), writes


def test_touch_leaves_the_timer_where_it_was_and_it_is_raised_when_it_fires(
    store: SqliteStore, clock: ManualClock
) -> None:
    add(store)
    join(store, "A1")
    take(store, "A1")
    before = store.connection.execute("SELECT * FROM timers").fetchall()
    clock.advance(20)
    ok(touch.touch(store, agent_id="A1"))
    assert store.connection.execute("SELECT * FROM timers").fetchall() == before
    clock.advance(75)
    fired = ok(recovery.advance(store))
    assert (fired.fired, fired.recovered) == (1, 0)
    raised = store.connection.execute("SELECT wake_at_ms FROM timers").fetchone()[0]
    assert raised > before[0][2]
    assert ok(claims.leases_of(store, agent_id="A1"))


@pytest.mark.parametrize(
    ("remembered", "tables"),
    [
        ("settings", ("projects", "meta")),
        ("requirement_sets", ("requirement_sets",)),
        ("agents", ("agents",)),
    ],
)
def test_every_write_of_a_remembered_table_forgets_it(remembered: str, tables: tuple[str, ...]) -> None:
    writes = re.compile(rf"\b(?:INSERT INTO|UPDATE|DELETE FROM) (?:{'|'.join(tables)})\b")
    # Re-anchoring runs before a batch's first verb, and clears what the connection remembers itself.
    before_any_verb = {"shift_agents"}
    found = {name for name, text in queries.load("queries.sql").items() if writes.search(text)} - before_any_verb
    assert found == {name for name, table in queries.FORGETS.items() if table == remembered}


def test_timers_are_written_only_where_the_nearest_is_kept() -> None:
    """`change.set_timer` keeps the remembered nearest timer true; a dropped timer leaves it a lower bound."""
    source = Path(queries.__file__).parents[1]
    writers = [
        (path.name, line.strip())
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if '(tx, "set_timer"' in line or 'do("set_timer"' in line
    ]
    assert [name for name, _ in writers] == ["change.py"]
