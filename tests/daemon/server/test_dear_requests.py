"""The list of tests/attacks.md, section 5, as requests of one live read-only caller: each is paid for or refused before anything is made of
it, and another caller is answered meanwhile.

Nothing is timed: what counts is what is parsed, what the caller's bucket has left, and that the other one's answer comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.clock import Clock
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S

from confide_crypto.channel.protocol import FrameType
from confide_crypto.channel.request_codec import decode_request
from confide_crypto.errors import ConnectionLost, RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.limits import MAX_MESSAGE, MAX_REQUEST
from confide_crypto.transport import inbox
from confide_daemon.server.rates import ANSWERED_BYTES, BURST, CONNECTION, REQUESTS_PER_S

WHOLE: Final = MAX_MESSAGE - 64
RECORD: Final = 16 * 1024
NUMBER: Final = b'{"op":"compare","a":%s}'
TEXT: Final = b'{"op":"compare","a":"%s"}'
REFUSED: Final[dict[str, tuple[bytes, str]]] = {
    "brackets in a text": (TEXT % (b"[" * WHOLE), "too_large"),
    "commas in a text": (TEXT % (b"," * WHOLE), "too_large"),
    "no large one's name": (b'{"op":"nothing","a":"%s"}' % (b"x" * MAX_REQUEST), "too_large"),
    "its name with an escape": (b'{"op":"com\\u0070are","a":"%s"}' % (b"x" * MAX_REQUEST), "too_large"),
    "its name in capitals": (b'{"OP":"compare","a":"%s"}' % (b"x" * MAX_REQUEST), "too_large"),
    "blanks alone": (b'{"op":"nothing"%s}' % (b" " * WHOLE), "too_large"),
}
"""Before a parser sees them."""
JUDGED: Final[dict[str, tuple[bytes, str, float]]] = {
    "escapes": (TEXT % (b"\\u0041" * (WHOLE // 6)), "invalid", 1024),
    "a float": (NUMBER % (b"0." + b"1" * WHOLE), "invalid", 1024),
    "blanks": (b'{"op":"compare"%s}' % (b" " * WHOLE), "invalid", 1024),
    "the name of a large one deeper inside": (
        b'{"op":"nothing","a":{"op":"compare"},"b":"%s"}' % (b"x" * MAX_REQUEST),
        "unavailable",
        64,
    ),
    "the name twice": (b'{"op":"compare","b":"%s","op":"nothing"}' % (b"x" * MAX_REQUEST), "unavailable", 64),
    "objects of one member": (NUMBER % (b"[" + b'{"a":1},' * 15_000 + b"0]"), "invalid", 59),
    "a kilobyte of brackets": (NUMBER % (b"[" * 490 + b"]" * 490), "invalid", 1),
    "what changes something": (
        b'{"op":"put","project":"proj","path":"memory/a.md","text":"x","hash":"%s","base":0}' % text_hash("x").encode(),
        "denied",
        1,
    ),
}
"""Parsed once they are paid for: so many small requests at least."""

UNREADABLE: Final[dict[str, tuple[bytes, float]]] = {
    "20,000 brackets deep": (NUMBER % (b"[" * 20_000 + b"]" * 20_000), 78),
    "a number of 16 MiB": (NUMBER % (b"9" * WHOLE), 1024),
    "half a character": (TEXT % b"\\ud800", 1),
    "half of it": (b'{"op":"compare","a":[' + b"0," * 8192, 2),
}


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


class Purse:
    """What a caller has left to ask with. Time stands, so nothing comes back by itself."""

    def __init__(self, daemon: Serving) -> None:
        self._rates = daemon.daemon._admission.rates
        self._clock = self._rates._clock = Clock(1000.0)

    def fill(self) -> None:
        """As after a while of silence."""
        self._clock.now += 10 * BURST / REQUESTS_PER_S

    def spent(self, identity: Identity) -> float:
        bucket = self._rates._rates[identity.public_key]._bucket
        return 0.0 if bucket.is_full else BURST - bucket._tokens


@pytest.fixture
def purse(daemon: Serving) -> Purse:
    return Purse(daemon)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the requests that objects were made of."""
    lengths: list[int] = []

    def counted(payload: bytes) -> tuple[str, dict[str, Any]]:
        lengths.append(len(payload))
        return decode_request(payload)

    monkeypatch.setattr(inbox, "decode_request", counted)
    return lengths


