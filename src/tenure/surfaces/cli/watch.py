"""`tenure watch`: the board, the countdowns and what happens, live.

Watching only reads: a holder that is due is shown as due, and whoever claims the task next recovers it. All of a frame
comes from one snapshot. Between two looks the countdowns go on by the store's time, which is that of the last look plus
what this process has seen pass; a write by anyone, or a deadline that passes, brings the next look forward.

Rich is imported where something is drawn (picture.py) and nowhere else: no other command may pay for it.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager

from tenure.core.errors import EXIT_OK
from tenure.core.model import DEFAULT_PROJECT, STATUSES
from tenure.core.record import Record
from tenure.core.story import sentence
from tenure.core.times import iso
from tenure.engine import agents, observe
from tenure.store.store import StoreFault
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, coloured, envelope, print_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from tenure.core.model import Agent, Event
    from tenure.engine.observe import Statistics, TaskView
    from tenure.store.store import Transaction
    from tenure.surfaces.cli.context import Context

# How often the store is asked whether anyone has written, which costs microseconds.
TICK_S = 0.1
# At most one part in five of the time goes into looking, however large the store and busy its writers.
REST = 4
# Tasks read for each column, agents, events kept, and events told in the first JSON document.
CARDS, AGENTS, EVENTS, TOLD = 60, 500, 200, 20


def watch(context: Context) -> Result:
    """Watch until Ctrl-C, or draw once."""
    watcher = Watcher(context)
    frame = watcher.look()
    if context.get("json") or context.get("format") == "json":
        if context.get("once"):
            return Result(data=_shape(frame, frame.events[-TOLD:]))
        _stream(watcher)
    # A terminal in an odd encoding shows question marks for our lines rather than failing at the first of them.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    if context.get("once") or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return Result(data=None, lines=_once(watcher))
    _live(watcher)
    return Result(data=None)


# -- looking ----------------------------------------------------------------------------------------------------------


class Frame(Record):
    """What one look saw."""

    at_ms: int
    numbers: Statistics
    board: dict[str, tuple[TaskView, ...]]
    agents: tuple[Agent, ...]
    # The latest, oldest first; and those of them that the look before had not seen.
    events: tuple[Event, ...]
    new: tuple[Event, ...]


class Watcher:
    """Looks when there may be something new, and knows the store's time in between."""

    def __init__(self, context: Context) -> None:
        self.store = context.store
        self.project: dict[str, Any] = must(observe.statistics.check(context.project()))
        self.interval_s = max(TICK_S, context.get("interval", 1))
        self.events: tuple[Event, ...] = ()
        self.seen: int | None = None

    def look(self) -> Frame:
        """Everything a frame shows, from one snapshot."""
        self.version = self.store.data_version()
        began_s = time.monotonic()
        try:
            self.frame = self.store.look(self._gather)
        except StoreFault as fault:
            raise Stop(fault.refusal) from fault
        self.looked_s = time.monotonic()
        self.cost_s = self.looked_s - began_s
        return self.frame

    def look_if_new(self) -> bool:
        """Look again if it is time, if anyone has written, or if a holder's deadline has passed."""
        since_s = time.monotonic() - self.looked_s
        if since_s < self.cost_s * REST:
            return False
        if (
            since_s < self.interval_s
            and self.now_ms < self._deadline_ms()
            and self.store.data_version() == self.version
        ):
            return False
        self.look()
        return True

    @property
    def now_ms(self) -> int:
        """The store's time."""
        return self.frame.at_ms + round((time.monotonic() - self.looked_s) * 1000)

    def _deadline_ms(self) -> float:
        leases = (lease for views in self.frame.board.values() for view in views for lease in view.leases)
        return min(
            (held.recover_at_ms for held in leases if held.recover_at_ms > self.frame.at_ms), default=float("inf")
        )

    def _gather(self, tx: Transaction) -> Frame:
        numbers = observe.statistics.body(tx, **self.project)
        new = self._new_events(tx)
        self.events = (*self.events, *new)[-EVENTS:]
        present = [one for one in agents.list_agents.body(tx, limit=AGENTS, **self.project) if one.state == "present"]
        return Frame(
            at_ms=tx.now_ms,
            numbers=numbers,
            board={name: self._column(tx, name) for name in STATUSES},
            agents=tuple(sorted(present, key=lambda agent: -agent.seen_at_ms)),
            events=self.events,
            new=new,
        )

    def _column(self, tx: Transaction, status: str) -> tuple[TaskView, ...]:
        """The first tasks of a column: what is due and what is ready before the rest, and what was done last."""
        listed = observe.list_tasks.body(tx, status=status, limit=CARDS, **self.project)  # type: ignore[arg-type]
        if status == "todo":
            project_id = self.project.get("project_id") or DEFAULT_PROJECT
            ready = observe.ready_tasks.body(tx, project_id=project_id, limit=CARDS)
            listed = tuple(sorted((*ready, *listed), key=lambda view: not view.due))
        if status == "in_progress":
            return tuple(
                sorted(listed, key=lambda view: min((held.recover_at_ms for held in view.leases), default=1 << 62))
            )
        if status == "done":
            listed = (*self._just_done(tx), *sorted(listed, key=lambda view: -(view.task.done_at_ms or 0)))
        found: dict[int, TaskView] = {}
        for view in listed:
            found.setdefault(view.task.key, view)
        return tuple(found.values())[:CARDS]

    def _just_done(self, tx: Transaction) -> list[TaskView]:
        """The newest of the done, from the events: lists begin with the oldest task, and there may be thousands."""
        names = dict.fromkeys(
            (e.task_id, e.project_id) for e in reversed(self.events) if e.kind == "completed" and e.task_id
        )
        found = [observe.show_task.body(tx, task_id=name, project_id=project) for name, project in list(names)[:CARDS]]
        return [one.view for one in found if isinstance(one, observe.TaskDetail) and one.view.status == "done"]

    def _new_events(self, tx: Transaction) -> tuple[Event, ...]:
        if self.seen is not None:
            found = observe.events.body(tx, after=self.seen, limit=1 << 30, **self.project)
            self.seen = found[-1].seq if found else self.seen
            return found
        found, self.seen = (), _last_event(tx)
        # A project's last events may lie far back among those of others.
        for span in (EVENTS, 20 * EVENTS, 400 * EVENTS):
            if len(found) < TOLD:
                found = observe.events.body(tx, after=max(0, self.seen - span), limit=span, **self.project)
        return found


