"""Restores while three machines write, in one process: cheap enough for a thousand schedules (`make schedules`).

A schedule is once or twice: steps, a snapshot that is taken while more steps are made, of which the daemon forgets what came behind it, and
`confided restore` in its folder's place; then more steps. All come to agree, no line is lost from the newest text but what only the daemon
had, and a machine that was revoked in the lost time stays out. `test_put_back` has the real programs, and copies that were made by hand.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.chaos.acts import SAFE, TimeOfDay, act, drawn, jumping
from tests.chaos.book import IS_LONG, MARK, Book
from tests.chaos.schedules import Step
from tests.chaos.simulation import Computer, Weather, agreed, computers
from tests.support.daemon.backups import Backed
from tests.support.daemon.loopback import Serving, serving

from confide_backup.daemon import snapshot_restore, target
from confide_backup.daemon.manifest import BackupManifest
from confide_backup.daemon.snapshot_restore import ByCode
from confide_backup.settings import BackupConfig
from confide_crypto.errors import DeniedError
from confide_crypto.keys.identity import Identity
from confide_daemon.access.revocations import Revocations
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.credentials import MasterKey
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.server import replicas
from confide_daemon.store.space_store import Store

SCHEDULES = int(os.environ.get("CONFIDE_CHAOS", "1"))
SEED = int(os.environ.get("CONFIDE_CHAOS_SEED", "1"))
MACHINES = 3
pytestmark = pytest.mark.timeout(300 + 30 * SCHEDULES)
numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Round:
    """What each machine does before a snapshot is begun, and from then on until the daemon is lost."""

    before: list[list[Step]]
    lost: list[list[Step]]


def _of_each(most: int) -> st.SearchStrategy[list[list[Step]]]:
    return st.tuples(*[drawn(most)] * MACHINES).map(list)


MOST = 8 if IS_LONG else 4
rounds = st.builds(Round, _of_each(MOST), _of_each(MOST))


class World:
    """A daemon with a target for its snapshots, out of which it is restored again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = DataFolder(folder / "data")
        self._config = DaemonConfig(tables={"backup": BackupConfig(to=str(folder / "target"))})
        self._stack = AsyncExitStack()
        self.daemon: Serving

    async def __aenter__(self) -> Self:
        # Its target is made by the daemon's own key, so it serves once before it knows of it.
        async with serving(self._data.root) as first:
            self._code = Backed(first, self._folder / "target").code
        self.daemon = await self._serving()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _serving(self) -> Serving:
        return await self._stack.enter_async_context(serving(self._data.root, config=self._config))

    async def taken(self) -> BackupManifest:
        """A snapshot, of whatever the daemon has by then."""
        return await Backed(self.daemon, self._folder / "target").take()

    def revoke(self, name: str) -> None:
        """As `confided device rm` does."""
        self.daemon.state.registry.revoke(name)
        Revocations.from_backup_folder(self._folder / "target", self.daemon.state).keep(self.daemon.state.registry)

    async def lose(self) -> str:
        """End the daemon and take its folder away; every text that it had."""
        await self._stack.aclose()
        texts = self.texts()
        shutil.rmtree(self._data.root)
        return texts

    async def restore(self, made: BackupManifest, *, left: list[Computer], book: Book, gone: str) -> None:
        """Have the daemon again as it was then; what only it had since is owed no more."""
        snapshot = self._folder / "target" / made.id
        config_file = self._folder / "daemon.toml"
        await asyncio.to_thread(
            snapshot_restore.restore, snapshot, self._data, ByCode(self._code), config_file=config_file
        )
        kept = "\n".join([self.texts(), *(text for one in left for text in one.files().values())])
        book.forget({mark for mark in MARK.findall(gone) if mark not in kept})
        book.only_on_disks(set(MARK.findall(kept)) - set(MARK.findall(self.texts())))
        # The machines know the object, and find the new daemon by it.
        self.daemon.__dict__.update((await self._serving()).__dict__)

    def texts(self) -> str:
        """Every text of the data folder that nobody serves."""
        found = []
        key = MasterKey.load(self._data.master)
        for path in self._data.spaces.glob("*.db"):
            store = Store.open(path, key.space_key(path.stem), writer=False, now=0.0)
            for row in store.documents.list_documents(None):
                for entry in store.documents.revisions(row.id, limit=10_000):
                    revision = store.documents.revision(row.id, entry.number)
                    found.append((revision and revision.text) or "")
            store.close()
        return "\n".join(found)

    async def lets_in(self, identity: Identity) -> bool:
        """Whether a connection with this key is taken."""
        try:
            connection = await self.daemon.connect(identity)
        except DeniedError:
            return False
        await connection.close()
        return True


async def carried_out(
    folder: Path, drawn: list[Round], after: list[list[Step]], weather: Weather, clock: TimeOfDay
) -> None:
    book = Book()

    async def act_all(steps: list[list[Step]]) -> None:
        await asyncio.gather(*(act(one, its, clock, weather, book) for one, its in zip(machines, steps, strict=True)))

    async with World(folder) as world:
        async with computers(world.daemon, folder, "sim", weather, MACHINES) as machines:
            thieves = []
            for number, each in enumerate(drawn):
                thieves.append(world.daemon.enroll(f"thief-{number}", space="sim-0"))
                await act_all(each.before)
                made, _ = await asyncio.gather(world.taken(), act_all(each.lost))
                world.revoke(f"thief-{number}")
                for one in machines:
                    await one.end()
                gone = await world.lose()
                await world.restore(made, left=machines, book=book, gone=gone)
            await act_all(after)
            weather.loss = 0.0
            final = await agreed(machines, frozenset(SAFE))
            for thief in thieves:
                assert not await world.lets_in(thief), "a revoked machine was let in"
        book.check(final, "", await world.lose(), safe=frozenset(SAFE))


@pytest.fixture(scope="module")
def clock() -> Iterator[TimeOfDay]:
    with pytest.MonkeyPatch.context() as patch, jumping() as jumped:
        patch.setattr(replicas, "AGAIN_S", 0.02)
        patch.setattr(target, "LEAST_FREE", 0)
        patch.setattr(target, "LEAST_FREE_SHARE", 0)
        patch.setattr(snapshot_restore, "_LEAST_FREE", 0)
        yield jumped


@seed(SEED)
@settings(
    max_examples=SCHEDULES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    drawn=st.lists(rounds, min_size=1, max_size=2),
    after=_of_each(MOST),
    chance=st.integers(0, 2**32 - 1),
    loss=st.sampled_from([0.01, 0.05, 0.1]),
    late=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_machines_of_a_daemon_that_is_restored_agree_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    clock: TimeOfDay,
    drawn: list[Round],
    after: list[list[Step]],
    chance: int,
    loss: float,
    late: float,
) -> None:
    folder = tmp_path_factory.mktemp("restored")
    clock.off_s = 0.0
    asyncio.run(carried_out(folder, drawn, after, Weather(random.Random(chance), loss, late), clock))
    shutil.rmtree(folder)
