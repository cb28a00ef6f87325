"""`tenure run --hold`: keep the caller's leases while a long command runs.

An agent that waits for its tests says nothing in the meantime. Here the wait itself is said: the agent is touched again
and again while the command runs, with an announcement that ends soon after the last touch. The command is not the
agent: its end, however it comes, is nobody's death. Without a limit of its own it is held for as long as a silence may
be announced, and then runs on unheld.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from tenure.core.errors import Refused
from tenure.engine.projects import show_settings
from tenure.engine.touch import touch
from tenure.surfaces.cli.context import must
from tenure.surfaces.cli.output import Result, duration
from tenure.surfaces.cli.run import GRACE_S, LOOK_EVERY_S, TIMED_OUT, check_command, start_child
from tenure.surfaces.cli.run_child import Signals
from tenure.surfaces.cli.run_keeper import VOUCH_EVERY_S, VOUCHED_SILENCE_S, vouch
from tenure.surfaces.cli.run_output import Tail

if TYPE_CHECKING:
    from typing import Any

    from tenure.surfaces.cli.context import Context
    from tenure.surfaces.cli.run_child import Child, Ending


def hold(context: Context, command: list[str]) -> Result:
    """Run a command while the caller's leases are kept."""
    check_command(command, context.folder)
    agent_id = context.agent_id()
    who = {"agent_id": agent_id, **context.run_of(agent_id)}
    settings = must(show_settings(context.store, **context.project()))
    held = must(touch(context.store, **who, expect_silence_s=VOUCHED_SILENCE_S))
    if not held.leases:
        print(f"tenure: {agent_id} holds nothing; running the command all the same", file=sys.stderr)
    timeout_s = context.get("timeout", 0)
    stopping = threading.Event()
    lasting_s = min(timeout_s or settings.silence_cap_s, 7 * 86_400)
    toucher = threading.Thread(target=_touch_on, args=(context, who, stopping, lasting_s), daemon=True)
    timed_out = False
    with Signals() as signals:
        child = start_child(context, command, signals, Tail(), context.folder, dict(context.environ))
        toucher.start()
        child.release()
        try:
            ending, timed_out = _watch(child, signals, timeout_s)
        finally:
            stopping.set()
            toucher.join()
            child.close()
    # The agent goes on now: this call ends the announcement.
    after = touch(context.store, **who)
    if not isinstance(after, Refused) and after.lost is not None:
        print(f"tenure: the lease on {after.lost.task_id} was lost ({after.lost.end_reason})", file=sys.stderr)
    if timed_out:
        print(f"tenure: {command[0]} took longer than {duration(timeout_s * 1000)} and was ended", file=sys.stderr)
    data = {"agent_id": agent_id, "exit_status": ending.status, "timed_out": timed_out}
    return Result(data=data, status=TIMED_OUT if timed_out else ending.code)


def _touch_on(context: Context, who: dict[str, Any], stopping: threading.Event, lasting_s: float) -> None:
    """Touch until told to stop, or as long as the hold lasts. A store that is busy is tried again."""
    store = context.store.clone()
    until = time.monotonic() + lasting_s
    try:
        while not stopping.wait(VOUCH_EVERY_S) and time.monotonic() < until:
            vouch(store, who["agent_id"], who.get("incarnation"))
    finally:
        store.close()


def _watch(child: Child, signals: Signals, timeout_s: float) -> tuple[Ending, bool]:
    """Until the command has ended; whether that was because its time was over."""
    ends_at = time.monotonic() + timeout_s if timeout_s else float("inf")
    kill_at, timed_out = float("inf"), False
    while True:
        ending = child.attend(LOOK_EVERY_S)
        if ending is not None:
            return ending, timed_out
        for number in signals.take():
            if number == signal.SIGWINCH:
                child.resized()
            elif number in (signal.SIGTERM, signal.SIGHUP) or (
                number in (signal.SIGINT, signal.SIGQUIT) and child.apart
            ):
                child.signal(number)
        now = time.monotonic()
        if now >= ends_at and not timed_out:
            timed_out, kill_at = True, now + GRACE_S
            child.signal(signal.SIGTERM)
        if now >= kill_at:
            child.signal(signal.SIGKILL)
