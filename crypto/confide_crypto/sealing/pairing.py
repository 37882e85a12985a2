"""Pairing: a device joins a space although neither device trusts the daemon between them
(PROTOCOL.md 10.7).

The invite that `confide device invite` prints contains a second secret, the pair secret, which the
daemon never sees. Each device proves by a MAC that it holds this secret: the new device over its
card (its public keys), the old one over the roster (list of devices) to which it added the card.
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
from confide_crypto.sealing.encoding import Cursor, join_labelled, u32
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
    """The secret that the two devices of a pairing share, with the invite that it belongs to."""

    invite_id: bytes  # id of the invite that carried the secret, 16 bytes; the daemon knows it
    secret: bytes = field(repr=False)  # 16 random bytes, used for one device only

    def request(self, card: Card) -> bytes:
        """Return the new device's message, 1361 bytes: its card (its public keys), and a MAC that
        proves that it holds the pair secret.
        """
        return bytes([_VERSION]) + self.invite_id + card.encode() + self._request_mac(card.encode())

    def read_request(self, message: bytes) -> Card:
        """Return the card (the public keys) of the new device from its message.

        Delete the pair secret when you add the card to the roster, so that no second device can
        join with it.

        Raises PairingError if the message was not made with this secret for this invite, or was
        changed.
        """
        body = self._body(message, REQUEST_LENGTH)
        card = body.take(CARD_LENGTH)
        if not hmac.compare_digest(self._request_mac(card), body.rest()):
            raise _refusal()
        found = Card.parse(card)
        if not found.verify():
            raise _refusal()
        return found

    def answer(self, card: Card, roster: Roster) -> bytes:
        """Return the old device's answer, 101 bytes: the space, and the state of its device list
        that the new device must trust. Call it once the new device is on `roster`.
        """
        if roster.devices[card.key].card != card:
            raise ValueError("the roster has another card")
        shown = (roster.space, u32(roster.pin.number), roster.head)
        return bytes([_VERSION]) + self.invite_id + b"".join(shown) + self._answer_mac(card, *shown)

    def read_answer(self, message: bytes, card: Card) -> Pin:
        """Return the roster state that the answer commits to; the new device, which sent `card`,
        checks the daemon's roster against it with `accept`.

        Raises PairingError if the answer was not made with this secret, or is about another card.
        """
        body = self._body(message, ANSWER_LENGTH)
        space, number, head = (body.take(size) for size in (SPACE_ID_LENGTH, 4, HASH_LENGTH))
        if not hmac.compare_digest(self._answer_mac(card, space, number, head), body.rest()):
            raise _refusal()
        return Pin(space, int.from_bytes(number, "big"), head)

    def accept(self, message: bytes, identity: Identity, roster: Roster) -> Pin:
        """Return the roster state that the new device must store and trust from now on.

        Before that, check that `roster`, as the daemon sent it, contains this device and matches
        the old device's answer.

        Raises PairingError if the answer is not valid, or this device is not on the roster;
        RosterError if the answer is about another roster.
        """
        roster.check(self.read_answer(message, Card.of(identity)))
        if identity.public_key not in roster.devices:
            raise PairingError("this device is no longer among the devices of the space", hint="ask for a new invite")
        return roster.pin

    def _body(self, message: bytes, length: int) -> Cursor:
        if len(message) != length:
            raise _refusal()
        cursor = Cursor(message)
        if cursor.number(1) != _VERSION or cursor.take(INVITE_ID_LENGTH) != self.invite_id:
            raise _refusal()
        return cursor

    def _request_mac(self, card: bytes) -> bytes:
        return self._mac(_REQUEST_PERSON, join_labelled(_REQUEST_LABEL, self.invite_id, card))

    def _answer_mac(self, card: Card, *shown: bytes) -> bytes:
        return self._mac(_ANSWER_PERSON, join_labelled(_ANSWER_LABEL, self.invite_id, card.encode(), *shown))

    def _mac(self, person: bytes, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self.secret, person=person, digest_size=_MAC_LENGTH).digest()


@dataclass(frozen=True, slots=True)
class DeviceInvite:
    """An invite made by a device: an invite to the daemon, with the pair secret appended to the
    token.

    `str` and `repr` show no secret.
    """

    invite: Invite  # the part that the daemon knows
    pair_secret: bytes = field(repr=False)  # 16 random bytes that the daemon never sees

    @classmethod
    def new(cls, daemon_static: bytes, url: str) -> Self:
        """Create an invite.

        The device that creates it must register `invite.invite_id` and `invite.invite_psk` with the
        daemon. Raises InviteError if `url` is not the address of a daemon.
        """
        return cls(Invite.new(daemon_static, url), secrets.token_bytes(PAIR_SECRET_LENGTH))

    @property
    def pair(self) -> Pair:
        return Pair(self.invite.invite_id, self.pair_secret)

    def to_string(self) -> str:
        """Return the invite with its secrets. Show it once, to the user who passes it on."""
        address, _, fragment = self.invite.to_string().partition("#")
        _, plain = bech32m.decode(fragment)
        return f"{address}#{bech32m.encode(INVITE_PREFIX, plain + self.pair_secret)}"

    def __str__(self) -> str:
        return f"device {self.invite}"


def parse_invite(text: str) -> tuple[Invite, Pair | None]:
    """Parse an invite that a user pasted. Return it with its pair secret, or with None if the
    daemon made the invite.

    Raises InviteError if it is damaged, or made for another version.
    """
    # A device's invite is a daemon's invite with 16 more bytes: `Invite` validates the part without
    # them.
    address, _, fragment = text.strip().strip("'\"").partition("#")
    try:
        prefix, data = bech32m.decode(fragment)
    except ValueError:
        return Invite.parse(text), None  # raises the error that explains the problem
    if len(data) != _PLAIN_LENGTH + PAIR_SECRET_LENGTH:
        return Invite.parse(text), None
    invite = Invite.parse(f"{address}#{bech32m.encode(prefix, data[:_PLAIN_LENGTH])}")
    return invite, Pair(invite.invite_id, data[_PLAIN_LENGTH:])


def _refusal() -> PairingError:
    return PairingError(
        "the other device has not shown that it has this invite's secret",
        hint="make a new one with confide device invite; if it happens again, an attacker in between tries to join",
    )
