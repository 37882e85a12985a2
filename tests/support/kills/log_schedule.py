"""One drawn schedule of faults around two or three daemons over one PostgreSQL, and a machine that repeats what is not answered.

The daemons are real processes that have the master key in common, with a way to the engine each that can be cut. Most draws have them as
nodes that pass sessions on, over ways that can be cut too. One fault at a time: a kill, a stop and going on, a way to the engine or between
nodes that is cut or holds all back, an engine that ends as in a crash, a file of the space or the registry that is lost, a lease that is
released. Meanwhile two machines come with one invite, to different nodes. At the end every acknowledged line has to be there once, in what
each of them has, each invite has let one in, and all have the same registry.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.chaos.cables import Cable
from tests.support.daemon.logged import held
from tests.support.daemon.postgres import Postgres
from tests.support.network.ports import free_port
from tests.support.programs.confided import Confided
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS

from confide_cluster.daemon.log.replicated_tables import REGISTRY_DERIVED, rows_of, truths
from confide_crypto.errors import ConfideError, DeniedError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.store.database import connect

LINES = 10
ARE_NODES = 0.8
"""Of the draws; in the others a session that comes to the wrong one is refused."""
FAULTS = 3
LEASE_S = 3
CALL_S = 20.0
PATIENCE_S = 120.0


def without(rows: list[Any]) -> list[str]:
    """Rows without when machines were seen last, which each opening of the space changes after the others have been looked at."""
    return sorted(repr([value for value in row if not isinstance(value, float)]) for row in rows)


class Node:
    """A daemon, its way to the engine, and the way of others to it, where they take one."""

    def __init__(self, program: Confided, relay: Cable, url: str, way: Cable | None, node_port: int) -> None:
        self.program = program
        self.relay = relay
        self.way = way
        said = f'[node]\nlisten = "127.0.0.1:{node_port}"\naddress = "127.0.0.1:{way.port}"\n' if way else ""
        (program.home / "daemon.toml").write_text(
            f'{NO_MODEL}{SERVER_KEEPS}[store]\nurl = "{url}"\nlease_s = {LEASE_S}\n[spaces]\nclose_after_s = 1\n{said}'
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
        self._wrong: list[str] = []
        first = Confided(root / "one")
        first.run("init")
        self._identity: Identity = first.enroll("home")
        are_nodes = self._draw.random() < ARE_NODES
        programs = [first]
        for number in range(self._draw.choice((1, 2)) if are_nodes else 1):
            other = Confided(root / f"other{number}")
            other.data.mkdir(mode=0o700)
            shutil.copy(first.data / "master.key", other.data)
            programs.append(other)
        name = self._url.rpartition("/")[2]
        self._nodes = []
        for program in programs:
            self._stack.callback(program.end)
            relay, port = Cable(postgres.port), free_port()
            way = Cable(port) if are_nodes else None
            self._stack.callback(relay.close)
            if way is not None:
                self._stack.callback(way.close)
            self._nodes.append(Node(program, relay, postgres.url(name, relay.port), way, port))

    def run(self) -> list[str]:
        with self._stack:
            for node in self._nodes:
                node.start()
            acknowledged = asyncio.run(self._write())
            wrong = self._wrong + asyncio.run(self._look(acknowledged))
            for node in self._nodes:
                node.program.run("stop")
            return wrong + self._compare()

    async def _write(self) -> int:
        """So many lines are acknowledged, each repeated until it was; faults come in between."""
        moments = sorted(self._draw.sample(range(1, LINES), FAULTS))
        joined_at = self._draw.randrange(LINES)
        for number in range(LINES):
            if number == joined_at:
                invite = self._nodes[0].program.json("invite", "guest", "--no-wait", "--url", "confide://127.0.0.1:1")
            faulty = asyncio.create_task(self._fault()) if number in moments else None
            if number == joined_at:
                await self._join_twice(Invite.parse(invite["invite"]))
            async with asyncio.timeout(PATIENCE_S):
                while not await self._append(number):  # noqa: ASYNC110 - nothing tells when
                    await asyncio.sleep(0.05)
            if faulty is not None:
                await faulty
        return LINES

    async def _join_twice(self, invite: Invite) -> None:
        """Two machines come with one invite at once, each to a node of its own: one is let in."""
        nodes = self._draw.sample(self._nodes, 2)
        outcomes = await asyncio.gather(*(self._join(node, Identity.generate(), invite) for node in nodes))
        if sorted(outcomes) != [False, True]:
            self._wrong.append(f"one invite let in {sum(outcomes)}")

    async def _join(self, node: Node, identity: Identity, invite: Invite) -> bool:
        """Whether a machine is let in, which comes again until it is told."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with asyncio.timeout(CALL_S), await node.program.connect(identity, invite=invite):
                        return True
                except DeniedError as denied:
                    if denied.reason == "invite" and denied.hint is not None and "already used" in denied.hint:
                        return False
                except (ConfideError, OSError, TimeoutError, AssertionError):
                    pass  # the node is away, or has not heard of the invite yet
                await asyncio.sleep(0.1)

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
        kind = self._draw.choice(("kill", "stop", "cut", "hold", "engine", "lost", "release", "part"))
        pause = self._draw.choice((0.05, 0.5, LEASE_S + 1.0))
        assert node.process is not None
        match kind:
            case "kill" | "lost":
                node.kill()
                if kind == "lost":
                    for file in (*node.program.data.glob("spaces/*.db*"), *node.program.data.glob("registry.db*")):
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
            case "part" if node.way is not None:
                self._draw.choice((node.way.cut, node.way.hold))()
                await asyncio.sleep(pause)
                node.way.mend()
            case "engine":
                await asyncio.to_thread(self._postgres.stop, signal.SIGQUIT)
                await asyncio.sleep(min(pause, 1.0))
                await asyncio.to_thread(self._postgres.start)
            case "release":
                with contextlib.suppress(AssertionError):  # the engine may be away
                    await asyncio.to_thread(node.program.run, "store", "--release", "home")

    async def _look(self, acknowledged: int) -> list[str]:
        # One that a space was released from shows what it had until its next heartbeat; who has written is up to date.
        async with asyncio.timeout(PATIENCE_S):
            while not (text := await self._append(LINES)):  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.1)
        lines = text.split("\n")
        wrong = [f"line {n} is lost" for n in range(acknowledged) if f"line {n}." not in lines]
        return wrong + [f"line {n} is twice there" for n in range(acknowledged) if lines.count(f"line {n}.") > 1]

    def _compare(self) -> list[str]:
        """All have the same truths once each has opened the space when the others had let go of it."""
        found, registries = [], []
        for node in (*self._nodes, *self._nodes[:-1]):
            node.start()
            asyncio.run(self._opened(node))
            node.program.run("stop")
        for node in self._nodes:
            folder = DataFolder(node.program.data)
            with contextlib.closing(open_state(folder)) as state:
                space_id = state.registry.spaces()["home"]
                found.append(held(folder.space(space_id), state.master.space_key(space_id)))
                with contextlib.closing(connect(folder.registry, state.master.registry_key(), writer=False)) as one:
                    known = truths(one, REGISTRY_DERIVED)
                    # The end of a session is told after the next one has begun.
                    registries.append({table: list(rows_of(one, table)) for table in known if "audit" not in table})
        wrong = [
            f"{table} differs"
            for other in found[1:]
            for table in other
            if table != "life" and found[0][table] != other[table]
        ]
        for other in registries[1:]:
            wrong += [
                f"{table} of the registry differs"
                for table in other
                if without(registries[0][table]) != without(other[table])
            ]
        return wrong

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
