"""Receipts: the rules of the ledger, in one place.

A receipt is an immutable statement about a task, by whoever is accountable for it. There are four phases:

    accepted   the agent takes the work on. This creates the obligation; an offer alone creates nothing.
    progress   the agent is under way. Nothing is owed more or less than before.
    complete   the agent is finished: success, failure or canceled, with an outcome.
    escalate   the obligation needs someone else: an owner, a capability, a decision.

The obligation belongs to the task. The first `accepted` opens it, `escalate / lease_expired` marks it overdue, a later
`accepted` hands it on, and only `complete` or an escalation after which the engine gives up closes it.

Every field is always present. What does not apply is "NA", what is not yet known "TBD", a number without a value 0, an
object without content {}, a time that has not come null. Callers may leave all of that out, or write the sentinels:
both mean that nothing is said. Two groups of fields belong to one phase each and hold sentinels in the others: the
outcome to `complete`, the escalation to `escalate`.

The receipts of a task form a chain: each hash covers the canonical body and the hash before it, and the first stands
on a genesis hash made from the names of project and task, so that no chain passes for another's. The task keeps the
length and the last hash, which is how a shortened chain is found. Seals hash ranges of receipts of all tasks into a
second chain. Limit: whoever can rewrite the whole database can rewrite every hash in it. The chain finds accidents and
partial edits; against the rest, keep a copy of a seal elsewhere.

Grants, offers, heartbeats, queue positions and polls are never in receipts: they are coordination, and transient.

The order of use is `check_shape` (what a caller sent), `fill` (what the server knows), `check_phase` (what the phase
demands), `text_of`, `chain_hash`.
"""

from __future__ import annotations

import hashlib
import json
import math
from json.encoder import encode_basestring

from tenure.core.errors import Refused, refuse
from tenure.core.ids import text_fault
from tenure.core.record import Record
from tenure.core.times import iso, parse_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from tenure.core.model import Receipt, Task

PHASES = ("accepted", "progress", "complete", "escalate")
COMPLETE_STATUSES = ("success", "failure", "canceled")
OUTCOME_KINDS = ("none", "response_text", "artifact_pointer", "mixed")
ESCALATION_CLASSES = ("owner", "capability", "trust", "policy", "scope", "other")
# The reasons that the engine itself gives. Callers may give others.
ESCALATION_REASONS = ("lease_expired", "max_retries_exceeded", "released", "revoked", "quarantined", "superseded")

NOT_APPLICABLE = "NA"
NOT_YET_KNOWN = "TBD"
_SILENT = ("", NOT_APPLICABLE, NOT_YET_KNOWN)

ID_CHARS = 256
TEXT_BYTES = 4 * 1024
LONG_TEXT_BYTES = 100 * 1024
INPUTS_BYTES = 64 * 1024
METADATA_BYTES = 16 * 1024
TIME_CHARS = 64
# The largest whole number that every reader of JSON takes in exactly.
INTEGER_MAX = 2**53 - 1
# Inside objects, longer numbers are allowed as far as some machine has a type for them.
OBJECT_INTEGER_MAX = 2**64 - 1
# Counted with the object itself. Readers that recurse must survive what we store.
NESTING_MAX = 32

