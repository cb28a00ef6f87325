"""Writes the generated parts of the documentation, so that no table in it can say what the code does not.

    python tools/docs.py            rewrite what lies between the markers in docs/
    python tools/docs.py --check    change nothing; name every file that is out of date and exit 1

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`. Three kinds of source are used: tables in
the code (settings, refusals, profiles, phases), the declarations of verbs and events, and the engine itself, played on
a manual clock in memory (the trace, and what a returning holder is told).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tenure.engine
from tenure.clock import ManualClock
from tenure.core import errors, profiles, receipts, reconcile, settings
from tenure.core import recovery as rules
from tenure.core.deadline import live, median_gap_ms
from tenure.core.errors import Refused
from tenure.core.handoff import recovery_info
from tenure.core.model import Lease, Task
from tenure.core.phases import PHASES, phase_of
from tenure.core.record import Record
from tenure.core.story import SENTENCES
from tenure.engine import agents, claims, endings, holding, liveness, notes, observe, recovery, tasks, touch
from tenure.engine import receipts as ledger
from tenure.engine.verb import VERBS, Verb
from tenure.store.sqlite import SqliteStore
from tenure.surfaces.cli import spec
from tenure.surfaces.cli.commands import COMMANDS
from tenure.surfaces.mcp import toolsets

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tenure"
BEGIN, END = "<!-- generated: ", "<!-- end -->"

# What each setting means. A setting without a meaning here is an error.
MEANINGS = {
    "task_lease.default_hours": "The base lease. Scales the phase table; from 1.0 on, conservative mode.",
    "task_lease.grace_period_minutes": "Grace after expiry. Scales the graces of the phase table.",
    "task_lease.min_lease_hours": "The floor of a lease's term (not of its grace).",
    "task_lease.max_lease_hours": "The ceiling of a lease's term.",
    "task_lease.warning_hours": "How long before expiry a warning event is written, once per term.",
    "task_lease.max_renewals": "Renewals after which a lease is flagged. A flag, not a cap: it ends nothing.",
    "task_lease.stuck_threshold_renewals": "Renewals after which a lease is flagged as stuck.",
    "task_lease.silence_multiplier": "How many median gaps of silence an agent's own cadence explains.",
    "task_lease.enable_adaptive": "false: every lease gets default_hours and grace_period_minutes, without phases.",
    "task_lease.renewal_decay_factor": "Factor for each renewal, in conservative mode only.",
    "task_lease.priority_multipliers": "Factor for the task's priority, in conservative mode only.",
    "task_lease.complexity_multipliers": "Factor for the task's complexity, in conservative mode only.",
    "tenure.hung_after_s": "How long a link keeps a silent agent past its last call, a deaf server past its deadline.",
    "tenure.silence_cap_s": "The longest silence an agent may announce.",
    "tenure.check_interval_s": "The longest the recovery monitor sleeps. Read from the project `default`.",
    "tenure.handoff_hours": "How long a handoff is shown to the next holder.",
    "tenure.return_window_s": "A recovered holder that returns within this time was recovered by mistake.",
    "tenure.idempotency_hours": "Age at which upkeep forgets an idempotency key. Read from the project `default`.",
    "tenure.branch_prefix": "An agent's git branch is this prefix and its id.",
    "tenure.base_branch": "The branch that agents' branches begin from and go to. Empty: the main worktree's.",
    "tenure.worktree_path": "The folder of the agents' worktrees, relative to the repository. Empty: beside it.",
    "tenure.rescue_file_mb": "The largest file that a rescue saves, in MB. Larger ones are listed.",
    "tenure.rescue_total_mb": "The most that one rescue saves, in MB. What is beyond is listed.",
    "tenure.reserved_owner": "The system's own name: nobody can register as it, and its tasks are given to nobody.",
    "tenure.supervisor": "Who escalations go to. Empty: the task's principal_ai, else the reserved owner.",
    "tenure.quarantine_after": "Recoveries in a row without a sign of work that block a task (profile agent).",
    "tenure.instruction_budget_tokens": "Size that instructions are cut to. Title, handoff and body are never cut.",
    "tenure.event_retention_days": "Age at which upkeep forgets an event. Read from the project `default`.",
    "tenure.receiptgate_url": "The external ReceiptGate that receipts are emitted to and read from. Empty: none.",
    "tenure.receiptgate_project": "The project at the gate. Empty: the one with the name of ours.",
    "tenure.receiptgate_poll_s": "How often the gate is asked for accepted and complete receipts of our tasks.",
    "tenure.board_poll_s": "How often the board's activity is read for what people did.",
    "tenure.board_sweep_s": "How often every card of the board is compared: the assignment monitor's interval.",
    "tenure.gridlock_cooldown_s": "How long the same gridlock is not told again.",
    "tenure.foreign_receipts": "Whether receipts about tasks that live elsewhere are recorded: we are their gate.",
    "design.command": "The program that writes design documents, run without a shell. Empty: the built-in brief.",
    "design.timeout_s": "How long a run of the program may last.",
    "design.retries": "How often a failed run is repeated before the built-in brief takes the document's place.",
    "task_types.lease_duration_s": "TTL of a fixed lease on a task of this type, unless the task or the claim says it.",
}
PROFILE_MEANINGS = {
    "base": "The built-in profile to start from. Required.",
    "fixed": "A fixed TTL (`true`), or terms that follow the phases.",
    "extends": "What moves the deadline: any call; touch and renew; heartbeats and progress only.",
    "ttl_s": "How long a fixed lease lasts when nobody says otherwise.",
    "registers": "Whether a first claim registers an unknown agent.",
    "requeue_delay_s": "How long a task waits after a recovery or a failure.",
    "max_attempts": "Used attempts after which a task is dead. `null`: no limit.",
    "quarantine_after": "Recoveries in a row without a sign of work after which a task is blocked. `null`: never.",
    "self_heals": "Whether a report or completion of a recovered holder takes a free task back.",
    "late_success": "Whether a late `complete` receipt with success still completes the task.",
    "lease_id_style": "`cli`: `L` and 8 characters. The others: `lease-` and a ULID.",
}
EXITS = {
    "EXIT_OK": "success",
    "EXIT_INTERNAL": "something nobody foresaw",
    "EXIT_USAGE": "the request itself is wrong",
    "EXIT_NOT_FOUND": "there is no such thing",
    "EXIT_HELD": "a claim found the task taken",
    "EXIT_NOTHING_READY": "a claim found no work",
    "EXIT_LEASE_LOST": "a holder lost its lease",
    "EXIT_STATE": "the task or lease is not in a state that allows it",
    "EXIT_NOT_PERMITTED": "the caller may not do this",
    "EXIT_STORE": "the store cannot do its work now",
}
# Defaults that a verb sets in its body instead of its signature.
BODY_DEFAULTS = {("offer", "profile"): "worker"}


# -- Markdown ---------------------------------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    names = list(head)
    lines = [names, ["---"] * len(names), *[[_cell(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("\n", " ").replace("|", "\\|")


def code(value: object) -> str:
    """A value in backticks, as JSON would write the simple ones."""
    plain = {None: "null", True: "true", False: "false", "": '""'}
    return f"`{plain.get(value, value) if isinstance(value, str | bool | None) else value}`"


# -- Tables of the code -----------------------------------------------------------------------------------------------


def settings_table(section: str, table_rules: dict[str, settings.Rule], defaults: Record | None) -> str:
    """Every setting of one section: default, what is accepted, meaning."""
    rows = []
    for key, rule in table_rules.items():
        default = "" if defaults is None else _default(getattr(defaults, key))
        rows.append((code(f"{section}.{key}"), default, accepted(rule), MEANINGS[f"{section}.{key}"]))
    return table(("setting", "default", "accepted", "meaning"), rows)


def _default(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {factor:g}" for name, factor in value.items())
    return code(value)


def accepted(rule: settings.Rule) -> str:
    """A rule in words."""
    kind, low, high = rule
    if kind == "flag":
        return "true or false"
    if kind == "text":
        return "text"
    if kind == "positive":
        return f"a number above {low:g}, at most {_plain(high)}"
    if kind == "multipliers":
        return f"an object of numbers above {low:g}, each at most {_plain(high)}"
    return f"a {'whole ' if kind == 'count' else ''}number from {_plain(low)} to {_plain(high)}"


def _plain(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def lease_settings() -> str:
    return settings_table("task_lease", settings.LEASE_RULES, settings.DEFAULTS.task_lease)


def tenure_settings() -> str:
    return settings_table("tenure", settings.TENURE_RULES, settings.DEFAULTS)


def design_settings() -> str:
    return settings_table("design", settings.DESIGN_RULES, settings.DEFAULTS.design)


def type_settings() -> str:
    return settings_table("task_types", settings.TASK_TYPE_RULES, None)


def built_in_profiles() -> str:
    """The three bundles side by side."""
    built_in = profiles.BUILT_IN.values()
    fields = [field for field in profiles.Profile._fields if field != "name"]
    rows = [(code(field), *(_rule_of(profile, field) for profile in built_in)) for field in fields]
    return table(("rule", *(code(profile.name) for profile in built_in)), rows)


def _rule_of(profile: profiles.Profile, field: str) -> str:
    if field == "ttl_s" and not profile.fixed:
        return "not used"
    value = getattr(profile, field)
    return "none" if value is None else code(value)


def profile_keys() -> str:
    """What a definition of one's own may say."""
    rows = [(code(key), _profile_rule(key), PROFILE_MEANINGS[key]) for key in profiles.KEYS]
    return table(("key", "accepted", "meaning"), rows)


