"""The rules of the ledger, row by row: what a caller may send, what the server fills, what each phase demands, and how
a chain that was tampered with is found."""

from __future__ import annotations

import datetime
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import receipts, times
from tenure.core.errors import Refused
from tenure.core.model import Receipt, Task

NOW_MS = 1_767_541_500_000  # 2026-01-04T15:45:00Z
TASK = Task(
    key=1,
    project_id="default",
    task_id="T-123",
    title="Generate a parser",
    body="Create a function that reads CSV...",
    kind="code.generate",
    principal_ai="delegate.root",
    inputs='{"language":"python"}',
    expected_outcome_kind="artifact_pointer",
    expected_artifact_mime="text/x-python",
    progress=40,
)
# The bodies printed in the specification of the protocol.
PRINTED_ACCEPTED: dict[str, Any] = {
    "phase": "accepted",
    "task_id": "T-123",
    "recipient_ai": "worker.codegen",
    "source_system": "worker.codegen-123",
}
PRINTED_COMPLETE: dict[str, Any] = {
    "phase": "complete",
    "task_id": "T-123",
    "status": "success",
    "outcome_kind": "artifact_pointer",
    "artifact_location": "s3://bucket/result.py",
}
PROGRESS: dict[str, Any] = {"phase": "progress", "task_id": "T-123", "progress": 50}
ESCALATE = {
    "phase": "escalate",
    "task_id": "T-123",
    "escalation_class": "policy",
    "escalation_reason": "lease_expired",
    "escalation_to": "supervisor",
}
BASE: dict[str, dict[str, Any]] = {
    "accepted": PRINTED_ACCEPTED,
    "progress": PROGRESS,
    "complete": PRINTED_COMPLETE,
    "escalate": ESCALATE,
}


def fill(body: dict[str, Any], task: Task | None = TASK, **known: Any) -> dict[str, Any]:
    given_by_server = {"receipt_id": "R-1", "now_ms": NOW_MS, "attempt": 1, "source": "worker.codegen-123", **known}
    return receipts.fill(body, task=task, **given_by_server)


def refused_field(refusal: Refused | None) -> str | None:
    """The field a refusal blames, after checking that it is of the right family and says the field's name."""
    if refusal is None:
        return None
    assert refusal.code == "invalid_receipt"
    assert refusal.facts["field"] in refusal.message
    assert "Nothing was recorded" in refusal.next or "nothing was recorded" in refusal.next
    assert json.dumps(refusal.as_dict(), ensure_ascii=False).encode()
    field = refusal.facts["field"]
    assert isinstance(field, str)
    return field


# --- Shape ------------------------------------------------------------------------------------------------------------


