"""The rosters of the spaces: which devices may open what is sealed there, as chains of entries that they sign (PROTOCOL.md 10.6).

Beside them the machines that would be among them: their cards, and what a device answers them (10.7).

They stand in the registry, not in the spaces' databases: a locked space is opened with keys that only a device of its roster has.
Nothing is believed because it was stored: a chain is verified before it is used, once in the life of a process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import apsw

from confide_crypto.errors import OversizedRosterError, ReplayedEntryError, RosterError
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import RosterChange, RosterEntry
from confide_daemon.access.audit import record
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.access.registry import Registry
from confide_daemon.access.registry_invites import Invites
from confide_daemon.errors import StorageError
from confide_daemon.sealing.unsealed_texts import UnsealedCounts

MAX_REMEMBERED: Final = 256
"""Verified rosters in memory, of those used last: some 20 kB each, 8 MiB at most."""
_DONE: Final = {
    RosterChange.GENESIS: "founded, with its first device",
    RosterChange.ADD: "one added",
    RosterChange.REMOVE: "one removed",
    RosterChange.ROTATE: "new epoch",
}


class Rosters:
    """All rosters of a daemon. As safe as the registry itself: from several threads and processes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._verified: OrderedDict[str, Roster] = OrderedDict()
        self._lock = threading.Lock()

    def current(self, space_id: str) -> Roster | None:
        """The roster of a space as it is now; None before it has one.

        Raises StorageError where it cannot be read, or what is stored is no roster.
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

        `by`: the name of the caller that brings it, for the audit log. Its signer is another matter. Raises RosterError: one of its kinds:
        it may not follow what is there; StorageError: it cannot be written down.
        """
        while True:
            known = self.current(space_id)
            try:
                roster = known.extend([data]) if known is not None else Roster.read([data])
            except ReplayedEntryError:
                assert known is not None
                return known, False
            entry, before = roster.entries[-1], known and (known.pin.number, known.head)
            if entry.change in (RosterChange.ADD, RosterChange.ROTATE) and not roster.leaves_room:
                # Else one device could use up what the others need to remove it.
                raise OversizedRosterError(
                    "the list of devices has room for removals only", hint="remove devices, or begin a new space"
                )
            with self._registry.transaction() as database:
                if _newest(database, space_id) != before:
                    continue  # somebody was first; what this entry is now, the newer roster says
                database.execute(
                    "INSERT INTO roster_entries VALUES (?, ?, ?, ?)", (space_id, entry.number, roster.head, data)
                )
                _write_down(database, self._registry.clock(), roster, entry, by)
            self._remember(space_id, roster)
            return roster, True

    def proposed(self, space_id: str, entries: Sequence[bytes]) -> Roster:
        """The whole roster of a space that is moved here, verified; where there is one already, it goes on from that.

        Raises RosterError: it is none, or another one is here.
        """
        known = self.current(space_id)
        roster = Roster.read(entries)
        if known is not None:
            roster.check(known.pin)
        return roster

    def adopt(self, space_id: str, roster: Roster, *, by: str) -> Roster:
        """Keep what was `proposed`; `by` as of `extend`. Raises RosterError: another one has come meanwhile; StorageError."""
        while True:
            known = self.current(space_id)
            if known is not None:
                roster.check(known.pin)
                if known.head == roster.head:
                    return known
            before = known and (known.pin.number, known.head)
            with self._registry.transaction() as database:
                if _newest(database, space_id) != before:
                    continue
                for entry in roster.entries[len(known.entries) if known is not None else 0 :]:
                    values = (space_id, entry.number, roster.hashes[entry.number], entry.encode())
                    database.execute("INSERT INTO roster_entries VALUES (?, ?, ?, ?)", values)
                detail = f"moved here from another daemon; {len(roster.devices)} in epoch {roster.epoch}"
                record(database, self._registry.clock(), "devices", alias=by, detail=detail)
            self._remember(space_id, roster)
            return roster

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


def _write_down(database: apsw.Connection, now: float, roster: Roster, entry: RosterEntry, by: str) -> None:
    """The row of the audit log, with the words of the device that it is about."""
    changed = entry.device.key if entry.device is not None else entry.removed or None
    detail = f"{_DONE[entry.change]}; {len(roster.devices)} in epoch {roster.epoch}"
    record(database, now, "devices", alias=by, public_key=changed, detail=detail)


Follower = Callable[[], None]
"""Called when something about the roster of its space is new. Never waits."""


