"""Streams of news that their client leaves, or that find no place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import MAX_STREAMS_EACH
from confide_http.local.gateway_app import EventStreamResponse, GatewayShared
from confide_http.local.request_identity import READ, RequestIdentity
from confide_http.local.streamable.event_streams import listening
from confide_http.local.streamable.notifications import NotificationStream
from confide_http.local.upstream import UpstreamSession
from confide_proxy.config import ProxyConfig
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project


@pytest.fixture
async def gateway(tmp_path: Path) -> GatewayShared:
    paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon")
    config = ProxyConfig()
    return GatewayShared(paths, config, UpstreamSession(paths, config, Project("shop", tmp_path, is_git=False)))


PANEL = RequestIdentity("panel", "panel", frozenset({READ}), is_of_token=False)


async def nobody() -> Any:
    await asyncio.Event().wait()


async def nothing(_message: Any) -> None:
    pass


async def test_a_client_that_leaves_leaves_nothing_that_waits(gateway: GatewayShared) -> None:
    """What still waited for news was destroyed unfinished when the gateway ended, which says so on standard error."""
    before, listener, left = asyncio.all_tasks(), NotificationStream(()), asyncio.Event()
    stream = EventStreamResponse(gateway, PANEL, listening(listener), end=listener.end, over=left.set)
    scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
    serving = asyncio.create_task(stream(scope, nobody, nothing))
    async with asyncio.timeout(DEADLINE_S):
        while len(asyncio.all_tasks() - before) < 2:  # noqa: ASYNC110 - it reads, and waits for its client
            await asyncio.sleep(0.01)
    assert gateway.streams.uses == 1
    serving.cancel()
    await asyncio.wait([serving])
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert not gateway.streams.uses
    assert left.is_set()


async def test_a_stream_ends_with_the_gateway(gateway: GatewayShared) -> None:
    """Also one that is opened while it ends."""
    gateway.end()
    listener = NotificationStream(())
    EventStreamResponse(gateway, PANEL, listening(listener), end=listener.end)
    async with asyncio.timeout(DEADLINE_S):
        assert [event async for event in listening(listener)] == [b":\n\n"]


async def test_one_that_finds_no_place_is_over(gateway: GatewayShared) -> None:
    held = [
        EventStreamResponse(gateway, PANEL, listening(NotificationStream(())), end=list)
        for _ in range(MAX_STREAMS_EACH)
    ]
    over: list[str] = []
    with pytest.raises(RefusalError) as refused:
        EventStreamResponse(
            gateway, PANEL, listening(NotificationStream(())), end=list, over=lambda: over.append("over")
        )
    assert refused.value.status == 429
    assert over == ["over"]
    assert gateway.streams.uses == len(held)
