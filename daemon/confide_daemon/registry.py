"""The registry: who may connect (callers), who may still join (invites), and which space each of them sees.

An encrypted SQLite file that several processes use at once: the daemon, and each `confided invite`, `callers` or `revoke` that a person
runs beside it. Every change is one transaction; a process that wants to know of the others' changes watches `version`.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import apsw

from confide_daemon.errors import StorageError, TakenError
from confide_daemon.store.connection import connect, storage_errors

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")

SCHEMA_VERSION = 1
# Space ids name files and appear in logs, so they say nothing of the space's name.
SPACE_ID_BYTES = 8
# A used or expired invite is remembered this long, to tell the one who comes late what happened.
INVITE_MEMORY_S = 7 * 24 * 3600

_SCHEMA = """
CREATE TABLE spaces (
  name TEXT PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  created_at REAL NOT NULL
) STRICT;
CREATE TABLE callers (
  public_key BLOB PRIMARY KEY CHECK (length(public_key) = 32),
  alias TEXT NOT NULL,
  space TEXT NOT NULL REFERENCES spaces (name),
  scope TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
  added_by TEXT NOT NULL CHECK (added_by IN ('invite', 'line', 'file')),
  added_at REAL NOT NULL,
  revoked_at REAL
) STRICT;
CREATE UNIQUE INDEX callers_alias ON callers (alias) WHERE revoked_at IS NULL;
CREATE TABLE invites (
  invite_id BLOB PRIMARY KEY,
  psk BLOB NOT NULL,
  alias TEXT NOT NULL,
  space TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
  created_at REAL NOT NULL,
  expires_at REAL NOT NULL
) STRICT;
CREATE TABLE used_invites (
  invite_id BLOB PRIMARY KEY,
  psk BLOB NOT NULL,
  alias TEXT NOT NULL,
  public_key BLOB NOT NULL,
  used_at REAL NOT NULL
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """One enrolled key.

    Attributes:
        space_id: names the space's database file.
        added_at, revoked_at: seconds since the epoch.
    """

    public_key: bytes
    alias: str
    space: str
    space_id: str
    scope: Scope
    added_by: str
    added_at: float
    revoked_at: float | None


@dataclass(frozen=True, slots=True)
class UsedInvite:
    """An invite that has served: when, and by which key."""

    alias: str
    public_key: bytes
    used_at: float


@dataclass(frozen=True, slots=True)
class Joined:
    """A join that succeeded."""

    caller: Caller


@dataclass(frozen=True, slots=True)
class Refused:
    """A join that did not: `used` says by whom, else the invite is `expired`, or its name is `taken` by now."""

    reason: Literal["used", "expired", "taken"]
    used: UsedInvite | None = None


class Registry:
    """The open registry. Safe to use from several threads and, through the file, from several processes."""

    def __init__(self, database: apsw.Connection, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, key: bytes, *, clock: Callable[[], float] = time.time) -> Registry:
        """Open the file, making it and its tables where they are missing.

        Raises:
            StorageError: not writable, the disk is full, the key is another, or a newer version has written it.
        """
        registry = cls(connect(path, key, writer=True), clock)
        try:
            registry._migrate()
        except BaseException:
            registry.close()
            raise
        return registry

    def close(self) -> None:
        """Close the file; the object is of no use after it."""
        with self._lock:
            self._database.close()

    def version(self) -> int:
        """A number that changes when another process has changed the registry. It costs a microsecond."""
        with self._lock:
            return int(self._database.pragma("data_version"))

    # Callers

    def caller(self, public_key: bytes) -> Caller | None:
        """The caller with this key, also a revoked one."""
        rows = self._callers("WHERE public_key = ?", public_key)
        return rows[0] if rows else None

    def caller_named(self, alias: str) -> Caller | None:
        """The caller that has this name and is not revoked."""
        rows = self._callers("WHERE alias = ? AND revoked_at IS NULL", alias)
        return rows[0] if rows else None

    def callers(self) -> list[Caller]:
        """All callers that are not revoked, by name."""
        return self._callers("WHERE revoked_at IS NULL ORDER BY alias")

    def add_caller(self, public_key: bytes, alias: str, *, space: str, scope: Scope, added_by: str) -> Caller:
        """Enroll a key; its space is made where it does not exist. A key that was revoked is enrolled anew.

        Raises:
            TakenError: the key is enrolled already, or the name is taken.
        """
        with self._transaction():
            known = self._caller_now(public_key)
            if known is not None and known.revoked_at is None:
                raise TakenError(f"this key is enrolled already, as {known.alias}")
            self._require_free(alias)
            self._insert_caller(public_key, alias, space, scope, added_by)
            return self._one_caller(public_key)

    def revoke(self, alias: str) -> Caller | None:
        """Take a caller's rights away for good; None if no caller has this name."""
        with self._transaction():
            rows = self._select_callers("WHERE alias = ? AND revoked_at IS NULL", alias)
            if not rows:
                return None
            self._database.execute(
                "UPDATE callers SET revoked_at = ? WHERE public_key = ?", (self._clock(), rows[0].public_key)
            )
            return rows[0]

    # Invites

    def add_invite(self, invite_id: bytes, psk: bytes, alias: str, *, space: str, scope: Scope, ttl_s: float) -> float:
        """Remember an invite and return when it expires. An unused one for the same name is replaced.

        Raises:
            TakenError: a caller has this name.
        """
        with self._transaction():
            self._require_free(alias)
            now = self._clock()
            self._database.execute("DELETE FROM invites WHERE alias = ?", (alias,))
            self._database.execute("DELETE FROM invites WHERE expires_at < ?", (now - INVITE_MEMORY_S,))
            self._database.execute("DELETE FROM used_invites WHERE used_at < ?", (now - INVITE_MEMORY_S,))
            self._database.execute(
                "INSERT INTO invites VALUES (?, ?, ?, ?, ?, ?, ?)",
                (invite_id, psk, alias, space, scope, now, now + ttl_s),
            )
            return now + ttl_s

    def invite_psk(self, invite_id: bytes) -> bytes | None:
        """The secret of an invite, also of a used or expired one.

        Only who holds the secret completes the handshake with it, so only they are told (sealed) what became of it; `join` lets nobody in.
        """
        with self._reading():
            rows: list[Any] = self._database.execute(
                "SELECT psk FROM invites WHERE invite_id = :id UNION ALL SELECT psk FROM used_invites WHERE invite_id = :id",
                {"id": invite_id},
            ).fetchall()
            return bytes(rows[0][0]) if rows else None

    def used_invite(self, invite_id: bytes) -> UsedInvite | None:
        """What became of an invite, if it was used."""
        with self._reading():
            return self._used(invite_id)

    def join(self, invite_id: bytes, public_key: bytes) -> Joined | Refused:
        """Spend the invite and enroll the key, in one transaction: of two joins that race, exactly one wins.

        The key that has used an invite may come with it again: its first answer may have been lost on the way.
        """
        with self._transaction():
            rows: list[Any] = self._database.execute(
                "SELECT psk, alias, space, scope, expires_at FROM invites WHERE invite_id = ?", (invite_id,)
            ).fetchall()
            if not rows:
                used = self._used(invite_id)
                known = self._caller_now(public_key)
                if used and used.public_key == public_key and known and known.revoked_at is None:
                    return Joined(known)
                return Refused("used", used) if used else Refused("expired")
            psk, alias, space, scope, expires_at = rows[0]
            if self._clock() >= expires_at:
                return Refused("expired")
            # Looked at before anything is deleted: a refusal must leave the machine as it was.
            named = self._select_callers("WHERE alias = ? AND revoked_at IS NULL", alias)
            if any(caller.public_key != public_key for caller in named):
                return Refused("taken")
            known = self._caller_now(public_key)
            if known is not None and known.revoked_at is None:
                # The machine had joined before: the invite moves it to a new name and space.
                self._database.execute("DELETE FROM callers WHERE public_key = ?", (public_key,))
            self._database.execute("DELETE FROM invites WHERE invite_id = ?", (invite_id,))
            self._database.execute(
                "INSERT INTO used_invites VALUES (?, ?, ?, ?, ?)", (invite_id, psk, alias, public_key, self._clock())
            )
            self._insert_caller(public_key, alias, space, scope, "invite")
            return Joined(self._one_caller(public_key))

    # Spaces

    def spaces(self) -> dict[str, str]:
        """The id of every space, by its name."""
        with self._reading():
            rows: list[Any] = self._database.execute("SELECT name, id FROM spaces ORDER BY name").fetchall()
            return dict(rows)

    # Inside a transaction or under the lock

    def _caller_now(self, public_key: bytes) -> Caller | None:
        """As `caller`, inside a transaction."""
        rows = self._select_callers("WHERE public_key = ?", public_key)
        return rows[0] if rows else None

    def _one_caller(self, public_key: bytes) -> Caller:
        return self._select_callers("WHERE public_key = ?", public_key)[0]

    def _callers(self, where: str, *values: Any) -> list[Caller]:
        with self._reading():
            return self._select_callers(where, *values)

    def _select_callers(self, where: str, *values: Any) -> list[Caller]:
        # `where` is one of the literals above, never data.
        query = f"SELECT public_key, alias, space, spaces.id, scope, added_by, added_at, revoked_at FROM callers JOIN spaces ON spaces.name = space {where}"  # noqa: S608, E501
        return [Caller(*row) for row in self._database.execute(query, values)]

    def _used(self, invite_id: bytes) -> UsedInvite | None:
        rows: list[Any] = self._database.execute(
            "SELECT alias, public_key, used_at FROM used_invites WHERE invite_id = ?", (invite_id,)
        ).fetchall()
        return UsedInvite(*rows[0]) if rows else None

    def _require_free(self, alias: str) -> None:
        if self._select_callers("WHERE alias = ? AND revoked_at IS NULL", alias):
            raise TakenError(
                f"there is a caller named {alias} already", hint=f"choose another name, or: confided revoke {alias}"
            )

    def _insert_caller(self, public_key: bytes, alias: str, space: str, scope: str, added_by: str) -> None:
        now = self._clock()
        self._database.execute(
            "INSERT OR IGNORE INTO spaces VALUES (?, ?, ?)", (space, secrets.token_hex(SPACE_ID_BYTES), now)
        )
        # A revoked row of the same key makes way: whoever runs the daemon has vouched for the key again.
        self._database.execute("DELETE FROM callers WHERE public_key = ?", (public_key,))
        self._database.execute(
            "INSERT INTO callers VALUES (?, ?, ?, ?, ?, ?, NULL)", (public_key, alias, space, scope, added_by, now)
        )

    def _migrate(self) -> None:
        with self._transaction():
            version = int(self._database.pragma("user_version"))
            if version > SCHEMA_VERSION:
                raise StorageError(
                    "cannot open the registry: it was written by a newer version of confide",
                    hint="upgrade confide here",
                )
            if version == 0:
                self._database.execute(_SCHEMA)
                self._database.pragma("user_version", SCHEMA_VERSION)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, storage_errors("read the registry"):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, storage_errors("write to the registry"):
            # Immediate: the write lock is taken before the first read, so what was read still holds when it is written.
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                # A full disk has rolled back already.
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")
