"""`/mcp`: passes each authenticated request to the client's session manager of the SDK, and ends
the request when its token ends.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.addons import DaemonHost
from confide_http.door.bearer_auth import Bearer
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import body_of
from confide_http.door.serving import KNOWN
from confide_http.server.answering.clients import Clients
from confide_http.server.answering.gateway_client import restarting
from confide_http.server.token_callers import Admitted, TokenCallers

BODY_S: Final = 30.0
"""Time limit for a body, however slowly it comes."""
LISTEN: Final = "subscriptions/listen"
_QUOTES: Final = ("Validation error", "Parse error")
"""Beginnings of SDK messages that quote the request."""
_NO_MESSAGE: Final = "the body is no message of JSON-RPC: it is one object, and no batch"


class SdkEndpoint:
    """The endpoint `/mcp` as an ASGI application, the form that the SDK uses."""

    def __init__(self, daemon: DaemonHost, clients: Clients, callers: TokenCallers, by_token: Bearer[Admitted]) -> None:
        self._daemon = daemon
        self._callers = callers
        self._clients = clients
        self._by_token = by_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises RefusalError: not authenticated, no place, too large, too slow, or the space is
        unavailable; RequestError, EngineError.
        """
        if await self._daemon.is_cut_off():
            raise RefusalError(
                503,
                "unavailable",
                "this node cannot reach its store",
                hint="nothing was done: ask again in a moment, or another node",
            )
        admitted = await self._by_token(Request(scope, receive))
        scope["state"][KNOWN] = True
        await self._answer(admitted.caller, scope, receive, send, left_s=admitted.left_s, is_passed_on=False)

    async def answer_forwarded(self, key: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that another node has authenticated, for the client with this registry
        key. That node ends the request when its token ends.
        """
        caller = await self._callers.current_caller(key)
        if caller is None:
            raise self._by_token.unknown_token_error()
        await self._answer(caller, scope, receive, send, left_s=None, is_passed_on=True)

    async def _answer(
        self, caller: Caller, scope: Scope, receive: Receive, send: Send, *, left_s: float | None, is_passed_on: bool
    ) -> None:
        request = Request(scope, receive)
        # The header must match the body, which the SDK checks.
        is_stream = request.method == "GET" or request.headers.get("mcp-method") == LISTEN
        places = self._clients.streams if is_stream else self._clients.requests
        with places.place(caller.public_key):
            client = self._clients.of(caller)
            client.require_credit()
            body = await body_of(request, within_s=BODY_S)
            await client.pay(body)
            told = _in_our_words(send)
            work = asyncio.create_task(client.handle(scope, body, receive, told, is_passed_on=is_passed_on))
            # A stream ends with its token; if the client ends for another reason, a request is
            # still answered.
            end = asyncio.create_task((client.ended if is_stream else client.is_over).wait())
            try:
                await asyncio.wait({work, end}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    return work.result()
            finally:
                end.cancel()
                work.cancel()
                await asyncio.wait({work, end})
        if client.ended.is_set() and not client.is_over.is_set():
            raise restarting()
        raise self._by_token.unknown_token_error()


def _in_our_words(send: Send) -> Send:
    """Wrap `send`: replace the SDK's message for an invalid body, which quotes it and contains a
    URL; other responses pass unchanged.
    """
    head: Message | None = None
    body = bytearray()

    async def send_reworded(message: Message) -> None:
        nonlocal head
        if message["type"] == "http.response.start" and message["status"] == 400:
            head = message
            return
        if head is None or message["type"] != "http.response.body":
            await send(message)
            return
        body.extend(message.get("body", b""))
        if message.get("more_body"):
            return
        answer = _reword(bytes(body))
        headers = [pair for pair in head["headers"] if pair[0].lower() != b"content-length"]
        headers.append((b"content-length", str(len(answer)).encode()))
        await send({**head, "headers": headers})
        await send({**message, "body": answer})

    return send_reworded


def _reword(body: bytes) -> bytes:
    try:
        said: Any = json.loads(body)
        if said["error"]["message"].startswith(_QUOTES):
            said["error"] = {"code": said["error"]["code"], "message": _NO_MESSAGE}
            return json.dumps(said).encode()
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # it is another answer
    return body
