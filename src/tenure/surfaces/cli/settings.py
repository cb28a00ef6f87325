"""`tenure config ...`: the settings in force, in the store or in one project."""

from __future__ import annotations

import json

from tenure.core.errors import refuse
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result, duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.core.profiles import Profile
    from tenure.surfaces.cli.context import Context


def show(context: Context) -> Result:
    """Show every setting in force."""
    from tenure.core.profiles import BUILT_IN, profile_named
    from tenure.core.settings import as_document
    from tenure.engine.projects import show_settings
    from tenure.surfaces.cli.spec import near

    settings = must(show_settings(context.store, **context.project()))
    document = as_document(settings)
    flat = {f"{section}.{name}": value for section, entries in document.items() for name, value in entries.items()}
    profiles = {name: must(profile_named(name, settings)) for name in (*BUILT_IN, *settings.profiles)}
    named = context.get("name")
    if named is None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in flat.items()]
        lines += ["", "Profiles in force", *(f"  {_profile_words(profile)}" for profile in profiles.values())]
        in_force = {name: profile.as_dict() for name, profile in profiles.items()}
        return Result(data={**document, "profiles_in_force": in_force}, lines=lines)
    if named.removeprefix("profiles.") in profiles:
        profile = profiles[named.removeprefix("profiles.")]
        told = [f"profiles.{profile.name}.{key} = {json.dumps(value)}" for key, value in profile.as_dict().items()]
        return Result(data={"profiles_in_force": {profile.name: profile.as_dict()}}, lines=told)
    meant = {name: value for name, value in flat.items() if named == name or name.startswith(named + ".")}
    if not meant:
        close = near(named, [*flat, *document, *profiles])
        message = f"{named!r} is not a setting" + (f"; did you mean {close}?" if close else "")
        raise Stop(refuse("invalid_settings", message, "List them: tenure config show"))
    return Result(data=meant, lines=[f"{name} = {json.dumps(value)}" for name, value in meant.items()])


def _profile_words(profile: Profile) -> str:
    """A profile's rules on one line."""
    words = [f"ttl {duration(profile.ttl_s * 1000)}" if profile.fixed else "terms that follow the phases"]
    words.append(
        {"any_call": "any call extends", "touch": "touch and renew extend"}.get(profile.extends, "heartbeats extend")
    )
    words += [f"at most {profile.max_attempts} attempts"] if profile.max_attempts else []
    words += [f"blocked after {profile.quarantine_after} silent recoveries"] if profile.quarantine_after else []
    words += [f"requeued after {duration(profile.requeue_delay_s * 1000)}"] if profile.requeue_delay_s else []
    return f"{profile.name}: {', '.join(words)}"


def set_(context: Context) -> Result:
    """Change one setting and keep the others."""
    section, dot, name = str(context.get("setting")).partition(".")
    if not dot:
        message = f"{context.get('setting')!r} is not a setting; settings are named like task_lease.max_renewals"
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
