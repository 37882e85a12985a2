"""The registry: an encrypted database of the clients that may connect, their invites and their
spaces. Also opens the data folder that contains it.

The registry is an SQLite file that several processes use at once: the daemon, and commands such as
`confided invite` that an operator runs beside it. Every change is one transaction, which includes
its row in the audit log. A process that follows changes polls `version`. Invites are in the module
`confide_daemon.access.registry_invites`.

If `[store]` is set in daemon.toml, the file is a local copy. Every change first goes to the
registry's log in the shared store, which all nodes follow (`store.log.shared`).

This module also creates and opens the data folder with the daemon's identity key, the master key
and the registry. As ssh does, it refuses files that others could read or write, before it reads a
key.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import apsw

from confide_crypto.keys.identity import Identity
from confide_crypto.keys.private_files import make_private_dir
from confide_crypto.sealing.roster import descendants
from confide_daemon import __version__
from confide_daemon.access.audit import AuditEntry, record, select_entries
from confide_daemon.access.enrolled_callers import (
    Caller,
    EndedKey,
    Gateway,
    Grants,
    caller_by_name,
    caller_now,
    describe,
    drop_invites_by,
    end_caller,
    insert_caller,
    insert_ended,
    require_free,
    select_callers,
    to_json,
)
from confide_daemon.access.history import rollback, upgrades
from confide_daemon.access.history.upgrades import UpgradePreview
from confide_daemon.datadir.credentials import MASTER, MasterKey, credential
from confide_daemon.datadir.daemon_keys import Keys
from confide_daemon.datadir.daemon_keys import load as load_keys
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import DataFolderError, StorageError, TakenError, UpgradeNeededError
from confide_daemon.store.database import connect, identify_file, is_copy, stand_alone, storage_errors, transaction
from confide_daemon.store.logs import LogStore, RegistryLog

_T = TypeVar("_T")


class Registry:
    """The open registry. It may be used by several threads at once and, through the file, by
    several processes.
    """

    def __init__(
        self,
        writer: apsw.Connection,
        reader: apsw.Connection,
        clock: Callable[[], float],
        shared: RegistryLog | None = None,
    ) -> None:
        self.shared = shared
        """The registry's log in a store; None if there is no store or the registry is read-only
        here.
        """
        self._database = writer
        self._path = Path(writer.filename)
        self._file = identify_file(self._path)
        # Reads use a connection of their own: a handshake must not wait for a write, and only
        # another connection notices our own changes.
        self._reader = reader
        self.clock = clock
        self._write_lock = threading.Lock()
        self._followed_at = float("-inf")
        self._read_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        key: bytes,
        *,
        clock: Callable[[], float] = time.time,
        may_upgrade: bool = True,
        snapshot: str | None = None,
        as_it_is: bool = False,
        store: LogStore | None = None,
    ) -> Registry:
        """Open the registry's file. Create it and its tables if they are missing.

        Args:
            may_upgrade: True if a file of an older version may be migrated.
            snapshot: the name of the snapshot made before the upgrade, if any.
            as_it_is: True to leave a file of another version unmigrated. Only its spaces may be
                read then.
            store: the shared store that holds the registry's log; None if there is no store.

        Raises:
            StorageError: if the file is not writable, the disk is full, the key is wrong, or a
                newer version wrote the file.
            UpgradeNeededError: if an older version wrote the file and `may_upgrade` is False.
        """
        writer = connect(path, key, writer=True)
        try:
            with storage_errors("upgrade the registry"), nullcontext() if as_it_is else transaction(writer):
                found = upgrades.pending(writer)
                if not as_it_is:
                    if found is not None and not may_upgrade:
                        raise UpgradeNeededError(path.parent, found.program, __version__)
                    upgrades.take(writer, now=clock(), snapshot=snapshot)
            shared = _shared(store, path, key, clock) if store is not None else None
            return cls(writer, connect(path, key, writer=False), clock, shared)
        except BaseException:
            writer.close()
            raise

    def close(self) -> None:
        """Close the registry's file and its store."""
        with self._read_lock, self._write_lock:
            self._reader.close()
            self._database.close()
            if self.shared is not None:
                self.shared.close()

    # Its log in a store

    def join_store(self) -> str | None:
        """Synchronize the file with its log in the shared store, before the registry is used.
        Return a description of what was done (`RegistryLog.begin`), or None if there is no store.

        Raises StorageError if the file cannot be synchronized; EngineError if the store is
        unavailable.
        """
        if self.shared is None:
            return None
        with self._write_lock, storage_errors("read the registry"):
            return self.shared.begin(self._database, holds=_holds)

    def is_copy(self) -> bool:
        """Return True if the file is a local copy of a log in a shared store."""
        with self.reading() as database:
            return is_copy(database)

    def follow(self, *, asked_at: float | None = None) -> bool:
        """Apply the changes that other nodes have made. Return True if there were any. Raises
        StorageError if the file cannot be written; EngineError if the store is unavailable.

        `asked_at`: a time on the monotonic clock. Nothing is done if the log was read since then;
        None always reads it.
        """
        if self.shared is None:
            return False
        with self._write_lock, storage_errors("read the registry"):
            began = time.monotonic()
            if asked_at is not None and self._followed_at >= asked_at:
                return False
            was_new = self.shared.follow(self._database)
            self._followed_at = began
            return was_new

    def sought(self, look: Callable[[], _T | None]) -> _T | None:
        """Return the result of `look`. If it finds nothing (None), apply the changes of other nodes
        and call `look` once more.

        Raises StorageError or EngineError if the changes of other nodes cannot be read.
        """
        asked_at = time.monotonic()
        found = look()
        if found is None and self.shared is not None:
            # Look again even if nothing was new: another thread may have applied the change in
            # between.
            self.follow(asked_at=asked_at)
            found = look()
        return found

    @property
    def is_put_back(self) -> bool:
        """True if the shared store was restored to an earlier state, and the operator has not
        accepted that yet. No new client may be enrolled meanwhile.
        """
        return self.shared is not None and bool(self.shared.kept_files)

    def require_accepted(self) -> None:
        """Raise TakenError if the shared store was restored and the operator has not accepted that
        yet. No new client may be enrolled meanwhile.
        """
        if self.is_put_back:
            raise TakenError(
                "the store was put back to an earlier state, so no new device is let in",
                hint="the daemon's operator looks at it, and runs: confided store --accept",
            )

    def leave_store(self) -> None:
        """Detach the file from its shared store and delete its log there. No daemon may serve
        meanwhile. Raises StorageError if the file cannot be written; EngineError if the store is
        unavailable.
        """
        if self.shared is not None:
            with self._write_lock, storage_errors("write to the registry"):
                self.shared.forget(self._database)
                self.shared.close()
                self.shared = None

    def stand_alone(self) -> None:
        """Mark the file as no longer a copy of a log in a shared store, after a restore. Raises
        StorageError if it cannot be written.
        """
        with self._write_lock, storage_errors("write to the registry"), transaction(self._database):
            stand_alone(self._database)

    def version(self) -> int:
        """Return a number that changes whenever any process, this one included, changes the
        registry. Costs a few microseconds.

        Raises StorageError if the file cannot be read, or if it was deleted or replaced since it
        was opened.
        """
        self._require_file()
        with self.reading() as database:
            return int(database.pragma("data_version"))

    # Callers

    def caller(self, public_key: bytes) -> Caller | None:
        """Return the client with this public key, even if it may no longer connect; None if it was
        never enrolled.
        """
        return self._first("WHERE public_key = ?", public_key)

    def caller_named(self, alias: str) -> Caller | None:
        """Return the client with this name that is not revoked, or None."""
        return self._first("WHERE alias = ? AND revoked_at IS NULL", alias)

    def predecessor(self, public_key: bytes) -> Caller | None:
        """Return the client that has announced this public key as its next one, or None."""
        return self._first("WHERE successor = ? AND revoked_at IS NULL", public_key)

    def earlier_keys(self, public_key: bytes) -> list[bytes]:
        """Return the previous public keys of the client with this key, the latest first
        (PROTOCOL.md 7.10).
        """
        sql = """WITH RECURSIVE way(key) AS (SELECT ? UNION SELECT public_key FROM callers JOIN way ON successor = key
                   WHERE revoked_at IS NOT NULL) SELECT key FROM way LIMIT -1 OFFSET 1"""
        with self.reading() as database:
            return [bytes(row[0]) for row in database.execute(sql, (public_key,))]

    def callers(self) -> list[Caller]:
        """Return all devices that are not revoked, sorted by name."""
        with self.reading() as database:
            return select_callers(database, "WHERE revoked_at IS NULL AND gateway IS NULL ORDER BY alias")

    def gateway_clients(self) -> list[Caller]:
        """Return all HTTP clients that are not revoked, sorted by name, including those with an
        expired token.
        """
        with self.reading() as database:
            return select_callers(database, "WHERE revoked_at IS NULL AND gateway IS NOT NULL ORDER BY alias")

    def gateway_client(self, digest: bytes) -> Caller | None:
        """Return the HTTP client whose token has this SHA-256, even if it may no longer connect;
        None if there is none.
        """
        return self._first("WHERE public_key = ? AND gateway IS NOT NULL", digest)

    def machine(self, public_key: bytes) -> Caller | None:
        """Return the device with this public key, even if it may no longer connect; None if it was
        never enrolled.
        """
        return self._first("WHERE public_key = ? AND gateway IS NULL", public_key)

    def last_change(self) -> int:
        """Return the number of the newest change of a client's rights or access."""
        with self.reading() as database:
            return _last_change(database)

    def changes_since(self, number: int) -> tuple[int, frozenset[bytes] | None]:
        """Return the number of the newest change, and the public keys of the clients whose rights
        or access changed after change `number`. The keys are None if some of those changes are no
        longer recorded.
        """
        with self.reading() as database:
            last = _last_change(database)
            found = [
                key for (key,) in database.execute("SELECT public_key FROM caller_changes WHERE id > ?", (number,))
            ]
        return last, frozenset(found) if len(found) == last - number else None

    def brought_in_by(self, keys: Iterable[bytes], added_by: Mapping[bytes, bytes]) -> list[Caller]:
        """Return the clients that got access because of one client: through its invites, through
        the invites of devices that it invited, and so on. Sorted by name.

        Args:
            keys: the client's public key and its previous ones.
            added_by: the device that signed each device into the roster (`Roster.added_by`). This
                counts like an invite.
        """
        with self.reading() as database:
            known = select_callers(database, "ORDER BY alias")
        invited = {caller.public_key: caller.invited_by for caller in known if caller.invited_by is not None}
        # A caller invited by one and added by another has two parents; either is enough.
        roots = frozenset(keys)
        found = set(roots)
        while True:
            more = found | descendants(found, invited) | descendants(found, added_by)
            if more == found:
                break
            found = more
        return [one for one in known if one.public_key in found - roots and one.revoked_at is None]

    def add_caller(
        self, public_key: bytes, grants: Grants, *, space: str, added_by: str, expires_at: float | None = None
    ) -> Caller:
        """Enroll a public key under the name in `grants`, and create its space if needed. A revoked
        key is enrolled again.

        Raises TakenError if the key is enrolled already, the name is taken, or the operator has not
        accepted a restored store.
        """
        self.require_accepted()
        with self.transaction() as database:
            known = caller_now(database, public_key)
            if known is not None and known.revoked_at is None:
                raise TakenError(f"this key is enrolled already, as {known.alias}")
            require_free(database, grants.alias)
            now = self.clock()
            made = insert_caller(
                database, public_key, grants, space=space, added_by=added_by, now=now, expires_at=expires_at
            )
            detail = f"by {added_by}; {describe(grants, expires_at)}"
            record(database, now, "added", alias=grants.alias, public_key=public_key, detail=detail)
            return made

    def add_gateway_client(
        self, digest: bytes, grants: Grants, *, space: str, gateway: Gateway, expires_at: float
    ) -> Caller:
        """Enroll an HTTP client in an existing space, under the name in `grants`. `digest` is the
        SHA-256 of its token.

        Raises TakenError if the name is taken, or the operator has not accepted a restored store.
        """
        self.require_accepted()
        with self.transaction() as database:
            require_free(database, grants.alias)
            now = self.clock()
            made = insert_caller(
                database,
                digest,
                grants,
                space=space,
                added_by="line",
                now=now,
                expires_at=expires_at,
                gateway=gateway,
            )
            detail = f"by HTTP; {gateway}; {describe(grants, expires_at)}"
            record(database, now, "added", alias=grants.alias, public_key=digest, detail=detail)
            return made

    def note_used(self, used: Mapping[bytes, float]) -> None:
        """Record when tokens were last used. The keys are the SHA-256 of the tokens, the values
        seconds since 1970.
        """
        with self.transaction() as database:
            for digest, at in used.items():
                database.execute("UPDATE callers SET last_seen_at = ? WHERE public_key = ?", (at, digest))

    def revoke(self, alias: str) -> Caller | None:
        """Revoke a client for good. Return it, or None if there is no client of this name."""
        with self.transaction() as database:
            caller = caller_by_name(database, alias)
            if caller is None:
                return None
            now = self.clock()
            # Revoke it without a successor, which must not connect either. And not before its
            # enrollment, as after a clock correction: these times decide the order after a folder
            # is restored.
            database.execute(
                "UPDATE callers SET revoked_at = ?, successor = NULL WHERE public_key = ?",
                (max(now, caller.added_at), caller.public_key),
            )
            drop_invites_by(database, caller.public_key)
            record(database, now, "revoked", alias=alias, public_key=caller.public_key)
            return caller

    def approve(self, public_key: bytes) -> Caller | None:
        """Approve the client with this public key if it waits for approval. Return it, or None if
        the key is not enrolled or is revoked.

        Takes a key and not a name, because the operator has compared the words of this key.
        """
        with self.transaction() as database:
            caller = caller_now(database, public_key)
            if caller is None or caller.revoked_at is not None:
                return None
            if caller.approved_at is None:
                now = self.clock()
                database.execute("UPDATE callers SET approved_at = ? WHERE public_key = ?", (now, public_key))
                record(database, now, "approved", alias=caller.alias, public_key=public_key)
            return caller_now(database, public_key)

    def rename(self, alias: str, wanted: str) -> Caller | None:
        """Rename a client. Return it, or None if there is no client of this name. Raises TakenError
        if another client has the wanted name.
        """
        with self.transaction() as database:
            caller = caller_by_name(database, alias)
            if caller is None or alias == wanted:
                return caller
            require_free(database, wanted)
            database.execute("UPDATE callers SET alias = ? WHERE public_key = ?", (wanted, caller.public_key))
            detail = f"was {alias}"
            record(database, self.clock(), "renamed", alias=wanted, public_key=caller.public_key, detail=detail)
            return caller_by_name(database, wanted)

    def grant(self, alias: str, change: Callable[[Caller], tuple[Grants, float | None]]) -> Caller | None:
        """Set a client's rights and expiry to the result of `change`. Return the client, or None if
        there is no client of this name.
        """
        with self.transaction() as database:
            caller = caller_by_name(database, alias)
            if caller is None:
                return None
            grants, expires_at = change(caller)
            database.execute(
                "UPDATE callers SET scope = ?, projects = ?, sources = ?, expires_at = ? WHERE public_key = ?",
                (grants.scope, to_json(grants.projects), to_json(grants.sources), expires_at, caller.public_key),
            )
            drop_invites_by(database, caller.public_key)
            changed = caller_now(database, caller.public_key)
            assert changed is not None
            detail = describe(grants, expires_at)
            record(database, self.clock(), "granted", alias=alias, public_key=caller.public_key, detail=detail)
            return changed

    # A caller's new key (PROTOCOL.md 7.10)

    def name_successor(self, public_key: bytes, successor: bytes, *, session: str) -> None:
        """Record the next public key of a device, which may later replace the present one. It
        replaces any key recorded before.

        Raises TakenError if the next key was ever enrolled itself or is announced by another
        device, or if the present key is no longer valid.
        """
        with self.transaction() as database:
            caller = caller_now(database, public_key)
            if caller is None or caller.revoked_at is not None:
                raise TakenError("this device's key is not enrolled any more")
            named = select_callers(database, "WHERE successor = ? AND revoked_at IS NULL", successor)
            if caller_now(database, successor) or any(other.public_key != public_key for other in named):
                raise TakenError("the new key is known already", hint="make another one")
            database.execute("UPDATE callers SET successor = ? WHERE public_key = ?", (successor, public_key))
            now = self.clock()
            record(database, now, "rotating", alias=caller.alias, public_key=public_key, session=session, by=public_key)

    def note_trust(self, public_key: bytes, content: str, *, session: str) -> None:
        """Record in the audit log that the user of this device has trusted a text. The text is
        identified by its hash alone.
        """
        with self.transaction() as database:
            caller = caller_now(database, public_key)
            alias = caller.alias if caller else None
            fields = {"alias": alias, "public_key": public_key, "session": session, "by": public_key}
            record(database, self.clock(), "trusted", detail=f"text {content[:16]}", **fields)  # type: ignore[arg-type]

    def note_proxy_version(self, public_key: bytes, version: str) -> None:
        """Record which version of `confide` runs on a device."""
        caller = self.caller(public_key)
        if caller is None or caller.proxy_version == version:
            return
        with self.transaction() as database:
            database.execute("UPDATE callers SET proxy_version = ? WHERE public_key = ?", (version, public_key))

    def succeed(self, successor: bytes) -> Caller | None:
        """Complete a key rotation: the public key `successor` replaces the device's present key,
        which ends. Return the device with its new key, or None if no device has announced this key.
        """
        with self.transaction() as database:
            rows = select_callers(database, "WHERE successor = ? AND revoked_at IS NULL", successor)
            if not rows:
                return caller_now(database, successor)  # another connection of it was first
            old, now = rows[0], self.clock()
            end_caller(database, EndedKey(old.public_key, max(now, old.added_at), successor))
            record(database, now, "rotated", alias=old.alias, public_key=successor, by=successor)
            return caller_now(database, successor)

    # Ended keys, for the record outside the data folder (`revocations.py`)

    def ended_keys(self) -> list[EndedKey]:
        """Return the public keys that were revoked or replaced, sorted by the time when that
        happened.
        """
        sql = "SELECT public_key, revoked_at, successor FROM callers WHERE revoked_at IS NOT NULL ORDER BY revoked_at"
        with self.reading() as database:
            return [EndedKey(*row) for row in database.execute(sql)]

    def take_ended(self, ended: Iterable[EndedKey]) -> list[str]:
        """Revoke these public keys, which ended after this copy of the registry was made. Return
        the names of the clients that lost their access.

        A client that was enrolled again since then keeps its access. All open invites are deleted,
        since one of them may belong to such a key.
        """
        names = []
        with self.transaction() as database:
            for one in sorted(ended, key=lambda one: one.at):
                caller = caller_now(database, one.key)
                if caller is not None and (caller.revoked_at is not None or caller.added_at > one.at):
                    continue
                database.execute("DELETE FROM invites")
                if caller is None:
                    insert_ended(database, one)
                    continue
                names.append(caller.alias)
                end_caller(database, one)
                record(
                    database, self.clock(), "revoked", alias=caller.alias, public_key=one.key, detail="before a restore"
                )
        return names

    def drop_invites(self) -> int:
        """Delete all open invites after a restore, since they may have been used meanwhile. Return
        their number.
        """
        with self.transaction() as database:
            database.execute("DELETE FROM invites")
            return int(database.changes())

    # Spaces

    def spaces(self) -> dict[str, str]:
        """Return the ids of all spaces, by their names."""
        with self.reading() as database:
            rows: list[Any] = database.execute("SELECT name, id FROM spaces ORDER BY name").fetchall()
            return dict(rows)

    # The audit log

    def audit_entries(self, *, since: float = 0.0, alias: str | None = None) -> list[AuditEntry]:
        """Return the rows of the audit log since a time (seconds since 1970), oldest first. With
        `alias`, only those of one client, including those under its previous names.
        """
        with self.reading() as database:
            known = caller_by_name(database, alias) if alias else None
            return select_entries(database, since, alias=alias, public_key=known.public_key if known else None)

    # The file

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Yield the connection for reads. Errors of SQLite are raised as StorageError."""
        with self._read_lock, storage_errors("read the registry"):
            yield self._reader

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Yield the connection for writes, within one transaction. Errors of SQLite are raised as
        StorageError.

        Raises EngineError if the shared store is unavailable. The store may or may not have stored
        the change then; the local file has not.
        """
        self._require_file()
        with self._write_lock, storage_errors("write to the registry"):
            if self.shared is not None:
                with self.shared.transaction(self._database):
                    yield self._database
                return
            # BEGIN IMMEDIATE: the write lock is taken before the first read, so what was read still
            # holds at the write.
            with transaction(self._database):
                if is_copy(self._database):
                    raise StorageError(
                        "cannot write to the registry: it is a copy of what is in a store, and daemon.toml names none",
                        hint="set url of [store] again, or bring it back: confided store --to-files",
                    )
                yield self._database

    @contextmanager
    def writing_here(self) -> Iterator[apsw.Connection]:
        """Yield a transaction like `transaction`, for tables that concern this node alone
        (`truths.REGISTRY_DERIVED`). These are not written to the shared log.
        """
        self._require_file()
        with self._write_lock, storage_errors("write to the registry"), transaction(self._database):
            yield self._database

    def _require_file(self) -> None:
        """Raise StorageError where the path does not lead to this connection's file any more, unless
        a store has all that is in it.
        """
        if self.shared is None and identify_file(self._path) != self._file:
            raise StorageError(
                "cannot use the registry: its file was deleted or replaced while it was open",
                hint="stop the daemon, put the file back or restore a backup, and start it again",
            )

    def _first(self, where: str, *values: Any) -> Caller | None:
        with self.reading() as database:
            rows = select_callers(database, where, *values)
            return rows[0] if rows else None


