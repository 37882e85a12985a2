"""Drawn schedules of forgetting on two nodes over a real PostgreSQL: kills, copies on the other node, a store that is put back.

Each ends with a scan of every byte of both data folders and of PostgreSQL's own folder (tables, indexes, TOAST, free space, write-ahead
log), and of all that the log gives to a holder of the space's key. What PostgreSQL keeps of deleted rows is ciphertext. It is counted
apart, in tables and in the write-ahead log, before and after `VACUUM FULL`.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb
from tests.support.daemon import residue
from tests.support.daemon.forgetful import vectors
from tests.support.daemon.logged import Node, Store
from tests.support.daemon.postgres import Postgres
from tests.support.kills.forget_schedule import DIMENSIONS, WAIT_S, Schedule, floats

from confide_cluster.daemon.log import log_snapshot
from confide_cluster.daemon.log.log_sealing import GENESIS, LogPosition, LogSealing, tag_of
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import StorageError
from confide_memory.forgetting import SignedRecord

WAL: Final = {"max_wal_size": "48MB", "min_wal_size": "32MB"}
"""Settings of the server, so that its write-ahead log is read in a moment."""
TABLES: Final = ("log", "entry", "part")
_ZLIB: Final = b"\x78\x9c"
_SAMPLE: Final = 48
_MOST_SAMPLES: Final = 40
_STEP: Final = 997
"""Less than half of the pieces in which PostgreSQL stores a long value."""


@dataclass
class SealedRemains:
    """Ciphertext of deleted rows in PostgreSQL's folder: samples of it that were found, by place."""

    in_tables: int = 0
    in_wal: int = 0
    in_tables_after_vacuum: int = 0
    in_wal_after_vacuum: int = 0


