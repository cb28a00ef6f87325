"""`tenure completion`: a script for bash, zsh or fish, made from the table of commands.

A script holds all words itself, so that a key press starts no process, with one exception: the ids of tasks come from
`tenure completion tasks`, which prints them one to a line and is silent where there is no store. They are data there:
no script lets its shell expand them.
"""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.core.record import Record
from tenure.surfaces.cli.context import Stop
from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.surfaces.cli.context import Context

# How many ids a key press brings at most.
TASKS_SHOWN = 1_000


def completion(context: Context) -> Result:
    """The script for one shell; or, for the scripts, the ids of the tasks."""
    shell = context.get("shell")
    if shell == "tasks":
        ids = _task_ids(context)
        return Result(data={"tasks": ids}, lines=ids)
    if shell not in SCRIPTS:
        message = f"completion: SHELL must be one of {', '.join(SCRIPTS)}, not {shell!r}"
        raise Stop(refuse("usage", message, f"Usage: tenure completion {'|'.join(SCRIPTS)}"))
    lines = SCRIPTS[shell]()
    return Result(data={"shell": shell, "script": "\n".join(lines) + "\n"}, lines=lines)


def _task_ids(context: Context) -> list[str]:
    from tenure.engine.observe import list_tasks

    try:
        found = list_tasks(context.store, limit=TASKS_SHOWN, **context.project())
    except Stop:
        return []
    return [] if isinstance(found, Refused) else [view.task.task_id for view in found]


# -- the table, as shells need it -------------------------------------------------------------------------------------


class Place(Record):
    """What may stand at one place of a command line."""

    # The words before it that make it this place: of a command, or of a command and an option that takes a value.
    after: tuple[str, ...]
    # Words with what they mean, and options likewise.
    words: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    # What else: "tasks", "files", or nothing.
    also: str = ""


_ALSO = {"TASK": "tasks", "FILE": "files", "PATH": "files"}


def _commands() -> list[Place]:
    """A place after each command, each group, and none."""
    from tenure.surfaces.cli.commands import COMMANDS, GROUPS
    from tenure.surfaces.cli.spec import COMMON

    alone = [(command.path, command.summary) for command in COMMANDS if " " not in command.path]
    common = tuple((option.name, option.help) for option in COMMON)
    first = (*alone, *GROUPS.items(), ("help", "Show the help of a command."))
    places = [Place(after=("",), words=tuple(sorted(first)), options=(*common, ("--version", "Print the version.")))]
    for group in GROUPS:
        inner = [command for command in COMMANDS if command.path.startswith(group + " ")]
        words = tuple((command.path.split()[1], command.summary) for command in inner)
        places.append(Place(after=(group,), words=words, options=common))
    for command in COMMANDS:
        names = [argument.name for argument in command.arguments]
        places.append(
            Place(
                after=(command.path,),
                words=tuple((shell, "") for shell in SCRIPTS) if "SHELL" in names else (),
                options=(*((option.name, option.help) for option in command.options), *common),
                also=next((_ALSO[name] for name in names if name in _ALSO), ""),
            )
        )
    return places


def _values() -> list[Place]:
    """A place after each option that takes a value; `COMMAND OPTION`, since a name can mean different things."""
    from tenure.surfaces.cli.commands import COMMANDS
    from tenure.surfaces.cli.spec import COMMON

    # A command's own options come first, and with them what they mean there; the common ones are the same everywhere.
    own = [(command.path, option) for command in COMMANDS for option in command.options]
    places = [
        Place(
            after=tuple(f"{path} {name}" for name in (option.name, *option.aliases)),
            words=tuple((choice, "") for choice in option.choices),
            also=_ALSO.get(option.value, ""),
        )
        for path, option in [*own, *(("*", option) for option in COMMON)]
        if option.value
    ]
    # Many offer the same, or nothing: each kind is written once.
    merged: dict[tuple[object, ...], Place] = {}
    for place in places:
        known = merged.get((place.words, place.also))
        after = (*known.after, *place.after) if known else place.after
        merged[place.words, place.also] = place.replace(after=after)
    return list(merged.values())


def _leading() -> list[str]:
    """The options that may stand before a command and take the next word with them."""
    from tenure.surfaces.cli.spec import COMMON

    return [name for option in COMMON if option.value for name in (option.name, *option.aliases)]


def _group_names() -> list[str]:
    from tenure.surfaces.cli.commands import GROUPS

    return list(GROUPS)


def _quoted(text: str) -> str:
    """A text as one word of bash or zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _pattern(text: str) -> str:
    """A pattern of bash or zsh, in which a leading star stands for any command."""
    return "*" + _quoted(text[1:]) if text.startswith("*") else _quoted(text)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# -- bash -------------------------------------------------------------------------------------------------------------

_BASH = """\
# tenure: completion for bash. In ~/.bashrc: eval "$(tenure completion bash)"
_tenure_offer() {
    local word
    for word in $1; do
        [[ $word == "$cur"* ]] && COMPREPLY+=("$word")
    done
}
_tenure_tasks() {
    local id
    while IFS= read -r id; do
        [[ $id == "$cur"* ]] && COMPREPLY+=("$id")
    done < <("${COMP_WORDS[0]}" completion tasks 2>/dev/null)
}
_tenure_files() {
    local file
    compopt -o filenames 2>/dev/null
    while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$cur")
}
_tenure() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command='' skip='' word
    COMPREPLY=()
    # bash takes --option=value for three words.
    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}
    [[ $cur == = ]] && cur=''
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ -n $skip ]]; then skip=''; continue; fi
        case $word in
            @LEADING@) skip=1 ;;
            -*|=|help) ;;
            *)  command="${command:+$command }$word"
                case $command in @GROUPS@) ;; *) break ;; esac ;;
        esac
    done
    case "$command $prev" in
