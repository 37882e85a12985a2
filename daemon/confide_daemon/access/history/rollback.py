"""Detects that the registry in the shared store was restored to an earlier state, and keeps that
from giving back access that was revoked.

The operator of the PostgreSQL server cannot forge an entry, but can restore the registry's log to
an earlier state. Revoked access would then return. So everything that takes access away is copied
over from this node's local copy, whatever the store contains: ended keys, used and deleted invites,
narrowed rights, ended sign-ins and applications, removed devices and spaces. Clients that the local
copy does not contain need the operator's approval.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from confide_daemon.access.audit import record
from confide_daemon.access.enrolled_callers import (
    SCOPES,
    Caller,
    EndedKey,
    caller_now,
    end_caller,
    insert_ended,
    new_space_id,
    select_callers,
    to_json,
)

_WHY: Final = "before the store was put back"
_OWN: Final = ("daemon_keys", "codes", "tokens")
"""Tables that are replaced by the local copy: an earlier state of a key, a code or a token is one
that has ended.
"""
_NONE_NEW: Final = {"invites": "invite_id", "applications": "id", "pairings": "public_key"}
"""Tables from which rows that the local copy lacks are deleted, with the column that identifies a
row.
"""
_OF_A_SPACE: Final = ("roster_entries", "pairings", "unsealed")


def goes_on(shown: apsw.Connection, own: apsw.Connection) -> bool:
    """Return True if the registry in the store is a continuation of the local copy, and not an
    earlier state. This is so if it contains the newest row of the copy's audit log.

    It is also so if the store's audit log has grown so long that this row was dropped as old.
    """
    newest = own.execute("SELECT id, at, event, kind FROM audit ORDER BY id DESC LIMIT 1").fetchone()
    if newest is None:
        return True
    number, at, event, kind = newest
    same = "SELECT 1 FROM audit WHERE id = ? AND at = ? AND event = ?"
    if shown.execute(same, (number, at, event)).get is not None:
        return True
    oldest: Any = shown.execute("SELECT min(id) FROM audit WHERE kind = ?", (kind,)).get
    return oldest is not None and oldest > number


def carry_over(shown: apsw.Connection, own: apsw.Connection, *, now: float) -> None:
    """Limit the access that a restored registry gives to what the local copy gives, within the
    caller's transaction.

    Args:
        shown: the registry as restored from the store; it is changed.
        own: the local copy from before the restore.
        now: the time for the audit log, in seconds since 1970.
    """
    _carry_spaces(shown, own, now)
    _carry_ends(shown, own, now)
    known = {one.public_key: one for one in select_callers(own, "WHERE revoked_at IS NULL")}
    for caller in select_callers(shown, "WHERE revoked_at IS NULL ORDER BY added_at"):
        before = known.get(caller.public_key)
        if before is None:
            _hold(shown, caller, now)
        elif before.space_id != caller.space_id:  # it was moved, and its access to this space has ended
            _end(shown, caller, now)
        else:
            _narrow(shown, caller, before, now)
    shown.execute("DELETE FROM sign_ins")  # before the applications, which they name; a person may begin again
    shown.execute("DELETE FROM registration")
    for table, name in _NONE_NEW.items():
        there = {row[0] for row in own.execute(f"SELECT {name} FROM {table}")}  # noqa: S608 - ours
        for (key,) in shown.execute(f"SELECT {name} FROM {table}").fetchall():  # noqa: S608 - ours
            if key not in there:
                shown.execute(f"DELETE FROM {table} WHERE {name} = ?", (key,))  # noqa: S608 - ours
    for table in _OWN:
        shown.execute(f"DELETE FROM {table}")  # noqa: S608 - ours
    for table in (*_OWN, "used_invites"):
        _copy(shown, own, table)
    _carry_rosters(shown, own)


def _carry_spaces(shown: apsw.Connection, own: apsw.Connection, now: float) -> None:
    """Keep removed spaces removed: a name stands for the same space as in the local copy."""
    _copy(shown, own, "removed_spaces")
    removed = "SELECT name, id FROM spaces WHERE id IN (SELECT id FROM removed_spaces)"
    for name, space_id in shown.execute(removed).fetchall():
        for table in _OF_A_SPACE:
            shown.execute(f"DELETE FROM {table} WHERE space = ?", (space_id,))  # noqa: S608 - ours
        now_called: Any = own.execute("SELECT id FROM spaces WHERE name = ?", (name,)).get
        shown.execute("UPDATE spaces SET id = ? WHERE name = ?", (now_called or new_space_id(), name))
        record(shown, now, "removed", detail=f"space {name}; {_WHY}")


def _carry_ends(shown: apsw.Connection, own: apsw.Connection, now: float) -> None:
    sql = "SELECT public_key, revoked_at, successor FROM callers WHERE revoked_at IS NOT NULL ORDER BY revoked_at"
    for row in own.execute(sql):
        ended = EndedKey(*row)
        caller = caller_now(shown, ended.key)
        if caller is None:
            insert_ended(shown, ended)
        elif caller.revoked_at is None and caller.added_at <= ended.at:
            end_caller(shown, ended)
            record(shown, now, "revoked", alias=caller.alias, public_key=ended.key, detail=_WHY)


def _hold(shown: apsw.Connection, caller: Caller, now: float) -> None:
    """Suspend a caller that the local copy does not know: a device waits for approval, an HTTP
    client must sign in again.
    """
    if caller.gateway is not None:
        _end(shown, caller, now)
        return
    shown.execute("UPDATE callers SET approved_at = NULL WHERE public_key = ?", (caller.public_key,))
    detail = "is to be approved: not known here when the store was put back"
    record(shown, now, "granted", alias=caller.alias, public_key=caller.public_key, detail=detail)


def _end(shown: apsw.Connection, caller: Caller, now: float) -> None:
    end_caller(shown, EndedKey(caller.public_key, max(now, caller.added_at)))
    record(shown, now, "revoked", alias=caller.alias, public_key=caller.public_key, detail=_WHY)


def _narrow(shown: apsw.Connection, caller: Caller, before: Caller, now: float) -> None:
    """Reduce a caller's rights to those that it has in both registries."""
    scope = min(caller.scope, before.scope, key=SCOPES.index)
    projects = _both(caller.grants.projects, before.grants.projects)
    sources = _both(caller.grants.sources, before.grants.sources)
    expires_at = min((at for at in (caller.expires_at, before.expires_at) if at is not None), default=None)
    approved_at = None if before.approved_at is None else caller.approved_at
    gateway = "untrusted" if "untrusted" in (caller.gateway, before.gateway) else caller.gateway
    wanted = (scope, projects, sources, expires_at, approved_at, gateway)
    grants = caller.grants
    if wanted == (grants.scope, grants.projects, grants.sources, caller.expires_at, caller.approved_at, caller.gateway):
        return
    shown.execute(
        """UPDATE callers SET scope = ?, projects = ?, sources = ?, expires_at = ?, approved_at = ?, gateway = ?
           WHERE public_key = ?""",
        (scope, to_json(projects), to_json(sources), expires_at, approved_at, gateway, caller.public_key),
    )
    record(shown, now, "granted", alias=caller.alias, public_key=caller.public_key, detail=f"less; {_WHY}")


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """Intersect two sets of names; None is the set of all names."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _carry_rosters(shown: apsw.Connection, own: apsw.Connection) -> None:
    """Keep the devices of each space as in the local copy, unless the store's roster continues it:
    removed devices stay removed.
    """
    newest = "SELECT space, max(number), hash FROM roster_entries GROUP BY space"
    for space_id, number, digest in own.execute(newest).fetchall():
        there: Any = shown.execute(
            "SELECT hash FROM roster_entries WHERE space = ? AND number = ?", (space_id, number)
        ).get
        is_known = shown.execute("SELECT 1 FROM spaces WHERE id = ?", (space_id,)).get is not None
        if there == digest or not is_known:
            continue
        shown.execute("DELETE FROM roster_entries WHERE space = ?", (space_id,))
        rows = own.execute("SELECT space, number, hash, entry FROM roster_entries WHERE space = ?", (space_id,))
        shown.executemany("INSERT INTO roster_entries (space, number, hash, entry) VALUES (?, ?, ?, ?)", rows)


def _copy(shown: apsw.Connection, own: apsw.Connection, table: str) -> None:
    """Add the local rows of a table to those in the store's registry."""
    names = [str(name) for (name,) in own.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    said, marks = ", ".join(names), ", ".join("?" * len(names))
    rows = own.execute(f"SELECT {said} FROM {table}")  # noqa: S608 - ours
    shown.executemany(f"INSERT OR IGNORE INTO {table} ({said}) VALUES ({marks})", rows)  # noqa: S608 - ours
