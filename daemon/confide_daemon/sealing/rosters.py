"""The rosters of the spaces, and the devices that wait to be added to them. A roster is the list of
devices that can open sealed records, as a chain of signed entries (PROTOCOL.md 10.6). A waiting
device has a card with its public keys, and may get an answer from a device on the roster (10.7).

Rosters are in the registry and not in the spaces' databases, since a locked space is opened with
keys that only devices on its roster have. Stored chains are not trusted: each is verified once per
process before it is used.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import apsw

from confide_crypto.errors import OversizedRosterError, ReplayedEntryError, RosterError
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import RosterChange, RosterEntry
from confide_daemon.access.audit import record
from confide_daemon.access.enrolled_callers import Caller, caller_now, end_access_through
from confide_daemon.access.registry import Registry
from confide_daemon.access.registry_invites import Invites
from confide_daemon.errors import StorageError
from confide_daemon.sealing.unsealed_texts import UnsealedCounts

MAX_REMEMBERED: Final = 256
"""Most verified rosters in memory, by last use: about 20 kB each, 8 MiB at most."""
_DONE: Final = {
    RosterChange.GENESIS: "founded, with its first device",
    RosterChange.ADD: "one added",
    RosterChange.REMOVE: "one removed",
    RosterChange.ROTATE: "new epoch",
}


class Extension(NamedTuple):
    """The result of adding an entry to a roster.

    Attributes:
        roster: the roster with the entry.
        is_new: True if the entry was added now; False if the roster had it before.
        ended_callers: the callers that lost their access because the entry removes them; empty if
            the entry is not new or removes no device. None: the removed device may still connect,
            since the entry's signer has no right to end access.
    """

    roster: Roster
    is_new: bool
    ended_callers: tuple[Caller, ...] | None = ()


class Rosters:
    """The rosters (lists of devices) of all spaces of a daemon. Like the registry, safe to use from
    several threads and processes.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._verified: OrderedDict[str, Roster] = OrderedDict()
        self._lock = threading.Lock()

    def current(self, space_id: str) -> Roster | None:
        """Return the current roster of a space, or None if it has none yet.

        Raises StorageError if it cannot be read, or if the stored entries are not a valid roster.
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

    def extend(self, space_id: str, data: bytes, *, by: str) -> Extension:
        """Append a signed entry to a roster. Of two entries with the same predecessor, exactly one
        is accepted.

        Adding an entry that the roster already has succeeds again, in case the first answer was
        lost.

        An entry that removes a device also ends that device's access to the daemon, and the access
        of all callers that the device invited and that are no devices themselves. This requires
        that the entry's signer may write to the whole space.

        `by`: the name of the calling device for the audit log; the signer may be another device.
        Raises RosterError or a subclass if the entry is not a valid successor, StorageError if it
        cannot be written.
        """
        while True:
            known = self.current(space_id)
            try:
                roster = known.extend([data]) if known is not None else Roster.read([data])
            except ReplayedEntryError:
                assert known is not None
                return Extension(
                    known, is_new=False, ended_callers=self._callers_of_known_entry(space_id, RosterEntry.parse(data))
                )
            entry, before = roster.entries[-1], known and (known.pin.number, known.head)
            if entry.change in (RosterChange.ADD, RosterChange.ROTATE) and not roster.leaves_room:
                # Otherwise one device could use up the room that others need to remove it.
                raise OversizedRosterError(
                    "the list of devices has room for removals only", hint="remove devices, or begin a new space"
                )
            with self._registry.transaction() as database:
                if _newest(database, space_id) != before:
                    continue  # another entry came first; check again against the newer roster
                database.execute(
                    "INSERT INTO roster_entries VALUES (?, ?, ?, ?)", (space_id, entry.number, roster.head, data)
                )
                now = self._registry.clock()
                _write_down(database, now, roster, entry, by)
                ended = _end_access(database, now, space_id, roster, entry) if entry.removed else ()
            self._remember(space_id, roster)
            return Extension(roster, is_new=True, ended_callers=ended)

    def _callers_of_known_entry(self, space_id: str, entry: RosterEntry) -> tuple[Caller, ...] | None:
        """Return no ended callers for an entry that is on the roster; None if it removed a device
        that may connect.
        """
        with self._registry.reading() as database:
            return None if _may_connect(database, space_id, entry.removed, self._registry.clock()) else ()

    def verify_moved(self, space_id: str, entries: Sequence[bytes]) -> Roster:
        """Verify the whole roster of a space that moves to this daemon, and return it. If a roster
        of the space is stored already, the moved one must begin with the same entries.

        Raises RosterError if it is invalid or does not begin with the stored entries.
        """
        known = self.current(space_id)
        roster = Roster.read(entries)
        if known is not None:
            roster.check(known.pin)
        return roster

    def adopt(self, space_id: str, roster: Roster, *, by: str) -> Roster:
        """Store a roster that `verify_moved` has accepted, and return the stored one. `by`: the
        name of the calling device for the audit log.

        Raises RosterError if a different roster was stored meanwhile, StorageError if the roster
        cannot be written.
        """
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
    """Return the number and hash of a space's newest entry."""
    rows: list[Any] = database.execute(
        "SELECT number, hash FROM roster_entries WHERE space = ? ORDER BY number DESC LIMIT 1", (space_id,)
    ).fetchall()
    return (int(rows[0][0]), bytes(rows[0][1])) if rows else None


