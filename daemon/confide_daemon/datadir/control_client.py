"""The control socket of a data folder, from the side of a command: a line of JSON asked of the daemon that serves, a line answered.

Only who may enter the folder (mode 0700) reaches the socket in it (mode 0600). What is asked is `{"do": VERB, …}`, what is answered
`{"ok": {…}}` or `{"error": {"code": …, "message": …, "hint": …}}`, with the codes of PROTOCOL.md 7.2. Standard library only, so that a
command may ask before it loads anything heavy.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_daemon.errors import NotServedError

MOST_ASKED: Final = 64 * 1024
"""Bytes of a line that is asked."""
MOST_ANSWERED: Final = 4 * 1024 * 1024
"""Bytes of a line that is answered: 450 series have 45 KiB."""
CONNECT_S: Final = 5.0
_MOST_ADDRESS: Final = 103
"""Bytes of a Unix socket's path: 104 with the NUL at its end on macOS, 108 on Linux."""


@contextmanager
def address(path: Path) -> Iterator[str]:
    """The path of a socket as the system takes it, to bind it or to connect to it within this.

    One that is too long is reached through a link to its folder, in a folder that is this user's alone and there for a moment only. Raises
    OSError where such a link cannot be made, or is too long itself.
    """
    if len(os.fsencode(path)) <= _MOST_ADDRESS:
        yield str(path)
        return
    short = Path(tempfile.mkdtemp(prefix="confide-", dir=_short_folder()))
    try:
        (short / "d").symlink_to(path.parent, target_is_directory=True)
        yield str(short / "d" / path.name)
    finally:
        shutil.rmtree(short, ignore_errors=True)


def _short_folder() -> str | None:
    """`$TMPDIR` can be as long as the data folder's own path."""
    return "/tmp" if len(os.fsencode(tempfile.gettempdir())) > _MOST_ADDRESS // 2 else None  # noqa: S108 - mkdtemp makes it private


def is_answered(path: Path) -> bool:
    """Whether a process listens there. A socket whose process was killed stays, and nobody listens on it."""
    try:
        with address(path) as where, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_S)
            connection.connect(where)
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return True  # as far as can be told: its queue is full, or it is not ours to connect to
    return True


def ask(path: Path, verb: str, *, timeout_s: float = 10.0, **arguments: Any) -> dict[str, Any]:
    """What the daemon that serves the folder of this socket answers.

    Args:
        path: `DataFolder.control`.
        timeout_s: for all of it; a verb that takes longer says so where it is defined.
        arguments: of the verb, as JSON takes them.

    Raises NotServedError: nobody listens, or what listens gives no answer; RequestError: the daemon's own.
    """
    line = json.dumps({"do": verb, **arguments}).encode() + b"\n"
    deadline = time.monotonic() + timeout_s
    try:
        with address(path) as where, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(min(timeout_s, CONNECT_S))
            connection.connect(where)
            connection.sendall(line)
            answer = json.loads(_line(connection, deadline))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        raise NotServedError(path.parent) from None
    except PermissionError:
        raise NotServedError(path.parent, "its socket is not this user's", hint="run it as the daemon's user") from None
    except TimeoutError:
        raise NotServedError(
            path.parent, "it does not answer in time", hint="confided status --log may say why"
        ) from None
    except (OSError, ValueError, RecursionError):
        raise NotServedError(path.parent, "what listens there gives no answer", hint="try again") from None
    if isinstance(answer, dict) and isinstance(done := answer.get("ok"), dict):
        return done
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        raise NotServedError(
            path.parent, "what listens there gives no answer", hint="is it a confided of this version?"
        )
    hint = error.get("hint")
    raise RequestError(str(error.get("code")), str(error.get("message")), None if hint is None else str(hint))


def _line(connection: socket.socket, deadline: float) -> bytes:
    """Raises TimeoutError, ValueError: it is longer than allowed, or ends before its end."""
    got = bytearray()
    while not got.endswith(b"\n"):
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        piece = connection.recv(64 * 1024)
        got += piece
        if not piece or len(got) > MOST_ANSWERED:
            raise ValueError("no whole line")
    return bytes(got)
