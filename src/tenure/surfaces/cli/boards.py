"""`tenure board ...` and `tenure reconcile`: a project's external board."""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.core.model import DEFAULT_PROJECT
from tenure.core.times import iso
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, ago, clean, counted, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tenure.boards.port import BoardApi, Finding
    from tenure.boards.sync import Swept
    from tenure.engine.boards import BoardView
    from tenure.surfaces.cli.context import Context


def connect(context: Context) -> Result:
    """Check the mapping against the board, connect, and bring both into step."""
    from tenure.boards.kinds import open_kind
    from tenure.engine.boards import KINDS, connect_board

    # Opened first: without a store there is nothing to connect, and no reason to ask a server.
    store = context.store
    kind = context.get("kind")
    if kind not in KINDS:
        raise Stop(refuse("usage", f"board connect: {kind!r} is not a kind of board; there is {', '.join(KINDS)}"))
    url, name = context.get("url"), context.get("board")
    if not url or not name:
        missing = "--url" if not url else "--board"
        raise Stop(refuse("usage", f"board connect: {missing} is missing", "See: tenure board connect --help"))
    config: Any = {
        "columns": _grouped(context.get("column", []), "--column", "NAME=STATUS"),
        "users": _pairs(context.get("user", []), "--user", "NAME=AGENT"),
        "priorities": _numbers(context.get("priority", [])),
    }
    token = context.get("token") or ""
    api = open_kind(kind, url, token or _secret(context), name, config)
    try:
        findings = api.check()
        lines = _lines(findings)
        ill = [finding for finding in findings if not finding.well]
        data: dict[str, Any] = {"findings": [finding.as_dict() for finding in findings]}
        if ill:
            return _unwell(data, lines, ill)
        if context.get("dry_run"):
            return Result(data=data, lines=[*lines, "Nothing was changed (--dry-run)."])
        must(
            connect_board(
                store,
                kind=kind,
                url=url,
                board=name,
                token=token,
                webhook_token=context.get("webhook_token", ""),
                config=config,
                **context.project(),
            )
        )
        found = _reconciled(context, api)
    finally:
        api.close()
    data["reconciled"] = found.as_dict()
    project = context.project_id or DEFAULT_PROJECT
    lines += [f"Connected project {project} with {name}.", *_summary(found)]
    return Result(data=data, lines=lines, next=["tenure up", "tenure board check"])


def check(context: Context) -> Result:
    """Whether the board can be reached, fits, and agrees."""
    from tenure.engine.boards import show_board
    from tenure.engine.health import check_assignment_health
    from tenure.surfaces import shapes

    view = must(show_board(context.store, **context.project()))
    api = _open(context)
    try:
        findings = list(api.check())
    finally:
        api.close()
    health = must(check_assignment_health(context.store, **context.project()))
    lines = [*_lines(findings), *_waiting(view, context.now_ms), *_health(health)]
    ill = [finding for finding in findings if not finding.well]
    data = {
        "findings": [finding.as_dict() for finding in findings],
        "board": view.as_dict(),
        "assignments": shapes.assignments(health),
    }
    if ill or not health.healthy:
        return _unwell(data, lines, ill)
    return Result(data=data, lines=lines)


def list_boards(context: Context) -> Result:
    """Every connected board."""
    from tenure.engine import boards

    views = must(boards.list_boards(context.store))
    lines = []
    for view in views:
        lines += [f"{view.project_id}: {view.kind} {clean(view.board, 60)} at {clean(view.url, 200)}"]
        lines += [f"  {line}" for line in _waiting(view, context.now_ms)]
    return Result(
        data={"boards": [view.as_dict() for view in views]}, lines=lines or ["No board but the embedded one."]
    )


def disconnect(context: Context) -> Result:
    """Forget the board."""
    from tenure.engine.boards import disconnect_board

    view = must(disconnect_board(context.store, **context.project()))
    return Result(data=view.as_dict(), lines=[f"{view.project_id} is no longer on {view.board}; its cards stay."])


def retry(context: Context) -> Result:
    """Try parked writes again."""
    from tenure.engine.boards import retry_board

    view = must(retry_board(context.store, **context.project()))
    lines = [f"{counted(view.pending, 'card')} and {counted(view.comments, 'comment')} to deliver."]
    return Result(data=view.as_dict(), lines=lines, next=["tenure reconcile"])


def reconcile(context: Context) -> Result:
    """force_reconciliation: take back what is due, and bring board and engine into step now."""
    from tenure import app

    project_id = context.project_id or DEFAULT_PROJECT
    found = must(app.reconcile(context.store, project_id, context.environ, believe=bool(context.get("believe"))))
    swept = found.boards.get(project_id)
    lines = [f"{counted(found.recovered, 'task')} taken back from dead holders."] if found.recovered else []
    lines += _summary(swept) if swept is not None else ["No board but the embedded one, which is the store itself."]
    return Result(data={"recovered": found.recovered, **(swept.as_dict() if swept else {})}, lines=lines)


