"""The three built-in profiles, user-defined ones, and how long a fixed lease lasts."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.errors import Refused
from tenure.core.profiles import BUILT_IN, KEYS, TTL_MAX_S, Profile, parse_duration, profile_named, ttl_for
from tenure.core.settings import DEFAULTS, Settings, parse


def settings_with(**profiles: Any) -> Settings:
    settings = parse({"profiles": profiles})
    assert isinstance(settings, Settings), settings
    return settings


def named(name: str, settings: Settings = DEFAULTS) -> Profile:
    profile = profile_named(name, settings)
    assert isinstance(profile, Profile), profile
    return profile


# Profile, field, value, and why.
BUILT_IN_ROWS = [
    ("agent", "fixed", False, "its terms follow the phases"),
    ("agent", "extends", "any_call", "an agent proves its life by working"),
    ("agent", "registers", False, "an agent registers before it asks for a task"),
    ("agent", "requeue_delay_s", 0, "a recovered task is back at once"),
    ("agent", "max_attempts", None, "nobody counts attempts, only recoveries without work"),
    ("agent", "quarantine_after", 3, "three recoveries without a sign of work"),
    ("agent", "self_heals", True, "a false recovery is undone by the next report"),
    ("agent", "late_success", False, "a lost holder is refused"),
    ("agent", "lease_id_style", "agent", "opaque"),
    ("cli", "fixed", True, "a stated time"),
    ("cli", "extends", "touch", "touch and renew"),
    ("cli", "ttl_s", 900, "15 minutes"),
    ("cli", "registers", True, "a first claim is enough"),
    ("cli", "requeue_delay_s", 0, "no delay"),
    ("cli", "max_attempts", None, "no limit"),
    ("cli", "quarantine_after", None, "no quarantine"),
    ("cli", "self_heals", True, "as for agents"),
    ("cli", "late_success", False, "a lost holder is refused"),
    ("cli", "lease_id_style", "cli", "L and eight characters"),
    ("worker", "fixed", True, "a stated time"),
    ("worker", "extends", "heartbeat", "heartbeats and progress receipts only"),
    ("worker", "ttl_s", 900, "15 minutes"),
    ("worker", "registers", True, "a worker is known by polling"),
    ("worker", "requeue_delay_s", 30, "30 seconds after expiry before a retry"),
    ("worker", "max_attempts", 3, "three attempts per task"),
    ("worker", "quarantine_after", None, "attempts are the limit"),
    ("worker", "self_heals", False, "its retry belongs to the queue"),
    ("worker", "late_success", True, "a late success is still a success"),
    ("worker", "lease_id_style", "worker", "lease- and a ULID"),
]


@pytest.mark.parametrize(("name", "field", "value", "why"), BUILT_IN_ROWS)
def test_profile_named_built_in_has_its_rules(name: str, field: str, value: object, why: str) -> None:
    assert getattr(named(name), field) == value, why


def test_profile_named_agent_takes_its_quarantine_from_the_settings() -> None:
    settings = DEFAULTS.replace(quarantine_after=7)
    assert [named(name, settings).quarantine_after for name in BUILT_IN] == [7, None, None]


def test_profile_named_user_defined_differs_from_its_base_only_where_it_says() -> None:
    settings = settings_with(batch={"base": "worker", "ttl_s": 120, "max_attempts": 5})
    assert named("batch", settings) == BUILT_IN["worker"].replace(name="batch", ttl_s=120, max_attempts=5)


def test_profile_named_user_defined_inherits_the_quarantine_of_the_settings() -> None:
    settings = parse({"tenure": {"quarantine_after": 9}, "profiles": {"pair": {"base": "agent"}}})
    assert isinstance(settings, Settings)
    assert named("pair", settings).quarantine_after == 9


def test_profile_named_with_null_limits_has_none() -> None:
    settings = settings_with(
        endless={"base": "worker", "max_attempts": None}, tireless={"base": "agent", "quarantine_after": None}
    )
    assert named("endless", settings).max_attempts is None
    assert named("tireless", settings).quarantine_after is None


def test_profile_named_agent_base_with_a_fixed_ttl_is_accepted() -> None:
    profile = named("slow", settings_with(slow={"base": "agent", "fixed": True, "ttl_s": 7200}))
    assert (profile.fixed, profile.ttl_s, profile.extends) == (True, 7200, "any_call")


def test_profile_named_unknown_is_refused_with_the_nearest() -> None:
    found = profile_named("wroker", settings_with(batch={"base": "worker"}))
    assert isinstance(found, Refused)
    assert found.code == "invalid_argument"
    assert "did you mean worker?" in found.message
    assert found.next == "Use one of: agent, cli, worker, batch."


def test_keys_of_a_definition_cover_every_field_of_a_profile() -> None:
    assert set(KEYS) == {*Profile._fields, "base"} - {"name"}


# Name, definition, the setting named, and why.
BAD_DEFINITIONS: list[tuple[str, Any, str, str]] = [
    ("batch", {}, "profiles.batch.base", "a definition says what it starts from"),
    ("batch", {"ttl_s": 60}, "profiles.batch.base", "a definition says what it starts from"),
    ("batch", {"base": "batch"}, "profiles.batch.base", "a base is built in"),
    ("batch", {"base": ["cli"]}, "profiles.batch.base", "a base is one name"),
    ("batch", {"base": None}, "profiles.batch.base", "a base is one name"),
    ("batch", {"base": "cli", "ttl": 60}, "profiles.batch.ttl", "unknown keys are refused by name"),
    ("batch", {"base": "cli", "name": "x"}, "profiles.batch.name", "the name is the key of the table"),
    ("batch", {"base": "cli", "ttl_s": 0}, "profiles.batch.ttl_s", "at least a second"),
    ("batch", {"base": "cli", "ttl_s": 604_801}, "profiles.batch.ttl_s", "at most seven days"),
    ("batch", {"base": "cli", "ttl_s": 1.5}, "profiles.batch.ttl_s", "whole seconds"),
    ("batch", {"base": "cli", "ttl_s": True}, "profiles.batch.ttl_s", "true is no number"),
    ("batch", {"base": "cli", "ttl_s": None}, "profiles.batch.ttl_s", "a TTL is not a limit that can be lifted"),
    ("batch", {"base": "cli", "requeue_delay_s": -1}, "profiles.batch.requeue_delay_s", "no negative delay"),
    ("batch", {"base": "cli", "max_attempts": 0}, "profiles.batch.max_attempts", "at least one attempt"),
    ("batch", {"base": "cli", "registers": 1}, "profiles.batch.registers", "1 is not true"),
    ("batch", {"base": "cli", "extends": "prayer"}, "profiles.batch.extends", "one of three"),
    ("batch", {"base": "cli", "lease_id_style": "uuid"}, "profiles.batch.lease_id_style", "one of three"),
    ("worker", {"base": "worker", "ttl_s": 60}, "profiles.worker", "a built-in name keeps its meaning"),
    ("a b", {"base": "worker"}, "profiles.a b", "a name is an id"),
    ("", {"base": "worker"}, "profiles.", "a name is not empty"),
    ("batch", "worker", "profiles.batch", "a definition is an object"),
]


@pytest.mark.parametrize(("name", "definition", "setting", "why"), BAD_DEFINITIONS)
def test_parse_with_a_bad_profile_refuses_by_its_setting(name: str, definition: Any, setting: str, why: str) -> None:
    found = parse({"profiles": {name: definition}})
    assert isinstance(found, Refused), why
    assert (found.code, found.facts["setting"]) == ("invalid_settings", setting), why
    assert setting in found.message


def test_parse_with_a_misspelt_profile_key_suggests_the_right_one() -> None:
    found = parse({"profiles": {"batch": {"base": "cli", "max_attemps": 2}}})
    assert isinstance(found, Refused)
    assert found.facts["suggestion"] == "max_attempts"


# Definition, the two settings, and why.
CONTRADICTIONS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"base": "agent", "ttl_s": 60}, "ttl_s", "fixed", "phases have no TTL"),
    ({"base": "agent", "extends": "heartbeat"}, "extends", "fixed", "no call would extend a phase"),
    ({"base": "worker", "fixed": False}, "extends", "fixed", "the same, by way of the base"),
    (
        {"base": "agent", "max_attempts": 2, "quarantine_after": 3},
        "quarantine_after",
        "max_attempts",
        "the attempts are used up first",
    ),
]


@pytest.mark.parametrize(("definition", "key", "other", "why"), CONTRADICTIONS)
def test_parse_with_a_contradictory_profile_names_both_settings(
    definition: dict[str, Any], key: str, other: str, why: str
) -> None:
    found = parse({"profiles": {"odd": definition}})
    assert isinstance(found, Refused), why
    assert found.facts == {"setting": f"profiles.odd.{key}", "conflicts_with": f"profiles.odd.{other}"}, why
    assert f"profiles.odd.{key}" in found.message
    assert f"profiles.odd.{other}" in found.message


def test_parse_with_an_inherited_quarantine_above_max_attempts_is_accepted() -> None:
    assert named("brief", settings_with(brief={"base": "agent", "max_attempts": 2})).quarantine_after == 3


# explicit, task, type, environment, the TTL, and why.
TTL_ROWS = [
    (1, 2, 3, 4, 1, "what this claim asks for wins"),
    (None, 2, 3, 4, 2, "then the task's own lease_duration_s"),
    (None, None, 3, 4, 3, "then its type's"),
    (None, None, None, 4, 4, "then the environment's default"),
    (None, None, None, None, 900, "then the profile's"),
    (TTL_MAX_S, None, None, None, 604_800, "seven days are allowed"),
    (60, None, None, 0, 60, "a bad value nobody uses does no harm"),
]


@pytest.mark.parametrize(("explicit", "task", "kind", "environment", "ttl_s", "why"), TTL_ROWS)
def test_ttl_for_several_sources_takes_the_most_particular(
    explicit: int | None, task: int | None, kind: int | None, environment: int | None, ttl_s: int, why: str
) -> None:
    found = ttl_for(BUILT_IN["cli"], explicit_s=explicit, task_s=task, type_s=kind, environment_s=environment)
    assert found == ttl_s, why


@pytest.mark.parametrize(
    ("source", "argument", "ttl_s"),
    [
        ("explicit_s", "ttl", 0),
        ("explicit_s", "ttl", -5),
        ("explicit_s", "ttl", TTL_MAX_S + 1),
        ("task_s", "lease_duration_s", 0),
        ("type_s", "task_types.lease_duration_s", TTL_MAX_S + 1),
        ("environment_s", "TENURE_LEASE_TTL", TTL_MAX_S + 1),
    ],
)
def test_ttl_for_out_of_bounds_refuses_naming_the_range_and_the_source(source: str, argument: str, ttl_s: int) -> None:
    sources: dict[str, int | None] = {"explicit_s": None, "task_s": None, "type_s": None, "environment_s": None}
    found = ttl_for(BUILT_IN["worker"], **{**sources, source: ttl_s})
    assert isinstance(found, Refused)
    assert (found.code, found.facts["argument"]) == ("invalid_argument", argument)
    assert "1 s to 604800 s" in found.message


@pytest.mark.parametrize(
    ("text", "total_s"),
    [
        ("5m", 300),
        ("1h", 3600),
        ("90s", 90),
        ("90", 90),
        ("2h30m", 9000),
        ("1h0m5s", 3605),
        ("1d", 86_400),
        ("1d12h", 129_600),
        ("1w", 604_800),
        ("PT5M", 300),
        ("PT1H30M", 5400),
        ("P1D", 86_400),
        ("P1DT1S", 86_401),
        ("P2W", 1_209_600),
        ("pt5m", 300),
        (" 15m ", 900),
        ("30M", 1800),
        ("8d", 691_200),
        ("007s", 7),
    ],
)
def test_parse_duration_well_written_gives_seconds(text: str, total_s: int) -> None:
    assert parse_duration(text) == total_s


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("  ", "blank"),
        ("0", "no time at all"),
        ("0s", "no time at all"),
        ("PT0S", "no time at all"),
        ("-5m", "negative"),
        ("-5", "negative"),
        ("+5", "signs are not written"),
        ("m", "no number"),
        ("5x", "no such unit"),
        ("500ms", "no milliseconds"),
        ("1.5h", "whole numbers only"),
        ("2h30", "thirty what?"),
        ("30m2h", "largest unit first"),
        ("5m5m", "each unit once"),
        ("5 m", "no spaces inside"),
        ("five minutes", "no words"),
        ("P", "nothing follows"),
        ("PT", "nothing follows"),
        ("P1DT", "nothing follows the T"),
        ("P5M", "months have no fixed length"),
        ("P1Y", "years have no fixed length"),
        ("PT1D", "days stand before the T"),
        ("P1H", "hours stand after the T"),
        ("²s", "a superscript is no digit"),
        ("٣m", "only the ten ASCII digits"),
        ("9" * 5000, "longer than any duration"),
    ],
)
def test_parse_duration_badly_written_is_refused(text: str, why: str) -> None:
    found = parse_duration(text)
    assert isinstance(found, Refused), why
    assert found.code == "invalid_argument"
    assert len(found.message) < 100
