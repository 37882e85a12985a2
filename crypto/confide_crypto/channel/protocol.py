"""The encrypted channel: records, frames, padding, rekeying, continued messages, streams, closing
(PROTOCOL.md 6 and 7). No I/O.

It turns received records into events, and messages into records to send. Use one object per
connection, in one event loop. Any error of the peer ends the channel at once: since TCP keeps
order, loss, replay and reordering can only be an attack or a bug.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from confide_crypto.channel.streams import Streams, StreamViolation
from confide_crypto.errors import ConnectionLost, ProtocolViolation
from confide_crypto.handshake.handshake import TransportKeys
from confide_crypto.handshake.noise import TAG_LENGTH, CipherState, NoiseError
from confide_crypto.limits import MAX_MESSAGE, MAX_REASSEMBLY, MAX_RECORDS, MAX_REQUESTS, REKEY_RECORDS

_header: Final = struct.Struct(">BBIH")
_credit: Final = struct.Struct(">I")
HEADER_LENGTH: Final = 8
BUCKETS: Final = (256, 1024, 4096, 16384)
"""Lengths that a record's plaintext is padded to; an observer learns no more than the bucket."""
MAX_PAYLOAD: Final = BUCKETS[-1] - HEADER_LENGTH
RECORD_LENGTHS: Final = frozenset(bucket + TAG_LENGTH for bucket in BUCKETS)
WELCOME_BUCKET: Final = 1024
"""Least bucket of the daemon's first record, so that its size does not distinguish a denial from a
welcome.
"""
WELCOME_STREAM: Final = 0
MORE: Final = 1
BULK: Final = 2
_MAX_CODE: Final = 64
_ZEROS: Final = bytes(BUCKETS[-1])


class FrameType(IntEnum):
    """The type of a frame, the unit of data in an encrypted record (PROTOCOL.md 7.1)."""

    OPEN = 1
    DATA = 2
    END = 3
    WINDOW = 4
    RESET = 5
    REQ = 6
    RES = 7
    KEEPALIVE = 8
    GOAWAY = 9
    CLOSE = 10
    MSG = 11


_OPEN, _DATA, _END, _WINDOW, _RESET, _REQ, _RES, _KEEPALIVE, _GOAWAY, _CLOSE, _MSG = (
    int(kind) for kind in FrameType
)  # plain ints: an enum lookup per record costs more than the seal of a small one


class MessageReceived(NamedTuple):
    """Event: the peer sent a complete JSON-RPC message, in one or more MSG frames.

    It is a tuple because creating a frozen dataclass takes three times as long.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """Event: the peer sent a complete request (REQ).

    The answer must be sent on `stream`. If `is_bulk` is true, interactive messages may be sent
    before it.
    """

    stream: int
    data: bytes
    is_bulk: bool = False


@dataclass(frozen=True, slots=True)
class BodyOpened:
    """Event: the peer sent a request whose body follows on `stream` (OPEN)."""

    stream: int
    data: bytes


class Data(NamedTuple):
    """Event: a piece of the body on `stream` arrived (DATA). Its bytes reduce the peer's credit
    until this end grants them again.
    """

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BodyEnded:
    """Event: the body on `stream` is complete (END)."""

    stream: int


@dataclass(frozen=True, slots=True)
class WasReset:
    """Event: the peer gave up sending the body on `stream` (RESET)."""

    stream: int
    code: str


@dataclass(frozen=True, slots=True)
class CreditGranted:
    """Event: the peer allows more bytes to be sent on `stream`, or on all streams together if it is
    0 (WINDOW).
    """

    stream: int


@dataclass(frozen=True, slots=True)
class AnswerReceived:
    """Event: the peer answered our request on `stream` (RES). On stream 0 it is the daemon's
    welcome or its refusal.
    """

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Event: the peer is still connected and had nothing else to send (KEEPALIVE)."""


