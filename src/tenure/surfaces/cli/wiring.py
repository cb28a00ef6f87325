"""`tenure setup` for a coding agent: puts its pieces into the client's files, looks at them, takes them out."""

from __future__ import annotations

import os
import tomllib

from tenure.core.errors import refuse
from tenure.surfaces.cli import edits, jsontext
from tenure.surfaces.cli.clients import OURS, Block, Entry, Whole
from tenure.surfaces.cli.context import Stop
from tenure.surfaces.cli.output import Result, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenure.surfaces.cli.clients import Client
    from tenure.surfaces.cli.context import Context
    from tenure.surfaces.cli.edits import Desk

    Piece = Entry | Block | Whole

IN_PLACE, MISSING, DIFFERS = "in place", "missing", "differs"
COLOURS = {IN_PLACE: "green", MISSING: "yellow", DIFFERS: "red"}


def wire(context: Context, client: Client) -> Result:
    """Do what the user asks for one client."""
    user = bool(context.get("user"))
    root = context.worktree()
    pieces = client.pieces(root, user, context.environ)
    desk = edits.Desk(context.environ)
    try:
        if context.get("check"):
            return _checked(context, client, pieces)
        changed = _taken_out(desk, pieces) if context.get("remove") else _put_in(desk, pieces)
        return _told(context, client, pieces, changed)
    except OSError as error:
        message = f"{error.filename or 'A file'} cannot be changed: {error.strerror}."
        raise Stop(refuse("not_permitted", message, "Make it writable, then repeat the command.")) from None


# -- looking ----------------------------------------------------------------------------------------------------------


def look(piece: Piece) -> str:
    """Whether a piece is in its file."""
    return look_in(piece, _text(piece.file))


def look_in(piece: Piece, text: str | None) -> str:
    """Whether a piece is in a text, which may not be written yet."""
    if text is None or not text.strip(jsontext.SPACE):
        return MISSING
    if isinstance(piece, Whole):
        return IN_PLACE if text == piece.text else DIFFERS
    if isinstance(piece, Block):
        if _block(piece, text) in text:
            return IN_PLACE
        found: Any = _toml(piece.file, text)
        for key in piece.keys:
            found = found.get(key) if isinstance(found, dict) else None
        return MISSING if found is None and not any(ours in text for ours in OURS) else DIFFERS
    node: jsontext.Node | None = _json(piece.file, text)
    for key in piece.path:
        node = node.member(key) if node is not None else None
    if node is None:
        return MISSING
    value = node.plain()
    if not piece.append:
        return IN_PLACE if value == piece.value else DIFFERS
    if not isinstance(value, list):
        return DIFFERS
    if piece.value in value:
        return IN_PLACE
    return DIFFERS if any(ours in str(element) for element in value for ours in OURS) else MISSING


def name_of(piece: Piece) -> str:
    """What a piece is called when it is spoken of."""
    if isinstance(piece, Whole):
        return "the whole file"
    return "the tenure block" if isinstance(piece, Block) else ".".join(piece.path)


def _text(path: str) -> str | None:
    try:
        return edits.read(path)
    except UnicodeDecodeError:
        raise _broken(path, "it is not UTF-8 text") from None


def _json(path: str, text: str) -> jsontext.Node:
    try:
        node = jsontext.scan(text)
    except jsontext.Fault as fault:
        raise _broken(path, str(fault)) from None
    if node.kind != "object":
        raise _broken(path, "it is not a JSON object")
    return node


