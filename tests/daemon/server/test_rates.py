"""One caller that asks for all it can: what came is paid for before anything is made of it, and the others are answered meanwhile.

Nothing here is timed: what counts is what is parsed at all, what is paid, and who is answered first.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from tests.support.clock import Clock
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S

from confide_crypto.channel.protocol import FrameType
from confide_crypto.channel.request_codec import decode_request, encode_request
from confide_crypto.errors import DeniedError, RequestError, UnreachableError
from confide_crypto.keys.identity import Identity
from confide_crypto.limits import MAX_MESSAGE, MAX_REQUEST
from confide_crypto.transport import inbox
from confide_crypto.transport.open_channel import Connection
from confide_daemon.access.authorization import CallerAuthorization, Gate
from confide_daemon.access.enrolled_callers import Caller, Grants
from confide_daemon.access.registry import Registry
from confide_daemon.documents import transcripts
from confide_daemon.server import rates
from confide_daemon.server.rates import (
    BURST,
    CONNECTION,
    MAX_WAIT_S,
    REQUESTS_PER_S,
    Rate,
    Rates,
    price_of,
)
from confide_daemon.server.server import Daemon as Server
from confide_memory.forms import MAX_FILES
from confide_memory.wire.operation import OPERATIONS

MILLIONS = b"[]," * 5_400_000
DENSE = b"[]," * 200_000
"""As many as a request may have, which are paid with most of what a caller has at once."""


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the requests that objects were made of."""
    lengths: list[int] = []

    def counted(payload: bytes) -> tuple[str, dict[str, Any]]:
        lengths.append(len(payload))
        return decode_request(payload)

    monkeypatch.setattr(inbox, "decode_request", counted)
    return lengths


def asking(op: str, values: bytes) -> bytes:
    return b'{"op":"%s","a":[%s[]]}' % (op.encode(), values)


async def ask(caller: Machine, payload: bytes) -> dict[str, Any]:
    """Send a request that our own client would not make."""
    connection = caller.connection
    stream, answer = connection._open_request()
    await connection._outbox.send(FrameType.REQ, stream, payload)
    async with asyncio.timeout(DEADLINE_S):
        return await answer


@pytest.mark.parametrize("op", ["nothing", "compare"])
async def test_five_million_lists_are_refused_before_one_is_made(daemon: Serving, parsed: list[int], op: str) -> None:
    """16 MiB of them stopped everybody for seconds: json's parser lets nobody else run."""
    async with machine(daemon, "greedy", scope="read") as greedy, machine(daemon, "modest") as modest:
        with pytest.raises(RequestError) as refused:
            await ask(greedy, asking(op, MILLIONS))
        assert refused.value.code == "too_large"
        assert refused.value.hint
        assert max(parsed, default=0) < 1024
        await greedy.attach()  # it is answered, and its connection goes on
        await modest.attach()


async def test_a_request_that_need_not_be_large_may_not(daemon: Serving, parsed: list[int]) -> None:
    """Texts have bodies; whoever sends one in a request has a megabyte for it."""
    async with machine(daemon, "greedy") as greedy:
        await greedy.attach()
        with pytest.raises(RequestError, match="over the limit") as refused:
            await greedy.put("MEMORY.md", "x" * MAX_REQUEST)
        assert refused.value.code == "too_large"
        assert "body" in (refused.value.hint or "")
        assert max(parsed) < MAX_REQUEST
        await greedy.put("MEMORY.md", "x" * (MAX_REQUEST - 1000))


@pytest.mark.parametrize(
    "op",
    ["call", "compare", "move-roster", "records", "rewrite"]
    + [pytest.param(op, marks=pytest.mark.addons) for op in ("import", "move-in", "refill")],
)
async def test_what_has_to_be_large_may_be(daemon: Serving, op: str) -> None:
    """These carry many files, records or texts at once: they come to whoever answers, and are judged there."""
    async with machine(daemon, "laptop") as laptop:
        await laptop.attach()
        assert op in OPERATIONS
        with pytest.raises(RequestError) as judged:
            await laptop.request(op, {"project": "proj", "entries": "x" * 2 * MAX_REQUEST})
        assert judged.value.code != "too_large"


async def test_the_largest_comparison_of_an_honest_machine_is_let_through() -> None:
    """100,000 files and as many losses, with paths as long as a message lets them be."""
    entries = [[f"memory/notes/of-a-folder/{number}.md", "0" * 64, number] for number in range(MAX_FILES)]
    gone = [[f"memory/gone/{number}.md", number] for number in range(MAX_FILES)]
    payload = encode_request("compare", {"project": "proj", "entries": entries, "gone": gone})
    assert len(payload) < MAX_MESSAGE
    assert await price_of(payload) < BURST


