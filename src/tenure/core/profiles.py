"""Profiles: the bundle of lease rules a surface asks for.

The three specifications disagree on almost every rule of a lease, and each is right for its callers. An `agent` cannot
be asked for heartbeats, so any call of its extends the lease and its term follows its phase. A `cli` user holds a task
for a stated time. A `worker` is a program in a loop: it can send heartbeats, retries are counted, and a success that
arrives late is still a success. A profile is that difference as data; the engine has no other notion of "which system".

A user defines more in the settings, each from a built-in base:

    profiles.batch = {"base": "worker", "ttl_s": 120, "max_attempts": 5}
"""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.core.ids import id_fault
from tenure.core.record import Record
from tenure.core.settings import check, nearest, unknown, wrong_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from tenure.core.settings import Rule, Settings

TTL_MIN_S = 1
TTL_MAX_S = 604_800


class Profile(Record):
    """One bundle. `None` means no limit, or that the rule does not apply."""

    name: str
    # A fixed TTL, or the terms of core/phases.py.
    fixed: bool
    # What pushes the deadline out: any call of the holder; touch and renew; heartbeats and progress receipts only.
    extends: Literal["any_call", "touch", "heartbeat"]
    # How long a fixed lease lasts when nobody says otherwise. Without `fixed` it is not used.
    ttl_s: int = 900
    # Whether a first claim registers an agent nobody knows.
    registers: bool
    requeue_delay_s: int = 0
    max_attempts: int | None = None
    # Recoveries in a row without any sign of work after which the task is blocked.
    quarantine_after: int | None = None
    # Whether a report from a recovered holder takes the task back while it is free.
    self_heals: bool
    # Whether a late success completes the task although its lease has ended.
    late_success: bool = False
    # How new lease ids look: `cli` L + 8 characters, the others lease- + ULID.
    lease_id_style: Literal["agent", "cli", "worker"]


BUILT_IN: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="agent",
            fixed=False,
            extends="any_call",
            registers=False,
            quarantine_after=3,
            self_heals=True,
            lease_id_style="agent",
        ),
        Profile(name="cli", fixed=True, extends="touch", registers=True, self_heals=True, lease_id_style="cli"),
        Profile(
            name="worker",
            fixed=True,
            extends="heartbeat",
            registers=True,
            requeue_delay_s=30,
            max_attempts=3,
            self_heals=False,
            late_success=True,
            lease_id_style="worker",
        ),
    )
}

# What a user may say in a definition, besides its base.
_FLAGS = ("fixed", "registers", "self_heals", "late_success")
_COUNTS: dict[str, Rule] = {
    "ttl_s": ("count", TTL_MIN_S, TTL_MAX_S),
    "requeue_delay_s": ("count", 0, TTL_MAX_S),
    "max_attempts": ("count", 1, 1000),
    "quarantine_after": ("count", 1, 1000),
}
_CHOICES = {"base": tuple(BUILT_IN), "extends": ("any_call", "touch", "heartbeat"), "lease_id_style": tuple(BUILT_IN)}
_LIMITS = ("max_attempts", "quarantine_after")
KEYS = ("base", *_FLAGS, "extends", *_COUNTS, "lease_id_style")


def profile_named(name: str, settings: Settings) -> Profile | Refused:
    """The built-in or user-defined profile of this name, under these settings."""
    definition = settings.profiles.get(name)
    if definition is not None:
        return _defined(name, definition, settings)
    if name in BUILT_IN:
        return _built_in(name, settings)
    known = (*BUILT_IN, *settings.profiles)
    meant = nearest(name, known)
    message = f"no profile is called {name!r}" + (f"; did you mean {meant}?" if meant else "")
    return refuse("invalid_argument", message, f"Use one of: {', '.join(known)}.", argument="profile", profile=name)


def ttl_for(
    profile: Profile, *, explicit_s: int | None, task_s: int | None, type_s: int | None, environment_s: int | None
) -> int | Refused:
    """The TTL of a fixed lease: whoever spoke most particularly about this claim decides."""
    sources = (
        (explicit_s, "ttl"),
        (task_s, "lease_duration_s"),
        (type_s, "task_types.lease_duration_s"),
        (environment_s, "TENURE_LEASE_TTL"),
        (profile.ttl_s, f"profiles.{profile.name}.ttl_s"),
    )
    for ttl_s, source in sources:
        if ttl_s is not None:
            if TTL_MIN_S <= ttl_s <= TTL_MAX_S:
                return ttl_s
            message = f"a lease lasts from {TTL_MIN_S} s to {TTL_MAX_S} s (7 days); {source} asks for {ttl_s} s"
            return refuse("invalid_argument", message, argument=source, low=TTL_MIN_S, high=TTL_MAX_S)
    raise AssertionError("a profile always has a ttl_s")


