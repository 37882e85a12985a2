"""A daemon that lies: the agent's session lives on, and nothing outside the memory folders is touched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.channels import HOST, Door
from tests.support.programs import Machine
from tests.support.wire import Wire
from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.connection import Connection, accept, websocket_options
from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.keys import format_daemon_key, parse_public_key

ATTACHED = {"space": "s", "project": "p", "daemonVersion": "0", "limits": {}, "catalogue": "x"}
NOTHING = {"send": [], "adopt": [], "pull": [], "drop": []}
Answers = dict[str, Any]


class HostileDaemon:
    """Answers each request as it was told, counts them, and hands its connections over."""

    def __init__(self, machine: Machine, answers: Answers) -> None:
        line = machine.run("key", "show").splitlines()[0]
        self._door = Door(parse_public_key(line)[0])
        self._answers = answers
        self.connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    async def handle(self, ws: ServerConnection) -> None:
        connection = await accept(ws, HOST, self._door)
        self.connections.put_nowait(connection)

        async def reply(data: bytes) -> None:
            message = json.loads(data)
            if "id" in message:
                await connection.send_message(
                    json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode()
                )

        with suppress(ConfideError):
            await connection.serve(on_message=reply, on_request=self._answer)

    async def _answer(self, op: str, _body: dict[str, Any]) -> dict[str, Any]:
        self.asked.put_nowait(op)
        answer = self._answers.get(op, {})
        if isinstance(answer, Exception):
            raise answer
        result: dict[str, Any] = answer
        return result


@asynccontextmanager
async def hostile(tmp_path: Path, answers: Answers) -> AsyncIterator[tuple[HostileDaemon, Machine]]:
    """A machine that has pinned a hostile daemon."""
    machine = Machine(tmp_path, "victim")
    machine.write("memory/a.md", "mine\n")
    daemon = HostileDaemon(machine, answers)
    async with serve(daemon.handle, "127.0.0.1", 0, **websocket_options()) as server:
        port = server.sockets[0].getsockname()[1]
        await asyncio.to_thread(machine.run, "pin", f"ws://127.0.0.1:{port}/", format_daemon_key(HOST.static_key))
        yield daemon, machine


async def served(daemon: HostileDaemon, machine: Machine, act: Callable[[], Awaitable[None]]) -> None:
    """Run a session while `act` goes on; at the end it must still answer."""
    wire = await asyncio.to_thread(Wire, machine)
    try:
        await asyncio.to_thread(wire.open)
        async with asyncio.timeout(20):
            await act()
        assert wire.process.poll() is None
        while not daemon.connections.empty():
            await daemon.connections.get_nowait().close()
        await asyncio.to_thread(wire.call, "ping", timeout_s=15)
        assert wire.process.poll() is None
    finally:
        await asyncio.to_thread(wire.__exit__, None, None, None)


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"attach": {"space": None, "catalogue": []}},
        {"attach": ATTACHED, "compare": {}},
        {"attach": ATTACHED, "compare": {"send": 7, "adopt": [[1]], "pull": "x", "drop": None}},
        {"attach": ATTACHED, "compare": {**NOTHING, "send": ["../../x.md", "/etc/passwd", 7]}},
        {"attach": ATTACHED, "compare": {**NOTHING, "pull": [["../evil.md", 1, "h"]], "drop": [["/etc/hosts", 1]]}},
        {"attach": ATTACHED, "compare": {**NOTHING, "pull": [["memory/b.md", 1, "h"]]}, "pull": {"text": 7}},
        {"attach": ATTACHED, "compare": {**NOTHING, "send": ["memory/a.md"]}, "put": {"revision": "x", "text": "y"}},
        {"attach": ATTACHED, "compare": RequestError("internal", "x"), "catalogue": {"tools": 3}},
        {"attach": ATTACHED, "compare": NOTHING, "catalogue": {"tools": [{}]}},
    ],
)
async def test_nonsense_does_not_end_the_session(tmp_path: Path, answers: Answers) -> None:
    """Whatever the answers look like, the process lives, the client is answered, and its files stay as they are."""
    async with hostile(tmp_path, answers) as (daemon, machine):

        async def act() -> None:
            for _ in range(4):  # both attaches, the comparison, the catalogue; or as many attempts to attach
                await daemon.asked.get()

        await served(daemon, machine, act)
        assert (machine.project / "memory/a.md").read_text() == "mine\n"


async def test_no_path_of_the_daemons_leaves_the_memory_folders(tmp_path: Path) -> None:
    """Traversal, absolute paths, symlinked folders, dot folders, other files and wrong types are refused; memory is written."""
    async with hostile(tmp_path, {"attach": ATTACHED, "compare": NOTHING}) as (daemon, machine):
        outside = tmp_path / "outside"
        outside.mkdir()
        (machine.project / "memory/link").symlink_to(outside)
        (machine.project / "README.md").write_text("theirs")
        identity = machine.project.resolve().name

        async def act() -> None:
            connection = await daemon.connections.get()
            for _ in range(4):
                await daemon.asked.get()
            for path in (
                "../x.md",
                "/tmp/x.md",
                "memory/../../x.md",
                "memory/link/x.md",
                ".ssh/config.md",
                "README.md",
                "docs/x.md",
                "memory/x.sh",
                "memory/\n.md",
                "memory/" + "x" * 5000 + ".md",
                7,
                None,
            ):
                body = {"project": identity, "path": path, "revision": 1, "hash": "h", "baseHash": None, "text": "evil"}
                with pytest.raises(RequestError):
                    await connection.request("apply", body)
            for op in ("read", "exec", "put"):
                with pytest.raises(RequestError):
                    await connection.request(op, {"project": identity, "path": "/etc/passwd"})
            with pytest.raises(RequestError):
                await connection.request("apply", {"project": identity, "path": "memory/b.md"})
            good = {
                "project": identity,
                "path": "memory/b.md",
                "revision": 1,
                "hash": "h",
                "baseHash": None,
                "text": "hello",
            }
            assert await connection.request("apply", good) == {"applied": True}
            await connection.send_message(b"\xff not json")

        await served(daemon, machine, act)
        assert list(outside.iterdir()) == []
        assert (machine.project / "README.md").read_text() == "theirs"
        assert (machine.project / "memory/b.md").read_text() == "hello"
        found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")}
        assert found == {f"victim/project/{name}" for name in ("README.md", "memory/a.md", "memory/b.md")}
