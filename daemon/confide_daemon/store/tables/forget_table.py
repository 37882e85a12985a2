"""SQL for the records of forgotten texts (`confide_memory.forgetting`): signed lists of hashes, by
which a deleted text is recognized and refused if it comes back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import dataclass

from confide_daemon.store.database import Database, Table
from confide_memory.forgetting import ForgetGuard, SignedRecord, key_id, new_key

_COLUMNS = "id, record, signature, lifted, author, taken_at, done_at"
_State = tuple[int, float, int, int]


@dataclass(frozen=True, slots=True)
class ForgetRow:
    """A stored record of forgotten texts.

    Attributes:
        lifted: hashes in the record that no longer apply, because a person has stored the text
            again.
        author: the name of the device that forgot the texts.
        taken_at: when the record was stored, in seconds since 1970.
        done_at: when the last trace of the texts was removed from the database file, in seconds
            since 1970; None: not yet.
    """

    id: bytes
    signed: SignedRecord
    lifted: frozenset[bytes]
    author: str
    taken_at: float
    done_at: float | None


class ForgetTable(Table):
    """The table of a space's records of forgotten texts, and the keys of the hashes in them."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._guards: tuple[_State, list[ForgetGuard]] | None = None

    def key(self, *, now: float) -> bytes:
        """Return the key for the hashes of new records; create it if there is none, in the caller's
        transaction.
        """
        found = self._rows("SELECT key FROM forget_key ORDER BY made_at, id LIMIT 1")
        if found:
            return bytes(found[0][0])
        key = new_key(os.urandom(32))
        self.add_key(key, now=now)
        return key

    def add_key(self, key: bytes, *, now: float) -> None:
        """Store a key of hashes that came from outside this database, unless it is stored already."""
        self._rows("INSERT INTO forget_key VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (key_id(key), key, now))

    def key_of(self, identity: bytes) -> bytes | None:
        """Return the key with this id (`key_id`), or None if it is unknown."""
        found = self._rows("SELECT key FROM forget_key WHERE id = ?", (identity,))
        return bytes(found[0][0]) if found else None

    def add(self, signed: SignedRecord, *, author: str, now: float, lifted: Collection[bytes] = ()) -> None:
        """Store a record with its lifted hashes; a record that is stored already stays unchanged."""
        sql = "INSERT INTO forget_record VALUES (?, ?, ?, NULL, ?, ?, ?) ON CONFLICT DO NOTHING"
        self._rows(sql, (signed.record.id, author, now, _json(lifted), signed.signature, signed.data))

    def rows(self) -> list[ForgetRow]:
        """Return all records of the space, the oldest first."""
        found = self._rows(f"SELECT {_COLUMNS} FROM forget_record ORDER BY taken_at, id")  # noqa: S608 - names of ours
        return [_row(*each) for each in found]

    def find(self, identity: bytes) -> ForgetRow | None:
        """Return the record with this id, or None if there is none."""
        found = self._rows(f"SELECT {_COLUMNS} FROM forget_record WHERE id = ?", (identity,))  # noqa: S608 - as above
        return _row(*found[0]) if found else None

    def count(self) -> int:
        return int(self._rows("SELECT count(*) FROM forget_record")[0][0])

    def finish(self, identity: bytes, *, now: float) -> None:
        """Mark a record as done: this database file has no trace of its texts any more."""
        self._rows("UPDATE forget_record SET done_at = ? WHERE id = ?", (now, identity))

    def lift(self, hashes: Collection[bytes]) -> None:
        """Mark these hashes as lifted in all records that contain them, so that their texts are
        accepted again.
        """
        for row in self.rows():
            record = row.signed.record
            theirs = {*record.texts, *record.names, *(part.hash for part in record.parts)}.intersection(hashes)
            if theirs - row.lifted:
                sql = "UPDATE forget_record SET lifted = ? WHERE id = ?"
                self._rows(sql, (_json(row.lifted | theirs), row.id))

    def note_device_done(self, identity: bytes, device: str, *, now: float) -> None:
        """Record that a device has deleted a record's texts from its own files."""
        self._rows("INSERT INTO forget_seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (identity, device, now))

    def devices_done(self, identity: bytes) -> dict[str, float]:
        """Return when each device deleted the record's texts from its own files: seconds since
        1970, by the device's public key in hex.
        """
        rows = self._rows("SELECT device, at FROM forget_seen WHERE record = ?", (identity,))
        return {str(device): float(at) for device, at in rows}

    def guards(self) -> list[ForgetGuard]:
        """Return one matcher of forgotten texts for each key; empty if nothing was forgotten."""
        sql = """SELECT count(*), coalesce(max(taken_at), 0), coalesce(sum(length(lifted)), 0),
                 (SELECT count(*) FROM forget_key) FROM forget_record"""
        state: _State = self._rows(sql)[0]
        if not state[0]:
            return []
        if self._guards is None or self._guards[0] != state:
            rows = self.rows()
            lifted = frozenset(each for row in rows for each in row.lifted)
            keys = [bytes(key) for (key,) in self._rows("SELECT key FROM forget_key")]
            found = [ForgetGuard(key, [row.signed.record for row in rows], lifted) for key in keys]
            self._guards = state, [guard for guard in found if guard]
        return self._guards[1]

    def has_name(self, project: str, path: str) -> bool:
        """Return True if the document with this path, or a folder that contains it, was forgotten."""
        return any(guard.has_name(project, path) for guard in self.guards())

    def has_text(self, text: str) -> bool:
        """Return True if the text contains a forgotten text or part."""
        return any(guard.is_in(text) for guard in self.guards())

    def cut(self, text: str) -> str:
        """Return the text without its forgotten parts."""
        for guard in self.guards():
            text = guard.cut(text)
        return text


def _json(hashes: Collection[bytes]) -> bytes:
    return json.dumps(sorted(each.hex() for each in hashes)).encode()


def _row(
    identity: bytes, data: bytes, signature: bytes, lifted: bytes, author: str, taken_at: float, done_at: float | None
) -> ForgetRow:
    signed = SignedRecord(bytes(data), bytes(signature))
    hashes = frozenset(map(bytes.fromhex, json.loads(lifted)))
    return ForgetRow(bytes(identity), signed, hashes, author, taken_at, done_at)