# field: (kind, limit, sentinel). The limit of an id or a time is in characters, of a text in bytes of UTF-8, of an
# object in bytes of its canonical JSON, of an integer its largest value.
FIELDS: dict[str, tuple[str, int, Any]] = {
    "receipt_id": ("id", ID_CHARS, NOT_APPLICABLE),
    "phase": ("phase", ID_CHARS, NOT_APPLICABLE),
    "task_id": ("id", ID_CHARS, NOT_APPLICABLE),
    "project_id": ("id", ID_CHARS, NOT_APPLICABLE),
    "lease_id": ("id", ID_CHARS, NOT_APPLICABLE),
    "principal_ai": ("id", ID_CHARS, NOT_YET_KNOWN),
    "recipient_ai": ("id", ID_CHARS, NOT_YET_KNOWN),
    "source_system": ("id", ID_CHARS, NOT_APPLICABLE),
    "task_type": ("id", ID_CHARS, NOT_APPLICABLE),
    "task_summary": ("text", TEXT_BYTES, NOT_YET_KNOWN),
    "task_body": ("text", LONG_TEXT_BYTES, NOT_APPLICABLE),
    "inputs": ("object", INPUTS_BYTES, {}),
    "expected_outcome_kind": ("id", ID_CHARS, NOT_YET_KNOWN),
    "expected_artifact_mime": ("text", TEXT_BYTES, NOT_APPLICABLE),
    "status": ("id", ID_CHARS, NOT_APPLICABLE),
    "outcome_kind": ("id", ID_CHARS, NOT_APPLICABLE),
    "outcome_text": ("text", LONG_TEXT_BYTES, NOT_APPLICABLE),
    "artifact_location": ("text", TEXT_BYTES, NOT_APPLICABLE),
    "artifact_pointer": ("text", TEXT_BYTES, NOT_APPLICABLE),
    "artifact_mime": ("text", TEXT_BYTES, NOT_APPLICABLE),
    "artifact_checksum": ("text", TEXT_BYTES, NOT_APPLICABLE),
    "artifact_size_bytes": ("integer", INTEGER_MAX, 0),
    "escalation_class": ("id", ID_CHARS, NOT_APPLICABLE),
    "escalation_reason": ("text", TEXT_BYTES, NOT_APPLICABLE),
    "escalation_to": ("id", ID_CHARS, NOT_APPLICABLE),
    "retry_requested": ("boolean", 1, False),
    "attempt": ("integer", INTEGER_MAX, 0),
    "progress": ("integer", INTEGER_MAX, 0),
    "message": ("text", TEXT_BYTES, NOT_APPLICABLE),
    "dedupe_key": ("id", ID_CHARS, NOT_APPLICABLE),
    "parent_task_id": ("id", ID_CHARS, NOT_APPLICABLE),
    "caused_by_receipt_id": ("id", ID_CHARS, NOT_APPLICABLE),
    "metadata": ("object", METADATA_BYTES, {}),
    "created_at": ("time", TIME_CHARS, None),
    "started_at": ("time", TIME_CHARS, None),
    "completed_at": ("time", TIME_CHARS, None),
}

# A receipt that says nothing.
SENTINELS: dict[str, Any] = {name: sentinel for name, (_, _, sentinel) in FIELDS.items()}

OUTCOME_FIELDS = (
    "status",
    "outcome_kind",
    "outcome_text",
    "artifact_location",
    "artifact_pointer",
    "artifact_mime",
    "artifact_checksum",
    "artifact_size_bytes",
    "completed_at",
)
ESCALATION_FIELDS = ("escalation_class", "escalation_reason", "escalation_to")

# The fields that must hold their sentinels, by phase.
EMPTY_FIELDS = {
    "accepted": OUTCOME_FIELDS + ESCALATION_FIELDS,
    "progress": OUTCOME_FIELDS + ESCALATION_FIELDS,
    "complete": ESCALATION_FIELDS,
    "escalate": OUTCOME_FIELDS,
}

# What each kind of outcome cannot do without.
OUTCOME_NEEDS = {
    "none": (),
    "response_text": ("outcome_text",),
    "artifact_pointer": ("artifact_location",),
    "mixed": ("outcome_text", "artifact_location"),
}

# What a receipt says about its task, and where the task keeps it.
TASK_FACTS = {
    "project_id": "project_id",
    "task_id": "task_id",
    "principal_ai": "principal_ai",
    "task_type": "kind",
    "task_summary": "title",
    "expected_outcome_kind": "expected_outcome_kind",
    "expected_artifact_mime": "expected_artifact_mime",
}

# What the server may have filled in, from state that can have changed when a caller sends the same receipt again.
NOT_CONTENT = frozenset(TASK_FACTS.keys() - {"project_id", "task_id"}) | {
    "receipt_id",
    "created_at",
    "started_at",
    "completed_at",
    "lease_id",
    "attempt",
    "recipient_ai",
    "escalation_to",
    "task_body",
    "inputs",
    "artifact_mime",
}


def said(value: object) -> bool:
    """Whether a field carries anything: not null, not blank, not a sentinel."""
    if isinstance(value, str):
        return value.strip() not in _SILENT
    return bool(value)


# --- What a caller sent -----------------------------------------------------------------------------------------------


