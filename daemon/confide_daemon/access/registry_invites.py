"""Invites in the registry. The operator creates them, or a device for its own space; each enrolls
one device.

The token itself is not stored, only the invite's public id and its one-time secret (PROTOCOL.md
5.2).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import apsw

from confide_daemon.access.audit import record
from confide_daemon.access.enrolled_callers import (
    SCOPES,
    Caller,
    Grants,
    Scope,
    caller_by_name,
    caller_now,
    describe,
    from_json,
    insert_caller,
    require_free,
    to_json,
)
from confide_daemon.access.registry import Registry
from confide_daemon.errors import GrantError, TakenError

# Used and expired invites are kept this long, so that a late join gets the reason for its refusal.
INVITE_MEMORY_S = 7 * 24 * 3600
MAX_OPEN: Final = 8
"""Most open invites of one caller."""


@dataclass(frozen=True, slots=True)
class OpenInvite:
    """An invite that is not used yet, without its secret. Times are in seconds since 1970."""

    invite_id: bytes
    grants: Grants  # what the caller will have, and its name
    space: str
    created_at: float
    expires_at: float
    caller_expires_at: float | None = None  # when the caller's access will end, None for never
    needs_approval: bool = False  # the join only enters the key; the operator lets it in

    @property
    def alias(self) -> str:
        """The name that the invited device will have."""
        return self.grants.alias


@dataclass(frozen=True, slots=True)
class UsedInvite:
    """An invite that was used: when, and by which public key."""

    alias: str
    public_key: bytes
    used_at: float


@dataclass(frozen=True, slots=True)
class JoinedInvite:
    """The result of a successful join. The device may still need the operator's approval."""

    caller: Caller


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of a failed join. The invite was used before (`used_invite` says by which key),
    has `expired`, or its name is `taken`.
    """

    reason: Literal["used", "expired", "taken"]
    used_invite: UsedInvite | None = None


_COLUMNS = (
    "invite_id, alias, scope, projects, sources, space, created_at, expires_at, caller_expires_at, needs_approval"
)


class Invites:
    """The invites in the registry. Like the registry, it may be used by several threads."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def add(
        self,
        invite_id: bytes,
        psk: bytes,
        grants: Grants,
        *,
        space: str,
        ttl_s: float,
        caller_expires_at: float | None = None,
        needs_approval: bool = False,
    ) -> OpenInvite:
        """Store an invite by the operator. It replaces an unused one for the same name. Raises
        TakenError if an enrolled client has this name.
        """
        with self._registry.transaction() as database:
            require_free(database, grants.alias)
            now = self._registry.clock()
            made = OpenInvite(invite_id, grants, space, now, now + ttl_s, caller_expires_at, needs_approval)
            database.execute("DELETE FROM invites WHERE alias = ?", (grants.alias,))
            self._insert(database, made, psk)
            return made

    def add_for(
        self, inviter: bytes, invite_id: bytes, psk: bytes, *, alias: str, scope: Scope, ttl_s: float
    ) -> OpenInvite:
        """Store an invite that a device creates: into its own space, with at most its own rights,
        and for no longer than it has them.

        The invite ends with the inviter's access, and with any change of its rights. It replaces an
        unused one by the same inviter for the same name. If a device of another space has the name,
        a number is added to it without notice, because a device must not learn who else uses this
        daemon.

        Raises GrantError if the inviter may not write, or has fewer rights than the invite would
        give; TakenError if the name is taken in its space, or the inviter has `MAX_OPEN` open
        invites.
        """
        with self._registry.transaction() as database:
            now = self._registry.clock()
            caller = caller_now(database, inviter)
            if caller is None or caller.refusal_reason(now):
                raise GrantError("this device's access has ended")
            caller.grants.require_scope()
            if SCOPES.index(scope) > SCOPES.index(caller.grants.scope):
                raise GrantError(
                    f"this device's scope is {caller.grants.scope}, so it cannot give {scope}",
                    hint="the daemon's operator can: confided invite",
                )
            alias = self._free_name(database, alias, caller, now)
            self._check_unused(database, invite_id, alias, inviter)
            mine = _select(database, "WHERE expires_at > ? AND invited_by = ? AND alias <> ?", now, inviter, alias)
            if len(mine) >= MAX_OPEN:
                raise TakenError(
                    f"{MAX_OPEN} invites of this device wait to be used", hint="use one, or wait until one has expired"
                )
            ends = [now + ttl_s, *([caller.expires_at] if caller.expires_at is not None else [])]
            grants = replace(caller.grants, alias=alias, scope=scope)
            made = OpenInvite(invite_id, grants, caller.space, now, min(ends), caller.expires_at, scope == "admin")
            database.execute("DELETE FROM invites WHERE alias = ?", (alias,))
            self._insert(database, made, psk, inviter=caller)
            return made

    def _free_name(self, database: apsw.Connection, wanted: str, inviter: Caller, now: float) -> str:
        """Return a name that no other caller of the daemon has. Raises TakenError: a caller in the
        inviter's own space has it.
        """
        open_ones = "WHERE expires_at > ? AND alias = ? AND invited_by IS NOT ?"
        for number in itertools.count(1):
            alias = wanted if number == 1 else f"{wanted}-{number}"
            named = caller_by_name(database, alias)
            others = _select(database, open_ones, now, alias, inviter.public_key)
            spaces = {one.space for one in (named, *others) if one is not None}
            if number == 1 and inviter.space in spaces:
                problem = f"a device of this space is named {wanted} already"
                if named is None or named.space != inviter.space:
                    problem = f"an invite into this space for {wanted} is open already"
                raise TakenError(problem, hint="choose another name")
            if not spaces:
                return alias
        raise AssertionError

    def _check_unused(self, database: apsw.Connection, invite_id: bytes, alias: str, inviter: bytes) -> None:
        """Refuse the id of another invite. Raises TakenError if it was used, or is open for another
        name or inviter.
        """
        used = database.execute("SELECT 1 FROM used_invites WHERE invite_id = ?", (invite_id,)).get
        others = "WHERE invite_id = ? AND (alias <> ? OR invited_by IS NOT ?)"
        if used or _select(database, others, invite_id, alias, inviter):
            raise TakenError("this invite is known already", hint="make another one")

    def _insert(
        self, database: apsw.Connection, made: OpenInvite, psk: bytes, *, inviter: Caller | None = None
    ) -> None:
        """Insert the rows of a new invite and of the audit log, and delete invites that are too
        old.
        """
        database.execute("DELETE FROM invites WHERE expires_at < ?", (self._memory_start(),))
        database.execute("DELETE FROM used_invites WHERE used_at < ?", (self._memory_start(),))
        database.execute(
            f"INSERT INTO invites (psk, invited_by, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a constant
            (
                psk,
                inviter.public_key if inviter else None,
                made.invite_id,
                made.alias,
                made.grants.scope,
                to_json(made.grants.projects),
                to_json(made.grants.sources),
                made.space,
                made.created_at,
                made.expires_at,
                made.caller_expires_at,
                made.needs_approval,
            ),
        )
        detail = describe(made.grants, made.caller_expires_at) + ("; to be approved" if made.needs_approval else "")
        detail += f"; by {inviter.alias}" if inviter else ""
        by = inviter.public_key if inviter else None
        record(database, made.created_at, "invited", alias=made.alias, detail=detail, by=by)

    def open_ones(self) -> list[OpenInvite]:
        """Return the open invites, sorted by name."""
        with self._registry.reading() as database:
            return _select(database, "WHERE expires_at > ? ORDER BY alias", self._registry.clock())

    def remove(self, alias: str) -> OpenInvite | None:
        """Delete the open invite for this name. Return it, or None if there is none."""
        with self._registry.transaction() as database:
            now = self._registry.clock()
            found = _select(database, "WHERE alias = ? AND expires_at > ?", alias, now)
            if not found:
                return None
            database.execute("DELETE FROM invites WHERE alias = ?", (alias,))
            record(database, now, "uninvited", alias=alias)
            return found[0]

    def psk(self, invite_id: bytes) -> bytes | None:
        """Return the one-time secret (pre-shared key) of an invite, or None if there was never such
        an invite. Used and expired invites count too.

        The handshake succeeds only with this secret, so only its holder learns what happened to the
        invite. `join` ensures that each invite enrolls one key.
        """
        with self._registry.reading() as database:
            rows: list[Any] = database.execute(
                """SELECT psk FROM invites WHERE invite_id = :id AND expires_at >= :since
                   UNION ALL SELECT psk FROM used_invites WHERE invite_id = :id AND used_at >= :since""",
                {"id": invite_id, "since": self._memory_start()},
            ).fetchall()
            return bytes(rows[0][0]) if rows else None

    def find_used(self, invite_id: bytes) -> UsedInvite | None:
        """Return who used an invite and when, or None if it was not used."""
        with self._registry.reading() as database:
            return _select_used(database, invite_id, self._memory_start())

    def join(self, invite_id: bytes, public_key: bytes) -> JoinedInvite | Refused:
        """Use the invite and enroll the public key, in one transaction. Of two joins at the same
        time, exactly one succeeds.

        The key that has used an invite may present it again, since it may not have received the
        first answer.
        """
        with self._registry.transaction() as database:
            found = _select(database, "WHERE invite_id = ?", invite_id)
            known = caller_now(database, public_key)
            if not found:
                used = _select_used(database, invite_id, self._memory_start())
                if used and used.public_key == public_key and known and known.revoked_at is None:
                    return JoinedInvite(known)
                return Refused("used", used) if used else Refused("expired")
            invite, now = found[0], self._registry.clock()
            if now >= invite.expires_at:
                return Refused("expired")
            # Check before deleting anything: a refusal must leave the device as it was.
            named = caller_by_name(database, invite.alias)
            if named is not None and named.public_key != public_key:
                return Refused("taken")
            database.execute(
                "INSERT INTO used_invites SELECT invite_id, psk, alias, ?, ? FROM invites WHERE invite_id = ?",
                (public_key, now, invite_id),
            )
            inviter = database.execute("SELECT invited_by FROM invites WHERE invite_id = ?", (invite_id,)).get
            database.execute("DELETE FROM invites WHERE invite_id = ?", (invite_id,))
            # A device that had joined before moves to its new name and space.
            inviter = inviter if isinstance(inviter, bytes) else None
            caller = insert_caller(
                database,
                public_key,
                invite.grants,
                space=invite.space,
                added_by="invite",
                now=now,
                expires_at=invite.caller_expires_at,
                is_approved=not invite.needs_approval,
                invited_by=inviter,
            )
            detail = "waits for approval" if invite.needs_approval else None
            record(database, now, "joined", alias=invite.alias, public_key=public_key, detail=detail, by=inviter)
            return JoinedInvite(caller)

    def _memory_start(self) -> float:
        return self._registry.clock() - INVITE_MEMORY_S


def _select(database: apsw.Connection, where: str, *values: Any) -> list[OpenInvite]:
    # `where` is one of the literals above, never data.
    rows: list[Any] = database.execute(f"SELECT {_COLUMNS} FROM invites {where}", values).fetchall()  # noqa: S608
    return [
        OpenInvite(
            bytes(invite_id),
            Grants(alias, scope, from_json(projects), from_json(sources)),
            space,
            created_at,
            expires_at,
            caller_expires_at,
            bool(needs_approval),
        )
        for invite_id, alias, scope, projects, sources, space, created_at, expires_at, caller_expires_at, needs_approval in rows
    ]


def _select_used(database: apsw.Connection, invite_id: bytes, since: float) -> UsedInvite | None:
    rows: list[Any] = database.execute(
        "SELECT alias, public_key, used_at FROM used_invites WHERE invite_id = ? AND used_at >= ?", (invite_id, since)
    ).fetchall()
    return UsedInvite(*rows[0]) if rows else None
