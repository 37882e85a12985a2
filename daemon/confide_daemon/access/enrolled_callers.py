"""Callers: what one may do, and what is known of each key, read and written inside the registry's transactions.

Grants are asked inside every operation, as the registry has them then, never once at the door: a grant that was taken away counts from
the next step on, also of an operation that is under way.
"""

from __future__ import annotations

import json
import math
import secrets
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import apsw

from confide_crypto.errors import printable
from confide_daemon.access.audit import hand_over
from confide_daemon.errors import GrantError, StorageError, TakenError
from confide_memory.documents import source_of

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
MAX_SHOWN_CHARS = 64

# Space ids name files and appear in logs, so they say nothing of the space's name.
SPACE_ID_BYTES = 8

Gateway = Literal["trusted", "untrusted"]
"""What the word of a caller counts for that comes by HTTP."""

Closed = Literal["revoked", "rotated", "disabled", "expired"]
_COLUMNS = """public_key, alias, space, spaces.id, scope, projects, sources, added_by, added_at, approved_at, expires_at, last_seen_at,
              revoked_at, successor, invited_by, proxy_version, gateway,
              (SELECT other.alias FROM callers AS other WHERE other.public_key = callers.invited_by)"""


@dataclass(frozen=True, slots=True)
class Grants:
    """What one caller may do: a scope, and the projects and sources that it reaches.

    What is refused is said with the command by which the daemon's operator gives it.
    """

    alias: str  # whose; the author of what it writes
    scope: Scope = "write"
    projects: frozenset[str] | None = None  # None for all. The global one is a project like any other
    sources: frozenset[str] | None = None  # of `SOURCES`; None for all
    is_bounded: bool = False  # less than the caller has, for one call of somebody who has less

    @property
    def may_write(self) -> bool:
        """Whether the scope allows writing, wherever the caller may be."""
        return self.scope != "read"

    @property
    def reaches_all(self) -> bool:
        """Whether no project and no source is out of the caller's reach."""
        return self.projects is None and self.sources is None

    def has_project(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def has_source(self, source: str) -> bool:
        return self.sources is None or source in self.sources

    def reaches(self, project: str, path: str) -> bool:
        return self.has_project(project) and self.has_source(source_of(path))

    def bounded(self, projects: frozenset[str] | None, *, may_write: bool) -> Self:
        """No more of them than these projects, and no writing unless it may."""
        both = projects if self.projects is None else self.projects if projects is None else self.projects & projects
        return replace(self, scope=self.scope if may_write else "read", projects=both, is_bounded=True)

    def without_any(self) -> Self:
        """The same caller's once its access has ended."""
        return replace(self, scope="read", projects=frozenset(), sources=frozenset())

    def require_scope(self) -> None:
        """Refuse a caller that may only read. Raises GrantError."""
        if not self.may_write:
            raise self._missing("may read the memory but not write it", "scope", ["write"])

    def require_project(self, project: str) -> None:
        """Refuse a caller that does not reach the project. Raises GrantError."""
        if not self.has_project(project):
            shown = printable(project[:MAX_SHOWN_CHARS])
            raise self._missing(f"has no grant for the project '{shown}'", "projects", [*(self.projects or ()), shown])

    def require_every_project(self, what: str) -> None:
        """Refuse a caller that does not reach all projects something that concerns them all. Raises GrantError."""
        if self.projects is not None:
            raise self._missing(f"has no grant for all projects, which {what} concerns", "projects", ["all"])

    def require_source(self, source: str) -> None:
        """Refuse a caller that does not reach the source. Raises GrantError."""
        if not self.has_source(source):
            raise self._missing(f"has no grant for the source '{source}'", "sources", [*(self.sources or ()), source])

    def require_read(self, project: str, path: str) -> None:
        """Refuse a caller that may not read the document. Raises GrantError."""
        self.require_project(project)
        self.require_source(source_of(path))

    def require_write(self, project: str, path: str) -> None:
        """Refuse a caller that may not write the document. Raises GrantError."""
        self.require_scope()
        self.require_read(project, path)

    def projects_among(self, wanted: Iterable[str] | None) -> frozenset[str] | None:
        """Those of the wanted projects that the caller reaches; None (wanted or answered) is all there are.

        Raises GrantError where something is wanted, and none of it is reached.
        """
        if wanted is None:
            return self.projects
        names = list(wanted)
        found = frozenset(name for name in names if self.has_project(name))
        if names and not found:
            self.require_project(names[0])
        return found

    def _missing(self, what: str, option: str, values: list[str]) -> GrantError:
        if self.is_bounded:
            return GrantError(f"this token {what}", hint="confide http token new on its machine makes one that has it")
        value = shlex.quote(",".join(sorted(dict.fromkeys(values))))
        return GrantError(
            f"this machine {what}",
            hint=f"whoever runs the daemon gives it with: confided device edit {self.alias} --{option} {value}",
        )


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
    invited_by: bytes | None  # the key of the caller whose invite it used; None: the operator let it in
    proxy_version: str | None  # of confide on its machine, when that attached last; None: it has not
    gateway: Gateway | None  # it comes by HTTP with a token, of which `public_key` is the SHA-256; None: a machine
    inviter: str | None  # what that caller is called

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


@dataclass(frozen=True, slots=True)
class EndedKey:
    """A key that may not connect any more, since when, and the key that took its place where one did."""

    key: bytes
    at: float  # seconds since the epoch
    successor: bytes | None = None


def select_callers(database: apsw.Connection, where: str, *values: Any) -> list[Caller]:
    """Callers; `where` is a literal, never data."""
    query = f"SELECT {_COLUMNS} FROM callers JOIN spaces ON spaces.name = space {where}"  # noqa: S608
    return [_caller(row) for row in database.execute(query, values)]


def caller_now(database: apsw.Connection, public_key: bytes) -> Caller | None:
    rows = select_callers(database, "WHERE public_key = ?", public_key)
    return rows[0] if rows else None


def named_now(database: apsw.Connection, alias: str) -> Caller | None:
    rows = select_callers(database, "WHERE alias = ? AND revoked_at IS NULL", alias)
    return rows[0] if rows else None


def require_free(database: apsw.Connection, alias: str) -> None:
    """Refuse a name that a caller has. Raises TakenError."""
    if named_now(database, alias):
        hint = f"choose another name, or: confided device rm {alias}"
        raise TakenError(f"there is a caller named {alias} already", hint=hint)


def new_space_id() -> str:
    """By chance; no two spaces have had one."""
    return secrets.token_hex(SPACE_ID_BYTES)


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
    invited_by: bytes | None = None,
    gateway: Gateway | None = None,
) -> Caller:
    """Enroll a key, and make its space where it does not exist."""
    database.execute("INSERT OR IGNORE INTO spaces VALUES (?, ?, ?)", (space, new_space_id(), now))
    drop_invites_by(database, public_key)  # into the space that it was in before
    known = caller_now(database, public_key)
    if known is not None and known.revoked_at is not None and known.revoked_at >= now:
        now = math.nextafter(known.revoked_at, math.inf)  # by a clock that was ahead then; it is later all the same
    # A revoked row of the same key makes way: whoever runs the daemon has vouched for the key again. And it is nobody's successor now.
    database.execute("DELETE FROM callers WHERE public_key = ?", (public_key,))
    database.execute("UPDATE callers SET successor = NULL WHERE successor = ? AND revoked_at IS NULL", (public_key,))
    database.execute(
        """INSERT INTO callers (public_key, alias, space, scope, projects, sources, added_by, added_at, approved_at, expires_at,
             invited_by, gateway)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
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
            invited_by,
            gateway,
        ),
    )
    made = caller_now(database, public_key)
    assert made is not None
    return made


def end_caller(database: apsw.Connection, ended: EndedKey) -> None:
    """Take a caller's key out of force; its successor, if it has one, takes its place.

    The old row stays as a revoked one, so that the key is not taken in again by a line in `authorized/`.
    """
    database.execute(
        "UPDATE callers SET revoked_at = ?, successor = ? WHERE public_key = ?", (ended.at, ended.successor, ended.key)
    )
    if ended.successor is None:
        drop_invites_by(database, ended.key)
        return
    database.execute(
        """INSERT OR IGNORE INTO callers (public_key, alias, space, scope, projects, sources, added_by, added_at, approved_at, expires_at,
             last_seen_at, invited_by)
           SELECT successor, alias, space, scope, projects, sources, added_by, added_at, approved_at, expires_at, last_seen_at, invited_by
           FROM callers WHERE public_key = ?""",
        (ended.key,),
    )
    for table in ("invites", "callers"):
        update = f"UPDATE {table} SET invited_by = ? WHERE invited_by = ?"  # noqa: S608 - one of these two
        database.execute(update, (ended.successor, ended.key))
    hand_over(database, ended.key, ended.successor)


def insert_ended(database: apsw.Connection, ended: EndedKey) -> None:
    """Note a key that never was a caller here as one that may not become one by a line in `authorized/`."""
    database.execute(
        """INSERT INTO callers (public_key, alias, space, scope, added_by, added_at, revoked_at, successor)
           SELECT ?, ?, name, 'read', 'file', ?, ?, ? FROM spaces ORDER BY created_at LIMIT 1""",
        (ended.key, f"revoked-{ended.key[:4].hex()}", ended.at, ended.at, ended.successor),
    )


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
    public_key, alias, space, space_id, scope, projects, sources, *rest = row
    grants = Grants(alias, scope, from_json(projects), from_json(sources))
    return Caller(public_key, alias, space, space_id, grants, *rest)
