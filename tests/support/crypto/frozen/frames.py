"""Every rule about records and frames: sessions that keep it, and one that breaks it (PROTOCOL.md 6.2, 6.3, 7.1 to 7.6)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tests.support.crypto.frozen.fixed import Case
from tests.support.crypto.frozen.scripts import Script

from confide_crypto.channel.protocol import MAX_PAYLOAD, FrameType
from confide_crypto.limits import CONNECTION_CREDIT, MAX_CREDIT, MAX_REQUESTS, STREAM_CREDIT

OPEN, DATA, END, WINDOW, RESET, REQ, RES, KEEPALIVE, GOAWAY, CLOSE, MSG = FrameType
FULL = bytes(MAX_PAYLOAD)
ASK = b'{"op":"put"}'
_VIOLATION = "ProtocolViolation"


def daemon() -> Script:
    """A daemon that has sent its welcome."""
    return Script("daemon").do("seal", int(RES), 0, b"{}".hex())


def client() -> Script:
    """A client that has got it."""
    return Script("client").get(RES, 0, b"{}", size=1024)


def frames() -> Iterator[Case]:
    """All of them."""
    yield from _good()
    for section, name, script in (
        *_records(),
        *_continued(),
        *_types(),
        *_requests(),
        *_bodies(),
        *_credit(),
        *_ends(),
    ):
        yield script.case(section, name, _VIOLATION)


def u32(number: int) -> bytes:
    return struct.pack(">I", number)


def _good() -> Iterator[Case]:
    yield daemon().get(MSG, 0, b"{}").get(MSG).get(KEEPALIVE).get(GOAWAY, 0, b"restart").case("7.1", "plain frames")
    yield daemon().get(REQ, 1, ASK).do("seal", int(RES), 1, b'{"ok":{}}'.hex()).get(REQ, 3, ASK).case("7.2", "requests")
    yield daemon().get(REQ, 1, ASK, flags=2).case("6.3", "a request that lets others go first")
    yield (
        daemon().get(MSG, 0, FULL, 1).get(REQ, 5, FULL, 3).get(KEEPALIVE).get(MSG, 0, b"end").get(REQ, 5, b"", 2)
    ).case("6.3", "two continued messages, one within the other")
    yield daemon().get(MSG, 0, FULL, 1, times=1024).get(MSG, 0, bytes(8192)).case("6.3", "the greatest message, 16 MiB")
    yield (
        client()
        .do("open_request")
        .do("seal", int(REQ), 1, ASK.hex())
        .get(RES, 1, b'{"ok":{}}')
        .case("7.2", "an answer")
    )
    body = daemon().get(OPEN, 1, ASK).get(DATA, 1, b"one").get(MSG, 0, b"{}").get(DATA, 1, b"two")
    yield body.whole(1).do("seal", int(RES), 1, b'{"ok":{}}'.hex()).case("7.4", "a body, with a message in it")
    yield daemon().get(OPEN, 1, ASK).whole(1).case("7.4", "an empty body")
    yield (
        daemon()
        .get(OPEN, 1, ASK)
        .get(DATA, 1, FULL, times=64)
        .get(DATA, 1, bytes(512))
        .whole(1)
        .case("7.5", "all credit")
    )
    yield (
        daemon().get(OPEN, 1, ASK).get(DATA, 1, FULL, times=64).get(DATA, 1, bytes(512))
        .do("seal_window", 1, 3).do("seal_window", 0, 3).get(DATA, 1, b"abc").whole(1)
    ).case("7.5", "credit given back")  # fmt: skip
    yield (
        daemon().get(OPEN, 1, ASK).get(DATA, 1, b"x").do("seal", int(RES), 1, b"{}".hex()).get(DATA, 1, b"late")
        .get(RESET, 1, b"answered").get(OPEN, 1, ASK)
    ).case("7.4", "an early answer, the reset, and the stream's next use")  # fmt: skip
    two = daemon().get(OPEN, 1, ASK).get(OPEN, 3, ASK).get(DATA, 3, b"b").get(DATA, 1, b"a")
    yield two.whole(1).get(RESET, 3, b"cancelled").case("7.4", "two bodies, one whole and one given up")
    own = client().opened().do("seal_data", 1, b"abc".hex()).get(WINDOW, 1, u32(5)).get(WINDOW, 0, u32(1))
    yield own.do("seal_data", 1, b"de".hex()).do("seal_end", 1).get(RES, 1, b'{"ok":{}}').case("7.4", "a body of ours")
    yield (
        client()
        .opened()
        .do("seal_data", 1, b"abc".hex())
        .do("seal_reset", 1, "cancelled")
        .get(RES, 1, b"{}")
        .case("7.4", "a body of ours given up")
    )
    yield (
        client()
        .get(WINDOW, 0, u32(MAX_CREDIT - CONNECTION_CREDIT))
        .case("7.5", "the greatest credit of the connection")
    )
    yield (
        client().opened().get(WINDOW, 1, u32(MAX_CREDIT - STREAM_CREDIT)).case("7.5", "the greatest credit of a stream")
    )
    many = daemon()
    for number in range(MAX_REQUESTS):
        many.get(OPEN if number % 2 else REQ, 2 * number + 1, ASK)
    yield many.case("7.2", "as many streams as may be")
    yield daemon().get(MSG, 0, b"{}").get(CLOSE, 0, b"done").do("seal_close", "done").case("7.6", "the end")
    yield daemon().get(OPEN, 1, ASK).whole(1).get(CLOSE, 0, b"x" * 64).case("7.6", "the end behind a whole body")


_Rows = Iterator[tuple[str, str, Script]]


def _records() -> _Rows:
    yield "6.2", "padding not zero at its start", daemon().get(MSG, 0, b"{}", length=1)
    yield "6.2", "padding not zero at its end", daemon().get(MSG, 0, b"{}", tail="01")
    yield "6.2", "a length over the record", daemon().get(MSG, 0, b"", length=249)
    yield "6.2", "a length over the greatest record", daemon().get(MSG, 0, FULL, length=16377)
    for size in (255, 257, 512, 8192, 16385):
        yield "6.2", f"a plaintext of {size} bytes", daemon().get(KEEPALIVE, size=size)


def _continued() -> _Rows:
    for kind in (OPEN, DATA, END, WINDOW, RESET, KEEPALIVE, GOAWAY, CLOSE):
        started = daemon() if kind == OPEN else daemon().get(OPEN, 1, ASK)
        stream = {OPEN: 1, DATA: 1, END: 1, RESET: 1}.get(kind, 0)
        payload = {OPEN: ASK, DATA: b"x", END: started.seal_of(1), WINDOW: u32(1)}.get(kind, b"")
        yield "6.3", f"MORE on {kind.name}", started.get(kind, stream, payload, 1)
    for kind in (OPEN, DATA, END, WINDOW, RESET, RES, KEEPALIVE, GOAWAY, CLOSE, MSG):
        started = client().do("open_request").do("seal", int(REQ), 1, ASK.hex()) if kind == RES else daemon()
        if kind in (DATA, END, RESET):
            started.get(OPEN, 1, ASK)
        stream = {OPEN: 1, DATA: 1, END: 1, RESET: 1, RES: 1}.get(kind, 0)
        payload = {OPEN: ASK, DATA: b"x", END: started.seal_of(1), WINDOW: u32(1)}.get(kind, b"")
        yield "6.3", f"BULK on {kind.name}", started.get(kind, stream, payload, 2)
    for flags in (4, 128, 255):
        yield "6.3", f"flags {flags}", daemon().get(MSG, 0, b"{}", flags)
        yield "6.3", f"flags {flags} on a request", daemon().get(REQ, 1, ASK, flags)
    yield "6.3", "a continued frame that is not full", daemon().get(MSG, 0, FULL[:-1], 1)
    yield "6.3", "a continued frame that is empty", daemon().get(REQ, 1, b"", 1)
    yield "6.3", "BULK only in the first frame", daemon().get(REQ, 1, FULL, 3).get(REQ, 1, b"end")
    yield "6.3", "BULK only in the last frame", daemon().get(REQ, 1, FULL, 1).get(REQ, 1, b"end", 2)
    yield "6.3", "a message over 16 MiB", daemon().get(MSG, 0, FULL, 1, times=1024).get(MSG, 0, bytes(8193))
    over = daemon().get(MSG, 0, FULL, 1, times=1024).get(REQ, 1, FULL, 1, times=1024)
    yield "6.3", "unfinished messages over 32 MiB", over.get(REQ, 3, FULL, 1).get(REQ, 5, FULL, 1)


def _types() -> _Rows:
    for kind in (0, 12, 255):
        yield "7.1", f"type {kind}", daemon().get(kind)
    for kind in (KEEPALIVE, GOAWAY, CLOSE, MSG):
        yield "7.1", f"{kind.name} on a stream", daemon().get(kind, 1)
    yield "7.1", "KEEPALIVE with content", daemon().get(KEEPALIVE, 0, b"x")
    for kind in (GOAWAY, CLOSE):
        yield "7.1", f"{kind.name} with a word of 65 bytes", daemon().get(kind, 0, b"x" * 65)
        yield "7.1", f"{kind.name} with a word beyond ASCII", daemon().get(kind, 0, b"\xe4")
    yield "7.1", "RESET with a word of 65 bytes", daemon().get(OPEN, 1, ASK).get(RESET, 1, b"x" * 65)
    yield "7.1", "RESET with a word beyond ASCII", daemon().get(OPEN, 1, ASK).get(RESET, 1, b"\xe4")
    yield "7.1", "empty DATA", daemon().get(OPEN, 1, ASK).get(DATA, 1)
    for length in (0, 3, 5):
        yield "7.1", f"WINDOW of {length} bytes", daemon().get(WINDOW, 0, bytes(length - 1) + b"\1" if length else b"")
    for length in (0, 39, 41):
        yield "7.1", f"END of {length} bytes", daemon().get(OPEN, 1, ASK).get(END, 1, bytes(length))
    for kind in (OPEN, REQ):
        yield "7.1", f"{kind.name} on stream 0", daemon().get(kind, 0, ASK)
        yield "7.1", f"{kind.name} of the daemon's parity at the daemon", daemon().get(kind, 2, ASK)
        yield "7.1", f"{kind.name} of the client's parity at the client", client().get(kind, 1, ASK)


def _requests() -> _Rows:
    asked = b'{"op":"pull"}'
    for first in (OPEN, REQ):
        for second in (OPEN, REQ):
            yield (
                "7.2",
                f"{second.name} on a stream in use by {first.name}",
                daemon().get(first, 1, ASK).get(second, 1, asked),
            )
    started = daemon().get(REQ, 1, FULL, 1)
    yield "7.2", "OPEN on a stream in use by an unfinished REQ", started.get(OPEN, 1, ASK)
    for last in (OPEN, REQ):
        many = daemon()
        for number in range(MAX_REQUESTS):
            many.get(REQ if number % 2 else OPEN, 2 * number + 1, ASK)
        yield "7.2", f"{last.name} beyond 64 in use", many.get(last, 2 * MAX_REQUESTS + 1, ASK)
    early = daemon()
    for number in range(MAX_REQUESTS):
        stream = 2 * number + 1
        early.get(OPEN, stream, ASK).do("seal", int(RES), stream, b"{}".hex())
    yield "7.4", "OPEN beyond 64 that are answered but not ended", early.get(OPEN, 2 * MAX_REQUESTS + 1, ASK)
    yield "7.2", "RES that nobody asked for", client().get(RES, 1, b"{}")
    yield "7.2", "RES on the peer's own stream", client().get(REQ, 2, ASK).get(RES, 2, b"{}")
    asking = client().do("open_request").do("seal", int(REQ), 1, ASK.hex())
    yield "7.2", "a second RES", asking.get(RES, 1, b"{}").get(RES, 1, b"{}")
    yield "4.7", "a second welcome", client().get(RES, 0, b"{}")
    yield "4.7", "a welcome from the client", daemon().get(RES, 0, b"{}")


def _bodies() -> _Rows:
    for kind in (DATA, END, RESET):
        payload = {DATA: b"x", END: daemon().seal_of(1)}.get(kind, b"")
        yield "7.4", f"{kind.name} on a stream not in use", daemon().get(kind, 1, payload)
        yield "7.4", f"{kind.name} on the stream of a REQ", daemon().get(REQ, 1, ASK).get(kind, 1, payload)
        yield "7.4", f"{kind.name} on stream 0", daemon().get(kind, 0, payload)
        yield "7.4", f"{kind.name} after END", daemon().get(OPEN, 1, ASK).whole(1).get(kind, 1, payload)
        yield "7.4", f"{kind.name} after RESET", daemon().get(OPEN, 1, ASK).get(RESET, 1).get(kind, 1, payload)
        yield "7.4", f"{kind.name} on our own body", client().opened().get(kind, 1, payload)
    for name, change in _wrong_ends():
        script = (
            daemon().get(OPEN, 1, ASK).get(OPEN, 3, ASK).get(DATA, 1, b"one").get(DATA, 3, b"x").get(DATA, 1, b"two")
        )
        yield "7.4", f"END {name}", script.get(END, 1, change(script))


def _wrong_ends() -> Iterator[tuple[str, Any]]:
    yield "with a length too small", lambda script: struct.pack(">Q", 5) + script.seal_of(1)[8:]
    yield "with a length too great", lambda script: struct.pack(">Q", 7) + script.seal_of(1)[8:]
    yield "with a changed hash", lambda script: script.seal_of(1)[:-1] + bytes([script.seal_of(1)[-1] ^ 1])
    yield "of another body", lambda script: script.seal_of(3)
    yield "of an empty body", lambda script: Script("daemon").seal_of(1)


def _credit() -> _Rows:
    def used() -> Script:
        return daemon().get(OPEN, 1, ASK).get(DATA, 1, FULL, times=64).get(DATA, 1, bytes(512))

    yield "7.5", "DATA beyond the credit of its stream", used().get(DATA, 1, b"x")
    started = daemon().get(OPEN, 1, ASK).get(DATA, 1, FULL, times=64)
    yield "7.5", "DATA that is in part beyond the credit", started.get(DATA, 1, bytes(513))
    everything = daemon()
    for stream in range(1, 17, 2):
        everything.get(OPEN, stream, ASK).get(DATA, stream, FULL, times=64).get(DATA, stream, bytes(512))
    yield "7.5", "DATA beyond the credit of the connection", everything.get(OPEN, 17, ASK).get(DATA, 17, b"x")
    yield (
        "7.5",
        "DATA beyond a stream's credit, with credit for the connection",
        used().do("seal_window", 0, 9).get(DATA, 1, b"x"),
    )
    yield "7.5", "WINDOW of 0 for the connection", client().get(WINDOW, 0, u32(0))
    yield "7.5", "WINDOW of 0 for a stream", client().opened().get(WINDOW, 1, u32(0))
    over = u32(MAX_CREDIT - CONNECTION_CREDIT + 1)
    yield "7.5", "WINDOW that lifts the connection's credit over 2^31 - 1", client().get(WINDOW, 0, over)
    over = u32(MAX_CREDIT - STREAM_CREDIT + 1)
    yield "7.5", "WINDOW that lifts a stream's credit over 2^31 - 1", client().opened().get(WINDOW, 1, over)
    yield "7.5", "WINDOW of 2^32 - 1", client().opened().get(WINDOW, 1, b"\xff" * 4)
    yield "7.1", "WINDOW for a stream that we have not opened", client().get(WINDOW, 1, u32(1))
    yield "7.1", "WINDOW for the peer's own stream", daemon().get(OPEN, 1, ASK).get(WINDOW, 1, u32(1))
    done = client().opened().do("seal_end", 1).get(RES, 1, b"{}")
    yield "7.1", "WINDOW for a stream that is through", done.get(WINDOW, 1, u32(1))
    asking = client().do("open_request").do("seal", int(REQ), 1, ASK.hex())
    yield "7.1", "WINDOW for the stream of a REQ", asking.get(WINDOW, 1, u32(1))


def _ends() -> _Rows:
    yield "7.6", "CLOSE inside a message", daemon().get(MSG, 0, FULL, 1).get(CLOSE, 0, b"done")
    yield "7.6", "CLOSE inside a request", daemon().get(REQ, 1, FULL, 1).get(CLOSE, 0, b"done")
    yield "7.6", "CLOSE inside a body", daemon().get(OPEN, 1, ASK).get(DATA, 1, b"x").get(CLOSE, 0, b"done")
    early = daemon().get(OPEN, 1, ASK).do("seal", int(RES), 1, b"{}".hex())
    yield "7.6", "CLOSE inside a body that was answered", early.get(CLOSE, 0, b"done")
    for kind in (MSG, KEEPALIVE, CLOSE):
        yield "7.6", f"{kind.name} after CLOSE", daemon().get(CLOSE, 0, b"done").get(kind)
