"""Spaces whose logs are in a real PostgreSQL, in this process, without a socket: what a test writes, and what it finds in a copy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.daemon.parts import parts
from tests.support.daemon.postgres import Postgres

from confide_cluster.daemon.log.replicated_tables import rows_of, truths
from confide_cluster.daemon.spaces.leases import SpaceLeases
from confide_cluster.daemon.store import Postgres as Logs
from confide_cluster.settings import StoreConfig
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import RegistryState, create, open_state
from confide_daemon.datadir.key_state import Keeper
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import EmbedderError
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.database import connect
from confide_daemon.store.upkeep.integrity import CLOCK_CONFIRMED, CLOCK_SEEN
from confide_night.daemon.task_service import TIDIED_AT

NAME = "laptop"
MACHINE = bytes(range(32))
CLOCK_NOTES = (CLOCK_SEEN, CLOCK_CONFIRMED, TIDIED_AT)


class Node:
    """A daemon's spaces, over a data folder."""

    def __init__(self, state: RegistryState, spaces: Spaces, leases: SpaceLeases | None) -> None:
        self.state = state
        self.spaces = spaces
        self.leases = leases
        self.space_id = state.registry.spaces()[NAME]

    @property
    def path(self) -> Path:
        return self.state.folder.space(self.space_id)

    @property
    def key(self) -> bytes:
        """Of the space's database, where the server keeps it."""
        number = Custodian(self.space_id, self.state.folder, self.state.master).custody.key.number
        return self.state.master.space_key(self.space_id, number)

    async def space(self) -> Space:
        return await self.spaces.get(self.space_id)

    async def put(self, path: str, text: str) -> None:
        await (await self.space()).documents.put("p", path, text, base=0, author="a")

    async def texts(self) -> dict[str, str]:
        """All living documents by their paths."""

        def work(store: Any) -> dict[str, str]:
            found = {}
            for row in store.documents.list_documents(None):
                revision = None if row.deleted else store.documents.revision(row.id, row.revision)
                if revision is not None:
                    found[row.path] = revision.text
            return found

        return await (await self.space()).threads.read(work)


@dataclass
class Store:
    """A database of its own in the engine, and data folders that use it."""

    postgres: Postgres
    url: str
    root: Path
    embeds: bool = True
    """Whether pieces get vectors; what counts statements has none, whose number hangs on the time that they take."""

    def folder(self, name: str = "one") -> DataFolder:
        """A data folder with one caller and one space; all of them have the same keys and the same registry."""
        first = DataFolder(self.root / "one")
        if not first.root.exists():
            create(first)
            with closing(open_state(first)) as state:
                state.registry.add_caller(MACHINE, Grants(NAME), space=NAME, added_by="line")
        wanted = DataFolder(self.root / name)
        if not wanted.root.exists():
            wanted.root.mkdir(mode=0o700)
            for part in first.root.iterdir():
                if part.is_file() and part != first.node:
                    (wanted.root / part.name).write_bytes(part.read_bytes())
                    (wanted.root / part.name).chmod(0o600)
            wanted.spaces.mkdir(mode=0o700)
        return wanted

    @asynccontextmanager
    async def node(
        self, name: str = "one", *, url: str | None = None, keeper: Keeper = "server", lease_s: int = 3, **options: Any
    ) -> AsyncIterator[Node]:
        """A daemon over one of the folders. `url`: of the store, "" for none."""
        folder = self.folder(name)
        with closing(open_state(folder)) as state:
            config = StoreConfig(url=self.url if url is None else url, lease_s=lease_s)
            leases = Logs(config).leases(folder) if config.url else None
            embedder = options.pop("embedder", None) or LoadedModel(
                HashedEmbedder if self.embeds else _none, name="hashed"
            )
            spaces = Spaces(
                state, SpaceShared(IndexSettings(), embedder, parts=parts()), keeper=keeper, leases=leases, **options
            )
            try:
                yield Node(state, spaces, leases)
            finally:
                await spaces.close()

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.postgres.sql(statement, *values, url=self.url)


def _none() -> HashedEmbedder:
    raise EmbedderError("there is none here")


def held(path: Path, key: bytes) -> dict[str, list[str]]:
    """All truths of a database, with the rows of each; without what says how far derived rows have followed.

    Nor with what a daemon notes of its clock, and of notes that repeat each other, in the background, soon after it has opened a space:
    one that closes it again at once may not have come to that, and then only the next one has the note. It goes with the next write.
    """
    with closing(connect(path, key, writer=False)) as connection:
        found = {}
        for table in (one for one in truths(connection) if one != "night_findings"):
            rows = (row for row in rows_of(connection, table) if table != "mark" or row[0] not in CLOCK_NOTES)
            found[table] = sorted(map(repr, rows))
        # What was given out once is never given out again (PROTOCOL.md 9.2).
        given = "SELECT name, seq FROM sqlite_sequence WHERE name IN ('revision', 'sealed_record')"
        found["given"] = sorted(map(repr, connection.execute(given)))
        return found
