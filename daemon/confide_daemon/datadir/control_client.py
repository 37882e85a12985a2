"""The client of the daemon's control socket: a command sends one line of JSON, and the daemon
answers with one line.

Only users who may enter the data folder (mode 0700) can reach the socket in it (mode 0600). A
request is `{"do": VERB, …}`. A response is `{"ok": {…}}` or `{"error": {"code": …, "message": …,
"hint": …}}`, with the codes of PROTOCOL.md 7.2. The module uses the standard library only, so that
a command can send a request before it loads anything large.
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
"""Most bytes of a request line."""
MOST_ANSWERED: Final = 4 * 1024 * 1024
"""Most bytes of a response line: 450 metrics have 45 KiB."""
CONNECT_S: Final = 5.0
_MOST_ADDRESS: Final = 103
"""Most bytes of a Unix socket's path: 104 with the NUL at its end on macOS, 108 on Linux."""


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield a form of a socket's path that the operating system accepts. Within the `with` block,
    bind it or connect to it.

    A path that is too long is replaced by a link to its folder, within a temporary folder that
    belongs to this user alone. Raises OSError if such a link cannot be created, or is itself too
    long.
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
    """Return a folder with a short path. `$TMPDIR` can be as long as the data folder's own path."""
    return "/tmp" if len(os.fsencode(tempfile.gettempdir())) > _MOST_ADDRESS // 2 else None  # noqa: S108 - mkdtemp makes it private


def is_answered(path: Path) -> bool:
    """Return True if a process listens on the socket. A killed process leaves its socket behind, to
    which no process listens.
    """
    try:
        with address(path) as where, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_S)
            connection.connect(where)
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return True  # probably: its queue is full, or this user may not connect
    return True


def ask(path: Path, verb: str, *, timeout_s: float = 10.0, **arguments: Any) -> dict[str, Any]:
    """Send a request to the daemon that serves this socket, and return its response.

    Args:
        path: `DataFolder.control`.
        verb: the name of the requested operation.
        timeout_s: limit for the whole request. Operations that take longer say so where they are
            defined.
        arguments: the arguments of the operation, as JSON values.

    Raises NotServedError if no process listens or it does not answer; RequestError if the daemon
    answers with an error.
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
    """Read a line. Raises TimeoutError, ValueError: the line is longer than allowed, or ends
    without a newline.
    """
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