def _shared(store: LogStore, path: Path, key: bytes, clock: Callable[[], float]) -> RegistryLog:
    return store.registry(
        path,
        key,
        schema=upgrades.newest(),
        upgrade=lambda database: upgrades.take(database, now=clock()),
        goes_on=rollback.goes_on,
        carry_over=lambda shown, own: rollback.carry_over(shown, own, now=clock()),
    )


def _holds(database: apsw.Connection) -> bool:
    """Return True if the registry has, or had, any caller."""
    tables = ("callers", "invites", "spaces")
    return any(database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall() for table in tables)  # noqa: S608 - ours


def _last_change(database: apsw.Connection) -> int:
    rows: list[Any] = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'caller_changes'").fetchall()
    return int(rows[0][0]) if rows else 0


@dataclass(frozen=True, slots=True)
class RegistryState:
    """An open data folder: its keys as they were when it was opened, and its registry."""

    folder: DataFolder
    keys: Keys
    master: MasterKey
    registry: Registry

    @property
    def identity(self) -> Identity:
        return self.keys.current

    def close(self) -> None:
        self.registry.close()


def create(folder: DataFolder) -> bool:
    """Create the data folder, its keys and its registry if they are missing. Return True if new
    keys were created, False if they existed.

    Raises DataFolderError if there are databases without the key that opens them; KeyFileError if
    the folder or a key in it is accessible to others, has another owner, or is not writable;
    StorageError if the registry cannot be created or opened; UpgradeNeededError if an older version
    created the folder.
    """
    for place in (folder.root, folder.spaces, folder.authorized):
        make_private_dir(place)
    is_new = not folder.identity.exists()
    if not folder.master.exists() and credential(MASTER) is None:
        _require_empty(folder)
        MasterKey.create(folder.master)
    if is_new:
        Identity.generate().save(folder.identity)
    open_state(folder).close()
    return is_new


