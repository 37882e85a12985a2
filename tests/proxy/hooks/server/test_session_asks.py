"""Other programs of this user ask through the session of their project: `confide mcp` as it runs, a client that can ask, and a daemon.

The tests' names are short, since they are part of a socket's path.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.daemon.scripted import Client, Setting, running
from tests.support.deadline import DEADLINE_S

from confide_proxy.hooks.server.session_asks import MOST_TEXT, NO_ANSWER, PersonAnswer, ask_session
from confide_proxy.mcp.catalogue import CAPABILITIES_KEY, VERSION_KEY
from confide_proxy.mcp.questions import CREATE, Choice, Question
from confide_proxy.paths import ProxyPaths

QUESTION = Question(
    "May make deploy use the secret “npm”?\x1b[2J", (Choice("once", "This time"), Choice("session", "In this session"))
)
OPENING = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "wire", "version": "1"}}
MODERN = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {"elicitation": {"form": {}}}}


async def told_that_it_asks(setting: Setting, client: Client) -> ProxyPaths:
    """The session knows what its client can do, and has its socket."""
    client.say("again", "initialize", **OPENING, capabilities={"elicitation": {}})
    assert (await client.next())["id"] == "again"
    return await listening(setting)


async def listening(setting: Setting) -> ProxyPaths:
    home = setting.machine.home
    paths = ProxyPaths(home / "proxy.toml", home / "proxy", home / "memory", home / "daemon")
    await setting.daemon.until(lambda: [*paths.state.glob("asks/*/hooks.*")])
    return paths


def asking(paths: ProxyPaths, setting: Setting, timeout_s: float = DEADLINE_S, **changed: Any) -> asyncio.Task[Any]:
    given: dict[str, Any] = {"program": "confide run", "cwd": setting.machine.project, "timeout_s": timeout_s}
    return asyncio.create_task(asyncio.to_thread(ask_session, paths, QUESTION, **given | changed))


async def test_who_asks(tmp_path: Path) -> None:
    """The person reads which program asks, and where; one that works elsewhere asks nobody."""
    async with running(tmp_path) as (setting, daemon, client):
        paths = await told_that_it_asks(setting, client)
        assert await asking(paths, setting, cwd=tmp_path) == NO_ANSWER
        long = QUESTION._replace(text="x" * (MOST_TEXT + 1))
        assert await asyncio.to_thread(ask_session, paths, long, program="x", cwd=setting.machine.project) == NO_ANSWER
        task = asking(paths, setting, program="run\x1b[2J\nConfide")
        message = await client.next()
        assert message["method"] == CREATE
        said = message["params"]["message"]
        assert said.startswith(f"A program that runs in {setting.machine.project.name} asks, as “run?[2J?Confide”:\n\n")
        assert said.endswith("secret “npm”??[2J")
        client.wire.send(
            {"id": message["id"], "result": {"action": "accept", "content": {"answer": "In this session"}}}
        )
        assert await task == PersonAnswer("session")
        assert not daemon.messages  # none of it reaches the daemon


async def test_withdrawn(tmp_path: Path) -> None:
    async with running(tmp_path) as (setting, _, client):
        paths = await told_that_it_asks(setting, client)
        task = asking(paths, setting, timeout_s=0.2)
        message = await client.next()
        assert message["method"] == CREATE
        assert await task == PersonAnswer(None)
        withdrawn = await client.next()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == message["id"]


async def test_asked_later(tmp_path: Path) -> None:
    """In the 2026-07-28 era: later, and the same question has the answer then, once; the daemon sees nothing of it."""
    async with running(tmp_path) as (setting, daemon, client):
        client.say(1, "server/discover", _meta=MODERN)
        assert (await client.next())["id"] == 1
        paths = await listening(setting)
        assert await asking(paths, setting) == PersonAnswer(None, is_later=True)
        assert await asking(paths, setting) == PersonAnswer(None, is_later=True)
        called = {"name": "memory_search", "arguments": {"query": "x"}, "_meta": MODERN}
        client.say(2, "tools/call", **called)
        await daemon.until(lambda: len(daemon.calls) == 1)
        await daemon.say(
            {"id": 2, "result": {"content": [{"type": "text", "text": "found"}], "resultType": "complete"}}
        )
        shown = (await client.next())["result"]
        assert shown["resultType"] == "input_required"
        answered = {"answer": {"action": "accept", "content": {"answer": "This time"}}}
        client.say(3, "tools/call", **called, requestState=shown["requestState"], inputResponses=answered)
        again = await client.next()
        assert again["id"] == 3
        assert again["result"]["content"][0]["text"] == "found"
        assert await asking(paths, setting) == PersonAnswer("once")
        client.say(4, "tools/call", **called, requestState=shown["requestState"], inputResponses=answered)

        def searches() -> list[Any]:  # the session also looks for decisions that wait
            return [call for call in daemon.calls if call["params"]["name"] == "memory_search"]

        await daemon.until(lambda: len(searches()) == 2)
        assert searches()[1]["params"].keys() == {"name", "arguments", "_meta"}


async def test_cannot_ask(tmp_path: Path) -> None:
    async with running(tmp_path) as (setting, _, _):
        home = setting.machine.home
        paths = ProxyPaths(home / "proxy.toml", home / "proxy", home / "memory", home / "daemon")
        assert await asking(paths, setting) == NO_ANSWER
        assert not (paths.state / "asks").exists()
