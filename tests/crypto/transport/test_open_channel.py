"""Getting in: what a person is told when it does not work, and what strangers can make a daemon do."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.support.crypto.channels import HOST, LAPTOP, Door, dial, echo, hosting
from tests.support.network.ports import free_port
from websockets.asyncio.client import connect as dial_websocket
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from confide_crypto.channel.protocol import Channel, FrameType
from confide_crypto.errors import (
    BusyError,
    ConfideError,
    ConnectionLost,
    DeniedError,
    HandshakeError,
    UnreachableError,
    WrongDaemonKey,
)
from confide_crypto.handshake.handshake import ClientHandshake, DaemonHandshake
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.transport import open_channel as opening
from confide_crypto.transport.open_channel import Connection, connect, websocket_options

# -- addresses that do not answer ---------------------------------------------------------------------------------


async def test_nobody_there_is_connection_refused() -> None:
    with pytest.raises(UnreachableError, match="connection refused") as caught:
        await dial(f"ws://127.0.0.1:{free_port()}/")
    assert "is confided running" in (caught.value.hint or "")
    assert caught.value.exit_code == 5


async def test_a_daemon_without_a_place_free_says_so() -> None:
    @contextlib.contextmanager
    def full() -> Iterator[None]:
        raise BusyError
        yield

    async with hosting(Door(LAPTOP.public_key), echo, slot=full) as host:
        with pytest.raises(UnreachableError, match="too many handshakes") as caught:
            await dial(host.url)
        assert "try again" in (caught.value.hint or "")
        assert isinstance(await host.refused.get(), BusyError)


async def test_a_name_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnreachableError, match=r"notes\.invalid.*no such name"):
        await dial("ws://notes.invalid:7733/")


async def test_an_address_that_is_none_is_named() -> None:
    for url in ("http://127.0.0.1/", "ws://", "nonsense", "ws://[::1", "ws://127.0.0.1:99999/"):
        with pytest.raises(UnreachableError, match="malformed"):
            await dial(url)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "not a websocket"),
        (b"SSH-2.0-OpenSSH_10.0\r\n", "not a websocket"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "http 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "http 200"),
        (b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", "http 302"),
    ],
)
async def test_something_else_on_that_port_is_told_apart(answer: bytes, why: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        with pytest.raises(UnreachableError, match=why):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


async def test_tls_to_a_plain_port_says_tls() -> None:
    async with hosting(Door(), echo) as host:
        with pytest.raises(UnreachableError, match="tls"):
            await dial(host.url.replace("ws://", "wss://"))


async def test_a_websocket_of_another_kind_is_told_apart() -> None:
    async def other(ws: ServerConnection) -> None:
        await ws.wait_closed()

    async with serve(other, "127.0.0.1", 0) as server:
        with pytest.raises(UnreachableError, match="not a daemon of this version"):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


@pytest.mark.parametrize("stage", ["tcp", "websocket", "message 2"])
async def test_silence_is_timed_out(stage: str) -> None:
    async def mute(ws: ServerConnection) -> None:
        if stage == "message 2":
            await ws.recv()
        await ws.wait_closed()

    left = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(-1)
        writer.close()
        left.set()

    starting = (
        asyncio.start_server(deaf, "127.0.0.1", 0)
        if stage == "tcp"
        else serve(mute, "127.0.0.1", 0, **websocket_options())
    )
    async with await starting as server:
        with pytest.raises(UnreachableError, match=r"timed out after 0\.2 s"):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeout_s=0.2)
        if stage == "tcp":
            await left.wait()


# -- keys ---------------------------------------------------------------------------------------------------------


async def test_a_daemon_without_the_pinned_key_is_told_apart_from_one_that_is_not_there() -> None:
    async with hosting(Door(LAPTOP.public_key), echo, identity=Identity.generate()) as host:
        with pytest.raises(WrongDaemonKey, match="this endpoint does not hold the pinned key") as caught:
            await dial(host.url)
        assert isinstance(await host.refused.get(), HandshakeError)
    assert caught.value.hint
    assert caught.value.exit_code == 6


async def test_a_pinned_key_that_nobody_can_hold_is_a_wrong_key() -> None:
    async with hosting(Door(LAPTOP.public_key), echo) as host:
        with pytest.raises(WrongDaemonKey):
            await connect(host.url, LAPTOP, bytes(32))


@pytest.mark.parametrize("answer", [b"", bytes(1136), bytes(1135), "text"])
async def test_whoever_answers_message_1_with_something_else_does_not_hold_the_key(answer: Any) -> None:
    async def impostor(ws: ServerConnection) -> None:
        await ws.recv()
        await ws.send(answer)
        await ws.wait_closed()

    async with serve(impostor, "127.0.0.1", 0, **websocket_options()) as server:
        with pytest.raises(WrongDaemonKey):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


async def test_a_key_that_is_not_enrolled_is_told_so_with_its_words() -> None:
    async with hosting(Door(), echo) as host:
        with pytest.raises(DeniedError) as caught:
            await dial(host.url)
        assert isinstance(await host.refused.get(), DeniedError)
    assert str(caught.value) == f"this device's key is not enrolled: fingerprint {fingerprint_words(LAPTOP.public_key)}"
    assert (caught.value.reason, caught.value.exit_code) == ("unknown", 6)
    assert caught.value.hint


async def test_the_daemons_own_hint_arrives_sealed() -> None:
    class Strict(Door):
        async def admit(self, public_key: bytes, hello: dict[str, Any], invite_id: bytes | None) -> dict[str, Any]:
            raise DeniedError("revoked", hint="revoked at 14:02 by the owner")

    async with hosting(Strict(), echo) as host:
        with pytest.raises(DeniedError, match="was revoked") as caught:
            await dial(host.url)
    assert caught.value.hint == "revoked at 14:02 by the owner"


async def test_a_denial_is_not_told_from_a_welcome_by_its_size() -> None:
    sizes = []
    for door in (Door(), Door(LAPTOP.public_key)):
        async with hosting(door, echo) as host, dial_websocket(host.url, **websocket_options()) as ws:
            handshake = ClientHandshake(LAPTOP, HOST.static_key)
            await ws.send(handshake.write_message1())
            handshake.read_message2(await ws.recv(decode=False))
            await ws.send(handshake.write_message3())
            sizes.append(len(await ws.recv(decode=False)))
    assert sizes == [1040, 1040]


# -- invites ------------------------------------------------------------------------------------------------------


async def test_an_invite_lets_one_machine_in_once() -> None:
    door, other = Door(), Identity.generate()
    async with hosting(door, echo) as host:
        invite = Invite.new(HOST.static_key, host.url)
        door.offer(invite)
        pasted = Invite.parse(invite.to_string())
        assert pasted.websocket_url == host.url
        connection = await connect(pasted.websocket_url, LAPTOP, pasted.daemon_static, invite=pasted)
        await connection.close()
        await (await dial(host.url)).close()
        with pytest.raises(DeniedError, match="used, expired or unknown") as caught:
            await connect(host.url, other, HOST.static_key, invite=pasted)
        assert caught.value.reason == "invite"
        with pytest.raises(DeniedError, match="not enrolled"):
            await connect(host.url, other, HOST.static_key)


async def test_a_guess_at_an_open_invite_does_not_burn_it() -> None:
    door = Door()
    async with hosting(door, echo) as host:
        invite = Invite.new(HOST.static_key, host.url)
        door.offer(invite)
        door.invites[invite.invite_id] = bytes(32)
        with pytest.raises(DeniedError, match="invite"):
            await connect(host.url, LAPTOP, HOST.static_key, invite=invite)
        door.offer(invite)
        await (await connect(host.url, LAPTOP, HOST.static_key, invite=invite)).close()


async def test_of_two_machines_racing_for_an_invite_one_wins() -> None:
    door = Door()
    async with hosting(door, echo) as host:
        for _ in range(10):
            invite = Invite.new(HOST.static_key, host.url)
            door.offer(invite)
            rivals = [connect(host.url, Identity.generate(), HOST.static_key, invite=invite) for _ in range(2)]
            results = await asyncio.gather(*rivals, return_exceptions=True)
            winners = [result for result in results if isinstance(result, Connection)]
            losers = [result for result in results if isinstance(result, DeniedError)]
            assert (len(winners), len(losers)) == (1, 1)
            assert losers[0].reason == "invite"
            await winners[0].close()


# -- what strangers can do ----------------------------------------------------------------------------------------

Attack = Callable[[Any], Awaitable[None]]


async def send_text(ws: Any) -> None:
    await ws.send("hello")


async def send_nothing(ws: Any) -> None:
    await ws.send(b"")


async def send_garbage(ws: Any) -> None:
    await ws.send(bytes(1256))


async def send_too_much(ws: Any) -> None:
    await ws.send(bytes(1257))


async def replay_message1(ws: Any) -> None:
    message = ClientHandshake(LAPTOP, HOST.static_key).write_message1()
    await ws.send(message)
    await ws.recv()
    await ws.send(message)


async def garble_message3(ws: Any) -> None:
    handshake = ClientHandshake(LAPTOP, HOST.static_key)
    await ws.send(handshake.write_message1())
    handshake.read_message2(await ws.recv())
    message = handshake.write_message3()
    await ws.send(message[:-1] + bytes([message[-1] ^ 1]))


async def text_for_message3(ws: Any) -> None:
    await ws.send(ClientHandshake(LAPTOP, HOST.static_key).write_message1())
    await ws.recv()
    await ws.send("x" * 512)


async def other_kem_key(ws: Any) -> None:
    await ws.send(ClientHandshake(LAPTOP, Identity.generate().static_key).write_message1())


ATTACKS = (
    send_text, send_nothing, send_garbage, send_too_much, replay_message1, garble_message3, text_for_message3, other_kem_key,
)  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_every_failure_before_the_caller_is_known_looks_the_same(attack: Attack) -> None:
    """Close code 4400 without a reason; and the next honest client gets in (PROTOCOL.md 4.6)."""
    async with hosting(Door(LAPTOP.public_key), echo) as host:
        async with dial_websocket(host.url, **websocket_options()) as ws:
            await attack(ws)
            with pytest.raises(ConnectionClosed) as caught:
                await ws.recv()
            assert caught.value.rcvd is not None
            assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4400, "")
        refused = await host.refused.get()
        assert isinstance(refused, HandshakeError)
        await (await dial(host.url)).close()


async def test_a_giant_first_message_is_not_read() -> None:
    async with hosting(Door(), echo) as host, dial_websocket(host.url, **websocket_options()) as ws:
        await ws.send(bytes(60_000))
        with pytest.raises(ConnectionClosed) as caught:
            await ws.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009
        assert isinstance(await host.refused.get(), HandshakeError)


async def test_who_does_not_speak_is_shown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "FIRST_MESSAGE_TIMEOUT_S", 0.05)
    async with hosting(Door(), echo) as host, dial_websocket(host.url, **websocket_options()) as ws:
        with pytest.raises(ConnectionClosed) as caught:
            await ws.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 4400
        assert "in time" in str(await host.refused.get())


async def test_who_stops_after_message_1_is_shown_out() -> None:
    async with hosting(Door(), echo, timeout_s=1.0) as host, dial_websocket(host.url, **websocket_options()) as ws:
        await ws.send(ClientHandshake(LAPTOP, HOST.static_key).write_message1())
        await ws.recv()
        with pytest.raises(ConnectionClosed):
            await ws.recv()
        assert "in time" in str(await host.refused.get())


async def test_who_leaves_in_the_middle_is_noticed() -> None:
    async with hosting(Door(), echo) as host:
        ws = await dial_websocket(host.url, **websocket_options())
        await ws.send(ClientHandshake(LAPTOP, HOST.static_key).write_message1())
        ws.transport.abort()
        assert "left" in str(await host.refused.get())


async def test_a_failure_inside_the_daemon_reaches_its_owner_and_ends_the_websocket() -> None:
    class Broken(Door):
        async def admit(self, public_key: bytes, hello: dict[str, Any], invite_id: bytes | None) -> dict[str, Any]:
            raise OSError("the registry is gone")

    failures: asyncio.Queue[Exception] = asyncio.Queue()

    async def on_websocket(ws: ServerConnection) -> None:
        try:
            await opening.accept(ws, HOST, Broken())
        except OSError as error:
            failures.put_nowait(error)

    async with serve(on_websocket, "127.0.0.1", 0, **websocket_options()) as server:
        with pytest.raises(ConnectionLost):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        assert "registry" in str(await failures.get())


# -- a daemon that holds the key and misbehaves -------------------------------------------------------------------


def statement(identity: Identity = HOST, static: bytes = HOST.static_key) -> dict[str, str]:
    return {"key": identity.public_key.hex(), "signature": identity.sign(b"confide/daemon-static/1", static).hex()}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FrameType.MSG, {}),
        (FrameType.KEEPALIVE, None),
        (FrameType.CLOSE, None),
        (FrameType.RES, None),
        (FrameType.RES, []),
        (FrameType.RES, {"ok": {}}),
        (FrameType.RES, {"ok": {"welcome": {}}}),
        (FrameType.RES, {"ok": {"daemon": statement(), "welcome": 1}}),
        (FrameType.RES, {"ok": {"daemon": {"key": "x", "signature": "y"}, "welcome": {}}}),
        (FrameType.RES, {"ok": {"daemon": {**statement(), "key": statement()["key"].upper()}, "welcome": {}}}),
        (FrameType.RES, {"ok": {"daemon": {**statement(), "key": f" {statement()['key']}"}, "welcome": {}}}),
        (FrameType.RES, {"ok": {"daemon": statement(static=bytes(32)), "welcome": {}}}),
        (
            FrameType.RES,
            {"ok": {"daemon": {**statement(), "key": Identity.generate().public_key.hex()}, "welcome": {}}},
        ),
        (FrameType.RES, {"error": {"code": "unheard"}}),
    ],
)
async def test_a_welcome_of_another_form_is_no_welcome(kind: FrameType, body: Any) -> None:
    async def odd(ws: ServerConnection) -> None:
        handshake = DaemonHandshake(HOST)
        handshake.read_message1(await ws.recv(decode=False))
        await ws.send(handshake.write_message2())
        handshake.read_message3(await ws.recv(decode=False))
        channel = Channel(handshake.finish(), initiator=False)
        await ws.send(channel.seal(kind, 0, b"" if body is None else json.dumps(body).encode()))
        await ws.wait_closed()

    async with serve(odd, "127.0.0.1", 0, **websocket_options()) as server:
        with pytest.raises(HandshakeError, match="did not finish the handshake"):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


async def test_no_socket_is_left_open_after_a_failed_connect() -> None:
    """The daemon sees every failed client leave."""
    left: asyncio.Queue[None] = asyncio.Queue()

    async def odd(ws: ServerConnection) -> None:
        await ws.recv()
        await ws.send(bytes(1136))
        await ws.wait_closed()
        left.put_nowait(None)

    async with serve(odd, "127.0.0.1", 0, **websocket_options()) as server:
        with pytest.raises(ConfideError):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await left.get()
