"""What a device asks a daemon about its space's roster, and the answers, of which nothing is believed yet (PROTOCOL.md 9, 10)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import KEY_LENGTH, MAX_NAME
from confide_crypto.sealing.pairing import REQUEST_LENGTH
from confide_crypto.sealing.roster import MAX_ENTRIES
from confide_crypto.sealing.roster_entry import CARD_LENGTH, HASH_LENGTH, MAX_ENTRY_BYTES, Card, Entry
from confide_proxy.errors import UnfitAnswerError

if TYPE_CHECKING:
    from confide_memory.wire.document_body import Asks

DEADLINE_S: Final = 20.0
_CARD_AT: Final = 1 + 16
"""Of the card in a pair request: behind version and invite id."""
_MOST_WAITING: Final = 256


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
class Shown:
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


async def roster(link: Asks, since: int) -> Shown:
    """The roster's entries from number `since` on, however many answers they take.

    Raises:
        RequestError, ConnectionLost, TimeoutError: from the link.
        UnfitAnswerError: the answer has not the form that it should.
    """
    entries: tuple[bytes, ...] = ()
    while True:
        answer = await link.request("roster", {"from": since + len(entries)}, timeout_s=DEADLINE_S)
        shown = _read(answer)
        entries += shown.entries
        if since + len(entries) > shown.number:
            return replace(shown, entries=entries)
        if not shown.entries or len(entries) > MAX_ENTRIES:
            raise UnfitAnswerError


async def extend(link: Asks, entry: Entry) -> None:
    """Have the daemon take an entry. Raises RequestError: `conflict` if the roster has gone on meanwhile."""
    await link.request("extend", {"entry": _text(entry.encode())}, timeout_s=DEADLINE_S)


async def pair(link: Asks, *, request: bytes | None = None, card: Card | None = None) -> bytes | None:
    """Show this machine to the devices, as one with a pair secret or as one without; the answer, if a device has given one."""
    body = {"request": _text(request)} if request is not None else {"card": _text(card.encode()) if card else ""}
    answer = (await link.request("pair", body, timeout_s=DEADLINE_S)).get("answer")
    try:
        return None if answer is None else _bytes(answer)
    except (TypeError, ValueError) as error:
        raise UnfitAnswerError from error


async def pair_answer(link: Asks, key: bytes, answer: bytes) -> None:
    """Answer a machine that has joined with a pair secret."""
    await link.request("pair-answer", {"key": key.hex(), "answer": _text(answer)}, timeout_s=DEADLINE_S)


async def unlock(link: Asks, keys: Mapping[int, bytes]) -> bool:
    """Hand over database keys by epoch; whether the space is locked still."""
    body = {"keys": {str(epoch): _text(key) for epoch, key in keys.items()}}
    return (await link.request("unlock", body, timeout_s=DEADLINE_S)).get("isLocked") is not False


async def invite(link: Asks, invite: Invite, *, name: str, ttl_s: int, scope: str) -> float:
    """Let a machine into the space with an invite that this machine has drawn; until when, in seconds since 1970."""
    named = {"inviteId": invite.invite_id.hex(), "psk": invite.invite_psk.hex(), "name": name}
    answer = await link.request("invite", {**named, "ttlS": ttl_s, "scope": scope}, timeout_s=DEADLINE_S)
    try:
        return datetime.fromisoformat(answer["expiresAt"]).timestamp()
    except (KeyError, TypeError, ValueError) as error:
        raise UnfitAnswerError from error


def _read(answer: dict[str, Any]) -> Shown:
    try:
        entries = tuple(_bytes(entry, MAX_ENTRY_BYTES) for entry in _list(answer["entries"], MAX_ENTRIES))
        number, head = _number(answer["number"], -1), bytes.fromhex(answer["head"])
        if len(head) != (HASH_LENGTH if number >= 0 else 0) or answer["custody"] not in ("server", "caller"):
            raise UnfitAnswerError
        needs = tuple(_number(epoch, 1) for epoch in _list(answer["needs"], MAX_ENTRIES))
        waiting = tuple(_joiner(each) for each in _list(answer["waiting"], _MOST_WAITING))
        is_locked = answer["isLocked"] is True
        return Shown(str(answer["space"]), entries, number, head, answer["custody"], is_locked, needs, waiting)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnfitAnswerError from error


def _joiner(record: dict[str, Any]) -> Joiner:
    key = bytes.fromhex(record["key"])
    request = None if record.get("request") is None else _bytes(record["request"], REQUEST_LENGTH)
    shown = None if record.get("card") is None else _bytes(record["card"], CARD_LENGTH)
    if shown is None and request is not None:
        shown = request[_CARD_AT : _CARD_AT + CARD_LENGTH]
    if len(key) != KEY_LENGTH:
        raise UnfitAnswerError
    name = "".join(letter for letter in str(record["name"]) if letter.isprintable())[: MAX_NAME // 2]
    return Joiner(key, name or key.hex()[:8], Card.parse(shown) if shown else None, request)


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise UnfitAnswerError
    return value


def _number(value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < MAX_ENTRIES:
        raise UnfitAnswerError
    return value


def _bytes(value: Any, most_bytes: int = MAX_ENTRY_BYTES) -> bytes:
    data = b64decode(value, validate=True)
    if len(data) > most_bytes:
        raise UnfitAnswerError
    return data


def _text(data: bytes) -> str:
    return b64encode(data).decode()
