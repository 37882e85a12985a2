"""The process between `confide run` and the command. It starts the command, reports when it stops
and ends, and then ends the processes that the command leaves behind, even if `confide run` is
killed.

With a pseudo-terminal it is the leader of that terminal's session. The command is then in a process
group of its own, with a parent in the same session: without such a parent Ctrl-Z could not stop the
command.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

NEWS: Final = struct.Struct("<ci")
"""A message to `confide run`: one of the following kinds, and a number."""
STOPPED: Final = b"s"
"""The command was stopped, by this signal."""
ENDED: Final = b"x"
"""The command has ended, with this exit code or the negative number of a signal."""
FAILED: Final = b"e"
"""The command could not be started: the number of the error."""
ENDED_S: Final = 1.0
"""Seconds that what the command has left behind gets to end by itself."""
_HEARD: Final = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH, signal.SIGCONT, signal.SIGCHLD),
)
_LOOK_S: Final = 0.02
_SUBREAPER: Final = 36
_DEATH_SIGNAL: Final = 1


class ChildStart(NamedTuple):
    """How the command is started.

    Attributes:
        program, arguments, environment: as `os.execve` takes them.
        stdin, stdout, stderr: file descriptors.
        terminal: descriptor of the command's side of a pseudo-terminal, which becomes its
            controlling terminal; -1 for none.
        has_group: True if the command gets a process group of its own.
    """

    program: str
    arguments: Sequence[str]
    environment: Mapping[bytes, bytes]
    stdin: int
    stdout: int
    stderr: int
    terminal: int
    has_group: bool


def lead(start: ChildStart, orders: int, news: int) -> NoReturn:
    """Start the command, report its stops and its end, end its remaining processes, and exit.

    Args:
        orders: a pipe; each byte read from it is the number of a signal for the command. When it is
            closed, the command is ended.
        news: a pipe to which the reports are written.
    """
    code = 1
    try:
        _Leader(start, orders, news).run()
        code = 0
    finally:
        os._exit(code)


class _Leader:
    def __init__(self, start: ChildStart, orders: int, news: int) -> None:
        self._start = start
        self._orders = orders
        self._news = news
        self._wake_out, wake_in = os.pipe()
        for end in (self._wake_out, wake_in, orders):
            os.set_blocking(end, False)
        # Handlers, and not SIG_IGN, which the command would inherit.
        for number in _HEARD:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        self._pid = 0

    def run(self) -> None:
        if self._start.terminal >= 0:
            os.setsid()
            fcntl.ioctl(self._start.terminal, termios.TIOCSCTTY, 0)
        elif self._start.has_group:
            os.setpgid(0, 0)
        keep_orphans()
        try:
            self._begin()
        except OSError as error:
            self._tell(FAILED, error.errno or errno.EIO)
            return
        try:
            self._follow()
        finally:
            self._end_rest()

    def _begin(self) -> None:
        start = self._start
        libc = _libc()
        leader = os.getpid()

        def prepare() -> None:
            if libc is not None:
                libc.prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
                if os.getppid() != leader:
                    os._exit(1)
            if start.has_group:
                os.setpgid(0, 0)
            if start.terminal >= 0:
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
                os.tcsetpgrp(start.terminal, os.getpgrp())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTTOU])

        self._pid = _started(start, prepare)
        for descriptor in {start.stdin, start.stdout, start.stderr} - {0, 1, 2, start.terminal}:
            os.close(descriptor)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # their readers are to see the end of the stream
            os.dup2(null, descriptor)

    def _follow(self) -> None:
        """Pass signals on until the command ends, or the orders do."""
        while True:
            ready, _, _ = select.select([self._orders, self._wake_out], [], [])
            if self._wake_out in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_out, 4096)
                if self._has_ended():
                    return
            if self._orders in ready:
                numbers = os.read(self._orders, 256)
                if not numbers:
                    return
                for number in numbers:
                    self._pass_on(number)

    def _has_ended(self) -> bool:
        """Report a stop or the end of the command, and reap its orphans; return True at its end."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid != self._pid:
                continue
            if os.WIFSTOPPED(status):
                self._tell(STOPPED, os.WSTOPSIG(status))
                continue
            self._tell(ENDED, os.waitstatus_to_exitcode(status))
            return True

    def _pass_on(self, number: int) -> None:
        with contextlib.suppress(OSError):
            if number == signal.SIGCONT and self._start.terminal >= 0:
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
                os.tcsetpgrp(self._start.terminal, self._pid)
            if self._start.has_group:
                os.killpg(self._pid, number)
            else:
                os.kill(self._pid, number)

    def _end_rest(self) -> None:
        """End the command's group, and what came out of it."""
        for number, patience_s in ((signal.SIGTERM, ENDED_S), (signal.SIGKILL, ENDED_S)):
            deadline = time.monotonic() + patience_s
            self._pass_on(number)
            self._pass_on(signal.SIGCONT)  # a stopped process would not end
            while self._is_anybody_left(number):
                if time.monotonic() > deadline:
                    break
                time.sleep(_LOOK_S)
            else:
                return

    def _is_anybody_left(self, number: int) -> bool:
        """Send a signal to all descendants, and return True if there are any."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = list(_descendants(os.getpid()))
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)
        if left or sys.platform == "linux":
            return bool(left)
        try:
            os.killpg(self._pid, 0) if self._start.has_group else os.kill(self._pid, 0)
        except OSError:
            return False
        return True

    def _tell(self, kind: bytes, number: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self._news, NEWS.pack(kind, number))


def _started(start: ChildStart, prepare: Callable[[], None]) -> int:
    """Start the command after `prepare` in its process, and return its number. Raises OSError.

    Not with the library `subprocess`, which takes longer to load than the command to start, and
    closes what else the command inherits, such as the file of a shell's `<(…)`.
    """
    failed_out, failed_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        number = errno.EIO
        try:
            prepare()
            given = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 3) for each in (start.stdin, start.stdout, start.stderr)]
            for descriptor, source in enumerate(given):
                os.dup2(source, descriptor)
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
                signal.signal(ignored, signal.SIG_DFL)
            os.execve(start.program, list(start.arguments), start.environment)  # noqa: S606
        except OSError as error:
            number = error.errno or number
        finally:
            os.write(failed_in, number.to_bytes(4))
            os._exit(1)
    os.close(failed_in)
    with open(failed_out, "rb") as failed:
        if number := int.from_bytes(failed.read()):
            os.waitpid(pid, 0)
            raise OSError(number, os.strerror(number))
    return pid


def keep_orphans() -> None:
    """Make orphaned descendants children of this process, on systems that can do that."""
    libc = _libc()
    if libc is not None:
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)


def _libc() -> Any:
    """Return the C library on Linux, else None."""
    if sys.platform != "linux":
        return None
    import ctypes

    return ctypes.CDLL(None)


def _descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, where the system lists them."""
    with contextlib.suppress(OSError, ValueError):
        for each in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            yield each
            yield from _descendants(each)
