"""The page and its files. They are served as they lie in `static/`: no build step, nothing from elsewhere."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

STATIC = Path(__file__).with_name("static")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Scripts and styles come from this server's own files only; nothing inline is run, whoever managed to write it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    # Asked for again at each visit, and answered with 304 while nothing has changed.
    "Cache-Control": "no-cache",
}


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Every file by name: content, type, tag. Only what is listed here is served, so no path leads out."""
    found = {}
    for path in STATIC.iterdir():
        if path.suffix in TYPES:
            content = path.read_bytes()
            found[path.name] = (content, TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


async def index(request: Request) -> Response:
    """The page."""
    return _file(request, "index.html")


async def static(request: Request) -> Response:
    """One of its files."""
    return _file(request, request.path_params["name"])


def _file(request: Request, name: str) -> Response:
    found = _files().get(name)
    if found is None:
        raise HTTPException(404, "No such file")
    content, media_type, tag = found
    headers = {**HEADERS, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
