"""Every number a user may turn, its default, and what is refused.

Settings come as documents: decoded JSON or TOML with up to five sections, all optional.

    task_lease   the specification's own settings, under its names and defaults
    tenure       what the specification leaves open: evidence, silence, recovery, names
    design       how design tasks are done
    profiles     bundles of lease rules the user defines, by name (core/profiles.py)
    task_types   {task_type: {lease_duration_s}}

A document is laid over a base key by key, so a project says only what differs from the store. The result is judged as a
whole: two settings that are each in range and contradict one another are refused by naming both, because a lease whose
floor lies above its ceiling would otherwise be noticed by whoever loses a task to it. A refused document changes
nothing.
"""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.core.ids import id_fault
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any, TypeVar

    _R = TypeVar("_R", bound=Record)

    # What a value must be: (kind, low, high). The bounds belong to number, positive (above low) and count.
    Rule = tuple[str, float, float]


class TaskLeaseSettings(Record):
    """How long an agent's lease lasts. Names and defaults are the specification's."""

    default_hours: float = 0.025
    grace_period_minutes: float = 0.5
    min_lease_hours: float = 0.0167
    max_lease_hours: float = 0.0833
    warning_hours: float = 0.01
    max_renewals: int = 10
    stuck_threshold_renewals: int = 5
    silence_multiplier: float = 1.5
    enable_adaptive: bool = True
    renewal_decay_factor: float = 0.9
    # Records are immutable and `parse` copies what it changes, so these defaults are never written.
    priority_multipliers: Mapping[str, float] = {"critical": 0.5, "high": 0.75, "medium": 1.0, "low": 1.5}
    complexity_multipliers: Mapping[str, float] = {"simple": 0.5, "complex": 1.5, "research": 2.0, "epic": 3.0}


class DesignSettings(Record):
    """How the tasks of the reserved owner are done: by the built-in brief, or by a program of the user's."""

    # A command line, run by the server without a shell: prompt on its input, document on its output.
    command: str = ""
    timeout_s: int = 600
    # How often a failed run is repeated before the built-in brief takes the document's place.
    retries: int = 2


class Settings(Record):
    """All settings in force for one project. Everything between `task_lease` and `profiles` is the section `tenure`."""

    task_lease: TaskLeaseSettings = TaskLeaseSettings()
    # A pulsing link holds off recovery for this long after the agent's own last call.
    hung_after_s: int = 600
    # The longest silence an agent may announce.
    silence_cap_s: int = 3600
    check_interval_s: int = 60
    handoff_hours: float = 24.0
    # A recovered holder that returns within this time was recovered by mistake, and is counted so.
    return_window_s: int = 600
    idempotency_hours: float = 24.0
    branch_prefix: str = "marcus/"
    # What agents' branches begin from and go to; empty: the branch of the main worktree.
    base_branch: str = ""
    # The folder that holds the agents' worktrees, relative to the repository; empty: <repository>.worktrees beside it.
    worktree_path: str = ""
    # The largest file that a rescue saves, and the most that it saves at all.
    rescue_file_mb: int = 20
    rescue_total_mb: int = 200
    reserved_owner: str = "Marcus"
    # Where escalations go; empty means the task's principal_ai.
    supervisor: str = ""
    quarantine_after: int = 3
    instruction_budget_tokens: int = 6000
    event_retention_days: int = 30
    # The external ReceiptGate this project's receipts go to; empty: none. Its project, if not the one of our name.
    receiptgate_url: str = ""
    receiptgate_project: str = ""
    receiptgate_poll_s: int = 5
    # How often people's acts are looked for on the board, and every card of it.
    board_poll_s: int = 5
    board_sweep_s: int = 30
    gridlock_cooldown_s: int = 600
    # Whether this project is a ReceiptGate itself: it records receipts about tasks that live elsewhere.
    foreign_receipts: bool = False
    design: DesignSettings = DesignSettings()
    profiles: Mapping[str, Mapping[str, Any]] = {}
    task_types: Mapping[str, Mapping[str, int]] = {}