def check_shape(body: object) -> Refused | None:
    """Judge names, types and sizes of what a caller sent. Any value may come; nothing is raised and nothing is echoed.

    A null is an absent field. What the phase demands is judged later, by `check_phase`, on the filled receipt.
    """
    if not isinstance(body, dict):
        return _invalid("body", f"must be a JSON object, not {_type_name(body)}", "Send one receipt as a JSON object.")
    for name, value in body.items():
        if not isinstance(name, str) or name not in FIELDS:
            return _invalid(_shown(name), "is not a field of a receipt", "Leave it out, or put it under metadata.")
        kind, limit, _ = FIELDS[name]
        if kind == "id" and type(value) is str and value.isprintable() and len(value) <= limit:
            # What most fields hold: a name, in which nothing can be wrong.
            continue
        fault = None if value is None else _fault(kind, value, limit)
        if fault is not None:
            return _invalid(name, fault)
    if body.get("phase") is None:
        return _invalid("phase", f"is missing; it must be {_any_of(PHASES)}")
    return None


def _fault(kind: str, value: object, limit: int) -> str | None:
    """What is wrong with one field's value, as the end of a sentence that begins with the field's name."""
    if kind == "object":
        return _object_fault(value, limit)
    if kind == "boolean":
        return None if isinstance(value, bool) else f"must be true or false, not {_type_name(value)}"
    if kind == "integer":
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be a whole number, not {_type_name(value)}"
        return None if 0 <= value <= limit else f"must be from 0 to {limit}"
    if not isinstance(value, str):
        return f"must be a string, not {_type_name(value)}"
    if kind == "text":
        return _text_fault(value, limit)
    if len(value) > limit:
        return f"is longer than {limit} characters"
    if kind == "time":
        wanted = "must be an RFC 3339 time with its offset, such as 2026-01-04T15:45:00Z"
        return None if parse_iso(value) is not None else wanted
    if kind == "phase" and value not in PHASES:
        return f"must be {_any_of(PHASES)}"
    return text_fault(value, 4 * limit, one_line=True)


def _text_fault(value: str, limit: int) -> str | None:
    """Long texts are often the output of tools, so control characters pass; the reader's surface must neutralise them.

    NUL is the exception, because PostgreSQL cannot keep it in a text.
    """
    if "\0" in value:
        return "contains the character U+0000"
    try:
        size = len(value) if len(value) > limit else len(value.encode())
    except UnicodeEncodeError:
        return "contains half of a surrogate pair, which is not text"
    return f"is longer than {limit} bytes" if size > limit else None


def _object_fault(value: object, limit: int) -> str | None:
    """Judge a JSON object without recursion, and without more work than its limit in bytes allows.

    Every value takes at least one byte of JSON, a string also its length, a list its commas and brackets. So the walk
    stops once it has seen more than could fit, even if one list hangs in a Python value a million times or in itself.
    """
    if not isinstance(value, dict):
        return f"must be an object, not {_type_name(value)}"
    too_long = f"is longer than {limit} bytes of JSON"
    waiting: list[tuple[object, int]] = [(value, 1)]
    least_size = 0
    while waiting:
        item, depth = waiting.pop()
        least_size += 1 + (len(item) if isinstance(item, _SIZED) else 0)
        if least_size > limit:
            return too_long
        if not isinstance(item, _NESTED):
            fault = _leaf_fault(item, limit)
            if fault is not None:
                return fault
            continue
        if depth > NESTING_MAX:
            return f"is nested deeper than {NESTING_MAX} levels"
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return "has a key that is not a string"
            waiting.extend((key, depth) for key in item)
        waiting.extend((child, depth + 1) for child in (item.values() if isinstance(item, dict) else item))
    if least_size * _LARGEST <= limit:
        return None
    return too_long if len(canonical(value).encode()) > limit else None


_NESTED = (dict, list)
_SIZED = (str, dict, list)
# The most bytes of JSON that stand for one of what is counted above: no number takes more, with what is around it, and
# no character of a string.
_LARGEST = 32


def _leaf_fault(value: object, limit: int) -> str | None:
    if isinstance(value, str):
        return _text_fault(value, limit)
    if isinstance(value, float):
        return None if math.isfinite(value) else "contains NaN or an infinity, which JSON does not have"
    if isinstance(value, int):
        fits = -OBJECT_INTEGER_MAX <= value <= OBJECT_INTEGER_MAX
        return None if fits else "contains a number of more than 64 bits; write it as a string"
    return None if value is None else f"contains a value of type {_type_name(value)}, which JSON does not have"


