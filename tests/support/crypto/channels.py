"""Two ends of a channel: joined in memory, or over a real websocket on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.channel.protocol import Channel
from confide_crypto.errors import ConfideError, DeniedError
from confide_crypto.handshake.handshake import ClientHandshake, DaemonHandshake
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.rotation import KeyRotation
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import Connection, Timers, accept, connect, websocket_options

LAPTOP = Identity(bytes(range(32)))
HOST = Identity(bytes(range(100, 132)))


def shake_hands(
    client: Identity = LAPTOP,
    host: Identity = HOST,
    *,
    invite: Invite | None = None,
    hello: dict[str, Any] | None = None,
) -> tuple[ClientHandshake, DaemonHandshake]:
    """Both sides of a handshake that went through."""
    ours = ClientHandshake(client, host.static_key, invite=invite, hello=hello)
    theirs = DaemonHandshake(host)
    theirs.read_message1(ours.write_message1())
    ours.read_message2(theirs.write_message2(invite.invite_psk if invite else None))
    theirs.read_message3(ours.write_message3())
    return ours, theirs


def channel_pair() -> tuple[Channel, Channel]:
    """The client's and the daemon's channel of one session, before the welcome."""
    ours, theirs = shake_hands()
    return Channel(ours.finish(), initiator=True), Channel(theirs.finish(), initiator=False)


class Door:
    """A daemon's list of keys and invites, in memory."""

    def __init__(self, *known: bytes) -> None:
        self.known = set(known)
        self.invites: dict[bytes, bytes] = {}
        self.welcome: dict[str, Any] = {"space": "notes"}

    def offer(self, invite: Invite) -> None:
        """Keep an invite open."""
        self.invites[invite.invite_id] = invite.invite_psk

    async def invite_psk(self, invite_id: bytes) -> bytes | None:
        return self.invites.get(invite_id)

    async def admit(self, public_key: bytes, hello: dict[str, Any], invite_id: bytes | None) -> dict[str, Any]:
        if invite_id is not None:
            if self.invites.pop(invite_id, None) is None:
                raise DeniedError("invite")
            self.known.add(public_key)
        if public_key not in self.known:
            raise DeniedError("unknown")
        return self.welcome


class Host:
    """A daemon on loopback: what it admitted, what it refused and how each session ended."""

    def __init__(self) -> None:
        self.url = ""
        self.refused: asyncio.Queue[ConfideError] = asyncio.Queue()
        self.ended: asyncio.Queue[BaseException | None] = asyncio.Queue()


@asynccontextmanager
async def hosting(
    door: Door,
    handle: Callable[[Connection], Awaitable[None]],
    *,
    identity: Identity = HOST,
    previous: KeyRotation | None = None,
    timeout_s: float = 5.0,
    slot: Callable[[], AbstractContextManager[None]] = nullcontext,
    timers: Timers | None = None,
) -> AsyncIterator[Host]:
    """Run a daemon whose sessions are given to `handle`."""
    host = Host()

    async def on_websocket(ws: ServerConnection) -> None:
        try:
            connection = await accept(
                ws,
                identity,
                door,
                previous=previous,
                timeout_s=timeout_s,
                slot=slot(),
                timers=timers or Timers(),
            )
        except ConfideError as error:
            host.refused.put_nowait(error)
            return
        try:
            await handle(connection)
        except Exception as error:
            host.ended.put_nowait(error)
        else:
            host.ended.put_nowait(None)

    async with serve(on_websocket, "127.0.0.1", 0, server_header=None, **websocket_options()) as server:
        host.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield host


async def dial(url: str, **options: Any) -> Connection:
    """The laptop's connection to the host."""
    return await connect(url, LAPTOP, HOST.static_key, **options)


async def no_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
    """For an end that is asked nothing."""
    raise AssertionError(f"nobody should ask for {op}")


async def no_message(data: bytes) -> None:
    """For an end that gets no messages."""
    raise AssertionError("nobody should send a message")


async def echo(connection: Connection) -> None:
    """Send every message back."""
    await connection.serve(on_message=connection.send_message, on_request=no_request)


def answering(
    on_request: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
) -> Callable[[Connection], Awaitable[None]]:
    """What `hosting` is given: sessions whose requests go to `on_request`."""

    async def handle(connection: Connection) -> None:
        await connection.serve(on_message=no_message, on_request=on_request)

    return handle
