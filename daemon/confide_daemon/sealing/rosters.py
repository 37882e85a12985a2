"""The rosters of the spaces: which devices may open what is sealed there, as chains of entries that they sign (PROTOCOL.md 10.6).

They stand in the registry, not in the spaces' databases: a locked space is opened with keys that only a device of its roster has.
Nothing is believed because it was stored: a chain is verified before it is used, once in the life of a process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final

import apsw

from confide_crypto.sealing.entries import Change, Entry
from confide_crypto.sealing.errors import ReplayedEntryError, RosterError
from confide_crypto.sealing.roster import Roster
from confide_daemon.audit import record
from confide_daemon.errors import StorageError
from confide_daemon.registry import Registry

MAX_REMEMBERED: Final = 256
"""Verified rosters in memory, of those used last: some 20 kB each, 8 MiB at most."""
_DONE: Final = {
    Change.GENESIS: "founded, with its first device",
    Change.ADD: "one added",
    Change.REMOVE: "one removed",
    Change.ROTATE: "new epoch",
}


class Rosters:
    """All rosters of a daemon. As safe as the registry itself: from several threads and processes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._verified: OrderedDict[str, Roster] = OrderedDict()
        self._lock = threading.Lock()

    def current(self, space_id: str) -> Roster | None:
        """The roster of a space as it is now; None before it has one.

        Raises:
            StorageError: it cannot be read, or what is stored is no roster.
        """
        with self._lock:
            known = self._verified.get(space_id)
        with self._registry.reading() as database:
            newest = _newest(database, space_id)
            if newest is None:
                return None
            is_ours = known is not None and _hash_at(database, space_id, known.pin.number) == known.head
            if known is not None and is_ours and newest == (known.pin.number, known.head):
                return known
            since = len(known.entries) if known is not None and is_ours else 0
            rows: list[Any] = database.execute(
                "SELECT entry FROM roster_entries WHERE space = ? AND number >= ? ORDER BY number", (space_id, since)
            ).fetchall()
        entries = [bytes(entry) for (entry,) in rows]
        try:
            roster = known.extend(entries) if known is not None and is_ours else Roster.read(entries)
        except RosterError as error:
            raise StorageError(
                f"cannot use the stored list of devices of space {space_id}: {error.message}",
                hint="restore the data folder from a backup",
            ) from error
        self._remember(space_id, roster)
        return roster

    def extend(self, space_id: str, data: bytes, *, by: str) -> tuple[Roster, bool]:
        """The roster with one more entry, and whether it is new: of two that follow the same one, exactly one is taken.

        An entry that is there already is answered as it was the first time, for the answer may have been lost.

        Args:
            by: the name of the caller that brings it, for the audit log. Its signer is another matter.

        Raises:
            RosterError: one of its kinds: it may not follow what is there.
            StorageError: it cannot be written down.
        """
        while True:
            known = self.current(space_id)
            try:
                roster = known.extend([data]) if known is not None else Roster.read([data])
            except ReplayedEntryError:
                assert known is not None
                return known, False
            entry, before = roster.entries[-1], known and (known.pin.number, known.head)
            with self._registry.transaction() as database:
                if _newest(database, space_id) != before:
                    continue  # somebody was first; what this entry is now, the newer roster says
                database.execute(
                    "INSERT INTO roster_entries VALUES (?, ?, ?, ?)", (space_id, entry.number, roster.head, data)
                )
                _write_down(database, self._registry.clock(), roster, entry, by)
            self._remember(space_id, roster)
            return roster, True

    def _remember(self, space_id: str, roster: Roster) -> None:
        with self._lock:
            held = self._verified.get(space_id)
            if held is not None and held.space == roster.space and len(held.entries) > len(roster.entries):
                return
            self._verified[space_id] = roster
            self._verified.move_to_end(space_id)
            while len(self._verified) > MAX_REMEMBERED:
                self._verified.popitem(last=False)


def _newest(database: apsw.Connection, space_id: str) -> tuple[int, bytes] | None:
    """Number and hash of a space's newest entry."""
    rows: list[Any] = database.execute(
        "SELECT number, hash FROM roster_entries WHERE space = ? ORDER BY number DESC LIMIT 1", (space_id,)
    ).fetchall()
    return (int(rows[0][0]), bytes(rows[0][1])) if rows else None


def _hash_at(database: apsw.Connection, space_id: str, number: int) -> bytes | None:
    found = database.execute("SELECT hash FROM roster_entries WHERE space = ? AND number = ?", (space_id, number)).get
    return bytes(found) if isinstance(found, bytes) else None


def _write_down(database: apsw.Connection, now: float, roster: Roster, entry: Entry, by: str) -> None:
    """The row of the audit log, with the words of the device that it is about."""
    changed = entry.device.key if entry.device is not None else entry.removed or None
    detail = f"{_DONE[entry.change]}; {len(roster.devices)} in epoch {roster.epoch}"
    record(database, now, "devices", alias=by, public_key=changed, detail=detail)