def _profile_rule(key: str) -> str:
    if key in profiles._CHOICES:
        return ", ".join(code(choice) for choice in profiles._CHOICES[key])
    words = accepted(profiles._COUNTS.get(key, ("flag", 0, 0)))
    return f"{words}, or null" if key in profiles._LIMITS else words


def refusal_codes() -> str:
    rows = [(code(name), *facts) for name, facts in errors.CODES.items()]
    return table(("code", "exit", "HTTP", "what to do, unless the refusal says it better"), rows)


def exit_statuses() -> str:
    rows = [
        (getattr(errors, name), meaning, ", ".join(code(c) for c, f in errors.CODES.items() if f[0] == status) or "")
        for name, meaning in EXITS.items()
        if (status := getattr(errors, name)) is not None
    ]
    return table(("exit", "meaning", "codes"), rows)


def unused_codes() -> str:
    """The codes that no source file names, apart from the table."""
    text = "".join(path.read_text() for path in sorted(SOURCE.rglob("*.py")) if path.name != "errors.py")
    unused = [code(name) for name in errors.CODES if f'"{name}"' not in text]
    if not unused:
        return "Every code is used."
    return f"No part of the source gives these yet; they are kept for surfaces to come: {', '.join(unused)}."


def phases() -> str:
    """The phase table, with the progress at which each row begins and ends."""
    rows = []
    for reports in (0, 1, 2):
        spans: dict[str, list[int]] = {}
        for progress in range(101):
            spans.setdefault(phase_of(reports, progress), []).append(progress)
        for phase, span in spans.items():
            term, grace = PHASES[phase]  # type: ignore[index]
            progress_words = "any" if len(span) == 101 else f"{span[0]} to {span[-1]} %"
            rows.append((reports if reports < 2 else "2 or more", progress_words, phase, term, grace, term + grace))
    return table(("reports", "progress", "phase", "term, s", "grace, s", "silence allowed, s"), rows)