def _open(context: Context) -> BoardApi:
    from tenure.boards.kinds import open_board
    from tenure.engine.boards import board_of

    project_id = context.project_id or DEFAULT_PROJECT
    row = context.store.look(lambda tx: board_of(tx, project_id))
    if row is None:
        raise Stop(refuse("board_not_found", f"Project {project_id} has no board but the embedded one."))
    return open_board(row, _secret(context))


def _secret(context: Context) -> str:
    from tenure.core.settings import SECRETS

    return context.environ.get(SECRETS["board_token"], "").strip()


def _reconciled(context: Context, api: BoardApi) -> Swept:
    from tenure.boards.port import BoardDown, BoardFault
    from tenure.boards.sync import Sync

    try:
        return Sync(context.store, context.project_id or DEFAULT_PROJECT, api).reconcile()
    except (BoardDown, BoardFault) as error:
        raise Stop(refuse("board_unavailable", f"The board: {error}.")) from error


def _unwell(data: dict[str, Any], lines: Sequence[str], ill: Sequence[Finding]) -> Result:
    checks = [finding.check for finding in ill] or ["assignments"]
    refusal = refuse("unhealthy", f"Not well: {', '.join(dict.fromkeys(checks))}.", checks=checks)
    return Result(data=data, lines=list(lines), next=[one.repair for one in ill if one.repair], refusal=refusal)


def _lines(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for finding in findings:
        mark = paint("ok   ", "green") if finding.well else paint("WRONG", "red")
        lines.append(f"{mark}  {finding.check}: {clean(finding.detail, 500)}")
        if not finding.well and finding.repair:
            lines.append(f"       repair: {finding.repair}")
    return lines


def _waiting(view: BoardView, now_ms: int) -> list[str]:
    lines = [
        f"{counted(view.cards, 'card')}; to deliver: {counted(view.pending, 'card')}, "
        f"{counted(view.comments, 'comment')}; parked: {view.parked}"
    ]
    lines += [f"parked  {clean(text, 300)}" for text in view.parked_writes]
    if view.swept_at_ms:
        lines.append(f"every card was last looked at {ago(view.swept_at_ms, now_ms)} ({iso(view.swept_at_ms)})")
    if view.error:
        lines.append(f"{paint('down', 'red')}  {clean(view.error, 300)}")
    return lines


def _health(health: Any) -> list[str]:
    here, there = counted(health.persisted_assignments, "assignment"), health.kanban_assigned_tasks
    line = f"{here} here, {there} in progress on the board, mismatches: {len(health.mismatches)}"
    return [line, *(f"mismatch  {one.task_id}: {clean(one.problem, 300)}" for one in health.mismatches)]


def _summary(found: Swept) -> list[str]:
    told = found.as_dict()
    cards, pending = told.pop("cards"), told.pop("pending")
    done = ", ".join(f"{number} {name}" for name, number in told.items() if number)
    return [f"{counted(cards, 'card')} looked at: {done or 'all in step'}; {pending} to deliver"]


def _pairs(given: Sequence[str], option: str, form: str) -> dict[str, str]:
    pairs = {}
    for text in given:
        left, equals, right = text.partition("=")
        if not equals or not left.strip() or not right.strip():
            raise Stop(refuse("usage", f"board connect: {option} must look like {form}, not {text!r}"))
        pairs[left.strip()] = right.strip()
    return pairs


def _grouped(given: Sequence[str], option: str, form: str) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, status in _pairs(given, option, form).items():
        grouped.setdefault(status.lower().replace("-", "_").replace(" ", "_"), []).append(name)
    return grouped


def _numbers(given: Sequence[str]) -> dict[str, int]:
    pairs = _pairs(given, "--priority", "NAME=NUMBER")
    try:
        return {name: int(number) for name, number in pairs.items()}
    except ValueError as error:
        raise Stop(refuse("usage", "board connect: --priority must look like NAME=NUMBER")) from error


def findings_for_doctor(context: Context) -> list[tuple[str, bool, str]]:
    """What `doctor` says of every board: name, whether it is well, what it found. Talks to no server."""
    from tenure.engine import boards
    from tenure.engine.health import check_assignment_health

    found = []
    for view in must(boards.list_boards(context.store)):
        health = check_assignment_health(context.store, project_id=view.project_id)
        if isinstance(health, Refused):
            continue
        detail = f"{counted(view.cards, 'card')}, {view.pending} to deliver, {view.parked} parked"
        named = [f"{one.task_id}: {one.problem}" for one in health.mismatches[:3]]
        troubles = [*([view.error] if view.error else []), *named, *view.parked_writes[:3]]
        found.append((f"board of {view.project_id}", health.healthy, "; ".join(troubles) or detail))
    return found