# --- What the server knows --------------------------------------------------------------------------------------------


def fill(
    body: Mapping[str, Any],
    *,
    receipt_id: str,
    now_ms: int,
    task: Task | None = None,
    attempt: int = 0,
    source: str = "",
    lease_id: str = "",
    escalation_to: str = "",
    started_at_ms: int | None = None,
) -> dict[str, Any]:
    """The whole receipt, every field present, from a body that passed `check_shape`.

    What the task knows about itself stands, whatever the body says: nobody can put another principal or another
    summary into the ledger. Everywhere else the caller's word stands and the server fills what is absent. The caller's
    times are the caller's claims; the order of the ledger is the store's.
    """
    phase = body["phase"]
    now = iso(now_ms)
    receipt = SENTINELS.copy()
    receipt.update(inputs={}, metadata={}, receipt_id=receipt_id, attempt=attempt, created_at=now)
    if started_at_ms is not None:
        receipt["started_at"] = now if started_at_ms == now_ms else iso(started_at_ms)
    if said(lease_id):
        receipt["lease_id"] = lease_id
    if said(source):
        receipt["source_system"] = source
    # What comes later stands.
    for name, value in body.items():
        if value is not None and name in receipt and said(value):
            receipt[name] = dict(value) if isinstance(value, dict) else value
    if task is not None:
        _fill_facts(receipt, task, phase)
    if phase == "progress" and task is not None and body.get("progress") is None:
        receipt["progress"] = task.progress
    if phase == "complete":
        _fill_outcome(receipt, now)
    if phase == "escalate":
        receipt["escalation_to"] = _first_said(
            receipt["escalation_to"], escalation_to, receipt["principal_ai"], NOT_APPLICABLE
        )
    if not said(receipt["recipient_ai"]):
        receipt["recipient_ai"] = _first_said(_recipient(receipt), NOT_YET_KNOWN)
    return receipt


def _first_said(*values: object) -> Any:
    """The first value that says something, or else the last one. An object is copied, lest the sentinel be shared."""
    found = values[-1]
    for value in values:
        if value is not None and said(value):
            found = value
            break
    return dict(found) if isinstance(found, dict) else found


def _fill_facts(receipt: dict[str, Any], task: Task, phase: str) -> None:
    """What the receipt repeats of the task. Body and inputs can be large, so only the acceptance repeats them."""
    for name, source in TASK_FACTS.items():
        text = getattr(task, source)
        if text and said(text := _cut(name, text)):
            receipt[name] = text
    if phase == "accepted":
        if task.body and said(text := _cut("task_body", task.body)):
            receipt["task_body"] = text
        receipt["inputs"] = _inputs(task.inputs) or receipt["inputs"]


def _cut(name: str, text: str) -> str:
    """The task's text as far as the receipt's field can hold it; the task keeps the whole."""
    kind, limit, _ = FIELDS[name]
    if text.isascii() and len(text) <= limit:
        return text
    if kind == "id":
        return text[:limit]
    return text.encode(errors="replace")[:limit].decode(errors="ignore")


def _inputs(text: str) -> dict[str, Any]:
    """The task's inputs as an object, or nothing where the text is not an object that a receipt could hold."""
    if not text:
        return {}
    try:
        inputs = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return inputs if isinstance(inputs, dict) and _object_fault(inputs, INPUTS_BYTES) is None else {}


def _fill_outcome(receipt: dict[str, Any], now: str) -> None:
    """A success has to name its kind of outcome; a failure or a cancellation that names none has none."""
    if receipt["status"] in ("failure", "canceled"):
        receipt["outcome_kind"] = _first_said(receipt["outcome_kind"], "none")
    if receipt["outcome_kind"] in ("artifact_pointer", "mixed"):
        receipt["artifact_mime"] = _first_said(
            receipt["artifact_mime"], receipt["expected_artifact_mime"], NOT_APPLICABLE
        )
    receipt["completed_at"] = receipt["completed_at"] or now


def _recipient(receipt: Mapping[str, Any]) -> str:
    """Who should read it: the agent its own acceptance, the principal the result, the next in charge the escalation."""
    reader = {"complete": "principal_ai", "escalate": "escalation_to"}.get(receipt["phase"], "source_system")
    recipient: str = receipt[reader]
    return recipient


