"""Records of forgotten texts, as SQL (`confide_memory.forgetting`)."""

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
    """A stored record.

    Attributes:
        lifted: hashes that a person has stored again.
        author: the name of the device that had it forgotten.
        taken_at, done_at: when it was stored, and when the last trace was removed from the file
            (None: not yet), in seconds since 1970.
    """

    id: bytes
    signed: SignedRecord
    lifted: frozenset[bytes]
    author: str
    taken_at: float
    done_at: float | None


class ForgetTable(Table):
    """The records of a space, and the keys of their hashes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._guards: tuple[_State, list[ForgetGuard]] | None = None

    def key(self, *, now: float) -> bytes:
        """Return the key for new records, and make it if there is none, in the caller's transaction."""
        found = self._rows("SELECT key FROM forget_key ORDER BY made_at, id LIMIT 1")
        if found:
            return bytes(found[0][0])
        key = new_key(os.urandom(32))
        self.add_key(key, now=now)
        return key

    def add_key(self, key: bytes, *, now: float) -> None:
        """Store a key that a device has brought back, if it is not here."""
        self._rows("INSERT INTO forget_key VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (key_id(key), key, now))

    def key_of(self, identity: bytes) -> bytes | None:
        """Return the key of that name, or None."""
        found = self._rows("SELECT key FROM forget_key WHERE id = ?", (identity,))
        return bytes(found[0][0]) if found else None

    def add(self, signed: SignedRecord, *, author: str, now: float, lifted: Collection[bytes] = ()) -> None:
        """Store a record, unless it is here; hashes that were lifted stay so."""
        sql = "INSERT INTO forget_record VALUES (?, ?, ?, NULL, ?, ?, ?) ON CONFLICT DO NOTHING"
        self._rows(sql, (signed.record.id, author, now, _json(lifted), signed.signature, signed.data))

    def rows(self) -> list[ForgetRow]:
        """Return all records, the oldest first."""
        found = self._rows(f"SELECT {_COLUMNS} FROM forget_record ORDER BY taken_at, id")  # noqa: S608 - names of ours
        return [_row(*each) for each in found]

    def find(self, identity: bytes) -> ForgetRow | None:
        """Return a record, or None."""
        found = self._rows(f"SELECT {_COLUMNS} FROM forget_record WHERE id = ?", (identity,))  # noqa: S608 - as above
        return _row(*found[0]) if found else None

    def count(self) -> int:
        return int(self._rows("SELECT count(*) FROM forget_record")[0][0])

    def finish(self, identity: bytes, *, now: float) -> None:
        """Note that no trace is left in this file."""
        self._rows("UPDATE forget_record SET done_at = ? WHERE id = ?", (now, identity))

    def lift(self, hashes: Collection[bytes]) -> None:
        """Note hashes that a person has stored again."""
        for row in self.rows():
            record = row.signed.record
            theirs = {*record.texts, *record.names, *(part.hash for part in record.parts)}.intersection(hashes)
            if theirs - row.lifted:
                sql = "UPDATE forget_record SET lifted = ? WHERE id = ?"
                self._rows(sql, (_json(row.lifted | theirs), row.id))

    def note_device_done(self, identity: bytes, device: str, *, now: float) -> None:
        """Note that a device has removed what a record names from its own files."""
        self._rows("INSERT INTO forget_seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (identity, device, now))

    def devices_done(self, identity: bytes) -> dict[str, float]:
        """Return the devices that have, by their keys in hex, and when."""
        rows = self._rows("SELECT device, at FROM forget_seen WHERE record = ?", (identity,))
        return {str(device): float(at) for device, at in rows}

    def guards(self) -> list[ForgetGuard]:
        """Return what recognizes the forgotten texts, one for each key; empty in most spaces."""
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
        """Return True if the document of this name was forgotten, or a folder around it."""
        return any(guard.has_name(project, path) for guard in self.guards())

    def has_text(self, text: str) -> bool:
        """Return True if a text, or a part of it, was forgotten."""
        return any(guard.is_in(text) for guard in self.guards())

    def cut(self, text: str) -> str:
        """Return the text without what was forgotten of it."""
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
