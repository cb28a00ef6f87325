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
# Tasks read for each column (and of the done, the newest), agents, events kept, and told in the first JSON document.
CARDS, JUST_DONE, AGENTS, EVENTS, TOLD = 60, 15, 500, 200, 20


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
        return Result(data=None, lines=_once(frame))
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
        ends = [_ends_ms(view) for views in self.frame.board.values() for view in views]
        self.deadline_ms = min((end for end in ends if end > self.frame.at_ms), default=float("inf"))
        return self.frame

    def look_if_new(self) -> bool:
        """Look again if it is time, if anyone has written, or if a holder's deadline has passed."""
        since_s = time.monotonic() - self.looked_s
        if since_s < self.cost_s * REST:
            return False
        early = self.now_ms >= self.deadline_ms or self.store.data_version() != self.version
        if since_s < self.interval_s and not early:
            return False
        self.look()
        return True

    @property
    def now_ms(self) -> int:
        """The store's time."""
        return self.frame.at_ms + round((time.monotonic() - self.looked_s) * 1000)

    def _gather(self, tx: Transaction) -> Frame:
        numbers = must(observe.statistics.body(tx, **self.project))
        new = self._new_events(tx)
        self.events = (*self.events, *new)[-EVENTS:]
        present = [
            one for one in must(agents.list_agents.body(tx, limit=AGENTS, **self.project)) if one.state == "present"
        ]
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
        wanted: dict[str, Any] = {"status": status, "limit": CARDS, **self.project}
        listed = must(observe.list_tasks.body(tx, **wanted))
        if status == "todo":
            project_id = self.project.get("project_id") or DEFAULT_PROJECT
            ready = must(observe.ready_tasks.body(tx, project_id=project_id, limit=CARDS))
            listed = tuple(sorted((*ready, *listed), key=lambda view: not view.due))
        if status == "in_progress":
            listed = tuple(sorted(listed, key=_ends_ms))
        if status == "done":
            latest = self._just_done(tx) if len(listed) == CARDS else []
            listed = (*latest, *sorted(listed, key=lambda view: -(view.task.done_at_ms or 0)))
        found: dict[int, TaskView] = {}
        for view in listed:
            found.setdefault(view.task.key, view)
        return tuple(found.values())[:CARDS]

    def _just_done(self, tx: Transaction) -> list[TaskView]:
        """The newest of the done, by the events: a list begins with the oldest, and there may be thousands."""
        told = [(event.task_id, event.project_id) for event in reversed(self.events) if event.kind == "completed"]
        found = [
            observe.show_task.body(tx, task_id=task_id, project_id=project_id)
            for task_id, project_id in list(dict.fromkeys(told))[:JUST_DONE]
            if task_id is not None
        ]
        return [one.view for one in found if isinstance(one, observe.TaskDetail) and one.view.status == "done"]

    def _new_events(self, tx: Transaction) -> tuple[Event, ...]:
        if self.seen is not None:
            found: tuple[Event, ...] = must(observe.events.body(tx, after=self.seen, limit=1 << 30, **self.project))
            self.seen = found[-1].seq if found else self.seen
            return found
        found, self.seen = (), observe.newest_event.body(tx)
        # A project's last events may lie far back among those of others.
        for span in (EVENTS, 20 * EVENTS, 400 * EVENTS):
            if len(found) < TOLD:
                found = must(observe.events.body(tx, after=max(0, self.seen - span), limit=span, **self.project))
        return found


def _ends_ms(view: TaskView) -> float:
    """When the first of its holders counts as dead."""
    return min((lease.recover_at_ms for lease in view.leases), default=float("inf"))


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
    with _signals() as caught:
        while not caught:
            data = _shape(watcher.frame, events)
            if {**data, "at": None} != {**before, "at": None, "events": []}:
                print_json(envelope(Result(data=data)))
                sys.stdout.flush()
                before = data
            looked = False
            while not looked and not caught:
                _wait_for_reader(TICK_S)
                looked = watcher.look_if_new()
            events = watcher.frame.new
    # The lines are the answer; returning would print one more.
    raise SystemExit(_status(caught))


def _wait_for_reader(seconds: float) -> None:
    """Wait; end when the reader of the pipe has gone, which would otherwise be noticed only at the next change."""
    import select

    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLERR)
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


# -- for people -------------------------------------------------------------------------------------------------------


def _once(frame: Frame) -> list[str]:
    """One frame as lines: coloured for a person, plain otherwise."""
    import shutil

    from tenure.surfaces.cli.picture import draw

    width, height = shutil.get_terminal_size((100, 40))
    drawn = draw(frame, frame.at_ms, width, height - 1)
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
    from rich.console import Console
    from rich.live import Live

    from tenure.surfaces.cli.picture import Picture

    console = Console()
    drawn = Live(Picture(watcher), console=console, screen=True, auto_refresh=False, redirect_stdout=False)
    with _signals() as caught, _keyboard() as quits, drawn:
        while not caught and not quits(TICK_S):
            watcher.look_if_new()
            drawn.refresh()
        # tmux, when its window has grown since, would else move the top of the picture to the user's screen.
        console.clear()
    if _status(caught):
        raise SystemExit(_status(caught))


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects the signals that ask to end. As exceptions they could strike in the middle of a line, or of undoing."""
    import signal

    caught: list[int] = []
    # What the caller has us ignore (nohup, a shell's background) stays ignored.
    asked = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if _heeded(number)]
    before = [signal.signal(number, lambda number, _: caught.append(number)) for number in asked]
    try:
        yield caught
    finally:
        for number, handler in zip(asked, before, strict=True):
            signal.signal(number, handler)


def _heeded(number: int) -> bool:
    import signal

    return signal.getsignal(number) not in (signal.SIG_IGN, None)


def _status(caught: list[int]) -> int:
    """Ctrl-C is how watching ends; other signals are told as shells tell them."""
    from signal import SIGINT

    return 128 + caught[0] if caught and caught[0] != SIGINT else EXIT_OK


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
        keys = os.read(terminal, 64).lower()
        return not keys or b"q" in keys

    try:
        tty.setcbreak(terminal)
        yield quits
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
