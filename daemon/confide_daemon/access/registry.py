"""The registry: who may connect (callers), who may still join (invites), which space each of them sees; and the data folder it lies in.

An encrypted SQLite file that several processes use at once: the daemon, and each `confided invite`,
`enrolled_callers` or `revoke` that a person
runs beside it. Every change is one transaction, the row of the audit log that tells of it included; a process that wants to know of
changes watches `version`. Invites have a module of their own, `confide_daemon.access.registry_invites`.

Where `[store]` is set, the file is a copy: every change is in the log of the registry first, which all nodes follow (`store.log.shared`).

The folder with the daemon's identity, the master key and the registry is made and opened here as well. What others could read or write
is refused, as ssh does, before a key is read.
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
    caller_now,
    describe,
    drop_invites_by,
    end_caller,
    insert_caller,
    insert_ended,
    named_now,
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
from confide_daemon.store.database import connect, is_copy, stand_alone, storage_errors, transaction
from confide_daemon.store.logs import LogStore, RegistryLog

_T = TypeVar("_T")


class Registry:
    """The open registry. Safe to use from several threads and, through the file, from several processes."""

    def __init__(
        self,
        writer: apsw.Connection,
        reader: apsw.Connection,
        clock: Callable[[], float],
        shared: RegistryLog | None = None,
    ) -> None:
        self.shared = shared
        """Its log in a store; None: the file is all there is, or may only be read here."""
        self._database = writer
        # Reads have a connection of their own: a handshake must not wait for a write, and only another connection sees our own.
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
        """Open the file, making it and its tables where they are missing.

        Args:
            may_upgrade: whether it may be changed where an older version has written it.
            snapshot: the one that was made before it is.
            as_it_is: it stays of the version that wrote it; then nothing but its spaces may be asked for.
            store: where its log is; None: nowhere.

        Raises:
            StorageError: not writable, the disk is full, the key is another, or a newer version has written it.
            UpgradeNeededError: an older one has, and it may not be changed.
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
        """Close the file; the object is of no use after it."""
        with self._read_lock, self._write_lock:
            self._reader.close()
            self._database.close()
            if self.shared is not None:
                self.shared.close()

    # Its log in a store

    def join_store(self) -> str | None:
        """Have the file and its log be one, before it is used; what was done (`RegistryLog.begin`), None where there is no log.

        Raises StorageError, EngineError: as that.
        """
        if self.shared is None:
            return None
        with self._write_lock, storage_errors("read the registry"):
            return self.shared.begin(self._database, holds=_holds)

    def is_copy(self) -> bool:
        """Whether the file is a copy of a log's."""
        with self.reading() as database:
            return is_copy(database)

    def follow(self, *, asked_at: float | None = None) -> bool:
        """Apply what other nodes have changed; whether there was something. Raises StorageError, EngineError.

        `asked_at`: by the monotonic clock; nothing is done where the log was looked at since then.
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
        """What a look finds; where nothing, it looks once more behind what other nodes have written meanwhile.

        Raises StorageError, EngineError: nobody can tell whether there is something.
        """
        asked_at = time.monotonic()
        found = look()
        if found is None and self.shared is not None:
            # Also where nothing was new: another thread may have applied it between the two.
            self.follow(asked_at=asked_at)
            found = look()
        return found

    @property
    def is_put_back(self) -> bool:
        """Whether the store was put back to an earlier state, and no person has accepted that: nobody new may come in."""
        return self.shared is not None and bool(self.shared.kept)

    def require_accepted(self) -> None:
        """Before somebody new is let in. Raises TakenError: the store was put back, and no person has accepted that."""
        if self.is_put_back:
            raise TakenError(
                "the store was put back to an earlier state, so nobody new is let in",
                hint="whoever runs the daemon looks at it, and says: confided store --accept",
            )

    def leave_store(self) -> None:
        """Have the file be all there is, and remove its log, while nobody serves. Raises StorageError, EngineError."""
        if self.shared is not None:
            with self._write_lock, storage_errors("write to the registry"):
                self.shared.forget(self._database)
                self.shared.close()
                self.shared = None

    def stand_alone(self) -> None:
        """Have the file be no copy of a log's any more, as one that was put back. Raises StorageError."""
        with self._write_lock, storage_errors("write to the registry"), transaction(self._database):
            stand_alone(self._database)

    def version(self) -> int:
        """A number that changes when anybody, this process included, has changed the registry. It costs a few microseconds."""
        with self.reading() as database:
            return int(database.pragma("data_version"))

    # Callers

    def caller(self, public_key: bytes) -> Caller | None:
        """The caller with this key, also one that may not connect (any more)."""
        return self._first("WHERE public_key = ?", public_key)

    def caller_named(self, alias: str) -> Caller | None:
        """The caller that has this name and is not revoked."""
        return self._first("WHERE alias = ? AND revoked_at IS NULL", alias)

    def predecessor(self, public_key: bytes) -> Caller | None:
        """The caller whose key may be replaced by this one."""
        return self._first("WHERE successor = ? AND revoked_at IS NULL", public_key)

    def earlier_keys(self, public_key: bytes) -> list[bytes]:
        """The keys that this caller had before, the last one first (PROTOCOL.md 7.10)."""
        sql = """WITH RECURSIVE way(key) AS (SELECT ? UNION SELECT public_key FROM callers JOIN way ON successor = key
                   WHERE revoked_at IS NOT NULL) SELECT key FROM way LIMIT -1 OFFSET 1"""
        with self.reading() as database:
            return [bytes(row[0]) for row in database.execute(sql, (public_key,))]

    def callers(self) -> list[Caller]:
        """All machines that are not revoked, by name."""
        with self.reading() as database:
            return select_callers(database, "WHERE revoked_at IS NULL AND gateway IS NULL ORDER BY alias")

    def gateway_clients(self) -> list[Caller]:
        """All callers that come by HTTP and are not revoked, by name; also those whose token has expired."""
        with self.reading() as database:
            return select_callers(database, "WHERE revoked_at IS NULL AND gateway IS NOT NULL ORDER BY alias")

    def gateway_client(self, digest: bytes) -> Caller | None:
        """The caller that comes by HTTP with the token of this SHA-256, also one that may not (any more)."""
        return self._first("WHERE public_key = ? AND gateway IS NOT NULL", digest)

    def machine(self, public_key: bytes) -> Caller | None:
        """The machine with this key, also one that may not connect (any more)."""
        return self._first("WHERE public_key = ? AND gateway IS NULL", public_key)

    def last_change(self) -> int:
        """The number of the newest change of a caller's rights or access."""
        with self.reading() as database:
            return _last_change(database)

    def changes_since(self, number: int) -> tuple[int, frozenset[bytes] | None]:
        """The newest change's number, and whose rights or access have changed since that one; None: of more than is remembered."""
        with self.reading() as database:
            last = _last_change(database)
            found = [
                key for (key,) in database.execute("SELECT public_key FROM caller_changes WHERE id > ?", (number,))
            ]
        return last, frozenset(found) if len(found) == last - number else None

    def brought_in_by(self, keys: Iterable[bytes], added_by: Mapping[bytes, bytes]) -> list[Caller]:
        """The callers that have access because of one: by its invites, by those of machines that it has invited, and so on; by name.

        Args:
            keys: its key, and those that it had before.
            added_by: who has signed for each device of the roster (`Roster.added_by`), which counts as much as an invite.
        """
        with self.reading() as database:
            known = select_callers(database, "ORDER BY alias")
        invited = {caller.public_key: caller.invited_by for caller in known if caller.invited_by is not None}
        # Whoever came by an invite of one and was added by another has two above itself; either is enough.
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
        """Enroll a key under the name in its grants; its space is made where it does not exist. A revoked key is enrolled anew.

        Raises TakenError where the key is enrolled already, the name is taken, or the store was put back.
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
        """Let whoever has the token of this SHA-256 in, by HTTP, to a space that is there, under the name in the grants.

        Raises TakenError: a caller has that name, or the store was put back.
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
        """Note when tokens were last used, by their SHA-256, in seconds since the epoch."""
        with self.transaction() as database:
            for digest, at in used.items():
                database.execute("UPDATE callers SET last_seen_at = ? WHERE public_key = ?", (at, digest))

    def revoke(self, alias: str) -> Caller | None:
        """Take a caller's rights away for good; None if no caller has this name."""
        with self.transaction() as database:
            caller = named_now(database, alias)
            if caller is None:
                return None
            now = self.clock()
            # Without its successor, which must not come in either. And not before it was enrolled, as by a clock that was put right: by
            # these times a folder that is put back tells what came first.
            database.execute(
                "UPDATE callers SET revoked_at = ?, successor = NULL WHERE public_key = ?",
                (max(now, caller.added_at), caller.public_key),
            )
            drop_invites_by(database, caller.public_key)
            record(database, now, "revoked", alias=alias, public_key=caller.public_key)
            return caller

    def approve(self, public_key: bytes) -> Caller | None:
        """Let the key in that waits for it; one that does not is left as it is. None if it is no caller's (any more).

        By key, not by name: what a person has compared are this key's words.
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
        """Give a caller another name; None if none has this one. Raises TakenError where another caller has the wanted name."""
        with self.transaction() as database:
            caller = named_now(database, alias)
            if caller is None or alias == wanted:
                return caller
            require_free(database, wanted)
            database.execute("UPDATE callers SET alias = ? WHERE public_key = ?", (wanted, caller.public_key))
            detail = f"was {alias}"
            record(database, self.clock(), "renamed", alias=wanted, public_key=caller.public_key, detail=detail)
            return named_now(database, wanted)

    def grant(self, alias: str, change: Callable[[Caller], tuple[Grants, float | None]]) -> Caller | None:
        """Give a caller the grants and the end that `change` makes of its present ones; None if no caller has this name."""
        with self.transaction() as database:
            caller = named_now(database, alias)
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
        """Note the key that may take this one's place, in place of one that was noted before.

        Raises TakenError where it is, or was, a caller itself, or another's successor; or this caller is none any more.
        """
        with self.transaction() as database:
            caller = caller_now(database, public_key)
            if caller is None or caller.revoked_at is not None:
                raise TakenError("this machine's key is not enrolled any more")
            named = select_callers(database, "WHERE successor = ? AND revoked_at IS NULL", successor)
            if caller_now(database, successor) or any(other.public_key != public_key for other in named):
                raise TakenError("the new key is known already", hint="make another one")
            database.execute("UPDATE callers SET successor = ? WHERE public_key = ?", (successor, public_key))
            now = self.clock()
            record(database, now, "rotating", alias=caller.alias, public_key=public_key, session=session, by=public_key)

    def note_trust(self, public_key: bytes, content: str, *, session: str) -> None:
        """Write into the audit log that a person at this caller's machine trusts a text, known by its hash alone."""
        with self.transaction() as database:
            caller = caller_now(database, public_key)
            alias = caller.alias if caller else None
            told = {"alias": alias, "public_key": public_key, "session": session, "by": public_key}
            record(database, self.clock(), "trusted", detail=f"text {content[:16]}", **told)  # type: ignore[arg-type]

    def note_proxy_version(self, public_key: bytes, version: str) -> None:
        """Note the version of confide that a caller's machine has."""
        caller = self.caller(public_key)
        if caller is None or caller.proxy_version == version:
            return
        with self.transaction() as database:
            database.execute("UPDATE callers SET proxy_version = ? WHERE public_key = ?", (version, public_key))

    def succeed(self, successor: bytes) -> Caller | None:
        """Put the successor in its caller's place, whose old key is gone with it; None if it is nobody's successor."""
        with self.transaction() as database:
            rows = select_callers(database, "WHERE successor = ? AND revoked_at IS NULL", successor)
            if not rows:
                return caller_now(database, successor)  # another connection of it was first
            old, now = rows[0], self.clock()
            end_caller(database, EndedKey(old.public_key, max(now, old.added_at), successor))
            record(database, now, "rotated", alias=old.alias, public_key=successor, by=successor)
            return caller_now(database, successor)

    # Keys that ended, as they are known beside the data folder (`revocations.py`)

    def ended(self) -> list[EndedKey]:
        """The keys that were revoked, or that others took the place of, in that order."""
        sql = "SELECT public_key, revoked_at, successor FROM callers WHERE revoked_at IS NOT NULL ORDER BY revoked_at"
        with self.reading() as database:
            return [EndedKey(*row) for row in database.execute(sql)]

    def take_ended(self, ended: Iterable[EndedKey]) -> list[str]:
        """Take the access of these keys away, which ended after this registry was written; the names of those that had it.

        Whoever was enrolled again since keeps it. All open invites go: one of them may have been such a key's, whatever the clock said.
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
        """Take back every open invite, after a restore: it may have been used since. How many there were."""
        with self.transaction() as database:
            database.execute("DELETE FROM invites")
            return int(database.changes())

    # Spaces

    def spaces(self) -> dict[str, str]:
        """The id of every space, by its name."""
        with self.reading() as database:
            rows: list[Any] = database.execute("SELECT name, id FROM spaces ORDER BY name").fetchall()
            return dict(rows)

    # The audit log

    def audit_entries(self, *, since: float = 0.0, alias: str | None = None) -> list[AuditEntry]:
        """The rows since a time (seconds since the epoch), oldest first; of one caller, also under names that it had before."""
        with self.reading() as database:
            known = named_now(database, alias) if alias else None
            return select_entries(database, since, alias=alias, public_key=known.public_key if known else None)

    # The file

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """The connection to read from; SQLite's errors become StorageError."""
        with self._read_lock, storage_errors("read the registry"):
            yield self._reader

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """The connection to write to: all that is done inside, or nothing. SQLite's errors become StorageError.

        Raises EngineError: the store cannot be asked, or nobody knows whether it has the change; it is not here then.
        """
        with self._write_lock, storage_errors("write to the registry"):
            if self.shared is not None:
                with self.shared.transaction(self._database):
                    yield self._database
                return
            # Immediate: the write lock is taken before the first read, so what was read still holds when it is written.
            with transaction(self._database):
                if is_copy(self._database):
                    raise StorageError(
                        "cannot write to the registry: it is a copy of what is in a store, and daemon.toml names none",
                        hint="set url of [store] again, or bring it back: confided store --to-files",
                    )
                yield self._database

    @contextmanager
    def writing_here(self) -> Iterator[apsw.Connection]:
        """The same for what is about the process beside this file alone, and in no log (`truths.REGISTRY_DERIVED`)."""
        with self._write_lock, storage_errors("write to the registry"), transaction(self._database):
            yield self._database

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
    """Whether somebody is, or was, known in it."""
    tables = ("callers", "invites", "spaces")
    return any(database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall() for table in tables)  # noqa: S608 - ours


