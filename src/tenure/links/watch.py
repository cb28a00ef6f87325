"""Watching processes: the kernel says when one exits.

A pidfd becomes readable at the very moment its process ends, whoever its parent is. Where the kernel has none (before
Linux 5.3, other systems, some containers), the watcher has nothing to offer and whoever uses it asks
`identity.state` again and again instead; `Watcher.state` does that by itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING

from tenure.links import identity as processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tenure.links.identity import ProcessIdentity, State


def exit_descriptor(pid: int) -> int | None:
    """A descriptor that becomes readable when the process exits; None where the kernel has no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class Watcher:
    """Keeps an eye on a set of processes and calls `on_exit`, from a thread of its own, when one of them ends."""

    def __init__(self, on_exit: Callable[[], None]) -> None:
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._descriptors: dict[ProcessIdentity, int] = {}
        # Those whose end was seen, until they are no longer asked for.
        self._ended: set[ProcessIdentity] = set()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._thread: threading.Thread | None = None
        self._closed = False

    def keep(self, wanted: Iterable[ProcessIdentity]) -> None:
        """Watch exactly these from now on."""
        wanted = set(wanted)
        with self._lock:
            for dropped in self._descriptors.keys() - wanted:
                os.close(self._descriptors.pop(dropped))
            self._ended &= wanted
            new = wanted - self._descriptors.keys() - self._ended
        for one in new:
            self._open(one)
        if new:
            self._start()
            self._wake()

    def state(self, one: ProcessIdentity) -> State:
        """What is known of a process; asks the kernel unless its descriptor is open and silent."""
        with self._lock:
            if one in self._ended:
                return "gone"
            if one in self._descriptors:
                return "alive"
        return processes.state(one)

    def close(self) -> None:
        """Watch nothing any more."""
        self._closed = True
        self._wake()
        if self._thread is not None:
            self._thread.join()
        for descriptor in (*self._descriptors.values(), self._wake_in, self._wake_out):
            os.close(descriptor)
        self._descriptors.clear()

    def _open(self, one: ProcessIdentity) -> None:
        descriptor = exit_descriptor(one.pid)
        if descriptor is None:
            return
        # Asked after opening: the descriptor is then that process's, and not one that took its number in between.
        if processes.state(one) != "alive":
            os.close(descriptor)
            return
        with self._lock:
            self._descriptors[one] = descriptor

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tenure-watcher", daemon=True)
            self._thread.start()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_out, b".")

    def _run(self) -> None:
        while not self._closed:
            poll = select.poll()
            poll.register(self._wake_in, select.POLLIN)
            with self._lock:
                by_descriptor = {descriptor: one for one, descriptor in self._descriptors.items()}
                for descriptor in by_descriptor:
                    poll.register(descriptor, select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._wake_in in ready:
                os.read(self._wake_in, 4096)
            if self._note([by_descriptor[one] for one in ready if one in by_descriptor]):
                self._on_exit()

    def _note(self, ended: list[ProcessIdentity]) -> bool:
        """Write down who ended, unless nobody asks for it any more."""
        noted = False
        with self._lock:
            for one in ended:
                descriptor = self._descriptors.pop(one, None)
                if descriptor is not None:
                    os.close(descriptor)
                    self._ended.add(one)
                    noted = True
        return noted
