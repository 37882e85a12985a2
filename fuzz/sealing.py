"""What a daemon hands to a device, and a person types, of sealed secrets (PROTOCOL.md 10).

Behind signatures and MACs too: they are made right for changed bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.support.sealing.rosters import DESKTOP, LAPTOP, NOW, PHONE, device, encoded, shared

from confide_crypto.errors import InviteError, PairingError, RecoveryCodeError, RosterError, SealingError, WrapError
from confide_crypto.sealing import placeholder
from confide_crypto.sealing.pairing import DeviceInvite, Pair, parse_invite
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card
from confide_crypto.sealing.space_keys import WrapKey
from fuzz.supply import Supply

_KNOWN, _KEYS = shared()
_ADDED = encoded(_KNOWN.add(DESKTOP, device(PHONE, "phone"), _KEYS, now=NOW))[-1]
_ROTATED = encoded(_KNOWN.rotate(DESKTOP, _KEYS, now=NOW)[0])[-1]
_RECORD = SealedRecord.seal(_KEYS, "github-token", b"ghp_0123456789").encode()
_MARK = str(placeholder.Placeholder("github-token", bytes(range(16)))).encode()
_CODE = RecoveryCode(bytes(range(20))).to_string().encode()
_INVITE = DeviceInvite.new(bytes(32), "confide://h:1/").to_string().encode()
_PAIR = Pair(bytes(16), bytes(range(16)))
_CARD = Card.of(PHONE)
_LAPTOP = WrapKey(LAPTOP)
_SIGNATURE: Final = 64
_LABEL: Final = b"confide/roster-entry/1"


def sealing(data: bytes) -> None:
    """Refused with an error that the function names, or something that is written and read to the same."""
    supply = Supply(data)
    match supply.number() % 7:
        case 0:
            _record(supply.edited(_RECORD))
        case 1:
            _entry(supply.edited(supply.choice((_ADDED, _ROTATED))))
        case 2:
            body = supply.edited(supply.choice((_ADDED, _ROTATED))[:-_SIGNATURE])
            _entry(body + DESKTOP.sign(_LABEL, body))
        case 3:
            _pairing(supply.edited(_CARD.encode(), keeps_length=True))
        case 4:
            _code(_text(supply.edited(_CODE)))
        case 5:
            _invite(_text(supply.edited(_INVITE)))
        case _:
            _placeholders(_text(supply.edited(_MARK * 3)))


def _record(data: bytes) -> None:
    try:
        record = SealedRecord.parse(data)
        if record.encode() != data:
            raise AssertionError("a record that is written as another")
        record.open(_KEYS)
    except SealingError:
        return
    if data != _RECORD:
        raise AssertionError("a changed record opens")


def _entry(data: bytes) -> None:
    try:
        roster = _KNOWN.extend([data])
    except RosterError:
        return
    if roster.entries[-1].encode() != data or Roster.read(encoded(roster)) != roster:
        raise AssertionError("an entry that is written as another")
    if LAPTOP.public_key not in roster.devices:
        return
    try:
        keys = roster.open(_LAPTOP)
    except WrapError:
        return  # whoever signs can wrap what does not open
    if keys.epochs[: _KEYS.epoch] != _KEYS.epochs:
        raise AssertionError("an old epoch got another key")


def _pairing(card: bytes) -> None:
    try:
        found = _PAIR.read_request(_PAIR.request(Card.parse(card)))
    except PairingError:
        return
    if found.encode() != card or not found.verify():
        raise AssertionError("a card that its device has not signed")


def _code(text: str) -> None:
    try:
        code = RecoveryCode.parse(text)
    except RecoveryCodeError as error:
        if _CODE[6:11].decode() in f"{error}{error.hint}{error!r}":
            raise AssertionError("an error quotes the code") from None
        return
    if RecoveryCode.parse(code.to_string()) != code:
        raise AssertionError("a code that is written as another")


def _invite(text: str) -> None:
    try:
        invite, pair = parse_invite(text)
    except InviteError:
        return
    if pair is not None and parse_invite(DeviceInvite(invite, pair.secret).to_string()) != (invite, pair):
        raise AssertionError("an invite that is written as another")


def _placeholders(text: str) -> None:
    for start, end, found in placeholder.find(text):
        if text[start:end] != str(found):
            raise AssertionError("a placeholder that is written as another")
    if placeholder.replace(text, str) != text:
        raise AssertionError("a text that is not put together again")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def seeds() -> Iterator[bytes]:
    """Good ones of each kind, and each kind of edit."""
    for kind in range(7):
        yield bytes([kind])
        yield bytes([kind, 1])
        yield bytes([kind, 0, 1, 0, 30, 5])
        yield bytes([kind, 1, 3, 0, 60, 2])
    for place in (1, 21, 54, 62, 94, 1406, 1407, 1408):  # what an entry's parts begin with
        yield bytes([2, 0, 1]) + place.to_bytes(2, "big") + b"\1"
        yield bytes([2, 1, 0]) + place.to_bytes(2, "big") + b"\2"
