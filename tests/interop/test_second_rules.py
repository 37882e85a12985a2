"""What PROTOCOL.md 6 and 7 call fatal, sent to the real daemon by an enrolled caller: 4401 at once, and not a word (6.7).

Beside it what looks odd and is allowed, so that a daemon which ends everything does not pass.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from tests.interop.bodies import Tally
from tests.interop.frames import BULK, MAX_PAYLOAD, MORE, Frame, Type
from tests.interop.peer import Opened, open_channel
from tests.interop.requests import read_answer
from tests.interop.texts import Identity, Invite
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import running_daemon
from websockets.exceptions import ConnectionClosed

FULL = bytes(MAX_PAYLOAD)
ASK = json.dumps({"op": "nonsense"}).encode()
ATTACH = json.dumps({"op": "attach", "project": "p", "machine": "hand", "proxyVersion": "0"}).encode()
PUT = json.dumps({"op": "put", "project": "p", "path": "memory/a.md", "hash": "0" * 64, "base": 0}).encode()
# A stream that no rule below uses.
LATER = 1001


class Hand:
    """Writes on an open channel what it is told, right or wrong, and reads what comes."""

    def __init__(self, opened: Opened) -> None:
        self.seal = opened.records.seal_plain
        self._socket, self._records = opened.socket, opened.records

    async def raw(self, message: bytes | str) -> None:
        """One websocket message."""
        await self._socket.send(message)

    async def plain(self, plain: bytes) -> bytes:
        """One record with this plaintext; returns its tag."""
        record = self.seal(plain)
        await self.raw(record)
        return record[-16:]

    async def frame(self, kind: Type, stream: int, payload: bytes = b"", flags: int = 0, *, at_least: int = 0) -> bytes:
        """One frame; returns the tag of its record."""
        return await self.plain(Frame(kind, stream, payload, flags).encode(at_least=at_least))

    async def until(self, kind: Type, stream: int) -> Frame:
        """The next such frame, whatever comes before it. Raises ConnectionClosed."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                frame = self._records.open(await self._socket.recv())
                if (frame.type, frame.stream) == (kind, stream):
                    return frame

    @property
    def close_code(self) -> int | None:
        """What the websocket was closed with."""
        return self._socket.close_code


Sent = Callable[[Hand], Awaitable[object]]


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Identity, Invite]]:
    """A caller of a real daemon."""
    with running_daemon(tmp_path_factory.mktemp("rules"), opens_itself=True) as daemon:
        me = Identity.generate()
        daemon.run("device", "add", me.line + " hand")
        yield me, Invite.parse(daemon.invite("nobody"))


@pytest.fixture
async def hand(enrolled: tuple[Identity, Invite]) -> AsyncIterator[Hand]:
    """An open channel."""
    me, daemon = enrolled
    async with open_channel(daemon.url, daemon.static, me) as opened:
        yield Hand(opened)


def plain(kind: int, stream: int, payload: bytes = b"", *, flags: int = 0, length: int | None = None) -> bytes:
    """A plaintext of 256 bytes that need not be right."""
    size = len(payload) if length is None else length
    return (struct.pack(">BBIH", kind, flags, stream, size) + payload).ljust(256, b"\0")


def frames(*given: tuple[Type, int, bytes] | tuple[Type, int, bytes, int]) -> Sent:
    """These frames, one after the other."""

    async def send(hand: Hand) -> None:
        for frame in given:
            await hand.frame(*frame)

    return send


def plaintext(given: bytes) -> Sent:
    """One record with this plaintext."""
    return lambda hand: hand.plain(given)


async def replay(hand: Hand) -> None:
    """The same record twice."""
    record = hand.seal(plain(Type.KEEPALIVE, 0))
    await hand.raw(record)
    await hand.raw(record)


async def changed(hand: Hand) -> None:
    """One bit of a record."""
    record = bytearray(hand.seal(plain(Type.KEEPALIVE, 0)))
    record[100] ^= 1
    await hand.raw(bytes(record))


