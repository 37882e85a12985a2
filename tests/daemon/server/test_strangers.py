"""Who has not proven a key yet: how many there may be, who makes way for whom, and who is not let in at all."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import websockets
from tests.support.daemon.loopback import Serving, serving
from tests.support.deadline import DEADLINE_S
from tests.support.network.strangers import http_request
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial_websocket

from confide_crypto.errors import UnreachableError
from confide_crypto.handshake.handshake import MESSAGE1_LENGTH, MESSAGE2_LENGTH, ClientHandshake
from confide_crypto.keys.identity import Identity
from confide_crypto.limits import CLOSE_BUSY, CLOSE_REFUSED, websocket_options
from confide_daemon.server.listening.strangers import Stage
from confide_daemon.server.rates import TokenBucket

PLACES, UNDER_WAY = 8, 4


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    """With few places, and rates that nothing here reaches."""
    async with serving(tmp_path / "data") as running:
        strangers = running.daemon._listener.strangers
        strangers._most, strangers._most_under_way = PLACES, UNDER_WAY
        strangers._openings = strangers._handshakes = TokenBucket(10_000, 10_000)
        yield running


async def open_websocket(daemon: Serving, **options: str) -> ClientConnection:
    url = daemon.url.replace("confide://", "ws://")
    return await dial_websocket(url, **websocket_options(), **options)  # type: ignore[arg-type]


async def gets_in(daemon: Serving, identity: Identity) -> None:
    """A whole handshake."""
    await (await daemon.connect_in_time(identity)).close()


def recorded(daemon: Serving) -> bytes:
    """What somebody on the way has seen of a caller's handshake; who sends it again cannot go on from there."""
    return ClientHandshake(Identity.generate(), daemon.state.identity.static_key).write_message1()


async def test_websockets_that_say_nothing_keep_nobody_out(daemon: Serving) -> None:
    """Twenty a second held every place for handshakes: nine in ten of an enrolled machine were refused."""
    laptop = daemon.enroll("laptop")
    async with AsyncExitStack() as squatters:
        idle = [await squatters.enter_async_context(await open_websocket(daemon)) for _ in range(3 * PLACES)]
        for _ in range(PLACES + UNDER_WAY):
            await gets_in(daemon, laptop)
        assert daemon.daemon._listener.strangers.count(Stage.UNDER_WAY) <= UNDER_WAY
        async with asyncio.timeout(DEADLINE_S):
            await idle[0].wait_closed()  # the oldest made way
        assert idle[-1].state is websockets.State.OPEN


async def test_connections_that_say_nothing_at_all_keep_nobody_out(daemon: Serving) -> None:
    laptop = daemon.enroll("laptop")
    mute = [await asyncio.open_connection("127.0.0.1", daemon.port) for _ in range(3 * PLACES)]
    for _ in range(PLACES):
        await gets_in(daemon, laptop)
    assert len(daemon.daemon._listener.strangers) <= PLACES
    async with asyncio.timeout(DEADLINE_S):
        assert await mute[0][0].read() == b""
    assert not mute[-1][0].at_eof()
    for _, writer in mute:
        writer.close()


async def test_a_request_that_is_far_too_long_is_not_answered(daemon: Serving) -> None:
    """Each of its lines is within its bound; a stranger may send 32 KiB in all."""
    for length, is_answered in ((1000, True), (3900, False)):
        headers = [b"X-%d: %s" % (number, b"x" * length) for number in range(12)]
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        writer.write(http_request(*headers))
        with suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE_S):
                assert (await reader.read(12) == b"HTTP/1.1 101") is is_answered
        writer.close()


async def test_handshakes_that_are_not_gone_on_with_keep_nobody_out(daemon: Serving) -> None:
    """For a recorded message 1 one needs no key at all, and it holds a place until message 3."""
    laptop, message1 = daemon.enroll("laptop"), recorded(daemon)
    async with AsyncExitStack() as squatters:
        for number in range(3 * UNDER_WAY):
            ws = await squatters.enter_async_context(await open_websocket(daemon))
            await ws.send(message1)
            assert len(await ws.recv()) == MESSAGE2_LENGTH
            assert daemon.daemon._listener.strangers.count(Stage.UNDER_WAY) <= min(number + 1, UNDER_WAY)
        for _ in range(2 * UNDER_WAY):
            await gets_in(daemon, laptop)


async def test_who_has_come_further_stays_while_others_make_way(daemon: Serving) -> None:
    laptop = daemon.enroll("laptop")
    async with await open_websocket(daemon) as ws:
        handshake = ClientHandshake(laptop, daemon.state.identity.static_key)
        await ws.send(handshake.write_message1())
        handshake.read_message2(await ws.recv())  # type: ignore[arg-type]
        mute = [await asyncio.open_connection("127.0.0.1", daemon.port) for _ in range(3 * PLACES)]
        async with asyncio.timeout(DEADLINE_S):
            assert await mute[0][0].read() == b""
        await ws.send(handshake.write_message3())
        assert await ws.recv()
        for _, writer in mute:
            writer.close()


async def test_garbage_of_the_right_length_takes_no_place_and_nothing_of_the_rate(daemon: Serving) -> None:
    """Who does not know this daemon's key cannot use up what callers need."""
    daemon.daemon._listener.strangers._handshakes = TokenBucket(0.0001, 2)
    for _ in range(5):
        async with await open_websocket(daemon) as ws:
            await ws.send(os.urandom(MESSAGE1_LENGTH))
            with pytest.raises(websockets.ConnectionClosed):
                await ws.recv()
            assert ws.close_code == CLOSE_REFUSED
    await gets_in(daemon, daemon.enroll("laptop"))


async def test_message_1_is_bounded_per_second_and_the_next_client_is_told_to_wait(daemon: Serving) -> None:
    daemon.daemon._listener.strangers._handshakes = TokenBucket(0.0001, 2)
    message1 = recorded(daemon)
    for _ in range(2):
        async with await open_websocket(daemon) as ws:
            await ws.send(message1)
            assert len(await ws.recv()) == MESSAGE2_LENGTH
    async with await open_websocket(daemon) as ws:
        await ws.send(message1)
        with pytest.raises(websockets.ConnectionClosed):
            await ws.recv()
        assert ws.close_code == CLOSE_BUSY
    with pytest.raises(UnreachableError, match="too many handshakes") as caught:
        await daemon.connect(daemon.enroll("laptop"))
    assert "try again" in (caught.value.hint or "")


async def test_a_flood_of_replayed_first_messages_leaves_nothing_behind(daemon: Serving) -> None:
    """Message 1 recorded once and sent 300 times: each costs one half handshake and ends with its socket."""
    message1 = recorded(daemon)
    for _ in range(300):
        async with await open_websocket(daemon) as ws:
            await ws.send(message1)
            assert len(await ws.recv()) == MESSAGE2_LENGTH
    async with asyncio.timeout(DEADLINE_S):
        while len(daemon.daemon._listener.strangers):  # noqa: ASYNC110 - nothing tells when the last one is gone
            await asyncio.sleep(0.01)
    await gets_in(daemon, daemon.enroll("laptop"))


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:7733", "null"])
async def test_a_web_page_opens_no_websocket(daemon: Serving, caplog: pytest.LogCaptureFixture, origin: str) -> None:
    """A page can make its reader's browser connect to this machine. Browsers say so, and no client of ours does."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        await open_websocket(daemon, origin=origin)
    assert refused.value.response.status_code == 403
    assert origin not in caplog.text
    with caplog.at_level(logging.WARNING):
        daemon.daemon.refusals.report(is_last=True)
    assert "1 by web pages" in caplog.text
