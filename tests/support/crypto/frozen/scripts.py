"""A session from one end's view, step by step: frames that it gets from a peer with the right keys, and what it does itself.

As a vector, a step is one of

    {"get": {"type", "flags", "stream", "payload"}, "times": n, "events": […]}     a frame, n times over
    {"get": {…, "length": n, "size": n, "tail": hex}}                              one with a false header, size or end
    {"do": [method of Channel, arguments…], "record": hex or hash}                 a record of its own

`payload` is hex, or [hex of one byte, count]; `events` and long records stand as their first bytes and BLAKE2b-256.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Final

from tests.support.crypto.frozen.fixed import DOWN_KEY, UP_KEY, Case

from confide_crypto.channel.protocol import BUCKETS, Channel, Event, FrameType
from confide_crypto.errors import ProtocolViolation
from confide_crypto.handshake.handshake import TransportKeys
from confide_crypto.handshake.noise import CipherState

_SHOWN: Final = 600


def channel(end: str) -> tuple[Channel, CipherState]:
    """The end under test, and the cipher of its peer."""
    is_client = end == "client"
    own, theirs = (UP_KEY, DOWN_KEY) if is_client else (DOWN_KEY, UP_KEY)
    keys = TransportKeys(CipherState(own), CipherState(theirs), "00" * 16)
    return Channel(keys, initiator=is_client), CipherState(theirs)


def plaintext(frame: dict[str, Any]) -> bytes:
    """What a `get` means."""
    payload = unpacked(frame["payload"])
    length = frame.get("length", len(payload))
    made = struct.pack(">BBIH", frame["type"], frame["flags"], frame["stream"], length) + payload
    size = frame.get("size") or next(bucket for bucket in BUCKETS if bucket >= len(made))
    tail = bytes.fromhex(frame.get("tail", ""))
    return made.ljust(size - len(tail), b"\0") + tail


def packed(data: bytes) -> Any:
    """Hex, or one byte and its count."""
    return [data[:1].hex(), len(data)] if len(data) > 80 and data == data[:1] * len(data) else data.hex()


def unpacked(data: Any) -> bytes:
    """The other way round."""
    return bytes.fromhex(data[0]) * data[1] if isinstance(data, list) else bytes.fromhex(data)


def shown(data: bytes) -> str:
    """Bytes in full, or by their hash."""
    return data.hex() if len(data) <= _SHOWN else "blake2b-256:" + hashlib.blake2b(data, digest_size=32).hexdigest()


_NAMES: Final = {
    "MessageReceived": "Message",
    "RequestReceived": "Request",
    "BodyOpened": "Opened",
    "BodyEnded": "Ended",
    "CreditGranted": "Granted",
    "AnswerReceived": "Answer",
}
"""Events that had another name when the vectors were frozen."""


def told(event: Event | None) -> list[Any] | None:
    """An event as it stands in a vector: its class and its fields in order."""
    if event is None:
        return None
    names = getattr(event, "_fields", None) or event.__slots__  # type: ignore[union-attr]
    values = [getattr(event, name) for name in names]
    name = type(event).__name__
    return [_NAMES.get(name, name), *(shown(value) if isinstance(value, bytes) else value for value in values)]


def perform(end: Channel, action: list[Any]) -> Any:
    """Do what a `do` says: words stay words, other text is hex."""
    method, *arguments = action
    if method not in ("seal_reset", "seal_close"):
        arguments = [bytes.fromhex(value) if isinstance(value, str) else value for value in arguments]
    return getattr(end, method)(*arguments)


class Script:
    """Writes a case while it is played."""

    def __init__(self, end: str) -> None:
        self.end = end
        self.channel, self._peer = channel(end)
        self._tags: dict[int, tuple[int, bytes]] = {}
        self.steps: list[dict[str, Any]] = []
        self.is_over = False

    def get(
        self,
        kind: FrameType | int,
        stream: int = 0,
        payload: bytes = b"",
        flags: int = 0,
        *,
        times: int = 1,
        **damage: Any,
    ) -> Script:
        """A frame from the peer."""
        frame = {"type": int(kind), "flags": flags, "stream": stream, "payload": packed(payload), **damage}
        step: dict[str, Any] = {"get": frame} | ({"times": times} if times > 1 else {})
        events = []
        for _ in range(times):
            record = self._peer.encrypt(plaintext(frame))
            if kind == FrameType.DATA:
                length, tags = self._tags.get(stream, (0, b""))
                self._tags[stream] = length + len(payload), tags + record[-16:]
            try:
                events.append(told(self.channel.receive(record)))
            except ProtocolViolation:
                self.is_over = True
        if not self.is_over:
            step["events"] = events if times == 1 else [events[-1]]
        self.steps.append(step)
        return self

    def seal_of(self, stream: int) -> bytes:
        """What END has to carry, by the document: length, and BLAKE2b-256 of the tags."""
        length, tags = self._tags.get(stream, (0, b""))
        return struct.pack(">Q", length) + hashlib.blake2b(tags, digest_size=32).digest()

    def whole(self, stream: int) -> Script:
        """The right END."""
        return self.get(FrameType.END, stream, self.seal_of(stream))

    def do(self, method: str, *arguments: Any) -> Script:
        """Something of our own; the arguments as in JSON, bytes as hex."""
        done = perform(self.channel, [method, *arguments])
        step: dict[str, Any] = {"do": [method, *arguments]}
        if isinstance(done, bytes):
            step["record"] = shown(done)
        self.steps.append(step)
        return self

    def opened(self, payload: bytes = b'{"op":"put"}') -> Script:
        """Our own OPEN."""
        self.do("open_request")
        stream = self.channel._next_stream - 2
        return self.do("seal", int(FrameType.OPEN), stream, payload.hex())

    def case(self, section: str, name: str, error: str | None = None) -> Case:
        """The vector. The script must have ended as `error` says."""
        if self.is_over != (error is not None):
            raise AssertionError(f"{name}: is {'refused' if self.is_over else 'taken'}")
        return {"name": name, "section": section, "end": self.end, "steps": self.steps, "error": error}
