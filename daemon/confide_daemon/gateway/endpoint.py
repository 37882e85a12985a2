"""`/mcp`: a request that was let in goes to the SDK's session manager of its client, and ends with its token."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from confide_daemon.gateway.admission import Bearer
from confide_daemon.gateway.clients import Clients
from confide_daemon.gateway.limits import BODY_S
from confide_door.limits import body_of, replayed
from confide_door.serving import KNOWN

LISTEN: Final = "subscriptions/listen"


class Endpoint:
    """An ASGI application, since the SDK's is one."""

    def __init__(self, clients: Clients, by_token: Bearer) -> None:
        self._clients = clients
        self._by_token = by_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises RefusalError: it is not let in, there is no place, it is too large or too slow, or the space is locked; RequestError."""
        request = Request(scope, receive)
        admitted = self._by_token(request)
        caller = admitted.caller
        # The header must say what the body does, which the SDK compares.
        is_stream = request.method == "GET" or request.headers.get("mcp-method") == LISTEN
        places = self._clients.streams if is_stream else self._clients.requests
        with places.place(caller.public_key):
            scope["state"][KNOWN] = True
            client = self._clients.of(caller)
            body = await body_of(request, within_s=BODY_S)
            await client.pay(body)
            work = asyncio.create_task(client.handle(scope, replayed(body, receive), send))
            end = asyncio.create_task(client.ended.wait())
            try:
                # A stream does not outlive the token that has opened it.
                await asyncio.wait({work, end}, timeout=admitted.left_s, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    return work.result()
            finally:
                end.cancel()
                work.cancel()
                await asyncio.wait({work, end})
        raise self._by_token.challenge.unknown()
