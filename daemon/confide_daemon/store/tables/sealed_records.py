"""SQL for sealed records (PROTOCOL.md 10.3), or their locations in an external store."""

# ruff: noqa: S608 - only words of our own are put into SQL; every value is a parameter

from __future__ import annotations

from collections.abc import Sequence

from confide_daemon.store.database import Table
from confide_daemon.store.rows import SealedEntry, SealedPlace, SealedRow


class SealedRecordTable(Table):
    """Sealed records by id, and stray locations. A location in the external store becomes stray
    when no record uses it any more; its content is then to be removed.
    """

    def put(self, row: SealedRow, record: bytes | SealedPlace) -> bool:
        """Store a record or its location in the external store. A stored record is replaced only if
        the new one was encrypted under a newer key (`epoch`). Return True if the record was stored.

        Raises SpaceFullError if the space has reached its quota.
        """
        self._database.require_room()
        before = self._rows("SELECT place FROM sealed_record WHERE id = ? AND epoch < ?", (row.id, row.epoch))
        sql = """INSERT INTO sealed_record (id, kind, epoch, stored_at, place, record) VALUES (?, ?, ?, ?, ?, ?)
                 ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, epoch = excluded.epoch, stored_at = excluded.stored_at,
                   place = excluded.place, record = excluded.record WHERE excluded.epoch > epoch
                 RETURNING number"""
        is_stored = bool(self._rows(sql, (*row, *_columns(record))))
        if is_stored:
            self._note_move(row.id, before[0][0] if before else None, record, row.stored_at)
        return is_stored

    def find(self, identity: bytes) -> bytes | SealedPlace | None:
        """Return the record with this id, or its location, or None if there is none."""
        found = self._rows("SELECT place, record FROM sealed_record WHERE id = ?", (identity,))
        return _record(*found[0]) if found else None

    def epoch(self, identity: bytes) -> int | None:
        """Return the number of the key (epoch) under which the record with this id is encrypted, or
        None if there is no such record.
        """
        found = self._rows("SELECT epoch FROM sealed_record WHERE id = ?", (identity,))
        return int(found[0][0]) if found else None

    def list_rows(self, after: bytes, *, limit: int, below: int | None) -> list[SealedRow]:
        """Return metadata of up to `limit` records, ordered by id, beginning after the id `after`.
        `below`: only records encrypted under older keys (epochs) than this one; None: all.
        """
        sql = """SELECT id, kind, epoch, stored_at FROM sealed_record INDEXED BY sealed_record_listed
                 WHERE id > ?1 AND (?2 IS NULL OR epoch < ?2) ORDER BY id LIMIT ?3"""
        return [SealedRow(*row) for row in self._rows(sql, (after, below, limit))]

    def count(self) -> int:
        return int(self._rows("SELECT count(*) FROM sealed_record")[0][0])

    def after(self, number: int, *, is_placed: bool, limit: int) -> list[SealedEntry]:
        """Return up to `limit` records with row numbers above `number`. `is_placed` True: only
        those in the external store; False: only those stored here.
        """
        sql = f"""SELECT number, id, epoch, place, record FROM sealed_record
                  WHERE place IS {"NOT " if is_placed else ""}NULL AND number > ? ORDER BY number LIMIT ?"""
        found = self._rows(sql, (number, limit))
        return [SealedEntry(number, bytes(name), epoch, _record(*where)) for number, name, epoch, *where in found]

    def move(self, entry: SealedEntry, record: bytes | SealedPlace, *, now: float) -> bool:
        """Change where a record is stored. Return False, without a change, if the record was
        replaced or moved since `entry` was read.
        """
        place = entry.record.value if isinstance(entry.record, SealedPlace) else None
        sql = """UPDATE sealed_record SET place = ?, record = ? WHERE number = ? AND epoch = ? AND place IS ?
                 RETURNING number"""
        is_moved = bool(self._rows(sql, (*_columns(record), entry.number, entry.epoch, place)))
        if is_moved:
            self._note_move(entry.id, place, record, now)
        return is_moved

    def count_at(self, *, is_placed: bool) -> int:
        """Count records. `is_placed` True: only those in the external store; False: only those
        stored here.
        """
        sql = f"SELECT count(*) FROM sealed_record WHERE place IS {'NOT ' if is_placed else ''}NULL"
        return int(self._rows(sql)[0][0])

    def drop(self, identity: bytes, *, now: float) -> None:
        """Remove the record with this id, if there is one. Its location in the external store
        becomes stray.
        """
        for (place,) in self._rows("DELETE FROM sealed_record WHERE id = ? RETURNING place", (identity,)):
            if place is not None:
                self.add_strays([(SealedPlace(bytes(place)), identity)], due_at=now)

    def add_strays(self, places: Sequence[tuple[SealedPlace, bytes]], *, due_at: float) -> None:
        """Record stray locations, which no record uses any more, each with the id of its record.

        `due_at`: when their content is to be removed, in seconds since 1970.
        """
        for place, identity in places:
            self._rows("INSERT OR REPLACE INTO sealed_stray VALUES (?, ?, ?)", (place.value, identity, due_at))

    def strays(self, *, now: float, limit: int) -> list[tuple[SealedPlace, bytes]]:
        """Return up to `limit` stray locations whose content is to be removed now, each with the id
        of its record.
        """
        found = self._rows("SELECT place, id FROM sealed_stray WHERE due_at <= ? LIMIT ?", (now, limit))
        return [(SealedPlace(bytes(place)), bytes(identity)) for place, identity in found]

    def forget_strays(self, places: Sequence[SealedPlace]) -> None:
        for place in places:
            self._rows("DELETE FROM sealed_stray WHERE place = ?", (place.value,))

    def _note_move(self, identity: bytes, before: bytes | None, record: bytes | SealedPlace, now: float) -> None:
        if isinstance(record, SealedPlace):
            self.forget_strays([record])
        if before is not None:
            self.add_strays([(SealedPlace(bytes(before)), identity)], due_at=now)


def _columns(record: bytes | SealedPlace) -> tuple[bytes | None, bytes | None]:
    return (record.value, None) if isinstance(record, SealedPlace) else (None, record)


def _record(place: bytes | None, record: bytes | None) -> bytes | SealedPlace:
    return SealedPlace(bytes(place)) if place is not None else bytes(record or b"")
