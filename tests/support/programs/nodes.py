"""Several `confided` over one PostgreSQL, which have the master key in common and nothing else."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.support.daemon.loopback import Machine
from tests.support.daemon.postgres import Postgres
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.programs.confided import Confided
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS, stands_still, wait_until

from confide_crypto.errors import ConnectionLost, DeniedError, HandshakeError, RequestError, UnreachableError
from confide_crypto.keys.identity import Identity
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder

LEASE_S = 12


class Node(Confided):
    """One of them."""

    def __init__(self, home: Path, url: str, *, lease_s: int = LEASE_S, more: str = SERVER_KEEPS) -> None:
        super().__init__(home)
        self.url = url
        self.node_port = free_port()
        self.process: subprocess.Popen[str] | None = None
        self.port = free_port()
        (home / "daemon.toml").write_text(
            NO_MODEL
            + f'[store]\nurl = "{url}"\nlease_s = {lease_s}\n'
            + f'[node]\nlisten = "127.0.0.1:{self.node_port}"\naddress = "127.0.0.1:{self.node_port}"\n'
            + more
        )

    @property
    def folder(self) -> DataFolder:
        return DataFolder(self.data)

    def begin(self) -> None:
        """Serve; the port stays the same over restarts."""
        self.process = self.serve("--listen", f"127.0.0.1:{self.port}")

    def signal(self, number: int) -> None:
        """What is stopped by it stands still when this returns."""
        assert self.process is not None
        pid = self.process.pid
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            wait_until("the node to stand still", lambda: stands_still(pid))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def ask(self, path: str) -> tuple[int, dict[str, str]]:
        """What it answers to plain HTTP."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            data = b""
            while more := connection.recv(65536):
                data += more
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


class Nodes:
    """Those of one store; the first one has made the daemon."""

    def __init__(self, root: Path, postgres: Postgres) -> None:
        self._root = root
        self.postgres = postgres
        self.url = postgres.database()
        self.nodes: list[Node] = []

    def add(self, *, lease_s: int = LEASE_S, more: str = SERVER_KEEPS, url: str = "") -> Node:
        """One more, which serves."""
        node = Node(self._root / f"node{len(self.nodes)}", url or self.url, lease_s=lease_s, more=more)
        if self.nodes:
            node.data.mkdir(mode=0o700)
            shutil.copy(self.nodes[0].data / "master.key", node.data)
        else:
            node.run("init")
        self.nodes.append(node)
        node.begin()
        return node

    def serve(self) -> None:
        """Have those serve again that a test has ended."""
        for node in self.nodes:
            assert node.process is not None
            if node.process.poll() is not None:
                node.begin()

    def holder(self, space: str = "laptop") -> Node | None:
        """Who holds a space."""
        for node in self.nodes:
            with closing(open_state(node.folder)) as state:
                if (space_id := state.registry.spaces().get(space)) is not None:
                    break
        statement = "SELECT node.address FROM log JOIN node ON node.id = log.holder WHERE log.id = %s"
        rows = self.sql(statement, space_id)
        return next((one for one in self.nodes if rows and rows[0][0] == f"127.0.0.1:{one.node_port}"), None)

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        return self.postgres.sql(statement, *values, url=self.url)

    def end(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
            node.end()


class Wire:
    """A machine that comes again whenever its session ends, as `confide` does, and repeats what was not answered."""

    def __init__(self, node: Node, identity: Identity) -> None:
        self._node = node
        self._identity = identity
        self._machine: Machine | None = None

    async def put(self, path: str, text: str) -> None:
        await self._tried(lambda machine: machine.put(path, text))

    async def pull(self, path: str) -> str:
        found = await self._tried(lambda machine: machine.request("pull", {"project": "proj", "path": path}))
        text: str = found["text"]
        return text

    async def close(self) -> None:
        if self._machine is not None:
            machine, self._machine = self._machine, None
            await machine.__aexit__(None, None, None)

    async def _tried(self, ask: Callable[[Machine], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    if self._machine is None:
                        self._machine = await self._node.connect(self._identity)
                        await self._machine.attach("proj")
                    return await ask(self._machine)
                except RequestError as error:
                    if error.code not in ("unavailable", "busy"):
                        raise
                except (ConnectionLost, HandshakeError, UnreachableError, DeniedError):
                    pass
                await self.close()
                await asyncio.sleep(0.1)


async def news(machine: Machine, path: str) -> dict[str, Any]:
    """What a machine is brought of a path by the daemon."""
    async with asyncio.timeout(DEADLINE_S):
        while (found := await machine.applied.get())["path"] != path:
            pass
        return found


@contextmanager
def several(
    root: Path, postgres: Postgres, count: int = 2, *, lease_s: int = LEASE_S, more: str = SERVER_KEEPS
) -> Iterator[Nodes]:
    """So many nodes, all of them serving; ended at the end. `lease_s`: of a space; `more`: of their configuration."""
    found = Nodes(root, postgres)
    try:
        for _ in range(count):
            found.add(lease_s=lease_s, more=more)
        yield found
    finally:
        found.end()
