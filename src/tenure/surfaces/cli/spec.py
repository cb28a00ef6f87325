"""What a command is: its words, arguments, options and examples, as data.

Parsing, help, shell completion, `tenure prime` and the reference in docs are all made from these records, so that none
can disagree with another. The parser is our own because it must start in no time and be forgiving: agents guess flags.
"""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Values = dict[str, Any]


class Argument(Record):
    """A positional argument."""

    name: str
    help: str
    required: bool = True
    many: bool = False


class Option(Record):
    """A named option. Without a `value` it is a flag. `many`: may be repeated, or hold several separated by commas."""

    name: str
    help: str
    value: str = ""
    kind: str = "text"
    choices: tuple[str, ...] = ()
    many: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name under which its value is found."""
        return self.name.lstrip("-").replace("-", "_")


class Command(Record):
    """A command. `run` names the function that does it, imported only when it is called."""

    path: str
    summary: str
    run: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    # Other words for it, which agents and people try.
    aliases: tuple[str, ...] = ()
    notes: str = ""


# Options whose values name something: an empty one is a mistake.
NAMING = ("ID", "AGENT", "NAME", "TASK", "PATH", "FILE", "CURSOR")
# Options that read standard input for a "-".
PROSE = ("--body", "--message", "--text")
_UNIT_S = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}

# Options that every command takes.
COMMON = (
    Option(name="--json", help="Print one JSON document and nothing else.", aliases=("-j",)),
    Option(
        name="--format",
        value="FORMAT",
        help="text or json.",
        choices=("text", "json"),
        aliases=("-o",),
    ),
    Option(name="--store", value="PATH", help="Use this store instead of the repository's."),
    Option(name="--project", value="ID", help="The project (default: TENURE_PROJECT, else default)."),
    Option(name="--help", help="Show this help.", aliases=("-h",)),
)


def options_of(command: Command) -> tuple[Option, ...]:
    """All that a command takes: its own, and the common ones it does not have in a form of its own."""
    own = {option.name for option in command.options}
    return (*command.options, *(option for option in COMMON if option.name not in own))


def parse(command: Command, words: Sequence[str]) -> Values | Refused:
    """The values a user gave, checked for shape; the verbs check their meaning."""
    options = {name: option for option in options_of(command) for name in (option.name, *option.aliases)}
    values: Values = {}
    given: list[str] = []
    pending = list(words)
    while pending:
        word = pending.pop(0)
        if word == "--":
            given.extend(pending)
            break
        name, equals, inline = word.partition("=")
        option = options.get(name) or options.get(name.replace("_", "-"))
        # What looks like a negative number is a value, unless a command has such an option.
        if not word.startswith("-") or word == "-" or (option is None and word[1:2].isdigit()):
            given.append(word)
            continue
        if option is None:
            return _unknown_option(command, name, options)
        refused = _take(command, option, inline if equals else None, pending, values)
        if refused is not None:
            return refused
    return values if values.get("help") else _with_arguments(command, given, values)


def _take(command: Command, option: Option, inline: str | None, pending: list[str], values: Values) -> Refused | None:
    """Read one option's value."""
    if not option.value:
        if inline is not None:
            return usage(command, f"{option.name} takes no value")
        values[option.key] = True
        return None
    if inline is None and not pending:
        return usage(command, f"{option.name} needs a value: {option.name} {option.value}")
    text = pending.pop(0) if inline is None else inline
    value = _converted(command, option, text)
    if isinstance(value, Refused):
        return value
    if option.many:
        values.setdefault(option.key, []).extend(part for part in value.split(",") if part)
    else:
        values[option.key] = value
    return None


def _converted(command: Command, option: Option, text: str) -> Any:
    if not text.strip() and option.value in NAMING and not option.many:
        # An unset variable in quotes is a mistake, and must not be taken for "not said".
        return usage(command, f"{option.name} is empty; it needs a value: {option.name} {option.value}")
    if option.choices:
        word = text if text in option.choices else text.lower().replace("-", "_")
        if word in option.choices:
            return word
        return usage(command, f"{option.name} must be one of {', '.join(option.choices)}, not {text!r}")
    if text == "-" and option.name in PROSE:
        return _standard_input(command, option)
    if option.kind == "int":
        try:
            return int(text.removesuffix("%"))
        except ValueError:
            return usage(command, f"{option.name} must be a whole number, not {text!r}")
    if option.kind == "number":
        try:
            return float(text)
        except ValueError:
            return usage(command, f"{option.name} must be a number, not {text!r}")
    if option.kind in ("duration", "ttl", "interval"):
        return _duration(command, option, text)
    return text


def _standard_input(command: Command, option: Option) -> str | Refused:
    """The text that stands in for a "-"."""
    import sys

    try:
        return sys.stdin.read().rstrip("\n")
    except UnicodeDecodeError:
        return usage(command, f"{option.name} -: standard input is not UTF-8 text")


