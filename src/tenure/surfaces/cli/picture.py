"""What `tenure watch` draws: the board, the countdowns, the agents and what happened, in as much room as there is.

Every line is made to measure as a `Text`, which knows neither markup nor control sequences; agents' words are cleaned
before they get there. Only `watch` imports this module, and with it Rich.
"""

from __future__ import annotations

import textwrap
import time

from rich.text import Text

from tenure.core.deadline import announcement_ms, pulse_ms
from tenure.core.model import STATUSES
from tenure.core.phases import phase_of
from tenure.core.story import sentence
from tenure.surfaces.cli.output import clean, duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from tenure.core.model import Agent, Lease
    from tenure.engine.observe import TaskView
    from tenure.surfaces.cli.watch import Frame, Watcher

WEIGHTS = {"todo": 4, "in_progress": 6, "blocked": 3, "done": 3, "dead": 3}
COLOURS = {"todo": "blue", "in_progress": "yellow", "blocked": "red", "done": "green", "dead": "red"}
EVENT_STYLES = {
    "recovered": "bold yellow",
    "returned": "magenta",
    "healed": "magenta",
    "died": "red",
    "blocked": "red",
    "failed": "red",
    "completed": "green",
    "granted": "cyan",
}
ASSIGNED = {"todo": "for", "done": "by"}
BAR_LEAST, BAR_MOST = 3, 12
BLOCKS = " ▏▎▍▌▋▊▉█"


