"""A program on a terminal of its own, between the user's terminal and us, so that the end of its output can be kept.

The user's terminal is set raw: every key goes through unchanged, and the program's own terminal turns Ctrl-C and Ctrl-Z
into signals, for the program and not for us. Size and modes are copied.

Between us and the program stands a small process, the leader of the terminal's session. Without it the program could
not be stopped with Ctrl-Z: the kernel does not stop a process whose parent is outside its session, because nobody there
could start it again. When the program stops, the leader tells us, we put the user's terminal back and stop ourselves,
and the shell takes over; when the shell continues us, we continue the program.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import selectors
import signal
import termios
import tty
from typing import TYPE_CHECKING

from tenure.links.watch import exit_descriptor
from tenure.surfaces.cli.run_child import CHUNK, Child, Ending, Signals, write_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

    from tenure.surfaces.cli.run_output import Tail

KEYBOARD, SCREEN = 0, 1
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class OnTerminal(Child):
    """A program on a terminal of its own."""

    def __init__(
        self, command: Sequence[str], signals: Signals, tail: Tail, *, folder: str, environ: Mapping[str, str]
    ) -> None:
        super().__init__(signals, tail)
        self._modes: list[Any] = termios.tcgetattr(KEYBOARD)
        self._master, slave = os.openpty()
        termios.tcsetattr(slave, termios.TCSANOW, self._modes)
        self._copy_size()
        told_in, told_out = os.pipe()
        go_in, self._go = os.pipe()
        self._leader = os.fork()
        if self._leader == 0:
            _lead(command, folder, environ, slave, told_out, go_in)
        for descriptor in (slave, told_out, go_in):
            os.close(descriptor)
        self._told = told_in
        self._ended: Ending | None = None
        self._to_program = b""
        self.pid = int(self._read_word().split()[1])
        self._lost_leader = exit_descriptor(self.pid)
        self._selector.register(self._told, selectors.EVENT_READ, self._hear)
        os.set_blocking(self._master, False)
        self._selector.register(self._master, selectors.EVENT_READ, self._converse)
        self._selector.register(KEYBOARD, selectors.EVENT_READ, self._typed)

    def release(self) -> None:
        self._raw()
        os.close(self._go)

    def say(self, text: str) -> None:
        # In raw mode a new line does not return to the left by itself.
        write_all(2, f"\r\ntenure: {text}\r\n".encode())

    def resized(self) -> None:
        self._copy_size()

    def close(self) -> None:
        self._restore()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._leader, 0)
        for descriptor in (self._master, self._told, self._lost_leader):
            if descriptor is not None:
                os.close(descriptor)
        super().close()

    def _raw(self) -> None:
        # At once: Python's own choice would throw away what was typed ahead.
        tty.setraw(KEYBOARD, termios.TCSANOW)

    def _restore(self) -> None:
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(KEYBOARD, termios.TCSADRAIN, self._modes)

    def _copy_size(self) -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(SCREEN, termios.TIOCGWINSZ, b"\0" * 8)
            # The kernel tells the program of it, as it told us.
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _ending(self) -> Ending | None:
        if self._ended is not None:
            self._drain(lambda: self._master in self._selector.get_map())
        return self._ended

    def _read_word(self) -> str:
        """One line of the leader's; empty when it is gone."""
        word = b""
        while not word.endswith(b"\n"):
            byte = os.read(self._told, 1)
            if not byte:
                return ""
            word += byte
        return word.decode()

    def _hear(self, _: int) -> None:
        """What the leader tells of the program."""
        kind, number = [*self._read_word().split(), "", ""][:2]
        if kind == "stopped":
            self._suspend()
            return
        self._selector.unregister(self._told)
        if kind == "exited":
            self._ended = Ending(status=int(number))
        elif kind == "killed":
            self._ended = Ending(signal=int(number))
        else:
            # The leader itself was killed, and its terminal with it: the program was hung up.
            self._await_unled()

    def _await_unled(self) -> None:
        """Nobody will tell us how the program ends any more; its descriptor still tells us when."""
        if self._lost_leader is None:
            self._ended = Ending()
            return

        def gone(_: int) -> None:
            self._ended = Ending()

        self._selector.register(self._lost_leader, selectors.EVENT_READ, gone)

    def _suspend(self) -> None:
        """The program was stopped: stop as well, so that the user's shell comes back."""
        self._restore()
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        # Here we are continued; or never were stopped, because no shell could continue us.
        self._raw()
        self._copy_size()
        self.signal(signal.SIGCONT)

    def _typed(self, _: int) -> None:
        try:
            data = os.read(KEYBOARD, CHUNK)
        except OSError:
            data = b""
        if not data:
            # The user's terminal is gone. SIGHUP tells us the rest.
            self._selector.unregister(KEYBOARD)
            return
        self._to_program += data
        self._selector.modify(self._master, selectors.EVENT_READ | selectors.EVENT_WRITE, self._converse)

    def _converse(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            with contextlib.suppress(BlockingIOError):
                self._to_program = self._to_program[os.write(self._master, self._to_program) :]
            if not self._to_program:
                self._selector.modify(self._master, selectors.EVENT_READ, self._converse)
        if mask & selectors.EVENT_READ:
            try:
                data = os.read(self._master, CHUNK)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                data = b""
            if not data:
                self._selector.unregister(self._master)
                return
            self._tail.add(data)
            write_all(SCREEN, data)


def _lead(command: Sequence[str], folder: str, environ: Mapping[str, str], slave: int, told: int, go: int) -> NoReturn:
    """The leader of the terminal's session: starts the program, tells of its stops and its end, and ends with it."""
    try:
        # Above all the other side of its own terminal and of the gate: whoever holds those open, never sees them close.
        _close_all_but(slave, told, go)
        signal.set_wakeup_fd(-1)
        for number in (*Signals.NUMBERS, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        pid = os.fork()
        if pid == 0:
            _become(command, folder, environ, slave, go)
        os.setpgid(pid, pid)
        os.tcsetpgrp(slave, pid)
        for descriptor in (go, 0, 1, 2):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        # The leader keeps its terminal open: the program's last output must not be lost while it is being told of.
        os.write(told, b"started %d\n" % pid)
        while True:
            _, status = os.waitpid(pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                os.write(told, b"stopped %d\n" % os.WSTOPSIG(status))
            elif os.WIFSIGNALED(status):
                os.write(told, b"killed %d\n" % os.WTERMSIG(status))
                break
            else:
                os.write(told, b"exited %d\n" % os.WEXITSTATUS(status))
                break
    finally:
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    start = 3
    for descriptor in (*sorted(kept), 1 << 16):
        os.closerange(start, descriptor)
        start = descriptor + 1


def _become(command: Sequence[str], folder: str, environ: Mapping[str, str], slave: int, go: int) -> NoReturn:
    """In the program's own process: wait until it is linked and in the foreground, then be the program."""
    status = NOT_EXECUTABLE
    try:
        os.setpgid(0, 0)
        # Ends when the gate is closed: on purpose, or because the wrapper died, and then the terminal with it.
        os.read(go, 1)
        for target in (0, 1, 2):
            os.dup2(slave, target)
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.chdir(folder)
        os.execvpe(command[0], list(command), dict(environ))
    except FileNotFoundError:
        status = NOT_FOUND
        os.write(2, f"tenure: {command[0]!a}: not found\r\n".encode())
    except OSError as error:
        os.write(2, f"tenure: {command[0]!a}: {error.strerror}\r\n".encode())
    finally:
        os._exit(status)
