"""What PROTOCOL.md 6 and 7 call fatal, sent to the real daemon by an enrolled caller: 4401 at once, and not a word (6.7).

Beside it what looks odd and is allowed, so that a daemon which ends everything does not pass.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from tests.interop.blocking_handshake import Identity, Invite
from tests.interop.blocking_peer import PeerClient
from tests.interop.blocking_session import Session
from tests.interop.blocking_streams import EndedError
from tests.interop.blocking_wire import BULK, MORE, PAYLOAD_BYTES, Tally, Type
from tests.support.programs import running_daemon

FULL = bytes(PAYLOAD_BYTES)
ASK = json.dumps({"op": "nonsense"}).encode()
PUT = json.dumps({"op": "put", "project": "p", "path": "memory/a.md", "hash": "0" * 64, "base": 0}).encode()
Sent = Callable[[Session], object]


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Identity, Invite]]:
    """A caller of a real daemon."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as daemon:
        identity, invite = Identity(), Invite.parse(daemon.invite("stranger"))
        with PeerClient(invite.url, identity, invite.daemon_static, invite) as session:
            session.close()
        yield identity, invite


@pytest.fixture
def client(enrolled: tuple[Identity, Invite]) -> Iterator[PeerClient]:
    """An open session."""
    identity, invite = enrolled
    with PeerClient(invite.url, identity, invite.daemon_static) as session:
        yield session


def plain(kind: int, stream: int, payload: bytes = b"", *, flags: int = 0, length: int | None = None) -> bytes:
    """A plaintext of 256 bytes that need not be right."""
    size = len(payload) if length is None else length
    return (struct.pack(">BBIH", kind, flags, stream, size) + payload).ljust(256, b"\0")


def frames(*given: tuple[Type, int, bytes] | tuple[Type, int, bytes, int]) -> Sent:
    """These frames, one after the other."""

    def send(session: Session) -> None:
        for kind, stream, payload, *flags in given:
            session.send(kind, stream, payload, flags=flags[0] if flags else 0)

    return send


def plaintext(given: bytes) -> Sent:
    """One record with this plaintext."""
    return lambda session: session.send_plain(given)


def replay(session: Session) -> None:
    """The same record twice."""
    record = session.records.seal(plain(Type.KEEPALIVE, 0))
    session.send_raw(record)
    session.send_raw(record)


def changed(session: Session) -> None:
    """One bit of a record."""
    record = bytearray(session.records.seal(plain(Type.KEEPALIVE, 0)))
    record[100] ^= 1
    session.send_raw(bytes(record))


def skipped(session: Session) -> None:
    """A record that never arrives."""
    session.records.seal(plain(Type.KEEPALIVE, 0))
    session.send_raw(session.records.seal(plain(Type.KEEPALIVE, 0)))


def answered_then_over(session: Session) -> None:
    """1 MiB and one byte on a stream that gets no more credit, since it was answered."""
    session.send(Type.OPEN, 1, ASK)
    for _ in range((1 << 20) // PAYLOAD_BYTES):
        session.send(Type.DATA, 1, FULL)
    session.send(Type.DATA, 1, FULL)


def too_many(session: Session) -> None:
    """A 65th stream in use."""
    for stream in range(1, 131, 2):
        session.send(Type.OPEN, stream, PUT)


def text(session: Session) -> None:
    """A text message."""
    session.send_raw("hello")


def end_with(session: Session, *, length: int, digest: bytes | None) -> None:
    """A body of four bytes with an END that says something else."""
    session.send(Type.OPEN, 1, PUT)
    tally = Tally()
    tally.add(session.send(Type.DATA, 1, b"four"), length)
    session.send(Type.END, 1, tally.payload()[:8] + (digest or tally.payload()[8:]))


FATAL: dict[str, Sent] = {
    "6.1 a replayed record": replay,
    "6.1 a changed record": changed,
    "6.1 a record left out": skipped,
    "3.2 a text message": text,
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


def after_an_error(session: Session) -> None:
    """The body of an OPEN that was answered goes on for a while, and ends with RESET."""
    session.send(Type.OPEN, 1, ASK)
    session.wait_for(lambda event: event.type is Type.RES and event.stream == 1)
    session.send(Type.DATA, 1, b"x")
    session.send(Type.RESET, 1, b"cancelled")


FINE: dict[str, Sent] = {
    "6.2 more padding than needed": lambda session: session.send(Type.KEEPALIVE, at_least=16384),
    "6.3 others between the frames of a message": frames(
        (Type.MSG, 0, b" " * PAYLOAD_BYTES, MORE),
        (Type.REQ, 1, b" " * PAYLOAD_BYTES, MORE | BULK),
        (Type.KEEPALIVE, 0, b""),
        (Type.REQ, 3, ASK),
        (Type.MSG, 0, b"{}"),
        (Type.REQ, 1, ASK, BULK),
    ),
    "7.2 stream numbers in no order": frames((Type.REQ, 9, ASK), (Type.REQ, 3, ASK)),
    "7.4 a body given up": frames((Type.OPEN, 1, PUT), (Type.DATA, 1, b"x"), (Type.RESET, 1, b"cancelled")),
    "7.4 a body that goes on after an error": after_an_error,
    "7.4 an empty body": frames((Type.OPEN, 1, PUT), (Type.END, 1, Tally().payload())),
    "7.6 requests after GOAWAY": frames((Type.GOAWAY, 0, b"restart"), (Type.REQ, 1, ASK)),
}


def the_end(session: Session) -> tuple[int | None, str | None]:
    """Close code and the word of CLOSE, whatever comes before."""
    while True:
        try:
            session.next_event()
        except EndedError as end:
            return session.close_code, end.word


@pytest.mark.parametrize("rule", FATAL)
def test_fatal(client: PeerClient, rule: str) -> None:
    """Closed with 4401, without CLOSE."""
    client.expect_any_res(130)
    with suppress(EndedError):  # closed while we were still sending
        FATAL[rule](client)
    assert the_end(client) == (4401, None)


@pytest.mark.parametrize("rule", FINE)
def test_fine(client: PeerClient, rule: str) -> None:
    """The session goes on: it answers what is asked next, and ends with CLOSE."""
    client.expect_any_res(130)
    FINE[rule](client)
    client.skip_streams(130)
    wanted = {"project": "p", "machine": "stranger", "proxyVersion": "0", "toolsets": ["core"]}
    assert client.ask("attach", wanted)["ok"]["project"] == "p"
    assert client.close() is not None
