"""Pairing: a device joins a space without the daemon in between being trusted (PROTOCOL.md 10.7).

The string that `confide device invite` prints has a second secret, which the daemon never sees. Each side shows the other by a MAC
that it has it: the new device with its card, the old one with the roster that the card has been added to.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final, Self

from confide_crypto.errors import PairingError
from confide_crypto.handshake.invite import INVITE_ID_LENGTH, INVITE_PREFIX, Invite
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.encoding import Cursor, labelled, u32
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.roster_entry import CARD_LENGTH, HASH_LENGTH, Card
from confide_crypto.sealing.space_keys import SPACE_ID_LENGTH

PAIR_SECRET_LENGTH: Final = 16
_VERSION: Final = 1
_MAC_LENGTH: Final = 32
_REQUEST_PERSON: Final = b"confide-pair-r-1"
_ANSWER_PERSON: Final = b"confide-pair-a-1"
_REQUEST_LABEL: Final = b"confide/pair-request/1"
_ANSWER_LABEL: Final = b"confide/pair-answer/1"
_PLAIN_LENGTH: Final = 1 + 32 + 16
REQUEST_LENGTH: Final = 1 + INVITE_ID_LENGTH + CARD_LENGTH + _MAC_LENGTH
ANSWER_LENGTH: Final = 1 + INVITE_ID_LENGTH + SPACE_ID_LENGTH + 4 + HASH_LENGTH + _MAC_LENGTH


@dataclass(frozen=True, slots=True)
class Pair:
    """What the two devices share, and nobody else."""

    invite_id: bytes  # of the invite that brought the secret, 16 bytes; the daemon knows it
    secret: bytes = field(repr=False)  # 16 random bytes, used for one device

    def request(self, card: Card) -> bytes:
        """What the new device sends, 1361 bytes: its card, and that it has the secret."""
        return bytes([_VERSION]) + self.invite_id + card.encode() + self._request_mac(card.encode())

    def read_request(self, message: bytes) -> Card:
        """The new device's card. Who adds it to the roster forgets the secret with that: a second device must not come in by it.

        Raises PairingError: it was not made with this secret, for this invite, or was changed.
        """
        body = self._body(message, REQUEST_LENGTH)
        card = body.take(CARD_LENGTH)
        if not hmac.compare_digest(self._request_mac(card), body.rest()):
            raise _refused()
        found = Card.parse(card)
        if not found.verify():
            raise _refused()
        return found

    def answer(self, card: Card, roster: Roster) -> bytes:
        """What the old device sends back once the card's device is on `roster`, 101 bytes: which space and which history to believe."""
        if roster.devices[card.key].card != card:
            raise ValueError("the roster has another card")
        shown = (roster.space, u32(roster.pin.number), roster.head)
        return bytes([_VERSION]) + self.invite_id + b"".join(shown) + self._answer_mac(card, *shown)

    def read_answer(self, message: bytes, card: Card) -> Pin:
        """The first pin of the new device, whose card was sent. `accept` checks a roster against it.

        Raises PairingError: it was not made with this secret, or is about another card.
        """
        body = self._body(message, ANSWER_LENGTH)
        space, number, head = (body.take(size) for size in (SPACE_ID_LENGTH, 4, HASH_LENGTH))
        if not hmac.compare_digest(self._answer_mac(card, space, number, head), body.rest()):
            raise _refused()
        return Pin(space, int.from_bytes(number, "big"), head)

    def accept(self, message: bytes, identity: Identity, roster: Roster) -> Pin:
        """The pin to keep, if `roster`, as the daemon shows it, is what the old device answered, and this machine is on it.

        Raises PairingError: the answer is not good, or the roster has not this machine; RosterError: the roster is not that of the answer.
        """
        roster.check(self.read_answer(message, Card.of(identity)))
        if identity.public_key not in roster.devices:
            raise PairingError("this machine is no longer among the devices of the space", hint="ask for a new invite")
        return roster.pin

    def _body(self, message: bytes, length: int) -> Cursor:
        if len(message) != length:
            raise _refused()
        cursor = Cursor(message)
        if cursor.number(1) != _VERSION or cursor.take(INVITE_ID_LENGTH) != self.invite_id:
            raise _refused()
        return cursor

    def _request_mac(self, card: bytes) -> bytes:
        return self._mac(_REQUEST_PERSON, labelled(_REQUEST_LABEL, self.invite_id, card))

    def _answer_mac(self, card: Card, *shown: bytes) -> bytes:
        return self._mac(_ANSWER_PERSON, labelled(_ANSWER_LABEL, self.invite_id, card.encode(), *shown))

    def _mac(self, person: bytes, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self.secret, person=person, digest_size=_MAC_LENGTH).digest()


@dataclass(frozen=True, slots=True)
class DeviceInvite:
    """An invite as a device makes it: the daemon's, with a pair secret behind the token. `str` and `repr` show no secret."""

    invite: Invite  # what the daemon knows of it
    pair_secret: bytes = field(repr=False)  # 16 random bytes that the daemon never sees

    @classmethod
    def new(cls, daemon_static: bytes, url: str) -> Self:
        """A fresh one. The device that makes it registers `invite.invite_id` and `invite.invite_psk` with the daemon.

        Raises InviteError: `url` is no address of a daemon.
        """
        return cls(Invite.new(daemon_static, url), secrets.token_bytes(PAIR_SECRET_LENGTH))

    @property
    def pair(self) -> Pair:
        return Pair(self.invite.invite_id, self.pair_secret)

    def to_string(self) -> str:
        """The secret form, to be shown once to the person who passes it on."""
        address, _, fragment = self.invite.to_string().partition("#")
        _, plain = bech32m.decode(fragment)
        return f"{address}#{bech32m.encode(INVITE_PREFIX, plain + self.pair_secret)}"

    def __str__(self) -> str:
        return f"device {self.invite}"


def parse_invite(text: str) -> tuple[Invite, Pair | None]:
    """A pasted invite of either kind; with what is shared with the device that made it, if a device did.

    Raises InviteError: it is damaged, or made for another version.
    """
    # An invite with a pair secret is one of the daemon's with 16 more bytes: what it is without them is for `Invite` to judge.
    address, _, fragment = text.strip().strip("'\"").partition("#")
    try:
        prefix, data = bech32m.decode(fragment)
    except ValueError:
        return Invite.parse(text), None  # which says what is wrong
    if len(data) != _PLAIN_LENGTH + PAIR_SECRET_LENGTH:
        return Invite.parse(text), None
    invite = Invite.parse(f"{address}#{bech32m.encode(prefix, data[:_PLAIN_LENGTH])}")
    return invite, Pair(invite.invite_id, data[_PLAIN_LENGTH:])


def _refused() -> PairingError:
    return PairingError(
        "the other machine has not shown that it has this invite's secret",
        hint="make a new one with confide device invite; if it happens again, somebody in between tries to join",
    )
