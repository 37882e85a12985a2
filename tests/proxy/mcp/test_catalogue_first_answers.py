"""What a client asks before it counts as connected is answered at once, whatever there is at the other end; what changes, it is told of.

A real Claude Code counts as connected when its stream of news is acknowledged, and asks for the resources before its first turn: with a
daemon that is mute it used to wait nine seconds for that.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from psutil import Process
from tests.support.crypto.channels import HOST
from tests.support.daemon.scripted import Client, Setting, Slow, running
from tests.support.deadline import DEADLINE_S
from tests.support.programs.mcp_session import session
from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.keys.identity import format_daemon_key
from confide_daemon.server.mcp.tool_calls import catalogue
from confide_proxy.mcp.features.subscriptions import ACKNOWLEDGED, MAX_STREAMS, STREAM_KEY

VERSION = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
MODERN: dict[str, Any] = {"_meta": VERSION}
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
CHANGED = "notifications/resources/list_changed"


def pinned(tmp_path: Path, port: int) -> Machine:
    machine = Machine(tmp_path, f"at-{port}")
    machine.run("pin", f"ws://127.0.0.1:{port}/", format_daemon_key(HOST.static_key))
    return machine


def absent(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, "alone")
    (machine.home / "proxy.toml").write_text("on_demand = false\n")
    return machine


@pytest.mark.addons
def test_all_that_a_client_asks_first_is_answered_in_its_place(tmp_path: Path) -> None:
    """By a daemon that takes the connection and is mute, at a port that refuses, and with none at all: nothing waits for a link, so all
    answers come in the order of the questions, in both eras."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as mute, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        places = (pinned(tmp_path, mute.getsockname()[1]), pinned(tmp_path, closed.getsockname()[1]), absent(tmp_path))
        for machine in places:
            with Wire(machine) as wire:
                wire.ask("server/discover", MODERN)
                stream = wire.ask("subscriptions/listen", {**MODERN, "notifications": {"resourcesListChanged": True}})
                modern = {method: wire.ask(method, MODERN) for method in LISTS}
                wire.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}})
                before = {method: wire.ask(method) for method in LISTS}
                last = wire.ask("ping")
                heard = [wire.next() for _ in range(last)]
                assert [one.get("id", one.get("method")) for one in heard] == [1, ACKNOWLEDGED, *range(3, last + 1)]
                assert heard[1]["params"] == {
                    "notifications": {"resourcesListChanged": True},
                    "_meta": {STREAM_KEY: stream},
                }
                results = {one["id"]: one["result"] for one in heard if "result" in one}
                for asked in (modern, before):
                    for method, name in LISTS.items():
                        assert results[asked[method]][name] == catalogue(["core"])[name]
                listed = results[before["resources/list"]]["resources"]
                assert [one["uri"] for one in listed] == ["memory://core", "memory://high"]
                wait_until(
                    "an attempt to reach the daemon", lambda wire=wire: len(Process(wire.process.pid).threads()) > 2
                )
                again = [wire.ask("resources/list"), wire.ask("ping")]
                assert [wire.next()["id"] for _ in again] == again


def test_a_folder_that_is_new_keeps_no_client_waiting(tmp_path: Path) -> None:
    """Whether it has the name that it gives itself is asked of the daemon first, which may take seconds: no list waits for that."""
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / ".git").mkdir()
    (fresh / ".confide.toml").write_text('name = "fresh"\n')
    with socket.create_server(("127.0.0.1", 0), backlog=64) as mute:
        machine = pinned(tmp_path, mute.getsockname()[1])
        with Wire(machine, "--project", str(fresh)) as wire:
            wire.ask("server/discover", MODERN)
            assert wire.next()["id"] == 1
            mute.settimeout(DEADLINE_S)
            connection, _ = mute.accept()  # so the daemon is being asked
            with connection:
                wire.ask("subscriptions/listen", {**MODERN, "notifications": {"toolsListChanged": True}})
                assert wire.next()["method"] == ACKNOWLEDGED
                for method in LISTS:
                    asked = wire.ask(method, MODERN)
                    assert wire.next()["id"] == asked
                assert wire.process.stderr is not None
                os.set_blocking(wire.process.stderr.fileno(), False)
                assert b"fresh" not in (wire.process.stderr.read() or b"")  # which it says once it knows


