"""The text an agent receives with a task, in layers.

    0    the title
    1.1  the recovery handoff, only while unexpired      above the body: what is done must not be done again
    1    the body
    1.5  the time budget, and how the lease stays alive
    2    what the dependencies produced
    3    who depends on this
    4    what to log, and what is logged already
    5    messages, newest first

A layer's text is made of paragraphs. A paragraph that stood further up is not repeated. When the whole is over the
token budget, paragraphs are cut from the bottom; the title, the handoff and the body never are, and one line says what
is gone. So the order is also the order of importance, and within a layer what matters most comes first.

Only the title and the body are instructions of the project. Everything else that somebody wrote is quoted as data.
"""

from __future__ import annotations

from tenure.core.handoff import DATA_NOTICE, inline, made_paragraphs, quote, render, visible
from tenure.core.record import Record
from tenure.core.times import iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tenure.core.model import Handoff, Lease, Message, Task

NEVER_CUT = ("0", "1.1", "1")

# Recovery appends the handoff to the task's thread. Layer 1.1 shows it while it holds, and nobody should see it later.
HANDOFF_MESSAGE = "handoff"


class Layer(Record):
    """One part of the instructions."""

    number: str
    title: str
    text: str = ""


class Dependency(Record):
    """A task this one needs, and what it made (items as `handoff.made_paragraphs` reads them)."""

    task_id: str
    title: str = ""
    status: str = "done"
    decisions: Sequence[object] = ()
    artifacts: Sequence[object] = ()


class Dependant(Record):
    """A task that waits for this one."""

    task_id: str
    title: str = ""
    status: str = "todo"


class Briefing(Record):
    """All that instructions are made from. `decisions` and `artifacts` are the task's own; `branch` is the reader's."""

    task: Task
    now_ms: int
    handoffs: Sequence[Handoff] = ()
    lease: Lease | None = None
    phase: str = ""
    branch: str = ""
    dependencies: Sequence[Dependency] = ()
    dependants: Sequence[Dependant] = ()
    decisions: Sequence[object] = ()
    artifacts: Sequence[object] = ()
    messages: Sequence[Message] = ()