DEFAULTS = Settings()

# The lowest lease is about one second, the longest a year.
_HOURS: Rule = ("number", 0.0003, 8760)
_WEEK_S = 604_800

LEASE_RULES: dict[str, Rule] = {
    "default_hours": _HOURS,
    "grace_period_minutes": ("number", 0, 525_600),
    "min_lease_hours": _HOURS,
    "max_lease_hours": _HOURS,
    "warning_hours": ("number", 0, 8760),
    "max_renewals": ("count", 1, 1_000_000),
    "stuck_threshold_renewals": ("count", 1, 1_000_000),
    # Below 1 an agent would be called silent before its own usual gap is over.
    "silence_multiplier": ("number", 1, 1000),
    "enable_adaptive": ("flag", 0, 0),
    "renewal_decay_factor": ("positive", 0, 1),
    "priority_multipliers": ("multipliers", 0, 1000),
    "complexity_multipliers": ("multipliers", 0, 1000),
}
TENURE_RULES: dict[str, Rule] = {
    # Below 15 s an agent would count as hung while its last pulse still proves life.
    "hung_after_s": ("count", 15, _WEEK_S),
    "silence_cap_s": ("count", 0, _WEEK_S),
    "check_interval_s": ("count", 1, 3600),
    "handoff_hours": ("positive", 0, 8760),
    "return_window_s": ("count", 0, _WEEK_S),
    "idempotency_hours": ("positive", 0, 8760),
    "branch_prefix": ("text", 0, 0),
    "base_branch": ("text", 0, 0),
    "worktree_path": ("text", 0, 0),
    "rescue_file_mb": ("count", 0, 10_000),
    "rescue_total_mb": ("count", 0, 1_000_000),
    "reserved_owner": ("text", 0, 0),
    "supervisor": ("text", 0, 0),
    "quarantine_after": ("count", 1, 1000),
    "instruction_budget_tokens": ("count", 1, 10_000_000),
    "event_retention_days": ("count", 1, 36_500),
    "receiptgate_url": ("text", 0, 0),
    "receiptgate_project": ("text", 0, 0),
    "receiptgate_poll_s": ("count", 1, 3600),
    "board_poll_s": ("count", 1, 3600),
    "board_sweep_s": ("count", 5, 3600),
    "gridlock_cooldown_s": ("count", 1, 86_400),
    "foreign_receipts": ("flag", 0, 0),
}
DESIGN_RULES: dict[str, Rule] = {
    "command": ("text", 0, 0),
    "timeout_s": ("count", 1, 86_400),
    "retries": ("count", 0, 100),
}
# What must not be written down among the settings, and the variable of the environment that it is read from.
SECRETS = {"receiptgate_token": "TENURE_RECEIPTGATE_TOKEN", "board_token": "TENURE_BOARD_TOKEN"}
TASK_TYPE_RULES: dict[str, Rule] = {"lease_duration_s": ("count", 1, _WEEK_S)}
SECTIONS = ("task_lease", "tenure", "design", "profiles", "task_types")


def seconds(hours: float) -> int:
    """Hours to the nearest second: 0.0167 h is the 60 s its author meant, not 60.12."""
    return int(hours * 3600 + 0.5)


