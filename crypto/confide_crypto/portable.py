"""Operating system calls that Windows lacks or implements differently.

On Linux and macOS each is the plain call. Windows has no user ids and no mode bits: a file in a
user's profile is private by the access list that it inherits. The process of each hook imports this
module, so it imports nothing heavy.

Locks are taken on descriptors that are open anyway; some are on the file that they protect, and
some are shared. Libraries such as filelock and portalocker do not fit, because they lock a separate
file or need pywin32.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

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
    """Return the id of this user; 0 on Windows, where every file has the owner id 0."""
    return os.geteuid() if HAS_MODES else 0


def lock(fd: int, *, is_shared: bool = False, waits: bool = False) -> None:
    """Lock an open file until its descriptor is closed.

    If `waits` is true, wait until the lock is free. On Windows every lock is exclusive, and covers
    the whole file.

    Raises BlockingIOError if another process has the lock; OSError if the file system does not
    support locks.
    """
    try:
        import fcntl
    except ImportError:
        _lock_range(fd, _LOCK_AT, waits=waits)
        return
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    fcntl.flock(fd, kind if waits else kind | fcntl.LOCK_NB)


def lock_byte(fd: int, offset: int) -> None:
    """Lock one byte of an open file until `unlock_byte` is called.

    Raises BlockingIOError or PermissionError if another process has locked it; OSError if the file
    system does not support locks.
    """
    try:
        import fcntl
    except ImportError:
        _lock_range(fd, offset, waits=False)
        return
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)


def unlock_byte(fd: int, offset: int) -> None:
    """Release the lock on one byte of an open file. Raises OSError if that fails."""
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
    """Read `count` bytes at an offset of an open file. Raises OSError if that fails."""
    if hasattr(os, "pread"):
        return os.pread(fd, count, offset)
    found = b""

    def read() -> None:
        nonlocal found
        found = os.read(fd, count)

    _at(fd, offset, read)
    return found


def is_alive(pid: int) -> bool:
    """Return True if a process with this id is running. Raises OverflowError if the number is too
    large for a process id.
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
    """Return the signals on which a program shuts down cleanly. SIGHUP is left out if `nohup` makes
    the program ignore it.
    """
    import signal

    found: list[int] = [signal.SIGTERM, signal.SIGINT]
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
        found.append(hang_up)
    return found


def open_standard_streams() -> None:
    """Open the null device in place of each standard stream that the caller has closed (`>&-`).
    Otherwise the next file or socket would get the number of the stream, and printing would fail.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number: that of the stream, since lower ones are open.
            fd = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, mode, encoding="utf-8", errors="replace"))


def write_over(fd: int, data: bytes) -> None:
    """Replace the whole content of an open file with `data`. Raises OSError."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, data)


def call_on_signals(loop: asyncio.AbstractEventLoop, numbers: list[int], call: Callable[[], object]) -> None:
    """Make the event loop call `call` when one of these signals arrives. On Windows it is called
    between two steps of the loop.
    """
    import signal

    for number in numbers:
        try:
            loop.add_signal_handler(number, call)
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(call))
