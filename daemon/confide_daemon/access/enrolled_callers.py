"""The clients that are enrolled in the registry (devices, and apps that connect by HTTP), and their
rights. All functions run within the registry's transactions.

Rights are checked inside every operation against the registry's current state, never only when a
client connects. So the loss of a right takes effect at the next step, also within a running
operation.
"""

from __future__ import annotations

import json
import math
import secrets
import shlex
import time
from collections.abc import Collection, Iterable, Sequence
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

# Space ids name files and appear in logs, so they reveal nothing of the space's name.
SPACE_ID_BYTES = 8

Gateway = Literal["trusted", "untrusted"]
"""The trust in texts of a caller that connects by HTTP."""

Closed = Literal["revoked", "rotated", "disabled", "expired"]
_COLUMNS = """public_key, alias, space, spaces.id, scope, projects, sources, added_by, added_at, approved_at, expires_at, last_seen_at,
              revoked_at, successor, invited_by, proxy_version, gateway,
              (SELECT other.alias FROM callers AS other WHERE other.public_key = callers.invited_by)"""


@dataclass(frozen=True, slots=True)
class Grants:
    """The rights of a client: a scope, and the projects and sources that it may access.

    A refusal names the command with which the daemon's operator grants the right.
    """

    alias: str  # whose; the author of what it writes
    scope: Scope = "write"
    projects: frozenset[str] | None = None  # None for all. The global one is a project like any other
    sources: frozenset[str] | None = None  # of `SOURCES`; None for all
    is_bounded: bool = False  # narrower than the caller's, for a call with fewer rights

    @property
    def may_write(self) -> bool:
        """True if the scope allows writing, in the projects that the client may access."""
        return self.scope != "read"

    @property
    def reaches_all(self) -> bool:
        """True if the client may access all projects and all sources."""
        return self.projects is None and self.sources is None

    def has_project(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def has_source(self, source: str) -> bool:
        return self.sources is None or source in self.sources

    def reaches(self, project: str, path: str) -> bool:
        return self.has_project(project) and self.has_source(source_of(path))

    def limit(self, projects: frozenset[str] | None, *, may_write: bool) -> Self:
        """Return these rights limited to the given projects (None adds no limit), and read-only
        unless `may_write` is True.
        """
        both = projects if self.projects is None else self.projects if projects is None else self.projects & projects
        return replace(self, scope=self.scope if may_write else "read", projects=both, is_bounded=True)

    def without_any(self) -> Self:
        """Return empty rights for the same client, for use after its access has ended."""
        return replace(self, scope="read", projects=frozenset(), sources=frozenset())

    def require_scope(self) -> None:
        """Raise GrantError if the client may only read."""
        if not self.may_write:
            raise self._missing("may read the memory but not write it", "scope", ["write"])

    def require_project(self, project: str) -> None:
        """Raise GrantError if the client may not access the project."""
        if not self.has_project(project):
            shown = printable(project[:MAX_SHOWN_CHARS])
            raise self._missing(f"has no grant for the project '{shown}'", "projects", [*(self.projects or ()), shown])

    def require_every_project(self, what: str) -> None:
        """Raise GrantError if the client may not access all projects. The error says that `what`
        concerns all of them.
        """
        if self.projects is not None:
            raise self._missing(f"has no grant for all projects, which {what} concerns", "projects", ["all"])

    def require_source(self, source: str) -> None:
        """Raise GrantError if the client may not access the source."""
        if not self.has_source(source):
            raise self._missing(f"has no grant for the source '{source}'", "sources", [*(self.sources or ()), source])

    def require_read(self, project: str, path: str) -> None:
        """Raise GrantError if the client may not read the document at this path."""
        self.require_project(project)
        self.require_source(source_of(path))

    def require_write(self, project: str, path: str) -> None:
        """Raise GrantError if the client may not write the document at this path."""
        self.require_scope()
        self.require_read(project, path)

    def projects_among(self, wanted: Iterable[str] | None) -> frozenset[str] | None:
        """Return those of the wanted projects that the client may access. None stands for all
        projects, both as argument and as result.

        Raises GrantError if projects are wanted and the client may access none of them.
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
            f"this device {what}",
            hint=f"the daemon's operator gives it with: confided device edit {self.alias} --{option} {value}",
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """A client that is enrolled in the registry: a device with its public key, or an app with a
    token. All times are in seconds since 1970.
    """

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

    def refusal_reason(self, now: float) -> Closed | None:
        """Return why this client may not connect at the time `now`, or None if it may."""
        if self.revoked_at is not None:
            return "revoked" if self.successor is None else "rotated"
        if self.approved_at is None:
            return "disabled"
        return "expired" if self.expires_at is not None and now >= self.expires_at else None


@dataclass(frozen=True, slots=True)
class EndedKey:
    """A public key that may no longer connect, the time when it ended, and the key that replaced
    it, if any.
    """

    key: bytes
    at: float  # seconds since the epoch
    successor: bytes | None = None


def select_callers(database: apsw.Connection, where: str, *values: Any) -> list[Caller]:
    """Return the clients that match an SQL condition. `where` is a literal of the source code,
    never input.
    """
    query = f"SELECT {_COLUMNS} FROM callers JOIN spaces ON spaces.name = space {where}"  # noqa: S608
    return [_caller(row) for row in database.execute(query, values)]


def caller_now(database: apsw.Connection, public_key: bytes) -> Caller | None:
    rows = select_callers(database, "WHERE public_key = ?", public_key)
    return rows[0] if rows else None


def caller_by_name(database: apsw.Connection, alias: str) -> Caller | None:
    rows = select_callers(database, "WHERE alias = ? AND revoked_at IS NULL", alias)
    return rows[0] if rows else None


def require_free(database: apsw.Connection, alias: str) -> None:
    """Raise TakenError if an enrolled client already has this name."""
    if caller_by_name(database, alias):
        hint = f"choose another name, or: confided device rm {alias}"
        raise TakenError(f"there is a caller named {alias} already", hint=hint)


def new_space_id() -> str:
    """Return a random id for a new space."""
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
    """Enroll a public key with these rights, and create its space if it does not exist. Return the
    new client.
    """
    database.execute("INSERT OR IGNORE INTO spaces VALUES (?, ?, ?)", (space, new_space_id(), now))
    drop_invites_by(database, public_key)  # into the space that it was in before
    known = caller_now(database, public_key)
    if known is not None and known.revoked_at is not None and known.revoked_at >= now:
        now = math.nextafter(known.revoked_at, math.inf)  # by a clock that was ahead then; it is later all the same
    # Delete a revoked row of the same key: the operator vouches for the key again. It is also no
    # successor any more.
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
    """Revoke a client's key, and record the key that replaces it, if any.

    The row stays in the registry as a revoked one, so that a line in `authorized/` does not enroll
    the key again.
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
    """Record a key that was never enrolled here as revoked, so that a line in `authorized/` does
    not enroll it.
    """
    database.execute(
        """INSERT INTO callers (public_key, alias, space, scope, added_by, added_at, revoked_at, successor)
           SELECT ?, ?, name, 'read', 'file', ?, ?, ? FROM spaces ORDER BY created_at LIMIT 1""",
        (ended.key, f"revoked-{ended.key[:4].hex()}", ended.at, ended.at, ended.successor),
    )


def end_access_through(
    database: apsw.Connection, key: bytes, *, space_id: str, kept: Collection[bytes], now: float
) -> list[Caller]:
    """Revoke a key and every client of the space that got access because of it. Return the clients
    that had access until then.

    A client got access because of a key if it is the key's successor, if the key invited or
    approved it, or if another such client did. Keys in `kept` keep their access, and so do the
    clients that they let in.
    """
    found: dict[bytes, Caller | None] = {}
    waiting = [key]
    while waiting:
        one = waiting.pop()
        if one in found or (one in kept and one != key):
            continue
        found[one] = caller = caller_now(database, one)
        waiting += [each.public_key for each in select_callers(database, "WHERE invited_by = ?", one)]
        waiting += (
            [caller.successor]
            if caller is not None and caller.refusal_reason(now) == "rotated" and caller.successor
            else []
        )
    ended = [one for one in found.values() if one is not None and one.revoked_at is None and one.space_id == space_id]
    for each in ended:
        end_caller(database, EndedKey(each.public_key, max(now, each.added_at)))
    return ended


def drop_invites_by(database: apsw.Connection, public_key: bytes) -> None:
    """Delete the open invites that a client has created, because they would grant rights that it no
    longer has.
    """
    database.execute("DELETE FROM invites WHERE invited_by = ?", (public_key,))


def describe(grants: Grants, expires_at: float | None) -> str:
    """Format rights and expiry as one line for the audit log."""
    parts = [f"scope {grants.scope}"]
    parts += [f"projects {', '.join(sorted(grants.projects))}"] if grants.projects is not None else []
    parts += [f"sources {', '.join(sorted(grants.sources))}"] if grants.sources is not None else []
    parts += [f"until {time.strftime('%Y-%m-%d', time.localtime(expires_at))}"] if expires_at else []
    return "; ".join(parts)


def to_json(names: frozenset[str] | None) -> str | None:
    """Encode names as a sorted JSON list for a column of the registry. None, which means all, stays
    None.
    """
    return None if names is None else json.dumps(sorted(names), ensure_ascii=False)


def from_json(text: str | None) -> frozenset[str] | None:
    """Decode names from a column of the registry; None means all. Raises StorageError if the text
    is not valid.
    """
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
