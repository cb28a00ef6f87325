"""Files of others, changed so that the change can be taken back exactly.

Every change is an insertion of text into a file, or a file that was not there. What was inserted is noted under the
user's state directory, so that the way back is to cut out exactly that, whatever else was changed in the file since.
Files are replaced in one step: whoever reads one sees it before or after. Links to files stay links; modes stay.
"""

from __future__ import annotations

import hashlib
import json
import os

from tenure.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


# A text is looked for in this many places. More equal ones than hooks of ours would be somebody's joke.
PLACES_TRIED = 4


class Note(Record):
    """What was done to a file. `made` are the folders that were made for it, outermost first."""

    path: str
    created: bool = False
    inserted: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


class Desk:
    """Where the notes are kept."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        home = environ.get("XDG_STATE_HOME") or os.path.join(home_of(environ), ".local", "state")
        self.folder = os.path.join(home, "tenure", "setup")

    def _place(self, path: str) -> str:
        name = hashlib.sha256(os.path.realpath(path).encode(errors="surrogateescape")).hexdigest()[:24]
        return os.path.join(self.folder, f"{name}.json")

    def note_of(self, path: str) -> Note | None:
        """The note of a file, if it was changed from here."""
        try:
            with open(self._place(path), encoding="utf-8") as file:
                kept: dict[str, Any] = json.load(file)
            return Note(
                path=str(kept["path"]),
                created=bool(kept["created"]),
                inserted=tuple(map(str, kept["inserted"])),
                made=tuple(map(str, kept["made"])),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, note: Note) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        write(self._place(note.path), json.dumps(note.as_dict(), ensure_ascii=True), mode=0o600)

    def forget(self, path: str) -> None:
        if os.path.exists(self._place(path)):
            os.unlink(self._place(path))


def home_of(environ: Mapping[str, str]) -> str:
    """The user's home."""
    return environ.get("HOME") or os.path.expanduser("~")


def read(path: str) -> str | None:
    """A file's text with its line ends as they are, or None when there is no file."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8")
    except FileNotFoundError:
        return None


def write(path: str, text: str, *, mode: int | None = None) -> None:
    """Put a file's new text in its place in one step. A file that is there keeps its mode, a link its target."""
    path = os.path.realpath(path)
    if mode is None:
        mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o644
    temporary = f"{path}.tenure-{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def insert(desk: Desk, path: str, changes: list[tuple[int, str]]) -> None:
    """Put texts into a file, one after the other, each at a place in the text so far; note how to take them out."""
    before = read(path)
    note = desk.note_of(path) or Note(path=path, created=before is None)
    text = before or ""
    for at, piece in changes:
        text = text[:at] + piece + text[at:]
    made = _make_folders(os.path.dirname(path))
    # The note is kept first: a note of what did not happen is harmless, the reverse is not.
    pieces = tuple(piece for _, piece in changes)
    desk.keep(note.replace(inserted=note.inserted + pieces, made=note.made + made))
    write(path, text)


def restored(note: Note, text: str) -> str | None:
    """The text without what was inserted, or None where that cannot be found any more."""
    return _cut(list(note.inserted), text)


def _cut(pieces: list[str], text: str) -> str | None:
    """Cut the pieces out, the last first. One may be equal to a part of another: then one choice leads to the end."""
    if not pieces:
        return text
    at, tried = text.find(pieces[-1]), 0
    while at >= 0 and tried < PLACES_TRIED:
        before = _cut(pieces[:-1], text[:at] + text[at + len(pieces[-1]) :])
        if before is not None:
            return before
        at, tried = text.find(pieces[-1], at + 1), tried + 1
    return None


def take_back(desk: Desk, note: Note, text: str) -> None:
    """Write a file without what was put into it; a file and folders that were made for it go with it."""
    if note.created and not text.strip():
        os.unlink(note.path)
        for folder in reversed(note.made):
            try:
                os.rmdir(folder)
            except OSError:
                # Something else is in it by now.
                break
    else:
        write(note.path, text)
    desk.forget(note.path)


def undone(path: str, shown: str = "") -> str:
    """What became of a file that was taken back, in words."""
    return f"{'Restored' if os.path.lexists(path) else 'Removed'} {shown or path}"


def _make_folders(folder: str) -> tuple[str, ...]:
    missing: list[str] = []
    while folder and not os.path.isdir(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    for path in missing:
        os.mkdir(path)
    return tuple(missing)
