"""Callers as rows of the registry: what is known of each key, read and written inside the registry's transactions."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apsw

from confide_daemon.access.grants import Grants, Scope
from confide_daemon.errors import StorageError, TakenError

# Space ids name files and appear in logs, so they say nothing of the space's name.
SPACE_ID_BYTES = 8

Closed = Literal["revoked", "rotated", "disabled", "expired"]
_COLUMNS = """public_key, alias, space, spaces.id, scope, projects, sources, added_by, added_at, approved_at, expires_at, last_seen_at,
              revoked_at, successor"""


@dataclass(frozen=True, slots=True)
class Caller:
    """One enrolled key. All times are seconds since the epoch."""

    public_key: bytes
    alias: str
    space: str
    space_id: str  # names the space's database file
    grants: Grants
    added_by: str
    added_at: float
    approved_at: float | None  # None while it waits for the operator
    expires_at: float | None  # None for never
    last_seen_at: float | None  # when a session of it last began or ended
    revoked_at: float | None
    successor: (
        bytes | None
    )  # the key that may take this one's place (PROTOCOL.md 7.10), and in a revoked row the one that has

    @property
    def scope(self) -> Scope:
        return self.grants.scope

    def closed(self, now: float) -> Closed | None:
        """Why this key may not connect, or None if it may."""
        if self.revoked_at is not None:
            return "revoked" if self.successor is None else "rotated"
        if self.approved_at is None:
            return "disabled"
        return "expired" if self.expires_at is not None and now >= self.expires_at else None


def select_callers(database: apsw.Connection, where: str, *values: Any) -> list[Caller]:
    """Callers; `where` is a literal, never data."""
    query = f"SELECT {_COLUMNS} FROM callers JOIN spaces ON spaces.name = space {where}"  # noqa: S608
    return [_caller(row) for row in database.execute(query, values)]


def caller_now(database: apsw.Connection, public_key: bytes) -> Caller | None:
    """As `Registry.caller`."""
    rows = select_callers(database, "WHERE public_key = ?", public_key)
    return rows[0] if rows else None


def named_now(database: apsw.Connection, alias: str) -> Caller | None:
    """As `Registry.caller_named`."""
    rows = select_callers(database, "WHERE alias = ? AND revoked_at IS NULL", alias)
    return rows[0] if rows else None


def require_free(database: apsw.Connection, alias: str) -> None:
    """Refuse a name that a caller has. Raises TakenError."""
    if named_now(database, alias):
        hint = f"choose another name, or: confided revoke {alias}"
        raise TakenError(f"there is a caller named {alias} already", hint=hint)


def insert_caller(
    database: apsw.Connection,
    public_key: bytes,
    grants: Grants,
    *,
    space: str,
    added_by: str,
    now: float,
    expires_at: float | None = None,
    is_approved: bool = True,
) -> Caller:
    """Enroll a key, and make its space where it does not exist."""
    space_id = secrets.token_hex(SPACE_ID_BYTES)
    database.execute("INSERT OR IGNORE INTO spaces VALUES (?, ?, ?)", (space, space_id, now))
    drop_invites_by(database, public_key)  # into the space that it was in before
    # A revoked row of the same key makes way: whoever runs the daemon has vouched for the key again. And it is nobody's successor now.
    database.execute("DELETE FROM callers WHERE public_key = ?", (public_key,))
    database.execute("UPDATE callers SET successor = NULL WHERE successor = ? AND revoked_at IS NULL", (public_key,))
    database.execute(
        """INSERT INTO callers (public_key, alias, space, scope, projects, sources, added_by, added_at, approved_at, expires_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            public_key,
            grants.alias,
            space,
            grants.scope,
            to_json(grants.projects),
            to_json(grants.sources),
            added_by,
            now,
            now if is_approved else None,
            expires_at,
        ),
    )
    made = caller_now(database, public_key)
    assert made is not None
    return made


def drop_invites_by(database: apsw.Connection, public_key: bytes) -> None:
    """Take back the invites that a caller has made, which would give rights that it has no more."""
    database.execute("DELETE FROM invites WHERE invited_by = ?", (public_key,))


def describe(grants: Grants, expires_at: float | None) -> str:
    """Rights in a line, for the audit log."""
    parts = [f"scope {grants.scope}"]
    parts += [f"projects {', '.join(sorted(grants.projects))}"] if grants.projects is not None else []
    parts += [f"sources {', '.join(sorted(grants.sources))}"] if grants.sources is not None else []
    parts += [f"until {time.strftime('%Y-%m-%d', time.localtime(expires_at))}"] if expires_at else []
    return "; ".join(parts)


def to_json(names: frozenset[str] | None) -> str | None:
    """Names as they stand in a row."""
    return None if names is None else json.dumps(sorted(names), ensure_ascii=False)


def from_json(text: str | None) -> frozenset[str] | None:
    """Names from a row. Raises StorageError where they cannot be read."""
    if text is None:
        return None
    try:
        names = json.loads(text)
    except ValueError as error:
        raise StorageError("cannot read the registry: a list of grants is damaged") from error
    return frozenset(str(name) for name in names)


def _caller(row: Sequence[Any]) -> Caller:
    """The caller of a row of `_COLUMNS`."""
    public_key, alias, space, space_id, scope, projects, sources, *rest = row
    grants = Grants(alias, scope, from_json(projects), from_json(sources))
    return Caller(public_key, alias, space, space_id, grants, *rest)
