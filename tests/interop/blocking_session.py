"""An open channel of either end (PROTOCOL.md 6 and 7), one thread, one event at a time.

The caller asks for the next event, and may send between two of them. Nothing is sent on its own but credit, so everything here
happens in the order in which it stands in a test.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.interop.blocking_streams import Asked, EndedError, Event, Given
from tests.interop.blocking_wire import (
    BULK,
    MORE,
    PAYLOAD_BYTES,
    Frame,
    Joiner,
    Records,
    RuleBrokenError,
    Type,
    pack,
    unpack,
)
from websockets.exceptions import ConnectionClosed
from websockets.sync.connection import Connection

CONNECTION_CREDIT = 8 << 20
GREATEST_CREDIT = (1 << 31) - 1
AT_ONCE = 64
FIRST_RECORD_BYTES = 1024
DEADLINE_S = 30.0
_OPENED = (Type.DATA, Type.END, Type.RESET)


class Session:
    """`parity` is 1 for the client, 2 for the daemon: its first stream number."""

    def __init__(self, socket: Connection, records: Records, session_id: str, parity: int) -> None:
        self.records = records
        self.session_id = session_id
        self._socket = socket
        self._parity = parity
        self._next = parity
        self._asked: dict[int, Asked] = {}
        self._given: dict[int, Given] = {}
        self._joiner = Joiner()
        self._credit = CONNECTION_CREDIT
        self._given_credit = CONNECTION_CREDIT
        self._aside: list[Event] = []
        self.on_request: Callable[[Session, Event], Any] | None = None
        self.frames_in: dict[Type, int] = dict.fromkeys(Type, 0)

    # Sending

    def send(self, kind: Type, stream: int = 0, payload: bytes = b"", *, flags: int = 0, at_least: int = 0) -> bytes:
        """One frame; returns the tag of its record."""
        return self.send_plain(pack(Frame(kind, stream, payload, flags), at_least=at_least))

    def send_plain(self, plain: bytes) -> bytes:
        """One record of any plaintext; returns its tag."""
        record = self.records.seal(plain)
        self.send_raw(record)
        return record[-16:]

    def send_raw(self, record: bytes | str) -> None:
        """One websocket message as it is."""
        try:
            self._socket.send(record)
        except ConnectionClosed:
            raise EndedError(None) from None

    def send_message(self, kind: Type, stream: int, data: bytes, *, flags: int = 0, at_least: int = 0) -> None:
        """One MSG, REQ or RES of any length (6.3)."""
        while len(data) > PAYLOAD_BYTES:
            self.send(kind, stream, data[:PAYLOAD_BYTES], flags=flags | MORE)
            data = data[PAYLOAD_BYTES:]
        self.send(kind, stream, data, flags=flags, at_least=at_least)

    def ask(
        self,
        op: str,
        parameters: dict[str, Any],
        body: bytes | None = None,
        *,
        bulk: bool = False,
        gives_up: bool = False,
    ) -> Any:
        """A request, with a body as a stream where one is given, ended by RESET if `gives_up`; waits for its answer.

        Raises:
            EndedError: the connection ended before it.
        """
        stream = self._next
        self._next += 2
        asked = self._asked[stream] = Asked(has_body=body is not None)
        data = json.dumps({"op": op, **parameters}, ensure_ascii=False).encode()
        if body is None:
            self.send_message(Type.REQ, stream, data, flags=BULK if bulk else 0)
        else:
            self.send(Type.OPEN, stream, data)
            self._send_body(stream, asked, body, gives_up=gives_up)
        return self.wait_for(lambda event: event.type is Type.RES and event.stream == stream).json

    def _send_body(self, stream: int, asked: Asked, body: bytes, *, gives_up: bool) -> None:
        sent = 0
        while sent < len(body):
            room = min(asked.credit, self._credit, PAYLOAD_BYTES)
            if not room:
                self._aside += self._step()
                if any(event.type is Type.RES and event.stream == stream for event in self._aside):
                    self.send(Type.RESET, stream, b"cancelled")
                    asked.ended = True
                    self._asked.pop(stream)
                    return
                continue
            piece = body[sent : sent + room]
            asked.tally.add(self.send(Type.DATA, stream, piece), len(piece))
            asked.credit -= len(piece)
            self._credit -= len(piece)
            sent += len(piece)
        if gives_up:
            self.send(Type.RESET, stream, b"cancelled")
        else:
            self.send(Type.END, stream, asked.tally.payload())
        asked.ended = True

    def answer(self, stream: int, result: dict[str, Any], *, at_least: int = 0) -> None:
        """The RES to a request of the other end."""
        given = self._given[stream]
        given.answered = True
        self.send_message(Type.RES, stream, json.dumps(result).encode(), at_least=at_least)
        if given.ended or not given.has_body:
            del self._given[stream]

    # Receiving

    def wait_for(self, wanted: Callable[[Event], bool]) -> Event:
        """The first event of this kind. Requests are answered meanwhile where there is an `on_request`; others are kept for `next_event`.

        Raises:
            EndedError, RuleBrokenError: as `next_event`.
        """
        kept: list[Event] = []
        while True:
            for event in self._aside:
                if wanted(event):
                    self._aside.remove(event)
                    self._aside = kept + self._aside
                    return event
            arrived, self._aside = self._aside, []
            for event in arrived:
                if event.type is Type.REQ and self.on_request:
                    self.answer(event.stream, self.on_request(self, event))
                else:
                    kept.append(event)
            self._aside += self._step()

    def next_event(self) -> Event:
        """The next whole message.

        Raises:
            EndedError: there is none: CLOSE, or truncated.
            RuleBrokenError: the other end broke a rule; the websocket is closed with 4401 (6.7).
            TimeoutError: none came within 30 s.
        """
        while not self._aside:
            self._aside = self._step()
        return self._aside.pop(0)

    def _step(self) -> list[Event]:
        try:
            record = self._socket.recv(timeout=DEADLINE_S)
        except ConnectionClosed:
            raise EndedError(None) from None
        try:
            if not isinstance(record, bytes):
                raise RuleBrokenError("a text message")
            frame = unpack(*self.records.open(record))
            self.frames_in[frame.type] += 1
            return self._take(frame)
        except RuleBrokenError:
            self._socket.close(4401)
            raise

    def _take(self, frame: Frame) -> list[Event]:
        match frame.type:
            case Type.CLOSE:
                self._end(frame)
            case Type.WINDOW:
                self._lift(frame)
            case Type.OPEN:
                self._begin(frame.stream, Given(has_body=True, request=frame.payload))
            case Type.DATA | Type.END | Type.RESET:
                return self._take_body(frame)
            case Type.REQ | Type.RES | Type.MSG:
                return self._take_message(frame)
            case Type.KEEPALIVE | Type.GOAWAY:
                return [Event(frame.type, 0, frame.payload)]
        return []

    def _take_message(self, frame: Frame) -> list[Event]:
        starts = self._joiner.starts(frame)
        if frame.type is Type.REQ and starts:
            self._begin(frame.stream, Given(has_body=False))
        if frame.type is Type.RES and frame.stream not in self._asked:
            raise RuleBrokenError("a RES on a stream not in use")
        data = self._joiner.add(frame)
        if data is None:
            return []
        event = Event(frame.type, frame.stream, data)
        if frame.type is Type.RES:
            asked = self._asked[frame.stream]
            if asked.has_body and not asked.ended and "ok" in event.json:
                raise RuleBrokenError("an ok before END")
            if asked.ended or not asked.has_body:
                del self._asked[frame.stream]
        return [event]

    def _take_body(self, frame: Frame) -> list[Event]:
        given = self._given.get(frame.stream)
        if given is None or not given.has_body or given.ended:
            raise RuleBrokenError("a body on a stream that has none")
        if frame.type is Type.DATA:
            self._take_data(frame, given)
            return []
        given.ended = True
        if given.answered:
            del self._given[frame.stream]
        elif frame.type is Type.RESET:
            self.answer(frame.stream, {"error": {"code": "cancelled", "message": "given up", "hint": None}})
        elif frame.payload != given.tally.payload():
            raise RuleBrokenError("an END that is not that of the DATA")
        else:
            return [Event(Type.REQ, frame.stream, given.request, bytes(given.body))]
        return []

    def _take_data(self, frame: Frame, given: Given) -> None:
        size = len(frame.payload)
        given.credit -= size
        self._given_credit -= size
        if given.credit < 0 or self._given_credit < 0:
            raise RuleBrokenError("DATA beyond the credit")
        given.tally.add(frame.tag, size)
        given.consumed += size
        self._given_credit += size
        self.send(Type.WINDOW, 0, struct.pack(">I", size))
        if not given.answered:
            given.body += frame.payload
            given.credit += size
            self.send(Type.WINDOW, frame.stream, struct.pack(">I", size))

    def _begin(self, stream: int, given: Given) -> None:
        if not stream or stream % 2 == self._parity % 2 or stream in self._given or len(self._given) >= AT_ONCE:
            raise RuleBrokenError("a stream number")
        self._given[stream] = given

    def _lift(self, frame: Frame) -> None:
        (more,) = struct.unpack(">I", frame.payload)
        if not more:
            raise RuleBrokenError("a WINDOW of 0")
        if not frame.stream:
            self._credit += more
            if self._credit > GREATEST_CREDIT:
                raise RuleBrokenError("too much credit")
        elif asked := self._asked.get(frame.stream):
            asked.credit += more
            if not asked.has_body or asked.credit > GREATEST_CREDIT:
                raise RuleBrokenError("credit")

    def expect_first_res(self) -> None:
        """Let the daemon's first record come in: a RES on stream 0 (4.7)."""
        self._asked[0] = Asked(has_body=False)

    def expect_any_res(self, below: int) -> None:
        """Let answers come in on every stream of ours below this number, though `ask` has not opened them."""
        self._asked |= {stream: Asked(has_body=False) for stream in range(self._parity, below, 2)}

    def skip_streams(self, to: int) -> None:
        """Use stream numbers from here on for what `ask` asks."""
        self._next = to + self._parity % 2

    def use_stream_0(self) -> None:
        """Let the daemon's own first record go out."""
        self._given[0] = Given(has_body=False)

    # The end

    def _end(self, frame: Frame) -> None:
        if not self._joiner.is_empty or any(given.has_body and not given.ended for given in self._given.values()):
            raise RuleBrokenError("a CLOSE inside a message or a body")
        with suppress(EndedError):
            self.send(Type.CLOSE, 0, b"done")
        self._socket.close(1000)
        raise EndedError(frame.payload.decode("ascii"))

    @property
    def close_code(self) -> int | None:
        """What the websocket was closed with; None while it is open."""
        return self._socket.close_code

    def close(self, word: bytes = b"done") -> str | None:
        """CLOSE, and the word in the other end's; None if it sent none."""
        self.send(Type.CLOSE, 0, word)
        try:
            while True:
                record = self._socket.recv(timeout=DEADLINE_S)
                assert isinstance(record, bytes)
                frame = unpack(*self.records.open(record))
                if frame.type is Type.CLOSE:
                    return frame.payload.decode("ascii")
        except ConnectionClosed:
            return None
        finally:
            self._socket.close(1000)
