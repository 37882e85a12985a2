"""A device's requests about its space's roster (PROTOCOL.md 9, 10), and the comparison of the
daemon's roster with the one that this device knows: the daemon's continues it, lacks entries, or
forks from it (10.6).
"""

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
    EndedCaller,
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
"""Offset of the card in a pair request, after version and invite id."""
_PAGE: Final = 1000
_MOST_RECORDS: Final = 2_000_000
"""Most records in a list: more than a space has, but finite, so that a command always ends."""
_RESTORED: Final = (
    "the daemon may have been restored from an old copy: connect with the device that began the space, or that "
    "made the last change"
)


@dataclass(frozen=True, slots=True)
class Joiner:
    """A device that can connect to the space's daemon but is not on its roster yet.

    Attributes:
        key: its authenticated Ed25519 key, 32 bytes.
        name: the daemon's name for it.
        card: its card (its public keys), not verified yet; None if it has sent none.
        request: the card with a proof of an invite's pair secret; None if it joined without one.
    """

    key: bytes
    name: str
    card: Card | None
    request: bytes | None


@dataclass(frozen=True, slots=True)
class ShownRoster:
    """A roster as the daemon shows it.

    Attributes:
        space: id that the daemon gives the space.
        entries: the requested entries.
        number: number of the newest entry; -1 if there are no entries.
        head: hash of the newest entry; b"" if there are no entries.
        custody: "server" if the daemon keeps the key of the space's database itself, else "caller".
        is_locked: True while the daemon waits for a device to send that key.
        needs: epochs whose database keys the daemon needs.
        waiting: devices that aren't on the roster yet.
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
    """Fetch the roster's entries from number `since` on, in as many requests as needed.

    Raises RequestError, ConnectionLost or TimeoutError if a request fails; UnfitAnswerError if an
    answer is invalid.
    """
    entries: tuple[bytes, ...] = ()
    while True:
        shown = _parse_roster(await ROSTER.ask(link, {"from": since + len(entries)}, timeout_s=DEADLINE_S))
        entries += shown.entries
        if since + len(entries) > shown.number:
            return replace(shown, entries=entries)
        if not shown.entries or len(entries) > MAX_ENTRIES:
            raise UnfitAnswerError


async def extend(link: RequestChannel, entry: RosterEntry) -> list[EndedCaller] | None:
    """Send a new entry of the roster to the daemon. Return the devices and apps whose access it has
    ended; None if the daemon does not say, or if the removed device may still connect.

    Raises RequestError if the daemon refuses the entry; the error's code is `conflict` if the
    roster has changed meanwhile.
    """
    return (await EXTEND.ask(link, {"entry": entry.encode()}, timeout_s=DEADLINE_S)).get("ended")


async def pair(link: RequestChannel, *, request: bytes | None = None, card: Card | None = None) -> bytes | None:
    """Announce this device to the others of the space, and return the inviting device's answer, or
    None if there is none yet.

    Args:
        request: its card with a proof of the invite's pair secret.
        card: its card alone, if it has no such secret.
    """
    body: PairingRequest = {"request": request} if request is not None else {"card": card.encode() if card else None}
    return (await PAIR.ask(link, body, timeout_s=DEADLINE_S))["answer"]


async def pair_answer(link: RequestChannel, key: bytes, answer: bytes) -> None:
    """Send the answer for a device that has joined with an invite's pair secret to the daemon,
    which passes it on.
    """
    await PAIR_ANSWER.ask(link, {"key": key, "answer": answer}, timeout_s=DEADLINE_S)


async def unlock(link: RequestChannel, keys: Mapping[int, bytes]) -> bool:
    """Send database keys, by epoch, to the daemon of a locked space. Return True if the space is
    still locked.
    """
    return (await UNLOCK.ask(link, {"keys": dict(keys)}, timeout_s=DEADLINE_S))["isLocked"]


async def invite(link: RequestChannel, invite: Invite, *, name: str, ttl_s: int, scope: str) -> float:
    """Register an invite that this device has made with the daemon. Return its expiry in seconds
    since 1970.
    """
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
    """Yield a list of the space's sealed records, page by page in the order of their ids. A row has
    `id` in hex, `kind`, `epoch` and `at`.

    Args:
        below: list only records of epochs before this one; None for all.

    Raises RequestError, ConnectionLost or TimeoutError if a request fails; UnfitAnswerError if the
    list is invalid or endless.
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


def _parse_roster(answer: RosterAnswer) -> ShownRoster:
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


async def fetch_entries(link: RequestChannel, known: Roster, shown: ShownRoster) -> tuple[Roster, ShownRoster]:
    """Return the known roster extended by the daemon's new entries, and the daemon's current
    answer. If the daemon only lacks entries that this device knows, send these to it.

    Raises:
        ForkedRosterError and others of RosterError: the daemon's roster does not continue the known
            one.
        WithheldRosterError: the daemon lacks entries and does not accept them.
        RequestError, ConnectionLost, TimeoutError: a request fails.
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


async def create_roster(link: RequestChannel, identity: Identity, name: str) -> Roster | None:
    """Create the roster of a new space with this device as its only one. Return None if another
    device has created one first.

    Raises RequestError, ConnectionLost or TimeoutError if a request fails; the code of a
    RequestError is `denied` if this device may not write.
    """
    made, _ = await asyncio.to_thread(Roster.create, identity, name, now=int(time.time()))
    try:
        await extend(link, made.entries[0])
    except RequestError as error:
        if error.code == "conflict":
            return None
        raise
    return made


def is_known(roster: Roster, pin: Pin | None, identity: Identity) -> bool:
    """Return True if this device may trust a whole roster, since it has seen it before, or has
    founded the space.

    Raises RosterError if it contradicts what this device has seen.
    """
    if pin is not None:
        roster.check(pin)
        return True
    # This device's own genesis without a pin: a crash happened between the daemon's answer and the
    # pin. Nothing can have followed it then, and a roster that has followers may be outdated.
    return len(roster.entries) == 1 and roster.entries[0].signer == identity.public_key


def withheld() -> WithheldRosterError:
    """Make the error for a daemon that does not show a roster that is known to exist."""
    return WithheldRosterError("the daemon does not show the devices of this space", hint=_RESTORED)


def _check(known: Roster, shown: ShownRoster) -> None:
    """Check that the daemon's newest entry equals the known one of the same number, if there is
    one.
    """
    if 0 <= shown.number < len(known.entries):
        known.check(Pin(known.space, shown.number, shown.head))


async def _send_again(link: RequestChannel, known: Roster, since: int) -> None:
    for entry in known.entries[since:]:
        try:
            await extend(link, entry)
        except RequestError as error:
            if error.code == "conflict":  # another device sent the same entry
                continue
            problem = "the daemon has lost the newest changes to the list of devices, and does not take them again"
            raise WithheldRosterError(problem, hint=_RESTORED) from error
