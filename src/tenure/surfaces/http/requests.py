"""Reading requests: bodies within limits, numbers, the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect

from tenure.core.errors import Refused, refuse
from tenure.surfaces.http.credentials import ANYONE, HEADERS

if TYPE_CHECKING:
    from starlette.requests import Request

    from tenure.surfaces.http.node import Node

T = TypeVar("T")

# Where a request's scope has the node that serves it.
NODE = "tenure.node"
BODY_MAX = 16 * 1024 * 1024
JSON_TYPES = ("application/json", "application/problem+json")


def node_of(request: Request) -> Node:
    """The node that serves this request."""
    node: Node = request.scope[NODE]
    return node


def header(request: Request, name: bytes) -> str | None:
    """A header by its lower-case name; the last of several."""
    value: bytes | None = request.scope[HEADERS].get(name)
    return None if value is None else value.decode("latin-1")


def speaker_of(request: Request) -> str | None:
    """The agent that the request's token speaks for: None where it may speak for any."""
    credential: str | None = request.scope.get("state", {}).get("credential")
    return None if credential == ANYONE else credential


def refusal_to_speak(request: Request, agent_id: object) -> Refused | None:
    """Why this request may not speak for that agent, or None."""
    speaker = speaker_of(request)
    if speaker is None or agent_id == speaker:
        return None
    message = f"This token speaks for {speaker}, not for {ascii(agent_id)[:80]}."
    return refuse("not_permitted", message, "Use a token of that agent, or an operator's.", agent_id=speaker)


async def raw_body(request: Request) -> bytes | Refused:
    """The body, if it is JSON by its type and not too large."""
    content_type = header(request, b"content-type")
    if content_type is None:
        content_type = "application/json"
    if content_type != "application/json":
        content_type = content_type.partition(";")[0].strip().lower()
    if content_type not in JSON_TYPES and not content_type.endswith("+json"):
        message = f"The body must be application/json, not {ascii(content_type)[:80]}."
        return refuse("unsupported_media_type", message)
    chunks, size, more = [], 0, True
    while more:
        received = await request.receive()
        if received["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = received.get("body", b"")
        more = received.get("more_body", False)
        size += len(chunk)
        if size > BODY_MAX:
            return refuse("body_too_large", f"The body is longer than {BODY_MAX} bytes.", limit=BODY_MAX)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def body_of(request: Request, kind: type[T], *, empty: bool = False) -> T | Refused:
    """The body as a type; `empty` allows none at all."""
    raw = await raw_body(request)
    if isinstance(raw, Refused):
        return raw
    if empty and not raw.strip():
        return kind()
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return refuse("invalid_argument", f"The body is not valid: {_told(error)}.", argument="body")
    except UnicodeDecodeError:
        return refuse("invalid_argument", "The body is not valid UTF-8.", argument="body")


async def json_of(request: Request) -> Any:
    """The body as plain JSON, for what the verb checks itself; a Refused when it is none."""
    return await body_of(request, object)


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type, made once."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    return decoder


def _told(error: Exception) -> str:
    return ascii(str(error))[1:-1][:300] or "nested too deeply"


def whole(text: str | None) -> int | None:
    """A whole number of a query or a header; None when absent. Nonsense becomes -1, which every check refuses."""
    if text is None or text == "":
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else -1


def page(request: Request, default: int = 100) -> dict[str, Any]:
    """The arguments of a paged list."""
    after, limit = whole(request.query_params.get("after")), whole(request.query_params.get("limit"))
    return {"after": 0 if after is None else after, "limit": default if limit is None else limit}
