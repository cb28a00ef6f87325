"""Settings from outside: a file (JSON or TOML), and the environment.

Reading is here, judging is in core/settings.py. What is wrong with a file is told with its line, so that its author
need not search; JSON's habit of silently keeping the last of two equal keys is refused as TOML refuses it.
"""

from __future__ import annotations

from tenure.core.errors import Refused, refuse
from tenure.core.profiles import parse_duration
from tenure.core.settings import DEFAULTS, Settings, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Any

# The first that is set wins; the second is the name the CLI specification gives it.
TTL_VARIABLES = ("TENURE_LEASE_TTL", "LODESTAR_LEASE_TTL")


def load_file(path: str | os.PathLike[str]) -> dict[str, Any] | Refused:
    """The document in a .json or .toml file."""
    name = str(path)
    if not name.lower().endswith((".json", ".toml")):
        return _refuse_file(name, "is neither a .json nor a .toml file", "Name the file by its format.")
    try:
        with open(path, "rb") as file:
            # Some editors begin a file with a byte-order mark, which neither format allows.
            text = file.read().decode("utf-8-sig")
    except OSError as error:
        return _refuse_file(name, f"cannot be read: {error.strerror}", "Check the path and its permissions.")
    except UnicodeDecodeError as error:
        return _refuse_file(name, f"is not UTF-8 (byte {error.start + 1})", "Save it as UTF-8.")
    try:
        document = _decoded_toml(text) if name.lower().endswith(".toml") else _decoded_json(text)
    except (ValueError, RecursionError) as error:
        # The decoders' own errors are ValueErrors; numbers of absurd length and absurd nesting end here as well.
        line = getattr(error, "lineno", None)
        facts = {} if line is None else {"line": line}
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        return _refuse_file(name, f"cannot be understood: {reason}", "Correct the file at the named place.", **facts)
    if not isinstance(document, dict):
        return _refuse_file(name, "does not hold an object at its top level", "Begin the file with {.")
    return document


def settings_from_file(path: str | os.PathLike[str], base: Settings = DEFAULTS) -> Settings | Refused:
    """The settings in force when a file is laid over `base`. A refusal names the file as well as the setting."""
    document = load_file(path)
    if isinstance(document, Refused):
        return document
    settings = parse(document, base)
    if isinstance(settings, Refused):
        return settings.replace(message=f"{path}: {settings.message}", facts={**settings.facts, "file": str(path)})
    return settings


def ttl_from_environment(environ: Mapping[str, str]) -> int | Refused | None:
    """The default TTL in seconds that the environment asks for, if it does. An empty variable counts as unset."""
    for variable in TTL_VARIABLES:
        text = environ.get(variable, "").strip()
        if text:
            ttl_s = parse_duration(text)
            if isinstance(ttl_s, Refused):
                return ttl_s.replace(message=f"{variable}: {ttl_s.message}", facts={"argument": variable})
            return ttl_s
    return None


def _decoded_json(text: str) -> Any:
    import json

    return json.loads(text, object_pairs_hook=_object_without_repeats)


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is given twice in one object")
        found[key] = value
    return found


def _decoded_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text.replace("\r\n", "\n"))


def _refuse_file(name: str, what: str, advice: str, **facts: Any) -> Refused:
    return refuse("invalid_settings", f"{name} {what}", advice, setting="settings", file=name, **facts)
