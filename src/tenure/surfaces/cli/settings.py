"""`tenure config ...`: the settings in force, in the store or in one project."""

from __future__ import annotations

import json

from tenure.core.errors import refuse
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.surfaces.cli.context import Context


def show(context: Context) -> Result:
    """Show every setting in force."""
    from tenure.core.settings import as_document
    from tenure.engine.projects import show_settings

    document = as_document(must(show_settings(context.store, **context.project())))
    lines = []
    for section, entries in document.items():
        for name, value in entries.items():
            lines.append(f"{section}.{name} = {json.dumps(value)}")
    return Result(data=document, lines=lines)


def set_(context: Context) -> Result:
    """Change one setting and keep the others."""
    section, dot, name = str(context.get("setting")).partition(".")
    if not dot:
        message = f"{context.get('setting')!a} is not a setting; settings are named like task_lease.max_renewals"
        raise Stop(refuse("invalid_settings", message, "List them: tenure config show"))
    document = _overrides(context)
    place = document.setdefault(section, {})
    if not isinstance(place, dict):
        raise Stop(refuse("invalid_settings", f"{section} is not a section of settings"))
    inner, dot, last = name.partition(".")
    if dot:
        place = place.setdefault(inner, {})
        place[last] = _value(context.get("value"))
    else:
        place[name] = _value(context.get("value"))
    return _configure(context, document, f"Set {context.get('setting')} = {context.get('value')}")


def import_(context: Context) -> Result:
    """Take over a file's settings; what it does not name keeps its value."""
    from tenure.config import load_file

    document = _overrides(context)
    for section, entries in must(load_file(context.get("file"))).items():
        if isinstance(entries, dict) and isinstance(document.get(section), dict):
            document[section].update(entries)
        else:
            document[section] = entries
    return _configure(context, document, f"Imported {context.get('file')}")


def _value(text: str) -> Any:
    """A value as JSON; a bare word is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _overrides(context: Context) -> dict[str, Any]:
    from tenure.engine.projects import show_overrides

    document: dict[str, Any] = must(show_overrides(context.store, project_id=context.project_id))
    return document


def _configure(context: Context, document: dict[str, Any], line: str) -> Result:
    from tenure.core.settings import as_document
    from tenure.engine.projects import configure

    settings = must(configure(context.store, document=document, project_id=context.project_id))
    return Result(data=as_document(settings), lines=[line])
