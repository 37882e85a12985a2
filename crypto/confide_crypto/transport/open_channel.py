"""Opens an encrypted channel over a websocket, for the client and for the daemon (PROTOCOL.md 3 and
4). The result is a `connection.Connection`.

`websockets` is the heaviest import here, so its client half is loaded when a client connects, and
its server half by the daemon itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol

from websockets.asyncio.connection import Connection as WebSocket
from websockets.exceptions import ConnectionClosed

from confide_crypto.channel.protocol import WELCOME_BUCKET, WELCOME_STREAM, AnswerReceived, Channel, FrameType
from confide_crypto.channel.request_codec import sentence
from confide_crypto.errors import (
    BusyError,
    ConnectionLost,
    DeniedError,
    HandshakeError,
    ProtocolViolation,
    UnreachableError,
    WrongDaemonKey,
)
from confide_crypto.handshake.handshake import ClientHandshake, DaemonHandshake, ProvenPeer
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.rotation import KeyRotation, KeySuccession, successor_in
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, fingerprint_words, from_hex, verify
from confide_crypto.limits import (
    CLOSE_BUSY,
    CLOSE_DENIED,
    CLOSE_REFUSED,
    CLOSE_TIMEOUT_S,
    DEFAULT_TIMERS,
    FIRST_MESSAGE_TIMEOUT_S,
    HANDSHAKE_TIMEOUT_S,
    MAX_RECORD,
    SUBPROTOCOL,
    Timers,
    websocket_options,
)
from confide_crypto.transport.connection import Connection
from confide_crypto.transport.dial import open_websocket, place_of, websocket_url

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.server import ServerConnection

__all__ = ["Authorize", "Connection", "Timers", "Welcome", "accept", "connect", "websocket_options"]

Welcome = dict[str, object]
_DAEMON_LABEL: Final = b"confide/daemon-static/1"
_MAX_BEFORE_MESSAGE3: Final = 2048


class Authorize(Protocol):
    """The daemon's decisions in a handshake: which invites are valid, and which callers may
    connect.
    """

    async def invite_psk(self, invite_id: bytes) -> bytes | None:
        """Return the secret of an invite that is still valid, or None. It is called before the
        caller has proven anything.

        Raises HandshakeError if it is not known whether there is such an invite: the caller then
        sees a lost connection, and tries again.
        """

    async def admit(self, public_key: bytes, hello: dict[str, object], invite_id: bytes | None) -> Welcome:
        """Return the welcome for a caller that has proven its key.

        If `invite_id` is not None, the caller has also proven that it holds this invite, and the
        call must mark the invite as used.

        Raises DeniedError if the caller may not connect. The caller receives the reason and the
        hint, encrypted.
        """


async def connect(
    url: str,
    identity: Identity,
    daemon_static: bytes,
    *,
    daemon_key: bytes | None = None,
    invite: Invite | None = None,
    hello: dict[str, object] | None = None,
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
    timers: Timers = DEFAULT_TIMERS,
) -> Connection:
    """Open a channel to the daemon that holds `daemon_static`.

    If the daemon has a new key, the connection's `successor` names it.

    Args:
        url: ws:// or wss:// (also confide:// and confides://).
        identity: this device's identity.
        daemon_static: the pinned X25519 key, 32 bytes.
        daemon_key: the pinned Ed25519 key, 32 bytes, if known: a daemon with another one is refused.
        invite: the invite that this connection uses up.
        hello: at most 352 bytes of JSON about this device.
        timeout_s: limit for everything together, from the name lookup to the welcome.
        timers: keepalive and idle limit.

    Raises:
        UnreachableError: no websocket there: refused, no such name, timed out, tls, another service.
        WrongDaemonKey: the endpoint does not hold the pinned key, or proves another identity.
        DeniedError: the daemon authenticated the device and refuses it.
        HandshakeError: the handshake failed otherwise.
        ConnectionLost: the connection ended during the handshake.
    """
    url = websocket_url(url)
    where = place_of(url)
    try:
        async with asyncio.timeout(timeout_s):
            ws = await open_websocket(url, where)
            try:
                connection = await _introduce(ws, where, identity, daemon_static, invite, hello or {}, timers)
                if daemon_key is not None and connection.peer_key != daemon_key:
                    # Both keys come from one seed (PROTOCOL.md 2.2), so the pinned daemon never has
                    # another Ed25519 key: an endpoint that does has stolen only the X25519 half.
                    raise WrongDaemonKey(where)
            except BaseException:
                ws.transport.abort()
                raise
    except TimeoutError:
        raise UnreachableError(where, f"timed out after {timeout_s:g} s") from None
    connection.peer_static = daemon_static
    connection.successor = successor_in(connection.welcome, daemon_static, connection.peer_key)
    return connection


async def accept(
    ws: ServerConnection,
    identity: Identity,
    authorize: Authorize,
    *,
    previous: KeyRotation | None = None,
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
    slot: AbstractContextManager[None] | None = None,
    timers: Timers = DEFAULT_TIMERS,
) -> Connection:
    """Run the daemon's side of the handshake on a websocket that has just opened.

    On any failure the websocket is closed before the error is raised.

    Args:
        ws: a websocket opened with `websocket_options()`.
        identity: the daemon's identity.
        authorize: decides about the client. It is called once for the invite's secret and once for
            the client's key.
        previous: the daemon's key before `identity`, while that is still valid; a client that uses
            it learns the new one.
        timeout_s: limit for the whole handshake, including `admit`; the first message must arrive
            within 5 s.
        slot: a limit on simultaneous handshakes, entered once message 1 is valid. It raises
            BusyError if no slot is free.
        timers: keepalive and idle limit.

    Raises HandshakeError if the client did not prove its key in time, so that nothing is known
    about it; DeniedError if `authorize` refused the client, which has been informed.
    """
    try:
        async with asyncio.timeout(timeout_s):
            handshake = await _receive_message1(ws, identity, previous)
            with slot or contextlib.nullcontext():
                return await _receive_client(ws, handshake, identity, authorize, previous, timers)
    except (HandshakeError, DeniedError) as error:
        await _refuse(ws, {BusyError: CLOSE_BUSY, DeniedError: CLOSE_DENIED}.get(type(error), CLOSE_REFUSED))
        raise
    except TimeoutError:
        await _refuse(ws, CLOSE_REFUSED)
        raise HandshakeError("the client did not finish the handshake in time") from None
    except (ConnectionClosed, ConnectionLost):
        raise HandshakeError("the client left in the middle of the handshake") from None
    except BaseException:
        ws.transport.abort()
        raise


# -- the client's side --------------------------------------------------------------------------------------------


async def _introduce(
    ws: ClientConnection,
    where: str,
    identity: Identity,
    daemon_static: bytes,
    invite: Invite | None,
    hello: dict[str, object],
    timers: Timers,
) -> Connection:
    handshake = ClientHandshake(identity, daemon_static, invite=invite, hello=hello)
    try:
        await ws.send(handshake.write_message1())
        handshake.read_message2(_binary(await ws.recv()))
    except HandshakeError:
        raise WrongDaemonKey(where) from None
    except ConnectionClosed as end:
        raise _refusal(end, where, WrongDaemonKey(where)) from None
    own_words = fingerprint_words(identity.public_key)
    refused = (
        HandshakeError(f"the daemon at {where} refused the handshake")
        if invite is None
        else DeniedError("invite", own_words)
    )
    try:
        await ws.send(handshake.write_message3())
        channel = Channel(handshake.finish(), initiator=True)
        event = channel.receive(_binary(await ws.recv()))
    except ConnectionClosed as end:
        raise _refusal(end, where, refused) from None
    except ProtocolViolation:
        raise HandshakeError(f"the daemon at {where} did not finish the handshake") from None
    if not isinstance(event, AnswerReceived):
        raise HandshakeError(f"the daemon at {where} did not finish the handshake")
    peer_key, welcome = _read_welcome(event.data, daemon_static, own_words)
    return Connection(ws, channel, peer_key=peer_key, hello=hello, welcome=welcome, timers=timers)


def _refusal(end: ConnectionClosed, where: str, refused: Exception) -> Exception:
    code = end.rcvd.code if end.rcvd else None
    if code == CLOSE_REFUSED:
        return refused
    if code == CLOSE_BUSY:
        return UnreachableError(where, "it has too many handshakes at once", hint="try again in a few seconds")
    return ConnectionLost(truncated=True, problem="it broke off in the middle of the handshake")


def _read_welcome(data: bytes, daemon_static: bytes, own_words: str) -> tuple[bytes, Welcome]:
    """Return the daemon's Ed25519 key and its welcome. Raises DeniedError if it sent a denial."""
    broken = HandshakeError("the daemon did not finish the handshake")
    try:
        body = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise broken from None
    match body:
        case {"ok": {"daemon": {"key": str(key), "signature": str(signature)}, "welcome": dict(welcome)}}:
            try:
                peer_key, proof = from_hex(key, KEY_LENGTH), from_hex(signature, SIGNATURE_LENGTH)
            except ValueError:
                raise broken from None
            if not verify(peer_key, _DAEMON_LABEL, daemon_static, proof):
                raise broken
            return peer_key, welcome
        case {"error": {"code": "denied", "reason": str(reason), **rest}}:
            hint = rest.get("hint")
            raise DeniedError(sentence(reason), own_words, hint=sentence(hint) if isinstance(hint, str) else None)
    raise broken


