"""A connection that breaks in the middle of a comparison: the next one compares, whenever the break and its report come."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import ConnectionLost
from confide_crypto.transport.task_group import TaskGroup
from confide_memory.documents import GLOBAL_PROJECT
from confide_proxy.config import ProxyConfig
from confide_proxy.link.services import ServiceRunner
from confide_proxy.locks import Seat
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project
from confide_proxy.sync.watching import folder_streamer as module
from confide_proxy.sync.watching.folder_streamer import Streamer
from confide_proxy.sync.workspace import Files

FILES = 12


class Line:
    """A link over a machine's connection, which breaks at its n-th request."""

    def __init__(self, laptop: Machine) -> None:
        self._connection = laptop.connection
        self._left = 10**9
        self.broke = asyncio.Event()

    def break_at(self, request: int) -> None:
        self._left = request
        self.broke.clear()

    def mend(self) -> None:
        self._left = 10**9

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        self._pass()
        return await self._connection.request(op, body, timeout_s=timeout_s, bulk=bulk)

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        self._pass()
        return await self._connection.upload(op, body, data, timeout_s=timeout_s)

    def _pass(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.broke.set()
            raise ConnectionLost(truncated=True)


class Keys:
    """No keys, and no news of them."""

    async def open(self, _link: object, _attached: dict[str, Any]) -> None:
        return

    async def look_again(self, _link: object, _attached: dict[str, Any] | None = None) -> None:
        return


class World:
    """One machine's folder, with what streams it."""

    def __init__(self, root: Path, line: Line) -> None:
        self.project = root / "shop"
        (self.project / "memory").mkdir(parents=True)
        self.paths = ProxyPaths(root / "proxy.toml", root / "proxy", root / "global", root / "daemon")
        self.services = ServiceRunner(self.paths.seats)
        self.files = Files(
            self.paths, ProxyConfig(), Project("shop", self.project, is_git=False), services=self.services
        )
        bodies = {name: {"project": name, "watches": False} for name in ("shop", GLOBAL_PROJECT)}
        told: Any = (self.files, Keys(), line, bodies, self.services)
        self.streamer = Streamer(self.paths.seats, *told, debounce_s=0.05)

    def there(self) -> int:
        return len(list((self.project / "memory").glob("*.md")))

    def is_well(self) -> bool:
        return not self.services.troubles

    def close(self) -> None:
        """End, and give the system its watches back: a user may have 128 instances of inotify, and a round keeps two."""
        self.streamer.on_down()
        for watcher in self.streamer._watchers.values():
            watcher.stop()


@asynccontextmanager
async def twelve_files(tmp_path: Path) -> AsyncIterator[tuple[Serving, Machine, Line]]:
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("shop", GLOBAL_PROJECT)
        for number in range(FILES):
            await laptop.put(f"memory/n{number}.md", f"- fact {number}\n", project="shop")
        yield daemon, laptop, Line(laptop)


async def until(is_so: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():  # noqa: ASYNC110 - the disk has no event
            await asyncio.sleep(0.01)


async def test_the_next_connection_compares_whenever_the_last_one_broke(tmp_path: Path) -> None:
    """It breaks at the n-th request of a comparison, and the streamer hears of it some turns of the loop later: each time the folder has
    everything after the next connection, and until then the machine says that it was not compared."""
    async with twelve_files(tmp_path) as (_daemon, _laptop, line):
        for number, (request, turns) in enumerate(itertools.product((2, 4, 5, 8, 13), (0, 1, 2, 3, 5))):
            world = World(tmp_path / f"round{number}", line)
            async with TaskGroup() as group:
                spawned: list[asyncio.Task[None]] = []

                def spawn(work: Any, group: TaskGroup = group, spawned: list[Any] = spawned) -> asyncio.Task[None]:
                    spawned.append(group.create_task(work))
                    task: asyncio.Task[None] = spawned[-1]
                    return task

                line.break_at(request)
                await world.streamer.on_up({"space": "s"}, spawn)
                async with asyncio.timeout(DEADLINE_S):
                    await line.broke.wait()
                for _ in range(turns):
                    await asyncio.sleep(0)
                first = list(spawned)
                world.streamer.on_down()
                line.mend()
                await world.streamer.on_up({"space": "s"}, spawn)
                await until(lambda world=world: world.there() == FILES and world.is_well())
                assert all(task.done() for task in first), f"request {request}, {turns} turns"
                world.streamer.on_down()
            world.close()


async def test_what_was_never_compared_says_so(tmp_path: Path) -> None:
    """Not "link up, nothing pending": the sentence goes with the backlog that the daemon asks for, and once it is compared it is gone."""
    async with twelve_files(tmp_path) as (_daemon, _laptop, line):
        world = World(tmp_path / "here", line)
        async with TaskGroup() as group:
            line.break_at(5)
            await world.streamer.on_up({"space": "s"}, group.create_task)
            async with asyncio.timeout(DEADLINE_S):
                await line.broke.wait()
            told = (await world.files.on_request("backlog", {}))["troubles"]
            assert any("the files of shop here are not compared yet" in each for each in told)
            line.mend()
            world.streamer.on_down()
            await world.streamer.on_up({"space": "s"}, group.create_task)
            # Before any of its work has begun, too: that of the last folder has not, since nothing was awaited after it.
            last = world.files.folders[-1].project
            assert last in {each.project for each in world.services.troubles}
            await until(world.is_well)
            assert "troubles" not in await world.files.on_request("backlog", {})
            world.streamer.on_down()


async def test_a_turn_that_does_not_end_keeps_no_seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever holds an old task up: the seat is free as soon as the link is down, for this process and for others."""
    monkeypatch.setattr(module, "FORMER_S", 0.05)
    async with twelve_files(tmp_path) as (_daemon, _laptop, line):
        world = World(tmp_path / "here", line)
        goes_on, is_stuck = asyncio.Event(), asyncio.Event()
        changed = world.files.send_changes

        async def stuck(project: str, paths: set[str] | None) -> None:
            if not is_stuck.is_set() and project == "shop":
                is_stuck.set()
                while not goes_on.is_set():
                    try:
                        await goes_on.wait()
                    except asyncio.CancelledError:
                        continue
            await changed(project, paths)

        monkeypatch.setattr(world.files, "send_changes", stuck)
        async with TaskGroup() as group:
            try:
                await world.streamer.on_up({"space": "s"}, group.create_task)
                async with asyncio.timeout(DEADLINE_S):
                    await is_stuck.wait()
                world.streamer.on_down()
                other = Seat(world.paths.seats, f"s\0{world.project}")
                assert other.try_take()
                other.leave()
                await world.streamer.on_up({"space": "s"}, group.create_task)
                await until(lambda: world.there() == FILES and world.is_well())
            finally:
                goes_on.set()
                world.streamer.on_down()


async def test_moves_of_the_link_do_not_pile_up_comparisons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One runs at a time, and one more begins after the last of the moves, however many there were meanwhile."""
    async with twelve_files(tmp_path) as (_daemon, _laptop, line):
        world = World(tmp_path / "here", line)
        changed = world.files.send_changes
        goes_on = asyncio.Event()
        began, now, most = [], 0, 0

        async def slow(project: str, paths: set[str] | None) -> None:
            nonlocal now, most
            if project != "shop" or paths is not None:
                await changed(project, paths)
                return
            began.append(moves)
            now, most = now + 1, max(most, now + 1)
            await goes_on.wait()
            await changed(project, paths)
            now -= 1

        monkeypatch.setattr(world.files, "send_changes", slow)
        moves = 0
        async with TaskGroup() as group:
            await world.streamer.on_up({"space": "s"}, group.create_task)
            await until(lambda: began)
            for _ in range(5):
                moves += 1
                world.streamer.on_renewed({"space": "s"}, group.create_task)
                await until(lambda wanted=moves + 1: world.streamer._turns["shop"].asked == wanted)
            goes_on.set()
            await until(lambda: world.there() == FILES and world.is_well() and not now)
            assert (began, most) == ([0, 5], 1)
            world.streamer.on_down()