def receipt_fields() -> str:
    rows = [
        (code(name), kind, f"{limit:,}" if kind not in ("boolean", "phase", "time") else "", code(sentinel))
        for name, (kind, limit, sentinel) in receipts.FIELDS.items()
    ]
    return table(("field", "kind", "limit", "when nothing is said"), rows)


# -- Verbs and events -------------------------------------------------------------------------------------------------


def modules() -> list[str]:
    """Every module of the engine, imported, so that all verbs are declared."""
    names = [f"tenure.engine.{module.name}" for module in pkgutil.iter_modules(tenure.engine.__path__)]
    for name in names:
        importlib.import_module(name)
    return names


def verbs() -> str:
    """Every verb, by module."""
    parts = []
    for module in modules():
        here = [found for found in VERBS.values() if found.body.__module__ == module]
        if not here:
            continue
        first = (inspect.getdoc(sys.modules[module]) or "").partition("\n\n")[0].replace("\n", " ")
        rows = [_verb_row(found) for found in here]
        parts.append(f"## {code(module.removeprefix('tenure.'))}\n\n{first}")
        parts.append(table(("verb", "", "what it does", "arguments", "answer"), rows))
    return "\n\n".join(parts)


def _verb_row(found: Verb[..., Any]) -> tuple[str, ...]:
    signature = inspect.signature(found.body)
    answer = str(signature.return_annotation).removesuffix(" | Refused")
    first = (found.__doc__ or "").partition("\n")[0]
    arguments = ", ".join(_argument(found, name, signature) for name in found.inputs) or "none"
    return code(found.name), "writes" if found.writes else "reads", first, arguments, code(answer)