# -- the daemon's side --------------------------------------------------------------------------------------------


async def _receive_message1(ws: ServerConnection, identity: Identity, previous: KeyRotation | None) -> DaemonHandshake:
    if ws.subprotocol != SUBPROTOCOL:
        raise HandshakeError("handshake failed")
    ws.protocol.max_message_size = _MAX_BEFORE_MESSAGE3
    handshake = DaemonHandshake(identity, previous=previous.old if previous else None)
    async with asyncio.timeout(FIRST_MESSAGE_TIMEOUT_S):
        handshake.read_message1(_binary(await ws.recv()))
    return handshake


async def _receive_client(
    ws: ServerConnection,
    handshake: DaemonHandshake,
    identity: Identity,
    authorize: Authorize,
    previous: KeyRotation | None,
    timers: Timers,
) -> Connection:
    invite_id = handshake.invite_id
    invite_psk = None if invite_id is None else await authorize.invite_psk(invite_id)
    await ws.send(handshake.write_message2(invite_psk))
    caller = handshake.read_message3(_binary(await ws.recv()))
    ws.protocol.max_message_size = MAX_RECORD
    channel = Channel(handshake.finish(), initiator=False)
    succession = previous.statement if previous and handshake.identity is not identity else None
    welcome = await _admit(ws, channel, handshake.identity, authorize, caller, invite_id, succession)
    return Connection(ws, channel, peer_key=caller.public_key, hello=caller.hello, welcome=welcome, timers=timers)


