"""Hooks' connections where the system has no Unix sockets, as on Windows: a port of this machine,
and a secret in a file.

Other users can connect to a port, or listen on it after a crash. So each end proves first that it
has read the file, which is private to this user: a hook sends its prompt to no other process, and a
listener answers no other one. An end proves it by the HMAC-SHA256 of the other end's nonce.
"""

from __future__ import annotations

import hmac
import json
import os
import socket

from confide_crypto import atomic
from confide_proxy.hooks import hook_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

HAS_UNIX_SOCKETS: Final = hasattr(socket, "AF_UNIX")
LINE_BYTES: Final = 65
"""A nonce or a proof: 64 hex digits, and the end of the line."""
_HOST: Final = "127.0.0.1"
_SECRET_BYTES: Final = 32
_MOST_FILE: Final = 4096


def file_of(state: str) -> str:
    """Return the file that names the port and the secret."""
    return os.path.join(state, "hooks.port")


def write(state: str, port: int) -> bytes:
    """Name a port in the file, and return a new secret, which the file has too. Raises OSError."""
    secret = os.urandom(_SECRET_BYTES)
    atomic.write(file_of(state), json.dumps({"port": port, "secret": secret.hex()}).encode(), is_kept=False)
    return secret


def read(state: str) -> tuple[int, bytes] | None:
    """Return the port and the secret; None if there is no such file, or it cannot be read."""
    try:
        found = json.loads(hook_paths.plain(file_of(state), _MOST_FILE))
        return int(found["port"]), bytes.fromhex(found["secret"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def proof(secret: bytes, end: str, nonce: bytes) -> bytes:
    """Return the line with which an end, `hook` or `listener`, answers the line with the other
    end's nonce.
    """
    return hmac.new(secret, end.encode() + b":" + nonce.strip(), "sha256").hexdigest().encode() + b"\n"


def nonce() -> bytes:
    """Return a line with a new nonce."""
    return os.urandom(_SECRET_BYTES).hex().encode() + b"\n"


def is_same(line: bytes, wanted: bytes) -> bool:
    """Compare a proof, in a time that does not depend on what it is."""
    return hmac.compare_digest(line, wanted)


def listening() -> socket.socket:
    """Return a socket bound to a free port of this machine. Raises OSError."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.bind((_HOST, 0))
    except BaseException:
        made.close()
        raise
    return made


def connect(state: str, timeout_s: float) -> socket.socket | None:
    """Return a connection to the listener that has the file's secret; None if there is none.

    Raises OSError: nothing listens on the port, or not in time.
    """
    found = read(state)
    if found is None:
        return None
    port, secret = found
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect((_HOST, port))
        asked = nonce()
        connection.sendall(asked)
        told = _exactly(connection, 2 * LINE_BYTES)
        if not is_same(told[:LINE_BYTES], proof(secret, "listener", asked)):
            connection.close()
            return None
        connection.sendall(proof(secret, "hook", told[LINE_BYTES:]))
    except BaseException:
        connection.close()
        raise
    return connection


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            return data
        data += part
    return data
