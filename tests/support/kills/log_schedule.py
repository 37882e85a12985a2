"""One drawn schedule of faults around two daemons over one PostgreSQL, and a machine that repeats what is not answered.

The daemons are real processes over copies of one data folder, with a way to the engine each that can be cut. One fault at a time: a kill,
a stop and going on, a way to the engine that is cut or holds all back, an engine that ends as in a crash, a file of the space
that is lost, a lease that is released. At the end every acknowledged line has to be there once, in what each of the two has.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import subprocess
from pathlib import Path

from tests.chaos.cables import Cable
from tests.support.daemon.logged import held
from tests.support.daemon.postgres import Postgres
from tests.support.programs.confided import Confided
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import Identity
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder

LINES = 10
FAULTS = 3
LEASE_S = 3
CALL_S = 20.0
PATIENCE_S = 120.0


class Node:
    """A daemon, and its way to the engine."""

    def __init__(self, program: Confided, relay: Cable, url: str) -> None:
        self.program = program
        self.relay = relay
        (program.home / "daemon.toml").write_text(
            f'{NO_MODEL}{SERVER_KEEPS}[store]\nurl = "{url}"\nlease_s = {LEASE_S}\n[spaces]\nclose_after_s = 1\n'
        )
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = self.program.serve()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


class Schedule:
    """Drawn by a seed; `run` says what is wrong."""

    def __init__(self, root: Path, postgres: Postgres, seed: int) -> None:
        self._draw = random.Random(seed)
        self._postgres = postgres
        self._url = postgres.database()
        self._stack = contextlib.ExitStack()
        first = Confided(root / "one")
        first.run("init")
        self._identity: Identity = first.enroll("home")
        second = Confided(root / "two")
        second.data.mkdir(mode=0o700)
        for part in first.data.iterdir():
            if part.is_file():
                shutil.copy(part, second.data)
        (second.data / "spaces").mkdir(mode=0o700)
        name = self._url.rpartition("/")[2]
        self._nodes = []
        for program in (first, second):
            self._stack.callback(program.end)
            relay = Cable(postgres.port)
            self._stack.callback(relay.close)
            self._nodes.append(Node(program, relay, postgres.url(name, relay.port)))

    def run(self) -> list[str]:
        with self._stack:
            for node in self._nodes:
                node.start()
            acknowledged = asyncio.run(self._write())
            wrong = asyncio.run(self._look(acknowledged))
            for node in self._nodes:
                node.program.run("stop")
            return wrong + self._compare()

    async def _write(self) -> int:
        """So many lines are acknowledged, each repeated until it was; faults come in between."""
        moments = sorted(self._draw.sample(range(1, LINES), FAULTS))
        for number in range(LINES):
            faulty = asyncio.create_task(self._fault()) if number in moments else None
            async with asyncio.timeout(PATIENCE_S):
                while not await self._append(number):  # noqa: ASYNC110 - nothing tells when
                    await asyncio.sleep(0.05)
            if faulty is not None:
                await faulty
        return LINES

    async def _append(self, number: int) -> str:
        """The text then, as the daemon has it that made the change; "" where it was not acknowledged."""
        node = self._draw.choice(self._nodes)
        try:
            async with asyncio.timeout(CALL_S), await node.program.connect(self._identity) as machine:
                await machine.attach("proj")
                async with machine.mcp() as client:
                    stored = await client.call_tool(
                        "memory_store",
                        {"content": f"line {number}.", "path": "memory/log.md"},
                        meta={"confide/operation": f"{number:032x}"},
                    )
                if stored.is_error:
                    return ""
                text: str = (await machine.request("pull", {"project": "proj", "path": "memory/log.md"}))["text"]
                return text
        except (ConfideError, OSError, TimeoutError, AssertionError, BaseExceptionGroup):
            return ""

    async def _fault(self) -> None:
        node = self._draw.choice(self._nodes)
        kind = self._draw.choice(("kill", "stop", "cut", "hold", "engine", "lost", "release"))
        pause = self._draw.choice((0.05, 0.5, LEASE_S + 1.0))
        assert node.process is not None
        match kind:
            case "kill" | "lost":
                node.kill()
                if kind == "lost":
                    for file in (node.program.data / "spaces").glob("*.db*"):
                        file.unlink()
                await asyncio.sleep(pause)
                await asyncio.to_thread(node.start)
            case "stop":
                node.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(pause)
                node.process.send_signal(signal.SIGCONT)
            case "cut":
                node.relay.cut()
                await asyncio.sleep(pause)
                node.relay.mend()
            case "hold":
                node.relay.hold()
                await asyncio.sleep(pause)
                node.relay.mend()
            case "engine":
                await asyncio.to_thread(self._postgres.stop, signal.SIGQUIT)
                await asyncio.sleep(min(pause, 1.0))
                await asyncio.to_thread(self._postgres.start)
            case "release":
                with contextlib.suppress(AssertionError):  # the engine may be away
                    await asyncio.to_thread(node.program.run, "store", "release", "home")

    async def _look(self, acknowledged: int) -> list[str]:
        # One that a space was released from shows what it had until its next heartbeat; who has written is up to date.
        async with asyncio.timeout(PATIENCE_S):
            while not (text := await self._append(LINES)):  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.1)
        lines = text.split("\n")
        wrong = [f"line {n} is lost" for n in range(acknowledged) if f"line {n}." not in lines]
        return wrong + [f"line {n} is twice there" for n in range(acknowledged) if lines.count(f"line {n}.") > 1]

    def _compare(self) -> list[str]:
        """Both have the same truths once each has opened the space when the other had let go of it."""
        found = []
        for node in (*self._nodes, self._nodes[0]):
            node.start()
            asyncio.run(self._opened(node))
            node.program.run("stop")
        for node in self._nodes:
            folder = DataFolder(node.program.data)
            with contextlib.closing(open_state(folder)) as state:
                space_id = state.registry.spaces()["home"]
                found.append(held(folder.space(space_id), state.master.space_key(space_id)))
        return [f"{table} differs" for table in found[0] if table != "life" and found[0][table] != found[1][table]]

    async def _opened(self, node: Node) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with await node.program.connect(self._identity) as machine:
                        await machine.attach("proj")
                        await machine.request("pull", {"project": "proj", "path": "memory/log.md"})
                        return
                except (ConfideError, OSError):
                    await asyncio.sleep(0.1)