def _hash_at(database: apsw.Connection, space_id: str, number: int) -> bytes | None:
    found = database.execute("SELECT hash FROM roster_entries WHERE space = ? AND number = ?", (space_id, number)).get
    return bytes(found) if isinstance(found, bytes) else None


def _write_down(database: apsw.Connection, now: float, roster: Roster, entry: RosterEntry, by: str) -> None:
    """Write the audit log entry, with the key of the device that changed."""
    changed = entry.device.key if entry.device is not None else entry.removed or None
    detail = f"{_DONE[entry.change]}; {len(roster.devices)} in epoch {roster.epoch}"
    record(database, now, "devices", alias=by, public_key=changed, detail=detail)


def _end_access(
    database: apsw.Connection, now: float, space_id: str, roster: Roster, entry: RosterEntry
) -> tuple[Caller, ...] | None:
    """End the access of the device that an entry removes, and write it down; return the ended
    callers as `Extension` has them.
    """
    signer = caller_now(database, entry.signer)
    is_ours = signer is not None and signer.space_id == space_id and signer.refusal_reason(now) is None
    if signer is None or not is_ours or not signer.grants.may_write or not signer.grants.reaches_all:
        return None if _may_connect(database, space_id, entry.removed, now) else ()
    ended = end_access_through(database, entry.removed, space_id=space_id, kept=roster.devices, now=now)
    for one in ended:
        detail = f"removed from the devices by {signer.alias}"
        record(database, now, "revoked", alias=one.alias, public_key=one.public_key, detail=detail, by=entry.signer)
    return tuple(ended)


def _may_connect(database: apsw.Connection, space_id: str, key: bytes, now: float) -> bool:
    caller = caller_now(database, key) if key else None
    return caller is not None and caller.space_id == space_id and caller.refusal_reason(now) is None


Follower = Callable[[], None]
"""Called when a space's roster or its waiting devices change. Must not block."""


