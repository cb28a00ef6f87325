"""`tenure up`."""

from __future__ import annotations

import os

from tenure.core.errors import refuse
from tenure.surfaces.cli.context import Stop, must
from tenure.surfaces.cli.output import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenure.surfaces.cli.context import Context

PORT = 7420
DEFAULT_URL = f"http://127.0.0.1:{PORT}"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def up(context: Context) -> Result:
    """Serve until told to stop. The store is made if there is none."""
    from tenure.surfaces.http.credentials import Tokens
    from tenure.surfaces.http.server import serve

    host, port = context.get("host", LOOPBACK[0]), context.get("port", PORT)
    tokens = must(Tokens.read(context.get("tokens"))) if context.get("tokens") else None
    if tokens is None and host not in LOOPBACK:
        message = f"Listening on {host} without tokens would let anyone in."
        raise Stop(refuse("not_permitted", message, "Name a token file: --tokens FILE, or listen on 127.0.0.1."))
    store = context.open(create=True)
    context.release()
    try:
        serve(store, host, port, tokens, lambda url: _greet(url, store.path), context.get("tools", "agent"))
    except OSError as error:
        message = f"Cannot listen on {host} port {port}: {error.strerror}."
        raise Stop(refuse("cannot_listen", message, "Choose another port with --port.")) from error
    return Result(data=None)


def _greet(url: str, path: str) -> None:
    """Where it listens and how to try it."""
    from shlex import quote

    post = f"curl -X POST -H 'Content-Type: application/json' {url}"
    print(f"Tenure listens at {url}, process {os.getpid()}, store {path}")
    print(f"The dashboard is {url}/, agents connect over MCP at {url}/mcp, {url}/docs describes the API.")
    print("Try it:")
    print(f"""  {post}/tasks -d '{{"task_summary": "Say hello"}}'""")
    print(f"""  {post}/lease -d '{{"worker_id": "worker.1"}}'""")
    print(f"  tenure demo --store {quote(path)}")
    print("Ctrl-C stops.", flush=True)
