"""Calls of the operating system that Windows lacks, or does in another way.

On Linux and macOS each is the plain call. On Windows there are no user numbers and no mode bits: a
file in the profile of a user is private by the access list that it inherits. A hook's process
imports this module, so it imports nothing heavy.

Locks are taken on descriptors that are open anyway, some of them on the file that they protect, and
some shared. The libraries for locks (filelock, portalocker) lock a file of their own, or need
pywin32, so they do not fit.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Final

CLOSED: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
"""No child inherits the descriptor, and bytes stay as they are: Windows would translate CRLF."""
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
FOLDER: Final = getattr(os, "O_DIRECTORY", 0)
HAS_MODES: Final = hasattr(os, "geteuid")
"""Files have an owner's number and mode bits."""
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO if HAS_MODES else 0
"""Mode bits with which other users can use a file."""
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH if HAS_MODES else 0
ANYBODY_WRITES: Final = stat.S_IWOTH if HAS_MODES else 0
HAS_DIR_FD: Final = os.open in os.supports_dir_fd
"""Files can be opened below a descriptor of their folder."""

_LOCK_AT: Final = 0x7FFF_0000
"""A byte beyond the end of every file that is locked: Windows keeps others from reading what is
locked.
"""


def user() -> int:
    """Return the number of this user; 0 on Windows, where `st_uid` of every file is 0."""
    return os.geteuid() if HAS_MODES else 0


def lock(fd: int, *, is_shared: bool = False, waits: bool = False) -> None:
    """Lock an open file until the descriptor is closed. Windows has no shared locks here, and takes
    the whole file.

    Raises BlockingIOError: another process has the lock; OSError: the file system has no locks.
    """
    try:
        import fcntl
    except ImportError:
        _lock_range(fd, _LOCK_AT, waits=waits)
        return
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    fcntl.flock(fd, kind if waits else kind | fcntl.LOCK_NB)


def lock_byte(fd: int, offset: int) -> None:
    """Lock one byte of an open file until `unlock_byte`. Raises BlockingIOError, PermissionError:
    it is taken; OSError: no locks.
    """
    try:
        import fcntl
    except ImportError:
        _lock_range(fd, offset, waits=False)
        return
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)


def unlock_byte(fd: int, offset: int) -> None:
    """Unlock a byte. Raises OSError."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        _at(fd, offset, lambda: msvcrt.locking(fd, msvcrt.LK_UNLCK, 1))  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, offset)


def _lock_range(fd: int, offset: int, *, waits: bool) -> None:
    import msvcrt

    kind = msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK  # type: ignore[attr-defined,unused-ignore]
    try:
        _at(fd, offset, lambda: msvcrt.locking(fd, kind, 1))  # type: ignore[attr-defined,unused-ignore]
    except OSError as error:
        if error.errno in (errno.EACCES, getattr(errno, "EDEADLOCK", errno.EDEADLK)):
            raise BlockingIOError(errno.EAGAIN, "another process has the lock") from None
        raise


def _at(fd: int, offset: int, call: Callable[[], object]) -> None:
    """Call with the descriptor at an offset, and put it back."""
    before = os.lseek(fd, 0, os.SEEK_CUR)
    os.lseek(fd, offset, os.SEEK_SET)
    try:
        call()
    finally:
        os.lseek(fd, before, os.SEEK_SET)


def read_at(fd: int, count: int, offset: int) -> bytes:
    """Read bytes at an offset. Raises OSError."""
    if hasattr(os, "pread"):
        return os.pread(fd, count, offset)
    found = b""

    def read() -> None:
        nonlocal found
        found = os.read(fd, count)

    _at(fd, offset, read)
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process of this number runs. Raises OverflowError: no process has such a
    number.
    """
    if not HAS_MODES:  # os.kill(pid, 0) would send Ctrl-C there
        import ctypes

        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
        handle = kernel.OpenProcess(0x0010_0000, 0, pid)  # SYNCHRONIZE
        if not handle:
            return bool(kernel.GetLastError() == 5)  # ERROR_ACCESS_DENIED: another user's
        try:
            return bool(kernel.WaitForSingleObject(handle, 0) == 0x102)  # WAIT_TIMEOUT: it has not ended
        finally:
            kernel.CloseHandle(handle)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def ending_signals() -> list[int]:
    """Return the signals that end a program in good order; SIGHUP unless `nohup` has it ignored."""
    import signal

    found: list[int] = [signal.SIGTERM, signal.SIGINT]
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
        found.append(hang_up)
    return found


def write_over(fd: int, data: bytes) -> None:
    """Make `data` the whole content of an open file. Raises OSError."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, data)


def call_on_signals(loop: asyncio.AbstractEventLoop, numbers: list[int], call: Callable[[], object]) -> None:
    """Call in the loop when one of the signals arrives; on Windows between two steps of the loop."""
    import signal

    for number in numbers:
        try:
            loop.add_signal_handler(number, call)
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(call))