def _duration(command: Command, option: Option, text: str) -> float | Refused:
    """Seconds. A lease's is judged here, in the user's words; the verbs would name their own argument."""
    from tenure.core.inputs import TTL_MAX_S, TTL_MIN_S
    from tenure.core.profiles import parse_duration

    length_s = _fraction_s(text)
    if length_s is None:
        whole_s = parse_duration(text)
        if isinstance(whole_s, Refused):
            return whole_s.replace(message=f"{option.name}: {whole_s.message}.", facts={"argument": option.key})
        length_s = whole_s
    if option.kind == "interval":
        return length_s
    if option.kind == "ttl" and not TTL_MIN_S <= length_s <= TTL_MAX_S:
        return usage(command, f"{option.name} must be from {TTL_MIN_S}s to {TTL_MAX_S // 86_400}d, not {text!r}")
    if length_s < 1:
        return usage(command, f"{option.name} must be at least 1s, not {text!r}")
    return round(length_s)


def _fraction_s(text: str) -> float | None:
    """Seconds in 1.5h, .5m or 100ms: one number with a unit; None for what is not written like that."""
    given = text.strip().lower()
    number, per_s = (given[:-2], 0.001) if given.endswith("ms") else (given[:-1], _UNIT_S.get(given[-1:], 0))
    digits = number.replace(".", "", 1)
    if not per_s or not (digits.isascii() and digits.isdigit()) or len(digits) > 12:
        return None
    return float(number) * per_s if "." in number or per_s < 1 else None


def _with_arguments(command: Command, given: list[str], values: Values) -> Values | Refused:
    spare = len(command.arguments) - len(given)
    for argument in command.arguments:
        if given and not given[0].strip() and argument.name != "TITLE":
            return usage(command, f"{argument.name} is empty")
        if spare > 0 and not argument.required and argument.name.lower() in values:
            # Said with an option already: the next word is the next argument.
            spare -= 1
        elif argument.many:
            values[argument.name.lower()], given = given, []
            if argument.required and not values[argument.name.lower()]:
                return usage(command, f"{argument.name} is missing")
        elif given:
            values[argument.name.lower()] = given.pop(0)
        elif argument.required:
            return usage(command, f"{argument.name} is missing")
    if given:
        return usage(command, f"unexpected {given[0]!r}")
    return values


def _unknown_option(command: Command, name: str, options: Iterable[str]) -> Refused:
    meant = near(name, options)
    message = f"unknown option {repr(name)[1:-1]}"
    return usage(command, f"{message}; did you mean {meant}?", meant=meant) if meant else usage(command, message)


def near(word: str, known: Iterable[str]) -> str | None:
    """The known word that was likely meant: the same but for a slip or two, judged by its last part; else None."""
    most = max(1, len(word.split()[-1].lstrip("-")) // 3) if word.split() else 0
    found = [(_slips(word.lower(), one.lower()), one) for one in known if abs(len(one) - len(word)) <= most]
    slips, meant = min(found, key=lambda pair: pair[0], default=(most + 1, None))
    return meant if slips <= most else None


def _slips(one: str, other: str) -> int:
    """How many letters were left out, added, mistaken or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def usage(command: Command, message: str, **facts: Any) -> Refused:
    """One line that says what is wrong, and the right form as what to do next."""
    return refuse("usage", f"{command.path}: {message}", f"Usage: {synopsis(command)}", command=command.path, **facts)


def synopsis(command: Command) -> str:
    """The command on one line."""
    words = [f"tenure {command.path}"]
    for argument in command.arguments:
        word = argument.name + ("..." if argument.many else "")
        words.append(word if argument.required else f"[{word}]")
    words.extend(f"[{option.name}{' ' + option.value if option.value else ''}]" for option in command.options)
    return " ".join(words)


def help_text(command: Command) -> str:
    """A command's help: form, summary, arguments, options, examples."""
    lines = [f"Usage: {synopsis(command)}", "", command.summary]
    rows = [(argument.name, argument.help) for argument in command.arguments]
    rows += [(_option_words(option), option.help) for option in options_of(command)]
    width = min(max(len(words) for words, _ in rows), 34)
    lines.append("")
    for words, text in rows:
        lines += (
            [f"  {words.ljust(width)}  {text}"] if len(words) <= width else [f"  {words}", f"  {'':{width}}  {text}"]
        )
    if command.notes:
        lines += ["", command.notes]
    lines += ["", "Examples:", *(f"  {example}" for example in command.examples)]
    if command.aliases:
        lines += ["", f"Also: {', '.join('tenure ' + alias for alias in command.aliases)}"]
    return "\n".join(lines)


def _option_words(option: Option) -> str:
    names = ", ".join((option.name, *option.aliases))
    return f"{names} {option.value}" if option.value else names
