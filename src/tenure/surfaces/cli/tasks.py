"""`tenure task ...` and `tenure next`: each is one verb of the engine."""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.surfaces.cli import view
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, clean, duration, left

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.model import Task
    from tenure.surfaces.cli.context import Context

LISTED = 50
GIVEN_BACK = "the lease had lapsed and was given back to you under a new token; renew before it expires"


def add(context: Context) -> Result:
    """Add a task."""
    from tenure.engine.tasks import add_task

    fields = {"title": context.get("title"), **_fields(context), **context.given("slots", "allow_missing")}
    fields["assigned_to"] = context.get("assign")
    task = must(
        add_task(
            context.store,
            task_id=context.get("id"),
            after=context.get("after", []),
            **{name: value for name, value in fields.items() if value is not None},
            **context.project(),
        )
    )
    waits = f" (waits for {', '.join(context.get('after'))})" if task.unmet else ""
    return _task_result(task, f"Added task {task.task_id}{waits}", f"tenure task claim {task.task_id}")


def _fields(context: Context) -> dict[str, Any]:
    """The options that describe a task, under the verb's names."""
    named = {
        "body": "body",
        "priority": "priority",
        "complexity": "complexity",
        "kind": "kind",
        "estimate": "estimated_hours",
        "requires": "requires",
        "lease_duration": "lease_duration_s",
        "max_attempts": "max_attempts",
    }
    fields = {field: context.get(option) for option, field in named.items() if context.get(option) is not None}
    if context.get("body_file") is not None:
        fields["body"] = _file(context.get("body_file"))
    if context.get("not_before") is not None:
        fields["not_before_ms"] = _moment(context, context.get("not_before"))
    return fields