class Picture:
    """The latest frame, drawn as large as the terminal is when it is drawn."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = draw(self.watcher.frame, self.watcher.now_ms, options.max_width, options.height or console.height)
        yield Text("\n", no_wrap=True, overflow="crop", end="").join(lines)


def draw(frame: Frame, now_ms: int, width: int, height: int) -> list[Text]:
    """The head, the board, the agents, and what happened, in at most this many lines."""
    seen = _agents(frame, now_ms, width, most=max(2, height // 8))
    left = height - 3 - len(seen)
    happened = _events(frame, now_ms, width, most=max(3, left))
    # The events leave the board what it needs, and take up to two fifths when it needs more than there is.
    board = _board(frame, now_ms, width, most=left - min(len(happened), left * 2 // 5))
    drawn = [_head(frame, now_ms, width), *board, _rule(f"agents {frame.numbers.agents}", width), *seen]
    return [*drawn, _rule("events", width), *happened][:height]


def _head(frame: Frame, now_ms: int, width: int) -> Text:
    numbers = frame.numbers
    told = [f"{numbers.active} held"]
    rows = (("due", numbers.due), ("expiring soon", numbers.expiring_soon), ("stuck", numbers.stuck))
    told += [f"{value} {name}" for name, value in (*rows, ("recovered so far", numbers.recoveries)) if value]
    head = Text.assemble((" tenure watch ", "reverse bold"), "  ", " · ".join(told))
    return _cut(head, width - 9, pad=True).append(time.strftime(" %H:%M:%S", time.localtime(now_ms / 1000)), "dim")


def _rule(title: str, width: int) -> Text:
    return Text.assemble(("── ", "dim"), (title.upper(), "bold"), (" " + "─" * max(0, width - len(title) - 4), "dim"))


def _board(frame: Frame, now_ms: int, width: int, most: int) -> list[Text]:
    """The columns side by side. An empty one is as wide as its name; the others share the rest."""
    columns = []
    for name, share in _shares(frame, width).items():
        head = [Text(_title(frame, name), f"bold {COLOURS[name]}"), Text("─" * share, "dim")]
        columns.append((share, head + _cards(frame, name, now_ms, share, most - 2)))
    lines = []
    for row in range(min(most, max(4, *(len(cells) for _, cells in columns)))):
        line = Text(no_wrap=True)
        for index, (share, cells) in enumerate(columns):
            cell = _cut(cells[row] if row < len(cells) else Text(), share, pad=True)
            line.append_text(cell).append("" if index == 4 else "─┼─" if row == 1 else " │ ", "dim")
        lines.append(line)
    return lines


def _shares(frame: Frame, width: int) -> dict[str, int]:
    """How wide each column is."""
    tasks = frame.numbers.tasks
    shares = {name: len(_title(frame, name)) for name in STATUSES}
    filled = [name for name in STATUSES if tasks[name]]
    room = width - 3 * (len(STATUSES) - 1) - sum(shares[name] for name in STATUSES if not tasks[name])
    for name in filled:
        shares[name] = max(4, room * WEIGHTS[name] // sum(WEIGHTS[other] for other in filled))
    # What the division left over goes to the widest.
    shares[max(filled or shares, key=lambda name: shares[name])] += max(
        0, width - 3 * (len(STATUSES) - 1) - sum(shares.values())
    )
    return shares


def _title(frame: Frame, name: str) -> str:
    title = f"{name.replace('_', ' ').upper()} {frame.numbers.tasks[name]}"
    return f"{title}, {frame.numbers.due} due" if name == "todo" and frame.numbers.due else title


def _cards(frame: Frame, name: str, now_ms: int, width: int, most: int) -> list[Text]:
    """The first tasks of a column; the last line of one that is cut says how many more there are."""
    lines: list[Text] = []
    for index, view in enumerate(frame.board[name]):
        card = _card(view, now_ms, width)
        last = index + 1 == frame.numbers.tasks[name]
        if len(lines) + len(card) + (not last) > most:
            return [*lines[: most - 1], Text(f"+{frame.numbers.tasks[name] - index} more", "dim")]
        lines += card
    return lines


def _card(view: TaskView, now_ms: int, width: int) -> list[Text]:
    task = view.task
    head = Text.assemble(
        (task.task_id, "bold"), " ", clean(task.title), (f" {task.progress}%", "dim") if task.progress else ""
    )
    return [head, *(_held(lease, now_ms, width) for lease in view.leases), *_remarks(view, now_ms)]


def _remarks(view: TaskView, now_ms: int) -> list[Text]:
    """What stands in the way of a task that nobody holds."""
    task = view.task
    if view.due:
        return [Text.assemble(" ", ("todo (due)", "bold red"), f" {clean(task.assigned_to or '')}")]
    starts_ms = max(task.not_before_ms, task.retry_at_ms)
    if task.status == "blocked" and task.blocked_reason:
        said = clean(task.blocked_reason)
    elif task.status == "todo" and task.unmet:
        said = f"waits for {task.unmet}"
    elif task.status == "todo" and starts_ms > now_ms:
        said = f"in {duration(starts_ms - now_ms)}"
    elif task.assigned_to and not view.leases and task.status != "dead":
        said = f"{ASSIGNED.get(task.status, 'held by')} {clean(task.assigned_to)}"
    else:
        return []
    return [Text(f" {said}", "dim")]


def _held(lease: Lease, now_ms: int, width: int) -> Text:
    """The holder and its time: the term drains green to red, and what carries it after that is named."""
    left_ms, whole_ms, word = lease.expires_at_ms - now_ms, lease.term_ms, ""
    if lease.state == "offered":
        word = "offered"
    elif left_ms <= 0:
        left_ms, whole_ms = lease.recover_at_ms - now_ms, max(1, lease.recover_at_ms - lease.expires_at_ms)
        carried = {announcement_ms(lease): "announced", pulse_ms(lease): "linked"}
        past_grace = now_ms >= lease.expires_at_ms + lease.grace_ms
        word = carried.get(lease.recover_at_ms, "cadence" if past_grace and not lease.fixed else "grace")
    elif not lease.fixed:
        word = phase_of(lease.reports, lease.progress)
    part = min(1.0, max(0.0, left_ms / whole_ms))
    style = "magenta" if now_ms >= lease.expires_at_ms else "green" if part > 0.5 else "yellow" if part > 0.2 else "red"
    told = duration(left_ms)
    # Where there is little room, the name gives way to what is not a plain lease, and a phase gives way to the bar.
    plain = lease.state == "active" and now_ms < lease.expires_at_ms
    held = _cut(Text(f" {clean(lease.agent_id)}"), max(4, width - len(told) - (1 if plain else len(word) + 2)))
    room = width - held.cell_len - len(told) - 1
    if word and (not plain or room > len(word) + BAR_LEAST):
        held.append(f" {word}", style)
        room -= len(word) + 1
    if room > BAR_LEAST:
        held.append(" ").append_text(_bar(part, min(room - 1, BAR_MOST), style))
    return held.append(f" {told}", style)


def _bar(part: float, width: int, style: str) -> Text:
    """A bar that drains in eighths of a character."""
    eighths = round(part * width * 8)
    filled = "█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")
    return Text(filled.ljust(width), f"{style} on grey23")


def _agents(frame: Frame, now_ms: int, width: int, most: int) -> list[Text]:
    """Who is there, the last to give a sign of life first, in as many columns as there is room for."""
    holds: dict[str, list[str]] = {}
    for view in frame.board["in_progress"]:
        for lease in view.leases:
            holds.setdefault(lease.agent_id, []).append(view.task.task_id)
    across = max(1, width // 39)
    share = (width - 2 * (across - 1)) // across
    if not frame.agents:
        return [Text("nobody yet: tenure agent join --name NAME", "dim")]
    lines: list[Text] = []
    for start in range(0, len(frame.agents), across):
        if len(lines) == most:
            lines[-1] = Text(f"+{frame.numbers.agents - start + across} more", "dim")
            break
        row = frame.agents[start : start + across]
        lines.append(Text("  ").join(_agent(one, holds.get(one.agent_id, []), now_ms, share) for one in row))
    return lines


def _agent(agent: Agent, holds: list[str], now_ms: int, width: int) -> Text:
    name = "" if agent.name in ("", agent.agent_id) else f" {clean(agent.name, 20)}"
    seen = f" seen {_age(agent.seen_at_ms, now_ms)} ago"
    cell = Text.assemble(("● ", "green" if holds else "dim"), (agent.agent_id, "bold"), name, (seen, "dim"))
    cell.append(f" {', '.join(holds)}" if holds else "", "yellow")
    return _cut(cell, width, pad=True)


def _events(frame: Frame, now_ms: int, width: int, most: int) -> list[Text]:
    """What happened, the latest first. A recovery may take two lines for its numbers."""
    lines: list[Text] = []
    for event in reversed(frame.events[-most:]):
        task_id = event.task_id or "-"
        line = Text.assemble((f"{_age(event.at_ms, now_ms):>4}  ", "dim"), (f"{task_id:<6} ", "bold"))
        style, told, room = EVENT_STYLES.get(event.kind, ""), clean(sentence(event)), width - line.cell_len
        if event.kind != "recovered" or room < 20:
            lines.append(_cut(line.append(told, style), width))
            continue
        first, *more = textwrap.wrap(told, room, max_lines=2, placeholder="…")
        lines += [line.append(first, style), *(Text(" " * (width - room) + rest, style) for rest in more)]
    return lines[:most] or [Text("nothing yet", "dim")]


def _age(at_ms: int, now_ms: int) -> str:
    return duration(now_ms - at_ms).partition(" ")[0]


def _cut(text: Text, width: int, pad: bool = False) -> Text:
    text.truncate(width, overflow="ellipsis", pad=pad)
    return text