def parse(document: object, base: Settings = DEFAULTS) -> Settings | Refused:
    """The settings in force when `document` is laid over `base`, or the first thing wrong with it."""
    if not isinstance(document, dict):
        return wrong_type("settings", document, f"an object with the sections {', '.join(SECTIONS)}")
    for section, content in document.items():
        if section not in SECTIONS:
            return unknown(str(section), str(section), SECTIONS)
        if not isinstance(content, dict):
            return wrong_type(section, content, "an object")
    lease = _laid_over(base.task_lease, "task_lease", document.get("task_lease", {}), LEASE_RULES)
    if isinstance(lease, Refused):
        return lease
    tenure = _laid_over(base, "tenure", document.get("tenure", {}), TENURE_RULES)
    if isinstance(tenure, Refused):
        return tenure
    design = _laid_over(base.design, "design", document.get("design", {}), DESIGN_RULES)
    if isinstance(design, Refused):
        return design
    tables: dict[str, Any] = {"design": design}
    for section, table in (("profiles", base.profiles), ("task_types", base.task_types)):
        entries = _entries_laid_over(table, section, document.get(section, {}))
        if isinstance(entries, Refused):
            return entries
        tables[section] = entries
    settings = tenure.replace(task_lease=lease, **tables)
    return _contradiction(settings) or _bad_name(settings) or _bad_entry(settings) or settings


def merge_overrides(*documents: object) -> Settings | Refused:
    """Documents from the most general (the store's) to the most particular (the project's); the later one wins."""
    settings = DEFAULTS
    for document in documents:
        merged = parse(document, settings)
        if isinstance(merged, Refused):
            return merged
        settings = merged
    return settings


def as_document(settings: Settings) -> dict[str, Any]:
    """The full document that `parse` turns back into these settings."""
    tenure = {key: getattr(settings, key) for key in TENURE_RULES}
    lease = settings.task_lease.as_dict()
    for key in ("priority_multipliers", "complexity_multipliers"):
        lease[key] = dict(lease[key])
    return {
        "task_lease": lease,
        "tenure": tenure,
        "design": settings.design.as_dict(),
        "profiles": {name: dict(definition) for name, definition in settings.profiles.items()},
        "task_types": {name: dict(entry) for name, entry in settings.task_types.items()},
    }


def check(setting: str, value: object, rule: Rule) -> Any:
    """The value, if it obeys the rule; otherwise the refusal that names the setting."""
    kind, low, high = rule
    if kind == "flag":
        return value if isinstance(value, bool) else wrong_type(setting, value, "true or false")
    if kind == "text":
        return value if isinstance(value, str) else wrong_type(setting, value, "a string")
    # Python's booleans are integers; a user who writes `true` for a number made a mistake.
    if isinstance(value, bool) or not isinstance(value, int if kind == "count" else (int, float)):
        return wrong_type(setting, value, "a whole number" if kind == "count" else "a number")
    if value != value or value in (float("inf"), float("-inf")):
        return wrong_type(setting, value, "a finite number")
    if value > high or value < low or (kind == "positive" and value == low):
        bounds = f"above {low} and at most {high}" if kind == "positive" else f"between {low} and {high}"
        message = f"{setting} must be {bounds}, not {_shown(value)}"
        return refuse("invalid_settings", message, setting=setting, low=low, high=high)
    return value if kind == "count" else float(value)


def wrong_type(setting: str, value: object, wanted: str) -> Refused:
    """Refuse a value of the wrong kind."""
    return refuse("invalid_settings", f"{setting} must be {wanted}, not {_shown(value)}", setting=setting)