class RosterDesk:
    """The rosters of all spaces and the devices that wait to be added, shared by all connections of
    a daemon. It notifies registered callbacks (followers) of changes.
    """

    def __init__(self, registry: Registry, rosters: Rosters) -> None:
        self.rosters = rosters
        self.pairings = Pairings(registry)
        self.invites = Invites(registry)
        self.unsealed = UnsealedCounts(registry)
        self._registry = registry
        self._followers: dict[str, set[Follower]] = {}

    def is_enrolled(self, key: bytes) -> bool:
        """Return True if this key belongs to a caller that is not revoked. Raises StorageError if
        the registry cannot be read.
        """
        caller = self._registry.machine(key)
        return caller is not None and caller.revoked_at is None

    def may_write(self, key: bytes) -> bool:
        """Return True if this key belongs to a caller that may write to at least a part of its
        space now. Raises StorageError if the registry cannot be read.
        """
        caller = self._registry.machine(key)
        return caller is not None and caller.refusal_reason(self._registry.clock()) is None and caller.grants.may_write

    def may_decide(self, caller: Caller) -> bool:
        """Return True if a caller may decide for its whole space: it may write to all of it, or no
        caller may. Raises StorageError if the registry cannot be read.

        Two decisions need this: the first device on a roster decides who can open what all others
        seal, and a device that supplies the next database key decides who can open the database.
        """
        now = self._registry.clock()
        mine = [
            one
            for one in self._registry.callers()
            if one.space_id == caller.space_id and one.refusal_reason(now) is None
        ]
        owners = [one for one in mine if one.grants.may_write and one.grants.reaches_all]
        return not owners or any(one.public_key == caller.public_key for one in owners)

    def gateway_clients(self, space_id: str) -> list[Caller]:
        """Return the callers with present access to the space over HTTP. Raises StorageError if the
        registry cannot be read.
        """
        now = self._registry.clock()
        found = self._registry.gateway_clients()
        return [one for one in found if one.space_id == space_id and one.refusal_reason(now) is None]

    def end_gateway_client(self, space_id: str, name: str) -> bool:
        """Revoke the access of the HTTP client with this name to the space; return False if there
        is no such client. Raises StorageError if the registry cannot be written.
        """
        there = any(one.alias == name for one in self._registry.gateway_clients() if one.space_id == space_id)
        return there and self._registry.revoke(name) is not None

    @contextmanager
    def following(self, space_id: str, follower: Follower) -> Iterator[None]:
        """Call `follower` on each roster change of the space while the context is active."""
        self._followers.setdefault(space_id, set()).add(follower)
        try:
            yield
        finally:
            mine = self._followers[space_id]
            mine.discard(follower)
            if not mine:
                del self._followers[space_id]

    def announce(self, space_id: str, origin: Follower | None = None) -> None:
        """Call all followers of a space except `origin`, which caused the change. Call it on the
        event loop.
        """
        for follower in self._followers.get(space_id, ()):
            if follower != origin:
                follower()


MAX_WAITING: Final = 64
"""Most devices listed, the longest waiting first; more than a roster can hold."""


@dataclass(frozen=True, slots=True)
class WaitingDevice:
    """A device that has asked to be added to the roster and is not on it yet."""

    key: bytes  # Ed25519, 32 bytes
    name: str  # alias of its caller
    card: bytes  # 1312 bytes
    request: (
        bytes | None
    )  # shows who holds the pair secret that it has the card from there, 1361 bytes; None: people compare its words


class Pairings:
    """The table of requests by devices to be added to a roster, one row per calling device. Safe to
    use from several threads and processes.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def ask(self, space_id: str, key: bytes, card: bytes, request: bytes | None) -> tuple[bytes | None, bool]:
        """Record that a device asks to be added. Return the stored answer of another device (None:
        no answer yet), and True if the request is new.

        A repeated card without a request keeps the stored request. A different card or request
        discards the stored answer.
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
        """Return the answer (101 bytes) that another device has given to this device, or None if
        there is none.
        """
        with self._registry.reading() as database:
            found = database.execute(
                "SELECT answer FROM pairings WHERE public_key = ? AND space = ?", (key, space_id)
            ).get
            return bytes(found) if isinstance(found, bytes) else None

    def answer(self, space_id: str, key: bytes, answer: bytes) -> bool:
        """Store another device's answer to the request of this device; return False if this device
        has made no request.
        """
        with self._registry.transaction() as database:
            database.execute(
                "UPDATE pairings SET answer = ? WHERE public_key = ? AND space = ? AND request IS NOT NULL",
                (answer, key, space_id),
            )
            return database.changes() > 0

    def waiting(self, space_id: str, roster: Roster | None) -> list[WaitingDevice]:
        """List the callers of the space that have asked to be added, may connect, and are not and
        never were on its roster.
        """
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