def estimate_tokens(text: str) -> int:
    """About how many tokens the text costs, without a tokenizer.

    Four ASCII characters count as one token, which is a little more than English prose and code cost. Every other
    character counts as many tokens as it has UTF-8 bytes: a byte-level tokenizer never needs more. Only long runs of
    digits or hexadecimal cost more than this says.
    """
    ascii_chars = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "surrogatepass")) - ascii_chars
    return -(-ascii_chars // 4) + other_bytes


def build(briefing: Briefing, budget_tokens: int) -> str:
    """The instructions within the budget. They exceed it only if title, handoff and body alone do."""
    parts = layers(briefing)
    whole = _text(parts)
    if estimate_tokens(whole) <= budget_tokens:
        return whole
    paragraphs = sum(len(_paragraphs(layer)) for layer in parts if layer.number not in NEVER_CUT)
    if paragraphs == 0:
        return whole
    # Bisect for the most paragraphs that fit: a thread may have thousands. `fits` is known to fit, or is 0.
    fits, over = 0, paragraphs
    while over - fits > 1:
        middle = (fits + over) // 2
        if estimate_tokens(_cut_text(parts, middle, budget_tokens)) <= budget_tokens:
            fits = middle
        else:
            over = middle
    text = _cut_text(parts, fits, budget_tokens)
    least = _text([layer for layer in parts if layer.number in NEVER_CUT])
    if estimate_tokens(text) <= budget_tokens or estimate_tokens(least) > budget_tokens:
        return text
    # What may not be cut fits, but not together with the full notice.
    short = f"{least}\n\n[cut]"
    return short if estimate_tokens(short) <= budget_tokens else least


def layers(briefing: Briefing) -> list[Layer]:
    """Every layer that has something to say, in order, without repetitions and without regard to a budget."""
    shown = visible(briefing.handoffs, briefing.now_ms)
    task = briefing.task
    parts = [Layer(number="0", title=inline(task.title, 500) or inline(task.task_id))]
    if shown:
        parts.append(Layer(number="1.1", title="Recovery handoff", text=render(shown[0], shown[1:])))
    if task.body.strip():
        parts.append(Layer(number="1", title="Task", text=task.body.strip("\r\n").rstrip()))
    seen = {paragraph for layer in parts for paragraph in _paragraphs(layer)}
    for number, title, paragraphs in (
        ("1.5", "Time budget and lease", list(_time(briefing))),
        ("2", "What its dependencies produced", list(_dependencies(briefing.dependencies))),
        ("3", "Who depends on this", list(_dependants(briefing.dependants))),
        ("4", "What to log", list(_log(briefing))),
        ("5", "Messages", list(_messages(briefing, shown))),
    ):
        fresh = [paragraph for paragraph in dict.fromkeys(paragraphs) if paragraph not in seen]
        quoting = [position for position, paragraph in enumerate(fresh) if "\n> " in paragraph]
        if quoting and DATA_NOTICE not in seen:
            fresh.insert(quoting[0], DATA_NOTICE)
        seen.update(fresh)
        if fresh:
            parts.append(Layer(number=number, title=title, text="\n\n".join(fresh)))
    return parts


# The layers below the body, a generator of paragraphs each. No paragraph contains an empty line.


def _time(briefing: Briefing) -> Iterator[str]:
    task, lease = briefing.task, briefing.lease
    tried = f" Attempts so far: {task.attempts} of {task.max_attempts}." if task.max_attempts is not None else ""
    if lease is None:
        yield f"Estimated work: {task.estimated_hours:g} h.{tried}"
        return
    yield f"{_terms(lease, briefing.phase)} Estimated work: {task.estimated_hours:g} h.{tried}"
    yield from _staying_alive(lease)


def _terms(lease: Lease, phase: str) -> str:
    term = f"{lease.term_ms / 1000:g} s"
    if lease.state == "offered":
        return f"This is an offer until {iso(lease.expires_at_ms)}: accept it first. Then the lease runs {term}."
    if lease.fixed:
        return f"The lease runs {term} at a time, now until {iso(lease.expires_at_ms)}; there is no grace."
    named = f"Phase {inline(phase)}: the" if phase else "The"
    return f"{named} lease runs {term} plus {lease.grace_ms / 1000:g} s of grace from your last call."


def _staying_alive(lease: Lease) -> Iterator[str]:
    task_id = inline(lease.task_id)
    if not lease.fixed:
        yield (
            "Any call you make to this server keeps the lease alive; none is needed for that alone. "
            "A progress report also moves the phase."
        )
        yield (
            "Announce a longer silence (a build, a test run, a rate limit) before it begins: expect_silence_s on "
            f"report_task_progress, at most {lease.silence_cap_ms / 1000:g} s. Your next call ends the announcement."
        )
    elif lease.touch_extends:
        yield (
            f"`tenure task renew {task_id}` or `tenure touch` extends the lease by its full term from that moment, "
            "while it is live. Renew before a long command, not after it."
        )
    else:
        yield (
            f"`POST /lease/{inline(lease.lease_id)}/heartbeat` or a progress receipt extends the lease by its full "
            "term from that moment, while it is live; nothing else does. Send one every third of the term."
        )


def _dependencies(dependencies: Sequence[Dependency]) -> Iterator[str]:
    for dependency in dependencies:
        yield f"{_named(dependency.task_id, dependency.title)} is {inline(dependency.status)}."
        yield from made_paragraphs(dependency.decisions, dependency.artifacts, task=dependency.task_id)
        if any(isinstance(made, dict) and not made.get("location") for made in dependency.artifacts):
            yield f"What has no place of its own is kept here: get_task_context({inline(dependency.task_id)}) shows it."


def _dependants(dependants: Sequence[Dependant]) -> Iterator[str]:
    opening = "These tasks wait for this one; keep what they will build on stable and say where it is.\n"
    for line in dict.fromkeys(f"- {_named(one.task_id, one.title)} ({inline(one.status)})" for one in dependants):
        yield opening + line
        # The sentence belongs to the first line, so that a cut never leaves it alone.
        opening = ""


def _log(briefing: Briefing) -> Iterator[str]:
    lease, task_id = briefing.lease, inline(briefing.task.task_id)
    if lease is not None and lease.fixed and not lease.touch_extends:
        yield (
            "Submit a progress receipt when something is worth knowing, and one complete receipt with the outcome; "
            "escalate what you cannot finish. Whoever continues sees only what was recorded."
        )
    elif lease is not None and lease.fixed:
        yield (
            f"Tell the thread what others must know with `tenure msg send --task {task_id}`, finish with `tenure task "
            f"done {task_id}`, and leave a note with `tenure task release {task_id} --message` if you stop."
        )
    else:
        yield (
            "log_decision: each choice that others must know. log_artifact: each file or document that others will "
            "use. report_task_progress: about every quarter, and when it is completed. report_blocker: when you cannot "
            "go on, which ends the lease."
        )
    if briefing.branch:
        yield f"Commit often on your branch {inline(briefing.branch)}: commits outlive the agent that made them."
    yield from made_paragraphs(briefing.decisions, briefing.artifacts)


def _messages(briefing: Briefing, shown: Sequence[Handoff]) -> Iterator[str]:
    said = {quote(briefing.task.body), *(quote(handoff.last_message) for handoff in shown[:1])}
    heard: set[tuple[str, str]] = set()
    for message in sorted(briefing.messages, key=lambda message: (message.at_ms, message.seq), reverse=True):
        words = quote(message.text)
        # The same words of the same sender say nothing new at another time.
        if message.kind == HANDOFF_MESSAGE or not words or words in said or (message.sender, words) in heard:
            continue
        heard.add((message.sender, words))
        # What was said elsewhere, to this agent alone, is told apart from the task's thread.
        to_you = " to you" if message.task_key != briefing.task.key and message.recipient else ""
        yield f"From {inline(message.sender) or 'nobody'}{to_you} at {iso(message.at_ms)}:\n{words}"


def _named(task_id: str, title: str) -> str:
    return f"{inline(task_id)} “{inline(title)}”" if title else inline(task_id)


# Text and cutting.


def _paragraphs(layer: Layer) -> list[str]:
    return layer.text.split("\n\n") if layer.text else []


def _text(parts: Sequence[Layer]) -> str:
    return "\n\n".join(
        f"# {layer.title}" if layer.number == "0" else f"## {layer.number} {layer.title}\n\n{layer.text}"
        for layer in parts
    )


def _cut_text(parts: Sequence[Layer], keep: int, budget_tokens: int) -> str:
    """The text with only the first `keep` of the paragraphs that may be cut, and the line that says what is gone."""
    kept: list[Layer] = []
    gone: list[str] = []
    for layer in parts:
        if layer.number in NEVER_CUT:
            kept.append(layer)
            continue
        paragraphs = _paragraphs(layer)
        first = paragraphs[:keep]
        keep -= len(first)
        if first:
            kept.append(layer.replace(text="\n\n".join(first)))
        if len(first) < len(paragraphs):
            share = f" ({len(paragraphs) - len(first)} of {len(paragraphs)} parts)" if first else ""
            gone.append(f"{layer.number} {layer.title}{share}")
    notice = f"[Cut to fit {budget_tokens} tokens: {', '.join(gone)}. Ask for the task's context to see it.]"
    return f"{_text(kept)}\n\n{notice}"
