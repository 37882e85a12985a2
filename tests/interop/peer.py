"""The second client and the second daemon: PROTOCOL.md 3, 4.6, 4.7 and 8 around handshake and session."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.interop.bodies import Incoming
from tests.interop.engine import Engine, PythonEngine
from tests.interop.frames import BrokenError, Frame, Records, Type
from tests.interop.handshake import ENROLL, Caller, HandshakeError, daemon_statement, initiate, respond, verify
from tests.interop.requests import RefusedError, parse
from tests.interop.serving import Answer
from tests.interop.session import Session
from tests.interop.texts import Identity, Invite
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

SUBPROTOCOL = Subprotocol("confide.v1")
MAX_RECORD = 65535
FIRST_RECORD = 1024
CLOSE_HANDSHAKE, CLOSE_DENIED = 4400, 4403
HANDSHAKE_S = 10.0
OPTIONS: dict[str, Any] = {
    "subprotocols": [SUBPROTOCOL],
    "compression": None,
    "ping_interval": None,
    "max_size": MAX_RECORD,
    # One record of the largest size and a little: what is sealed is nearly on the wire (6.5).
    "write_limit": 16 << 10,
    "close_timeout": 5,
}


class NotThePinnedKeyError(Exception):
    """The endpoint does not hold the pinned key (4.6)."""


class InviteNotAcceptedError(Exception):
    """The handshake failed after message 3 of an enrollment."""


class DeniedError(Exception):
    """The daemon's first record said no (4.7)."""

    def __init__(self, reason: str, hint: str | None) -> None:
        super().__init__(f"{reason}: {hint}")
        self.reason, self.hint = reason, hint


def client_engine(identity: Identity, daemon_static: bytes) -> Engine:
    """An initiator on `noiseprotocol`."""
    return PythonEngine(static_private=identity.static_private, remote_static=daemon_static)


@dataclass(slots=True)
class Link:
    """An open session of the client, and what the daemon's first record said."""

    session: Session
    daemon_key: bytes
    welcome: dict[str, Any]


async def nothing_to_answer(op: str, parameters: dict[str, Any], body: object) -> dict[str, Any]:
    """A client that serves no requests."""
    raise RefusedError("invalid", f"this client does not answer {op}")


@dataclass(slots=True)
class Opened:
    """An open channel of the client, before anybody reads it."""

    socket: ClientConnection
    records: Records
    daemon_key: bytes
    welcome: dict[str, Any]


@asynccontextmanager
async def open_channel(
    url: str,
    daemon_static: bytes,
    identity: Identity,
    *,
    invite: Invite | None = None,
    hello: dict[str, Any] | None = None,
    engine: Callable[[Identity, bytes], Engine] = client_engine,
) -> AsyncIterator[Opened]:
    """A channel up to the daemon's first record. Raises NotThePinnedKeyError, InviteNotAcceptedError, DeniedError."""
    async with dial(url, proxy=None, **OPTIONS) as socket:
        if socket.subprotocol != SUBPROTOCOL:
            raise HandshakeError("the daemon did not select confide.v1")
        noise = engine(identity, daemon_static)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await initiate(socket, noise, identity, daemon_static, invite, hello or {})
        except Exception as error:
            raise NotThePinnedKeyError from error
        records = Records(noise)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                first = records.open(await socket.recv())
        except ConnectionClosed as error:
            if invite is None:
                raise
            raise InviteNotAcceptedError from error
        yield Opened(socket, records, *_opening(first, daemon_static))


@asynccontextmanager
async def connect(
    url: str, daemon_static: bytes, identity: Identity, *, answer: Answer = nothing_to_answer, **options: Any
) -> AsyncIterator[Link]:
    """A session as a client; `options` and what it raises are those of `open_channel`."""
    async with open_channel(url, daemon_static, identity, **options) as opened:
        session = Session(opened.socket, opened.records, client=True, answer=answer)
        running = asyncio.create_task(session.run())
        try:
            yield Link(session, opened.daemon_key, opened.welcome)
        finally:
            if not session.ended.done():
                await session.close()
            await running


def _opening(frame: Frame, daemon_static: bytes) -> tuple[bytes, dict[str, Any]]:
    """The daemon's key and welcome out of its first record. Raises DeniedError, BrokenError, HandshakeError."""
    if frame.type is not Type.RES or frame.stream != 0 or frame.flags or frame.length < FIRST_RECORD:
        raise BrokenError("the first record is another")
    match parse(frame.payload):
        case {"ok": {"daemon": {"key": str(key), "signature": str(signature)}, "welcome": dict(welcome)}}:
            verify(bytes.fromhex(key), bytes.fromhex(signature), daemon_statement(daemon_static))
            return bytes.fromhex(key), welcome
        case {"error": {"code": "denied", "reason": str(reason)} as error}:
            raise DeniedError(reason, error.get("hint"))
    raise BrokenError("form of the first record")


