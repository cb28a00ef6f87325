"""`tenure init`, `tenure setup`, `tenure tour` and `tenure demo`."""

from __future__ import annotations

import os

from tenure.core.errors import refuse
from tenure.surfaces.cli.context import Stop
from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context

TRY = ('tenure task add "My first task"', "tenure agent join --name me", "tenure next")


def init(context: Context) -> Result:
    """Make the store, or say that it is there. Changes no other file."""
    from tenure.store.locate import DATABASE, is_address, store_location

    path = store_location(context.get("store"), context.environ, context.folder)
    if path is None:
        path = os.path.join(os.path.abspath(context.folder), ".tenure", DATABASE)
        context.values["store"] = path
    if is_address(path):
        return _init_remote(context)
    existed = os.path.exists(path)
    context.open(create=True)
    lines = [f"{'There is already a store' if existed else 'Made a store'} at {path}"]
    lines.append("It is shared by every worktree of this repository." if f"{os.sep}.git{os.sep}" in path else "")
    lines += ["Try next:", *(f"  {command}" for command in TRY)]
    return Result(data={"store": path, "created": not existed}, lines=[line for line in lines if line], next=TRY)


def setup(context: Context) -> Result:
    """Set up a coding agent or git, look whether it is, or take it out."""
    from tenure.surfaces.cli.clients import CLIENTS
    from tenure.surfaces.cli.spec import near

    name = str(context.get("client")).lower().replace("_", "-")
    if context.get("check") and context.get("remove"):
        raise Stop(refuse("usage", "setup: --check and --remove do not go together"))
    if name == "git":
        from tenure.surfaces.cli.githooks import setup_git

        return setup_git(context)
    if name not in CLIENTS:
        meant = near(name, [*CLIENTS, "git"])
        message = f"setup: there is no client {name!r}" + (f"; did you mean {meant}?" if meant else "")
        raise Stop(refuse("usage", message, f"Use one of: {', '.join([*CLIENTS, 'git'])}."))
    if context.get("server"):
        raise Stop(refuse("usage", "setup: --server is for git"))
    from tenure.surfaces.cli.wiring import wire

    return wire(context, CLIENTS[name])


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
    lines += ["Try next, with TENURE_STORE set to its address, or --store each time:"]
    lines += [f"  {command}" for command in TRY]
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


def demo(context: Context) -> Result:
    """Run the demo, told as it happens."""
    from shutil import which

    from tenure.demo import Failed, main
    from tenure.store.locate import store_location

    if which("git") is None:
        raise Stop(refuse("usage", "The demo shows real commits, and git is not installed.", "Install git first."))
    as_json = context.get("json") or context.get("format") == "json"
    store = None
    if context.get("store"):
        # One that cannot be opened is refused here, as by every command.
        context.open(create=False)
        store = store_location(context.get("store"), {}, context.folder)
    try:
        timings = main(store, quiet=bool(as_json))
    except Failed as failed:
        raise Stop(refuse("internal_error", str(failed), "Run it again; if it stays so, report it.")) from failed
    return Result(data=timings)