def _toml(path: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n").removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise _broken(path, str(error)) from None


def _broken(path: str, what: str) -> Stop:
    message = f"{path} was left as it is: {what}."
    return Stop(refuse("wrong_state", message, "Repair the file, then repeat the command.", file=path))


# -- changing ---------------------------------------------------------------------------------------------------------


def _put_in(desk: Desk, pieces: list[Piece]) -> list[str]:
    """Put in what is missing. What an older version of ours left behind is taken out first."""
    # Every file is looked at before any is changed.
    states = {id(piece): look(piece) for piece in pieces}
    changed = []
    for file in dict.fromkeys(piece.file for piece in pieces):
        own = [piece for piece in pieces if piece.file == file]
        if all(states[id(piece)] == IN_PLACE for piece in own):
            continue
        note = desk.note_of(file)
        text = _text(file)
        if note is not None and text is not None:
            before = edits.restored(note, text)
            if before is not None:
                edits.take_back(desk, note, before)
        elif note is not None:
            desk.forget(file)
        changes = _insertions(own, _text(file))
        if changes:
            edits.insert(desk, file, changes)
            changed.append(file)
    return changed


def _insertions(pieces: list[Piece], text: str | None) -> list[tuple[int, str]]:
    """The texts to put into one file. The first piece comes last, because each is put before those that are there."""
    changes: list[tuple[int, str]] = []
    for piece in reversed(pieces):
        if look_in(piece, text) != MISSING:
            continue
        before = text or ""
        if isinstance(piece, Entry):
            try:
                at, inserted = jsontext.insertion(before, piece.path, piece.value, append=piece.append)
            except jsontext.Fault as fault:
                raise _broken(piece.file, str(fault)) from None
        elif isinstance(piece, Block):
            newline = "\r\n" if "\r\n" in before else "\n"
            gap = newline if before else ""
            gap += newline if before and not before.endswith("\n") else ""
            at, inserted = len(before), gap + _block(piece, before)
        else:
            at, inserted = 0, piece.text
        text = before[:at] + inserted + before[at:]
        if isinstance(piece, Block):
            # A table that was written inline cannot be added to; the parser says so.
            _toml(piece.file, text)
        changes.append((at, inserted))
    return changes


def _block(piece: Block, text: str) -> str:
    return piece.text.replace("\n", "\r\n") if "\r\n" in text else piece.text


def _taken_out(desk: Desk, pieces: list[Piece]) -> list[str]:
    """Cut out what was put in, exactly; what was put in elsewhere, as far as it is known to be ours.

    The last file comes first, so that folders that were made for the first are empty when it goes.
    """
    changed: list[str] = []
    for file in reversed(dict.fromkeys(piece.file for piece in pieces)):
        text = _text(file)
        note = desk.note_of(file)
        if text is None:
            desk.forget(file)
            continue
        before = None if note is None else edits.restored(note, text)
        if note is not None and before is not None:
            edits.take_back(desk, note, before)
            changed.append(file)
            continue
        before = text
        for piece in pieces:
            if piece.file == file:
                before = _without(piece, before)
        if before != text:
            edits.take_back(desk, edits.Note(path=file, created=not before), before)
            changed.append(file)
        desk.forget(file)
    return changed


def _without(piece: Piece, text: str) -> str:
    """A text without a piece that is in it as we write it; what somebody changed is theirs."""
    if isinstance(piece, Whole):
        return "" if text == piece.text else text
    if isinstance(piece, Block):
        return text.replace(_block(piece, text), "", 1)
    if piece.value == 1 or not text.strip(jsontext.SPACE):
        # A version number is of no use to anybody else, and no harm.
        return text
    container: jsontext.Node | None = _json(piece.file, text)
    for key in piece.path if piece.append else piece.path[:-1]:
        container = container.member(key) if container is not None else None
    for item in container.items if container is not None else ():
        named = item.key is None if piece.append else item.key == piece.path[-1]
        if named and item.value.plain() == piece.value:
            assert container is not None
            return jsontext.without(text, container, item)
    return text


# -- telling ----------------------------------------------------------------------------------------------------------


def _rows(context: Context, pieces: list[Piece]) -> list[dict[str, str]]:
    return [{"file": _short(context, piece.file), "what": name_of(piece), "state": look(piece)} for piece in pieces]


def _short(context: Context, path: str) -> str:
    root = context.worktree() + os.sep
    return path.removeprefix(root)


def _listed(rows: list[dict[str, str]]) -> list[str]:
    return [f"{paint(row['state'].ljust(8), COLOURS[row['state']])}  {row['file']}: {row['what']}" for row in rows]


def _checked(context: Context, client: Client, pieces: list[Piece]) -> Result:
    rows = _rows(context, pieces)
    ill = [row for row in rows if row["state"] != IN_PLACE]
    data = {"client": client.name, "set_up": not ill, "pieces": rows}
    if not ill:
        return Result(data=data, lines=[*_listed(rows), f"{client.title} is set up."])
    kind = "is not set up" if all(row["state"] == MISSING for row in rows) else "is set up in part, or differently"
    again = f"tenure setup {client.name}" + (" --user" if context.get("user") else "")
    refusal = refuse("unhealthy", f"{client.title} {kind} here.", f"Run: {again}", client=client.name)
    return Result(data=data, lines=[*_listed(rows), refusal.message, refusal.next], next=[again], refusal=refusal)


def _told(context: Context, client: Client, pieces: list[Piece], changed: list[str]) -> Result:
    from shutil import which

    rows = _rows(context, pieces)
    files = [_short(context, file) for file in changed]
    data = {"client": client.name, "changed": files, "pieces": rows}
    if context.get("remove"):
        lines = [edits.undone(file, _short(context, file)) for file in changed] or [
            f"Nothing of Tenure was set up for {client.title} here."
        ]
        left = [row for row in rows if row["state"] == DIFFERS]
        warnings = [f"{row['file']}: {row['what']} is not as tenure writes it, and was left" for row in left]
        return Result(data=data, lines=lines, warnings=warnings)
    lines = [f"Wrote {file}" for file in files] or [f"{client.title} was set up already."]
    warnings = [
        f"{row['file']}: {row['what']} is there already and differs; it was left as it is"
        for row in rows
        if row["state"] == DIFFERS
    ]
    if which("tenure", path=context.environ.get("PATH")) is None:
        warnings.append("tenure is not on PATH: the client will not find it")
    lines += [client.after] if files else []
    check = f"tenure setup {client.name} --check" + (" --user" if context.get("user") else "")
    return Result(data=data, lines=lines, warnings=warnings, next=[check])