async def ask(caller: Machine, payload: bytes) -> dict[str, Any]:
    """Send a request that our own client would not make."""
    connection = caller.connection
    stream, answer = connection._open_request()
    await connection._outbox.send(FrameType.REQ, stream, payload)
    async with asyncio.timeout(DEADLINE_S):
        return await answer


async def code_of(greedy: Machine, payload: bytes, modest: Machine) -> str:
    """What the daemon says to it; the other caller is answered meanwhile."""
    asked = asyncio.create_task(ask(greedy, payload))
    await modest.request("ping", {})
    with pytest.raises(RequestError) as refused:
        await asked
    return refused.value.code


async def test_each_dear_request_is_refused_or_paid_for_before_it_is_parsed(
    daemon: Serving, purse: Purse, parsed: list[int]
) -> None:
    """On one connection, one after the other: its records are paid for in either case, and another caller pays for its own pings alone."""
    identity, other = daemon.enroll("greedy", scope="read"), daemon.enroll("modest")
    async with Machine(await daemon.connect(identity)) as greedy, Machine(await daemon.connect(other)) as modest:
        await greedy.attach()
        for name, (payload, code) in REFUSED.items():
            purse.fill()
            parsed.clear()
            assert await code_of(greedy, payload, modest) == code, name
            assert max(parsed) < RECORD, name
            assert purse.spent(identity) >= len(payload) // RECORD, name
            assert purse.spent(other) <= 2, name
        for name, (payload, code, price) in JUDGED.items():
            purse.fill()
            parsed.clear()
            assert await code_of(greedy, payload, modest) == code, name
            assert parsed.count(len(payload)) == 1, name
            assert purse.spent(identity) >= price, name
            assert purse.spent(other) <= 2, name


async def test_what_no_parser_takes_ends_its_own_connection(daemon: Serving, purse: Purse) -> None:
    """After it was paid for; and whoever comes again owes it still."""
    identity, other = daemon.enroll("greedy", scope="read"), daemon.enroll("modest")
    async with Machine(await daemon.connect(other)) as modest:
        for name, (payload, price) in UNREADABLE.items():
            purse.fill()
            async with Machine(await daemon.connect_in_time(identity)) as greedy:
                asked = asyncio.create_task(ask(greedy, payload))
                await modest.request("ping", {})
                with pytest.raises(ConnectionLost):
                    await asked
            assert purse.spent(identity) >= price + CONNECTION, name
        assert purse.spent(other) <= 2 * len(UNREADABLE)


async def test_an_answer_of_a_tool_is_paid_for_as_that_of_a_request_is(daemon: Serving, purse: Purse) -> None:
    """A caller that may read a large document may not have it 200 times a second for the price of 200 small questions."""
    text = ("a line of a large document, " * 10 + "\n") * 2000
    async with machine(daemon, "writer", space="both") as writer:
        await writer.attach()
        await writer.put("memory/large.md", text)
    identity = daemon.enroll("greedy", space="both", scope="read")
    async with Machine(await daemon.connect(identity)) as greedy:
        await greedy.attach()
        purse.fill()
        async with greedy.mcp() as client:
            before = purse.spent(identity)
            result = await client.call_tool("memory_read", {"path": "memory/large.md", "lines": 2000})
            assert not result.is_error
            assert len(result.model_dump_json()) > len(text)
            assert purse.spent(identity) - before >= len(text) / ANSWERED_BYTES
