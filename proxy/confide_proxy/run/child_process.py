"""Run a command that has secrets: start it, pass on its output with the secrets masked, and end it
with this process.

Terminal, signals and exit codes look to the command as if this process were not in between.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confide_proxy.errors import NotRunError
from confide_proxy.run import child_leader
from confide_proxy.run.child_leader import NEWS, ChildStart
from confide_proxy.run.run_request import ChildTerms

if TYPE_CHECKING:
    from confide_proxy.sealing.masking import Mask

IDLE_S: Final = 0.05
"""Seconds without output after which all but the beginning of a value is passed on."""
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
_PIECE: Final = 64 * 1024
_PASSED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_OF_TERMINALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
_DUMPABLE: Final = 4


def program_of(command: str) -> str:
    """Return the path of the program that a command's name means. Raises NotRunError if it does not
    exist or cannot be run.
    """
    folders = [""] if os.sep in command else os.get_exec_path()
    found = [path for folder in folders if os.path.exists(path := os.path.join(folder, command))]  # noqa: PTH110, PTH118
    if runnable := next((path for path in found if os.access(path, os.X_OK) and not Path(path).is_dir()), None):
        return runnable
    if found:
        raise NotRunError(NOT_EXECUTABLE, f"{command} is no program that you may run")
    raise NotRunError(NOT_FOUND, f"there is no command {command}")


def protect() -> None:
    """Prevent this process's memory from being written to disk and, on Linux, from being read by
    other processes of the user.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)


def run(terms: ChildTerms) -> int:
    """Run a command, and return its exit code, or the negative number of the signal that ended it.

    Raises NotRunError if the command cannot be started.
    """
    environment = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    environment |= {os.fsencode(name): value for name, value in terms.variables.items()}
    if not terms.files:
        return _Child(terms, environment).follow()
    from confide_proxy.run import secret_files  # needs libraries that take longer than the start of a command

    with secret_files.private_files(terms.files) as paths:
        environment |= {os.fsencode(name): os.fsencode(path) for name, path in paths.items()}
        return _Child(terms, environment).follow()


def end_by_signal(code: int) -> None:
    """If a signal ended the command, end this process by the same signal, so that a shell reports
    the same. `code` is the result of `run`.
    """
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)


class _MaskedStream:
    """An output stream of the command: read, masked, written."""

    def __init__(self, source: int, target: int, masked: Callable[[], Mask]) -> None:
        self.source = source
        self.is_open = True
        self._target = target
        self._masked = masked
        self._mask: Mask | None = None
        self._is_read = True
        self._is_idle = False

    def read(self) -> None:
        """Pass on what is there. At the end, or if the output has no reader, close the source."""
        try:
            piece = os.read(self.source, _PIECE)
        except OSError:  # Linux's end of a terminal
            piece = b""
        self._is_idle = False
        if piece:
            self._mask = self._mask or self._masked()
            self._write(self._mask.feed(piece))
        if not piece or not self._is_read:
            self.close()

    def rest(self) -> None:
        """Pass on what was written before the command's end."""
        while self.is_open and select.select([self.source], [], [], 0)[0]:
            self.read()
        self.close()

    @property
    def is_waiting(self) -> bool:
        """Return True if `idle` is to be called when no more comes."""
        return self.is_open and self._mask is not None and self._mask.is_holding and not self._is_idle

    def idle(self) -> None:
        self._is_idle = True
        if self._mask is not None:
            self._write(self._mask.idle())

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.source)
            if self._mask is not None:
                self._write(self._mask.end())

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._is_read:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:
                select.select([], [self._target], [])
            except OSError:
                self._is_read = False


