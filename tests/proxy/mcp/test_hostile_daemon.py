"""A daemon that lies: the agent's session lives on, and nothing outside the memory folders is touched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.crypto.channels import HOST, Door
from tests.support.deadline import DEADLINE_S
from tests.support.draws import draws
from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire
from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.keys.identity import format_daemon_key, parse_public_key
from confide_crypto.transport.open_channel import Connection, accept, websocket_options

ATTACHED = {"space": "s", "project": "p", "daemonVersion": "0", "limits": {}, "catalogue": "x"}
NOTHING = {"send": [], "adopt": [], "pull": [], "drop": []}
SEALING = {"number": 3, "head": "z", "epoch": None, "custody": 7}
ROSTER = {
    "space": "s",
    "entries": [],
    "number": -1,
    "head": "",
    "custody": "caller",
    "isLocked": False,
    "needs": [],
    "waiting": [{"key": "00" * 32, "name": "\x1b[2J", "card": None, "request": "AAAA"}],
}
Answers = dict[str, Any]


class HostileDaemon:
    """Answers each request as it was told, counts them, and hands its connections over."""

    def __init__(self, machine: Machine, answers: Answers) -> None:
        line = machine.run("key", "show").splitlines()[0]
        self._door = Door(parse_public_key(line)[0])
        self._answers = answers
        self.connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.session: psutil.Process | None = None
        """The `confide mcp` that came last."""

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
    daemon.session = psutil.Process(wire.process.pid)
    try:
        await asyncio.to_thread(wire.open)
        async with asyncio.timeout(DEADLINE_S):
            await act()
        assert wire.process.poll() is None
        while not daemon.connections.empty():
            await daemon.connections.get_nowait().close()
        await asyncio.to_thread(wire.call, "ping", timeout_s=DEADLINE_S)
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
        {"attach": {**ATTACHED, "sealing": 7}, "compare": NOTHING},
        {"attach": {**ATTACHED, "sealing": SEALING}, "compare": NOTHING},
        {"attach": {**ATTACHED, "sealing": SEALING}, "roster": {**ROSTER, "entries": [7], "number": "x"}},
        {
            "attach": {**ATTACHED, "sealing": SEALING},
            "roster": {**ROSTER, "entries": ["AAAA"] * 9, "number": 8, "head": "ab" * 32},
        },
        {"attach": {**ATTACHED, "sealing": SEALING}, "roster": {**ROSTER, "number": 200, "head": "ab" * 32}},
        {"attach": {**ATTACHED, "sealing": SEALING}, "roster": ROSTER, "extend": RequestError("conflict", "x")},
        {
            "attach": RequestError("locked", "x"),
            "roster": {**ROSTER, "isLocked": True, "needs": [1, 2, 99]},
            "unlock": {},
        },
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
                "memory/a\0.md",
                ".ssh/config",
                "~/.ssh/config",
                "memory/.ssh/config.md",
                "memory/../.ssh/authorized_keys.md",
                "C:\\memory\\x.md",
                "memory/link/../../x.md",
                "MEMORY.md/x.md",
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


MANY = 100_000
"""About as many files as one message holds."""


@pytest.mark.parametrize(
    ("what", "listed"),
    [
        ("pull", lambda: [[f"memory/{number}.md", 1, "h"] for number in range(MANY)]),
        ("send", lambda: [f"memory/{number}.md" for number in range(MANY)]),
        ("drop", lambda: [[f"memory/{number}.md", 1] for number in range(MANY)]),
        ("adopt", lambda: [["memory/a.md", 2**63 - 1]] * MANY),
        ("pull", lambda: [["memory/a.md", -1, "h"], ["MEMORY.md", 10**300, "h"]]),
    ],
    ids=["pull", "send", "drop", "adopt", "numbers"],
)
async def test_a_comparison_that_names_everything_there_is(
    tmp_path: Path, what: str, listed: Callable[[], list[Any]]
) -> None:
    """Memory stays bounded, the session lives, and no disk is filled with files."""
    compared = {**NOTHING, what: listed()}
    answers = {"attach": ATTACHED, "compare": compared, "pull": {"revision": 1, "hash": "h", "text": "x"}}
    async with hostile(tmp_path, answers) as (daemon, machine):
        peak = 0

        async def act() -> None:
            nonlocal peak
            for _ in range(6):
                await daemon.asked.get()
            assert daemon.session is not None
            for _ in range(20):
                peak = max(peak, daemon.session.memory_info().rss)
                await asyncio.sleep(0.1)

        await served(daemon, machine, act)
        assert peak < 512 * 2**20
        assert (machine.project / "memory/a.md").read_text() == "mine\n"
        assert sum(1 for _ in machine.project.rglob("*.md")) < 1000


async def test_a_revision_without_end_is_refused(tmp_path: Path) -> None:
    """More than a document may have, as a parameter or as a body that never stops; and what comes after it is served."""
    async with hostile(tmp_path, {"attach": ATTACHED, "compare": NOTHING}) as (daemon, machine):
        identity = machine.project.resolve().name

        async def act() -> None:
            connection = await daemon.connections.get()
            for _ in range(4):
                await daemon.asked.get()
            body = {"project": identity, "path": "memory/b.md", "revision": 1, "hash": "h", "baseHash": None}
            with pytest.raises(RequestError):
                await connection.request("apply", {**body, "text": "x" * (5 * 2**20)}, timeout_s=15)
            with pytest.raises(RequestError, match="more than"):
                await connection.upload("apply", body, bytes(64 * 2**20), timeout_s=15)
            assert await connection.request("apply", {**body, "text": "small"}) == {"applied": True}

        await served(daemon, machine, act)
        assert {path.name for path in machine.project.rglob("*.md")} == {"a.md", "b.md"}


async def test_progress_without_end(tmp_path: Path) -> None:
    """Thousands of notifications that nobody asked for: they pass, and the session answers."""
    async with hostile(tmp_path, {"attach": ATTACHED, "compare": NOTHING}) as (daemon, machine):
        note = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": 1, "progress": 1, "message": "x" * 200},
        }

        async def act() -> None:
            connection = await daemon.connections.get()
            for _ in range(4):
                await daemon.asked.get()
            data = json.dumps(note).encode()
            for _ in range(draws(10_000, 4_000)):
                await connection.send_message(data)

        await served(daemon, machine, act)