def _last_event(tx: Transaction) -> int:
    """The number of the last event. Events are read forwards, so it is found by doubling and halving."""
    low, high = 0, 1
    while observe.events.body(tx, after=high, limit=1):
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if observe.events.body(tx, after=middle, limit=1):
            low = middle + 1
        else:
            high = middle
    return high


# -- for programs -----------------------------------------------------------------------------------------------------


def _shape(frame: Frame, events: Sequence[Event]) -> dict[str, Any]:
    from tenure.surfaces import shapes

    return {
        "at": iso(frame.at_ms),
        "tasks": frame.numbers.tasks,
        "due": frame.numbers.due,
        "statistics": frame.numbers.as_dict(),
        "board": {name: [shapes.view(view) for view in views] for name, views in frame.board.items()},
        "agents": [shapes.agent(one) for one in frame.agents],
        "events": [{**shapes.event(one), "text": sentence(one)} for one in events],
    }


def _stream(watcher: Watcher) -> None:
    """One document per line for each change, with the events that are new in it. Never returns."""
    before: dict[str, Any] = {}
    events = watcher.frame.events[-TOLD:]
    try:
        while True:
            data = _shape(watcher.frame, events)
            if {**data, "at": None} != {**before, "at": None, "events": []}:
                print_json(envelope(Result(data=data)))
                sys.stdout.flush()
                before = data
            while True:
                _wait_for_reader(TICK_S)
                if watcher.look_if_new():
                    break
            events = watcher.frame.new
    except KeyboardInterrupt:
        # The lines are the answer; returning would print one more.
        raise SystemExit(EXIT_OK) from None


def _wait_for_reader(seconds: float) -> None:
    """Wait; end when the reader of the pipe has gone, which would otherwise be noticed only at the next change."""
    import select

    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLERR)
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


# -- for people -------------------------------------------------------------------------------------------------------


def _once(watcher: Watcher) -> list[str]:
    """One frame as lines: coloured for a person, plain otherwise."""
    import shutil

    from tenure.surfaces.cli.picture import Picture

    width, height = shutil.get_terminal_size((100, 40))
    drawn = Picture(watcher).lines(width, height - 1)
    if not coloured(sys.stdout):
        return [line.plain.rstrip() for line in drawn]
    from rich.console import Console

    console = Console(width=width)
    with console.capture() as captured:
        for line in drawn:
            console.print(line, no_wrap=True, overflow="crop")
    return captured.get().splitlines()


def _live(watcher: Watcher) -> None:
    """Draw until Ctrl-C or q, and leave the terminal as it was."""
    import signal

    from rich.console import Console
    from rich.live import Live

    from tenure.surfaces.cli.picture import Picture

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    picture = Picture(watcher)
    shown = Live(
        picture, console=Console(), screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    try:
        with _keyboard() as quits, shown:
            while True:
                shown.refresh()
                # Countdowns move five times a second, and news is drawn as soon as it is seen.
                if quits(TICK_S) or (not watcher.look_if_new() and quits(TICK_S)):
                    return
                watcher.look_if_new()
    except KeyboardInterrupt:
        return


@contextmanager
def _keyboard() -> Iterator[Callable[[float], bool]]:
    """Gives a wait that says whether the user wants to go. Keys are not echoed into the picture meanwhile."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield lambda seconds: bool(time.sleep(seconds))  # type: ignore[func-returns-value]
        return
    import select
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def quits(seconds: float) -> bool:
        if not select.select([terminal], [], [], seconds)[0]:
            return False
        # Nothing to read where something was announced means that the terminal has gone.
        return os.read(terminal, 64)[:1] in (b"q", b"Q", b"")

    try:
        tty.setcbreak(terminal)
        yield quits
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
