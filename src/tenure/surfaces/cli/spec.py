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
        if not word.startswith("-") or word == "-":
            given.append(word)
            continue
        name, equals, inline = word.partition("=")
        option = options.get(name) or options.get(name.replace("_", "-"))
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
    if option.choices and text not in option.choices:
        return usage(command, f"{option.name} must be one of {', '.join(option.choices)}, not {text!a}")
    if option.kind == "int":
        try:
            return int(text.removesuffix("%"))
        except ValueError:
            return usage(command, f"{option.name} must be a whole number, not {text!a}")
    if option.kind == "number":
        try:
            return float(text)
        except ValueError:
            return usage(command, f"{option.name} must be a number, not {text!a}")
    if option.kind in ("duration", "ttl"):
        return _duration(command, option, text)
    return text


def _duration(command: Command, option: Option, text: str) -> int | Refused:
    """Seconds. A lease's is judged here, in the user's words; the verbs would name their own argument."""
    from tenure.core.inputs import TTL_MAX_S, TTL_MIN_S
    from tenure.core.profiles import parse_duration

    length_s = parse_duration(text)
    if isinstance(length_s, Refused):
        return length_s.replace(message=f"{option.name}: {length_s.message}.", facts={"argument": option.key})
    if option.kind == "ttl" and not TTL_MIN_S <= length_s <= TTL_MAX_S:
        return usage(command, f"{option.name} must be from {TTL_MIN_S}s to {TTL_MAX_S // 86_400}d, not {text!a}")
    return length_s


def _with_arguments(command: Command, given: list[str], values: Values) -> Values | Refused:
    for argument in command.arguments:
        if argument.many:
            values[argument.name.lower()], given = given, []
            if argument.required and not values[argument.name.lower()]:
                return usage(command, f"{argument.name} is missing")
        elif given:
            values[argument.name.lower()] = given.pop(0)
        elif argument.required:
            return usage(command, f"{argument.name} is missing")
    if given:
        return usage(command, f"unexpected {given[0]!a}")
    return values


def _unknown_option(command: Command, name: str, options: Iterable[str]) -> Refused:
    meant = near(name, options)
    message = f"unknown option {ascii(name)[1:-1]}"
    return usage(command, f"{message}; did you mean {meant}?", meant=meant) if meant else usage(command, message)


def near(word: str, known: Iterable[str]) -> str | None:
    """The known word that was likely meant, or None."""
    from tenure.core.settings import nearest

    return nearest(word, list(known))


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
