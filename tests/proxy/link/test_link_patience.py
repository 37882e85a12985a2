"""A daemon that says `busy` is asked again, a bounded number of times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.crypto.channels import HOST, LAPTOP, Door, hosting, no_message, no_request
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import RequestError
from confide_crypto.transport.open_channel import Connection, connect
from confide_proxy.link.daemon_link import RetryingLink


@asynccontextmanager
async def answering(*answers: str) -> AsyncIterator[tuple[Connection, list[str]]]:
    """A link to a daemon that answers with these error codes in turn, then well; and what it was asked."""
    asked: list[str] = []

    async def on_request(op: str, _body: dict[str, Any]) -> dict[str, Any]:
        asked.append(op)
        if len(asked) <= len(answers):
            raise RequestError(answers[len(asked) - 1], "no")
        return {"done": True}

    async def handle(connection: Connection) -> None:
        await connection.serve(on_message=no_message, on_request=on_request)

    async with hosting(Door(LAPTOP.public_key), handle) as host:
        link = await connect(host.url, LAPTOP, HOST.static_key)
        async with asyncio.TaskGroup() as group:
            group.create_task(link.serve(on_message=no_message, on_request=no_request))
            yield link, asked
            await link.close()


async def test_busy_is_waited_out() -> None:
    async with answering("busy", "busy") as (link, asked):
        assert await RetryingLink(link, pauses_s=(0.01, 0.01, 0.01)).request("compare", {}, timeout_s=DEADLINE_S) == {
            "done": True
        }
        assert asked == ["compare"] * 3


async def test_busy_for_good_is_told_in_the_end() -> None:
    async with answering(*["busy"] * 9) as (link, asked):
        with pytest.raises(RequestError) as refused:
            await RetryingLink(link, pauses_s=(0.01, 0.01)).request("pull", {}, timeout_s=DEADLINE_S)
        assert refused.value.code == "busy"
        assert len(asked) == 3


async def test_another_error_is_not_asked_again() -> None:
    async with answering("storage_full") as (link, asked):
        with pytest.raises(RequestError) as refused:
            await RetryingLink(link, pauses_s=(0.01,)).request("put", {}, timeout_s=DEADLINE_S)
        assert refused.value.code == "storage_full"
        assert asked == ["put"]
