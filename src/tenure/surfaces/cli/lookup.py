"""From words to a command, and the help that stands in for one."""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.surfaces.cli.commands import COMMANDS, GROUPS
from tenure.surfaces.cli.spec import COMMON, near

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.output import Result
    from tenure.surfaces.cli.spec import Command


def by_words() -> dict[str, Command]:
    """Every command by its words; a command's own words win over another's alias."""
    found = {alias: command for command in COMMANDS for alias in command.aliases}
    found.update({command.path: command for command in COMMANDS})
    return found


def find(words: list[str]) -> tuple[Command, list[str]] | Refused | Result:
    """The command that the words name, with the rest of them; or the help they ask for."""
    before, rest = _leading_options(words)
    if not rest or rest[0] == "help":
        about: list[str] = []
        rest = rest[1:]
        while rest:
            about += [] if rest[0].startswith("-") else rest[:1]
            options, rest = _leading_options(rest if rest[0].startswith("-") else rest[1:])
            before += options
        return _help(about, before)
    known = by_words()
    for length in (2, 1):
        command = known.get(" ".join(rest[:length]))
        if command is not None and len(rest) >= length:
            return command, [*rest[length:], *before]
    if rest[0] not in GROUPS:
        return _unknown(rest[0], [*known, *GROUPS])
    if len(rest) == 1 or rest[1] == "help" or rest[1].startswith("-"):
        return _printed(overview(rest[0]))
    return _unknown(" ".join(rest[:2]), [words for words in known if words.startswith(rest[0] + " ")], rest[0])


def _leading_options(words: list[str]) -> tuple[list[str], list[str]]:
    """Split off common options that stand before the command."""
    takes_value = {name: bool(option.value) for option in COMMON for name in (option.name, *option.aliases)}
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] not in ("--", "-"):
        name, equals, _ = words[index].partition("=")
        index += 2 if takes_value.get(name) and not equals else 1
    return words[:index], words[index:]


def _help(rest: list[str], before: list[str]) -> Refused | Result:
    if "--version" in before or "-V" in before:
        from tenure import __version__

        return _printed([f"tenure {__version__}"])
    common = [name for option in COMMON for name in (option.name, *option.aliases)]
    unknown = [word for word in before if word.startswith("-") and word.partition("=")[0] not in common]
    if unknown:
        message, meant = f"unknown option {repr(unknown[0])[1:-1]}", near(unknown[0], [*common, "--version"])
        if meant:
            return refuse("usage", f"{message}; did you mean {meant}?", "Run: tenure help", meant=meant)
        return refuse("usage", message, "Run: tenure help")
    if not rest or (rest[0] in GROUPS and len(rest) == 1):
        return _printed(overview(rest[0] if rest else None))
    known = by_words()
    command = known.get(" ".join(rest[:2])) or known.get(rest[0])
    return _unknown(" ".join(rest[:2]), [*known, *GROUPS]) if command is None else help_of(command)


def help_of(command: Command) -> Result:
    """A command's help as an answer."""
    from tenure.surfaces.cli.spec import help_text

    return _printed(help_text(command).splitlines())


def _printed(lines: list[str]) -> Result:
    from tenure.surfaces.cli.output import Result

    return Result(data={"text": "\n".join(lines)}, lines=lines)


def _unknown(words: str, known: list[str], group: str = "") -> Refused:
    meant = near(words, known)
    message = f"unknown command {words!r}"
    if meant is None:
        return refuse("usage", message, f"Run: tenure {group} --help" if group else "Run: tenure help")
    return refuse("usage", f"{message}; did you mean: tenure {meant}?", f"tenure {meant} --help", meant=meant)


def overview(group: str | None = None) -> list[str]:
    """All commands, or one group's, each on a line."""
    shown = [command for command in COMMANDS if group is None or command.path.startswith(group + " ")]
    width = max(len(command.path) for command in shown)
    lines = ["Usage: tenure COMMAND [OPTIONS]", ""]
    lines += [GROUPS[group] if group else "Work that survives the agent holding it.", ""]
    lines += [f"  {command.path.ljust(width)}  {command.summary}" for command in shown]
    return [*lines, "", "tenure COMMAND --help tells more. Every command takes --json, --store and --project."]