_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_DIGITS = "0123456789"
# Longer than any duration worth writing, and short enough that no number in it can be a burden.
_LONGEST = 32


def parse_duration(text: str) -> int | Refused:
    """Seconds in 90, 90s, 5m, 2h30m, 1d, PT5M, PT1H30M or P1D. Whole numbers only, and never nothing."""
    given = text.strip().lower()
    total: int | None
    if len(given) > _LONGEST:
        total = None
    elif given.startswith("p"):
        # ISO 8601: months and years have no fixed length, so before the T only weeks and days are units.
        date, mark, time = given[1:].partition("t")
        days = 0 if mark and not date else _sum_s(date, "wd")
        rest = _sum_s(time, "hms") if mark else 0
        total = None if days is None or rest is None else days + rest
    elif given and all(char in _DIGITS for char in given):
        total = int(given)
    else:
        total = _sum_s(given, "wdhms")
    if not total:
        what = f"{text!r} is no time at all" if total == 0 else f"{text[:_LONGEST]!r} is not a duration"
        return refuse("invalid_argument", what, "Write it like 90s, 5m, 2h30m, 1d or PT5M.", argument="duration")
    return total


def _sum_s(text: str, units: str) -> int | None:
    """The seconds in number-and-unit pairs, each unit at most once and the largest first; None if it is not that."""
    total, digits = 0, ""
    for char in text:
        if char in _DIGITS:
            digits += char
        elif digits and char in units:
            total += int(digits) * _UNITS_S[char]
            units, digits = units[units.index(char) + 1 :], ""
        else:
            return None
    return None if digits or not text else total


def _built_in(name: str, settings: Settings) -> Profile:
    profile = BUILT_IN[name]
    if profile.quarantine_after in (None, settings.quarantine_after):
        return profile
    return profile.replace(quarantine_after=settings.quarantine_after)


def _defined(name: str, definition: Mapping[str, Any], settings: Settings) -> Profile | Refused:
    where = f"profiles.{name}"
    if name in BUILT_IN:
        # Surfaces ask for the built-in names and promise what the specifications say of them.
        message = f"{where} would redefine a built-in profile"
        return refuse("invalid_settings", message, f'Choose another name, with "base": "{name}".', setting=where)
    if id_fault(name) is not None:
        return wrong_type(where, name, "named by an id (letters, digits and . _ - + @, at most 128)")
    for key, value in definition.items():
        checked = _checked(f"{where}.{key}", key, value)
        if isinstance(checked, Refused):
            return checked
    if "base" not in definition:
        message = f"{where}.base is missing"
        return refuse("invalid_settings", message, f"Add one of: {', '.join(BUILT_IN)}.", setting=f"{where}.base")
    changes = {key: value for key, value in definition.items() if key != "base"}
    profile = _built_in(definition["base"], settings).replace(name=name, **changes)
    return _contradiction(where, definition, profile) or profile


def _checked(setting: str, key: str, value: object) -> Any:
    if key in _LIMITS and value is None:
        return None
    if key in _FLAGS:
        return check(setting, value, ("flag", 0, 0))
    if key in _COUNTS:
        return check(setting, value, _COUNTS[key])
    if key in _CHOICES:
        return value if value in _CHOICES[key] else wrong_type(setting, value, f"one of {', '.join(_CHOICES[key])}")
    return unknown(setting, str(key), KEYS)


def _contradiction(where: str, definition: Mapping[str, Any], profile: Profile) -> Refused | None:
    """Two rules of a definition that cannot both mean something."""
    # Broken, the key, the one it contradicts, how, and the way out.
    rows = (
        (
            "ttl_s" in definition and not profile.fixed,
            "ttl_s",
            "fixed",
            "has no effect while the terms follow the phases",
            "Set fixed to true, or leave ttl_s out.",
        ),
        (
            profile.extends == "heartbeat" and not profile.fixed,
            "extends",
            "fixed",
            "would leave nothing to extend the lease: phases move with calls and reports, not heartbeats",
            "Set fixed to true, or extends to any_call.",
        ),
        (
            # An inherited limit that is never reached is harmless; two written side by side are a mistake.
            "max_attempts" in definition
            and "quarantine_after" in definition
            and (profile.quarantine_after or 0) > (profile.max_attempts or TTL_MAX_S),
            "quarantine_after",
            "max_attempts",
            "is never reached: the attempts are used up first",
            "Lower quarantine_after, or raise max_attempts.",
        ),
    )
    for broken, key, other, how, advice in rows:
        if broken:
            message = f"{where}.{key} ({getattr(profile, key)}) {how} ({where}.{other} is {getattr(profile, other)})"
            facts = {"setting": f"{where}.{key}", "conflicts_with": f"{where}.{other}"}
            return refuse("invalid_settings", message, advice, **facts)
    return None
