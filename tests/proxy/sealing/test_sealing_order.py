"""Records first, then the call that names them, whether the daemon is slow, busy, says no or goes away just then."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.crypto.channels import HOST, Door
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire
from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.keys.identity import format_daemon_key, parse_public_key
from confide_crypto.sealing.roster import Roster
from confide_crypto.transport.open_channel import Connection, accept, websocket_options

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
NOTHING: dict[str, Any] = {"send": [], "adopt": [], "pull": [], "drop": []}


class Scripted:
    """A daemon that keeps a roster, notes in which order things come, and takes records as it is told."""

    def __init__(self, machine: Machine) -> None:
        self._door = Door(parse_public_key(machine.run("key", "show").splitlines()[0])[0])
        self._entries: list[bytes] = []
        self.came: list[str] = []
        self.texts: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """Every request, and what it says."""
        self.troubles: list[str] = []
        """What becomes of the next requests of `records`, one each: an error's code, "gone", or "later"."""
        self.is_asked = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self._connection: Connection | None = None

    async def handle(self, ws: ServerConnection) -> None:
        self._connection = connection = await accept(ws, HOST, self._door)

        async def reply(data: bytes) -> None:
            message = json.loads(data)
            if message.get("method") == "tools/call":
                params = message["params"]
                self._note(params["name"], data.decode())
                result = {"content": [], "structuredContent": {"said": params["arguments"]}}
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                await connection.send_message(json.dumps(answer).encode())

        with suppress(ConfideError):
            await connection.serve(on_message=reply, on_request=self._answer)

    async def until(self, *came: str) -> None:
        """Wait for exactly these, in this order."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.came) < len(came):  # noqa: ASYNC110 - two programs are waited for
                await asyncio.sleep(0.02)
        assert self.came == list(came)

    def _note(self, what: str, text: str) -> None:
        self.came.append(what)
        self.texts.append(text)

    async def _answer(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((op, body))
        roster = Roster.read(self._entries) if self._entries else None
        number, head = len(self._entries) - 1, roster.head.hex() if roster else ""
        shown = {"number": number, "head": head, "custody": "server"}
        match op:
            case "attach":
                return {"space": "s", "project": "p", "catalogue": "x", "sealing": {**shown, "epoch": 1}}
            case "roster":
                rest = [b64encode(entry).decode() for entry in self._entries[body["from"] :]]
                return {**shown, "space": "s", "entries": rest, "isLocked": False, "needs": [], "waiting": []}
            case "extend":
                self._entries.append(b64decode(body["entry"]))
                return {"number": len(self._entries) - 1}
            case "records":
                return await self._records(body)
            case "call":
                self._note("call", json.dumps(body))
                return {"result": {}}
            case "is-sensitive":
                return {"sensitive": False}
            case "compare":
                return NOTHING
            case "put":
                return {"revision": 1}
        return {}

    async def _records(self, body: dict[str, Any]) -> dict[str, Any]:
        self.is_asked.set()
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "later":
            await self.may_go_on.wait()
        elif trouble == "gone":
            assert self._connection is not None
            self._connection.abort()
            await asyncio.Event().wait()
        elif trouble:
            raise RequestError(trouble, "not now")
        self._note("records", json.dumps(body))
        return {"stored": len(body["records"])}


class Agent:
    """A session of `confide mcp`, asked without waiting for the answers."""

    def __init__(self, wire: Wire, machine: Machine) -> None:
        self.wire = wire
        self.machine = machine

    def ask(self, tool: str, **arguments: Any) -> int:
        return self.wire.ask_tool(tool, arguments)

    def store(self, content: str) -> int:
        return self.ask("memory_store", content=content, title="t")

    async def answer(self, identifier: int) -> dict[str, Any]:
        message = await asyncio.to_thread(self.wire.answer, identifier)
        result: dict[str, Any] = message["result"]
        return result


@asynccontextmanager
async def running(tmp_path: Path, *troubles: str) -> AsyncIterator[tuple[Scripted, Agent]]:
    machine = Machine(tmp_path, "ann")
    daemon = Scripted(machine)
    daemon.troubles = list(troubles)
    async with serve(daemon.handle, "127.0.0.1", 0, **websocket_options()) as server:
        port = server.sockets[0].getsockname()[1]
        await asyncio.to_thread(machine.run, "pin", f"ws://127.0.0.1:{port}/", format_daemon_key(HOST.static_key))
        wire = await asyncio.to_thread(Wire, machine)
        try:
            await asyncio.to_thread(wire.open)
            yield daemon, Agent(wire, machine)
        finally:
            daemon.may_go_on.set()
            await asyncio.to_thread(wire.__exit__, None, None, None)
    assert not any(TOKEN in text for text in daemon.texts)
    assert not any(TOKEN in json.dumps(body) for _, body in daemon.asked)


async def test_who_comes_later_is_sent_later(tmp_path: Path) -> None:
    async with running(tmp_path, "later") as (daemon, agent):
        asked = [agent.store(f"token {TOKEN}"), agent.ask("memory_search", query="plain"), agent.store("plain")]
        await asyncio.wait_for(daemon.is_asked.wait(), DEADLINE_S)
        assert not daemon.came
        daemon.may_go_on.set()
        answers = [await agent.answer(one) for one in asked]
        await daemon.until("records", "memory_store", "memory_search", "memory_store")
        assert answers[0]["structuredContent"]["said"]["content"].startswith("token (sealed:github-token:")


async def test_a_call_that_is_taken_back_meanwhile_is_not_sent(tmp_path: Path) -> None:
    async with running(tmp_path, "later") as (daemon, agent):
        gone = agent.store(f"token {TOKEN}")
        await asyncio.wait_for(daemon.is_asked.wait(), DEADLINE_S)
        agent.wire.send({"method": "notifications/cancelled", "params": {"requestId": gone}})
        following = agent.ask("memory_search", query="plain")
        # Answered without the daemon, so what was said before has been heard.
        await asyncio.to_thread(agent.wire.call, "server/discover")
        daemon.may_go_on.set()
        await agent.answer(following)
        await daemon.until("records", "memory_search")


async def test_a_busy_daemon_gets_it_later_and_once(tmp_path: Path) -> None:
    """The call waits in the journal as one that could not be sent, and comes from there, sealed."""
    async with running(tmp_path, "busy") as (daemon, agent):
        told = await agent.answer(agent.store(f"token {TOKEN}"))
        assert told["structuredContent"]["queued"] is True
        await daemon.until("records", "call")
        assert "(sealed:github-token:" in daemon.texts[-1]


async def test_a_refusal_is_told_and_nothing_is_sent(tmp_path: Path) -> None:
    async with running(tmp_path, "denied") as (daemon, agent):
        told = await agent.answer(agent.store(f"token {TOKEN}"))
        assert told["isError"]
        assert "not now" in told["content"][0]["text"]
        await agent.answer(agent.ask("memory_search", query="plain"))
        await daemon.until("memory_search")


async def test_a_link_that_breaks_just_then(tmp_path: Path) -> None:
    """Answered once, by whoever: what was being sealed goes again over the next connection, or waits and is sent from the journal."""
    async with running(tmp_path, "gone") as (daemon, agent):
        told = await agent.answer(agent.store(f"token {TOKEN}"))
        assert not told.get("isError"), told
        is_queued = told["structuredContent"].get("queued", False)
        await daemon.until("records", "call" if is_queued else "memory_store")


async def test_what_a_person_has_just_saved_goes_before_the_question_and_the_call(tmp_path: Path) -> None:
    """It may be what makes the note sensitive. The call says so, and saves the daemon a question (PROTOCOL.md 9.4)."""
    async with running(tmp_path) as (daemon, agent):
        await agent.answer(agent.store("the files are watched"))
        daemon.asked.clear()
        agent.machine.write("memory/diary.md", "A person was here.\n")
        await agent.answer(agent.ask("memory_store", content="plain", path="memory/diary.md"))
        ops = [op for op, body in daemon.asked if body.get("path") == "memory/diary.md"]
        assert ops == ["put", "is-sensitive"]
        called = json.loads(daemon.texts[-1])["params"]
        project = next(body["project"] for op, body in daemon.asked if op == "put")
        assert called["_meta"]["confide/sent"] == {"project": project, "path": "memory/diary.md"}


async def test_the_name_of_a_file_may_be_a_credential(tmp_path: Path) -> None:
    """Whatever is asked or said of it, it is not said in clear."""
    async with running(tmp_path) as (daemon, agent):
        answer = await agent.answer(agent.ask("memory_store", content="plain", path=f"memory/{TOKEN}.md"))
        assert "(sealed:github-token:" in answer["structuredContent"]["said"]["path"]
        asked = [body["path"] for op, body in daemon.asked if op == "is-sensitive"]
        assert asked == [answer["structuredContent"]["said"]["path"]]