async def _admit(
    ws: ServerConnection,
    channel: Channel,
    identity: Identity,
    authorize: Authorize,
    caller: ProvenPeer,
    invite_id: bytes | None,
    succession: KeySuccession | None,
) -> Welcome:
    try:
        welcome = await authorize.admit(caller.public_key, caller.hello, invite_id)
    except DeniedError as denied:
        await _send_first(ws, channel, {"error": {"code": "denied", "reason": denied.reason, "hint": denied.hint}})
        raise
    proof = identity.sign(_DAEMON_LABEL, identity.static_key)
    statement = {"key": identity.public_key.hex(), "signature": proof.hex()}
    if succession:
        welcome = {**welcome, "rotation": succession.to_json()}
    await _send_first(ws, channel, {"ok": {"daemon": statement, "welcome": welcome}})
    return welcome


async def _send_first(ws: ServerConnection, channel: Channel, body: dict[str, object]) -> None:
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    await ws.send(channel.seal(FrameType.RES, WELCOME_STREAM, data, bucket=WELCOME_BUCKET))


async def _refuse(ws: WebSocket, code: int) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await ws.close(code)
    except TimeoutError:
        ws.transport.abort()


def _binary(message: str | bytes) -> bytes:
    if isinstance(message, str):
        raise HandshakeError("handshake failed")
    return message
