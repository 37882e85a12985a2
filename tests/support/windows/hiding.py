"""Hides from a process what Python on Windows lacks. Import it before anything of Confide.

`msvcrt` is there only on Windows. The one here has its `locking`, over record locks of the kernel,
which refuse in the same way.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import socket
import sys
import types
from typing import Final

MODULES: Final = ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "syslog")
CALLS: Final = (
    *(
        "geteuid",
        "getgid",
        "getegid",
        "fork",
        "forkpty",
        "pread",
        "pwrite",
        "fchmod",
        "fchown",
        "chown",
    ),
    *("statvfs", "sysconf", "killpg", "setsid", "getpgid", "register_at_fork", "listxattr"),
)
FLAGS: Final = ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC")
SIGNALS: Final = ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCHLD")

_LOADED_FIRST: Final = (
    *("asyncio", "subprocess", "multiprocessing", "concurrent.futures", "tempfile", "shutil", "random", "logging"),
    *(
        "socketserver",
        "http.server",
        "uuid",
        "getpass",
        "webbrowser",
        "ssl",
        "selectors",
        "platform",
        "pdb",
        "cmd",
        "platformdirs",
    ),
)
"""Modules of Python itself, which would look for other parts of a Windows."""


def hide() -> None:
    """Hide them from this process, for good; on Windows itself there is nothing to hide."""
    if sys.platform == "win32":
        return
    for name in _LOADED_FIRST:
        importlib.import_module(name)
    sys.modules["msvcrt"] = _msvcrt()
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in (*CALLS, *FLAGS):
        if hasattr(os, name):
            delattr(os, name)
    for name in SIGNALS:
        delattr(signal, name)
    pair, family = socket.socketpair, socket.AF_UNIX
    socket.socketpair = lambda *_: pair(family)  # asyncio's own; Windows has one over loopback
    del socket.AF_UNIX
    os.supports_dir_fd.clear()  # type: ignore[attr-defined]


def _msvcrt() -> types.ModuleType:
    import fcntl

    made = types.ModuleType("msvcrt")
    lock, unlock, wait = 2, 0, 1
    vars(made).update(LK_NBLCK=lock, LK_UNLCK=unlock, LK_LOCK=wait)

    def locking(fd: int, mode: int, count: int) -> None:
        if mode == unlock:
            fcntl.lockf(fd, fcntl.LOCK_UN, count, os.lseek(fd, 0, os.SEEK_CUR))
            return
        kind = fcntl.LOCK_EX if mode == wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.lockf(fd, kind, count, os.lseek(fd, 0, os.SEEK_CUR))
        except OSError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    vars(made)["locking"] = locking
    return made