async def skipped(hand: Hand) -> None:
    """A record that never arrives."""
    hand.seal(plain(Type.KEEPALIVE, 0))
    await hand.plain(plain(Type.KEEPALIVE, 0))


async def answered_then_over(hand: Hand) -> None:
    """1 MiB and more on a stream that gets no more credit, since it was answered."""
    await hand.frame(Type.OPEN, 1, ASK)
    for _ in range((1 << 20) // MAX_PAYLOAD + 1):
        await hand.frame(Type.DATA, 1, FULL)


async def too_many(hand: Hand) -> None:
    """A 65th stream in use."""
    for stream in range(1, 131, 2):
        await hand.frame(Type.OPEN, stream, PUT)


async def end_with(hand: Hand, *, length: int, digest: bytes | None) -> None:
    """A body of four bytes with an END that says something else."""
    await hand.frame(Type.OPEN, 1, PUT)
    tally = Tally()
    tally.add(length, await hand.frame(Type.DATA, 1, b"four"))
    await hand.frame(Type.END, 1, tally.end()[:8] + (digest or tally.end()[8:]))


FATAL: dict[str, Sent] = {
    "6.1 a replayed record": replay,
    "6.1 a changed record": changed,
    "6.1 a record left out": skipped,
    "3.2 a text message": lambda hand: hand.raw("hello"),
    "6.2 padding that is not zero": plaintext(plain(Type.KEEPALIVE, 0)[:-1] + b"\1"),
    "6.2 a length over the record": plaintext(plain(Type.MSG, 0, b"{}", length=300)),
    "6.2 another size": plaintext(bytes(512)),
    "6.7 type 0": plaintext(plain(0, 0)),
    "6.7 type 12": plaintext(plain(12, 0)),
    "6.3 an unknown flag": plaintext(plain(Type.KEEPALIVE, 0, flags=4)),
    "6.3 MORE in a short frame": frames((Type.MSG, 0, b"{}", MORE)),
    "6.3 MORE in DATA": frames((Type.OPEN, 1, PUT), (Type.DATA, 1, FULL, MORE)),
    "6.3 MORE in OPEN": frames((Type.OPEN, 1, FULL, MORE)),
    "6.3 BULK in MSG": frames((Type.MSG, 0, b"{}", BULK)),
    "6.3 BULK in OPEN": frames((Type.OPEN, 1, PUT, BULK)),
    "6.3 BULK in the first frame only": frames((Type.REQ, 1, FULL, MORE | BULK), (Type.REQ, 1, b"{}")),
    "7.1 KEEPALIVE on a stream": frames((Type.KEEPALIVE, 1, b"")),
    "7.1 KEEPALIVE with a payload": frames((Type.KEEPALIVE, 0, b"x")),
    "7.1 MSG on a stream": frames((Type.MSG, 1, b"{}")),
    "7.1 CLOSE on a stream": frames((Type.CLOSE, 1, b"done")),
    "7.1 REQ of the other parity": frames((Type.REQ, 2, ASK)),
    "7.1 REQ on 0": frames((Type.REQ, 0, ASK)),
    "7.1 OPEN of the other parity": frames((Type.OPEN, 2, PUT)),
    "7.1 empty DATA": frames((Type.OPEN, 1, PUT), (Type.DATA, 1, b"")),
    "7.1 END of 39 bytes": frames((Type.OPEN, 1, PUT), (Type.END, 1, bytes(39))),
    "7.1 WINDOW of 3 bytes": frames((Type.WINDOW, 0, bytes(3))),
    "7.1 GOAWAY with 65 bytes": frames((Type.GOAWAY, 0, b"x" * 65)),
    "7.1 CLOSE that is not ASCII": frames((Type.CLOSE, 0, b"\xff")),
    "7.2 RES on a stream not in use": frames((Type.RES, 2, b'{"ok": {}}')),
    "7.2 a stream in use": frames((Type.OPEN, 1, PUT), (Type.REQ, 1, ASK)),
    "7.2 a 65th stream": too_many,
    "7.2 JSON that is none": frames((Type.REQ, 1, b"{")),
    "7.2 JSON of another form": frames((Type.REQ, 1, b'{"no": "op"}')),
    "7.2 a list": frames((Type.REQ, 1, b"[]")),
    "7.2 a lone surrogate": frames((Type.REQ, 1, b'{"op": "attach", "project": "\\ud800"}')),
    "7.4 DATA on a stream not in use": frames((Type.DATA, 1, b"x")),
    "7.4 END on a stream not in use": frames((Type.END, 1, bytes(40))),
    "7.4 RESET on a stream not in use": frames((Type.RESET, 1, b"x")),
    "7.4 DATA after RESET": frames((Type.OPEN, 1, PUT), (Type.RESET, 1, b""), (Type.DATA, 1, b"x")),
    "7.4 another length in END": partial(end_with, length=5, digest=None),
    "7.4 another hash in END": partial(end_with, length=4, digest=bytes(32)),
    "7.5 DATA beyond the credit": answered_then_over,
    "7.5 WINDOW of 0": frames((Type.WINDOW, 0, bytes(4))),
    "7.5 too much credit": frames((Type.WINDOW, 0, struct.pack(">I", (1 << 31) - 1))),
    "7.6 CLOSE inside a message": frames((Type.MSG, 0, FULL, MORE), (Type.CLOSE, 0, b"done")),
    "7.6 CLOSE inside a body": frames((Type.OPEN, 1, PUT), (Type.CLOSE, 0, b"done")),
}


async def after_an_error(hand: Hand) -> None:
    """The body of an OPEN that was answered goes on for a while, and ends with RESET."""
    await hand.frame(Type.OPEN, 1, ASK)
    await hand.until(Type.RES, 1)
    await hand.frame(Type.DATA, 1, b"x")
    await hand.frame(Type.RESET, 1, b"cancelled")


FINE: dict[str, Sent] = {
    "6.2 more padding than needed": lambda hand: hand.frame(Type.KEEPALIVE, 0, at_least=16384),
    "6.3 others between the frames of a message": frames(
        (Type.MSG, 0, b" " * MAX_PAYLOAD, MORE),
        (Type.REQ, 1, b" " * MAX_PAYLOAD, MORE | BULK),
        (Type.KEEPALIVE, 0, b""),
        (Type.REQ, 3, ASK),
        (Type.MSG, 0, b"{}"),
        (Type.REQ, 1, ASK, BULK),
    ),
    "7.2 stream numbers in no order": frames((Type.REQ, 9, ASK), (Type.REQ, 3, ASK)),
    "7.4 a body given up": frames((Type.OPEN, 1, PUT), (Type.DATA, 1, b"x"), (Type.RESET, 1, b"cancelled")),
    "7.4 a body that goes on after an error": after_an_error,
    "7.4 an empty body": frames((Type.OPEN, 1, PUT), (Type.END, 1, Tally().end())),
    "7.6 requests after GOAWAY": frames((Type.GOAWAY, 0, b"restart"), (Type.REQ, 1, ASK)),
}


@pytest.mark.parametrize("rule", FATAL)
async def test_fatal(hand: Hand, rule: str) -> None:
    """Closed with 4401, without CLOSE."""
    with suppress(ConnectionClosed):  # closed while we were still sending
        await FATAL[rule](hand)
    with pytest.raises(ConnectionClosed):
        await hand.until(Type.CLOSE, 0)
    assert hand.close_code == 4401


@pytest.mark.parametrize("rule", FINE)
async def test_fine(hand: Hand, rule: str) -> None:
    """The session goes on: it answers what is asked next, and ends with CLOSE."""
    await FINE[rule](hand)
    await hand.frame(Type.REQ, LATER, ATTACH)
    assert read_answer((await hand.until(Type.RES, LATER)).payload)["project"] == "p"
    await hand.frame(Type.CLOSE, 0, b"done")
    await hand.until(Type.CLOSE, 0)
