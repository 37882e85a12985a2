"""The channel over a real websocket on loopback, both ends in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.connection import Connection, accept, connect, websocket_options
from confide_crypto.errors import DeniedError, RequestError
from confide_crypto.keys import Identity


class Door:
    """Lets in the keys it knows."""

    def __init__(self, *known: bytes) -> None:
        self.known = set(known)
        self.invites: dict[bytes, bytes] = {}

    def invite_psk(self, invite_id: bytes) -> bytes | None:
        return self.invites.get(invite_id)

    async def admit(self, public_key: bytes, hello: dict[str, Any], invite_id: bytes | None) -> dict[str, Any]:
        if invite_id is not None:
            del self.invites[invite_id]
            self.known.add(public_key)
        if public_key not in self.known:
            raise DeniedError("unknown")
        return {"space": "notes"}


@asynccontextmanager
async def daemon(identity: Identity, door: Door, handle: Callable[[Connection], Any]) -> AsyncIterator[str]:
    async def on_websocket(ws: ServerConnection) -> None:
        try:
            connection = await accept(ws, identity, door)
        except Exception:
            return
        await handle(connection)

    async with serve(on_websocket, "127.0.0.1", 0, server_header=None, **websocket_options()) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_a_session_carries_messages_and_requests_both_ways_and_ends_cleanly() -> None:
    laptop, host = Identity.generate(), Identity.generate()
    served: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            await connection.send_message(data.upper())

        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            if op == "fail":
                raise RequestError("not_found", "no such document", "try another")
            return {"op": op, "body": body, "back": await connection.request("apply", {"n": 1})}

        await connection.serve(on_message=on_message, on_request=on_request)
        served.set_result(connection)

    async with daemon(host, Door(laptop.public_key), handle) as url:
        connection = await connect(url, laptop, host.static_key, hello={"machine": "laptop"})
        assert connection.welcome == {"space": "notes"}
        assert connection.peer_key == host.public_key
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            return {"applied": body["n"]}

        async with asyncio.TaskGroup() as group:
            group.create_task(connection.serve(on_message=heard.put, on_request=on_request))
            await connection.send_message(b"hello")
            assert await heard.get() == b"HELLO"
            answer = await connection.request("put", {"text": "x" * 100_000}, bulk=True)
            assert answer == {"op": "put", "body": {"text": "x" * 100_000}, "back": {"applied": 1}}
            big = b"a" * 3_000_000
            await connection.send_message(big)
            assert await heard.get() == big.upper()
            try:
                await connection.request("fail", {})
            except RequestError as error:
                assert (error.code, error.message, error.hint) == ("not_found", "no such document", "try another")
            await connection.close()
        peer = await served
        assert peer.hello == {"machine": "laptop"}
        assert peer.session_id == connection.session_id
        assert peer.close_code == "done"
