"""Whose process is at the other end of a loopback connection.

The kernel knows the owner of every local socket, and tells it for one connection through its socket diagnostics. It is
asked once for each connection, when it is made. Where it cannot be asked (another system, a sandbox without netlink)
the owner is unknown, and the loopback alone has to do.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

# Whose connections are served without a token, as of the process's start. The superuser could act as anyone anyway.
_SERVED = (0, os.geteuid())
# The key under which a request's state carries the owner of its connection.
OWNER = "peer_uid"

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_ESTABLISHED = 1 << 1
_ANY_COOKIE = b"\xff" * 8
# nlmsghdr, then inet_diag_msg up to its uid: family, state, timer, retrans; ports, addresses, interface, cookie;
# expires, queues.
_UID_AT = 16 + 4 + 48 + 12


def owner_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user who owns the client's end of a connection on this machine, or None where nobody can say."""
    try:
        wanted = _question(client, server)
        with socket.socket(getattr(socket, "AF_NETLINK", -1), socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.send(wanted)
            answer = kernel.recv(4096)
    except (OSError, ValueError):
        return None
    kind = struct.unpack_from("=H", answer, 4)[0] if len(answer) >= _UID_AT + 4 else 0
    return int(struct.unpack_from("=I", answer, _UID_AT)[0]) if kind == _SOCK_DIAG_BY_FAMILY else None


def _question(client: tuple[str, int], server: tuple[str, int]) -> bytes:
    """The socket whose source is the client and whose destination is the server."""
    source, target = ipaddress.ip_address(client[0]), ipaddress.ip_address(server[0])
    family = socket.AF_INET6 if source.version == 6 else socket.AF_INET
    ports = struct.pack("!HH", client[1], server[1])
    which = ports + source.packed.ljust(16, b"\0") + target.packed.ljust(16, b"\0") + b"\0\0\0\0" + _ANY_COOKIE
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ESTABLISHED) + which
    return struct.pack("=IHHII", 16 + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0) + body


def is_stranger(uid: int | None) -> bool:
    """Whether a connection is known to be another user's."""
    return uid is not None and uid not in _SERVED


class PeerProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which puts the owner of each loopback connection into the state of its requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        client, server = self.client, self.server
        if client is not None and server is not None and server[1] is not None and _is_loopback(client[0]):
            state: dict[str, Any] = dict(self.app_state)
            state[OWNER] = owner_of(client, (server[0], server[1]))
            self.app_state = state


def _is_loopback(host: str) -> bool:
    return host == "::1" or host.startswith("127.")
