"""Every event the engine records has a sentence, and the sentence can be told from what the event carries."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import tenure
from tenure.core.model import Event
from tenure.core.story import SENTENCES, recovery_numbers, sentence

SOURCE = Path(tenure.__file__).parent


def _recorded() -> dict[str, set[str]]:
    """The event kinds that `change.record` is called with, and the data each call gives by name."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name != "record":
                continue
            kinds = [leaf.value for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Constant)]
            if isinstance(node.args[1], ast.Name):
                # claims._give computes it: kind = "granted" if ... else "offered".
                kinds = ["granted", "offered"]
            for kind in kinds:
                found.setdefault(str(kind), set()).update(keyword.arg or "**" for keyword in node.keywords)
    return found


def test_every_recorded_event_has_a_sentence() -> None:
    recorded = _recorded()
    assert len(recorded) > 30, "the search finds them"
    assert set(recorded) - set(SENTENCES) == set()


def test_every_sentence_is_of_an_event_that_is_recorded() -> None:
    assert set(SENTENCES) - set(_recorded()) == set()


def tell(kind: str, data: dict[str, object], agent_id: str | None = "A1") -> str:
    return sentence(Event(seq=1, at_ms=0, kind=kind, agent_id=agent_id, data=json.dumps(data)))


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("granted", {"profile": "cli", "token": 7, "expires_at_ms": 9}, "claimed by A1 (cli, token 7)"),
        ("reported", {"progress": 40, "message": "half"}, "A1 reports 40%: half"),
        ("reported", {"progress": 40, "message": ""}, "A1 reports 40%"),
        ("released", {"message": "tired"}, "released by A1: tired"),
        ("released", {"message": ""}, "released by A1"),
        ("assigned", {"assigned_to": None}, "assigned to nobody by A1"),
        ("task_edited", {"fields": ["body", "title"]}, "edited: body, title"),
        ("revoked", {"reason": "preempted", "by": "operator"}, "taken away from A1 (preempted) by operator"),
        ("revoked", {"reason": "completed_elsewhere", "by": ""}, "taken away from A1 (completed_elsewhere)"),
        ("returned", {"after_ms": 1500}, "A1 proved to be alive 1.5 s after its recovery"),
        ("configured", {"project": None}, "settings of the store changed"),
        ("decision", {"decision": "use {braces} and %s"}, "A1 decided: use {braces} and %s"),
    ],
)
def test_tell_event(kind: str, data: dict[str, object], expected: str) -> None:
    assert tell(kind, data) == expected


def test_tell_event_of_nobody_names_someone() -> None:
    assert tell("task_deleted", {}, agent_id=None) == "deleted by someone"


def test_tell_event_of_a_newer_version_shows_its_name() -> None:
    assert tell("teleported", {"to": "Mars"}) == "teleported"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"silent_s": 120.0, "lease_s": 90.0, "grace_s": 30.0, "median_s": 25.0, "cadence_s": 37.5},
            "silent 120 s; allowed lease 90 + grace 30; cadence 37.5",
        ),
        (
            {"silent_s": 80.0, "lease_s": 60.0, "grace_s": 20.0, "median_s": None, "cadence_s": 0.0},
            "silent 80 s; allowed lease 60 + grace 20",
        ),
        (
            {"silent_s": 300.0, "lease_s": 120.0, "grace_s": 30.0, "median_s": 150.0, "cadence_s": 300.0},
            "silent 300 s; allowed lease 120 + grace 30; cadence 300",
        ),
        ({"silent_s": 3.0, "reason": "process_exited", "died_at_ms": 1}, "its process was seen to exit; silent 3 s"),
    ],
)
def test_tell_recovery_in_numbers(data: dict[str, object], expected: str) -> None:
    assert recovery_numbers(data) == expected