def nested(levels: int) -> dict[str, Any]:
    """An object of that many levels, itself counted."""
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def shared(levels: int) -> dict[str, Any]:
    """Small in memory, 2**levels in JSON: only a walk that keeps count ends."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value, value]
    return {"a": value}


NOT_OBJECTS = [None, [], [PRINTED_ACCEPTED], "accepted", 1, 1.5, True, b"{}", range(2)]


@pytest.mark.parametrize("body", NOT_OBJECTS, ids=repr)
def test_check_shape_given_something_other_than_an_object_refuses_the_body(body: object) -> None:
    assert refused_field(receipts.check_shape(body)) == "body"


ACCEPTED_SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("null means that the field is absent", dict.fromkeys(receipts.FIELDS) | {"phase": "accepted"}),
    ("an id may have 256 characters", {"task_id": "x" * 256}),
    ("characters of ids are counted, not bytes", {"task_id": "é" * 256}),
    ("an id may be empty, which says nothing", {"lease_id": ""}),
    ("a text may have 4 KiB", {"message": "x" * 4096}),
    ("a long text may have 100 KiB", {"outcome_text": "x" * 102_400}),
    ("the task's body may have 100 KiB", {"task_body": "é" * 51_200}),
    ("a text may hold a terminal's colours, as the output of tools does", {"outcome_text": "\x1b[31mred\x1b[0m\n"}),
    ("inputs may have 64 KiB with all their punctuation", {"inputs": {"a": "x" * (65_536 - len('{"a":""}'))}}),
    ("metadata may have 16 KiB with all its punctuation", {"metadata": {"a": "x" * (16_384 - len('{"a":""}'))}}),
    ("metadata may hold every kind of JSON value", {"metadata": {"a": [1, 1.5, "x", None, True, {"b": []}]}}),
    ("metadata may hold as many small values as fit", {"metadata": {"a": [1] * 8188}}),
    ("objects may be 32 levels deep", {"inputs": nested(32)}),
    ("numbers of 64 bits occur as identifiers", {"inputs": {"hash": 2**64 - 1, "least": -(2**64) + 1}}),
    ("a size may be as large as JSON can say exactly", {"artifact_size_bytes": 2**53 - 1}),
    ("a time may have an offset and a fraction", {"completed_at": "2026-01-04T17:45:00.250+02:00"}),
    ("a retry may be asked for", {"retry_requested": True}),
]


@pytest.mark.parametrize(("why", "fields"), ACCEPTED_SHAPES, ids=[row[0] for row in ACCEPTED_SHAPES])
def test_check_shape_given_allowed_values_accepts(why: str, fields: dict[str, Any]) -> None:
    assert receipts.check_shape({"phase": "accepted", "task_id": "T-1", **fields}) is None, why


REFUSED_SHAPES: list[tuple[str, dict[Any, Any], str]] = [
    ("the phase is required", {"phase": None}, "phase"),
    ("the phase is one of four", {"phase": "offered"}, "phase"),
    ("a phase that cannot be looked up is refused", {"phase": ["accepted"]}, "phase"),
    ("an unknown field is named", {"priority": 1}, "priority"),
    ("heartbeats are never in receipts", {"heartbeat": True}, "heartbeat"),
    ("a field name is spelled exactly", {"Task_id": "T-1"}, "Task_id"),
    ("a name that cannot be sent back is escaped", {"\ud800": 1}, "\\ud800"),
    ("a name that is no text is described", {1: 1}, "of type int"),
    ("an id is a string", {"task_id": 7}, "task_id"),
    ("a list is no id, however deep", {"task_id": [[[]]]}, "task_id"),
    ("an id has at most 256 characters", {"task_id": "x" * 257}, "task_id"),
    ("an id has no line break", {"lease_id": "lease\n1"}, "lease_id"),
    ("an id has no NUL", {"dedupe_key": "a\0b"}, "dedupe_key"),
    ("an id has no DEL", {"source_system": "a\x7fb"}, "source_system"),
    ("an id has no C1 control character", {"recipient_ai": "a\x9bb"}, "recipient_ai"),
    ("half a surrogate pair is not text", {"principal_ai": "\ud800"}, "principal_ai"),
    ("half a surrogate pair is not text in a message either", {"message": "a\udfff"}, "message"),
    ("no database keeps NUL in a text", {"message": "a\0b"}, "message"),
    ("a text has at most 4 KiB", {"message": "x" * 4097}, "message"),
    ("bytes of texts are counted, not characters", {"message": "é" * 2049}, "message"),
    ("a long text has at most 100 KiB", {"outcome_text": "x" * 102_401}, "outcome_text"),
    ("the task's body has at most 100 KiB", {"task_body": "é" * 51_201}, "task_body"),
    ("an object is no list", {"inputs": []}, "inputs"),
    ("an object is no JSON text", {"metadata": "{}"}, "metadata"),
    ("inputs have at most 64 KiB", {"inputs": {"a": "x" * (65_537 - len('{"a":""}'))}}, "inputs"),
    ("metadata has at most 16 KiB", {"metadata": {"a": "x" * (16_385 - len('{"a":""}'))}}, "metadata"),
    ("one small value more does not fit", {"metadata": {"a": [1] * 8189}}, "metadata"),
    ("many small values are large too", {"metadata": {"a": [1] * 100_000}}, "metadata"),
    ("a value that repeats itself is not expanded", {"metadata": shared(30)}, "metadata"),
    ("a value inside itself ends at the limit", {"metadata": cyclic()}, "metadata"),
    ("objects are at most 32 levels deep", {"inputs": nested(33)}, "inputs"),
    ("a nesting far beyond the interpreter's own limit is refused, too", {"inputs": nested(100_000)}, "inputs"),
    ("JSON has no NaN", {"inputs": {"a": [float("nan")]}}, "inputs"),
    ("JSON has no infinity", {"inputs": {"a": float("-inf")}}, "inputs"),
    ("a number beyond 64 bits has no reader", {"inputs": {"a": 2**64}}, "inputs"),
    ("a number of many digits is not written out", {"inputs": {"a": 10**5000}}, "inputs"),
    ("the keys of an object are strings", {"inputs": {1: "a"}}, "inputs"),
    ("the keys of an object are text", {"inputs": {"\ud800": "a"}}, "inputs"),
    ("bytes are no JSON", {"metadata": {"a": b"x"}}, "metadata"),
    ("true is not a number", {"attempt": True}, "attempt"),
    ("a fraction is not a whole number", {"progress": 50.0}, "progress"),
    ("digits in quotes are not a number", {"artifact_size_bytes": "12"}, "artifact_size_bytes"),
    ("a size is not negative", {"artifact_size_bytes": -1}, "artifact_size_bytes"),
    ("a size is exact in every reader of JSON", {"artifact_size_bytes": 2**53}, "artifact_size_bytes"),
    ("one is not true", {"retry_requested": 1}, "retry_requested"),
    ("a time is a string", {"created_at": NOW_MS}, "created_at"),
    ("a time has its offset", {"started_at": "2026-01-04T15:45:00"}, "started_at"),
    ("a time has a day that exists", {"completed_at": "2026-02-29T15:45:00Z"}, "completed_at"),
    ("a time has no hundred digits", {"created_at": "2026-01-04T15:45:00." + "0" * 100 + "Z"}, "created_at"),
]


@pytest.mark.parametrize(("why", "fields", "field"), REFUSED_SHAPES, ids=[row[0] for row in REFUSED_SHAPES])
def test_check_shape_given_a_forbidden_value_names_the_field(why: str, fields: dict[Any, Any], field: str) -> None:
    refusal = receipts.check_shape({"phase": "accepted", "task_id": "T-1", **fields})
    assert refusal is not None, why
    assert refusal.facts["field"] == field
    assert refused_field(refusal) == field


# --- Fill -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", BASE.values(), ids=BASE)
@pytest.mark.parametrize("task", [TASK, None], ids=["of a known task", "of no task"])
def test_fill_given_a_minimal_body_yields_every_field_and_a_valid_receipt(
    body: dict[str, Any], task: Task | None
) -> None:
    receipt = fill(body, task)
    assert list(receipt) == list(receipts.FIELDS)
    assert receipts.check_shape(body) is None
    assert receipts.check_shape(receipt) is None
    assert receipts.check_phase(receipt) is None


def test_fill_given_the_printed_acceptance_adds_what_the_server_knows() -> None:
    receipt = fill(PRINTED_ACCEPTED, lease_id="lease-456")
    assert receipt == {name: sentinel for name, (_, _, sentinel) in receipts.FIELDS.items()} | PRINTED_ACCEPTED | {
        "receipt_id": "R-1",
        "created_at": "2026-01-04T15:45:00Z",
        "project_id": "default",
        "lease_id": "lease-456",
        "attempt": 1,
        "principal_ai": "delegate.root",
        "task_type": "code.generate",
        "task_summary": "Generate a parser",
        "task_body": "Create a function that reads CSV...",
        "inputs": {"language": "python"},
        "expected_outcome_kind": "artifact_pointer",
        "expected_artifact_mime": "text/x-python",
    }


def test_fill_given_the_printed_completion_adds_mime_time_and_recipient() -> None:
    receipt = fill(PRINTED_COMPLETE, started_at_ms=NOW_MS - 1500)
    assert receipt["artifact_mime"] == "text/x-python"
    assert receipt["started_at"] == "2026-01-04T15:44:58.500Z"
    assert receipt["completed_at"] == "2026-01-04T15:45:00Z"
    assert receipt["recipient_ai"] == "delegate.root"
    assert receipt["source_system"] == "worker.codegen-123"
    assert receipt["task_body"] == "NA", "only the acceptance repeats the task's body"


RECIPIENTS = [
    ("accepted", {"recipient_ai": None}, "worker.codegen-123"),
    ("progress", {}, "worker.codegen-123"),
    ("complete", {}, "delegate.root"),
    ("escalate", {}, "supervisor"),
    ("accepted", {"recipient_ai": "TBD"}, "worker.codegen-123"),
    ("complete", {"recipient_ai": "reviewer"}, "reviewer"),
]


@pytest.mark.parametrize(("phase", "fields", "recipient"), RECIPIENTS)
def test_fill_given_each_phase_addresses_whoever_should_read_it(
    phase: str, fields: dict[str, Any], recipient: str
) -> None:
    assert fill(BASE[phase] | fields)["recipient_ai"] == recipient


def test_fill_given_an_escalation_to_nobody_takes_the_supervisor_before_the_principal() -> None:
    body = ESCALATE | {"escalation_to": "NA"}
    assert fill(body, escalation_to="boss")["escalation_to"] == "boss"
    assert fill(body)["escalation_to"] == fill(body)["recipient_ai"] == "delegate.root"
    assert refused_field(receipts.check_phase(fill(body, task=None))) == "escalation_to"


def test_fill_given_a_caller_who_contradicts_the_task_keeps_the_tasks_facts() -> None:
    receipt = fill(PRINTED_ACCEPTED | {"principal_ai": "mallory", "task_summary": "Nothing", "inputs": {"a": 1}})
    assert receipt["principal_ai"] == "delegate.root"
    assert receipt["task_summary"] == "Generate a parser"
    assert receipt["inputs"] == {"language": "python"}


def test_fill_given_a_silent_task_keeps_the_callers_words() -> None:
    receipt = fill(PRINTED_ACCEPTED | {"principal_ai": "delegate.two"}, TASK.replace(principal_ai=""))
    assert receipt["principal_ai"] == "delegate.two"


def test_fill_given_the_callers_own_id_times_and_attempt_keeps_them() -> None:
    own = {"receipt_id": "R-own", "created_at": "2026-01-04T15:00:00Z", "attempt": 2, "lease_id": "lease-own"}
    receipt = fill(PRINTED_COMPLETE | own | {"completed_at": "2026-01-04T15:30:00+01:00"}, lease_id="lease-other")
    assert {name: receipt[name] for name in own} == own
    assert receipt["completed_at"] == "2026-01-04T15:30:00+01:00"


def test_fill_given_progress_without_a_percentage_repeats_the_tasks() -> None:
    assert fill({"phase": "progress", "task_id": "T-123"})["progress"] == 40
    assert fill({"phase": "progress", "task_id": "T-123", "progress": 0})["progress"] == 0


@pytest.mark.parametrize("status", ["failure", "canceled"])
def test_fill_given_an_unsuccessful_end_without_outcome_says_none(status: str) -> None:
    receipt = fill({"phase": "complete", "task_id": "T-123", "status": status})
    assert receipt["outcome_kind"] == "none"
    assert receipts.check_phase(receipt) is None


def test_fill_given_a_task_larger_than_a_receipt_stays_within_the_limits() -> None:
    large = TASK.replace(title="é" * 4000, body="€" * 50_000, inputs=json.dumps({"a": "x" * 70_000}))
    receipt = fill(PRINTED_ACCEPTED, large)
    assert receipts.check_shape(receipt) is None
    assert receipt["task_summary"] == "é" * 2048
    assert receipt["inputs"] == {}


@pytest.mark.parametrize("inputs", ["", "not JSON", "[1]", "null", "[" * 100_000])
def test_fill_given_a_task_whose_inputs_are_no_object_leaves_them_empty(inputs: str) -> None:
    assert fill(PRINTED_ACCEPTED, TASK.replace(inputs=inputs))["inputs"] == {}


def test_fill_given_no_metadata_never_shares_the_sentinel() -> None:
    fill(PRINTED_ACCEPTED)["metadata"]["a"] = 1
    assert fill(PRINTED_ACCEPTED)["metadata"] == {}


# --- Phases -----------------------------------------------------------------------------------------------------------

OUTCOME_VALUES: dict[str, Any] = {
    "status": "success",
    "outcome_kind": "none",
    "outcome_text": "Done.",
    "artifact_location": "s3://bucket/x",
    "artifact_pointer": "01HTZQ",
    "artifact_mime": "text/plain",
    "artifact_checksum": "sha256:00",
    "artifact_size_bytes": 1,
    "completed_at": "2026-01-04T15:45:00Z",
}
ESCALATION_VALUES = {"escalation_class": "policy", "escalation_reason": "stuck", "escalation_to": "supervisor"}
FOREIGN_FIELDS = [
    (phase, name, value)
    for phase in receipts.PHASES
    for name, value in (
        *(() if phase == "complete" else OUTCOME_VALUES.items()),
        *(() if phase == "escalate" else ESCALATION_VALUES.items()),
    )
]


@pytest.mark.parametrize(("phase", "name", "value"), FOREIGN_FIELDS)
def test_check_phase_given_a_field_of_another_phase_refuses_it(phase: str, name: str, value: object) -> None:
    refusal = receipts.check_phase(fill(BASE[phase] | {name: value}))
    assert refused_field(refusal) == name
    assert refusal is not None
    assert f"phase {phase}" in refusal.message


@pytest.mark.parametrize(("phase", "name", "value"), FOREIGN_FIELDS)
def test_check_phase_given_the_sentinels_of_another_phase_accepts_them(phase: str, name: str, value: object) -> None:
    texts = (
        ("NA", "TBD", "", " ") if isinstance(value, str) and name != "completed_at" else (0 if value == 1 else None,)
    )
    for sentinel in texts:
        receipt = fill(BASE[phase] | {name: sentinel})
        assert receipts.check_phase(receipt) is None
        assert receipt[name] == receipts.FIELDS[name][2], "the ledger knows one spelling of each sentinel"


PHASE_ROWS: list[tuple[str, str, dict[str, Any], str | None]] = [
    ("a receipt is about a task", "accepted", {"task_id": "T-9"}, None),
    ("progress may be none yet", "progress", {"progress": 0}, None),
    ("progress may be all", "progress", {"progress": 100}, None),
    ("progress is a percentage", "progress", {"progress": 101}, "progress"),
    ("progress is a percentage in every phase", "complete", {"progress": 101}, "progress"),
    ("an acceptance asks for no retry", "accepted", {"retry_requested": True}, "retry_requested"),
    ("progress asks for no retry", "progress", {"retry_requested": True}, "retry_requested"),
    ("a success asks for no retry", "complete", {"retry_requested": True}, "retry_requested"),
    ("a failure may ask for a retry", "complete", {"status": "failure", "retry_requested": True}, None),
    ("an escalation may ask for a retry", "escalate", {"retry_requested": True}, None),
    ("work may succeed", "complete", {"status": "success"}, None),
    ("work may fail", "complete", {"status": "failure"}, None),
    ("work may be canceled", "complete", {"status": "canceled"}, None),
    ("an end has a status", "complete", {"status": None}, "status"),
    ("a status that does not apply is none", "complete", {"status": "NA"}, "status"),
    ("a status is one of three", "complete", {"status": "done"}, "status"),
    ("a success names its outcome", "complete", {"outcome_kind": None}, "outcome_kind"),
    ("a kind of outcome is one of four", "complete", {"outcome_kind": "file"}, "outcome_kind"),
    (
        "a failure's kind of outcome is one of four",
        "complete",
        {"status": "failure", "outcome_kind": "x"},
        "outcome_kind",
    ),
    ("a success may have nothing to hand over", "complete", {"outcome_kind": "none", "artifact_location": None}, None),
    ("an artifact has a location", "complete", {"artifact_location": None}, "artifact_location"),
    ("NA is no location", "complete", {"artifact_location": "NA"}, "artifact_location"),
    ("TBD is no location", "complete", {"artifact_location": "TBD"}, "artifact_location"),
    ("blanks are no location", "complete", {"artifact_location": "  "}, "artifact_location"),
    ("a response has a text", "complete", {"outcome_kind": "response_text"}, "outcome_text"),
    ("a response with its text", "complete", {"outcome_kind": "response_text", "outcome_text": "42"}, None),
    ("a mixed outcome has a text", "complete", {"outcome_kind": "mixed"}, "outcome_text"),
    (
        "a mixed outcome has a location",
        "complete",
        {"outcome_kind": "mixed", "outcome_text": "42", "artifact_location": None},
        "artifact_location",
    ),
    ("a mixed outcome with both", "complete", {"outcome_kind": "mixed", "outcome_text": "42"}, None),
    *(
        (f"one may escalate for {word}", "escalate", {"escalation_class": word}, None)
        for word in ("owner", "capability", "trust", "policy", "scope", "other")
    ),
    ("an escalation has a class", "escalate", {"escalation_class": None}, "escalation_class"),
    ("the class is in the table", "escalate", {"escalation_class": "urgent"}, "escalation_class"),
    ("an escalation may have a reason in words", "escalate", {"escalation_reason": "The key is missing"}, None),
    ("an escalation has a reason", "escalate", {"escalation_reason": ""}, "escalation_reason"),
    ("the recipient may be said twice", "escalate", {"recipient_ai": "supervisor"}, None),
    ("the recipient is whom it escalates to", "escalate", {"recipient_ai": "someone"}, "recipient_ai"),
]


@pytest.mark.parametrize(("why", "phase", "fields", "field"), PHASE_ROWS, ids=[row[0] for row in PHASE_ROWS])
def test_check_phase_given_one_changed_field_decides_by_the_rule(
    why: str, phase: str, fields: dict[str, Any], field: str | None
) -> None:
    assert refused_field(receipts.check_phase(fill(BASE[phase] | fields))) == field, why


def test_check_phase_given_no_task_at_all_refuses_task_id() -> None:
    assert refused_field(receipts.check_phase(fill({"phase": "accepted"}, task=None))) == "task_id"


# --- Fuzz -------------------------------------------------------------------------------------------------------------

JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4),
    max_leaves=12,
)
WORDS = (
    *("NA", "TBD", "", " ", "T-1", "2026-01-04T15:45:00Z"),
    *receipts.PHASES,
    *receipts.COMPLETE_STATUSES,
    *receipts.OUTCOME_KINDS,
    *receipts.ESCALATION_CLASSES,
)
PLAUSIBLE = st.sampled_from([*WORDS, 0, 1, 100, 101, True, False, None, {}, {"a": 1}])
# Fields mostly hold what suits their phase, so that a good part of the bodies passes and reaches the rules.
BODIES = st.builds(
    lambda phase, more: BASE[phase] | more,
    st.sampled_from(receipts.PHASES),
    st.dictionaries(st.sampled_from(sorted(receipts.FIELDS)), PLAUSIBLE, max_size=2),
)


@given(JSONISH | st.dictionaries(st.sampled_from(sorted(receipts.FIELDS)) | st.text(), JSONISH | PLAUSIBLE))
def test_check_shape_given_anything_never_raises(body: object) -> None:
    refused_field(receipts.check_shape(body))


def blank(value: object) -> bool:
    return value in (None, 0, False, "NA") or value == {}


def obeys(receipt: dict[str, Any]) -> bool:
    """The rules once more, written down independently of the tables under test."""
    outcome = [value for name, value in receipt.items() if name.startswith(("status", "outcome", "artifact", "compl"))]
    escalation = [value for name, value in receipt.items() if name.startswith("escalation")]
    match receipt["phase"]:
        case "accepted" | "progress":
            own = all(map(blank, outcome)) and all(map(blank, escalation)) and not receipt["retry_requested"]
        case "complete":
            text, location = receipt["outcome_text"].strip(), receipt["artifact_location"].strip()
            needs = {
                "none": [],
                "response_text": [text],
                "artifact_pointer": [location],
                "mixed": [text, location],
            }[receipt["outcome_kind"]]
            own = (
                receipt["status"] in ("success", "failure", "canceled")
                and not {"NA", "TBD", ""} & set(needs)
                and times.parse_iso(receipt["completed_at"]) is not None
                and all(map(blank, escalation))
                and (receipt["status"] == "failure" or not receipt["retry_requested"])
            )
        case "escalate":
            own = (
                all(map(blank, outcome))
                and receipt["escalation_class"] in ("owner", "capability", "trust", "policy", "scope", "other")
                and receipt["escalation_reason"].strip() not in ("", "NA", "TBD")
                and receipt["recipient_ai"] == receipt["escalation_to"] not in ("", "NA", "TBD")
            )
        case _:
            own = False
    return own and receipt["task_id"] not in ("", "NA", "TBD") and receipt["progress"] in range(101)


@given(BODIES, st.booleans())
def test_check_phase_given_whatever_passes_finds_the_rules_obeyed(body: dict[str, Any], known_task: bool) -> None:
    if receipts.check_shape(body) is not None:
        return
    receipt = fill(body, TASK if known_task else None)
    if refused_field(receipts.check_phase(receipt)) is None:
        assert obeys(receipt)
        assert list(receipt) == list(receipts.FIELDS)
        assert receipts.check_shape(receipt) is None
        assert json.loads(receipts.canonical(receipt)) == receipt
        assert receipts.text_of(receipt) == receipts.canonical(receipt)
        assert fill(receipt, TASK if known_task else None) == receipt, "a filled receipt has nothing left to fill"


# --- Canonical form and content ---------------------------------------------------------------------------------------


def test_canonical_given_any_order_writes_one_text() -> None:
    assert receipts.canonical({"b": [1, "é"], "a": {"d": None, "c": True}}) == '{"a":{"c":true,"d":null},"b":[1,"é"]}'


SAME_CONTENT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("sent again, later, under a new id", {}, {"receipt_id": "R-2", "created_at": "2026-01-05T00:00:00Z"}),
    ("sent again with another end time", {}, {"completed_at": "2026-01-05T00:00:00Z"}),
    ("sent again with the sentinels written out", {}, {"outcome_text": "NA", "metadata": {}, "message": None}),
    ("sent again under a newer lease", {"lease_id": "lease-1"}, {"lease_id": "lease-2", "attempt": 2}),
]


@pytest.mark.parametrize(("why", "first", "second"), SAME_CONTENT, ids=[row[0] for row in SAME_CONTENT])
def test_content_key_given_a_repetition_is_equal(why: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    stored = json.loads(receipts.canonical(fill(PRINTED_COMPLETE | first)))
    again = fill(PRINTED_COMPLETE | second, TASK.replace(title="Edited since"), now_ms=NOW_MS + 1, receipt_id="R-3")
    assert receipts.content_key(stored) == receipts.content_key(again), why


OTHER_CONTENT: list[tuple[str, dict[str, Any]]] = [
    ("another status", {"status": "failure"}),
    ("another location", {"artifact_location": "s3://bucket/other.py"}),
    ("a text that was not there", {"outcome_text": "Done."}),
    ("other metadata", {"metadata": {"a": 1}}),
    ("another worker", {"source_system": "worker.codegen-124"}),
]


@pytest.mark.parametrize(("why", "fields"), OTHER_CONTENT, ids=[row[0] for row in OTHER_CONTENT])
def test_content_key_given_other_content_differs(why: str, fields: dict[str, Any]) -> None:
    other = receipts.content_key(fill(PRINTED_COMPLETE | fields))
    assert receipts.content_key(fill(PRINTED_COMPLETE)) != other, why


def test_content_key_given_another_task_differs() -> None:
    other = fill(PRINTED_COMPLETE, TASK.replace(task_id="T-124"))
    assert receipts.content_key(fill(PRINTED_COMPLETE)) != receipts.content_key(other)


# --- The chain --------------------------------------------------------------------------------------------------------


def chain(length: int = 5, task: Task = TASK) -> list[Receipt]:
    bodies = [PRINTED_ACCEPTED, *[PROGRESS] * (length - 2), PRINTED_COMPLETE][:length]
    made: list[Receipt] = []
    head = receipts.genesis(task.project_id, task.task_id)
    for position, body in enumerate(bodies, start=1):
        filled = fill(body, task, receipt_id=f"R-{position}", now_ms=NOW_MS + position)
        text = receipts.canonical(filled)
        made.append(
            Receipt(
                seq=position * 10,
                receipt_id=filled["receipt_id"],
                project_id=task.project_id,
                task_key=task.key,
                task_id=task.task_id,
                position=position,
                phase=filled["phase"],
                at_ms=NOW_MS + position,
                lease_id=None,
                dedupe_key=None,
                principal="",
                body=text,
                prev_hash=head,
                hash=receipts.chain_hash(head, text),
            )
        )
        head = made[-1].hash
    return made


def verify(found: list[Receipt], written: list[Receipt]) -> tuple[str, int] | None:
    fault = receipts.verify_chain("default", "T-123", found, len(written), written[-1].hash if written else "")
    if fault is None:
        return None
    assert str(fault.position) in fault.message
    return fault.kind, fault.position


def renumbered(found: list[Receipt]) -> list[Receipt]:
    return [receipt.replace(position=position) for position, receipt in enumerate(found, start=1)]


def rehashed(receipt: Receipt, body: str) -> Receipt:
    return receipt.replace(body=body, hash=receipts.chain_hash(receipt.prev_hash, body))


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_verify_chain_given_what_was_written_finds_nothing(length: int) -> None:
    written = chain(length)
    assert verify(written, written) is None
    assert verify(iter(written), written) is None  # type: ignore[arg-type]


def test_verify_chain_given_an_empty_chain_accepts_the_genesis_as_its_head() -> None:
    genesis = receipts.genesis("default", "T-123")
    assert receipts.verify_chain("default", "T-123", [], 0, genesis) is None
    fault = receipts.verify_chain("default", "T-123", [], 0, chain(1)[0].hash)
    assert fault is not None
    assert (fault.kind, fault.position) == ("head_differs", 0)


@pytest.mark.parametrize("at", range(5))
def test_verify_chain_given_any_changed_byte_finds_it_at_its_position(at: int) -> None:
    written = chain()
    body = written[at].body
    for offset in range(0, len(body), 7):
        changed = body[:offset] + chr(ord(body[offset]) ^ 1) + body[offset + 1 :]
        found = [*written[:at], written[at].replace(body=changed), *written[at + 1 :]]
        assert verify(found, written) == ("changed_body", at + 1)


@pytest.mark.parametrize("at", range(5))
def test_verify_chain_given_a_rewritten_receipt_finds_that_the_next_does_not_follow(at: int) -> None:
    written = chain()
    found = [*written[:at], rehashed(written[at], written[at].body.replace("2026", "2025")), *written[at + 1 :]]
    assert verify(found, written) == (("broken_link", at + 2) if at < 4 else ("head_differs", 5))


@pytest.mark.parametrize("at", range(5))
def test_verify_chain_given_a_removed_receipt_names_the_gap(at: int) -> None:
    written = chain()
    found = written[:at] + written[at + 1 :]
    assert verify(found, written) == ("missing" if at < 4 else "truncated", at + 1)
    assert verify(renumbered(found), written) == ("broken_link" if at < 4 else "truncated", at + 1)


@pytest.mark.parametrize("kept", range(5))
def test_verify_chain_given_a_truncated_tail_names_the_first_that_is_missing(kept: int) -> None:
    written = chain()
    assert verify(written[:kept], written) == ("truncated", kept + 1)


@pytest.mark.parametrize("at", range(4))
def test_verify_chain_given_two_swapped_receipts_finds_the_first_of_them(at: int) -> None:
    written = chain()
    found = [*written[:at], written[at + 1], written[at], *written[at + 2 :]]
    assert verify(found, written) == ("missing", at + 1)
    assert verify(renumbered(found), written) == ("broken_link", at + 1)


@pytest.mark.parametrize("at", range(1, 5))
def test_verify_chain_given_an_inserted_receipt_finds_where_the_chain_parts(at: int) -> None:
    written = chain()
    copy = [*written[:at], written[at - 1], *written[at:]]
    assert verify(copy, written) == ("out_of_order", at + 1)
    assert verify(renumbered(copy), written) == ("broken_link", at + 1)
    forged = rehashed(written[at - 1].replace(prev_hash=written[at - 1].hash), written[at - 1].body)
    assert verify(renumbered([*written[:at], forged, *written[at:]]), written) == ("broken_link", at + 2)


def test_verify_chain_given_an_appended_receipt_finds_one_too_many() -> None:
    written = chain(4)
    more = rehashed(written[3].replace(prev_hash=written[3].hash, position=5), written[3].body)
    assert verify([*written, more], written) == ("extra", 5)


@pytest.mark.parametrize("name", ["receipt_id", "phase", "project_id", "task_id"])
def test_verify_chain_given_a_changed_row_around_an_intact_body_finds_it(name: str) -> None:
    written = chain()
    found = [written[0], written[1].replace(**{name: "other"}), *written[2:]]
    assert verify(found, written) == ("row_differs", 2)


@pytest.mark.parametrize("body", ["", "[]", "{", "[" * 100_000, "\ud800"])
def test_verify_chain_given_a_hashed_body_that_cannot_be_read_names_it(body: str) -> None:
    written = chain(1)
    assert verify([rehashed(written[0], body)], written) == ("unreadable", 1)


def test_verify_chain_given_another_tasks_chain_finds_the_first_link_broken() -> None:
    other = chain(task=TASK.replace(task_id="T-124"))
    assert verify(other, other) == ("broken_link", 1)


def test_verify_chain_given_another_tasks_receipt_linked_in_finds_it() -> None:
    other = chain(1, TASK.replace(task_id="T-124"))[0]
    linked = rehashed(other.replace(prev_hash=receipts.genesis("default", "T-123")), other.body)
    assert verify([linked], [linked]) == ("foreign", 1)


def test_hashes_given_parts_that_could_run_together_differ() -> None:
    assert receipts.genesis("a", "bc") != receipts.genesis("ab", "c")
    assert receipts.genesis("a", "b") != receipts.chain_hash("a", "b"), "each kind of hash has its own domain"
    assert receipts.seal_hash("", 1, 23, []) != receipts.seal_hash("", 12, 3, [])
    assert receipts.seal_hash("", 1, 2, ["ab"]) != receipts.seal_hash("", 1, 2, ["a", "b"])


def test_hashes_given_known_input_never_change() -> None:
    """A ledger outlives the program that wrote it: a change here makes every stored chain unverifiable."""
    genesis = receipts.genesis("default", "T-123")
    assert genesis == "aa307e8777dbf978ecc703b0da70dbbd8c70027f92c2b92965d89947aea79015"
    assert receipts.chain_hash(genesis, "{}") == "ac892894dd19f4ae86861c33142b657e2dc9b78443ea137864087127caf4c215"
    assert receipts.seal_hash("", 1, 2, [genesis]) == "a942e22774ffbde50a9b69ee183432d9cccdeac234d5af6224f5754d443e414c"


def sealed(found: list[Receipt]) -> tuple[str, int] | None:
    written = chain()
    seal = receipts.seal_hash("before", 10, 55, [receipt.hash for receipt in written])
    fault = receipts.verify_seal("before", 10, 55, found, seal)
    return None if fault is None else (fault.kind, fault.position)


def test_verify_seal_given_the_sealed_receipts_finds_nothing() -> None:
    assert sealed(chain()) is None


def test_verify_seal_given_tampered_receipts_names_what_it_can() -> None:
    written = chain()
    assert sealed([*written[:2], written[2].replace(body="{}"), *written[3:]]) == ("changed_body", 30)
    assert sealed([*written[:2], rehashed(written[2], written[2].body.replace("2026", "2025"))]) == ("seal_differs", 10)
    assert sealed(written[1:]) == ("seal_differs", 10)
    assert sealed(written[:-1]) == ("seal_differs", 10)
    assert sealed([written[1], written[0], *written[2:]]) == ("out_of_order", 10)
    assert sealed([*written[:-1], written[4].replace(seq=56)]) == ("out_of_order", 56)
    assert sealed([written[0].replace(seq=9), *written[1:]]) == ("out_of_order", 9)


def test_verify_seal_given_another_seal_before_it_finds_the_difference() -> None:
    seal = receipts.seal_hash("before", 10, 55, [receipt.hash for receipt in chain()])
    fault = receipts.verify_seal("other", 10, 55, chain(), seal)
    assert fault is not None
    assert fault.kind == "seal_differs"


# --- The engine's own receipts ----------------------------------------------------------------------------------------

BUILT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "an acceptance",
        receipts.accepted_body("T-123", source="agent-1", lease_id="L1", message=""),
        {"phase": "accepted", "task_id": "T-123", "source_system": "agent-1", "lease_id": "L1"},
    ),
    (
        "progress that stands at zero",
        receipts.progress_body("T-123", source="agent-1", progress=0, message="Reading"),
        {"phase": "progress", "task_id": "T-123", "source_system": "agent-1", "message": "Reading", "progress": 0},
    ),
    (
        "a success without anything to hand over",
        receipts.complete_body("T-123", source="agent-1"),
        {"phase": "complete", "task_id": "T-123", "source_system": "agent-1", "status": "success"}
        | {"outcome_kind": "none"},
    ),
    (
        "a failure with words",
        receipts.complete_body("T-123", source="agent-1", status="failure", outcome_text="No key"),
        {"phase": "complete", "task_id": "T-123", "source_system": "agent-1", "status": "failure"}
        | {"outcome_kind": "response_text", "outcome_text": "No key"},
    ),
    (
        "an artifact and words",
        receipts.complete_body("T-123", source="a", outcome_text="See there", artifact_location="s3://x"),
        {"phase": "complete", "task_id": "T-123", "source_system": "a", "status": "success"}
        | {"outcome_kind": "mixed", "outcome_text": "See there", "artifact_location": "s3://x"},
    ),
    (
        "an artifact alone",
        receipts.complete_body("T-123", source="a", artifact_location="s3://x"),
        {"phase": "complete", "task_id": "T-123", "source_system": "a", "status": "success"}
        | {"outcome_kind": "artifact_pointer", "artifact_location": "s3://x"},
    ),
    *(
        (
            f"an escalation because of {reason}",
            receipts.escalate_body("T-123", reason, source="tenure", retry_requested=True),
            {"phase": "escalate", "task_id": "T-123", "source_system": "tenure", "escalation_class": "policy"}
            | {"escalation_reason": reason, "retry_requested": True},
        )
        for reason in receipts.ESCALATION_REASONS
    ),
]


@pytest.mark.parametrize(("why", "body", "expected"), BUILT, ids=[row[0] for row in BUILT])
def test_build_given_what_happened_yields_a_valid_minimal_body(
    why: str, body: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert body == expected, why
    assert receipts.check_shape(body) is None
    assert receipts.check_phase(fill(body)) is None


# --- Times ------------------------------------------------------------------------------------------------------------

INSTANTS = [
    (NOW_MS, "2026-01-04T15:45:00Z"),
    (NOW_MS + 250, "2026-01-04T15:45:00.250Z"),
    (NOW_MS + 5, "2026-01-04T15:45:00.005Z"),
    (0, "1970-01-01T00:00:00Z"),
    (-1, "1969-12-31T23:59:59.999Z"),
    (951_782_400_000, "2000-02-29T00:00:00Z"),
    (times.FIRST_MS, "0000-01-01T00:00:00Z"),
    (times.LAST_MS, "9999-12-31T23:59:59.999Z"),
]


@pytest.mark.parametrize(("ms", "text"), INSTANTS)
def test_iso_given_an_instant_writes_it_and_reads_it_back(ms: int, text: str) -> None:
    assert times.iso(ms) == text
    assert times.parse_iso(text) == ms


def test_iso_given_one_second_after_the_other_writes_each() -> None:
    for second in range(3 * times._KEPT_MAX):
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=NOW_MS + second * 1000)
        assert times.iso(NOW_MS + second * 1000 + 7) == f"{moment.isoformat()}.007Z"
        assert times.iso(NOW_MS) == "2026-01-04T15:45:00Z"
    assert len(times._SECONDS) <= times._KEPT_MAX


@given(st.datetimes())
def test_iso_given_any_datetime_agrees_with_the_standard_library(moment: datetime.datetime) -> None:
    ms = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(milliseconds=1)
    written = moment.isoformat(timespec="milliseconds").removesuffix(".000") + "Z"
    assert times.iso(ms) == written
    assert times.parse_iso(written) == ms


def test_iso_given_an_instant_beyond_four_digits_writes_the_nearest() -> None:
    assert times.iso(10**30) == "9999-12-31T23:59:59.999Z"
    assert times.iso(-(10**30)) == "0000-01-01T00:00:00Z"


READ = [
    ("2026-01-04T17:45:00+02:00", NOW_MS),
    ("2026-01-04T10:15:00-05:30", NOW_MS),
    ("2026-01-04t15:45:00z", NOW_MS),
    ("2026-01-04 15:45:00Z", NOW_MS),
    ("2026-01-04T15:44:60Z", NOW_MS),
    ("2026-01-04T15:45:00.2Z", NOW_MS + 200),
    ("2026-01-04T15:45:00.2509999Z", NOW_MS + 250),
    ("2026-01-04T15:45:00-00:00", NOW_MS),
]
UNREADABLE: list[object] = [
    *("", "now", "2026-01-04", "2026-01-04T15:45:00", "2026-01-04T15:45Z", "2026-01-04T15:45:00.Z"),
    *("2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-01-00T00:00:00Z"),
    *("2026-01-04T24:00:00Z", "2026-01-04T15:60:00Z", "2026-01-04T15:45:61Z", "2026-01-04T15:45:00+24:00"),
    *("2026-01-04T15:45:00+02:60", "2026-01-04T15:45:00+0200", "2026-01-04T15:45:00 Z", "2026-01-04T15:45:00ZZ"),
    *("-026-01-04T15:45:00Z", "+026-01-04T15:45:00Z", "2026-01-04T15:45:0٠Z", "2026-1-04T015:45:00Z", None, NOW_MS),
]


@pytest.mark.parametrize(("text", "ms"), READ)
def test_parse_iso_given_other_spellings_reads_the_instant(text: str, ms: int) -> None:
    assert times.parse_iso(text) == ms


@pytest.mark.parametrize("text", UNREADABLE, ids=repr)
def test_parse_iso_given_no_instant_returns_none(text: object) -> None:
    assert times.parse_iso(text) is None


@given(st.text(string.digits + "-:.TZ+ ", max_size=30))
def test_parse_iso_given_anything_never_raises(text: str) -> None:
    times.parse_iso(text)