# --- What the phase demands -------------------------------------------------------------------------------------------


def check_phase(receipt: Mapping[str, Any]) -> Refused | None:
    """Judge a filled receipt by the rules of its phase. The refusal names the field and what to do about it."""
    phase = receipt["phase"]
    if not said(receipt["task_id"]):
        return _invalid("task_id", "is missing; a receipt is about a task", "Name the task.")
    if not 0 <= receipt["progress"] <= 100:
        return _invalid("progress", "must be from 0 to 100", "Give the percentage that is done.")
    for name in EMPTY_FIELDS[phase]:
        if receipt[name] is not SENTINELS[name] and said(receipt[name]):
            return _misplaced(name, phase)
    if receipt["retry_requested"] and phase != "escalate" and receipt["status"] != "failure":
        fault = "may be true only in an escalate receipt or in a complete receipt with status failure"
        return _invalid("retry_requested", fault, "Leave it out.")
    if phase == "complete":
        return _check_complete(receipt)
    return _check_escalate(receipt) if phase == "escalate" else None


def _misplaced(name: str, phase: str) -> Refused:
    owner = "escalate" if name in ESCALATION_FIELDS else "complete"
    fault = f"does not apply to phase {phase}; it belongs to phase {owner}"
    return _invalid(name, fault, f"Leave {name} out, or send a receipt of phase {owner}.")


def _check_complete(receipt: Mapping[str, Any]) -> Refused | None:
    kind = receipt["outcome_kind"]
    if receipt["status"] not in COMPLETE_STATUSES:
        return _invalid("status", f"must be {_any_of(COMPLETE_STATUSES)} in phase complete", "Say how the work ended.")
    if kind not in OUTCOME_KINDS:
        fault = f"must be {_any_of(OUTCOME_KINDS)} in phase complete"
        return _invalid("outcome_kind", fault, "Say what the work produced; none if there is nothing to hand over.")
    for name in OUTCOME_NEEDS[kind]:
        if not said(receipt[name]):
            fault = f"is missing; outcome_kind {kind} needs it"
            return _invalid(name, fault, f"Give {name}, or another outcome_kind.")
    return None


def _check_escalate(receipt: Mapping[str, Any]) -> Refused | None:
    if receipt["escalation_class"] not in ESCALATION_CLASSES:
        fault = f"must be {_any_of(ESCALATION_CLASSES)} in phase escalate"
        return _invalid("escalation_class", fault, "Say what kind of help is needed.")
    if not said(receipt["escalation_reason"]):
        return _invalid("escalation_reason", "is missing in phase escalate", "Say in a few words what happened.")
    if not said(receipt["escalation_to"]):
        fault = "is missing; neither a supervisor is set nor does the task have a principal"
        return _invalid("escalation_to", fault, "Say who should take this on.")
    if receipt["recipient_ai"] != receipt["escalation_to"]:
        fault = "must be the same as escalation_to in phase escalate"
        return _invalid("recipient_ai", fault, "Leave recipient_ai out; it is filled from escalation_to.")
    return None


def _invalid(field: str, fault: str, next: str | None = None) -> Refused:
    what_now = None if next is None else f"{next} Nothing was recorded."
    return refuse("invalid_receipt", f"Receipt field {field} {fault}.", what_now, field=field)


