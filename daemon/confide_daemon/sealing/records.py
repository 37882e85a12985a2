"""The sealed records of a space: kept in its database, and opened by nobody here (PROTOCOL.md 10.3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confide_crypto.sealing.errors import RecordError
from confide_crypto.sealing.records import Record
from confide_daemon.errors import DamagedError, NotFoundError, VaultError
from confide_daemon.store import SealedPlace, SealedRow, Store
from confide_daemon.threads import StoreThreads


class SealedRecords:
    """The records of one space, in its database."""

    def __init__(self, threads: StoreThreads, clock: Callable[[], float] = time.time) -> None:
        self._threads = threads
        self._clock = clock

    async def put(self, records: Sequence[Record]) -> int:
        """Store records; how many of them are new, or of a newer epoch than what was there. One that is there is replaced by no other.

        Raises:
            StorageError.
        """
        rows = [(SealedRow(one.secret_id, one.kind, one.epoch, self._clock()), one.encode()) for one in records]

        def work(store: Store) -> int:
            with store.writing():
                return sum(store.put_sealed(row, record) for row, record in rows)

        return await self._threads.write(work)

    async def get(self, secret_id: bytes) -> Record:
        """The record of that name, 16 bytes.

        Raises:
            NotFoundError: there is none.
            DamagedError: what is stored is none.
            VaultError: it is in a vault that cannot be asked now.
        """
        found = await self._stored(secret_id)
        if isinstance(found, SealedPlace):
            raise without_vault()
        return parsed(found)

    async def listed(self, after: bytes, *, limit: int, below: int | None = None) -> list[SealedRow]:
        """What is known of the records, by their names' bytes, from the first behind `after`; of older epochs than `below`."""
        return await self._threads.read(lambda store: store.sealed_list(after, limit=limit, below=below))

    async def count(self) -> int:
        """How many there are."""
        return await self._threads.read(lambda store: store.sealed_count())

    async def places(self) -> tuple[int, int]:
        """How many are in a vault, and how many in the database."""
        return await self._threads.read(
            lambda store: (store.sealed_count_at(is_placed=True), store.sealed_count_at(is_placed=False))
        )

    def start(self) -> None:
        """The space is open."""

    async def close(self) -> None:
        """The space is about to be closed."""

    async def _stored(self, secret_id: bytes) -> bytes | SealedPlace:
        found = await self._threads.read(lambda store: store.sealed(secret_id))
        if found is None:
            raise unknown()
        return found


def parsed(stored: bytes) -> Record:
    """The record in what the database has. Raises DamagedError."""
    try:
        return Record.parse(stored)
    except RecordError as error:
        hint = "seal the secret again from the file that holds it"
        raise DamagedError("a stored sealed record is damaged", hint=hint) from error


def without_vault() -> VaultError:
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