def _last_change(database: apsw.Connection) -> int:
    rows: list[Any] = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'caller_changes'").fetchall()
    return int(rows[0][0]) if rows else 0


@dataclass(frozen=True, slots=True)
class RegistryState:
    """An opened data folder; `keys` are as they were when it was opened."""

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
    """Make the folder, its keys and its registry where they are missing; True if the keys are new.

    Raises DataFolderError where there are databases without the key that opens them; KeyFileError where the folder or a key in it is open
    to others, of a foreign owner, or not writable; StorageError where the registry cannot be made or opened; UpgradeNeededError where an
    older version has made the folder.
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
    """Open a folder that `create` has made.

    Args:
        may_upgrade: whether it is brought to this version where an older one has written it. Commands beside the daemon leave it as it is:
            the one that runs may be that older version, and whoever starts the new one has a snapshot made first.
        snapshot: that one's name.
        as_it_is: it stays of the version that wrote it, for what needs its keys and the names of its spaces alone.
        store: where the log of its registry is. Without it a registry that has one can be read, and not written to.

    Raises DataFolderError where it is not set up; KeyFileError where the folder or a key is open to others, of a foreign owner, or
    damaged; StorageError where the registry cannot be opened; UpgradeNeededError where it may not be upgraded, and needs it.
    """
    master = open_master(folder)
    keys = load_keys(folder)
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
    """The master key of a folder that `create` has made. Raises DataFolderError, KeyFileError as `open_state`."""
    if not (folder.master.exists() or credential(MASTER)):
        _require_empty(folder)
    if not folder.identity.exists() or not (folder.master.exists() or credential(MASTER)):
        raise DataFolderError(folder.root, "is not set up", hint="run: confided init")
    make_private_dir(folder.root)
    return MasterKey.load(folder.master)


def look_at_upgrade(folder: DataFolder) -> UpgradePreview:
    """What an upgrade of the folder has to do. Writes nothing in it, whether somebody serves it or not. Raises as `open_state`."""
    key = open_master(folder).registry_key()
    if not folder.registry.exists():
        return UpgradePreview(None, {}, {})
    if folder.address.exists():
        # It has a log, and an index of that, whether the daemon runs or was killed: another reader adds nothing.
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


def _require_empty(folder: DataFolder) -> None:
    """A new master key would make what is stored unreadable for good. Raises DataFolderError."""
    if folder.registry.exists() or any(folder.spaces.glob("*.db")):
        raise DataFolderError(
            folder.root,
            "holds databases but no master.key",
            hint="restore master.key from a backup, or hand it over as the systemd credential confide-master-key",
        )
