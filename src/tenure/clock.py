"""Where time comes from. Only the store reads a clock; everything above it is handed `now_ms`.

A machine has two clocks worth knowing. The wall clock can be stepped by a person or by NTP and jumps over a suspend;
the monotonic clock counts only while the machine runs, from an origin that belongs to one boot. The store combines them
(store/anchor.py); this module only reads them.
"""

from __future__ import annotations

import sys
import time


class SystemClock:
    """The machine's clocks."""

    # Read once: a process does not outlive its boot, and every verb asks.
    _boot_id: str | None = None

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes."""
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        """Milliseconds this boot has been running, suspend not counted."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000

    def boot_id(self) -> str:
        """Which boot of which kernel this is."""
        if self._boot_id is None:
            try:
                with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                    self._boot_id = file.read().strip()
            except OSError:
                self._boot_id = _boot_id_without_proc()
        return self._boot_id


def _boot_id_without_proc() -> str:
    if sys.platform == "darwin":
        import ctypes

        buffer = ctypes.create_string_buffer(64)
        size = ctypes.c_size_t(len(buffer))
        if ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, 0) == 0:
            return buffer.value.decode()
    # Without any name for the boot, one lasting name: reboots then look like a monotonic clock that went back, which
    # the store treats the same way.
    return "unnamed-boot"


class ManualClock:
    """A clock that moves only when told to, for tests and the simulation."""

    def __init__(self, wall_ms: int = 1_767_225_600_000, mono_ms: int = 1_000_000, boot_id: str = "boot-1") -> None:
        self.wall = wall_ms
        self.mono = mono_ms
        self.boot = boot_id

    def wall_ms(self) -> int:
        return self.wall

    def mono_ms(self) -> int:
        return self.mono

    def boot_id(self) -> str:
        return self.boot

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.wall += round(seconds * 1000)
        self.mono += round(seconds * 1000)

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: the wall clock goes on, the monotonic clock does not."""
        self.wall += round(seconds * 1000)

    def step(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.wall += round(seconds * 1000)

    def reboot(self, boot_id: str, down_seconds: float = 60.0) -> None:
        """The machine restarts under a new boot id; its monotonic clock begins again."""
        self.wall += round(down_seconds * 1000)
        self.mono = 5_000
        self.boot = boot_id
