"""Two channels without any I/O, and somebody on the wire between them who drops, reorders, repeats, edits, reflects and cuts.

Both ends say everything that a session can say: messages of any length, requests, answers, bodies under credit, keepalives, the end.
What arrives is a prefix of what was sent, and nothing at all after the first thing that was not right. `CONFIDE_THOROUGH=1` draws a
thousand such sessions where the suite draws sixty.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.crypto.channels import shake_hands

from confide_crypto.channel.protocol import (
    MAX_PAYLOAD,
    AnswerReceived,
    BodyEnded,
    BodyOpened,
    Channel,
    Closed,
    CreditGranted,
    Data,
    Event,
    FrameType,
    KeepAlive,
    MessageReceived,
    RequestReceived,
    WasReset,
)
from confide_crypto.errors import ConnectionLost, ProtocolViolation
from confide_crypto.handshake.handshake import TransportKeys
from confide_crypto.handshake.noise import CipherState
from confide_crypto.limits import CONNECTION_CREDIT, MAX_CREDIT, MAX_REASSEMBLY, MAX_REQUESTS, STREAM_CREDIT

RUNS = 1000 if os.environ.get("CONFIDE_THOROUGH") == "1" else 60
ENDS = st.sampled_from([0, 1])
SIZES = st.sampled_from([0, 1, 248, 249, 5000, MAX_PAYLOAD, MAX_PAYLOAD + 1, 2 * MAX_PAYLOAD])


class Watched(CipherState):
    """A cipher that tells with which key and nonce it sealed, and fails the run if one comes again."""

    __slots__ = ("used",)

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.used: set[tuple[bytes, int]] = set()

    def encrypt(self, plaintext: bytes, ad: bytes | None = None) -> bytes:
        place = (self._key, self.nonce)
        record = super().encrypt(plaintext, ad)
        assert place not in self.used, "a nonce was used twice under one key"
        self.used.add(place)
        return record


@dataclass(slots=True)
class Half:
    """One end: its channel, what it sent as the other ought to see it, and what came out of it."""

    channel: Channel
    sent: list[Event] = field(default_factory=list)
    got: list[Event] = field(default_factory=list)
    wire: deque[bytes] = field(default_factory=deque)
    """Records on their way from here, in order."""
    seen: list[bytes] = field(default_factory=list)
    """All records from here, in order."""
    taken: int = 0
    """How many of them the peer has taken."""
    writing: list[tuple[FrameType, int, bytes, int]] = field(default_factory=list)
    """Long messages under way: kind, stream, data, bytes sent."""
    asked: set[int] = field(default_factory=set)
    """The peer's streams that wait for an answer from here."""
    granted: int = 0
    is_dead: bool = False
    has_closed: bool = False


def under_attack(machine: Adversary) -> bool:
    """Whether there is somebody on the wire in this run."""
    return machine.is_attacked


