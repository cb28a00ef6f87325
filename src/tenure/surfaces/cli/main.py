"""The command line: words in, one verb, an answer out.

Nothing is imported before it is needed. The exit status is the refusal's (docs/refusals.md); `| head` closing the pipe
early is not an error.
"""

from __future__ import annotations

import os
import sys

from tenure.core.errors import EXIT_INTERNAL, EXIT_OK, Refused, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from tenure.store.store import Clock
    from tenure.surfaces.cli.output import Result
    from tenure.surfaces.cli.spec import Command


def program() -> NoReturn:
    """The console script. It ends without the interpreter's own clean-up, which would cost a hook 3 ms for nothing:
    the store is closed and everything printed is flushed by then."""
    for name in ("stdout", "stderr"):
        # A hook may run with its output closed. What a terminal cannot show is printed as its number.
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115 - it stays open to the end
        stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)
    status = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def main(argv: Sequence[str] | None = None, *, folder: str | None = None, clock: Clock | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(words, os.getcwd() if folder is None else folder, clock)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _unwritable(error)
    return status


def _unwritable(error: OSError) -> int:
    """The output could not be written, so that is all there is to say, and only elsewhere."""
    try:
        print(f"Error: cannot write output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    return EXIT_INTERNAL


def _run(words: list[str], folder: str, clock: Clock | None) -> int:
    as_json = _wants_json(words)
    try:
        found = _find(words)
        if isinstance(found, Refused):
            return _refused(found, as_json)
        if not isinstance(found, tuple):
            return _shown(found, as_json)
        command, rest = found
        return _perform(command, rest, folder, clock, as_json)
    except BrokenPipeError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and _is_full(error):
            raise
        # What the store could not do outside of a verb.
        fault = getattr(error, "refusal", None)
        if isinstance(fault, Refused):
            return _refused(fault, as_json)
        if os.environ.get("TENURE_DEBUG"):
            raise
        message = f"{type(error).__name__}: {error}"
        hint = "Run it again with TENURE_DEBUG=1 to see where, and report it."
        return _refused(refuse("internal_error", message, hint), as_json)


def _is_full(error: OSError) -> bool:
    """Whether this is how the system says that what is printed cannot be kept."""
    import errno

    return error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _perform(command: Command, rest: list[str], folder: str, clock: Clock | None, as_json: bool) -> int:
    from tenure.surfaces.cli.context import Context, Stop
    from tenure.surfaces.cli.spec import parse

    values = parse(command, rest)
    if isinstance(values, Refused):
        return _refused(values, as_json)
    if values.get("help"):
        from tenure.surfaces.cli.lookup import help_of

        return _shown(help_of(command), as_json)
    context = Context(values, os.environ, folder)
    context.clock = clock
    module, _, name = command.run.partition(":")
    __import__(module)
    try:
        result = getattr(sys.modules[module], name)(context)
        context.look_after(None)
    except Stop as stop:
        from tenure.surfaces.cli.advice import advised

        result = advised(context.look_after(stop.refusal), context, command)
    finally:
        context.close()
    return _refused(result, as_json) if isinstance(result, Refused) else _shown(result, as_json)


def _shown(result: Result, as_json: bool) -> int:
    from tenure.surfaces.cli import output

    if as_json:
        output.print_json(output.envelope(result))
        return result.exit_status
    for line in result.lines:
        print(line)
    for warning in result.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    return result.exit_status


def _refused(refusal: Refused, as_json: bool) -> int:
    from tenure.surfaces.cli import output

    if as_json:
        output.print_json(output.error_envelope(refusal))
    else:
        print(f"{output.paint('Error:', 'red', sys.stderr)} {output.clean(refusal.message, 2000)}", file=sys.stderr)
        # A wrong word is told in one line: the likely right one is already in it.
        if "meant" not in refusal.facts:
            print(output.clean(refusal.next, 2000), file=sys.stderr)
    return refusal.exit_status


def _wants_json(words: list[str]) -> bool:
    """Known before anything is parsed, because a usage error is to be told in JSON too."""
    ours = words[: words.index("--")] if "--" in words else words
    if "--json" in ours or "-j" in ours or "--format=json" in ours:
        return True
    return any(ours[index] in ("--format", "-o") and word == "json" for index, word in enumerate(ours[1:]))


def _find(words: list[str]) -> tuple[Command, list[str]] | Refused | Result:
    """The command that the words name, with the rest of them; or the help they ask for."""
    if words[:1] == ["touch"]:
        from tenure.surfaces.cli.touch import COMMAND

        return COMMAND, words[1:]
    from tenure.surfaces.cli.lookup import find

    return find(words)