def _argument(found: Verb[..., Any], name: str, signature: inspect.Signature) -> str:
    default = default_of(found, name, signature)
    if default is inspect.Parameter.empty:
        return f"**{code(name)}**"
    quiet = default is None or default in ("", (), False)
    shown = f'"{default}"' if isinstance(default, str) else str(default)
    return code(name) if quiet else code(f"{name}={shown}")


def default_of(found: Verb[..., Any], name: str, signature: inspect.Signature) -> Any:
    """An argument's default, or `empty` when it is required. Gathered arguments have theirs in a record."""
    if (found.name, name) in BODY_DEFAULTS:
        return BODY_DEFAULTS[found.name, name]
    if name in signature.parameters:
        return signature.parameters[name].default
    gathered: dict[str, type[Record]] = {"claimant": claims.Claimant, "caller": holding.Caller}
    for parameter, record in gathered.items():
        if parameter in signature.parameters:
            return inspect.Parameter.empty if name in record._required else getattr(record, name)
    # Fields of a task: only a new one needs a title, and an edit leaves out what stays.
    if found.name == "add_task":
        return inspect.Parameter.empty if name == "title" else getattr(Task, name, None)
    return None


class Placeholder(str):
    """Stands for any value in a sentence and shows its name."""

    def __format__(self, spec: str) -> str:
        return str(self)

    def __iter__(self) -> Iterator[str]:
        yield str(self)

    def __truediv__(self, other: float) -> Placeholder:
        return Placeholder(self.replace("_ms}", "_s}"))


