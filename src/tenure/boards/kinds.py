"""Every kind of board, and how one is opened. Each is a file of this package: a class that has the port's methods."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.boards.port import BoardApi
    from tenure.core.model import Board

# kind: module and class. Imported when one is opened, so that a server without a board loads no HTTP client.
# engine/boards.py has the same kinds, for the verb that connects.
OPENED_BY = {"kanboard": "tenure.boards.kanboard:Kanboard"}


def open_kind(kind: str, url: str, token: str, place: str, config: Mapping[str, Any]) -> BoardApi:
    """A board by its kind. Nothing is asked of it yet."""
    module, _, name = OPENED_BY[kind].partition(":")
    made: BoardApi = getattr(importlib.import_module(module), name)(url, token, place, config)
    return made


def open_board(board: Board, token: str = "") -> BoardApi:
    """The board behind a row; a token of the environment goes before the one that was kept."""
    return open_kind(board.kind, board.url, token or board.token, board.place, json.loads(board.config))