@VALUES@
    esac
    case $command in
@COMMANDS@
    esac
}
complete -F _tenure tenure"""


def _bash() -> list[str]:
    also = {"tasks": "_tenure_tasks", "files": "_tenure_files", "": ":"}
    values = [
        f"        {_patterns(place, _pattern)}) {_bash_words(place.words)}{also[place.also]}; return ;;"
        for place in _values()
    ]
    commands = [
        f"        {_patterns(place, _pattern)})\n"
        f"            if [[ $cur == -* ]]; then {_bash_words(place.options)}:; "
        f"else {_bash_words(place.words)}{also[place.also]}; fi ;;"
        for place in _commands()
    ]
    return _filled(_BASH, values, commands)


def _bash_words(words: tuple[tuple[str, str], ...]) -> str:
    return f"_tenure_offer {_quoted(' '.join(word for word, _ in words))}; " if words else ""


# -- zsh --------------------------------------------------------------------------------------------------------------

_ZSH = """\
#compdef tenure
# tenure: completion for zsh. In ~/.zshrc, after compinit: eval "$(tenure completion zsh)"
_tenure_tasks() {
    local -a ids
    ids=("${(@f)$($words[1] completion tasks 2>/dev/null)}")
    compadd -- ${ids:#}
}
_tenure() {
    local command='' skip='' word
    local -a offer options
    for word in "${(@)words[2,CURRENT-1]}"; do
        if [[ -n $skip ]]; then skip=''; continue; fi
        case $word in
            (@LEADING@) skip=1 ;;
            (-*|help) ;;
            (*) command="${command:+$command }$word"
                case $command in (@GROUPS@) ;; (*) break ;; esac ;;
        esac
    done
    case "$command $words[CURRENT-1]" in
@VALUES@
    esac
    case $command in
@COMMANDS@
    esac
    if [[ $PREFIX == -* ]]; then _describe -o option options; return; fi
    (( $#offer )) && _describe command offer
}
if [[ $funcstack[1] == _tenure ]]; then _tenure "$@"; else compdef _tenure tenure; fi"""


def _zsh() -> list[str]:
    also = {"tasks": "_tenure_tasks", "files": "_files", "": ":"}
    values = [
        f"        ({_patterns(place, _pattern)}) {_zsh_values(place)}{also[place.also]}; return ;;"
        for place in _values()
    ]
    commands = [
        f"        ({_patterns(place, _pattern)})\n"
        f"            options=({_zsh_words(place.options)})\n"
        f"            offer=({_zsh_words(place.words)})\n"
        f"            [[ $PREFIX == -* ]] || {also[place.also]} ;;"
        for place in _commands()
    ]
    return _filled(_ZSH, values, commands)


def _zsh_values(place: Place) -> str:
    return f"compadd -- {' '.join(word for word, _ in place.words)}; " if place.words else ""


def _zsh_words(words: tuple[tuple[str, str], ...]) -> str:
    return " ".join(_quoted(f"{word}:{told}" if told else word) for word, told in words)


# -- fish -------------------------------------------------------------------------------------------------------------

_FISH = """\
# tenure: completion for fish. In ~/.config/fish/config.fish: tenure completion fish | source
function __tenure_tasks
    set -l words (commandline -opc)
    $words[1] completion tasks 2>/dev/null
end
function __tenure_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l command ''
    set -l skip ''
    for word in $words[2..-1]
        if test -n "$skip"
            set skip ''
            continue
        end
        switch $word
            case @LEADING@
                set skip 1
            case '-*' help
            case '*'
                set command (string trim -- "$command $word")
                contains -- "$command" @GROUPS@; or break
        end
    end
    switch "$command $words[-1]"
@VALUES@
    end
    switch "$command"
@COMMANDS@
    end
end
complete -c tenure -e
complete -c tenure -f -a '(__tenure_complete)'"""


def _fish() -> list[str]:
    also = {"tasks": ["__tenure_tasks"], "files": ['__fish_complete_path "$cur"'], "": []}
    values = [
        line
        for place in _values()
        for line in (
            f"        case {_patterns(place, _fish_quoted, ' ')}",
            *(f"            {step}" for step in (*_fish_words(place.words), *also[place.also], "return")),
        )
    ]
    commands = [
        line
        for place in _commands()
        for line in (
            f"        case {_patterns(place, _fish_quoted, ' ')}",
            "            if string match -q -- '-*' \"$cur\"",
            *(f"                {step}" for step in _fish_words(place.options)),
            "            else",
            *(f"                {step}" for step in (*_fish_words(place.words), *also[place.also], "true")),
            "            end",
        )
    ]
    return _filled(_FISH, values, commands, between=" ")


def _fish_words(words: tuple[tuple[str, str], ...]) -> list[str]:
    """One print for all: each word, a tab, and what it means."""
    told = [_fish_quoted(word + (f"\t{meaning}" if meaning else "")) for word, meaning in words]
    return [f"printf '%s\\n' {' '.join(told)}"] if told else []


# -- all --------------------------------------------------------------------------------------------------------------


def _patterns(place: Place, quoted: Callable[[str], str], between: str = "|") -> str:
    return between.join(quoted(pattern) for pattern in place.after)


def _filled(template: str, values: list[str], commands: list[str], between: str = "|") -> list[str]:
    """The template with the table in it."""
    filled = template.replace("@LEADING@", between.join(_leading())).replace("@GROUPS@", between.join(_group_names()))
    return filled.replace("@VALUES@", "\n".join(values)).replace("@COMMANDS@", "\n".join(commands)).splitlines()


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
