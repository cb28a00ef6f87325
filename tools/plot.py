"""Draws docs/replay.svg from the fixture of the replay: latency against false recoveries, for timeouts and for links.

python tools/plot.py            rewrite the picture
python tools/plot.py --check    change nothing; exit 1 if the picture is out of date
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from tenure.core.errors import Refused
from tenure.core.replay import RULES, Call, Outcome, replay
from tenure.core.settings import DEFAULTS, Settings, parse
from tenure.surfaces.cli.replay import runs_of

ROOT = Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "tests" / "replay" / "silences.csv.gz"
PICTURE = ROOT / "docs" / "replay.svg"
# Constant silences after which a holder counts as dead, for comparison.
TIMEOUTS_S = (75, 150, 300, 600, 1200)
NAMES = {
    "unlinked": "unlinked: the specification’s rule",
    "linked": "linked",
    "linked_announced": "linked, silences announced",
}
COLOURS = {"unlinked": "#c2410c", "linked": "#0369a1", "linked_announced": "#15803d"}

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 56, 62
X_LOW, X_HIGH = 0.2, 2000.0
Y_LOW, Y_HIGH = 0.01, 10.0
X_TICKS = ((0.5, "0.5 s"), (1, "1 s"), (5, "5 s"), (30, "30 s"), (60, "1 min"), (300, "5 min"), (1200, "20 min"))
Y_TICKS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10)


def fixed(timeout_s: int) -> Settings:
    """Settings under which every silence of this length is a death, whatever the phase."""
    hours = timeout_s / 3600
    lease = {
        "enable_adaptive": False,
        "default_hours": hours,
        "min_lease_hours": hours,
        "max_lease_hours": hours,
        "grace_period_minutes": 0,
        "silence_multiplier": 1,
    }
    settings = parse({"task_lease": lease})
    assert not isinstance(settings, Refused), settings
    return settings


def x_of(latency_s: float) -> float:
    """Where a latency stands, on a logarithmic axis."""
    share = math.log(latency_s / X_LOW) / math.log(X_HIGH / X_LOW)
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def y_of(rate: float) -> float:
    """Where a rate stands."""
    share = math.log(max(rate, Y_LOW) / Y_LOW) / math.log(Y_HIGH / Y_LOW)
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def text(x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", fill: str = "#1f2937") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def axes() -> list[str]:
    """The frame, its grid and its words."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for second, words in X_TICKS:
        x = x_of(second)
        parts.append(f'<path d="M{x} {TOP}V{bottom}" stroke="#e5e7eb"/>')
        parts.append(text(x, bottom + 18, words, size=12, anchor="middle", fill="#4b5563"))
    for rate in Y_TICKS:
        y = y_of(rate)
        parts.append(f'<path d="M{LEFT} {y}H{right}" stroke="#e5e7eb"/>')
        parts.append(text(LEFT - 8, y + 4, f"{rate:g}", size=12, anchor="end", fill="#4b5563"))
    parts.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#6b7280"/>')
    middle = (LEFT + right) / 2
    parts.append(text(middle, HEIGHT - 16, "mean time from a kill until the task is on offer", anchor="middle"))
    turned = f"rotate(-90 22 {(TOP + bottom) / 2})"
    words = "live agents declared dead, per agent-hour"
    parts.append(
        f'<text x="22" y="{(TOP + bottom) / 2}" font-size="13" text-anchor="middle" fill="#1f2937" '
        f'transform="{turned}">{words}</text>'
    )
    return parts


def curve(points: list[tuple[int, Outcome]]) -> list[str]:
    """What a constant timeout buys, and at what price."""
    places = [(x_of(o.latency_mean_s), y_of(o.false_recoveries_per_agent_hour)) for _, o in points]
    line = " ".join(f"{x},{y}" for x, y in places)
    parts = [f'<polyline points="{line}" fill="none" stroke="#9ca3af" stroke-width="2" stroke-dasharray="5 4"/>']
    for (timeout_s, _), (x, y) in zip(points, places, strict=True):
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="#9ca3af"/>')
        parts.append(text(x - 9, y + 13, f"{timeout_s} s", size=12, anchor="end", fill="#6b7280"))
    return parts


def marks(outcomes: list[Outcome]) -> list[str]:
    """The three rules."""
    parts = []
    for outcome in outcomes:
        x, y = x_of(outcome.latency_mean_s), y_of(outcome.false_recoveries_per_agent_hour)
        colour = COLOURS[outcome.rule]
        words = f"{NAMES[outcome.rule]} ({outcome.false_recoveries_per_agent_hour:.2f})"
        right = outcome.rule != "unlinked"
        parts.append(f'<circle cx="{x}" cy="{y}" r="7" fill="{colour}"/>')
        parts.append(text(x + 13 if right else x - 13, y + 5, words, anchor="start" if right else "end", fill=colour))
    return parts


def picture(runs: list[list[Call]]) -> str:
    """The whole picture as SVG."""
    outcomes = [replay(runs, rule, DEFAULTS) for rule in RULES]
    timeouts = [(timeout_s, replay(runs, "unlinked", fixed(timeout_s))) for timeout_s in TIMEOUTS_S]
    title = "A timeout trades false recoveries against delay; seeing the process ends the trade"
    under = f"{len(runs)} unattended runs of coding agents, {outcomes[0].agent_hours:.0f} agent-hours, replayed"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 24, title, size=16),
        text(LEFT, 43, f"{under}. Dashed: a constant timeout.", size=12, fill="#4b5563"),
        *axes(),
        *curve(timeouts),
        *marks(outcomes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Draw, or check."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    drawn = picture(runs_of(str(FIXTURE)))
    if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawn:
        return 0
    if arguments:
        print("Out of date, run `make docs`: docs/replay.svg")
        return 1
    PICTURE.write_text(drawn, encoding="utf-8")
    print("Rewritten: docs/replay.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