@dataclass(frozen=True, slots=True)
class GoAway:
    """Event: the peer accepts no new requests and will close the session (GOAWAY)."""

    code: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Event: the peer will send no more frames (CLOSE)."""

    code: str


Event = (
    MessageReceived
    | RequestReceived
    | AnswerReceived
    | BodyOpened
    | Data
    | BodyEnded
    | WasReset
    | CreditGranted
    | KeepAlive
    | GoAway
    | Closed
)


class Channel:
    """An encrypted session after the handshake: it encrypts outgoing frames and decrypts incoming
    records.
    """

    def __init__(self, keys: TransportKeys, *, initiator: bool) -> None:
        self.session_id = keys.session_id
        self.is_initiator = initiator
        self._sending = keys.sending
        self._receiving = keys.receiving
        self._own_parity = 1 if initiator else 0
        self._next_stream = 1 if initiator else 2
        self._awaiting: set[int] = {WELCOME_STREAM} if initiator else set()
        self._answering: set[int] = set() if initiator else {WELCOME_STREAM}
        self._partial: dict[tuple[int, int], list[bytes]] = {}
        self._partial_bytes = 0
        self._unfinished_out: set[tuple[int, int]] = set()
        self.outgoing = Streams()
        """The streams that this end has opened."""
        self.incoming = Streams()
        """The streams that the peer has opened."""
        self._close_sent = False
        self._is_dead = False
        self.is_complete = False
        """True once the peer's CLOSE was received, so that none of its data is missing."""

    # -- out ------------------------------------------------------------------------------------------------------

    def seal(
        self,
        kind: int,
        stream: int,
        payload: bytes,
        *,
        more: bool = False,
        bulk: bool = False,
        bucket: int = BUCKETS[0],
    ) -> bytes:
        """Encrypt one frame into a record; write it to the socket before you seal the next one.

        Args:
            kind: a `FrameType` other than DATA, END, WINDOW, RESET and CLOSE, which have their own
                methods.
            stream: 0, or the stream of a request.
            payload: at most `MAX_PAYLOAD` bytes; exactly that many if `more` is set.
            more: True if the message continues in the next frame of this kind and stream.
            bulk: for a request, True if interactive messages may be sent before its answer.
            bucket: the least length of the padded plaintext in bytes.

        Raises ConnectionLost if the channel is closed or has failed.
        """
        self._require_open()
        if more or kind != _MSG or self._unfinished_out:
            self._note_sent(kind, stream, more=more)
        return self._seal(kind, more | BULK if bulk else more, stream, payload, bucket)

    def seal_data(self, stream: int, piece: bytes) -> bytes:
        """Encrypt a piece of a body, of at most `MAX_PAYLOAD` bytes and no more than
        `outgoing.credit_of(stream)`.

        Raises ConnectionLost if the channel is closed; StreamViolation if the stream is not open or
        has less credit.
        """
        self._require_open()
        note_tag = self.outgoing.spend(stream, len(piece))
        record = self._seal(_DATA, 0, stream, piece)
        note_tag(record[-TAG_LENGTH:])
        return record

    def seal_end(self, stream: int) -> bytes:
        """Encrypt the END frame, which says that the body on `stream` is complete.

        Raises ConnectionLost if the channel is closed; StreamViolation if the stream is not open.
        """
        self._require_open()
        return self._seal(_END, 0, stream, self.outgoing.end(stream))

    def seal_reset(self, stream: int, code: str) -> bytes:
        """Encrypt the RESET frame, which gives up the body on `stream`.

        Raises ConnectionLost if the channel is closed; StreamViolation if the stream is not open.
        """
        self._require_open()
        self.outgoing.reset(stream)
        return self._seal(_RESET, 0, stream, _word(code))

    def seal_window(self, stream: int, amount: int) -> bytes:
        """Encrypt the WINDOW frame, which lets the peer send `amount` more bytes on its `stream`,
        or on all its streams together if `stream` is 0.

        Raises ConnectionLost if the channel is closed; StreamViolation if there is no such stream.
        """
        self._require_open()
        self.incoming.grant(stream, amount)
        return self._seal(_WINDOW, 0, stream, _credit.pack(amount))

    def _require_open(self) -> None:
        if self._close_sent or self._is_dead:
            raise ConnectionLost(truncated=False)

    def _seal(self, kind: int, flags: int, stream: int, payload: bytes, bucket: int = BUCKETS[0]) -> bytes:
        length = len(payload)
        plaintext = _header.pack(kind, flags, stream, length) + payload
        if length != MAX_PAYLOAD:
            for size in BUCKETS:
                if length <= size - HEADER_LENGTH and size >= bucket:
                    break
            else:
                raise ValueError("a frame's payload has at most 16376 bytes")
            plaintext = plaintext.ljust(size, b"\0")
        try:
            record = self._sending.encrypt(plaintext)
        except NoiseError as error:
            raise ConnectionLost(truncated=True, problem=str(error)) from None
        if not self._sending.nonce % REKEY_RECORDS:
            _turn_over(self._sending)
        return record

    def open_request(self) -> int:
        """Return the number of a new stream for a request (REQ or OPEN).

        If an earlier request was answered before its body was complete, reset that body before you
        seal frames of the new request.

        Raises ValueError if as many streams are in use as the peer accepts; then wait for an answer
        first.
        """
        if len(self._awaiting) >= MAX_REQUESTS:
            raise ValueError("too many unanswered requests")
        stream = self._next_stream
        self._next_stream += 2
        self._awaiting.add(stream)
        return stream

    def abandon_request(self, stream: int) -> None:
        """Release the stream of a request of which no frame was sent."""
        self._awaiting.discard(stream)

    def is_in_use(self, stream: int) -> bool:
        """Return True while our request on `stream` waits for its answer, or its body is not yet
        ended.
        """
        return stream in self._awaiting or stream in self.outgoing

    def seal_close(self, code: str) -> bytes:
        """Encrypt the CLOSE frame, the last record that this end sends.

        Raises ConnectionLost if the channel is already closed, or if a message or a body is only
        partly sent: a CLOSE would wrongly state that everything was sent.
        """
        self._require_open()
        if self._unfinished_out or self.outgoing.open_streams:
            raise ConnectionLost(truncated=True)
        record = self._seal(_CLOSE, 0, 0, _word(code))
        self._close_sent = True
        return record

    def _note_sent(self, kind: int, stream: int, *, more: bool) -> None:
        if more:
            self._unfinished_out.add((kind, stream))
            return
        self._unfinished_out.discard((kind, stream))
        if kind == _RES:
            self._answering.discard(stream)
            self.incoming.answer(stream)
        elif kind == _OPEN:
            self.outgoing.open(stream)

    # -- in -------------------------------------------------------------------------------------------------------

    def receive(self, record: bytes) -> Event | None:
        """Decrypt a record and return its event, or None if a continued message is not complete
        yet.

        Raises ProtocolViolation if the record is not authentic or breaks a rule; then the channel
        has failed.
        """
        if self._is_dead or self.is_complete:
            raise self._violation("a record after the end")
        if len(record) not in RECORD_LENGTHS:
            raise self._violation("a record of a wrong length")
        try:
            plaintext = self._receiving.decrypt(record)
        except NoiseError:
            raise self._violation("a record that is not authentic") from None
        if not self._receiving.nonce % REKEY_RECORDS:
            _turn_over(self._receiving)
        kind, flags, stream, length = _header.unpack_from(plaintext)
        end = HEADER_LENGTH + length
        if end > len(plaintext) or plaintext[end:] != _ZEROS[: len(plaintext) - end]:
            raise self._violation("a malformed frame")
        payload = plaintext[HEADER_LENGTH:end]
        if kind == _DATA and not flags:
            return self._data(stream, payload, record[-TAG_LENGTH:])
        return self._frame(kind, flags, stream, payload)

    def _data(self, stream: int, payload: bytes, tag: bytes) -> Data:
        try:
            self.incoming.spend(stream, len(payload))(tag)
        except StreamViolation as problem:
            raise self._violation(str(problem)) from None
        return Data(stream, payload)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> Event | None:
        if kind == _MSG and stream == 0 and flags <= MORE:
            data = payload if not flags and not self._partial else self._join(kind, flags, stream, payload)
            return None if data is None else MessageReceived(data)
        if kind == _RES and stream in self._awaiting and flags <= MORE:
            return self._answer(flags, stream, payload)
        if kind == _REQ and flags <= MORE | BULK:
            return self._request(flags, stream, payload)
        if flags:
            raise self._violation("a frame that does not belong here")
        if kind <= _RESET:
            try:
                return self._stream_frame(kind, stream, payload)
            except StreamViolation as problem:
                raise self._violation(str(problem)) from None
        if stream or len(payload) > _MAX_CODE or not payload.isascii():
            raise self._violation("a frame that does not belong here")
        if kind == _KEEPALIVE and not payload:
            return KeepAlive()
        if kind == _GOAWAY:
            return GoAway(payload.decode("ascii"))
        if kind == _CLOSE:
            if self._partial or self.incoming.open_streams:
                raise self._violation("a goodbye in the middle of a message")
            self.is_complete = True
            return Closed(payload.decode("ascii"))
        raise self._violation("a frame that does not belong here")

    def _stream_frame(self, kind: int, stream: int, payload: bytes) -> Event:
        if kind == _END:
            self.incoming.check_end(stream, payload)
            return BodyEnded(stream)
        if kind == _WINDOW and len(payload) == _credit.size:
            self.outgoing.grant(stream, _credit.unpack(payload)[0])
            return CreditGranted(stream)
        if kind == _OPEN:
            self._begin_request(stream)
            self.incoming.open(stream)
            return BodyOpened(stream, payload)
        if kind == _RESET and len(payload) <= _MAX_CODE and payload.isascii():
            self.incoming.reset(stream)
            return WasReset(stream, payload.decode("ascii"))
        raise self._violation("a frame that does not belong here")

    def _answer(self, more: int, stream: int, payload: bytes) -> Event | None:
        data = self._join(_RES, more, stream, payload)
        if data is None:
            return None
        self._awaiting.discard(stream)
        self.outgoing.answer(stream)
        return AnswerReceived(stream, data)

    def _request(self, flags: int, stream: int, payload: bytes) -> Event | None:
        # A request begun without BULK is another message than one with BULK, which then finds its
        # stream in use.
        kind = _REQ | (flags & BULK) << 8
        if (kind, stream) not in self._partial:
            self._begin_request(stream)
        data = self._join(kind, flags & MORE, stream, payload)
        return None if data is None else RequestReceived(stream, data, is_bulk=bool(flags & BULK))

    def _begin_request(self, stream: int) -> None:
        is_theirs = stream != 0 and stream & 1 != self._own_parity
        is_used = stream in self._answering or stream in self.incoming
        if not is_theirs or is_used or len(self._answering) + self.incoming.answered_early >= MAX_REQUESTS:
            raise self._violation("a request that does not belong here")
        self._answering.add(stream)

    def _join(self, kind: int, more: int, stream: int, payload: bytes) -> bytes | None:
        if more and len(payload) != MAX_PAYLOAD:
            raise self._violation(
                "a continued frame that is not full"
            )  # tiny pieces would take more memory than their content
        pieces = self._partial.get((kind, stream))
        if pieces is None:
            if not more:
                return payload
            pieces = self._partial.setdefault((kind, stream), [])
        pieces.append(payload)
        self._partial_bytes += len(payload)
        if MAX_PAYLOAD * (len(pieces) - 1) + len(payload) > MAX_MESSAGE or self._partial_bytes > MAX_REASSEMBLY:
            raise self._violation("a message over the limit")
        if more:
            return None
        del self._partial[kind, stream]
        data = b"".join(pieces)
        self._partial_bytes -= len(data)
        return data

    def _violation(self, problem: str) -> ProtocolViolation:
        self._is_dead = True
        self._partial.clear()
        self._sending.kill()
        self._receiving.kill()
        return ProtocolViolation(f"the peer broke the protocol: {problem}")


def _word(code: str) -> bytes:
    return code.encode("ascii", "replace")[:_MAX_CODE]


def _turn_over(cipher: CipherState) -> None:
    """Change the key after 2^14 records, and end after 2^32 (a multiple)."""
    if cipher.nonce >= MAX_RECORDS:
        cipher.kill()
    else:
        cipher.rekey()