def _file(path: str) -> str:
    """The text of a file."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\n")
    except OSError as error:
        raise Stop(refuse("invalid_argument", f"{path} cannot be read: {error.strerror}.")) from error
    except UnicodeDecodeError as error:
        raise Stop(refuse("invalid_argument", f"{path} is not UTF-8 text.")) from error


def _moment(context: Context, text: str) -> int:
    """A moment, a day (its first moment, in UTC), or a duration from now."""
    from tenure.core.profiles import parse_duration
    from tenure.core.times import parse_iso

    moment = parse_iso(f"{text}T00:00:00Z" if len(text) == 10 else text)
    if moment is not None:
        return moment
    length = parse_duration(text)
    if isinstance(length, Refused):
        message = f"--not-before must be a moment (2026-01-04T15:45:00Z) or a duration (30m), not {text!r}"
        raise Stop(refuse("usage", message))
    # The store's own time, not this machine's.
    context.store.look(lambda tx: None)
    return context.now_ms + length * 1000


def _task_result(task: Task, line: str, *following: str) -> Result:
    from tenure.surfaces import shapes

    return Result(data=shapes.task(task), lines=[line], next=following)


def list_tasks(context: Context) -> Result:
    """List tasks, a page at a time."""
    from tenure.engine import observe
    from tenure.surfaces import shapes

    if context.get("status") == "ready":
        from tenure.surfaces.cli.overview import ready

        return ready(context)
    limit = context.get("limit", LISTED)
    views = must(
        observe.list_tasks(
            context.store,
            status=context.get("status"),
            kind=context.get("kind"),
            assigned_to=context.get("assigned_to"),
            text=context.get("search"),
            after=context.get("from", 0),
            limit=limit,
            **context.project(),
        )
    )
    lines = view.task_table(views, context.now_ms, context.names(views)) if views else ["No tasks."]
    more = []
    if len(views) >= limit:
        more = [context.again("task list", **{"from": views[-1].task.key})]
        lines.append(f"More: {more[0]}")
    return Result(data={"tasks": [shapes.view(one) for one in views]}, lines=lines, next=more)


def show(context: Context) -> Result:
    """Show one task."""
    from tenure.engine.observe import show_task
    from tenure.surfaces import shapes

    detail = must(show_task(context.store, task_id=context.get("task"), **context.project()))
    return Result(data=shapes.detail(detail), lines=view.detail_lines(detail, context.now_ms))


def claim(context: Context) -> Result:
    """Claim a named task."""
    from tenure.engine import claims

    task_id = context.get("task")
    grant = claims.claim(context.store, task_id=task_id, **_claimant(context))
    return view.granted(context, _with_git(context, must(grant)))


def _with_git(context: Context, grant: Any) -> Any:
    """The grant with what git shows of the holders before: looked up here, where the answer is shown."""
    if not any(one.look for one in grant.handoffs):
        return grant
    from tenure.worktree.attach import settled

    return settled(context.store, grant, here=context.worktree())


def take_next(context: Context) -> Result:
    """Claim the best ready task."""
    from tenure.engine import claims

    claimant = _claimant(context)
    grant = claims.claim_next(context.store, preferred_kinds=context.get("prefer", []), **claimant)
    if isinstance(grant, Refused) and grant.code == "nothing_ready":
        raise Stop(grant.replace(next="See what is in the way: tenure status, or tenure why TASK."))
    granted = _with_git(context, must(grant))
    result = view.granted(context, granted, chosen=False)
    held = must(claims.leases_of(context.store, agent_id=claimant["agent_id"]))
    others = [
        f"{lease.task_id} ({left(lease.expires_at_ms, context.now_ms)})"
        for lease in held
        if lease.lease_id != granted.lease.lease_id
    ]
    return result.replace(warnings=[f"you also hold {', '.join(others)}"]) if others else result


def _claimant(context: Context) -> Any:
    from tenure.config import ttl_from_environment

    agent_id = context.agent_id()
    return {
        "agent_id": agent_id,
        "profile": context.get("profile", "cli"),
        "ttl_s": context.get("ttl"),
        "default_ttl_s": must(ttl_from_environment(context.environ)),
        "capabilities": context.capabilities(agent_id),
        "idempotency_key": context.get("idempotency_key"),
        **context.place(),
        **context.project(),
    }


def renew(context: Context) -> Result:
    """Extend a lease; with --progress, report."""
    from tenure.engine import liveness
    from tenure.surfaces import shapes

    task_id = context.get("task")
    caller = context.caller(task_id)
    silence, progress, healed = context.get("expect_silence", 0), _progress(context), False
    message, kept = context.get("message", ""), None
    if progress is not None:
        kept = must(
            liveness.report(context.store, progress=progress, message=message, expect_silence_s=silence, **caller)
        )
        healed = kept.healed
    if kept is None or context.get("ttl") is not None:
        kept = must(liveness.renew(context.store, ttl_s=context.get("ttl"), expect_silence_s=silence, **caller))
    if progress is None and message:
        from tenure.engine.notes import send_message

        must(
            send_message(context.store, text=message, sender=kept.lease.agent_id, task_id=task_id, **context.project())
        )
    lines = [f"Renewed lease for {task_id}", f"  Expires in: {duration(kept.lease.expires_at_ms - context.now_ms)}"]
    warnings = [GIVEN_BACK] if healed else []
    if silence * 1000 > kept.lease.silence_cap_ms:
        from tenure.surfaces.cli.touch import SILENCE_CAPPED

        warnings.append(SILENCE_CAPPED.format(most=duration(kept.lease.silence_cap_ms)))
    return Result(data={**shapes.lease(kept.lease), "healed": healed}, lines=lines, warnings=warnings)


def _progress(context: Context) -> int | None:
    """How far the holder is, said with an option or as a bare word."""
    word = context.get("percent")
    if word is None:
        said: int | None = context.get("progress")
        return said
    try:
        return int(word.removesuffix("%"))
    except ValueError:
        raise Stop(refuse("usage", f"task renew: PERCENT must be a whole number, not {word!r}")) from None


def release(context: Context) -> Result:
    """Give a task back."""
    from tenure.engine import endings

    task_id = context.get("task")
    caller = _operator(context, task_id) if context.get("force") else context.caller(task_id)
    ended = must(
        endings.release(context.store, message=context.get("message", ""), force=context.get("force", False), **caller)
    )
    lines, following = [f"Released task {task_id}"], []
    if not context.get("message"):
        sender = caller.get("agent_id", "YOU")
        following = [f'tenure msg send --task {task_id} --from {sender} --text "..."']
        lines.append(f"Leave a note for the next agent: {following[0]}")
    return _ended_result(ended, lines, following)


def done(context: Context) -> Result:
    """Mark a task done."""
    from tenure.engine import endings

    task_id = context.get("task")
    caller = _operator(context, task_id) if context.get("force") else context.caller(task_id)
    ended = must(
        endings.complete(
            context.store,
            message=context.get("message", ""),
            artifact_location=context.get("artifact", ""),
            force=context.get("force", False),
            **caller,
        )
    )
    lines = ["Task marked done" if not ended.repeated else "Task was done already"]
    if ended.unlocked:
        lines.append(f"Now ready: {', '.join(ended.unlocked)}")
    result = _ended_result(ended, lines, ["tenure next"])
    return result.replace(warnings=[GIVEN_BACK]) if _was_given_back(context, ended) else result


def _was_given_back(context: Context, ended: Any) -> bool:
    """Whether this completion first gave a lapsed lease back: it began at this very moment, and an event tells why."""
    lease = ended.lease
    if lease is None or ended.repeated or lease.granted_at_ms != context.now_ms:
        return False
    from tenure.engine.recent import recent_events

    latest = must(recent_events(context.store, task_id=lease.task_id, project_id=lease.project_id, limit=20))
    return any(event.kind == "healed" and event.lease_id == lease.lease_id for event in latest)


def block(context: Context) -> Result:
    """Say that a task cannot go on."""
    from tenure.engine import endings

    task_id = context.get("task")
    reason = context.get("message") or context.get("reason")
    if not reason:
        raise Stop(refuse("usage", "task block: say why with --message TEXT"))
    caller = _operator(context, task_id) if context.get("force") else context.caller(task_id)
    ended = must(
        endings.block(
            context.store,
            reason=reason,
            severity=context.get("severity", "medium"),
            force=context.get("force", False),
            **caller,
        )
    )
    return _ended_result(ended, [f"Blocked task {task_id}: {clean(reason)}"], [f"tenure task unblock {task_id}"])


def _operator(context: Context, task_id: str) -> dict[str, Any]:
    """Who forces: the agent if it is known, else just an operator."""
    named = context.get("agent") or context.environ.get("TENURE_AGENT")
    return {"task_id": task_id, **({"agent_id": context.named_agent(named)} if named else {}), **context.project()}


def _ended_result(ended: Any, lines: list[str], following: list[str]) -> Result:
    from tenure.surfaces import shapes

    lease = shapes.lease(ended.lease) if ended.lease is not None else {}
    data = {
        **lease,
        "task_id": ended.task.task_id,
        "status": ended.task.status,
        "unlocked": list(ended.unlocked),
        "repeated": ended.repeated,
    }
    return Result(data=data, lines=lines, next=following)


def unblock(context: Context) -> Result:
    """Put a blocked task back."""
    from tenure.engine.tasks import unblock_task

    named = context.get("agent") or context.environ.get("TENURE_AGENT")
    by = context.named_agent(named) if named else "operator"
    task = must(
        unblock_task(
            context.store, task_id=context.get("task"), by=by, note=context.get("message", ""), **context.project()
        )
    )
    return _task_result(task, f"Unblocked task {task.task_id}", f"tenure task claim {task.task_id}")


def update(context: Context) -> Result:
    """Edit a task."""
    from tenure.engine.tasks import assign_task, edit_task

    fields = {**_fields(context), **context.given("title")}
    named = {"task_id": context.get("task"), **context.project()}
    assign = context.get("assign") is not None or context.get("unassign")
    if not fields and not assign:
        raise Stop(refuse("usage", "task update: say what to change, such as --priority high"))
    task = None
    if fields:
        task = must(edit_task(context.store, **named, **fields))
    if assign:
        task = must(assign_task(context.store, assigned_to=context.get("assign"), **named))
    assert task is not None
    return _task_result(task, f"Updated task {task.task_id}")


def depend(context: Context) -> Result:
    """Add or remove dependencies."""
    from tenure.engine.dependencies import add_dependency, remove_dependency

    named = {"task_id": context.get("task"), **context.project()}
    wanted, unwanted = context.get("after", []), context.get("remove", [])
    if not wanted and not unwanted:
        raise Stop(refuse("usage", "task depend: say --after TASK or --remove TASK"))
    task = None
    for needs in wanted:
        task = must(
            add_dependency(context.store, needs=needs, allow_missing=context.get("allow_missing", False), **named)
        )
    for needs in unwanted:
        task = must(remove_dependency(context.store, needs=needs, **named))
    assert task is not None
    state = f"waits for {task.unmet}" if task.unmet else "waits for nothing"
    return _task_result(task, f"Task {task.task_id} {state}")


def requeue(context: Context) -> Result:
    """Give a task a new start."""
    from tenure.engine.tasks import requeue_task

    task = must(requeue_task(context.store, task_id=context.get("task"), **context.project()))
    return _task_result(task, f"Requeued task {task.task_id}", f"tenure task claim {task.task_id}")


def reopen(context: Context) -> Result:
    """Reopen a done task."""
    from tenure.engine.tasks import reopen_task

    note = context.get("message", "")
    task = must(reopen_task(context.store, task_id=context.get("task"), note=note, **context.project()))
    return _task_result(task, f"Reopened task {task.task_id}", f"tenure task claim {task.task_id}")


def delete(context: Context) -> Result:
    """Delete a task."""
    from tenure.engine.tasks import delete_task

    force, named = context.get("force", False), {"task_id": context.get("task"), **context.project()}
    waiting: tuple[str, ...] = ()
    if force:
        from tenure.engine.observe import show_task

        waiting = must(show_task(context.store, **named)).dependants
    task = must(delete_task(context.store, force=force, **named))
    result = _task_result(task, f"Deleted task {task.task_id}")
    if not waiting:
        return result
    wait = "waits" if len(waiting) == 1 else "wait"
    told = f"{', '.join(waiting)} now {wait} for {task.task_id}, which is missing"
    return result.replace(warnings=[f"{told}; to let go: tenure task depend {waiting[0]} --remove {task.task_id}"])