@dataclass
class LogRows:
    """All rows of the store, as a backup of PostgreSQL has them."""

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def samples(self) -> set[bytes]:
        """Pieces of every sealed value."""
        bodies = [bytes(row[-1]) for name in ("entry", "part") for row in self.rows[name]]
        found = sorted({body[at : at + _SAMPLE] for body in bodies for at in range(24, len(body) - _SAMPLE, _STEP)})
        return set(found[:: -(-len(found) // _MOST_SAMPLES)])


class NodesSchedule(Schedule):
    """One space on two nodes, from its first text to the last scan."""

    def __init__(self, folder: Path, seed: int, postgres: Postgres) -> None:
        super().__init__(folder, seed)
        self.postgres = postgres
        self.store = Store(postgres, postgres.database(), folder / "nodes")
        self.store.root.mkdir()
        self.remains = SealedRemains()
        self.was_put_back = False
        self._names = self.drawn.sample(("one", "two"), 2)
        self._places: dict[str, tuple[Path, bytes, str]] = {}

    @asynccontextmanager
    async def node(self, name: str) -> AsyncIterator[Node]:
        """A daemon over one of the folders; its space is open on no other."""
        if self._places:
            self.store.sql("DELETE FROM node")  # one that was killed counts as dead at once
        async with self.store.node(name, embedder=LoadedModel.ready(HashedEmbedder(DIMENSIONS))) as node:
            self._places[name] = node.path, node.key, node.space_id
            yield node

    async def run(self) -> Any:
        """All of it. The database in PostgreSQL is dropped at the end."""
        try:
            return await self._run()
        finally:
            self.postgres.sql(f"DROP DATABASE {self.store.url.rpartition('/')[2]} WITH (FORCE)")

    async def _run(self) -> Any:
        first, second = self._names
        async with self.node(first) as node:
            space = await node.space()
            await self._plant(space)
            await space.wait_indexed(timeout_s=WAIT_S)
            self.stored = vectors(node.path, node.key, "memory/a.md")
            if self.drawn.random() < 0.5:
                await space.threads.maintain(lambda store: store.outbox.take_snapshot() if store.outbox else None)
        has_copy = self.drawn.random() < 0.7
        if has_copy:
            async with self.node(second) as node:
                await (await node.space()).documents.put("p", "memory/other.md", "# Of it\n", base=0, author="b")
                self.store.sql("CHECKPOINT")
        self._scan_nodes("before")
        expected = {f"before, the log of {first}: a word", f"before, {first}: a word", f"before, {first}: a vector"}
        assert expected <= {*self.outcome.residues}, "the scan finds what is there"
        self.outcome.residues.clear()
        before = self._kept()
        async with self.node(self.drawn.choice(self._names) if has_copy else first) as node:
            signed, key = await self._record(await node.space())
            self._forgetter = self.drawn.choice(self._names)
        await asyncio.to_thread(self._killed, signed, key)
        last = self.drawn.choice(self._names)
        async with self.node(last) as node:
            space = await node.space()
            await space.forgetting.take(signed, key, author="a")
            await self._bring_back(space)
        await self._tidied(last)
        self._scan_nodes("after forgetting")
        self._count_remains(before)
        if self.drawn.random() < 0.5:
            await self._put_back(before, last, signed, key)
        return self.outcome

    async def _forgotten(self, signed: SignedRecord, key: bytes) -> None:
        async with self.node(self._forgetter) as node:
            await (await node.space()).forgetting.take(signed, key, author="a")

    async def _tidied(self, last: str) -> None:
        """What the other node does with its closed spaces in the background, and what it does when it is asked for one."""
        other = next(name for name in self._names if name != last)
        is_asked = self.drawn.random() < 0.5
        if is_asked and self.was_put_back:
            await self._accepted(other)
        async with self.node(other) as node:
            if is_asked:
                await self._unserved(await node.space())
            else:
                await node.spaces.look_at_all()

    async def _accepted(self, name: str) -> bool:
        """A node that has more than the store refuses, and its operator accepts that; return False if it had no more."""
        async with self.node(name) as node:
            try:
                await node.space()
            except StorageError:
                assert log_snapshot.accept(node.path.parent), "the operator is asked"
                return True
        return False

    async def _put_back(self, before: LogRows, last: str, signed: SignedRecord, key: bytes) -> None:
        """PostgreSQL from an older backup: the node that forgot refuses, and forgets again once its operator accepts that."""
        self.was_put_back = True
        self._replace(before)
        if not await self._accepted(last):
            self.outcome.residues.append("an older store was taken for the newer")
        async with self.node(last) as node:
            space = await node.space()
            await self._unserved(space)
            await space.forgetting.take(signed, key, author="a")
            await self._bring_back(space)
        await self._tidied(last)
        self._scan_nodes("after an older store")

    def _kept(self) -> LogRows:
        return LogRows({name: self.store.sql(f"SELECT * FROM {name}") for name in TABLES})

    def _replace(self, kept: LogRows) -> None:
        with psycopg.connect(self.store.url) as connection:
            for name in TABLES:
                connection.execute(f"DELETE FROM {name}".encode())
                for row in kept.rows[name]:
                    marks = ", ".join("%s" for _ in row)
                    values = [Jsonb(one) if isinstance(one, dict) else one for one in row]
                    connection.execute(f"INSERT INTO {name} VALUES ({marks})".encode(), values)

    # What is left

    def _scan_nodes(self, moment: str) -> None:
        self.store.sql("CHECKPOINT")
        raw = [file.read_bytes() for file in self.store.root.rglob("*") if file.is_file()]
        raw += [data for _, data in self._postgres_files()]
        self._note(f"{moment}, a file", raw, "")
        for name, (path, key, space_id) in self._places.items():
            for file in sorted(path.parent.glob(f"{path.name}*")):
                if file.name.endswith(("-wal", "-shm")) or file.stat().st_size == 0:
                    continue
                text = "\n".join(residue.texts(file, key)) + "\n" + " ".join(residue.words(file, key))
                self._note(f"{moment}, {name}", [residue.image(file, key)], text)
            self._note(f"{moment}, the log of {name}", [*self._opened_log(key, space_id)], "")

    def _note(self, where: str, images: list[bytes], text: str) -> None:
        for word in self.words:
            for found in (word, word[-7:], word[-8:-1]):  # a page of FTS5 may hold the end by itself
                if found in text.lower() or any(found.encode() in image for image in images):
                    self.outcome.residues.append(f"{where}: a word")
        for vector in (*self.stored, *floats([self.line, self.text])):
            if any(vector in image for image in images):
                self.outcome.residues.append(f"{where}: a vector")

    def _opened_log(self, key: bytes, space_id: str) -> Iterator[bytes]:
        """All that a holder of the key reads in the rows of the log."""
        sealing = LogSealing(space_id, key)
        kept = self._kept()
        for _, snapshot, base, tag in [
            (row[0], row[1], row[2], row[3])
            for row in self.store.sql("SELECT id, snapshot, base, tag FROM log WHERE id = %s", space_id)
        ]:
            before = bytes(tag) if tag is not None else GENESIS
            number = base
            for log, at, lease, schema, body in sorted(kept.rows["entry"]):
                if log == space_id and at > base:
                    yield b"\n".join(_unpacked(sealing.open(LogPosition(at, lease, schema, before), bytes(body))))
                    number, before = at, tag_of(bytes(body))
            assert number >= base
            parts = [
                (part, bytes(body)) for log, of, part, body in kept.rows["part"] if (log, of) == (space_id, snapshot)
            ]
            if parts:
                copy = self.folder / "of-the-log.db"
                copy.write_bytes(b"".join(body for part, body in sorted(parts) if part))
                yield residue.image(copy, key)
                yield "\n".join(residue.texts(copy, key)).lower().encode()
                log_snapshot.remove(copy)
            if [row for row in kept.rows["part"] if row[0] == space_id and row[1] != snapshot]:
                yield " ".join(
                    self.words
                ).encode()  # of an interrupted snapshot, which a later opening should have removed

    def _postgres_files(self) -> Iterator[tuple[str, bytes]]:
        for file in self.postgres.files.rglob("*"):
            if file.is_file():
                yield file.relative_to(self.postgres.files).parts[0], file.read_bytes()

    def _count_remains(self, before: LogRows) -> None:
        """Ciphertext of the rows from before, without what the new snapshot has too."""
        live = b"".join(bytes(row[-1]) for name in ("entry", "part") for row in self._kept().rows[name])
        samples = {one for one in before.samples() if one not in live}
        self.remains.in_tables, self.remains.in_wal = self._found(samples)
        self.store.sql("VACUUM FULL entry, part")
        self.store.sql("CHECKPOINT")
        self.remains.in_tables_after_vacuum, self.remains.in_wal_after_vacuum = self._found(samples)

    def _found(self, samples: set[bytes]) -> tuple[int, int]:
        files = [*self._postgres_files()]
        tables = b"".join(data for place, data in files if place != "pg_wal")
        wal = b"".join(data for place, data in files if place == "pg_wal")
        return sum(one in tables for one in samples), sum(one in wal for one in samples)


def _unpacked(patchset: bytes) -> Iterator[bytes]:
    """A patchset, and each packed text in it."""
    yield patchset
    at = -1
    while (at := patchset.find(_ZLIB, at + 1)) >= 0:
        with suppress(zlib.error):
            yield zlib.decompressobj().decompress(patchset[at:])