def recorded() -> dict[str, set[str]]:
    """Every kind of event the engine writes, with the data it carries, read from the calls of `record`."""
    found: dict[str, set[str]] = {}
    for path in sorted((SOURCE / "engine").glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                for kinds, data in _records_in(function):
                    for kind in kinds:
                        found.setdefault(kind, set()).update(data)
    return found


def _records_in(function: ast.FunctionDef) -> Iterator[tuple[list[str], set[str]]]:
    for call in ast.walk(function):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("change.record"):
            continue
        data = {keyword.arg for keyword in call.keywords if keyword.arg} - {"task", "lease", "agent_id"}
        if any(keyword.arg is None for keyword in call.keywords):
            data |= _numbers()
        yield _kinds(function, call.args[1]), data


def _kinds(function: ast.FunctionDef, argument: ast.expr) -> list[str]:
    """The kinds a call may write: one constant, or a name that was given one of two."""
    if not isinstance(argument, ast.Name):
        return [ast.literal_eval(argument)]
    given = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    values = [node.value for node in given if ast.unparse(node.targets[0]) == argument.id]
    choices = [choice for value in values if isinstance(value, ast.IfExp) for choice in (value.body, value.orelse)]
    return [ast.literal_eval(choice) for choice in choices]


def _numbers() -> set[str]:
    """What a recovery says about itself in numbers."""
    times = dict.fromkeys(("granted_at_ms", "expires_at_ms", "seen_at_ms", "recover_at_ms", "wake_at_ms"), 0)
    names = dict.fromkeys(("lease_id", "project_id", "task_id", "agent_id", "profile"), "")
    counts = dict.fromkeys(("task_key", "incarnation", "token", "term_ms"), 1)
    sample: dict[str, Any] = {**times, **names, **counts, "state": "active", "death_at_ms": 0, "silent_until_ms": 0}
    return set(rules.numbers(Lease(**sample), 0, settings.DEFAULTS.task_lease.silence_multiplier))


def events() -> str:
    """Every kind of event, how it is told, and what it carries."""
    kinds = recorded()
    missing = kinds.keys() ^ SENTENCES.keys()
    if missing:
        raise SystemExit(f"Written but not told, or told but never written: {', '.join(sorted(missing))}")
    sample = {name: Placeholder(f"{{{name}}}") for name in sorted(set().union(*kinds.values()))}
    rows = [
        (code(kind), tell("{agent}", dict(sample)), ", ".join(code(name) for name in sorted(kinds[kind])))
        for kind, tell in SENTENCES.items()
    ]
    return table(("kind", "told as", "data"), rows)


# -- Boards -----------------------------------------------------------------------------------------------------------


def board_rows() -> str:
    """The reconciler's table: every combination of a lease, a card's status and its name."""
    names = {"nobody": "nobody", "same": "its holder", "agent": "a registered agent", "outsider": "anyone else"}
    names_held = {**names, "agent": "another registered agent"}
    rows = []
    for (present, status, who), chosen in reconcile.TABLE.items():
        named = "" if status == "missing" else (names_held if present else names)[who]
        rows.append(("yes" if present else "no", status, named, reconcile.ACTIONS[chosen]))
    return table(("held", "the card is", "and names", "then"), rows)


# -- The command line -------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command: form, summary, options, examples, other words for it."""
    return "\n\n".join(_command(command) for command in COMMANDS)


def _command(command: spec.Command) -> str:
    parts = [f"### {code('tenure ' + command.path)}", command.summary, _fenced("text", [spec.synopsis(command)])]
    rows: list[tuple[str, str]] = [(code(argument.name), argument.help) for argument in command.arguments]
    for option in command.options:
        names = ", ".join(code(name) for name in (option.name, *option.aliases))
        rows.append((f"{names} {option.value}".rstrip(), option.help))
    if rows:
        parts.append(table(("argument or option", "meaning"), rows))
    if command.notes:
        parts.append(_fenced("text", command.notes.splitlines()))
    parts.append(_fenced("sh", command.examples))
    if command.aliases:
        parts.append(f"Also: {', '.join(code('tenure ' + alias) for alias in command.aliases)}.")
    return "\n\n".join(parts)


def _fenced(language: str, lines: Iterable[str]) -> str:
    return "\n".join((f"```{language}", *lines, "```"))


def common_options() -> str:
    """What every command takes."""
    rows = [
        (f"{', '.join(code(name) for name in (option.name, *option.aliases))} {option.value}".rstrip(), option.help)
        for option in spec.COMMON
    ]
    return table(("option", "meaning"), rows)


# -- The engine, played -----------------------------------------------------------------------------------------------


class Scene:
    """A fresh store in memory, on a clock that counts from the first claim."""

    def __init__(self, profile: str = "agent") -> None:
        self.clock = ManualClock()
        self.store = SqliteStore(":memory:", clock=self.clock)
        self.began_ms = self.clock.wall
        self.profile = profile
        ok(tasks.add_task(self.store, task_id="F001", title="Parse CSV", principal_ai="delegate.root"))
        for agent_id in ("Agent-A", "Agent-B"):
            ok(agents.register(self.store, agent_id=agent_id))

    def at(self, seconds: float) -> None:
        self.clock.advance(seconds - (self.clock.wall - self.began_ms) / 1000)

    def now_ms(self) -> int:
        return self.clock.wall

    def claim(self, agent_id: str) -> Lease:
        lease: Lease = ok(claims.claim(self.store, task_id="F001", agent_id=agent_id, profile=self.profile)).lease
        return lease

    def held(self) -> Lease:
        lease: Lease = ok(claims.leases_of(self.store, agent_id="Agent-A"))[0]
        return lease


def ok(answer: Any) -> Any:
    """The answer of a verb that must not refuse here."""
    if isinstance(answer, Refused):
        raise SystemExit(f"The engine refused what the documentation plays: {answer.code}: {answer.message}")
    return answer


def trace() -> str:
    """The specification's trace, as the engine plays it."""
    scene = Scene()
    rows: list[tuple[object, ...]] = []

    def note(event: str, lease: Lease) -> None:
        phase = phase_of(lease.reports, lease.progress)
        second = (scene.now_ms() - scene.began_ms) / 1000
        rows.append(
            (f"{second:g}", event, phase, f"{lease.term_ms // 1000} + {lease.grace_ms // 1000}", deadline(lease))
        )

    def deadline(lease: Lease) -> str:
        return f"{(lease.recover_at_ms - scene.began_ms) / 1000:g}"

    note("Agent-A claims", scene.claim("Agent-A"))
    scene.at(15)
    ok(notes.log_decision(scene.store, task_id="F001", agent_id="Agent-A", decision="Sessions."))
    note("`log_decision`: a touch, and the first mark", scene.held())
    scene.at(40)
    ok(liveness.report(scene.store, task_id="F001", agent_id="Agent-A", progress=15))
    note("`report` 15 %: the second mark, phase 2", scene.held())
    scene.at(55)
    ok(touch.touch(scene.store, agent_id="Agent-A"))
    last = scene.held()
    note("the last call; then the process is killed unseen", last)
    scene.at(174.999)
    rows.append(
        ("174.999", f"{'live' if live(last, scene.now_ms()) else 'not live'}: nobody else may have it", "", "", "")
    )
    scene.at(175)
    done = ok(recovery.advance(scene.store))
    rows.append(("175", f"due; recovered by whoever looks first ({done.recovered} recovery)", "", "", ""))
    scene.at(180)
    note("Agent-B claims, and is shown the handoff", scene.claim("Agent-B"))
    handoff = ok(observe.show_task(scene.store, task_id="F001")).handoffs[0]
    median_s = (median_gap_ms(last) or 0) / 1000
    multiplier = settings.DEFAULTS.task_lease.silence_multiplier
    silent_s = (handoff.recovered_at_ms - last.seen_at_ms) / 1000
    facts = table(("RecoveryInfo", "value"), ((code(k), _lines(v)) for k, v in recovery_info(handoff).items()))
    head = ("at, s", "what happens", "phase", "term + grace, s", "counts as dead at, s")
    return (
        f"{table(head, rows)}\n\nAt the recovery Agent-A had been silent for {silent_s:g} s. The median gap between "
        f"its marks was {median_s:g} s, and {median_s:g} × {multiplier:g} is {median_s * multiplier:g} s: its cadence "
        f"does not explain the silence. The handoff, with the clock started at 2026-01-01T00:00:00Z:\n\n{facts}"
    )


def _lines(value: object) -> str:
    return ", then ".join(code(line) for line in str(value).splitlines())


def evidence() -> str:
    """The same run with other evidence about the process."""
    rows = []
    for words, end in (
        ("no link", None),
        ("a link sees the process exit at 55 s", True),
        ("a link goes quiet at 55 s", ""),
    ):
        scene = Scene()
        first = scene.claim("Agent-A")
        link = None
        if end is not None:
            link = ok(agents.link_up(scene.store, agent_id="Agent-A", incarnation=first.incarnation, kind="run"))
        for second in range(5, 60, 5):
            scene.at(second)
            if second == 15:
                ok(notes.log_decision(scene.store, task_id="F001", agent_id="Agent-A", decision="Sessions."))
            if second == 40:
                ok(liveness.report(scene.store, task_id="F001", agent_id="Agent-A", progress=15))
            if second == 55:
                ok(touch.touch(scene.store, agent_id="Agent-A"))
            if link is not None:
                ok(agents.pulse(scene.store, link_id=link.link_id))
        recover_at_ms = scene.held().recover_at_ms
        if end and link is not None:
            ok(agents.link_down(scene.store, link_id=link.link_id, died=True))
            recover_at_ms = scene.now_ms()
            assert not ok(claims.leases_of(scene.store, agent_id="Agent-A"))
        rows.append((words, f"{(recover_at_ms - scene.began_ms) / 1000:g} s"))
    return table(("evidence", "on offer again at"), rows)


def _recovered(scene: Scene) -> None:
    scene.at(2_000)
    ok(recovery.advance(scene.store))
    scene.at(2_060)


def _taken(scene: Scene) -> None:
    _recovered(scene)
    scene.claim("Agent-B")


def _replaced(scene: Scene) -> None:
    _recovered(scene)
    ok(agents.register(scene.store, agent_id="Agent-A"))
    scene.claim("Agent-A")


def _finished(scene: Scene) -> None:
    _taken(scene)
    ok(endings.complete(scene.store, task_id="F001", agent_id="Agent-B"))


def _blocked(scene: Scene) -> None:
    _recovered(scene)
    ok(endings.block(scene.store, task_id="F001", agent_id="Agent-B", reason="No credentials."))


def _revoked(scene: Scene) -> None:
    ok(endings.revoke(scene.store, task_id="F001"))


SITUATIONS: dict[str, Callable[[Scene], None]] = {
    "recovered, nobody took it": _recovered,
    "someone else holds it": _taken,
    "a newer run of itself holds it": _replaced,
    "someone else finished it": _finished,
    "it is blocked": _blocked,
    "taken away by an operator, free": _revoked,
}
CALLS: dict[str, Callable[[Scene, dict[str, Any]], Any]] = {
    "touch": lambda scene, who: touch.touch(scene.store, agent_id="Agent-A", incarnation=who["incarnation"]),
    "renew": lambda scene, who: liveness.renew(scene.store, **who),
    "report": lambda scene, who: liveness.report(scene.store, progress=50, **who),
    "release": lambda scene, who: endings.release(scene.store, **who),
    "complete": lambda scene, who: endings.complete(scene.store, **who),
    "log_decision": lambda scene, who: notes.log_decision(scene.store, decision="Sessions.", **who),
}


def zombie() -> str:
    """What a holder that lost its lease is told, call by call, with profile agent."""
    rows = []
    for situation, happen in SITUATIONS.items():
        cells = []
        for call in CALLS.values():
            scene = Scene()
            lease = scene.claim("Agent-A")
            happen(scene)
            who = {"task_id": "F001", "agent_id": "Agent-A", "incarnation": lease.incarnation}
            cells.append(_told(call(scene, who)))
        rows.append((situation, *cells))
    return table(("the task", *(code(call) for call in CALLS)), rows)


def _told(answer: Any) -> str:
    if isinstance(answer, Refused):
        return code(answer.code)
    if isinstance(answer, touch.Touched):
        return f"told: lost ({answer.lost.end_reason})" if answer.lost else "honoured"
    if getattr(answer, "healed", False):
        return "taken back"
    if getattr(answer, "repeated", False):
        return "success, already done"
    if isinstance(answer, endings.Ended):
        return "taken back and completed"
    return "kept as a note" if isinstance(answer, notes.Decision) else "honoured"


def late_receipts() -> str:
    """What a worker's receipts do after its lease was recovered."""
    bodies: dict[str, dict[str, Any]] = {
        "progress": {"progress": 50},
        "complete, success": {"status": "success", "outcome_kind": "none"},
        "complete, failure": {"status": "failure"},
        "escalate": {"escalation_class": "scope", "escalation_reason": "too large"},
    }
    rows = []
    for situation in ("recovered, nobody took it", "someone else holds it", "someone else finished it"):
        cells = []
        for words, more in bodies.items():
            scene = Scene("worker")
            lease = scene.claim("Agent-A")
            SITUATIONS[situation](scene)
            body = {"phase": words.partition(",")[0], "task_id": "F001", "lease_id": lease.lease_id, **more}
            answer = ledger.submit_receipt(scene.store, body=body)
            cells.append(_receipt_told(scene, situation, answer))
        rows.append((situation, *cells))
    return table(("the task", *bodies), rows)


def _receipt_told(scene: Scene, situation: str, answer: Any) -> str:
    if isinstance(answer, Refused):
        return code(answer.code)
    finished = answer.task.status == "done" and situation != "someone else finished it"
    if not finished:
        return "recorded only"
    return "completes the task" + ("; the newer lease is revoked" if situation == "someone else holds it" else "")


# -- Files ------------------------------------------------------------------------------------------------------------


def mcp_tools() -> str:
    """Every tool of the MCP server, with what it must and may be given."""
    rows = []
    for tool in toolsets.EVERY.values():
        schema = tool.input_schema
        required = schema.get("required", [])
        optional = [name for name in schema["properties"] if name not in required and name != "agent_id"]
        given = ", ".join([*(f"`{name}`" for name in required), *(f"`{name}`?" for name in optional)])
        rows.append((tool.of, f"`{tool.name}`", given, tool.summary))
    return table(("set", "tool", "takes", "for"), rows)


def replayed() -> str:
    """What the rules make of the traces in the repository."""
    from tenure.core.replay import RULES, replay
    from tenure.surfaces.cli.replay import runs_of

    runs = runs_of(str(ROOT / "tests" / "replay" / "silences.csv.gz"))
    outcomes = [replay(runs, rule, settings.DEFAULTS) for rule in RULES]
    rows = [
        (
            code(outcome.rule),
            f"{outcome.false_recoveries_per_agent_hour:.2f}",
            f"{outcome.runs_hit_share:.1%}",
            f"{outcome.latency_mean_s:.3g} s",
            f"{outcome.latency_p95_s:.3g} s",
        )
        for outcome in outcomes
    ]
    head = ("rule", "false recoveries per agent-hour", "runs hit", "mean latency", "p95 latency")
    hours = f"{sum(map(len, runs)):,} calls in {len(runs)} unattended runs, {outcomes[0].agent_hours:.0f} agent-hours."
    return f"{hours}\n\n{table(head, rows)}"


PARTS: dict[str, Callable[[], str]] = {
    "mcp-tools": mcp_tools,
    "lease-settings": lease_settings,
    "tenure-settings": tenure_settings,
    "design-settings": design_settings,
    "type-settings": type_settings,
    "profiles": built_in_profiles,
    "profile-keys": profile_keys,
    "refusals": refusal_codes,
    "exit-statuses": exit_statuses,
    "unused-codes": unused_codes,
    "phases": phases,
    "receipt-fields": receipt_fields,
    "verbs": verbs,
    "events": events,
    "board-rows": board_rows,
    "trace": trace,
    "evidence": evidence,
    "zombie": zombie,
    "late-receipts": late_receipts,
    "common-options": common_options,
    "commands": commands,
    "replay": replayed,
}


def files() -> list[Path]:
    """Every document that may have generated parts."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def renewed(text: str) -> str:
    """A document with its generated parts as they should be."""
    first, *rest = text.split(BEGIN)
    parts = [first]
    for part in rest:
        name, _, after = part.partition(" -->\n")
        _, end, tail = after.partition(END)
        if not end:
            raise SystemExit(f"The generated part {name} has no end.")
        parts.append(f"{name} -->\n\n{PARTS[name]()}\n\n{END}{tail}")
    return BEGIN.join(parts)


def main(arguments: list[str]) -> int:
    """Rewrite, or check."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = []
    for path in files():
        text = path.read_text(encoding="utf-8")
        new = renewed(text)
        if new != text:
            stale.append(str(path.relative_to(ROOT)))
            if not arguments:
                path.write_text(new, encoding="utf-8")
    if stale:
        print(("Out of date, run `make docs`: " if arguments else "Rewritten: ") + ", ".join(stale))
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
