"""Storage of a space's sealed records in its database. The daemon cannot open them (PROTOCOL.md
10.3).
"""

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
    moved: int  # number of records moved
    lost: int  # records that the vault no longer has, so they cannot be moved back
    # Numbers of records in each place now; lost ones count as in the vault.
    in_vault: int
    in_database: int


class SealedRecords:
    """The sealed records of one space, stored in its database."""

    def __init__(self, threads: StoreThreads, clock: Callable[[], float] = time.time) -> None:
        self._threads = threads
        self._clock = clock

    async def put(self, records: Sequence[SealedRecord]) -> int:
        """Store records; return how many were written. A stored record is replaced only by one that
        is encrypted under a newer key (epoch). Raises StorageError if the database cannot be
        written.
        """
        rows = [(SealedRow(one.secret_id, one.kind, one.epoch, self._clock()), one.encode()) for one in records]

        def work(store: Store) -> int:
            with store.writing():
                return sum(store.sealed_records.put(row, record) for row, record in rows)

        return await self._threads.write(work)

    async def get(self, secret_id: bytes) -> SealedRecord:
        """Return the record with this secret id (16 bytes).

        Raises NotFoundError if there is none, DamagedError if the stored bytes are not a valid
        record, VaultError if it is in a vault that cannot be reached now.
        """
        found = await self._require_record(secret_id)
        if isinstance(found, SealedPlace):
            raise _without_vault()
        return parse_record(found)

    async def list_rows(self, after: bytes, *, limit: int, below: int | None = None) -> list[SealedRow]:
        """Return metadata of at most `limit` records, ordered by id and beginning after the id
        `after`. `below`: only records encrypted under older keys (epochs) than this one; None: all.
        """
        return await self._threads.read(lambda store: store.sealed_records.list_rows(after, limit=limit, below=below))

    async def count(self) -> int:
        return await self._threads.read(lambda store: store.sealed_records.count())

    async def places(self) -> tuple[int, int]:
        """Return the number of records in the vault and the number in the database."""
        return await self._threads.read(
            lambda store: (
                store.sealed_records.count_at(is_placed=True),
                store.sealed_records.count_at(is_placed=False),
            )
        )

    async def move(self, *, back: bool, follow: Follow, is_cancelled: Callable[[], bool]) -> MoveResult:  # noqa: ARG002 - there is no vault
        """Move all records to the vault, or back to the database if `back` is True.

        `follow` receives the number of moved records and the total.

        Raises:
            VaultError: no vault is configured (unless there is nothing to move back), or it is
                unavailable.
            StorageError: the database cannot be read or written.
        """
        in_vault, in_database = await self.places()
        if in_vault or not back:
            raise _without_vault()
        return MoveResult(0, 0, in_vault, in_database)

    def start(self) -> None:
        """Start background work, when the space is opened."""

    async def close(self) -> None:
        """Stop background work, before the space is closed."""

    async def _require_record(self, secret_id: bytes) -> bytes | SealedPlace:
        found = await self._threads.read(lambda store: store.sealed_records.find(secret_id))
        if found is None:
            raise unknown_record_error()
        return found


def parse_record(stored: bytes) -> SealedRecord:
    """Parse the stored bytes of a record. Raises DamagedError if they are not a valid record."""
    try:
        return SealedRecord.parse(stored)
    except RecordError as error:
        hint = "seal the secret again from the file that holds it"
        raise DamagedError("a stored sealed record is damaged", hint=hint) from error


def _without_vault() -> VaultError:
    """Return the error for a missing vault configuration."""
    return VaultError(
        "there is no vault for sealed records in daemon.toml",
        hint="set url of [vault]; to do without it from then on: confided vault move --back",
    )


def unknown_record_error() -> NotFoundError:
    """Return the error for a record that does not exist, or that the caller may not see."""
    return NotFoundError(
        "there is no sealed secret of that name in this space", hint="is the placeholder whole, and of this space?"
    )
