"""Requests about a space's devices: roster, extend, pair, pair-answer, invite, unlock, gateway
(PROTOCOL.md 9.7, 10.9) and move-roster (9.8).

None needs the space's database, so they are answered even while it is locked: devices get their
keys through them.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from typing import Final

from confide_crypto.errors import (
    ConfideError,
    ConnectionLost,
    ForeignEntryError,
    ForkedRosterError,
    MissingEntryError,
    RequestError,
    RosterError,
    WrapError,
)
from confide_crypto.handshake.invite import INVITE_ID_LENGTH
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import CARD_LENGTH, Card, RosterChange, RosterEntry
from confide_crypto.sealing.space_keys import check_wrap_key
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.access.enrollment import check_name
from confide_daemon.addons import SessionHost
from confide_daemon.documents.restore_receipts import Receipts
from confide_daemon.errors import GrantError, NotFoundError, WrongKeyError
from confide_daemon.sealing.rosters import WaitingDevice
from confide_daemon.spaces.pool import Spaces
from confide_daemon.tools.tool_context import SealingFacts
from confide_memory.documents import iso
from confide_memory.forms import MAX_LISTED, Carried
from confide_memory.wire import sealing as wire
from confide_memory.wire.files import NEWS, DevicesNews
from confide_memory.wire.operation import Nothing
from confide_memory.wire.session import Devices

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Limit on the entries in one answer, in bytes."""
NEWS_DEADLINE_S: Final = 10.0
_INTO_NEW: Final = "a move goes into a new one: confided invite NAME; to merge: confide export, join, import"
_FIRST_CARD_BYTE: Final = 1 + INVITE_ID_LENGTH


