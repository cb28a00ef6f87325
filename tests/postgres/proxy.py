"""A proxy between a client and its server that can stop forwarding, hang up, and lose the answer to a COMMIT."""

from __future__ import annotations

import contextlib
import select
import socket
import threading

# The statement's text with its end, as it is sent when a connection first commits, and told to be done: BEGIN says
# COMMITTED too.
COMMIT = b"COMMIT\0"


class Proxy:
    """Forwards from a port of its own to the server's. Used as a network that fails when told to."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        # While set, bytes are neither read nor written: a partition, of which neither side is told.
        self._flows = threading.Event()
        self._flows.set()
        # When set, the next COMMIT reaches the server, and its answer nobody; or not even the server.
        self.lose_answer = False
        self.lose_commit = False
        self.lost = 0
        # While set, nobody new is connected.
        self.refuse = False
        self._closed = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stop_forwarding(self) -> None:
        self._flows.clear()

    def heal(self) -> None:
        self._flows.set()

    def hang_up(self) -> None:
        """Cut every connection."""
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self._flows.set()
        self._listener.close()
        self.hang_up()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            self._flows.wait()
            if self.refuse:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                client.close()
                continue
            self._pairs.append((client, server))
            thread = threading.Thread(target=self._forward, args=(client, server), daemon=True)
            thread.start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        swallow = False
        with client, server, contextlib.suppress(OSError, ValueError):
            while not self._closed:
                ready, _, _ = select.select([client, server], [], [], 0.05)
                self._flows.wait()
                for end in ready:
                    data = end.recv(65536)
                    if not data:
                        return
                    if end is client and COMMIT in data and self.lose_commit:
                        self.lose_commit = False
                        self.lost += 1
                        return
                    if end is client and COMMIT in data and self.lose_answer:
                        self.lose_answer, swallow = False, True
                    # What was sent ahead of it may be answered first.
                    if end is server and swallow and COMMIT in data:
                        self.lost += 1
                        return
                    (server if end is client else client).sendall(data)
