"""Decides whether a peer that has proven its public key may connect.

Rights depend on the key alone, never on a field in a message. The registry is searched for the key
only after the complete handshake (PROTOCOL.md). Before that, the daemon only looks up the secret of
an invite by the invite's public id.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from confide_crypto.errors import BusyError, ConfideError, DeniedError, HandshakeError
from confide_crypto.keys.identity import fingerprint_words, parse_public_key
from confide_daemon import __version__
from confide_daemon.access.enrolled_callers import Caller, Grants
from confide_daemon.access.enrollment import RESERVED_NAMES, free_name
from confide_daemon.access.registry import Registry
from confide_daemon.access.registry_invites import Invites, JoinedInvite, Refused
from confide_daemon.errors import StorageError, TakenError

log = logging.getLogger(__name__)

LOCAL_SPACE = "local"
CUT_OFF = "this node cannot reach its store; another one may, or try again later"
PUT_BACK = "its store was put back to an earlier state, so no new device is let in; the daemon's operator runs: confided store --accept"
# A drop-in folder holds a few lines for one user's devices; larger files and more entries are not
# ours.
MAX_DROP_INS = 256
MAX_LINE_BYTES = 4096


class Gate:
    """Knowledge about the daemon's live connections that authorization needs. This base class knows
    of no connections and sets no limits.

    `CallerAuthorization` calls its methods on the event loop.
    """

    @property
    def is_full(self) -> bool:
        """True if the daemon has as many connections as it accepts."""
        return False

    def sessions_of(self, _key: bytes) -> int:
        """Return the number of live connections that use this public key."""
        return 0

    def is_live(self, _key: bytes, _session_id: str) -> bool:
        """Return True if the device with this public key has a live session with this id."""
        return False

    async def is_cut_off(self) -> bool:
        """Return True if this node may have missed changes made by other nodes. No new connection
        may be accepted then.
        """
        return False

    async def pass_connection(self, _key: bytes) -> bool:
        """Wait until this key may connect again under its rate limit. Return True then, or False if
        it connects too often.
        """
        return True

    def log_refusal(self, key: bytes, reason: str) -> None:
        """Record in the audit log that the peer with this key was refused, and why."""


class CallerAuthorization:
    """Answers the two questions that the handshake asks: the secret of an invite, and whether a
    peer that has proven its key may connect.
    """

    def __init__(self, registry: Registry, authorized: Path, gate: Gate, *, max_sessions: int) -> None:
        """`max_sessions`: limit of live connections per key."""
        self._registry = registry
        self._invites = Invites(registry)
        self._authorized = authorized
        self._gate = gate
        self._max_sessions = max_sessions
        # The folder's state and its contents as one value, since several threads read it at once.
        self._drop_in_cache: tuple[list[tuple[str, int, int]], list[tuple[bytes, str]]] = ([], [])

    async def invite_psk(self, invite_id: bytes) -> bytes | None:
        """Return the one-time secret (pre-shared key) of an invite, or None if there was never such
        an invite. Another node may have made it just now.

        Raises HandshakeError if the changes of other nodes cannot be read.
        """
        try:
            return await asyncio.to_thread(self._registry.sought, lambda: self._invites.psk(invite_id))
        except StorageError as error:
            raise HandshakeError("handshake failed: it is not known whether there is such an invite") from error

    async def admit(self, public_key: bytes, hello: Mapping[str, object], invite_id: bytes | None) -> dict[str, object]:
        """Return the welcome message for a peer that has proven this key. Of the peer's hello
        message, only `replaces` is read: the session that the new one replaces (PROTOCOL.md 7.9).

        A key that reconnects again and again is delayed by a rate limit.

        Raises DeniedError if the key is unknown, revoked, not approved yet, expired or has too many
        connections, or if the invite admits no one; BusyError if the key connects too often.
        """
        if not await self._gate.pass_connection(public_key):
            raise BusyError
        try:
            return await self._admit(public_key, hello, invite_id)
        except DeniedError as error:
            self._gate.log_refusal(public_key, error.reason)
            raise

    async def admit_by_http(self, key: bytes) -> dict[str, object]:
        """Return the welcome message for an HTTP client that is connected to another node, which
        forwards its requests (PROTOCOL.md 12.5). `key` is the SHA-256 of its token. Raises
        DeniedError if the client may not connect.
        """
        await self._require_room(key)
        caller = await asyncio.to_thread(self._registry.sought, lambda: self._registry.gateway_client(key))
        if caller is None:
            raise denied_error("unknown", key)
        if (why := caller.refusal_reason(self._registry.clock())) is not None:
            raise denied_error("revoked" if why == "rotated" else why, key)
        return {"caller": caller.alias, "space": caller.space, "scope": caller.scope, "daemonVersion": __version__}

    def most_sessions(self, public_key: bytes, hello: Mapping[str, object]) -> int:
        """Return how many connections the key may have, the new one included. It may have one more
        while the new one replaces a live session of the same key.
        """
        replaced = hello.get("replaces")
        return self._max_sessions + (isinstance(replaced, str) and self._gate.is_live(public_key, replaced))

    def current(self, public_key: bytes) -> Caller | None:
        """Return the device with this public key with its current rights, or None if it may not
        connect now.
        """
        caller = self._registry.machine(public_key)
        return None if caller is None or caller.refusal_reason(self._registry.clock()) else caller

    def changes_since(self, number: int, connected: Collection[bytes]) -> tuple[int, dict[bytes, Caller | None]]:
        """Return the number of the registry's newest change, and the devices that changed after
        change `number`. They are given by public key, each with its current state, or with None if
        it may no longer connect.

        If some of those changes are no longer recorded, all keys in `connected` are returned.
        """
        last, changed = self._registry.changes_since(number)
        return last, {key: self.current(key) for key in (connected if changed is None else changed)}

    def close_reason(self, public_key: bytes) -> str:
        """Return the reason for the CLOSE message of a session whose device may no longer connect:
        rotated, expired or revoked (PROTOCOL.md 7.6).
        """
        caller = self._registry.caller(public_key)
        why = caller.refusal_reason(self._registry.clock()) if caller else None
        return why if why in ("rotated", "expired") else "revoked"

    async def _admit(
        self, public_key: bytes, hello: Mapping[str, object], invite_id: bytes | None
    ) -> dict[str, object]:
        await self._require_room(public_key)  # before an invite is spent
        caller = await asyncio.to_thread(self._find_caller, public_key, invite_id)
        if self._gate.sessions_of(public_key) >= self.most_sessions(public_key, hello):
            raise denied_error(
                "busy", public_key, f"it may hold {self._max_sessions}; close other sessions, or try again later"
            )
        if caller.public_key != public_key:
            # Everything else is valid, so the old key ends here (PROTOCOL.md 7.10).
            await asyncio.to_thread(self._registry.succeed, public_key)
            extra = {"event": "device has its new key", "space": caller.space_id}
            log.info("rotated: %s is now %s", caller.alias, fingerprint_words(public_key), extra=extra)
        return {"caller": caller.alias, "space": caller.space, "scope": caller.scope, "daemonVersion": __version__}

    async def _require_room(self, key: bytes) -> None:
        """Raises DeniedError: no further connection is accepted, or this node is cut off from the
        others.
        """
        if self._gate.is_full:
            raise denied_error("busy", key, "as many devices are connected as it serves at once; try again later")
        if await self._gate.is_cut_off():
            raise denied_error("busy", key, CUT_OFF)

    def _find_caller(self, public_key: bytes, invite_id: bytes | None) -> Caller:
        """Return the caller with this key, or the caller whose successor it is."""
        if invite_id is not None:
            if self._registry.is_put_back:  # before the invite is spent
                raise denied_error("busy", public_key, PUT_BACK)
            caller = self._join(invite_id, public_key)
        else:
            known = self._look_up(public_key)
            if known is None:
                # Another node may have enrolled it just now. While that is uncertain, do not report
                # an unknown key: the device would replace a key that is still valid (PROTOCOL.md
                # 7.10).
                try:
                    self._registry.follow(asked_at=time.monotonic())
                except StorageError:
                    raise denied_error("busy", public_key, CUT_OFF) from None
                known = self._look_up(public_key)
            # Look once more: another connection of the same key may have replaced the predecessor
            # in between.
            known = known or self._registry.machine(public_key)
            found = known or self._from_drop_in(public_key)
            if found is None:
                raise denied_error("unknown", public_key)
            caller = found
        match caller.refusal_reason(self._registry.clock()):
            case "revoked":
                why = f"it was revoked on {_clock(caller.revoked_at)}; ask the daemon's owner for a new invite"
                raise denied_error("revoked", public_key, why)
            case "rotated":
                why = f"a new key of this device took its place on {_clock(caller.revoked_at)}; use that one, or ask for a new invite"
                raise denied_error("revoked", public_key, why)
            case "disabled":
                why = f"the daemon's owner has to compare the words, and then: confided device approve {caller.alias}"
                raise denied_error("disabled", public_key, why)
            case "expired":
                why = (
                    f"it expired on {_clock(caller.expires_at)}; the daemon's owner gives it more time with: "
                    f"confided device edit {caller.alias} --expires 90d"
                )
                raise denied_error("expired", public_key, why)
        return caller

    def _look_up(self, public_key: bytes) -> Caller | None:
        return self._registry.machine(public_key) or self._registry.predecessor(public_key)

    def _join(self, invite_id: bytes, public_key: bytes) -> Caller:
        outcome = self._invites.join(invite_id, public_key)
        if isinstance(outcome, JoinedInvite):
            extra = {"event": "device joined", "space": outcome.caller.space_id}
            log.info("joined: %s %s", outcome.caller.alias, fingerprint_words(public_key), extra=extra)
            return outcome.caller
        raise denied_error("invite", public_key, _refusal(outcome))

    def _from_drop_in(self, public_key: bytes) -> Caller | None:
        """Enroll a key found in `authorized/`. A process that can write there could read every
        database anyway.
        """
        for key, name in self._drop_ins():
            if key == public_key:
                if self._registry.is_put_back:
                    raise denied_error("busy", public_key, PUT_BACK)
                there = [*self._registry.callers(), *self._registry.gateway_clients()]
                taken = [*RESERVED_NAMES, *(caller.alias for caller in there)]
                try:
                    grants = Grants(free_name(name, taken), "admin")
                    return self._registry.add_caller(public_key, grants, space=LOCAL_SPACE, added_by="file")
                except TakenError:
                    # Another connection with the same key was first.
                    return self._registry.caller(public_key)
        return None

    def _drop_ins(self) -> list[tuple[bytes, str]]:
        """Return the result of `drop_ins`, cached until the folder changes: unknown peers can cause
        50 lookups a second.
        """
        marks = _marks(self._authorized)
        seen, found = self._drop_in_cache
        if marks != seen:
            found = drop_ins(self._authorized)
            self._drop_in_cache = marks, found
        return found


def _marks(folder: Path) -> list[tuple[str, int, int]]:
    """Return values that change whenever a drop-in or its permissions change."""
    try:
        statuses = [(path.name, path.lstat()) for path in (folder, *sorted(folder.glob("*.pub"))[:MAX_DROP_INS])]
    except OSError:
        return []
    return [(name, status.st_ctime_ns, status.st_ino) for name, status in statuses]


def drop_ins(folder: Path) -> list[tuple[bytes, str]]:
    """Return (public key, name) of each key line in the `.pub` files of `folder`. Skip files that
    anyone but their owner could have written.
    """
    found: list[tuple[bytes, str]] = []
    try:
        paths = sorted(folder.glob("*.pub"))[:MAX_DROP_INS]
        if paths and folder.stat().st_mode & 0o022:
            log.warning("ignored authorized/: others can write to it; chmod 700 it")
            return []
    except OSError:
        return []
    for path in paths:
        line = _line(path)
        if line is None:
            continue
        try:
            found.append(parse_public_key(line))
        except ConfideError:
            log.warning("ignored %s: not a key line", path.name)
    return found


def _line(path: Path) -> str | None:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            log.warning("ignored %s: not a file that only its owner can write", path.name)
            return None
        if status.st_size > MAX_LINE_BYTES:
            log.warning("ignored %s: too large for a key line", path.name)
            return None
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        log.warning("ignored %s: cannot be read", path.name)
        return None


def denied_error(reason: str, public_key: bytes, why: str | None = None) -> DeniedError:
    """Build the refusal for a peer that has proven this key. It is sent encrypted; `why` replaces
    the usual hint.
    """
    return DeniedError(reason, fingerprint_words(public_key), hint=why)


def _refusal(refused: Refused) -> str:
    if refused.reason == "used" and refused.used_invite:
        used = refused.used_invite
        return f"this invite was already used on {_clock(used.used_at)} by {fingerprint_words(used.public_key)} as {used.alias}"
    if refused.reason == "taken":
        return "another device has taken this invite's name meanwhile"
    return "this invite has expired"


def _clock(moment: float | None) -> str:
    """Format a time for a user on another device, who may read it days later and in another time
    zone.
    """
    return time.strftime("%Y-%m-%d at %H:%M UTC", time.gmtime(moment))