def open_state(
    folder: DataFolder,
    *,
    may_upgrade: bool = False,
    snapshot: str | None = None,
    as_it_is: bool = False,
    store: LogStore | None = None,
) -> RegistryState:
    """Open a data folder that `create` has made.

    Args:
        may_upgrade: True to migrate a folder of an older version. Commands beside the daemon pass
            False, because the running daemon may be that older version, and an upgrade begins with
            a snapshot.
        snapshot: the name of that snapshot, if one was made.
        as_it_is: True to leave the folder at its version, if only its keys and the names of its
            spaces are needed.
        store: the shared store that holds the registry's log. Without it, a registry that has a log
            is read-only.

    Raises DataFolderError if the folder is not set up; KeyFileError if the folder or a key is
    accessible to others, has another owner, or is damaged; StorageError if the registry cannot be
    opened; UpgradeNeededError if it needs an upgrade and `may_upgrade` is False.
    """
    master = open_master(folder)
    keys = load_keys(folder)
    if store is None:
        _require_registry(folder)
    registry = Registry.open(
        folder.registry,
        master.registry_key(),
        may_upgrade=may_upgrade,
        snapshot=snapshot,
        as_it_is=as_it_is,
        store=store,
    )
    return RegistryState(folder, keys, master, registry)


def open_master(folder: DataFolder) -> MasterKey:
    """Return the master key of a data folder that `create` has made. Raises DataFolderError if the
    folder is not set up; KeyFileError if a key is accessible to others or damaged.
    """
    if not (folder.master.exists() or credential(MASTER)):
        _require_empty(folder)
    if not folder.identity.exists() or not (folder.master.exists() or credential(MASTER)):
        raise DataFolderError(folder.root, "is not set up", hint="run: confided init")
    make_private_dir(folder.root)
    return MasterKey.load(folder.master)


