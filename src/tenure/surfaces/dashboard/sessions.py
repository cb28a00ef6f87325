"""Sessions: a token entered once becomes a cookie that the page's scripts cannot read.

A session is not kept anywhere: it is an expiry and a random number, signed with the token. It outlives a restart of the
server, ends with its time, and ends at once when its token is taken out of the token file.

A cookie is sent by the browser whoever causes the request, so a write that comes with one must also carry a header that
no other site can make a browser send, and must come from a page of this very server. SameSite=Strict says the same once
more.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

COOKIE = "tenure_session"
LASTS_S = 12 * 3600
# Sent by the page with every write.
PROOF = b"x-tenure-dashboard"


def issue(token: str, now_s: int) -> str:
    """A session for whoever showed this token."""
    body = f"{now_s + LASTS_S}.{secrets.token_urlsafe(18)}"
    return f"{body}.{_signature(token, body)}"


def agent_of(session: str, tokens: Mapping[str, str], now_s: int) -> str | None:
    """Whose session this is, or None: unknown, over, or of a token that is not there any more."""
    body, _, signature = session.rpartition(".")
    until = body.partition(".")[0]
    if not (until.isascii() and until.isdigit() and len(until) < 12) or int(until) <= now_s:
        return None
    found = None
    for token, agent in tokens.items():
        if hmac.compare_digest(_signature(token, body).encode(), signature.encode("utf-8", "replace")):
            found = agent
    return found


def _signature(token: str, body: str) -> str:
    return hmac.new(token.encode(), f"tenure-session.{body}".encode(), hashlib.sha256).hexdigest()


def cookie_of(headers: Mapping[bytes, bytes]) -> str | None:
    """The session that a request came with."""
    sent = headers.get(b"cookie")
    if sent is None or len(sent) > 8192:
        return None
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(sent.decode("latin-1"))
    except CookieError:
        return None
    return jar[COOKIE].value if COOKIE in jar else None


def set_cookie(session: str, *, secure: bool) -> str:
    """The header that hands a session to the browser; an empty session takes it back."""
    lasts = LASTS_S if session else 0
    return f"{COOKIE}={session}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def from_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a write comes from a page of this very server: the header that only its scripts send, and the origin."""
    if PROOF not in headers:
        return False
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    return origin is None or origin.partition(b"://")[2].lower() == host.lower()