async def test_a_message_of_millions_of_lists_is_refused_before_one_is_made(
    daemon: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in the agent's session, whose messages take the other way in."""
    seen: list[int] = []
    parse = mcp_types.jsonrpc_message_adapter.validate_json

    def counted(data: bytes, **options: Any) -> Any:
        seen.append(len(data))
        return parse(data, **options)

    async with machine(daemon, "greedy", scope="read") as greedy:
        monkeypatch.setattr(mcp_types.jsonrpc_message_adapter, "validate_json", counted)
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[%s[]]}}' % MILLIONS
        await greedy.connection.send_message(body)
        async with asyncio.timeout(DEADLINE_S):
            told = await greedy.refusals.get()
        assert told["code"] == -32600
        assert "too many values" in told["message"]
        assert max(seen, default=0) < 1024
        await greedy.attach()


async def test_a_body_of_lists_is_paid_for_before_it_is_parsed(
    daemon: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`transcript` takes JSON as a body too: 2 MiB of it can be 700,000 lists."""
    made: list[int] = []

    def counted(body: bytes) -> list[Any]:
        made.append(len(body))
        return []

    monkeypatch.setattr(transcripts, "messages_in", counted)
    async with machine(daemon, "greedy") as greedy:
        await greedy.attach()
        named = {"project": "proj", "agent": "codex", "session": "s", "head": "", "mark": ""}
        params = {**named, "version": 0, "from": 0, "to": 1}
        with pytest.raises(RequestError) as refused:
            await greedy.connection.upload("transcript", params, b"[" + b"[]," * 650_000 + b"[]]", timeout_s=DEADLINE_S)
        assert (refused.value.code, made) == ("too_large", [])


async def test_a_greedy_caller_waits_while_others_are_answered(
    daemon: Serving, parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the third of these it has spent what it may at once: it is not parsed before another caller has its answer."""
    # What was spent does not come back while a busy machine answers.
    monkeypatch.setitem(Rates.__init__.__kwdefaults__, "per_second", 1e-6)
    monkeypatch.setattr(rates, "MAX_WAIT_S", math.inf)
    async with machine(daemon, "greedy", scope="read") as greedy, machine(daemon, "modest") as modest:
        order: list[str] = []

        async def dense() -> None:
            with pytest.raises(RequestError):
                await ask(greedy, asking("compare", DENSE))
            order.append("greedy")

        asked = [asyncio.create_task(dense()) for _ in range(4)]
        while order.count("greedy") < 2:  # noqa: ASYNC110 - two are within what it has at once
            await asyncio.sleep(0.01)
        await modest.attach()
        order.append("modest")
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    assert order == ["greedy", "greedy", "modest"]
    assert sum(length > len(DENSE) for length in parsed) == 2


async def test_a_key_that_comes_again_and_again_waits_and_then_is_sent_away() -> None:
    """A session takes ten times what a request does to begin and to end, and its handshake is proof of the key alone."""
    all_rates = Rates(clock=(clock := Clock(1000.0)))
    with all_rates.of(b"greedy") as rate, all_rates.of(b"modest") as other:
        async with asyncio.timeout(0):
            for _ in range(int(BURST / CONNECTION)):
                assert await rate.pass_connection()
        waiting = [
            asyncio.create_task(rate.pass_connection()) for _ in range(int(MAX_WAIT_S * REQUESTS_PER_S / CONNECTION))
        ]
        await asyncio.sleep(0)
        assert not await rate.pass_connection()
        async with asyncio.timeout(0):
            assert await other.pass_connection()
        clock.now += 2 * BURST / REQUESTS_PER_S
        async with asyncio.timeout(0):
            assert await rate.pass_connection()
        for task in waiting:
            task.cancel()


async def test_a_storm_of_whole_handshakes_costs_the_handshakes_alone(
    daemon: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond what its key may spend no caller is looked up, no welcome sealed and no session begun; another one comes and is answered."""
    monkeypatch.setattr(daemon.daemon._admission.rates, "_per_second", 1e-6)
    looked_up, begun = [], []
    admitted, serve = CallerAuthorization._find_caller, Server._serve_caller

    def counted(self: CallerAuthorization, public_key: bytes, invite_id: bytes | None) -> Caller:
        looked_up.append(public_key)
        return admitted(self, public_key, invite_id)

    async def counted_session(self: Server, connection: Connection, caller: Caller, rate: Rate) -> None:
        begun.append(caller.public_key)
        await serve(self, connection, caller, rate)

    monkeypatch.setattr(CallerAuthorization, "_find_caller", counted)
    monkeypatch.setattr(Server, "_serve_caller", counted_session)
    greedy, modest = daemon.enroll("greedy", scope="read"), daemon.enroll("modest")
    refused: list[UnreachableError] = []
    while len(refused) < 20:
        try:
            (await daemon.connect(greedy)).abort()
        except DeniedError as error:
            assert error.reason == "busy"  # noqa: PT017 - the last sessions are not over yet
        except UnreachableError as error:
            refused.append(error)
    assert all(error.hint for error in refused)
    async with Machine(await daemon.connect(modest)) as other:
        await other.attach()
    assert begun.count(modest.public_key) == 1
    assert begun.count(greedy.public_key) <= looked_up.count(greedy.public_key) == BURST / CONNECTION


async def test_the_welcome_waits_for_its_turn(registry: Registry, tmp_path: Path) -> None:
    """So a client that waits for it comes no faster than it is served; and an invite is not spent meanwhile."""
    turn = asyncio.Event()
    asked: list[bytes] = []

    class InTurn(Gate):
        async def pass_connection(self, key: bytes) -> bool:
            asked.append(key)
            await turn.wait()
            return True

    callers = CallerAuthorization(registry, tmp_path, InTurn(), max_sessions=8)
    key = Identity.generate().public_key
    coming = asyncio.create_task(callers.admit(key, {}, None))
    while not asked:  # noqa: ASYNC110 - the task's first step
        await asyncio.sleep(0)
    assert not coming.done()
    registry.add_caller(key, Grants("late"), space="late", added_by="line")
    turn.set()
    assert (await coming)["caller"] == "late"


async def test_fifty_machines_and_their_sessions_come_back_at_once(daemon: Serving) -> None:
    """As after a restart of the daemon: none is refused, and none waits for another."""
    machines = [daemon.enroll(f"m{number}") for number in range(50)]
    for _ in range(2):
        async with asyncio.timeout(DEADLINE_S):
            connections = await asyncio.gather(*(daemon.connect(identity) for identity in machines))
        assert len(connections) == 50
        assert all(rate._bucket._tokens > 0 for rate in daemon.daemon._admission.rates._rates.values())
        for connection in connections:
            connection.abort()


def test_who_comes_back_owes_what_it_owed() -> None:
    """Also after so many other callers that the ones which say nothing are forgotten."""
    rates_of_all = Rates(clock=Clock(1000.0))
    with rates_of_all.of(b"greedy") as rate:
        rate.record(BURST + 2 * MAX_WAIT_S * REQUESTS_PER_S)
    for number in range(200):
        with rates_of_all.of(number.to_bytes(2)):
            pass
    assert len(rates_of_all) < 200
    with rates_of_all.of(b"greedy") as rate:
        assert rate.record(1.0) > 0.0


async def test_what_came_is_paid_by_its_records_and_its_values() -> None:
    clock = Clock(1000.0)
    all_rates = Rates(clock=clock)
    with all_rates.of(b"greedy") as rate, all_rates.of(b"modest") as other:
        for _ in range(int(BURST)):
            assert rate.record(1.0) == 0.0
        # From here on it is in debt: as long as a request would wait it is still read, then no more.
        owed = 0
        while not rate.record(1.0):
            owed += 1
        assert owed == pytest.approx(MAX_WAIT_S * REQUESTS_PER_S, abs=2)
        with pytest.raises(RequestError) as refused:
            await rate.request(b"{}")
        assert refused.value.code == "busy"
        async with asyncio.timeout(0):
            await other.request(asking("compare", b"[]," * 1000))
        clock.now += 1000.0
        await rate.request(asking("compare", DENSE))
        left = BURST - 1 - (200_001 + 2) / 256 - 200_001 / 4096
        clock.now += (BURST - left) / REQUESTS_PER_S + 0.001
        assert rate._bucket.is_full
        rate.charge(16 * 2**20)
        clock.now += 255 / REQUESTS_PER_S
        assert not rate._bucket.is_full, "an answer is paid for as well"
        clock.now += 2 / REQUESTS_PER_S
        assert rate._bucket.is_full
