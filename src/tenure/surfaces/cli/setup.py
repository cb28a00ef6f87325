"""`tenure init` and `tenure tour`."""

from __future__ import annotations

import os

from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context

TRY = ('tenure task add "My first task"', "tenure agent join --name me", "tenure next")


def init(context: Context) -> Result:
    """Make the store, or say that it is there. Changes no other file."""
    from tenure.store.locate import DATABASE, store_location

    path = store_location(context.get("store"), context.environ, context.folder)
    if path is None:
        path = os.path.join(os.path.abspath(context.folder), ".tenure", DATABASE)
        context.values["store"] = path
    if "://" in path:
        return _init_remote(context)
    existed = os.path.exists(path)
    context.open(create=True)
    lines = [f"{'There is already a store' if existed else 'Made a store'} at {path}"]
    lines.append("It is shared by every worktree of this repository." if f"{os.sep}.git{os.sep}" in path else "")
    lines += ["Try next:", *(f"  {command}" for command in TRY)]
    return Result(data={"store": path, "created": not existed}, lines=[line for line in lines if line], next=TRY)


def _init_remote(context: Context) -> Result:
    """Make the tables in a database that exists."""
    from tenure.app import open_store
    from tenure.core.errors import Refused

    known = open_store(context.get("store"), environ=context.environ, start=context.folder, create=False)
    existed = not isinstance(known, Refused)
    if not isinstance(known, Refused):
        known.close()
    path = context.open(create=True).path
    lines = [f"{'There is already a store' if existed else 'Made a store'} at {path}"]
    lines += ["Try next:", *(f"  {command}" for command in TRY)]
    return Result(data={"store": path, "created": not existed}, lines=lines, next=TRY)


def tour(context: Context) -> Result:
    """Run the tour."""
    from contextlib import redirect_stdout
    from io import StringIO

    from tenure.tour import main

    told = StringIO()
    with redirect_stdout(told):
        main()
    return Result(data={"text": told.getvalue()}, lines=told.getvalue().splitlines())