@dataclass(slots=True)
class Served:
    """One session at the second daemon."""

    caller: Caller
    session: Session


Serve = Callable[[Served], Awaitable[None]]


@dataclass(slots=True)
class Daemon:
    """The second daemon. `answer` makes the handler of requests for a session; `talk` runs beside each session.

    `signer` signs the static key in place of `identity`, and `before_first` is sent before the first record: both break 4.7.
    """

    answer: Callable[[Served], Answer]
    talk: Serve
    identity: Identity = field(default_factory=Identity.generate)
    welcome: dict[str, Any] = field(default_factory=dict)
    callers: set[bytes] = field(default_factory=set)
    invites: list[Invite] = field(default_factory=list)
    used: list[Invite] = field(default_factory=list)
    sessions: list[Served] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    port: int = 0
    signer: Identity | None = None
    before_first: Frame | None = None
    new_engine: Callable[[Identity], tuple[Engine, Callable[[], bytes]]] | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Daemon]:
        """Listen on a loopback port."""
        async with serve(self._connection, "127.0.0.1", 0, **OPTIONS) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self
            server.close(close_connections=True)

    @property
    def url(self) -> str:
        """What a client pins."""
        return f"confide://127.0.0.1:{self.port}/"

    def invite(self) -> Invite:
        """A new invite."""
        invite = Invite(self.identity.static, Identity.generate().seed[:16], "127.0.0.1", self.port)
        self.invites.append(invite)
        return invite

    def _engine(self) -> tuple[Engine, Callable[[], bytes]]:
        if self.new_engine is not None:
            return self.new_engine(self.identity)
        engine = PythonEngine(static_private=self.identity.static_private)
        return engine, lambda: engine.remote_static

    def _secret(self, invite_id: bytes) -> bytes | None:
        return next((each.secret for each in [*self.invites, *self.used] if each.id == invite_id), None)

    async def _connection(self, socket: ServerConnection) -> None:
        engine, remote_static = self._engine()
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                caller = await respond(socket, engine, remote_static, self.identity.static, self._secret)
        except ConnectionClosed:
            return
        except Exception as error:
            self.failures.append(error)
            await socket.close(CLOSE_HANDSHAKE)
            return
        records = Records(engine)
        denial = self._denial(caller)
        if denial is not None:
            first: dict[str, Any] = {"error": denial}
        else:
            signature = (self.signer or self.identity).signing.sign(daemon_statement(self.identity.static))
            daemon = {"key": self.identity.key.hex(), "signature": signature.hex()}
            first = {"ok": {"daemon": daemon, "welcome": self.welcome}}
        frame = Frame(Type.RES, 0, json.dumps(first).encode())
        with contextlib.suppress(ConnectionClosed):
            if self.before_first is not None:
                await socket.send(records.seal(self.before_first))
            await socket.send(records.seal(frame, at_least=FIRST_RECORD))
        if denial is not None:
            await socket.close(CLOSE_DENIED)
            return
        await self._session(socket, records, caller)

    def _denial(self, caller: Caller) -> dict[str, Any] | None:
        """Enroll, or find the caller (4.7, 5.3)."""
        if caller.mode == ENROLL:
            invite = next((each for each in self.invites if each.id == caller.invite_id), None)
            if invite is None:
                return {"code": "denied", "reason": "invite", "hint": "this invite was used already"}
            self.invites.remove(invite)
            self.used.append(invite)
            self.callers.add(caller.key)
        elif caller.key not in self.callers:
            return {"code": "denied", "reason": "unknown", "hint": None}
        return None

    async def _session(self, socket: ServerConnection, records: Records, caller: Caller) -> None:
        async def answer(op: str, parameters: dict[str, Any], body: Incoming | None) -> dict[str, Any]:
            return await handler(op, parameters, body)

        served = Served(caller, Session(socket, records, client=False, answer=answer))
        handler = self.answer(served)
        self.sessions.append(served)
        talking = asyncio.ensure_future(self.talk(served))
        try:
            await served.session.run()
        except BrokenError as error:
            self.failures.append(error)
        finally:
            talking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await talking
