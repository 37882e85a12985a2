"""The sealed records of a space: kept in its database, and opened by nobody here (PROTOCOL.md 10.3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confide_crypto.errors import RecordError
from confide_crypto.sealing.record import SealedRecord
from confide_daemon.errors import DamagedError, NotFoundError, VaultError
from confide_daemon.store.rows import SealedPlace, SealedRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads

Follow = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class MoveResult:
    moved: int  # how many were
    lost: int  # how many could not be brought back, since the vault has them no more
    # in_vault, in_database: how many are there now, the lost ones among those in the vault
    in_vault: int
    in_database: int


class SealedRecords:
    """The records of one space, in its database."""

    def __init__(self, threads: StoreThreads, clock: Callable[[], float] = time.time) -> None:
        self._threads = threads
        self._clock = clock

    async def put(self, records: Sequence[SealedRecord]) -> int:
        """Store records; how many of them are new, or of a newer epoch than what was there. One that is there is replaced by no other.

        Raises StorageError.
        """
        rows = [(SealedRow(one.secret_id, one.kind, one.epoch, self._clock()), one.encode()) for one in records]

        def work(store: Store) -> int:
            with store.writing():
                return sum(store.sealed_records.put(row, record) for row, record in rows)

        return await self._threads.write(work)

    async def get(self, secret_id: bytes) -> SealedRecord:
        """The record of that name, 16 bytes.

        Raises NotFoundError where there is none; DamagedError: what is stored is none; VaultError where it is in a vault that
        cannot be asked now.
        """
        found = await self._stored(secret_id)
        if isinstance(found, SealedPlace):
            raise _without_vault()
        return parsed(found)

    async def listed(self, after: bytes, *, limit: int, below: int | None = None) -> list[SealedRow]:
        """What is known of the records, by their names' bytes, from the first behind `after`; of older epochs than `below`."""
        return await self._threads.read(lambda store: store.sealed_records.listed(after, limit=limit, below=below))

    async def count(self) -> int:
        return await self._threads.read(lambda store: store.sealed_records.count())

    async def places(self) -> tuple[int, int]:
        """How many are in a vault, and how many in the database."""
        return await self._threads.read(
            lambda store: (
                store.sealed_records.count_at(is_placed=True),
                store.sealed_records.count_at(is_placed=False),
            )
        )

    async def move(self, *, back: bool, follow: Follow, is_cancelled: Callable[[], bool]) -> MoveResult:  # noqa: ARG002 - there is no vault
        """Brings all records into the vault, or `back` into the database.

        `follow`: told how many are there, and of how many.

        Raises:
            VaultError: there is no vault, unless there is nothing in it to bring back, or it cannot be used now.
            StorageError.
        """
        in_vault, in_database = await self.places()
        if in_vault or not back:
            raise _without_vault()
        return MoveResult(0, 0, in_vault, in_database)

    def start(self) -> None:
        """The space is open."""

    async def close(self) -> None:
        """The space is about to be closed."""

    async def _stored(self, secret_id: bytes) -> bytes | SealedPlace:
        found = await self._threads.read(lambda store: store.sealed_records.find(secret_id))
        if found is None:
            raise unknown()
        return found


def parsed(stored: bytes) -> SealedRecord:
    """The record in what the database has. Raises DamagedError."""
    try:
        return SealedRecord.parse(stored)
    except RecordError as error:
        hint = "seal the secret again from the file that holds it"
        raise DamagedError("a stored sealed record is damaged", hint=hint) from error


def _without_vault() -> VaultError:
    """What is said where a vault is needed and none is configured."""
    return VaultError(
        "there is no vault for sealed records in daemon.toml",
        hint="set url of [vault]; to do without it from then on: confided vault move --back",
    )


def unknown() -> NotFoundError:
    """What is said of a record that is not there, or not there for this caller."""
    return NotFoundError(
        "there is no sealed secret of that name in this space", hint="is the placeholder whole, and of this space?"
    )
