"""The `tenure` console script.

It answers `--version`, `--help` and `tour`. The command set itself arrives with the command line; until then an unknown
command is refused as a usage error rather than half understood.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = """\
usage: tenure [--help | --version | tour]

  tour        walk one task through claim, silence, recovery and handoff, on a throw-away store
  --version   print the version
  --help      print this text
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    args = list(sys.argv[1:] if argv is None else argv)
    match args:
        case [] | ["-h" | "--help" | "help"]:
            print(USAGE, end="")
            return 0
        case ["--version"]:
            from tenure import __version__

            print(f"tenure {__version__}")
            return 0
        case ["tour"]:
            from tenure import tour

            return tour.main()
        case ["--version" | "-h" | "--help" | "help" | "tour" as command, extra, *_]:
            return _refuse(f"{command} takes no argument, got {extra!r}")
        case _:
            return _refuse(f"unknown command {args[0]!r}")


def _refuse(message: str) -> int:
    from tenure.core.errors import EXIT_USAGE

    print(f"tenure: {message}; see tenure --help", file=sys.stderr)
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
