"""Defaults, documents, overrides, and everything that is refused. Files and the environment are at the end."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tenure.config import load_file, settings_from_file, ttl_from_environment
from tenure.core.errors import Refused
from tenure.core.settings import (
    DEFAULTS,
    DESIGN_RULES,
    LEASE_RULES,
    TENURE_RULES,
    DesignSettings,
    Settings,
    TaskLeaseSettings,
    as_document,
    is_branch_prefix,
    merge_overrides,
    parse,
    seconds,
)

# The specification's configuration exactly as printed.
PRINTED = """
{
  "task_lease": {
    "default_hours": 0.025, "max_renewals": 10, "warning_hours": 0.01,
    "grace_period_minutes": 0.5, "renewal_decay_factor": 0.9,
    "min_lease_hours": 0.0167, "max_lease_hours": 0.0833,
    "stuck_threshold_renewals": 5, "silence_multiplier": 1.5, "enable_adaptive": true,
    "priority_multipliers": { "critical": 0.5, "high": 0.75, "medium": 1.0, "low": 1.5 },
    "complexity_multipliers": { "simple": 0.5, "complex": 1.5, "research": 2.0, "epic": 3.0 }
  }
}
"""
PRINTED_AS_TOML = """
[task_lease]
default_hours = 0.025
max_renewals = 10
warning_hours = 0.01
grace_period_minutes = 0.5
renewal_decay_factor = 0.9
min_lease_hours = 0.0167
max_lease_hours = 0.0833
stuck_threshold_renewals = 5
silence_multiplier = 1.5
enable_adaptive = true

[task_lease.priority_multipliers]
critical = 0.5
high = 0.75
medium = 1.0
low = 1.5

