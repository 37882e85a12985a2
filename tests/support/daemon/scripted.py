"""A daemon that says what it is told to, a real `confide mcp` that has joined it, and that one's client: every message by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import Any

from tests.support.crypto.channels import HOST, Door
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire
from websockets.asyncio.server import Server, ServerConnection, serve

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import format_daemon_key, parse_public_key
from confide_crypto.transport.open_channel import Connection, accept, websocket_options

ATTACHED = {"space": "s", "project": "p", "daemonVersion": "0", "limits": {}, "catalogue": "x"}
NOTHING: dict[str, Any] = {"send": [], "adopt": [], "pull": [], "drop": []}
SHORT_S = 0.5
CALL = "tools/call"
Message = dict[str, Any]


def text_of(answer: Message) -> str:
    return str(answer["result"]["content"][0].get("text"))


class Slow:
    """A daemon that notes every message, and answers none before it is told to."""

    def __init__(self, machine: Machine) -> None:
        self._door = Door(parse_public_key(machine.run("key", "show").splitlines()[0])[0])
        self.lines: list[bytes] = []
        self.openings: list[Message] = []
        """With which the machine opens the client's session."""
        self.operations: list[str] = []
        """Of the calls that come as requests, from the journal of the machine."""
        self.connections: list[Connection] = []
        self.answers: dict[str, Message | Callable[[Message], Message]] = {}
        """To requests, in place of its own, or what makes them of a request's body."""

    async def handle(self, ws: ServerConnection) -> None:
        connection = await accept(ws, HOST, self._door)
        self.connections.append(connection)

        async def note(data: bytes) -> None:
            message = json.loads(data)
            if message.get("id") == "confide-replay":
                self.openings.append(message)
            else:
                self.lines.append(data)

        with suppress(ConfideError):
            await connection.serve(on_message=note, on_request=self._answer)

    @property
    def messages(self) -> list[Message]:
        """All that have come, but for what a client opens its session with."""
        messages = [json.loads(line) for line in self.lines]
        return [message for message in messages if message.get("method") != "notifications/initialized"]

    @property
    def calls(self) -> list[Message]:
        return [message for message in self.messages if message.get("method") == CALL]

    async def say(self, message: Message, connection: Connection | None = None) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        await (connection or self.connections[-1]).send_message(line)

    async def say_bytes(self, *lines: bytes) -> None:
        """Messages of any form."""
        for line in lines:
            await self.connections[-1].send_message(line)

    async def answer(self, identifier: Any, text: str = "done") -> None:
        await self.say({"id": identifier, "result": {"content": [{"type": "text", "text": text}]}})

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - another program is waited for
                await asyncio.sleep(0.02)

    async def _answer(self, op: str, body: Message) -> Message:
        if op in self.answers:
            made = self.answers[op]
            return made(body) if callable(made) else made
        if op == "attach":
            return ATTACHED
        if op == "call":
            self.operations.append(body["operation"])
            return {"result": {}}
        return {"compare": NOTHING, "is-sensitive": {"sensitive": False}}.get(op, {})


class Client:
    """One `confide mcp`, asked and listened to."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def say(self, identifier: Any, method: str, **params: Any) -> None:
        self.wire.send({"id": identifier, "method": method, "params": params})

    def call(self, identifier: Any, tool: str = "memory_search", /, **arguments: Any) -> None:
        self.say(identifier, CALL, name=tool, arguments=arguments or {"query": "x"})

    def cancel(self, identifier: Any) -> None:
        self.wire.send({"method": "notifications/cancelled", "params": {"requestId": identifier}})

    async def next(self, timeout_s: float = DEADLINE_S) -> Message:
        return await asyncio.to_thread(self.wire.next, timeout_s)

    async def next_but(self, identifier: Any) -> Message:
        """The next one that does not answer this call, which nobody may have taken in time where the machine is busy."""
        while (said := await self.next()).get("id") == identifier:
            pass
        return said

    async def hears_nothing(self) -> None:
        """For a while, and the session lives."""
        with suppress(Empty):
            raise AssertionError(f"there came {await self.next(SHORT_S)}")
        self.say("alive", "server/discover")
        assert (await self.next())["id"] == "alive"


class Setting:
    """A daemon, a client, and the port between them."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self._port = machine, free_port()
        self.daemon = Slow(machine)
        self._server: Server | None = None

    async def listen(self) -> None:
        self._server = await serve(self.daemon.handle, "127.0.0.1", self._port, **websocket_options())

    async def pin(self) -> None:
        url, key = f"ws://127.0.0.1:{self._port}/", format_daemon_key(HOST.static_key)
        await asyncio.to_thread(self.machine.run, "pin", url, key)

    async def close(self) -> None:
        """The daemon goes away, without a goodbye."""
        if self._server is not None:
            self._server.close(close_connections=False)
            for connection in self.daemon.connections:
                connection.abort()
            await self._server.wait_closed()
            self._server = None


@asynccontextmanager
async def running(
    tmp_path: Path,
    config: str = "",
    answers: dict[str, Message | Callable[[Message], Message]] | None = None,
    files: dict[str, str] | None = None,
) -> AsyncIterator[tuple[Setting, Slow, Client]]:
    """A session that has had its first answer.

    `config`: of proxy.toml; `answers`: of the daemon's, to requests; `files`: of the project.
    """
    setting = Setting(Machine(tmp_path, "ann"))
    setting.daemon.answers |= answers or {}
    await setting.listen()
    await setting.pin()
    (setting.machine.home / "proxy.toml").write_text(config)
    for path, text in (files or {}).items():
        setting.machine.write(path, text)
    wire = await asyncio.to_thread(Wire, setting.machine)
    try:
        await asyncio.to_thread(wire.open)
        client = Client(wire)
        client.call("first")
        await setting.daemon.until(lambda: setting.daemon.calls)
        await setting.daemon.answer("first")
        assert (await client.next())["id"] == "first"
        setting.daemon.lines.clear()
        yield setting, setting.daemon, client
    finally:
        await setting.close()
        await asyncio.to_thread(wire.__exit__, None, None, None)
