"""Connections of hooks on systems without Unix sockets, such as Windows: a TCP port on 127.0.0.1,
and a shared secret in a private file.

Other users of the device can connect to the port, or listen on it after a crash. So each side first
proves that it has read the file, which only this user can read: it returns an HMAC-SHA256 of the
other side's nonce under the secret. Without that proof a hook sends no prompt, and the listener
gives no answer.
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
    """Return the path of the file that holds the port and the secret."""
    return os.path.join(state, "hooks.port")


def write(state: str, port: int) -> bytes:
    """Write a port and a new secret to the file, and return the secret. Raises OSError if the file
    cannot be written.
    """
    secret = os.urandom(_SECRET_BYTES)
    atomic.write(file_of(state), json.dumps({"port": port, "secret": secret.hex()}).encode(), is_kept=False)
    return secret


def read(state: str) -> tuple[int, bytes] | None:
    """Return the port and the secret from the file; None if it does not exist or is invalid."""
    try:
        found = json.loads(hook_paths.plain(file_of(state), _MOST_FILE))
        return int(found["port"]), bytes.fromhex(found["secret"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def proof(secret: bytes, end: str, nonce: bytes) -> bytes:
    """Return the line by which `end`, either "hook" or "listener", proves that it knows the secret:
    an HMAC of the other side's nonce.
    """
    return hmac.new(secret, end.encode() + b":" + nonce.strip(), "sha256").hexdigest().encode() + b"\n"


def nonce() -> bytes:
    """Return a new random nonce in hex, as a line to send."""
    return os.urandom(_SECRET_BYTES).hex().encode() + b"\n"


def is_same(line: bytes, wanted: bytes) -> bool:
    """Return True if a proof is the expected one. The comparison takes constant time."""
    return hmac.compare_digest(line, wanted)


def listening() -> socket.socket:
    """Return a TCP socket bound to a free port on 127.0.0.1. Raises OSError if there is none."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.bind((_HOST, 0))
    except BaseException:
        made.close()
        raise
    return made


def connect(state: str, timeout_s: float) -> socket.socket | None:
    """Connect to the listener, and prove to each other that both know the secret. Return None if
    the file is missing, or if the process at the port does not know the secret.

    Raises OSError if nothing listens on the port, or if it does not respond in time.
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
