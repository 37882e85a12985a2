"""The part of the SQLite store that keeps sealed records (PROTOCOL.md 10.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from confide_daemon.store.rows import SealedRow


class SqliteSealedRecords:
    """Part of `sqlite.SqliteStore`, which has the connection; see `Store`."""

    if TYPE_CHECKING:

        def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]: ...

    def put_sealed(self, row: SealedRow, record: bytes) -> bool:
        """Stores a record, in place of one of an older epoch."""
        sql = """INSERT INTO sealed_record (id, kind, epoch, stored_at, record) VALUES (?, ?, ?, ?, ?)
                 ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, epoch = excluded.epoch, stored_at = excluded.stored_at,
                   record = excluded.record WHERE excluded.epoch > epoch
                 RETURNING number"""
        return bool(self._rows(sql, (*row, record)))

    def sealed(self, identity: bytes) -> bytes | None:
        """The record of that name."""
        found = self._rows("SELECT record FROM sealed_record WHERE id = ?", (identity,))
        return bytes(found[0][0]) if found else None

    def sealed_list(self, after: bytes, *, limit: int, below: int | None) -> list[SealedRow]:
        """What is known of the records, by name."""
        sql = """SELECT id, kind, epoch, stored_at FROM sealed_record INDEXED BY sealed_record_listed
                 WHERE id > ?1 AND (?2 IS NULL OR epoch < ?2) ORDER BY id LIMIT ?3"""
        return [SealedRow(*row) for row in self._rows(sql, (after, below, limit))]

    def sealed_count(self) -> int:
        """How many there are."""
        return int(self._rows("SELECT count(*) FROM sealed_record")[0][0])
