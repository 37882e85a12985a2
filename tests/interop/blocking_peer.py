"""The two ends as a whole: a client that dials, and a daemon that answers one connection after the other."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from tests.interop.blocking_handshake import (
    ClientHandshake,
    DaemonHandshake,
    HandshakeFailedError,
    Identity,
    Invite,
)
from tests.interop.blocking_session import DEADLINE_S, FIRST_RECORD_BYTES, Session
from tests.interop.blocking_streams import EndedError, Event
from tests.interop.blocking_wire import RuleBrokenError, Type
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

SUBPROTOCOL = Subprotocol("confide.v1")
MESSAGE_BYTES = 65535
_SIGNED_STATIC = b"confide/daemon-static/1\0"


class DeniedError(Exception):
    """A sealed denial (4.7)."""

    def __init__(self, reason: str, hint: str | None) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


class PeerClient(Session):
    """A client with an open session.

    Raises, when made:
        HandshakeFailedError: 4.6, as a client sees it; `args` says before or after message 3.
        DeniedError: the daemon said so.
    """

    def __init__(
        self,
        url: str,
        identity: Identity,
        daemon_static: bytes,
        invite: Invite | None = None,
        *,
        replaces: str | None = None,
    ) -> None:
        self._dialled = connect(
            url,
            subprotocols=[SUBPROTOCOL],
            compression=None,
            max_size=MESSAGE_BYTES,
            ping_interval=None,
            proxy=None,
            open_timeout=DEADLINE_S,
            legacy=True,
        )
        assert self._dialled.subprotocol == SUBPROTOCOL
        hello = {"machine": "stranger", "program": "tests/interop"}
        try:
            handshake = ClientHandshake(identity, daemon_static, invite)
            self._shake(handshake, hello | ({"replaces": replaces} if replaces else {}))
            super().__init__(self._dialled, handshake.records(), handshake.session_id, parity=1)
            self.expect_first_res()
            first = self._first_record()
        except BaseException:
            self._dialled.close()
            raise
        self.daemon_key = self._checked(first, daemon_static)
        self.welcome: dict[str, Any] = first["welcome"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dialled.close()

    def _shake(self, handshake: ClientHandshake, hello: dict[str, Any]) -> None:
        self._dialled.send(handshake.first())
        try:
            message2 = self._dialled.recv(timeout=DEADLINE_S)
        except ConnectionClosed:
            raise HandshakeFailedError("before message 3") from None
        self._dialled.send(handshake.third(message2, hello))

    def _first_record(self) -> dict[str, Any]:
        try:
            event = self.next_event()
        except EndedError:
            raise HandshakeFailedError("after message 3") from None
        if event.type is not Type.RES or event.stream != 0:
            raise RuleBrokenError("another first frame")
        if error := event.json.get("error"):
            raise DeniedError(error["reason"], error["hint"])
        return dict(event.json["ok"])

    def _checked(self, first: dict[str, Any], daemon_static: bytes) -> bytes:
        key = bytes.fromhex(first["daemon"]["key"])
        signature = bytes.fromhex(first["daemon"]["signature"])
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _SIGNED_STATIC + daemon_static)
        return key

    def call(self, identifier: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of an MCP tool, by MSG (7.3)."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "stranger", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        parameters = {"name": tool, "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": parameters}
        self.send_message(Type.MSG, 0, json.dumps(message).encode())
        event = self.wait_for(lambda event: event.type is Type.MSG and event.json.get("id") == identifier)
        return dict(event.json["result"])


Handler = Callable[[Session, Event], dict[str, Any] | None]


class PeerDaemon:
    """A daemon on a loopback port, in threads; use with `with`.

    `handler` is called with every event; for a REQ it returns the RES. What went wrong in a session is in `failures`.
    """

    def __init__(self, handler: Handler) -> None:
        self.identity = Identity()
        self.callers: set[bytes] = set()
        self.invites: dict[bytes, Invite] = {}
        self.failures: list[BaseException] = []
        self.ended: list[str | None] = []
        self.close_codes: list[int | None] = []
        self.hellos: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {}
        self.signs_as: Identity | None = None
        self.before_first: Callable[[Session], object] | None = None
        self._handler = handler
        self._server: Server = serve(
            self._serve,
            "127.0.0.1",
            0,
            subprotocols=[SUBPROTOCOL],
            compression=None,
            max_size=MESSAGE_BYTES,
            ping_interval=None,
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join(DEADLINE_S)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.socket.getsockname()[1]
        return port

    def invite(self) -> str:
        """A new invite's string."""
        made = Invite.make(self.port, self.identity.static_public)
        self.invites[made.id] = made
        return made.text()

    def _serve(self, socket: ServerConnection) -> None:
        try:
            handshake = DaemonHandshake(self.identity, self.invites)
            socket.send(handshake.second(socket.recv(timeout=DEADLINE_S)))
            caller = handshake.finish(socket.recv(timeout=DEADLINE_S))
        except (HandshakeFailedError, ConnectionClosed, TimeoutError) as error:
            self.failures.append(error)
            socket.close(4400)
            return
        session = Session(socket, handshake.records(), handshake.session_id, parity=2)
        session.use_stream_0()
        self.hellos.append(caller.hello)
        if handshake.invite and self.invites.pop(handshake.invite.id, None):
            self.callers.add(caller.public)
        try:
            if caller.public not in self.callers:
                denial = {"code": "denied", "reason": "unknown", "hint": None}
                session.answer(0, {"error": denial}, at_least=FIRST_RECORD_BYTES)
                socket.close(4403)
                return
            if self.before_first:
                self.before_first(session)
            signature = (self.signs_as or self.identity).signing.sign(_SIGNED_STATIC + self.identity.static_public)
            daemon = {"key": self.identity.public.hex(), "signature": signature.hex()}
            session.answer(0, {"ok": {"daemon": daemon, "welcome": self.welcome}}, at_least=FIRST_RECORD_BYTES)
            session.on_request = self._handler
            while True:
                event = session.next_event()
                result = self._handler(session, event)
                if event.type is Type.REQ:
                    assert result is not None
                    session.answer(event.stream, result)
        except EndedError as end:
            self.ended.append(end.word)
            self.close_codes.append(socket.close_code)
        except BaseException as error:
            self.failures.append(error)
            socket.close(4401)
