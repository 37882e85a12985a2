"""A client that keeps to no rule: raw bytes on a socket, websocket frames of any shape, and handshakes with what must be refused."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from tests.support.deadline import DEADLINE_S

from confide_crypto.handshake import noise
from confide_crypto.handshake.handshake import HASH, MAX_HELLO, PROLOGUE, derive_psk, transcript
from confide_crypto.handshake.noise import XKPSK3, HandshakeState, KeyPair
from confide_crypto.keys.identity import Identity
from confide_crypto.limits import SUBPROTOCOL

CONT, TEXT, BINARY, CLOSE, PING = 0, 1, 2, 8, 9
VECTORS = Path(__file__).parents[2] / "vectors" / "wycheproof"


def http_request(*more: bytes) -> bytes:
    """What opens a websocket; `more` are further header lines."""
    key = base64.b64encode(os.urandom(16))
    lines = [
        b"GET / HTTP/1.1",
        b"Host: 127.0.0.1",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: " + key,
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Protocol: " + SUBPROTOCOL.encode(),
        *more,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def frame(data: bytes = b"", opcode: int = BINARY, *, fin: bool = True, declared: int | None = None) -> bytes:
    """A websocket frame with a mask of zeros; `declared` lies about its length."""
    size = len(data) if declared is None else declared
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + struct.pack(">H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", size)
    return head + bytes(4) + data


class Stranger:
    """One TCP connection to the daemon, with `with`."""

    def __init__(self, port: int, *, is_open: bool = False, timeout_s: float = DEADLINE_S) -> None:
        """`is_open` opens the websocket too."""
        self._received = b""
        self.closed_with: int | None = None
        deadline = time.monotonic() + timeout_s
        while True:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
            try:
                if is_open:
                    self.send(http_request())
                    assert b" 101 " in self._take_until(b"\r\n\r\n"), "no websocket was opened"
            except ConnectionError:
                self._socket.close()
                assert time.monotonic() < deadline, "every connection was cut"
                time.sleep(0.05)  # too many in this second
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave without a word."""
        self._socket.close()

    def finish(self) -> None:
        """Send no more, and go on listening."""
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, data: bytes) -> bool:
        """Send raw bytes; False once the daemon has hung up."""
        try:
            self._socket.sendall(data)
        except (ConnectionError, TimeoutError):
            return False
        return True

    def receive_message(self) -> bytes:
        """The payload of the next binary frame; b"" when the daemon closes or hangs up instead, and `closed_with` tells its code."""
        with suppress(ConnectionError):
            head = self._take(2)
            size = head[1] & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", self._take(2))
            data = self._take(size)
            if head[0] & 0x0F != CLOSE:
                return data
            self.closed_with = int.from_bytes(data[:2])
        return b""

    def close_code(self) -> int | None:
        """The code in the daemon's close frame, which must be the next; None if it hangs up without one."""
        assert not self.receive_message(), "the daemon answered"
        return self.closed_with

    def seconds_until_cut(self) -> float:
        """How long the daemon keeps this connection; fails after the socket's timeout."""
        started = time.monotonic()
        with suppress(ConnectionError):
            while self._socket.recv(65536):
                pass
        return time.monotonic() - started

    def is_cut(self, within_s: float = 0.0) -> bool:
        """Whether the daemon has hung up."""
        self._socket.settimeout(within_s or 1e-6)
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True
        except (TimeoutError, BlockingIOError):
            return False
        finally:
            self._socket.settimeout(15.0)

    def _take(self, count: int) -> bytes:
        while len(self._received) < count:
            self._read_more()
        data, self._received = self._received[:count], self._received[count:]
        return data

    def _take_until(self, end: bytes) -> bytes:
        while end not in self._received:
            self._read_more()
        return self._take(self._received.index(end) + len(end))

    def _read_more(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError
        self._received += data


class HostileHandshake:
    """The client's side, with any part replaced by what a daemon has to refuse. Left alone, it gets an enrolled `identity` in."""

    def __init__(
        self,
        identity: Identity,
        daemon_static: bytes,
        *,
        head: bytes = bytes(24),
        ek: bytes | None = None,
        ephemeral: bytes | None = None,
        static: bytes | None = None,
    ) -> None:
        """`ephemeral` and `static` are public keys of small order, for which every shared secret is zero."""
        self._identity = identity
        self._daemon_static = daemon_static
        self._head = head
        self._is_static_forged = static is not None
        self._is_ephemeral_forged = ephemeral is not None
        own = KeyPair.from_secret(identity.static_secret)
        self._static = KeyPair(own.secret, static) if static else own
        self._noise = HandshakeState(
            XKPSK3,
            HASH,
            initiator=True,
            prologue=PROLOGUE,
            static=self._static,
            remote_static=daemon_static,
            ephemeral=KeyPair(os.urandom(32), ephemeral) if ephemeral else None,
        )
        self._kem = MLKEM768PrivateKey.generate()
        self._ek = ek or self._kem.public_key().public_bytes_raw()

    def message1(self) -> bytes:
        """Message 1."""
        with _shared_secrets_are_zero(self._is_ephemeral_forged):
            self._message1 = self._noise.write_message(self._head + self._ek)
        return self._message1

    def message3(self, message2: bytes) -> bytes:
        """Message 3, for the daemon's answer."""
        secret = self._kem.decapsulate(self._noise.read_message(message2))
        t = transcript(self._daemon_static, self._message1, message2)
        self._noise.set_psk(derive_psk(secret, self._head[0], bytes(32), t))
        signature = self._identity.sign(b"confide/handshake-id/1", t + self._static.public)
        with _shared_secrets_are_zero(self._is_static_forged):
            return self._noise.write_message(self._identity.public_key + signature + b"{}".ljust(MAX_HELLO, b"\0"))


@contextmanager
def _shared_secrets_are_zero(is_so: bool) -> Iterator[None]:
    """As the daemon would compute them too, if it did not refuse (in this process only, which is the attacker's)."""
    if not is_so:
        yield
        return
    with patch.object(noise, "dh", lambda _secret, _public: bytes(32)):
        yield


def small_order_points() -> list[bytes]:
    """Wycheproof's X25519 public keys that give an all-zero secret, in every encoding it has."""
    return sorted({bytes.fromhex(case["public"]) for case in _cases("x25519_test") if case["shared"] == "00" * 32})


def invalid_kem_keys() -> list[bytes]:
    """Wycheproof's ML-KEM-768 keys of the right length with coefficients over the modulus."""
    keys = (bytes.fromhex(case["ek"]) for case in _cases("mlkem_768_encaps_test.subset") if case["result"] == "invalid")
    return [key for key in keys if len(key) == 1184]


def _cases(name: str) -> Iterator[dict[str, Any]]:
    for group in json.loads((VECTORS / f"{name}.json").read_text())["testGroups"]:
        yield from group["tests"]