def _any_of(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _type_name(value: object) -> str:
    names = {"dict": "an object", "list": "a list", "str": "a string", "NoneType": "null", "bool": "a boolean"}
    return names.get(type(value).__name__, type(value).__name__)


def _shown(name: object) -> str:
    """A caller's field name made safe to repeat: short, and free of characters that could not be sent back."""
    text = name if isinstance(name, str) else f"of type {_type_name(name)}"
    return ascii(text[:64])[1:-1]


# --- The chain --------------------------------------------------------------------------------------------------------


def canonical(value: object) -> str:
    """The one JSON text of a value: keys sorted, no spaces, no escapes that are not needed."""
    return _CANONICAL.encode(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def text_of(receipt: Mapping[str, Any]) -> str:
    """The canonical text of a filled receipt. More than half of it says nothing, and is written once for all."""
    texts: dict[str, str] = {}
    for name, value in receipt.items():
        if value is SENTINELS[name]:
            continue
        if type(value) is str:
            texts[name] = encode_basestring(value)
        elif type(value) is int:
            texts[name] = str(value)
        else:
            texts[name] = "{}" if value == {} else canonical(value)
    spoken = tuple(texts)
    return (_FRAMES.get(spoken) or _frame(spoken)) % texts


# What stands around the fields that say something, by these.
_FRAMES: dict[tuple[str, ...], str] = {}
_FRAMES_MAX = 200


def _frame(spoken: tuple[str, ...]) -> str:
    if len(_FRAMES) >= _FRAMES_MAX:
        _FRAMES.clear()
    texts = {name: f"%({name})s" if name in spoken else canonical(SENTINELS[name]) for name in FIELDS}
    frame = _FRAMES[spoken] = "{" + ",".join(f'"{name}":{texts[name]}' for name in sorted(texts)) + "}"
    return frame


def content_key(receipt: Mapping[str, Any]) -> str:
    """What two receipts with one dedupe_key must share to be the same receipt, sent twice.

    Meant for filled receipts, the new one and the stored one alike. It leaves out what the server fills from state
    that moves on between two deliveries (ids, times, the lease, the task's facts), and fields that say nothing. The
    source stays in: one worker's acceptance is never the answer to another's.
    """
    content = {
        name: value
        for name, value in receipt.items()
        if name not in NOT_CONTENT and value is not SENTINELS.get(name) and said(value)
    }
    return _digest("tenure.content.v1", canonical(content))


def genesis(project_id: str, task_id: str) -> str:
    """What the first receipt of a task stands on."""
    return _digest("tenure.genesis.v1", project_id, task_id)


def chain_hash(prev_hash: str, canonical_body: str) -> str:
    """The hash of a receipt: its body, and through `prev_hash` every receipt of the task before it."""
    return _digest("tenure.receipt.v1", prev_hash, canonical_body)


def seal_hash(prev_seal_hash: str, first_seq: int, last_seq: int, hashes: Iterable[str]) -> str:
    """The hash of a range of the ledger: the receipts' hashes in the order of seq, and the seal before it.

    The first seal stands on the empty string.
    """
    return _digest("tenure.seal.v1", prev_seal_hash, str(first_seq), str(last_seq), *hashes)


def _digest(domain: str, *parts: str) -> str:
    """SHA-256 over parts that cannot run into each other, under a name that keeps the kinds of hash apart."""
    digest = hashlib.sha256(domain.encode())
    for part in parts:
        # A damaged store may return anything; verification has to name the fault, not stumble over it.
        data = part.encode(errors="surrogatepass")
        digest.update(b"\n%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


class ChainFault(Record):
    """Where a chain or a seal is wrong, and how. In a chain `position` counts from 1; in a seal it is a seq."""

    kind: str
    position: int
    message: str
    receipt_id: str | None = None


def verify_chain(
    project_id: str, task_id: str, receipts: Iterable[Receipt], expected_count: int, expected_head: str
) -> ChainFault | None:
    """Check a task's receipts, in the order of position, against each other and against what the task remembers.

    `expected_count` and `expected_head` are the task's own; a task without receipts may remember an empty head.
    """
    head = genesis(project_id, task_id)
    count = 0
    for receipt in receipts:
        fault = _link_fault(receipt, count + 1, head) or _receipt_fault(receipt, count + 1)
        if fault is not None:
            return fault
        count += 1
        head = receipt.hash
        if (receipt.project_id, receipt.task_id) != (project_id, task_id):
            return _fault_at(receipt, count, "foreign", f"belongs to {receipt.project_id}/{receipt.task_id}")
    if count < expected_count:
        message = f"Receipt {count + 1} is missing: the task remembers {expected_count}, the ledger ends at {count}."
        return ChainFault(kind="truncated", position=count + 1, message=message)
    if count > expected_count:
        message = f"Receipt {expected_count + 1} is one too many: the task remembers only {expected_count}."
        return ChainFault(kind="extra", position=expected_count + 1, message=message)
    if expected_head != head and (count or expected_head):
        message = f"The hash at receipt {count}, the last, is not the one that the task remembers."
        return ChainFault(kind="head_differs", position=count, message=message)
    return None


def verify_seal(
    prev_seal_hash: str, first_seq: int, last_seq: int, receipts: Iterable[Receipt], expected_hash: str
) -> ChainFault | None:
    """Check one seal against the receipts from `first_seq` to `last_seq`, in the order of seq.

    Gaps in seq are normal: a transaction that rolled back used a number.
    """
    hashes: list[str] = []
    before = first_seq - 1
    for receipt in receipts:
        if not before < receipt.seq <= last_seq:
            return _fault_at(receipt, receipt.seq, "out_of_order", f"does not follow {before} in a range to {last_seq}")
        fault = _receipt_fault(receipt, receipt.seq)
        if fault is not None:
            return fault
        before = receipt.seq
        hashes.append(receipt.hash)
    if seal_hash(prev_seal_hash, first_seq, last_seq, hashes) != expected_hash:
        message = f"The receipts from {first_seq} to {last_seq} are not those that were sealed: some were added,"
        message += " removed or rewritten together with their hashes, or the seal before this one was changed."
        return ChainFault(kind="seal_differs", position=first_seq, message=message)
    return None


def _link_fault(receipt: Receipt, position: int, head: str) -> ChainFault | None:
    """Whether this receipt is the one that follows."""
    if receipt.position > position:
        message = f"Receipt {position} is missing: the next one found is {receipt.position}."
        return ChainFault(kind="missing", position=position, message=message)
    if receipt.position < position:
        return _fault_at(receipt, position, "out_of_order", f"carries position {receipt.position}")
    if receipt.prev_hash != head:
        return _fault_at(receipt, position, "broken_link", "does not continue from the one before it")
    return None


def _receipt_fault(receipt: Receipt, position: int) -> ChainFault | None:
    """Whether the receipt still is what was hashed, and its row still says what its body says."""
    if chain_hash(receipt.prev_hash, receipt.body) != receipt.hash:
        return _fault_at(receipt, position, "changed_body", "was changed: its body does not match its hash")
    try:
        body = json.loads(receipt.body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return _fault_at(receipt, position, "unreadable", "has a body that is not a JSON object")
    for name in ("receipt_id", "phase", "project_id", "task_id"):
        if body.get(name) != getattr(receipt, name):
            return _fault_at(receipt, position, "row_differs", f"has another {name} in its row than in its body")
    return None


def _fault_at(receipt: Receipt, position: int, kind: str, fault: str) -> ChainFault:
    message = f"Receipt {position} ({receipt.receipt_id}) {fault}."
    return ChainFault(kind=kind, position=position, message=message, receipt_id=receipt.receipt_id)


# --- The engine's own receipts ----------------------------------------------------------------------------------------


def accepted_body(task_id: str, *, source: str, **more: Any) -> dict[str, Any]:
    """For `fill`: this agent takes the work on. `more` are further fields; null and sentinels are left out."""
    return _body("accepted", task_id, source, more)


def progress_body(task_id: str, *, source: str, progress: int, message: str = "", **more: Any) -> dict[str, Any]:
    """For `fill`: this much is done. Zero is a percentage here, not a sentinel."""
    return {**_body("progress", task_id, source, {"message": message, **more}), "progress": progress}


def complete_body(
    task_id: str,
    *,
    source: str,
    status: str = "success",
    outcome_text: str = "",
    artifact_location: str = "",
    **more: Any,
) -> dict[str, Any]:
    """For `fill`: the work ended. The kind of outcome follows from what there is, unless `more` names one."""
    if said(artifact_location):
        outcome_kind = "mixed" if said(outcome_text) else "artifact_pointer"
    else:
        outcome_kind = "response_text" if said(outcome_text) else "none"
    outcome = {"outcome_kind": outcome_kind, "outcome_text": outcome_text, "artifact_location": artifact_location}
    return _body("complete", task_id, source, {"status": status, **outcome, **more})


def escalate_body(
    task_id: str, reason: str, *, source: str, escalation_class: str = "policy", **more: Any
) -> dict[str, Any]:
    """For `fill`: the engine needs someone else. Who that is comes from `more` or from `fill`'s `escalation_to`."""
    escalation = {"escalation_class": escalation_class, "escalation_reason": reason}
    return _body("escalate", task_id, source, {**escalation, **more})


def _body(phase: str, task_id: str, source: str, more: Mapping[str, Any]) -> dict[str, Any]:
    stated = {name: value for name, value in more.items() if said(value)}
    return {"phase": phase, "task_id": task_id, "source_system": source, **stated}
