"""What a device asks a daemon about its space's roster (PROTOCOL.md 9, 10), and how what it shows stands to the roster that is known:
it goes on, has lost something, or is another (10.6)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from confide_crypto.errors import RequestError, WithheldRosterError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import MAX_NAME, Identity
from confide_crypto.sealing.roster import MAX_ENTRIES, Pin, Roster
from confide_crypto.sealing.roster_entry import CARD_LENGTH, Card, RosterEntry
from confide_memory.documents import RequestChannel
from confide_memory.wire.sealing import (
    EXTEND,
    INVITE,
    PAIR,
    PAIR_ANSWER,
    RECORD_LIST,
    ROSTER,
    UNLOCK,
    InviteRequest,
    PairingRequest,
    RecordListRequest,
    RecordRow,
)
from confide_memory.wire.sealing import RosterAnswer as RosterAnswer
from confide_proxy.errors import UnfitAnswerError

log = logging.getLogger(__name__)

DEADLINE_S: Final = 20.0
_CARD_AT: Final = 1 + 16
"""Of the card in a pair request: behind version and invite id."""
_PAGE: Final = 1000
_MOST_RECORDS: Final = 2_000_000
"""That a list may name: more than a space has, and less than keeps a command busy for ever."""
_RESTORED: Final = (
    "the daemon may have been restored from an old copy: connect with the device that began the space, or that "
    "made the last change"
)


@dataclass(frozen=True, slots=True)
class Joiner:
    """A machine that reaches the space and is not on its roster.

    Attributes:
        key: its Ed25519 key, 32 bytes, which the daemon has seen it prove.
        name: what the daemon calls it.
        card: what it shows of itself, not yet verified; None while it has shown nothing.
        request: the same with the proof of a pair secret, where it joined with one.
    """

    key: bytes
    name: str
    card: Card | None
    request: bytes | None


@dataclass(frozen=True, slots=True)
class ShownRoster:
    """A roster as the daemon shows it.

    Attributes:
        space: the id that the daemon gives the space.
        entries: those that were asked for.
        number: of the newest, -1 where there is none.
        head: the hash of the newest, b"" where there is none.
        custody: whether the daemon keeps the key of the space's database itself: "server" or "caller".
        is_locked: it waits for that key.
        needs: the epochs whose database keys it wants.
        waiting: who is not on the roster yet.
    """

    space: str
    entries: tuple[bytes, ...]
    number: int
    head: bytes
    custody: str
    is_locked: bool
    needs: tuple[int, ...]
    waiting: tuple[Joiner, ...]


async def roster(link: RequestChannel, since: int) -> ShownRoster:
    """The roster's entries from number `since` on, however many answers they take.

    Raises RequestError, ConnectionLost, TimeoutError: from the link; UnfitAnswerError: the answer has not the form that it should.
    """
    entries: tuple[bytes, ...] = ()
    while True:
        shown = _shown(await ROSTER.ask(link, {"from": since + len(entries)}, timeout_s=DEADLINE_S))
        entries += shown.entries
        if since + len(entries) > shown.number:
            return replace(shown, entries=entries)
        if not shown.entries or len(entries) > MAX_ENTRIES:
            raise UnfitAnswerError


async def extend(link: RequestChannel, entry: RosterEntry) -> None:
    """Have the daemon take an entry. Raises RequestError: `conflict` if the roster has gone on meanwhile."""
    await EXTEND.ask(link, {"entry": entry.encode()}, timeout_s=DEADLINE_S)


async def pair(link: RequestChannel, *, request: bytes | None = None, card: Card | None = None) -> bytes | None:
    """Show this machine to the devices, as one with a pair secret or as one without; the answer, if a device has given one."""
    body: PairingRequest = {"request": request} if request is not None else {"card": card.encode() if card else None}
    return (await PAIR.ask(link, body, timeout_s=DEADLINE_S))["answer"]


async def pair_answer(link: RequestChannel, key: bytes, answer: bytes) -> None:
    """Answer a machine that has joined with a pair secret."""
    await PAIR_ANSWER.ask(link, {"key": key, "answer": answer}, timeout_s=DEADLINE_S)


async def unlock(link: RequestChannel, keys: Mapping[int, bytes]) -> bool:
    """Hand over database keys by epoch; whether the space is locked still."""
    return (await UNLOCK.ask(link, {"keys": dict(keys)}, timeout_s=DEADLINE_S))["isLocked"]


async def invite(link: RequestChannel, invite: Invite, *, name: str, ttl_s: int, scope: str) -> float:
    """Let a machine into the space with an invite that this machine has drawn; until when, in seconds since 1970."""
    body: InviteRequest = {
        "inviteId": invite.invite_id,
        "psk": invite.invite_psk,
        "name": name,
        "ttlS": ttl_s,
        "scope": scope,
    }
    answer = await INVITE.ask(link, body, timeout_s=DEADLINE_S)
    return datetime.fromisoformat(answer["expiresAt"]).timestamp()


async def records(
    link: RequestChannel, *, below: int | None = None, page: int = _PAGE
) -> AsyncIterator[list[RecordRow]]:
    """The list of the space's records, page by page in the order of their ids: `id` in hex, `kind`, `epoch`, `at`.

    `below`: of epochs before this one.

    Raises RequestError, ConnectionLost, TimeoutError: from the link; UnfitAnswerError: it is no list, or one that has no end.
    """
    after: str | None = ""
    listed = 0
    while after is not None:
        body: RecordListRequest = {"after": bytes.fromhex(after), "limit": page, "below": below}
        answer = await RECORD_LIST.ask(link, body, timeout_s=DEADLINE_S)
        found, following = answer["records"], answer["next"]
        listed += len(found)
        if following is not None and (following <= after or not found or listed > _MOST_RECORDS):
            raise UnfitAnswerError
        yield found
        after = following


def _shown(answer: RosterAnswer) -> ShownRoster:
    if bool(answer["head"]) != (answer["number"] >= 0):
        raise UnfitAnswerError
    return ShownRoster(
        space=answer["space"],
        entries=tuple(answer["entries"]),
        number=answer["number"],
        head=answer["head"],
        custody=answer["custody"],
        is_locked=answer["isLocked"],
        needs=tuple(answer["needs"]),
        waiting=tuple(_joiner(**one) for one in answer["waiting"]),
    )


def _joiner(key: bytes, name: str, card: bytes | None, request: bytes | None) -> Joiner:
    if card is None and request is not None:
        card = request[_CARD_AT : _CARD_AT + CARD_LENGTH]
    name = "".join(letter for letter in name if letter.isprintable())[: MAX_NAME // 2]
    return Joiner(key, name or key.hex()[:8], Card.parse(card) if card else None, request)


async def continued(link: RequestChannel, known: Roster, shown: ShownRoster) -> tuple[Roster, ShownRoster]:
    """What is known with the daemon's news behind it, and what it shows now. A daemon that knows less, and nothing else, is told the rest.

    Raises:
        ForkedRosterError and others of RosterError: it shows another history.
        WithheldRosterError: it shows less, and does not take the rest.
        RequestError, ConnectionLost, TimeoutError: from the link.
    """
    newest = len(known.entries) - 1
    if shown.number < newest:
        _check(known, shown)
        log.warning("the daemon has lost %d changes to the list of devices; sending them again", newest - shown.number)
        await _send_again(link, known, shown.number + 1)
        shown = await roster(link, len(known.entries))
        if shown.number < newest:
            raise WithheldRosterError("the newest changes to the list of devices are missing", hint=_RESTORED)
    _check(known, shown)
    return await asyncio.to_thread(known.extend, shown.entries), shown


async def founded(link: RequestChannel, identity: Identity, name: str) -> Roster | None:
    """The beginning of a space that has no roster, with this machine as its only device; None if another one was first.

    Raises RequestError, ConnectionLost, TimeoutError: from the link; `denied` where this machine may not write.
    """
    made, _ = await asyncio.to_thread(Roster.found, identity, name, now=int(time.time()))
    try:
        await extend(link, made.entries[0])
    except RequestError as error:
        if error.code == "conflict":
            return None
        raise
    return made


def is_known(roster: Roster, pin: Pin | None, identity: Identity) -> bool:
    """Whether there is a reason to believe a whole roster that is shown: what this machine has seen of it, or that it began it.

    Raises RosterError: it is not what this machine has seen.
    """
    if pin is not None:
        roster.check(pin)
        return True
    # One's own genesis without a pin: a crash came between the daemon's answer and the pin. Nothing can have followed it then; what has
    # says nothing about its age.
    return len(roster.entries) == 1 and roster.entries[0].signer == identity.public_key


def withheld() -> WithheldRosterError:
    """There is a roster, and the daemon shows none."""
    return WithheldRosterError("the daemon does not show the devices of this space", hint=_RESTORED)


def _check(known: Roster, shown: ShownRoster) -> None:
    """Check that its newest entry is the known one of that number, if there is one of that number."""
    if 0 <= shown.number < len(known.entries):
        known.check(Pin(known.space, shown.number, shown.head))


async def _send_again(link: RequestChannel, known: Roster, since: int) -> None:
    for entry in known.entries[since:]:
        try:
            await extend(link, entry)
        except RequestError as error:
            if error.code == "conflict":  # another device tells it the same
                continue
            problem = "the daemon has lost the newest changes to the list of devices, and does not take them again"
            raise WithheldRosterError(problem, hint=_RESTORED) from error