def look_at_upgrade(folder: DataFolder) -> UpgradePreview:
    """Return a preview of the upgrade that the data folder needs. Writes nothing in the folder, and
    works beside a running daemon.

    Raises DataFolderError if the folder is not set up; KeyFileError if a key cannot be used;
    StorageError if the registry cannot be read.
    """
    key = open_master(folder).registry_key()
    if not folder.registry.exists():
        return UpgradePreview(None, {}, {})
    if folder.address.exists():
        # It has a log, and an index of that, whether the daemon runs or was killed: another reader
        # adds nothing.
        return _look(folder.registry, key)
    # Opened where it is, it would get both.
    with TemporaryDirectory(prefix="confide-") as place:
        copy = Path(place) / folder.registry.name
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{folder.registry}{suffix}", f"{copy}{suffix}")
        return _look(copy, key)


def _look(path: Path, key: bytes) -> UpgradePreview:
    with closing(connect(path, key, writer=False)) as database, storage_errors("read the registry"):
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return upgrades.outlook(database)


def _require_registry(folder: DataFolder) -> None:
    """Refuse to create a registry beside databases: it would know none of their devices. Raises
    DataFolderError.
    """
    is_copy_of_store = folder.node.exists()
    if not is_copy_of_store and not folder.registry.exists() and any(folder.spaces.glob("*.db")):
        raise DataFolderError(
            folder.root, "holds databases but no registry.db", hint="put registry.db back, or restore a backup"
        )


def _require_empty(folder: DataFolder) -> None:
    """Refuse to create a master key for a folder with data, which would become unreadable for good.
    Raises DataFolderError.
    """
    if folder.registry.exists() or any(folder.spaces.glob("*.db")):
        raise DataFolderError(
            folder.root,
            "holds databases but no master.key",
            hint="restore master.key from a backup, or hand it over as the systemd credential confide-master-key",
        )
