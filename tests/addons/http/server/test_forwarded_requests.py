"""Requests that another node passes on, at the node that holds their space."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.support.crypto.channels import LAPTOP, Door, dial, hosting, no_request
from tests.support.deadline import DEADLINE_S

from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection
from confide_http.server.answering import forwarded_requests
from confide_http.server.answering.forwarded_requests import ForwardedRequest
from confide_http.server.answering.http_codec import LEFT, REQUEST
from confide_http.server.answering.sdk_endpoint import SdkEndpoint


class Hall:
    """What answers."""

    async def answer_forwarded(self, _key: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("in the hall")(scope, receive, send)


async def test_a_request_that_crosses_the_goodbye_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is told to stop says so on each channel; what was asked before it was heard comes behind that."""
    has_said = asyncio.Event()
    go_away = Connection.go_away

    async def said(connection: Connection, *reason: Any) -> None:
        await go_away(connection, *reason)
        has_said.set()

    monkeypatch.setattr(Connection, "go_away", said)
    monkeypatch.setattr(forwarded_requests, "HEARD_S", DEADLINE_S)  # on a busy machine this node takes longer to ask

    async def holder(connection: Connection) -> None:
        requests = ForwardedRequest(connection, cast("SdkEndpoint", Hall()))
        serving = asyncio.create_task(requests.serve())
        await requests.leave()
        await serving

    answers: list[tuple[dict[str, Any], bytes]] = []

    async def answered(_op: str, head: dict[str, Any], body: Body) -> dict[str, Any]:
        answers.append((head, await body.read(100)))
        return {}

    async def asking() -> AsyncIterator[bytes]:
        yield b"where is the tide table?"

    async with asyncio.timeout(DEADLINE_S), hosting(Door(LAPTOP.public_key), holder) as host:
        node = await dial(host.url)
        await has_said.wait()
        request = asyncio.create_task(
            node.upload(REQUEST, {"number": 1, "method": "POST", "headers": []}, asking(), timeout_s=DEADLINE_S)
        )
        serving = asyncio.create_task(node.serve(on_request=no_request, on_stream=answered))
        await request
        await node.close()
        await asyncio.gather(serving, return_exceptions=True)
        assert await host.ended.get() is None
    ((head, body),) = answers
    assert (head["status"], body) == (200, b"in the hall")


class Slow:
    """Answers, and needs a moment behind its answer, as the SDK does to keep a session that was begun."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.how: asyncio.Queue[str] = asyncio.Queue()

    async def answer_forwarded(self, _key: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await PlainTextResponse("begun")(scope, receive, send)
            await self.may_end.wait()
        except asyncio.CancelledError:
            await self.how.put("cut off")
            raise
        await self.how.put("whole")


async def test_a_client_that_leaves_with_its_answer_ends_nothing_behind_it() -> None:
    """A client of MCP's older era goes as soon as it has read how its session is called; the session is there when it comes back."""
    slow = Slow()

    async def holder(connection: Connection) -> None:
        await ForwardedRequest(connection, cast("SdkEndpoint", slow)).serve()

    is_read = asyncio.Event()

    async def answered(_op: str, _head: dict[str, Any], body: Body) -> dict[str, Any]:
        assert await body.read(100) == b"begun"
        is_read.set()
        return {}

    async def asking() -> AsyncIterator[bytes]:
        yield b"initialize"

    async with asyncio.timeout(DEADLINE_S), hosting(Door(LAPTOP.public_key), holder) as host:
        node = await dial(host.url)
        serving = asyncio.create_task(node.serve(on_request=no_request, on_stream=answered))
        request = asyncio.create_task(
            node.upload(REQUEST, {"number": 1, "method": "POST", "headers": []}, asking(), timeout_s=DEADLINE_S)
        )
        await is_read.wait()
        await node.request(LEFT, {"number": 1}, timeout_s=DEADLINE_S)
        slow.may_end.set()
        assert await slow.how.get() == "whole"
        await request
        await node.close()
        await asyncio.gather(serving, return_exceptions=True)