[task_lease.complexity_multipliers]
simple = 0.5
complex = 1.5
research = 2.0
epic = 3.0
"""


def parsed(document: object, base: Settings = DEFAULTS) -> Settings:
    settings = parse(document, base)
    assert isinstance(settings, Settings), settings
    return settings


def refused(document: object, base: Settings = DEFAULTS) -> Refused:
    found = parse(document, base)
    assert isinstance(found, Refused)
    assert found.code == "invalid_settings"
    return found


@pytest.mark.parametrize(
    ("setting", "default", "meaning"),
    [
        ("default_hours", 0.025, "90 seconds base lease"),
        ("grace_period_minutes", 0.5, "30 seconds of grace after expiry"),
        ("min_lease_hours", 0.0167, "60 seconds, the floor"),
        ("max_lease_hours", 0.0833, "5 minutes, the ceiling"),
        ("warning_hours", 0.01, "36 seconds before expiry, a warning"),
        ("max_renewals", 10, "safety cap on renewals"),
        ("stuck_threshold_renewals", 5, "flag for stuck tasks"),
        ("silence_multiplier", 1.5, "cadence threshold"),
        ("enable_adaptive", True, "progressive phases"),
        ("renewal_decay_factor", 0.9, "decay on each renewal"),
        ("priority_multipliers", {"critical": 0.5, "high": 0.75, "medium": 1.0, "low": 1.5}, "by priority"),
        ("complexity_multipliers", {"simple": 0.5, "complex": 1.5, "research": 2.0, "epic": 3.0}, "by complexity"),
    ],
)
def test_default_of_the_specification_is_ours(setting: str, default: object, meaning: str) -> None:
    assert getattr(TaskLeaseSettings(), setting) == default, meaning
    assert as_document(DEFAULTS)["task_lease"][setting] == default, meaning


def test_defaults_of_our_own_section_are_as_designed() -> None:
    assert as_document(DEFAULTS)["tenure"] == {
        "hung_after_s": 600,
        "silence_cap_s": 3600,
        "check_interval_s": 60,
        "handoff_hours": 24,
        "return_window_s": 600,
        "idempotency_hours": 24,
        "branch_prefix": "marcus/",
        "base_branch": "",
        "worktree_path": "",
        "rescue_file_mb": 20,
        "rescue_total_mb": 200,
        "reserved_owner": "Marcus",
        "supervisor": "",
        "quarantine_after": 3,
        "instruction_budget_tokens": 6000,
        "event_retention_days": 30,
        "receiptgate_url": "",
        "receiptgate_project": "",
        "receiptgate_poll_s": 5,
        "board_poll_s": 5,
        "board_sweep_s": 30,
        "gridlock_cooldown_s": 600,
        "foreign_receipts": False,
    }


def test_rules_cover_every_setting() -> None:
    assert set(LEASE_RULES) == set(TaskLeaseSettings._fields)
    assert {*TENURE_RULES, "task_lease", "design", "profiles", "task_types"} == set(Settings._fields)
    assert set(DESIGN_RULES) == set(DesignSettings._fields)


@pytest.mark.parametrize(
    ("hours", "whole"), [(0.0167, 60), (0.0833, 300), (0.025, 90), (0.01, 36), (0.0, 0), (1, 3600)]
)
def test_seconds_of_hours_round_to_the_nearest(hours: float, whole: int) -> None:
    assert seconds(hours) == whole


def test_parse_the_printed_json_gives_the_defaults() -> None:
    assert parse(json.loads(PRINTED)) == DEFAULTS


def test_parse_the_printed_settings_as_toml_gives_the_defaults() -> None:
    assert parse(tomllib.loads(PRINTED_AS_TOML)) == DEFAULTS


@pytest.mark.parametrize("document", [{}, {"task_lease": {}}, {"tenure": {}, "profiles": {}, "task_types": {}}])
def test_parse_an_empty_document_changes_nothing(document: dict[str, Any]) -> None:
    assert parse(document) == DEFAULTS


EVERYTHING: dict[str, Any] = {
    "task_lease": {
        "default_hours": 2,
        "grace_period_minutes": 3.5,
        "min_lease_hours": 0.5,
        "max_lease_hours": 8,
        "warning_hours": 0.25,
        "max_renewals": 20,
        "stuck_threshold_renewals": 20,
        "silence_multiplier": 1,
        "enable_adaptive": False,
        "renewal_decay_factor": 1,
        "priority_multipliers": {"critical": 0.1, "high": 1, "medium": 2, "low": 3},
        "complexity_multipliers": {"simple": 1, "complex": 2, "research": 3, "epic": 4},
    },
    "tenure": {
        "hung_after_s": 15,
        "silence_cap_s": 0,
        "check_interval_s": 5,
        "handoff_hours": 0.5,
        "return_window_s": 0,
        "idempotency_hours": 1,
        "branch_prefix": "agents/",
        "base_branch": "release/next",
        "worktree_path": "../trees",
        "rescue_file_mb": 1,
        "rescue_total_mb": 10,
        "reserved_owner": "tenure-bot",
        "supervisor": "delegate.root",
        "quarantine_after": 1,
        "instruction_budget_tokens": 1000,
        "event_retention_days": 365,
        "receiptgate_url": "https://gate.example",
        "receiptgate_project": "ours",
        "receiptgate_poll_s": 30,
        "board_poll_s": 10,
        "board_sweep_s": 60,
        "gridlock_cooldown_s": 60,
        "foreign_receipts": True,
    },
    "design": {"command": "designer -v", "timeout_s": 30, "retries": 0},
    "profiles": {"batch": {"base": "worker", "ttl_s": 120, "max_attempts": None}},
    "task_types": {"code.generate": {"lease_duration_s": 1800}},
}


@pytest.mark.parametrize("document", [{}, json.loads(PRINTED), EVERYTHING])
def test_as_document_of_settings_round_trips(document: dict[str, Any]) -> None:
    settings = parsed(document)
    written = as_document(settings)
    assert parse(json.loads(json.dumps(written))) == settings
    # Entries of a base stay, as they must when a project is laid over its store; single settings are all replaced.
    over = parsed(written, parsed(EVERYTHING))
    assert over.replace(profiles=settings.profiles, task_types=settings.task_types) == settings


def test_parse_a_document_of_everything_takes_everything() -> None:
    assert as_document(parsed(EVERYTHING)) == EVERYTHING


def test_parse_leaves_its_document_and_base_untouched() -> None:
    document = json.loads(json.dumps(EVERYTHING))
    base = parsed(document)
    parsed({"task_lease": {"priority_multipliers": {"low": 9}}, "profiles": {"batch": {"ttl_s": 5}}}, base)
    as_document(base)["task_lease"]["priority_multipliers"]["low"] = 77
    assert document == EVERYTHING
    assert as_document(base) == EVERYTHING
    assert TaskLeaseSettings().priority_multipliers["low"] == 1.5


# The store's document, the project's, a setting's path, its value in the end, and why.
OVERRIDES: list[tuple[dict[str, Any], dict[str, Any], str, object, str]] = [
    ({"task_lease": {"max_renewals": 20}}, {}, "task_lease.max_renewals", 20, "the store's value stands"),
    (
        {"task_lease": {"max_renewals": 20}},
        {"task_lease": {"max_renewals": 30}},
        "task_lease.max_renewals",
        30,
        "the project's value wins",
    ),
    (
        {"task_lease": {"max_renewals": 20}},
        {"task_lease": {"warning_hours": 0.02}},
        "task_lease.max_renewals",
        20,
        "a project that speaks of something else leaves it alone",
    ),
    (
        {"task_lease": {"priority_multipliers": {"high": 0.6}}},
        {"task_lease": {"priority_multipliers": {"low": 2}}},
        "task_lease.priority_multipliers",
        {"critical": 0.5, "high": 0.6, "medium": 1.0, "low": 2.0},
        "multipliers are merged one by one",
    ),
    (
        {"profiles": {"batch": {"base": "worker", "ttl_s": 60}}},
        {"profiles": {"batch": {"max_attempts": 9}}},
        "profiles.batch",
        {"base": "worker", "ttl_s": 60, "max_attempts": 9},
        "a project changes one rule of the store's profile",
    ),
    (
        {"task_types": {"a": {"lease_duration_s": 60}}},
        {"task_types": {"b": {"lease_duration_s": 90}}},
        "task_types",
        {"a": {"lease_duration_s": 60}, "b": {"lease_duration_s": 90}},
        "task types add up",
    ),
    (
        {"task_lease": {"max_lease_hours": 8}},
        {"task_lease": {"default_hours": 4}},
        "task_lease.default_hours",
        4.0,
        "a project may rest on the store's ceiling",
    ),
]


@pytest.mark.parametrize(("store", "project", "path", "value", "why"), OVERRIDES)
def test_merge_overrides_of_store_and_project_lets_the_project_win(
    store: dict[str, Any], project: dict[str, Any], path: str, value: object, why: str
) -> None:
    settings = merge_overrides(store, project)
    assert isinstance(settings, Settings), settings
    found: Any = as_document(settings)
    for key in path.split("."):
        found = found[key]
    assert found == value, why


def test_merge_overrides_of_nothing_gives_the_defaults() -> None:
    assert merge_overrides() == DEFAULTS


def test_merge_overrides_with_a_bad_document_refuses() -> None:
    found = merge_overrides({}, {"task_lease": {"max_renewals": 0}})
    assert isinstance(found, Refused)


# A document, the setting named, the suggestion if any, and why.
UNKNOWN: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"task_leases": {}}, "task_leases", "task_lease", "a misspelt section"),
    ({"database": {}}, "database", None, "a section of another program"),
    ({"default_hours": 1}, "default_hours", "task_lease.default_hours", "a setting without its section"),
    ({"task_lease": {"max_renewal": 1}}, "task_lease.max_renewal", "max_renewals", "a misspelt setting"),
    ({"task_lease": {"hung_after_s": 1}}, "task_lease.hung_after_s", "tenure.hung_after_s", "the wrong section"),
    ({"tenure": {"max_renewals": 1}}, "tenure.max_renewals", "task_lease.max_renewals", "the wrong section"),
    ({"tenure": {"xyz": 1}}, "tenure.xyz", None, "nothing like any setting"),
    (
        {"task_lease": {"priority_multipliers": {"hihg": 1}}},
        "task_lease.priority_multipliers.hihg",
        "high",
        "a misspelt priority",
    ),
    (
        {"task_lease": {"complexity_multipliers": {"none": 1}}},
        "task_lease.complexity_multipliers.none",
        None,
        "no complexity always counts 1.0",
    ),
    (
        {"task_types": {"build": {"lease_duration": 5}}},
        "task_types.build.lease_duration",
        "lease_duration_s",
        "a forgotten unit",
    ),
]


@pytest.mark.parametrize(("document", "setting", "suggestion", "why"), UNKNOWN)
def test_parse_an_unknown_name_refuses_with_the_nearest(
    document: dict[str, Any], setting: str, suggestion: str | None, why: str
) -> None:
    found = refused(document)
    assert (found.facts["setting"], found.facts.get("suggestion")) == (setting, suggestion), why
    assert setting in found.message
    if suggestion:
        assert f"did you mean {suggestion}?" in found.message
    else:
        assert found.next.startswith("Use one of: ")


NAN, INFINITE = float("nan"), float("inf")
# A section, a key, a value, and why it is refused.
WRONG: list[tuple[str, str, object, str]] = [
    ("task_lease", "default_hours", "0.025", "text is no number"),
    ("task_lease", "default_hours", True, "true is no number"),
    ("task_lease", "default_hours", None, "null is no number"),
    ("task_lease", "default_hours", [1], "a list is no number"),
    ("task_lease", "default_hours", NAN, "NaN is no number"),
    ("task_lease", "default_hours", INFINITE, "nothing lasts for ever"),
    ("task_lease", "default_hours", -INFINITE, "nor the other way"),
    ("task_lease", "default_hours", 0, "no lease at all"),
    ("task_lease", "default_hours", -1, "negative"),
    ("task_lease", "default_hours", 8761, "more than a year"),
    ("task_lease", "default_hours", 10**5000, "too long to print, let alone to hold"),
    ("task_lease", "grace_period_minutes", -0.1, "negative"),
    ("task_lease", "min_lease_hours", 0, "a floor of nothing"),
    ("task_lease", "max_lease_hours", 0.0001, "less than a second"),
    ("task_lease", "warning_hours", -1, "negative"),
    ("task_lease", "max_renewals", 0, "at least one"),
    ("task_lease", "max_renewals", 2.0, "a count is whole"),
    ("task_lease", "max_renewals", True, "true is no count"),
    ("task_lease", "stuck_threshold_renewals", 0, "at least one"),
    ("task_lease", "silence_multiplier", 0.99, "silent before the usual gap is over"),
    ("task_lease", "silence_multiplier", NAN, "NaN is no number"),
    ("task_lease", "enable_adaptive", 1, "1 is not true"),
    ("task_lease", "enable_adaptive", "true", "text is not true"),
    ("task_lease", "renewal_decay_factor", 0, "the first renewal would have no time"),
    ("task_lease", "renewal_decay_factor", -0.5, "negative"),
    ("task_lease", "renewal_decay_factor", 1.01, "decay does not grow"),
    ("task_lease", "priority_multipliers", 2, "not an object"),
    ("task_lease", "complexity_multipliers", [], "not an object"),
    ("tenure", "hung_after_s", 14, "hung while the last pulse still proves life"),
    ("tenure", "hung_after_s", 60.5, "whole seconds"),
    ("tenure", "silence_cap_s", -1, "negative"),
    ("tenure", "check_interval_s", 0, "a monitor that never sleeps"),
    ("tenure", "handoff_hours", 0, "a handoff nobody can read"),
    ("tenure", "return_window_s", -1, "negative"),
    ("tenure", "idempotency_hours", 0, "keys that are forgotten at once"),
    ("tenure", "quarantine_after", 0, "at least one"),
    ("tenure", "instruction_budget_tokens", 0, "at least one"),
    ("tenure", "event_retention_days", 0, "at least one"),
    ("tenure", "branch_prefix", 5, "not text"),
    ("tenure", "branch_prefix", "", "agents would own main"),
    ("tenure", "branch_prefix", "two words/", "git allows no spaces"),
    ("tenure", "base_branch", "-x", "an option"),
    ("tenure", "base_branch", "a..b", "a range"),
    ("tenure", "worktree_path", "a\nb", "two lines"),
    ("tenure", "rescue_file_mb", -1, "less than nothing"),
    ("tenure", "branch_prefix", "refs/heads/marcus/", "a full ref by mistake"),
    ("tenure", "reserved_owner", "", "somebody must own it"),
    ("tenure", "reserved_owner", "Marcus Aurelius", "an id has no spaces"),
    ("tenure", "reserved_owner", None, "null is not text"),
    ("tenure", "supervisor", "a/b", "neither empty nor an id"),
]


# Named by key and reason, because Python refuses to print one of the values.
@pytest.mark.parametrize(("section", "key", "value", "why"), WRONG, ids=[f"{key}: {why}" for _, key, _, why in WRONG])
def test_parse_a_bad_value_refuses_naming_the_setting(section: str, key: str, value: object, why: str) -> None:
    found = refused({section: {key: value}})
    assert found.facts["setting"] == f"{section}.{key}", why
    assert f"{section}.{key} must be " in found.message, why
    assert len(found.message) < 200
    # A refusal travels as JSON, which has no NaN.
    json.dumps(found.facts, allow_nan=False)


@pytest.mark.parametrize("value", [0, -1, NAN, True, "1", 1001])
@pytest.mark.parametrize("table", ["priority_multipliers.high", "complexity_multipliers.epic"])
def test_parse_a_bad_multiplier_refuses_naming_it(table: str, value: object) -> None:
    name, key = table.split(".")
    assert refused({"task_lease": {name: {key: value}}}).facts["setting"] == f"task_lease.{table}"


@pytest.mark.parametrize("document", [None, [], "task_lease", 3, True])
def test_parse_something_else_than_an_object_refuses(document: object) -> None:
    assert refused(document).facts["setting"] == "settings"


@pytest.mark.parametrize("section", ["task_lease", "tenure", "profiles", "task_types"])
@pytest.mark.parametrize("content", [None, [], 3, "x"])
def test_parse_a_section_that_is_no_object_refuses(section: str, content: object) -> None:
    assert refused({section: content}).facts["setting"] == section


@pytest.mark.parametrize("entry", [None, 60, {"lease_duration_s": 0}, {"lease_duration_s": "5m"}])
def test_parse_a_bad_task_type_refuses_naming_it(entry: object) -> None:
    assert refused({"task_types": {"code.generate": entry}}).facts["setting"].startswith("task_types.code.generate")


# A document, the two settings that contradict one another, a word of the advice, and why.
CONTRADICTIONS: list[tuple[dict[str, Any], str, str, str, str]] = [
    (
        {"task_lease": {"min_lease_hours": 1}},
        "task_lease.min_lease_hours",
        "task_lease.max_lease_hours",
        "Lower",
        "a floor above the ceiling",
    ),
    (
        {"task_lease": {"default_hours": 4}},
        "task_lease.default_hours",
        "task_lease.max_lease_hours",
        "Set max_lease_hours as well",
        "conservative mode needs a ceiling to match",
    ),
    (
        {"task_lease": {"default_hours": 0.01, "grace_period_minutes": 0.1}},
        "task_lease.default_hours",
        "task_lease.min_lease_hours",
        "Set min_lease_hours as well",
        "a lease below the floor",
    ),
    (
        {"task_lease": {"grace_period_minutes": 1.6}},
        "task_lease.grace_period_minutes",
        "task_lease.default_hours",
        "Shorten the grace",
        "96 s of grace after a lease of 90 s",
    ),
    (
        {"task_lease": {"warning_hours": 0.0833}},
        "task_lease.warning_hours",
        "task_lease.max_lease_hours",
        "Lower warning_hours",
        "a warning before the lease begins",
    ),
    (
        {"task_lease": {"stuck_threshold_renewals": 11}},
        "task_lease.stuck_threshold_renewals",
        "task_lease.max_renewals",
        "Lower",
        "stuck only after the cap",
    ),
]


@pytest.mark.parametrize(("document", "setting", "other", "advice", "why"), CONTRADICTIONS)
def test_parse_a_contradiction_refuses_naming_both_settings(
    document: dict[str, Any], setting: str, other: str, advice: str, why: str
) -> None:
    found = refused(document)
    assert found.facts == {"setting": setting, "conflicts_with": other}, why
    assert setting in found.message
    assert other in found.message
    assert advice in found.next, why


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"task_lease": {"min_lease_hours": 0.0833, "default_hours": 0.0833}}, "floor, lease and ceiling may be one"),
        ({"task_lease": {"grace_period_minutes": 1.5}}, "as much grace as lease"),
        ({"task_lease": {"default_hours": 0.08334}}, "compared in the seconds they mean"),
        ({"task_lease": {"stuck_threshold_renewals": 10}}, "stuck at the cap"),
        ({"task_lease": {"renewal_decay_factor": 0.001}}, "a steep decay"),
        ({"tenure": {"hung_after_s": 15}}, "hung as soon as the pulse is stale"),
    ],
)
def test_parse_at_the_edge_of_a_contradiction_accepts(document: dict[str, Any], why: str) -> None:
    assert isinstance(parse(document), Settings), why


def test_parse_a_contradiction_with_the_base_refuses() -> None:
    base = parsed({"task_lease": {"max_lease_hours": 8}})
    found = refused({"task_lease": {"default_hours": 9}}, base)
    assert found.facts["conflicts_with"] == "task_lease.max_lease_hours"
    assert "(8.0)" in found.message


PREFIXES = [
    ("marcus/", True),
    ("agents/fleet-1/", True),
    ("wip-", True),
    ("a.", True),
    ("é/", True),
    ("", False),
    ("/", False),
    ("/a/", False),
    ("a//", False),
    ("-a/", False),
    (".a/", False),
    ("a/.", False),
    ("a..b/", False),
    ("a.lock/", False),
    ("a@{", False),
    ("a b/", False),
    ("a~/", False),
    ("a^/", False),
    ("a:/", False),
    ("a?/", False),
    ("a*/", False),
    ("a[/", False),
    ("a\\/", False),
    ("a\t/", False),
    ("a\x7f/", False),
]


@pytest.mark.parametrize(("prefix", "good"), PREFIXES)
def test_is_branch_prefix_agrees_with_git(prefix: str, good: bool) -> None:
    assert is_branch_prefix(prefix) is good
    if prefix:
        git = subprocess.run(["git", "check-ref-format", "--branch", prefix + "x"], capture_output=True, check=False)
        assert (git.returncode == 0) is good


def test_import_of_the_rules_loads_nothing_heavy() -> None:
    heavy = ["typing", "dataclasses", "re", "json", "difflib", "pathlib", "tomllib"]
    program = (
        "import sys; before = set(sys.modules)\n"
        "import tenure.core.phases, tenure.core.profiles, tenure.config\n"
        f"print(sorted(set({heavy!r}) & (set(sys.modules) - before)))"
    )
    # -S leaves out site, whose own imports would hide ours.
    source = str(Path(__file__).parents[2] / "src")
    environment = {"PYTHONPATH": source}
    found = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(("name", "text"), [("a.json", PRINTED), ("a.toml", PRINTED_AS_TOML), ("A.JSON", PRINTED)])
def test_settings_from_file_in_either_format_gives_the_defaults(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert settings_from_file(tmp_path / name) == DEFAULTS


@pytest.mark.parametrize(
    ("name", "content", "words", "why"),
    [
        ("a.json", b'{"task_lease": {\n  "max_renewals": }}', "line 2", "JSON names the line"),
        ("a.toml", b"[task_lease]\nmax_renewals =\n", "line 2", "TOML names the line"),
        ("a.json", b"[1]", "object", "a document is an object"),
        ("a.json", b'{"a": 1, "a": 2}', "'a' is given twice", "JSON would silently keep the last"),
        ("a.json", b'"\xff"', "UTF-8", "not text"),
        ("a.json", b"[" * 100_000, "nested too deeply", "nesting without end"),
        ("a.json", b'{"a": ' + b"9" * 5000 + b"}", "cannot be understood", "a number without end"),
        ("a.json", b"", "line 1", "an empty file is not JSON"),
        ("a.yaml", b"a: 1", "neither", "another format"),
        ("missing.json", None, "No such file", "no file"),
    ],
)
def test_load_file_with_a_fault_refuses_naming_file_and_place(
    tmp_path: Path, name: str, content: bytes | None, words: str, why: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    found = load_file(path)
    assert isinstance(found, Refused), why
    assert found.code == "invalid_settings"
    assert found.facts["file"] == str(path)
    assert words in found.message, why


def test_load_file_of_a_directory_refuses(tmp_path: Path) -> None:
    (tmp_path / "d.json").mkdir()
    assert isinstance(load_file(tmp_path / "d.json"), Refused)


def test_load_file_with_a_byte_order_mark_or_windows_lines_reads_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf" + PRINTED.encode())
    (tmp_path / "a.toml").write_bytes(PRINTED_AS_TOML.replace("\n", "\r\n").encode())
    assert load_file(tmp_path / "a.json") == load_file(tmp_path / "a.toml")


def test_settings_from_file_with_a_bad_setting_names_file_and_setting(tmp_path: Path) -> None:
    path = tmp_path / "tenure.toml"
    path.write_text("[task_lease]\ndefault_hours = nan\n")
    found = settings_from_file(path)
    assert isinstance(found, Refused)
    assert found.facts == {"setting": "task_lease.default_hours", "file": str(path)}
    assert found.message.startswith(f"{path}: task_lease.default_hours")


@pytest.mark.parametrize(
    ("environ", "ttl_s", "why"),
    [
        ({}, None, "nothing is asked"),
        ({"TENURE_LEASE_TTL": "30m"}, 1800, "our name"),
        ({"LODESTAR_LEASE_TTL": "30m"}, 1800, "the specification's name"),
        ({"TENURE_LEASE_TTL": "5m", "LODESTAR_LEASE_TTL": "30m"}, 300, "ours wins"),
        ({"TENURE_LEASE_TTL": "", "LODESTAR_LEASE_TTL": "30m"}, 1800, "an empty variable counts as unset"),
        ({"TENURE_LEASE_TTL": "45"}, 45, "plain seconds"),
    ],
)
def test_ttl_from_environment_takes_the_first_that_is_set(environ: dict[str, str], ttl_s: int | None, why: str) -> None:
    assert ttl_from_environment(environ) == ttl_s, why


@pytest.mark.parametrize("variable", ["TENURE_LEASE_TTL", "LODESTAR_LEASE_TTL"])
def test_ttl_from_environment_badly_written_refuses_naming_the_variable(variable: str) -> None:
    found = ttl_from_environment({variable: "soon"})
    assert isinstance(found, Refused)
    assert found.facts["argument"] == variable
    assert found.message.startswith(variable)