class _Child:
    """The running command, and everything that goes between it and the terminal."""

    def __init__(self, terms: ChildTerms, environment: Mapping[bytes, bytes]) -> None:
        self._terms = terms
        self._environment = environment
        self._has_terminal = os.isatty(1)
        self._has_keyboard = os.isatty(0)
        # A group in the background cannot read from the terminal, and this process may not be alone
        # in the foreground: `confide run … | less`. So both stay in one group there.
        self._has_group = self._has_terminal or not self._has_keyboard
        self._terminal_before: list[Any] | None = None
        self._master = self._orders = self._news = self._stdin = -1
        self._input = memoryview(b"")
        self._streams: list[_MaskedStream] = []
        self._code: int | None = None

    def follow(self) -> int:
        """Start the command, and return its exit code when it and all that it started have ended."""
        wake_out, wake_in = os.pipe()
        for end in (wake_out, wake_in):
            os.set_blocking(end, False)
        heard = (*_PASSED, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
        before = {number: signal.signal(number, lambda *_: None) for number in heard}
        wakeup_before = signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        try:
            self._start()
            self._keep_terminal()
            while self._news >= 0:
                self._step(wake_out)
        finally:
            for descriptor in (self._orders, self._stdin):
                if descriptor >= 0:
                    os.close(descriptor)
            for stream in self._streams:
                stream.rest()
            self._give_terminal_back()  # the rest is for a terminal that changes no line ends
            if self._master >= 0 and not self._streams:
                os.close(self._master)
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake_out)
            os.close(wake_in)
        return self._code if self._code is not None else -signal.SIGKILL

    # Start

    def _start(self) -> None:
        terms = self._terms
        ours, theirs = [], []

        def pipe(*, to_child: bool) -> tuple[int, int]:
            out, into = os.pipe()
            ours.append(into if to_child else out)
            theirs.append(out if to_child else into)
            return ours[-1], theirs[-1]

        terminal = -1
        if self._has_terminal:
            self._master, terminal = os.openpty()
            ours.append(self._master)
            theirs.append(terminal)
            self._prepare_terminal(terminal)
            source, stdout = self._master, terminal
        else:
            source, stdout = pipe(to_child=False)
        # One stream where both outputs end in one place, so that they keep their order there.
        shares = os.isatty(2) if self._has_terminal else os.path.samestat(os.fstat(1), os.fstat(2))
        error, stderr = (-1, stdout) if shares else pipe(to_child=False)
        stdin = terminal if self._has_terminal and self._has_keyboard else 0
        if terms.stdin is not None:
            self._stdin, stdin = pipe(to_child=True)
            os.set_blocking(self._stdin, False)
            self._input = memoryview(terms.stdin)
        self._orders, orders = pipe(to_child=True)
        self._news, news = pipe(to_child=False)
        start = ChildStart(
            terms.program,
            terms.arguments,
            self._environment,
            stdin,
            stdout,
            stderr,
            terminal,
            self._has_group,
        )
        if os.fork() == 0:
            for descriptor in ours:
                os.close(descriptor)
            child_leader.lead(start, orders, news)
        for descriptor in theirs:
            os.close(descriptor)
        self._streams = [_MaskedStream(source, 1, terms.mask)]
        if error >= 0:
            self._streams.append(_MaskedStream(error, 2, terms.mask))

    # Work

    def _step(self, wake: int) -> None:
        """Wait for the next event, and do what it asks for."""
        sources = {stream.source: stream for stream in self._streams if stream.is_open}
        inputs = [self._news, wake, *sources]
        if self._has_terminal and self._has_keyboard and self._terminal_before is not None:
            inputs.append(0)
        outputs = [self._stdin] if self._stdin >= 0 else []
        ready, writable, _ = select.select(
            inputs, outputs, [], IDLE_S if any(each.is_waiting for each in self._streams) else None
        )
        if not ready and not writable:
            for stream in sources.values():
                stream.idle()
        for source, stream in sources.items():
            if source in ready:
                stream.read()
        if 0 in ready:
            self._type()
        if writable:
            self._feed()
        if wake in ready:
            for number in os.read(wake, 4096):
                self._hear(number)
        if self._news in ready:
            self._learn()

    def _learn(self) -> None:
        message = os.read(self._news, NEWS.size)
        if len(message) < NEWS.size:
            os.close(self._news)
            self._news = -1
            return
        kind, number = NEWS.unpack(message)
        if kind == child_leader.FAILED:
            name = self._terms.arguments[0]
            raise NotRunError(NOT_EXECUTABLE, f"{name} cannot be started: {os.strerror(number)}")
        if kind == child_leader.STOPPED:
            self._stop()
        else:
            self._code = number

    def _stop(self) -> None:
        """Stop with the command, until this process is continued."""
        for stream in self._streams:
            if stream.is_open:
                while select.select([stream.source], [], [], 0)[0] and stream.is_open:
                    stream.read()
                stream.idle()
        self._give_terminal_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._keep_terminal()
        self._order(signal.SIGCONT)

    def _hear(self, number: int) -> None:
        if number == signal.SIGWINCH:
            self._resize()
        elif number == signal.SIGCONT:
            self._keep_terminal()
            self._order(number)
        elif self._has_group or number not in _OF_TERMINALS:
            self._order(number)

    def _order(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self._orders, bytes([number]))

    def _type(self) -> None:
        try:
            typed = os.read(0, _PIECE)
        except OSError:
            typed = b""
        if not typed:
            self._has_keyboard = False
            return
        with contextlib.suppress(OSError):
            os.write(self._master, typed)

    def _feed(self) -> None:
        try:
            self._input = self._input[os.write(self._stdin, self._input[:_PIECE]) :]
        except BlockingIOError:
            return
        except OSError:  # the command reads no more
            self._input = memoryview(b"")
        if not self._input:
            os.close(self._stdin)
            self._stdin = -1

    # Terminal

    def _prepare_terminal(self, terminal: int) -> None:
        """Make the command's terminal like the person's."""
        attributes = termios.tcgetattr(1)
        if not self._has_keyboard:
            attributes[1] &= ~termios.OPOST  # the person's own terminal does it
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        self._resize()

    def _resize(self) -> None:
        if self._master >= 0:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _keep_terminal(self) -> None:
        """Have every key reach the command, if this process is in the foreground."""
        if self._has_terminal and self._has_keyboard and os.tcgetpgrp(0) == os.getpgrp():
            with contextlib.suppress(termios.error):
                before = termios.tcgetattr(0)
                tty.setraw(0, termios.TCSADRAIN)
                self._terminal_before = self._terminal_before or before
            self._resize()

    def _give_terminal_back(self) -> None:
        if self._terminal_before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._terminal_before)
            self._terminal_before = None