class RosterDesk:
    """What all connections of a daemon share of rosters: the rosters themselves, who waits for them, and who is told when they change."""

    def __init__(self, registry: Registry, rosters: Rosters) -> None:
        self.rosters = rosters
        self.pairings = Pairings(registry)
        self.invites = Invites(registry)
        self.unsealed = UnsealedCounts(registry)
        self._registry = registry
        self._followers: dict[str, set[Follower]] = {}

    def is_enrolled(self, key: bytes) -> bool:
        """Whether this key is a caller's, and was not revoked. Raises StorageError."""
        caller = self._registry.machine(key)
        return caller is not None and caller.revoked_at is None

    def may_write(self, key: bytes) -> bool:
        """Whether this key is a caller's that may write now. Raises StorageError."""
        caller = self._registry.machine(key)
        return caller is not None and caller.closed(self._registry.clock()) is None and caller.grants.may_write

    def may_decide(self, caller: Caller) -> bool:
        """Whether a caller may decide for its whole space: it reaches all of it, or nobody who may write does. Raises StorageError.

        The first device has the say on who opens what all others seal, and who brings the next key of the database on who opens that.
        """
        now = self._registry.clock()
        mine = [one for one in self._registry.callers() if one.space_id == caller.space_id and one.closed(now) is None]
        owners = [one for one in mine if one.grants.may_write and one.grants.reaches_all]
        return not owners or any(one.public_key == caller.public_key for one in owners)

    def gateway_clients(self, space_id: str) -> list[Caller]:
        """Who reaches the space by HTTP now. Raises StorageError."""
        now = self._registry.clock()
        found = self._registry.gateway_clients()
        return [one for one in found if one.space_id == space_id and one.closed(now) is None]

    def end_gateway_client(self, space_id: str, name: str) -> bool:
        """Shut out whoever reaches the space by HTTP under this name; whether there was one. Raises StorageError."""
        there = any(one.alias == name for one in self._registry.gateway_clients() if one.space_id == space_id)
        return there and self._registry.revoke(name) is not None

    @contextmanager
    def following(self, space_id: str, follower: Follower) -> Iterator[None]:
        """Within this, the follower is told of what others change in its space."""
        self._followers.setdefault(space_id, set()).add(follower)
        try:
            yield
        finally:
            mine = self._followers[space_id]
            mine.discard(follower)
            if not mine:
                del self._followers[space_id]

    def announce(self, space_id: str, origin: Follower | None = None) -> None:
        """Tell all connections of a space, but the one that changed something; on the event loop."""
        for follower in self._followers.get(space_id, ()):
            if follower != origin:
                follower()


MAX_WAITING: Final = 64
"""Shown at once, the longest waiting first; more than a roster takes."""


@dataclass(frozen=True, slots=True)
class WaitingDevice:
    """A machine that is on no roster yet."""

    key: bytes  # Ed25519, 32 bytes
    name: str  # of its caller
    card: bytes  # 1312 bytes
    request: (
        bytes | None
    )  # shows who holds the pair secret that it has the card from there, 1361 bytes; None: people compare its words


class Pairings:
    """One row for each caller that has asked. As safe as the registry itself."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def ask(self, space_id: str, key: bytes, card: bytes, request: bytes | None) -> tuple[bytes | None, bool]:
        """Note that a machine wants to be taken in; the answer that waits for it, if there is one, and whether anything is new.

        A request is kept when the same card comes without one; another card, or another request, ends what was answered before.
        """
        with self._registry.transaction() as database:
            rows: list[Any] = database.execute(
                "SELECT card, request, answer FROM pairings WHERE public_key = ? AND space = ?", (key, space_id)
            ).fetchall()
            if rows and rows[0][0] == card and request in (None, rows[0][1]):
                return rows[0][2], False
            database.execute(
                "INSERT OR REPLACE INTO pairings (public_key, space, card, request, at) VALUES (?, ?, ?, ?, ?)",
                (key, space_id, card, request, self._registry.clock()),
            )
            return None, True

    def answer_of(self, space_id: str, key: bytes) -> bytes | None:
        """What a device has answered this machine, 101 bytes."""
        with self._registry.reading() as database:
            found = database.execute(
                "SELECT answer FROM pairings WHERE public_key = ? AND space = ?", (key, space_id)
            ).get
            return bytes(found) if isinstance(found, bytes) else None

    def answer(self, space_id: str, key: bytes, answer: bytes) -> bool:
        """Keep a device's answer for this machine; False if it has not asked."""
        with self._registry.transaction() as database:
            database.execute(
                "UPDATE pairings SET answer = ? WHERE public_key = ? AND space = ? AND request IS NOT NULL",
                (answer, key, space_id),
            )
            return database.changes() > 0

    def waiting(self, space_id: str, roster: Roster | None) -> list[WaitingDevice]:
        """Those of the space's callers that have asked, and neither are on its roster nor were."""
        with self._registry.reading() as database:
            rows: list[Any] = database.execute(
                """SELECT p.public_key, c.alias, p.card, p.request FROM pairings p
                   JOIN callers c ON c.public_key = p.public_key JOIN spaces s ON s.name = c.space AND s.id = p.space
                   WHERE p.space = ? AND c.revoked_at IS NULL AND c.approved_at IS NOT NULL
                     AND (c.expires_at IS NULL OR c.expires_at > ?) ORDER BY p.at""",
                (space_id, self._registry.clock()),
            ).fetchall()
        known = {**roster.devices, **roster.removed} if roster is not None else {}
        return [WaitingDevice(*row) for row in rows if row[0] not in known][:MAX_WAITING]