class RosterRequests:
    """Answers the requests of one connection about its space's devices, and notifies its device of
    changes.
    """

    def __init__(self, session: SessionHost, spaces: Spaces) -> None:
        self._session = session
        self._desk = session.desk
        self._spaces = spaces
        self._changed = asyncio.Event()
        self.operations = dict(
            [
                wire.ROSTER.by(self._roster),
                wire.EXTEND.by(self._extend),
                wire.PAIR.by(self._pair),
                wire.PAIR_ANSWER.by(self._pair_answer),
                (wire.INVITE.name, self._answer_invite),
                wire.UNLOCK.by(self._unlock),
                wire.MOVE_ROSTER.by(self._move),
                wire.GATEWAY.by(self._gateway),
            ]
        )

    async def summary(self) -> Devices:
        """Return what the answer to `attach` says about the roster. Raises StorageError if the
        roster cannot be read.
        """
        space_id = self._session.caller_now().space_id
        roster = await self._current(space_id)
        return {
            "number": _number(roster),
            "head": roster.head.hex() if roster else "",
            "epoch": _epoch(roster),
            "custody": self._spaces.custody(space_id),
            "needs": self._spaces.missing_epochs(space_id, _epoch(roster)),
        }

    async def facts(self) -> SealingFacts:
        """Return what `memory_status` says about the roster. Raises StorageError if the roster
        cannot be read.
        """
        caller = self._session.caller_now()
        roster = await self._current(caller.space_id)
        return SealingFacts.of(roster, self._spaces.custody(caller.space_id), caller.public_key)

    async def epoch_for(self, key: bytes) -> int | None:
        """Return the number of the devices' newest key (its epoch) if `key` belongs to a device on
        the roster, otherwise None. Raises StorageError if the roster cannot be read.
        """
        roster = await self._current(self._session.caller_now().space_id)
        return roster.epoch if roster is not None and key in roster.devices else None

    async def run(self) -> None:
        """Notify the device of changes that others make, until cancelled. Only one notification is
        under way at a time, and covers all changes since the last.
        """
        space_id = self._session.caller_now().space_id
        with self._desk.following(space_id, self._changed.set):
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    caller = self._session.caller_now()
                    roster = await self._current(space_id)
                    waiting = await self._waiting(caller, roster)
                    news: DevicesNews = {"number": _number(roster), "waiting": bool(waiting)}
                    await NEWS.ask_machine(self._session.ask, news, NEWS_DEADLINE_S)
                except ConnectionLost:
                    return
                except (TimeoutError, ConfideError) as error:
                    raise_if_cancelled()
                    # The device fetches the roster when it connects and before it seals anyway.
                    log.info("a device did not take news of its space's devices: %s", type(error).__name__)

    async def _roster(self, asked: wire.RosterRequest) -> wire.RosterAnswer:
        caller = self._session.caller_now()
        roster = await self._current(caller.space_id)
        waiting = await self._waiting(caller, roster)
        self._session.caller_now()
        return {
            "space": caller.space_id,  # a machine that a lock kept from attaching has not heard it
            "entries": _page(roster, asked["from"]) if roster else [],
            "number": _number(roster),
            "head": roster.head if roster else b"",
            "custody": self._spaces.custody(caller.space_id),
            "isLocked": self._spaces.is_locked(caller.space_id),
            "needs": self._spaces.missing_epochs(caller.space_id, _epoch(roster)),
            "waiting": [
                {"key": one.key, "name": one.name, "card": one.card, "request": one.request} for one in waiting
            ],
        }

    async def _gateway(self, _asked: Nothing) -> wire.GatewayClients:
        """List the HTTP clients of the space. Their projects are omitted: the caller may reach
        other ones.
        """
        found = await asyncio.to_thread(self._desk.gateway_clients, self._session.caller_now().space_id)
        self._session.caller_now()
        return {
            "clients": [
                {
                    "name": one.alias,
                    "scope": one.scope,
                    "trusted": one.gateway == "trusted",
                    "expires": None if one.expires_at is None else iso(one.expires_at),
                    "used": None if one.last_seen_at is None else iso(one.last_seen_at),
                    "by": one.invited_by,
                }
                for one in found
            ]
        }

    async def _extend(self, asked: wire.ExtendRequest) -> wire.Extended:
        entry = asked["entry"]
        try:
            parsed = RosterEntry.parse(entry)
            await self._check_right(parsed)
            caller = self._session.caller_now()
            rosters = self._desk.rosters
            roster, is_new, ended = await asyncio.to_thread(rosters.extend, caller.space_id, entry, by=caller.alias)
        except RosterError as error:
            is_late = isinstance(error, ForkedRosterError | MissingEntryError)
            # If two devices begin a space at once, each creates a roster of its own.
            is_late |= isinstance(error, ForeignEntryError) and parsed.change is RosterChange.GENESIS
            if is_late:
                hint = "look at the list again, and make the change again"
                raise RequestError("conflict", "the list of devices has changed meanwhile", hint) from error
            raise RequestError("invalid", error.message, error.hint) from error
        if is_new:
            self._desk.announce(caller.space_id, self._changed.set)
        if not parsed.removed:
            return {"number": _number(roster)}
        if ended is None:
            return {"number": _number(roster), "ended": None}
        told: list[wire.EndedCaller] = [
            {"key": one.public_key, "name": one.alias, "isApp": one.gateway is not None} for one in ended[:MAX_LISTED]
        ]
        return {"number": _number(roster), "ended": told}

    async def _move(self, asked: wire.MoveRosterRequest) -> wire.MovedRoster:
        """Accept the whole roster of a space that moves here; its first device need not be the
        caller (PROTOCOL.md 9.8).
        """
        caller = self._session.caller_now()
        caller.grants.require_scope()
        if not caller.grants.reaches_all or not await asyncio.to_thread(self._desk.may_decide, caller):
            raise GrantError("a space is moved here by a device that reaches all of it")
        rosters = self._desk.rosters
        try:
            roster = await asyncio.to_thread(rosters.verify_moved, caller.space_id, asked["entries"])
        except RosterError as error:
            raise RequestError("conflict", "this space has devices of its own already", _INTO_NEW) from error
        if caller.public_key not in roster.devices:
            raise GrantError("this device is not among the devices of the space that it brings")
        # A locked space without a roster is still empty: a database key that devices keep is
        # created only after the roster.
        if await self._current(caller.space_id) is None and not self._spaces.is_locked(caller.space_id):
            async with self._spaces.hold(caller.space_id) as space:
                if not await Receipts(space.threads).is_empty():
                    raise RequestError("conflict", "there is memory in this space already", _INTO_NEW)
        caller = self._session.caller_now()
        taken = await asyncio.to_thread(rosters.adopt, caller.space_id, roster, by=caller.alias)
        self._desk.announce(caller.space_id, self._changed.set)
        return {"number": _number(taken)}

    async def _check_right(self, entry: RosterEntry) -> None:
        """Raise GrantError or RequestError unless the caller may submit this entry; the roster
        itself checks the signer.

        A caller with read access adds and removes no devices. It may still move to a new key of its
        own (PROTOCOL.md 7.10), one at a time, or return with a recovery code.
        """
        caller = self._session.caller_now()
        if entry.change is RosterChange.GENESIS:
            caller.grants.require_scope()
            if not await asyncio.to_thread(self._desk.may_decide, caller):
                hint = "connect with a device that reaches all of it; it approves this one"
                raise GrantError("the devices of a space begin with one that reaches all of it", hint=hint)
            if entry.device is None or entry.device.key != caller.public_key:
                raise RequestError("invalid", "a device can begin the list of devices with itself only")
            return
        if caller.grants.may_write or await asyncio.to_thread(self._desk.may_write, entry.signer):
            return  # a reader may bring again what a restored daemon has lost
        roster = await self._current(caller.space_id)
        if roster is None or not await asyncio.to_thread(self._follows_its_key, roster, entry, caller.public_key):
            self._session.caller_now().grants.require_scope()

    def _follows_its_key(self, roster: Roster, entry: RosterEntry, key: bytes) -> bool:
        """Return True if an entry only replaces the caller's own key: no other device is added or
        removed by it.
        """
        added_by, added = roster.added_by, entry.device
        if added is not None:
            signer, mine = roster.devices.get(entry.signer), roster.devices.get(key)
            if added.key == key:
                return signer is not None and signer.is_paper
            waits = any(added_by[each] == key for each in roster.devices if each != key)
            is_next = mine is not None and (added.name, added.is_paper) == (mine.name, False)
            return is_next and entry.signer == key and not waits and not self._desk.is_enrolled(added.key)
        if entry.change is not RosterChange.REMOVE or entry.signer != key or self._desk.is_enrolled(entry.removed):
            return False
        return key in (added_by.get(entry.removed), entry.removed) or added_by.get(key) == entry.removed

    async def _pair(self, asked: wire.PairingRequest) -> wire.Paired:
        caller = self._session.caller_now()
        request, shown = asked["request"], asked["card"]
        if request is not None:
            shown = request[_FIRST_CARD_BYTE:][:CARD_LENGTH]
        if shown is None:
            raise RequestError("invalid", "'card' must be base64")
        _check_card(Card.parse(shown), caller.public_key)
        roster = await self._current(caller.space_id)
        pairings = self._desk.pairings
        if roster is not None and caller.public_key in roster.removed:
            hint = "make a new key here, confide device key rotate, and join again"
            raise GrantError("this device was removed from the devices of its space", hint=hint)
        if roster is not None and caller.public_key in roster.devices:
            answer = await asyncio.to_thread(pairings.answer_of, caller.space_id, caller.public_key)
            return {"answer": answer}
        answer, is_new = await asyncio.to_thread(pairings.ask, caller.space_id, caller.public_key, shown, request)
        if is_new:
            self._desk.announce(caller.space_id, self._changed.set)
        return {"answer": answer}

    async def _pair_answer(self, asked: wire.PairAnswerRequest) -> Nothing:
        key, answer = asked["key"], asked["answer"]
        caller = self._session.caller_now()
        roster = await self._require_device(caller)
        is_known = key in roster.devices and await asyncio.to_thread(
            self._desk.pairings.answer, caller.space_id, key, answer
        )
        if not is_known:
            raise NotFoundError("no device with this key has asked and was added", hint="add it first")
        self._desk.announce(caller.space_id, self._changed.set)
        return {}

    async def _answer_invite(self, body: Carried) -> dict[str, object]:
        # The error names the first wrong field, and the name comes before these two.
        check_name(wire.INVITE.read(body, without=("ttlS", "scope"))["name"], "device")
        return await wire.INVITE.answer_request(body, self._invite)

    async def _invite(self, asked: wire.InviteRequest) -> wire.Invited:
        caller = self._session.caller_now()
        await self._require_device(caller)
        made = await asyncio.to_thread(
            self._desk.invites.add_for,
            caller.public_key,
            asked["inviteId"],
            asked["psk"],
            alias=asked["name"],
            scope=next(scope for scope in wire.SCOPES if scope == asked["scope"]),
            ttl_s=asked["ttlS"],
        )
        return {"expiresAt": iso(made.expires_at)}

    async def _unlock(self, asked: wire.UnlockRequest) -> wire.Unlocked:
        caller = self._session.caller_now()
        await self._require_device(caller)
        may_change = await asyncio.to_thread(self._desk.may_decide, self._session.caller_now())
        caller = self._session.caller_now()
        try:
            await self._spaces.unlock(caller.space_id, asked["keys"], may_change=may_change and caller.grants.may_write)
        except WrongKeyError as error:
            raise RequestError("invalid", error.message, error.hint) from error
        return {"isLocked": self._spaces.is_locked(caller.space_id)}

    async def _require_device(self, caller: Caller) -> Roster:
        roster = await self._current(caller.space_id)
        if roster is None or caller.public_key not in roster.devices:
            hint = f"approve it on one of them first: confide device approve {shlex.quote(caller.alias)}"
            raise GrantError("this device is not among the devices of its space", hint=hint)
        return roster

    async def _current(self, space_id: str) -> Roster | None:
        return await asyncio.to_thread(self._desk.rosters.current, space_id)

    async def _waiting(self, caller: Caller, roster: Roster | None) -> list[WaitingDevice]:
        """Return the devices that wait for approval; a caller that is not on the roster sees only
        itself.
        """
        found = await asyncio.to_thread(self._desk.pairings.waiting, caller.space_id, roster)
        is_device = roster is not None and caller.public_key in roster.devices
        return [one for one in found if is_device or one.key == caller.public_key]


def _number(roster: Roster | None) -> int:
    return roster.pin.number if roster is not None else -1


def _epoch(roster: Roster | None) -> int:
    return roster.epoch if roster is not None else 0


def _page(roster: Roster, since: int) -> list[bytes]:
    found: list[bytes] = []
    size = 0
    for entry in roster.entries[since:]:
        data = entry.encode()
        size += len(data)
        if size > PAGE_BYTES:
            break
        found.append(data)
    return found


def _check_card(card: Card, key: bytes) -> None:
    """Raise RequestError for a card that no device could add, so that no person is shown it."""
    try:
        if card.key != key or not card.verify():
            raise RequestError("invalid", "the card is not this device's")
        check_wrap_key(card.wrap_key)
    except WrapError as error:
        raise RequestError("invalid", error.message, error.hint) from error
