"""The way to a websocket, where the name, the certificate or the other end is not what it should be."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest
import trustme
from tests.support.crypto.channels import HOST, LAPTOP, Door, dial, echo, hosting
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from websockets.asyncio.client import connect as dial_websocket
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from confide_crypto.channel.protocol import MAX_PAYLOAD
from confide_crypto.errors import HandshakeError, UnreachableError
from confide_crypto.handshake.handshake import DaemonHandshake
from confide_crypto.transport import connection as session
from confide_crypto.transport import open_channel as opening
from confide_crypto.transport.dial import shown_url
from confide_crypto.transport.open_channel import Connection, accept, websocket_options


def port_of(server: Any) -> int:
    return int(server.sockets[0].getsockname()[1])


def resolving_to(*addresses: str) -> Any:
    """`socket.getaddrinfo` for a name with several addresses, as localhost mostly is."""

    def getaddrinfo(_host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port))) for address in addresses]

    return getaddrinfo


async def test_the_schemes_of_invites_are_taken_too() -> None:
    async with hosting(Door(LAPTOP.public_key), echo) as host:
        connection = await dial(host.url.replace("ws://", "confide://"))
        await connection.close()


def test_an_address_is_shown_as_people_write_it() -> None:
    """Whoever reads ws:// believes that nothing is encrypted."""
    assert shown_url("ws://box:7777/") == shown_url("confide://box:7777") == "confide://box:7777"
    assert shown_url("wss://box/") == "confides://box"
    assert shown_url("wss://ann:secret@box:9/way/") == "confides://box:9/way"


async def test_a_name_with_two_addresses_that_both_refuse_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """localhost is ::1 and 127.0.0.1: two refusals are one to a person, with the same hint."""
    monkeypatch.setattr(socket, "getaddrinfo", resolving_to("127.0.0.1", "127.0.0.2"))
    with pytest.raises(UnreachableError, match=r"connection refused$") as caught:
        await dial(f"ws://daemon.example:{free_port()}/")
    assert "is confided running" in (caught.value.hint or "")


async def test_another_failure_of_the_network_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that cannot be connected to at all: the system's own words."""
    monkeypatch.setattr(socket, "getaddrinfo", resolving_to("255.255.255.255"))
    with pytest.raises(UnreachableError, match=r"cannot reach the daemon at daemon\.example:9: \w+") as caught:
        await dial("ws://daemon.example:9/")
    assert "refused" not in str(caught.value)


async def test_a_certificate_that_nobody_trusts_is_named() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with serve(_silent, "127.0.0.1", 0, ssl=context, **websocket_options()) as server:
        with pytest.raises(UnreachableError, match="not from an authority that this machine trusts") as caught:
            await dial(f"wss://127.0.0.1:{port_of(server)}/")
    assert "SSL_CERT_FILE" in (caught.value.hint or "")


async def _silent(ws: ServerConnection) -> None:
    await ws.wait_closed()


async def test_a_websocket_without_our_subprotocol_is_not_let_in() -> None:
    refused: asyncio.Queue[Exception] = asyncio.Queue()

    async def on_websocket(ws: ServerConnection) -> None:
        try:
            await accept(ws, HOST, Door())
        except HandshakeError as error:
            refused.put_nowait(error)

    options = {**websocket_options(), "subprotocols": None}
    async with (
        serve(on_websocket, "127.0.0.1", 0, **options) as server,
        dial_websocket(f"ws://127.0.0.1:{port_of(server)}/", compression=None) as ws,
    ):
        with pytest.raises(ConnectionClosed) as caught:
            await ws.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 4400
        assert str(await refused.get()) == "handshake failed"


async def test_a_first_record_that_is_not_authentic_ends_the_handshake() -> None:
    """The daemon had the pinned key, but somebody touched what it sent."""

    async def changed(ws: ServerConnection) -> None:
        handshake = DaemonHandshake(HOST)
        handshake.read_message1(await ws.recv(decode=False))
        await ws.send(handshake.write_message2())
        handshake.read_message3(await ws.recv(decode=False))
        await ws.send(bytes(1040))
        await ws.wait_closed()

    async with serve(changed, "127.0.0.1", 0, **websocket_options()) as server:
        with pytest.raises(HandshakeError, match="did not finish the handshake"):
            await dial(f"ws://127.0.0.1:{port_of(server)}/")


async def deaf(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that opens the websocket by hand, and never answers a close."""
    port = int(url.rsplit(":", 1)[1].strip("/"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: confide.v1\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_a_stranger_who_does_not_take_the_close_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "CLOSE_TIMEOUT_S", 0.1)
    async with hosting(Door(), echo) as host:
        reader, writer = await deaf(host.url)
        writer.write(b"\x82\x81\0\0\0\0x")  # one byte, no message 1
        async with asyncio.timeout(20):
            assert (await reader.read()).startswith(b"\x88\x02" + (4400).to_bytes(2, "big"))
        assert isinstance(await host.refused.get(), HandshakeError)
        writer.close()


async def test_a_peer_that_reads_nothing_any_more_is_cut_off_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is full, so not even the websocket's close gets through: `close` returns all the same."""
    monkeypatch.setattr(session, "CLOSE_TIMEOUT_S", 0.1)
    connected: asyncio.Queue[Connection] = asyncio.Queue()
    done = asyncio.Event()

    async def hold(connection: Connection) -> None:
        connected.put_nowait(connection)
        await done.wait()

    async with hosting(Door(LAPTOP.public_key), hold) as host:
        connection = await dial(host.url)
        theirs = await connected.get()
        theirs._ws.transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(_flood(connection))
            while not connection._ws.transport.get_write_buffer_size():  # type: ignore[attr-defined] # noqa: ASYNC110
                await asyncio.sleep(0.01)  # until the socket is full
            async with asyncio.timeout(DEADLINE_S):
                await connection.close()
            sending.cancel()
        done.set()


async def _flood(connection: Connection) -> None:
    while True:
        await connection._ws.send(bytes(MAX_PAYLOAD))


async def test_a_platform_that_cannot_keep_the_unsent_short_still_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_NOTSENT_LOWAT", raising=False)
    async with hosting(Door(LAPTOP.public_key), echo) as host:
        connection = await dial(host.url)
        await connection.close()
