"""Rows of frames between two ends that hold the right keys: what the parser behind the AEAD does with a hostile peer (PROTOCOL.md 6, 7)."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

from confide_crypto.channel.protocol import (
    BUCKETS,
    HEADER_LENGTH,
    MAX_PAYLOAD,
    AnswerReceived,
    BodyOpened,
    Channel,
    Data,
    Event,
    FrameType,
    MessageReceived,
    RequestReceived,
)
from confide_crypto.channel.streams import StreamViolation
from confide_crypto.errors import ConnectionLost, ProtocolViolation
from confide_crypto.handshake.handshake import TransportKeys
from confide_crypto.handshake.noise import CipherState
from confide_crypto.limits import CONNECTION_CREDIT, MAX_CREDIT, MAX_MESSAGE, MAX_REASSEMBLY, MAX_REQUESTS
from fuzz.supply import Supply

_KEY_UP, _KEY_DOWN = bytes(range(32)), bytes(range(32, 64))
_MAX_STEPS = 40
_FULL = bytes(MAX_PAYLOAD)
_OURS = (ConnectionLost, StreamViolation, ValueError)
"""What an end may say to its own program; from the wire only ProtocolViolation may come."""


class End:
    """One channel and what it has been given, so that its promises can be checked after every step."""

    def __init__(self, *, initiator: bool) -> None:
        keys = (_KEY_UP, _KEY_DOWN) if initiator else (_KEY_DOWN, _KEY_UP)
        self.channel = Channel(TransportKeys(CipherState(keys[0]), CipherState(keys[1]), ""), initiator=initiator)
        self.is_dead = False
        self.granted = 0
        self.taken = 0

    def receive(self, record: bytes) -> None:
        """Take a record and check what came of it."""
        try:
            event = self.channel.receive(record)
        except ProtocolViolation:
            self.is_dead = True
        else:
            if self.is_dead:
                raise AssertionError("something came out of a dead channel")
            if event is not None:
                self._check_event(event)
        self._check_bounds()

    def _check_event(self, event: Event) -> None:
        if not isinstance(event, Event):
            raise AssertionError("an event of no known kind")
        if isinstance(event, Data):
            self.taken += len(event.data)
        if (
            isinstance(event, MessageReceived | RequestReceived | AnswerReceived | BodyOpened)
            and len(event.data) > MAX_MESSAGE
        ):
            raise AssertionError("a message over the limit")

    def _check_bounds(self) -> None:
        channel = self.channel
        held = sum(len(piece) for pieces in channel._partial.values() for piece in pieces)
        if held != channel._partial_bytes and not channel._is_dead:
            raise AssertionError("what is held is not counted right")
        if held > MAX_REASSEMBLY + MAX_PAYLOAD:
            raise AssertionError("more is held for reassembly than may be")
        if self.taken > CONNECTION_CREDIT + self.granted or channel.incoming.credit < 0:
            raise AssertionError("more of bodies was taken than was granted")
        if len(channel._answering) > MAX_REQUESTS + 1 or len(channel.incoming._bodies) > MAX_REQUESTS:
            raise AssertionError("more is in use than the limit")
        if channel.outgoing.credit > MAX_CREDIT and not channel._is_dead:
            raise AssertionError("more credit than there can be")
        if self.is_dead:
            with contextlib.suppress(ConnectionLost):
                channel.seal(FrameType.KEEPALIVE, 0, b"")
                raise AssertionError("a dead channel has sealed something")


def frames(data: bytes) -> None:
    """Two ends, and steps that are right, wrong, or raw plaintexts, from either of them."""
    supply = Supply(data)
    client, daemon = End(initiator=True), End(initiator=False)
    client.receive(daemon.channel.seal(FrameType.RES, 0, b"{}", bucket=BUCKETS[1]))
    for _ in range(_MAX_STEPS):
        if not supply:
            return
        choice = supply.number()
        source, target = (daemon, client) if choice & 1 else (client, daemon)
        record = None
        with contextlib.suppress(*_OURS):
            record = _step(supply, choice >> 1, source)
        if record is not None:
            target.receive(record)


def _step(supply: Supply, choice: int, source: End) -> bytes | None:
    channel = source.channel
    stream = supply.number() % 16
    match choice % 16:
        case 0:
            channel.open_request()
            return None
        case 1:
            return channel.seal(FrameType.REQ, channel.open_request(), _payload(supply), bulk=bool(stream & 1))
        case 2:
            return channel.seal(FrameType.OPEN, channel.open_request(), _payload(supply))
        case 3:
            return channel.seal_data(stream, _payload(supply))
        case 4:
            return channel.seal_end(stream)
        case 5:
            return channel.seal_reset(stream, "done")
        case 6:
            amount = supply.number(supply.choice((1, 2, 4)))
            record = channel.seal_window(stream, amount)
            source.granted += amount if stream == 0 else 0
            return record
        case 7:
            return channel.seal(FrameType.RES, stream, _payload(supply))
        case 8:
            return channel.seal(FrameType.MSG, 0, _payload(supply))
        case 9:
            return channel.seal(FrameType.MSG, 0, _FULL, more=True)
        case 10:
            return channel.seal_close("done")
        case 11 | 12 | 13:  # a frame of any kind, flags and stream, well formed
            kind, flags = supply.number() % 14, supply.number() % 5
            return _sealed(channel, _frame(kind, flags, stream, _payload(supply)))
        case 14:  # a damaged frame
            plaintext = _frame(supply.number() % 14, supply.number() % 4, stream, _payload(supply))
            return _sealed(channel, supply_edit(supply, plaintext))
        case _:
            return _sealed(channel, supply.take(supply.number() + 1).ljust(BUCKETS[0], b"\0"))


def supply_edit(supply: Supply, plaintext: bytes) -> bytes:
    """A few edits only, so that bytes are left for the steps that follow."""
    return Supply(supply.take(4 * (1 + supply.number() % 3))).edited(plaintext)


def _payload(supply: Supply) -> bytes:
    match supply.number() % 8:
        case 0:
            return _FULL
        case 1:
            return _FULL[: supply.number(2) % (MAX_PAYLOAD + 1)]
        case 2:
            return struct.pack(">I", supply.number(4))
        case 3:
            return struct.pack(">Q", supply.number(2)) + bytes(32)
        case 4:
            return b'{"op":"put"}'
        case 5:
            return b"x" * (supply.number() % 70)
        case _:
            return supply.take(supply.number() % 64)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    plaintext = struct.pack(">BBIH", kind, flags, stream, len(payload)) + payload
    return plaintext.ljust(next(size for size in BUCKETS if size >= len(plaintext)), b"\0")


def _sealed(channel: Channel, plaintext: bytes) -> bytes:
    """A record that the channel itself would not make."""
    channel._require_open()
    return channel._sending.encrypt(plaintext)


def seeds() -> Iterator[bytes]:
    """One of each step, whole sessions, and the frozen vectors' frames as raw ones."""
    from fuzz.corpus import frozen_sessions

    steps = [bytes([kind << 1 | side, 1 + side, 4]) for kind in range(11) for side in (0, 1)]
    yield from steps
    yield b"".join(steps)
    for flags in range(5):
        for kind in range(14):
            yield bytes([11 << 1, 1, kind, flags, 0])
            yield bytes([2 << 1, 0, 4, 11 << 1, 1, kind, flags, 5, 3])
    # A body: OPEN on 1, three pieces, END; its answer; the goodbye.
    yield bytes([2 << 1, 0, 4, *([3 << 1, 1, 0] * 3), 4 << 1, 1, 7 << 1 | 1, 1, 4, 10 << 1, 0, 10 << 1 | 1, 0])
    for is_daemons, row in frozen_sessions():
        yield b"".join(
            bytes([15 << 1 | is_daemons, 0, max(len(p), 1) - 1]) + (p or b"\0") for p in row if len(p) <= 256
        )
    yield bytes([14 << 1, 0, 11, 0, 4, 2, 0, 0, 9, 1])


assert struct.calcsize(">BBIH") == HEADER_LENGTH
