"""Who may talk to the server.

Without tokens only this machine is served and, where the kernel tells whose a connection is, only the server's own
user: the peer must be on the loopback, and Host and Origin must name the loopback too, or a web page elsewhere could
reach us through its visitor's browser. With tokens every request needs one, and a token that belongs to an agent speaks
for that agent only.

A browser shows its token once and then comes with a session (dashboard/sessions.py). A session reads everywhere and
writes through the dashboard alone, where the page has to prove that the write is its own. The page itself, which holds
nothing but its own text, and the place where a token becomes a session need no token.
"""

from __future__ import annotations

import hmac
import json
import time
from typing import TYPE_CHECKING, Any

from tenure.core.errors import Refused, refuse
from tenure.surfaces.dashboard import sessions
from tenure.surfaces.http import answers
from tenure.surfaces.http.peers import OWNER, is_stranger

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]", "::1")
# What a token file names for a token that speaks for every agent: an operator's.
ANYONE = "*"
# Where a board tells that something happened on it.
WEBHOOK = "/boards/webhook"
# Set in the scope of a request whose failure was logged and answered.
FAILED = "tenure.failed"
# The connection of a request, where the server lets us see it: a reader that takes nothing can only be cut off.
TRANSPORT = "tenure.transport"
# The headers of a request by name, made once.
HEADERS = "tenure.headers"
# The tokens that this server knows, for the place where one becomes a session.
TOKENS = "tenure.tokens"
# What a browser may fetch before it has shown a token.
OPEN_PATHS = ("/", "/dashboard/session")
OPEN_PREFIX = "/dashboard/static/"
# Where a session may write.
SESSION_WRITES = "/dashboard/"


class Tokens:
    """The tokens of a file: a JSON object from token to the agent it speaks for (`*`: any, an operator)."""

    def __init__(self, agents: dict[str, str]) -> None:
        self._agents = agents

    @classmethod
    def read(cls, path: str) -> Tokens | Refused:
        """Read a token file."""
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError) as error:
            return refuse("invalid_settings", f"The token file {path} cannot be read: {error}.", setting="tokens")
        if not isinstance(found, dict) or not all(
            isinstance(agent, str) and len(key) >= 16 for key, agent in found.items()
        ):
            message = (
                "A token file is an object from tokens (16 characters or more) to agent ids, or * for an operator."
            )
            return refuse("invalid_settings", message, setting="tokens")
        return cls(found)

    def agent_of_session(self, session: str) -> str | None:
        """Whose session this is."""
        return sessions.agent_of(session, self._agents, int(time.time()))

    def agent_of(self, token: str) -> str | None:
        """Whose token this is, compared in constant time."""
        found = None
        for known, agent in self._agents.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                found = agent
        return found


class Guard:
    """The outermost layer: lets nobody in who may not be."""

    def __init__(self, app: ASGIApp, tokens: Tokens | None) -> None:
        self.app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[TRANSPORT] = getattr(getattr(send, "__self__", None), "transport", None)
            scope[TOKENS] = self._tokens
            scope[HEADERS] = dict(scope["headers"])
            refusal = self._refusal(scope)
            if refusal is not None:
                response = answers.problem(refusal)
                if refusal.code == "unauthorized":
                    response.headers["WWW-Authenticate"] = "Bearer"
                await response(scope, receive, send)
                return
        try:
            await self.app(scope, receive, send)
        except Exception:
            # Starlette raises again what it has logged and answered; uvicorn would log it twice and hang up.
            if FAILED not in scope:
                raise

    def _refusal(self, scope: Scope) -> Refused | None:
        if scope["path"] == WEBHOOK and scope["method"] == "POST":
            # A board proves itself with a token of its own, which the route checks before anything else.
            return None
        headers: dict[bytes, bytes] = scope[HEADERS]
        if self._tokens is None:
            return _beyond_this_machine(scope.get("client"), headers) or _another_user(scope)
        path: str = scope["path"]
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return None
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        agent = self._tokens.agent_of(token.strip()) if scheme.lower() == "bearer" else None
        if agent is None and b"authorization" not in headers:
            agent = self._session_agent(scope, headers)
        if agent is None:
            return refuse("unauthorized", "A token is needed.")
        # The surface checks that what a request says about its agent is true of its token.
        scope.setdefault("state", {})["credential"] = agent
        return None

    def _session_agent(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """Whom a request's session speaks for; nobody, for a write anywhere but through the dashboard."""
        session = sessions.cookie_of(headers)
        if self._tokens is None or session is None:
            return None
        if scope["method"] not in ("GET", "HEAD") and not scope["path"].startswith(SESSION_WRITES):
            return None
        return self._tokens.agent_of_session(session)


def _beyond_this_machine(client: Any, headers: dict[bytes, bytes]) -> Refused | None:
    """The peer, the name it called us by and, from a browser, the page it came from must all be this machine's."""
    peer = client[0] if client else ""
    origin = headers.get(b"origin")
    if (
        _is_loopback(headers.get(b"host", b""))
        and (peer.startswith("127.") or peer in ("::1", ""))
        and (origin is None or _is_loopback(origin.partition(b"://")[2]))
    ):
        return None
    return refuse(
        "not_permitted", "Without tokens only this machine is served.", "Start the server with --tokens FILE."
    )


def _another_user(scope: Scope) -> Refused | None:
    """Without tokens, whoever may run this server's commands may use it: its own user, and no other."""
    if not is_stranger(scope.get("state", {}).get(OWNER)):
        return None
    message = "Without tokens only the user who started the server is served."
    return refuse("not_permitted", message, "Start the server with --tokens FILE, and use a token.")


def _is_loopback(host: bytes) -> bool:
    text = host.decode("latin-1").lower()
    name, _, port = text.rpartition(":")
    return (name if port.isdigit() and name else text) in LOOPBACK_HOSTS
