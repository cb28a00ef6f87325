"""`tenure touch`, by itself: hooks call it on every tool use, so nothing else is loaded for it."""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.core.times import iso
from tenure.surfaces.cli.output import Result, duration, left
from tenure.surfaces.cli.spec import Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.engine.touch import Touched
    from tenure.surfaces.cli.context import Context

AGENT = Option(
    name="--agent",
    value="ID",
    help="Who you are (default: TENURE_AGENT, else the agent that works in this folder).",
    aliases=("--agent-id", "--as", "-a"),
)

# The coding agents whose hooks call this; see surfaces/cli/clients.py.
HOOKED = ("claude-code", "codex", "gemini", "opencode", "cursor")

COMMAND = Command(
    path="touch",
    summary="Tell that the agent is alive. Extends what it holds; for hooks, on every tool use.",
    run="tenure.surfaces.cli.touch:touch",
    options=(
        AGENT,
        Option(
            name="--expect-silence",
            value="TIME",
            help="Announce a silence, such as 10m for a long build; your next call ends it.",
            kind="duration",
            aliases=("--silence",),
        ),
        Option(name="--quiet", help="Print nothing, unless a lease was lost.", aliases=("-q",)),
        Option(
            name="--hook",
            value="CLIENT",
            help="As a coding agent's hook: never fails, and speaks only of a lost lease.",
            choices=HOOKED,
        ),
    ),
    examples=("tenure touch --agent A1234ABCD", "tenure touch --expect-silence 10m"),
    aliases=("heartbeat",),
    notes="A lease that was lost since the last call is told on standard error, and the exit status is 6: stop.",
)
BUSY_TIMEOUT_S = 3.0
SILENCE_CAPPED = "announced silence is limited to {most} (tenure.silence_cap_s)"


def touch(context: Context) -> Result:
    """Touch, and say what it reached."""
    if context.get("hook"):
        from tenure.surfaces.cli.hooked import touched

        return touched(context)
    return _shown(context, reach(context))


def reach(context: Context) -> Touched:
    """The touch itself."""
    from tenure.engine.touch import touch as touch_verb
    from tenure.surfaces.cli.context import must

    # A hook that waits stalls the agent: rather tell it that the store is busy.
    context.busy_timeout_s = BUSY_TIMEOUT_S
    # A name is looked up only if nobody has it as an id, so that a hook that gives the id reads nothing twice.
    named = context.get("agent") or context.environ.get("TENURE_AGENT")
    silence_s = context.get("expect_silence", 0)
    agent_id = named or context.agent_id()
    touched = touch_verb(context.store, agent_id=agent_id, expect_silence_s=silence_s, **context.run_of(agent_id))
    if named and isinstance(touched, Refused) and touched.code == "agent_not_found":
        touched = touch_verb(context.store, agent_id=context.agent_id(), expect_silence_s=silence_s)
    answer: Touched = must(touched)
    return answer


def _shown(context: Context, value: Touched) -> Result:
    """What a touch reached."""
    leases = [
        {
            "task_id": lease.task_id,
            "lease_id": lease.lease_id,
            "token": lease.token,
            "expires_at": iso(lease.expires_at_ms),
            "recover_at": iso(lease.recover_at_ms),
        }
        for lease in value.leases
    ]
    lines = [f"Touched {lease.task_id}: {left(lease.expires_at_ms, context.now_ms)}" for lease in value.leases]
    lost, refusal, warnings = None, None, []
    for lease in value.leases:
        if context.get("expect_silence", 0) * 1000 > lease.silence_cap_ms:
            warnings.append(SILENCE_CAPPED.format(most=duration(lease.silence_cap_ms)))
            break
    if value.lost is not None:
        lost = {"task_id": value.lost.task_id, "lease_id": value.lost.lease_id, "reason": value.lost.end_reason}
        told = f"your lease on {value.lost.task_id} was lost ({value.lost.end_reason})"
        if any(lease.task_key == value.lost.task_key for lease in value.leases):
            warnings.append(f"{told}; you hold the task again")
        else:
            warnings.append(f"{told}; look with: tenure task show {value.lost.task_id}")
            refusal = refuse("lease_lost", f"{told[0].upper()}{told[1:]}.", **lost)
    if not lines:
        lines = [f"{value.agent_id} is alive and holds nothing."]
    data = {"agent_id": value.agent_id, "leases": leases, "lost": lost}
    return Result(data=data, lines=() if context.get("quiet") else lines, warnings=warnings, refusal=refusal)