class Adversary(RuleBasedStateMachine):
    """The session, and everything that may happen to it."""

    halves: tuple[Half, ...] = ()
    is_attacked = False

    @initialize(is_attacked=st.booleans())
    def open(self, is_attacked: bool) -> None:
        """Half of the runs are left in peace, so that they get deep into a session."""
        self.is_attacked = is_attacked
        ends = []
        for side, initiator in zip(shake_hands(), (True, False), strict=True):
            keys = side.finish()
            watched = TransportKeys(Watched(keys.sending._key), keys.receiving, keys.session_id)
            ends.append(Half(Channel(watched, initiator=initiator)))
        self.halves = tuple(ends)
        self.emit(1, AnswerReceived(0, b"{}"), self.halves[1].channel.seal(FrameType.RES, 0, b"{}", bucket=1024))

    def emit(self, end: int, event: Event | None, record: bytes) -> None:
        half = self.halves[end]
        half.wire.append(record)
        half.seen.append(record)
        if event is not None:
            half.sent.append(event)

    def can_send(self, end: int) -> Half | None:
        half = self.halves[end]
        if not half.is_dead and not half.has_closed:
            return half
        for kind in (FrameType.MSG, FrameType.KEEPALIVE):
            try:
                half.channel.seal(kind, 0, b"")
            except ConnectionLost:
                continue
            raise AssertionError("an end that is over has sent something")
        return None

    # -- what the two ends do -------------------------------------------------------------------------------------

    @rule(end=ENDS, size=SIZES)
    def say(self, end: int, size: int) -> None:
        half = self.can_send(end)
        if half is None or any(kind is FrameType.MSG for kind, *_ in half.writing):
            return
        self._begin(end, FrameType.MSG, 0, self._text(half, size))

    @rule(end=ENDS, size=SIZES, bulk=st.booleans())
    def ask(self, end: int, size: int, bulk: bool) -> None:
        half = self.can_send(end)
        if half is not None and len(half.channel._awaiting) < MAX_REQUESTS:
            self._begin(end, FrameType.REQ, half.channel.open_request(), self._text(half, size), bulk=bulk)

    @rule(end=ENDS, size=SIZES, place=st.integers(0, 63))
    def answer(self, end: int, size: int, place: int) -> None:
        half = self.can_send(end)
        if half is not None and half.asked:
            stream = sorted(half.asked)[place % len(half.asked)]
            half.asked.discard(stream)
            self._begin(end, FrameType.RES, stream, self._text(half, size))

    @rule(end=ENDS)
    def open_body(self, end: int) -> None:
        half = self.can_send(end)
        if half is not None and len(half.channel._awaiting) < MAX_REQUESTS:
            stream = half.channel.open_request()
            data = self._text(half, 20)
            self.emit(end, BodyOpened(stream, data), half.channel.seal(FrameType.OPEN, stream, data))

    @rule(end=ENDS, place=st.integers(0, 63), size=SIZES, count=st.sampled_from([1, 2, 70]))
    def send_body(self, end: int, place: int, size: int, count: int) -> None:
        """Once in a while all that the credit allows."""
        half = self.can_send(end)
        if half is None or not half.channel.outgoing.open_streams:
            return
        unfinished = half.channel.outgoing.open_streams
        stream = unfinished[place % len(unfinished)]
        for _ in range(count):
            piece = self._text(half, max(1, size))[: min(MAX_PAYLOAD, half.channel.outgoing.credit_of(stream))]
            if not piece:
                return
            self.emit(end, Data(stream, piece), half.channel.seal_data(stream, piece))

    @rule(end=ENDS, place=st.integers(0, 63), is_whole=st.booleans())
    def finish_body(self, end: int, place: int, is_whole: bool) -> None:
        half = self.can_send(end)
        if half is None or not half.channel.outgoing.open_streams:
            return
        unfinished = half.channel.outgoing.open_streams
        stream = unfinished[place % len(unfinished)]
        if is_whole:
            self.emit(end, BodyEnded(stream), half.channel.seal_end(stream))
        else:
            self.emit(end, WasReset(stream, "given-up"), half.channel.seal_reset(stream, "given-up"))

    @rule(end=ENDS, place=st.integers(0, 63), amount=st.sampled_from([1, MAX_PAYLOAD, STREAM_CREDIT]))
    def grant(self, end: int, place: int, amount: int) -> None:
        """To one stream and to all, and never so much that it could not be."""
        half = self.can_send(end)
        if half is None:
            return
        wanted = [stream for stream in half.channel.incoming.open_streams if half.channel.incoming.wants_credit(stream)]
        streams = [0, *wanted]
        stream = streams[place % len(streams)]
        if stream == 0:
            amount = min(amount, CONNECTION_CREDIT - half.channel.incoming.credit)  # never more than was taken
            if not amount:
                return
            half.granted += amount
        half.wire.append(half.channel.seal_window(stream, amount))
        half.seen.append(half.wire[-1])

    @rule(end=ENDS)
    def keep_alive(self, end: int) -> None:
        half = self.can_send(end)
        if half is not None:
            self.emit(end, KeepAlive(), half.channel.seal(FrameType.KEEPALIVE, 0, b""))

    @rule(end=ENDS)
    def go_on(self, end: int) -> None:
        """The next records of everything that has begun."""
        half = self.can_send(end)
        if half is not None:
            for place in range(len(half.writing) - 1, -1, -1):
                self._piece(end, place)

    @rule(end=ENDS)
    @precondition(lambda self: any(len(half.seen) > 6 for half in self.halves))
    def close(self, end: int) -> None:
        half = self.can_send(end)
        if half is None:
            return
        if half.writing or half.channel.outgoing.open_streams:  # what is half sent is never called complete
            with pytest.raises(ConnectionLost) as caught:
                half.channel.seal_close("done")
            assert caught.value.truncated
        else:
            self.emit(end, Closed("done"), half.channel.seal_close("done"))
            half.has_closed = True

    def _text(self, half: Half, size: int) -> bytes:
        return (b"%d." % len(half.sent)).ljust(size, b"\xee")[: max(size, 1)]

    def _begin(self, end: int, kind: FrameType, stream: int, data: bytes, *, bulk: bool = False) -> None:
        half = self.halves[end]
        if len(data) <= MAX_PAYLOAD:
            self.emit(end, _event(kind, stream, data, bulk), half.channel.seal(kind, stream, data, bulk=bulk))
            return
        half.writing.append((kind, stream, data, 0))
        self._piece(end, len(half.writing) - 1)

    def _piece(self, end: int, place: int) -> None:
        half = self.halves[end]
        kind, stream, data, done = half.writing[place]
        piece = data[done : done + MAX_PAYLOAD]
        is_last = done + len(piece) == len(data)
        record = half.channel.seal(kind, stream, piece, more=not is_last)
        if is_last:
            del half.writing[place]
        else:
            half.writing[place] = (kind, stream, data, done + len(piece))
        self.emit(end, _event(kind, stream, data, False) if is_last else None, record)

    # -- what the wire does ---------------------------------------------------------------------------------------

    def give(self, end: int, record: bytes) -> None:
        """Offer a record to the peer of `end`: it has to take exactly the one that comes next, as long as it is alive."""
        half, taker = self.halves[end], self.halves[1 - end]
        was_over = taker.is_dead or taker.channel.is_complete
        is_next = half.taken < len(half.seen) and record == half.seen[half.taken]
        try:
            event = taker.channel.receive(record)
        except ProtocolViolation:
            assert was_over or not is_next, "an honest peer's next record was refused"
            taker.is_dead = True
            return
        assert not was_over, "something came out after the end"
        assert is_next, "a record that was not the next one was taken"
        half.taken += 1
        if event is not None and not isinstance(event, CreditGranted):
            taker.got.append(event)
        if isinstance(event, RequestReceived | BodyOpened):
            taker.asked.add(event.stream)

    @rule(end=ENDS, count=st.sampled_from([1, 3, 200]))
    def deliver(self, end: int, count: int) -> None:
        half = self.halves[end]
        for _ in range(min(count, len(half.wire))):
            self.give(end, half.wire.popleft())

    @rule()
    def deliver_everything(self) -> None:
        for end, half in enumerate(self.halves):
            while half.wire:
                self.give(end, half.wire.popleft())

    @rule(end=ENDS)
    @precondition(under_attack)
    def drop(self, end: int) -> None:
        if self.halves[end].wire:
            self.halves[end].wire.popleft()

    @rule(end=ENDS, place=st.integers(1, 200))
    @precondition(under_attack)
    def reorder(self, end: int, place: int) -> None:
        wire = self.halves[end].wire
        if len(wire) > 1:
            place = 1 + place % (len(wire) - 1)
            wire[0], wire[place] = wire[place], wire[0]

    @rule(end=ENDS, place=st.integers(0, 10**6))
    @precondition(under_attack)
    def repeat(self, end: int, place: int) -> None:
        """Any record that was ever sent."""
        seen = self.halves[end].seen
        if seen:
            self.give(end, seen[place % len(seen)])

    @rule(end=ENDS, place=st.integers(0, 10**6), bit=st.integers(0, 7))
    @precondition(under_attack)
    def edit(self, end: int, place: int, bit: int) -> None:
        wire = self.halves[end].wire
        if wire:
            changed = bytearray(wire.popleft())
            changed[place % len(changed)] ^= 1 << bit
            self.give(end, bytes(changed))

    @rule(end=ENDS, length=st.integers(0, 20_000))
    @precondition(under_attack)
    def cut_or_stretch(self, end: int, length: int) -> None:
        wire = self.halves[end].wire
        if wire:
            self.give(end, wire.popleft()[:length].ljust(length, b"\0"))

    @rule(end=ENDS, place=st.integers(0, 10**6))
    @precondition(under_attack)
    def reflect(self, end: int, place: int) -> None:
        """An end's own record back to it."""
        seen = self.halves[end].seen
        if seen:
            self.give(1 - end, seen[place % len(seen)])

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def delivered_is_a_prefix_of_sent(self) -> None:
        for end, half in enumerate(self.halves):
            sent = self.halves[1 - end].sent
            assert half.got == sent[: len(half.got)]

    @invariant()
    def memory_is_bounded(self) -> None:
        for half in self.halves:
            channel = half.channel
            assert sum(len(piece) for pieces in channel._partial.values() for piece in pieces) <= MAX_REASSEMBLY
            taken = sum(len(event.data) for event in half.got if isinstance(event, Data))
            assert taken <= CONNECTION_CREDIT + half.granted
            assert 0 <= channel.incoming.credit <= MAX_CREDIT
            assert len(channel._answering) <= MAX_REQUESTS + 1
            if half.is_dead:
                assert not channel._partial, "a dead channel holds nothing"

    @invariant()
    def a_body_is_whole_or_was_never_ended(self) -> None:
        """END comes only behind exactly the bytes that were sent; without it nothing says that the body is complete."""
        for end, half in enumerate(self.halves):
            sent = self.halves[1 - end].sent
            for stream in {event.stream for event in half.got if isinstance(event, BodyEnded)}:
                assert _body(half.got, stream) == _body(sent, stream)

    @invariant()
    def nothing_is_complete_without_a_goodbye(self) -> None:
        for end, half in enumerate(self.halves):
            if half.channel.is_complete:
                assert half.got == self.halves[1 - end].sent, "all of it has come"
                assert isinstance(half.got[-1], Closed)


def _body(events: list[Event], stream: int) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Data) and event.stream == stream)


def _event(kind: FrameType, stream: int, data: bytes, bulk: bool) -> Event:
    if kind is FrameType.MSG:
        return MessageReceived(data)
    return RequestReceived(stream, data, is_bulk=bulk) if kind is FrameType.REQ else AnswerReceived(stream, data)


TestAdversary = Adversary.TestCase
TestAdversary.settings = settings(max_examples=RUNS, stateful_step_count=80, deadline=None)