def unknown(setting: str, key: str, known: Collection[str]) -> Refused:
    """Refuse a name nobody knows, with the one that was probably meant: a misspelt setting must not be ignored."""
    if key in SECRETS:
        message = f"{setting} is a secret, and secrets are not kept among the settings"
        return refuse("invalid_settings", message, f"Set {SECRETS[key]} where the server runs.", setting=setting)
    homes = (("task_lease", LEASE_RULES), ("tenure", TENURE_RULES), ("design", DESIGN_RULES))
    home = next((name for name, rules in homes if key in rules), None)
    meant = f"{home}.{key}" if home else nearest(key, known)
    message = f"{setting} is not a setting" + (f"; did you mean {meant}?" if meant else "")
    advice = None if meant else f"Use one of: {', '.join(known)}."
    return refuse("invalid_settings", message, advice, setting=setting, **({"suggestion": meant} if meant else {}))


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name most like this one, if any is."""
    # Imported here because difflib costs more than the rest of core together, and only a mistake needs it.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1)), None)


def is_branch_prefix(prefix: str) -> bool:
    """Whether prefix + agent id is a branch name git accepts (git check-ref-format), and not a full ref by mistake."""
    name = prefix + "x"
    return (
        0 < len(prefix) <= 100
        and name.isprintable()
        and not name.startswith(("-", "refs/"))
        and not any(text in name for text in ("..", "@{", " ", "~", "^", ":", "?", "*", "[", "\\"))
        and all(part and part[0] != "." and not part.endswith(".lock") for part in name.split("/"))
    )


def is_gate_url(url: str) -> bool:
    """Whether this is the address of an HTTP service, and holds no secret."""
    # Imported here because a command that configures no gate should not pay for it.
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port_is_good = parts.port != 0
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and not any(mark in url for mark in ' @?#"<>\\')
    return plain and port_is_good and parts.scheme in ("http", "https") and bool(parts.hostname) and len(url) <= 2048


def _laid_over(base: _R, section: str, document: dict[str, Any], rules: dict[str, Rule]) -> _R | Refused:
    changes: dict[str, Any] = {}
    for key, value in document.items():
        setting = f"{section}.{key}"
        if key not in rules:
            return unknown(setting, str(key), rules)
        if rules[key][0] == "multipliers":
            checked = _multipliers(getattr(base, key), setting, value, rules[key])
        else:
            checked = check(setting, value, rules[key])
        if isinstance(checked, Refused):
            return checked
        changes[key] = checked
    return base.replace(**changes)


def _multipliers(base: Mapping[str, float], setting: str, value: object, rule: Rule) -> dict[str, float] | Refused:
    if not isinstance(value, dict):
        return wrong_type(setting, value, "an object")
    merged = dict(base)
    for key, multiplier in value.items():
        if key not in base:
            return unknown(f"{setting}.{key}", str(key), base)
        checked = check(f"{setting}.{key}", multiplier, ("positive", rule[1], rule[2]))
        if isinstance(checked, Refused):
            return checked
        merged[key] = checked
    return merged


def _entries_laid_over(
    base: Mapping[str, Mapping[str, Any]], section: str, document: dict[str, Any]
) -> dict[str, dict[str, Any]] | Refused:
    """A table of named entries; a project may change one key of an entry the store defines."""
    merged = {name: dict(entry) for name, entry in base.items()}
    for name, entry in document.items():
        if not isinstance(entry, dict):
            return wrong_type(f"{section}.{name}", entry, "an object")
        merged[str(name)] = {**merged.get(name, {}), **entry}
    return merged


def _contradiction(settings: Settings) -> Refused | None:
    """The first pair of settings that cannot both hold, compared in the whole seconds they will be used in."""
    lease = settings.task_lease
    default, low, high = seconds(lease.default_hours), seconds(lease.min_lease_hours), seconds(lease.max_lease_hours)
    # Broken, the setting, the one it contradicts, how, and the way out. The order matters: a floor above the ceiling
    # would make any default look wrong.
    rows = (
        (low > high, "min_lease_hours", "max_lease_hours", "is above", "Lower the one or raise the other."),
        (default > high, "default_hours", "max_lease_hours", "is above", "Set max_lease_hours as well."),
        (default < low, "default_hours", "min_lease_hours", "is below", "Set min_lease_hours as well."),
        (
            lease.grace_period_minutes * 60 > default,
            "grace_period_minutes",
            "default_hours",
            "is a grace longer than the lease of",
            "Shorten the grace or lengthen the lease.",
        ),
        (
            seconds(lease.warning_hours) >= high,
            "warning_hours",
            "max_lease_hours",
            "would warn before any lease has begun, not being below",
            "Lower warning_hours, or raise max_lease_hours.",
        ),
        (
            lease.stuck_threshold_renewals > lease.max_renewals,
            "stuck_threshold_renewals",
            "max_renewals",
            "is above",
            "Lower the one or raise the other.",
        ),
    )
    for broken, key, other, how, advice in rows:
        if broken:
            values = f"task_lease.{key} ({getattr(lease, key)}) {how} task_lease.{other} ({getattr(lease, other)})"
            facts = {"setting": f"task_lease.{key}", "conflicts_with": f"task_lease.{other}"}
            return refuse("invalid_settings", values, advice, **facts)
    return None


def _bad_name(settings: Settings) -> Refused | None:
    if not is_branch_prefix(settings.branch_prefix):
        wanted = "the beginning of a git branch name, such as marcus/"
        return wrong_type("tenure.branch_prefix", settings.branch_prefix, wanted)
    if settings.base_branch and not is_branch_prefix(settings.base_branch + "/"):
        return wrong_type("tenure.base_branch", settings.base_branch, "empty or a git branch, such as main")
    path = settings.worktree_path
    if not path.isprintable() or len(path) > 1024:
        return wrong_type("tenure.worktree_path", path, "empty or a folder")
    wanted = "an id (letters, digits and . _ - + @, at most 128)"
    if id_fault(settings.reserved_owner) is not None:
        return wrong_type("tenure.reserved_owner", settings.reserved_owner, wanted)
    if settings.supervisor and id_fault(settings.supervisor) is not None:
        return wrong_type("tenure.supervisor", settings.supervisor, f"empty or {wanted}")
    if settings.receiptgate_project and id_fault(settings.receiptgate_project) is not None:
        return wrong_type("tenure.receiptgate_project", settings.receiptgate_project, f"empty or {wanted}")
    return _bad_command(settings) or _bad_gate(settings)


def command_words(command: str) -> list[str] | None:
    """A command line as the words that are run, without a shell; None when its quotes do not close."""
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return None


def _bad_command(settings: Settings) -> Refused | None:
    command = settings.design.command
    if not command or command_words(command):
        return None
    return wrong_type("design.command", command, "empty or a command line whose quotes close, such as 'my-designer -v'")


def _bad_gate(settings: Settings) -> Refused | None:
    url = settings.receiptgate_url
    if url and not is_gate_url(url):
        wanted = "empty or an http:// or https:// address without credentials, query or fragment"
        # Not shown: what is wrong with it may be the password in it.
        return refuse("invalid_settings", f"tenure.receiptgate_url must be {wanted}", setting="tenure.receiptgate_url")
    if settings.receiptgate_project and not url:
        message = f"tenure.receiptgate_project ({settings.receiptgate_project}) is a project of no gate: "
        message += "tenure.receiptgate_url is empty"
        facts = {"setting": "tenure.receiptgate_project", "conflicts_with": "tenure.receiptgate_url"}
        return refuse("invalid_settings", message, "Set tenure.receiptgate_url as well, or empty both.", **facts)
    return None


def _bad_entry(settings: Settings) -> Refused | None:
    # Imported here because profiles.py stands on this module; a profile is judged at load by the function that will
    # resolve it at a claim, so that a bad one is refused to its author and not to a worker at night.
    from tenure.core.profiles import profile_named

    for name in settings.profiles:
        profile = profile_named(name, settings)
        if isinstance(profile, Refused):
            return profile
    for name, entry in settings.task_types.items():
        if not name:
            return wrong_type("task_types", name, "a table of named task types")
        for key, value in entry.items():
            setting = f"task_types.{name}.{key}"
            if key not in TASK_TYPE_RULES:
                return unknown(setting, str(key), TASK_TYPE_RULES)
            checked = check(setting, value, TASK_TYPE_RULES[key])
            if isinstance(checked, Refused):
                return checked
    return None


def _shown(value: object) -> str:
    """A value as its author wrote it, short enough for a message."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**18:
        # Python refuses to print integers of several thousand digits.
        return "a number that large"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"a string of {len(value)} characters"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