async def test_the_official_client_listens_while_the_daemon_is_mute(tmp_path: Path) -> None:
    """And lists what there is, in the era that asks for news by a stream."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as mute:
        machine = await asyncio.to_thread(pinned, tmp_path, mute.getsockname()[1])
        async with (
            session(machine, "2026-07-28") as client,
            client.listen(resources_list_changed=True, tools_list_changed=True) as news,
        ):
            assert news.honored.tools_list_changed
            assert len((await client.list_resources()).resources) == 2
            assert len((await client.list_resource_templates()).resource_templates) == 2


@asynccontextmanager
async def unreached(
    tmp_path: Path, answers: dict[str, Any] | None = None
) -> AsyncIterator[tuple[Setting, Slow, Client]]:
    """A client whose daemon can be reached later, by `listen`."""
    setting = Setting(Machine(tmp_path, "ann"))
    setting.daemon.answers |= answers or {}
    await setting.listen()
    await setting.pin()
    await setting.close()
    wire = await asyncio.to_thread(Wire, setting.machine)
    try:
        yield setting, setting.daemon, Client(wire)
    finally:
        await setting.close()
        await asyncio.to_thread(wire.__exit__, None, None, None)


def listens(client: Client, stream: Any, **wanted: Any) -> None:
    client.say(stream, "subscriptions/listen", notifications=wanted, **MODERN)


async def acknowledge(daemon: Slow, stream: Any) -> None:
    """As a daemon does once it has been told of the stream on its newest connection."""
    await daemon.until(lambda: any(one.get("id") == stream for one in daemon.messages))
    await daemon.say({"method": ACKNOWLEDGED, "params": {"notifications": {}, "_meta": {STREAM_KEY: stream}}})


async def test_a_stream_waits_for_the_link_and_outlives_it(tmp_path: Path) -> None:
    """The daemon is told of it once it is there, and again after a break; each time the client is told to look at what may have changed."""
    uri = "memory://core"
    async with unreached(tmp_path) as (setting, daemon, client):
        listens(client, "news", resourceSubscriptions=[uri], resourcesListChanged=True)
        assert (await client.next())["method"] == ACKNOWLEDGED
        for _ in range(2):
            daemon.lines.clear()
            await setting.listen()
            client.call("now")  # nobody waits for the next attempt
            await acknowledge(daemon, "news")
            told = [await client.next_but("now") for _ in range(2)]
            assert [(one["method"], one["params"]["_meta"][STREAM_KEY]) for one in told] == [
                ("notifications/resources/updated", "news"),
                (CHANGED, "news"),
            ]
            await acknowledge(daemon, "news")  # said twice, it says nothing new
            await daemon.until(lambda: daemon.calls)
            await daemon.answer("now")
            assert (await client.next())["id"] == "now"
            await daemon.say({"method": "notifications/resources/updated", "params": {"uri": uri}})
            await daemon.say(
                {"method": "notifications/resources/updated", "params": {"uri": uri, "_meta": {STREAM_KEY: "news"}}}
            )
            assert (await client.next())["params"] == {"uri": uri, "_meta": {STREAM_KEY: "news"}}
            await setting.close()
        client.cancel("news")
        daemon.lines.clear()
        await setting.listen()
        client.call("last")
        await daemon.until(lambda: daemon.calls)
        assert all(one.get("id") != "news" for one in daemon.messages)


async def test_a_client_of_the_older_era_hears_that_there_are_more_resources(tmp_path: Path) -> None:
    """It was given those that are known here; once the link is there it is told to ask again, once, and then the daemon answers."""
    async with unreached(tmp_path) as (setting, daemon, client):
        await asyncio.to_thread(client.wire.open)
        client.say("few", "resources/list")
        assert len((await client.next())["result"]["resources"]) == 2
        await setting.listen()
        client.call("now")
        assert (await client.next())["method"] == CHANGED
        await daemon.until(lambda: daemon.calls)
        await daemon.answer("now")
        assert (await client.next())["id"] == "now"
        client.say("all", "resources/list")
        await daemon.until(lambda: any(one.get("id") == "all" for one in daemon.messages))
        await daemon.say({"id": "all", "result": {"resources": []}})
        assert (await client.next())["result"] == {"resources": []}
        # A daemon that falls silent meanwhile costs no more than a moment: what is known here is known still.
        client.say("again", "resources/list")
        assert len((await client.next())["result"]["resources"]) == 2


@pytest.mark.parametrize("is_modern", [True, False], ids=["2026-07-28", "before"])
async def test_tools_that_the_daemon_has_not_are_told_of(tmp_path: Path, is_modern: bool) -> None:
    """The list that was shown came from the package; the daemon's own is told of in the way of the client's era."""
    fewer = {**catalogue(["core"]), "prompts": []}
    fewer["tools"] = [tool for tool in fewer["tools"] if tool["name"] == "memory_search"]
    meta = MODERN if is_modern else {}
    async with unreached(tmp_path, {"catalogue": fewer}) as (setting, _, client):
        if is_modern:
            listens(client, "news", toolsListChanged=True)
            assert (await client.next())["method"] == ACKNOWLEDGED
        else:
            await asyncio.to_thread(client.wire.open)
        for number, method in enumerate(("tools/list", "prompts/list")):
            client.say(number, method, **meta)
            assert (await client.next())["id"] == number
        await setting.listen()
        client.call("now")
        told = await client.next_but("now")
        assert told["method"] == "notifications/tools/list_changed"
        if is_modern:
            assert told["params"] == {"_meta": {STREAM_KEY: "news"}}
        else:
            assert (await client.next_but("now"))["method"] == "notifications/prompts/list_changed"
        client.say("fewer", "tools/list", **meta)
        assert [tool["name"] for tool in (await client.next_but("now"))["result"]["tools"]] == ["memory_search"]


async def test_streams_are_few_and_of_the_form_that_they_have(tmp_path: Path) -> None:
    """What a daemon would refuse is refused here, and holds nothing."""
    async with running(tmp_path) as (_, daemon, client):
        refused: list[tuple[dict[str, Any], int]] = [
            ({}, -32602),
            ({"notifications": []}, -32602),
            ({"notifications": {"resourceSubscriptions": [f"memory://{n}" for n in range(257)]}}, -32602),
            ({"notifications": {"resourceSubscriptions": ["memory://" + "x" * 8192]}}, -32602),
            ({"notifications": {"resourceSubscriptions": [7]}}, -32602),
        ]
        for number, (params, code) in enumerate(refused):
            client.say(number, "subscriptions/listen", **params, **MODERN)
            assert (await client.next())["error"]["code"] == code, params
        client.say("old", "subscriptions/listen", notifications={})
        assert (await client.next())["error"]["code"] == -32601
        for number in range(MAX_STREAMS):
            listens(client, f"s{number}", toolsListChanged=False, taskIds=["x"])
            assert (await client.next())["params"] == {"notifications": {}, "_meta": {STREAM_KEY: f"s{number}"}}
        listens(client, "one more")
        assert "8 streams" in (await client.next())["error"]["message"]
        # One that the daemon refuses, or ends, has ended for the client, who may open another.
        await daemon.until(lambda: any(one.get("id") == "s1" for one in daemon.messages))
        await daemon.say({"id": "s0", "error": {"code": -32603, "message": "Subscription limit reached"}})
        assert "limit" in (await client.next())["error"]["message"]
        await daemon.say({"id": "s1", "result": {"resultType": "complete", "_meta": {STREAM_KEY: "s1"}}})
        assert (await client.next())["id"] == "s1"
        listens(client, "one more")
        assert (await client.next())["method"] == ACKNOWLEDGED
