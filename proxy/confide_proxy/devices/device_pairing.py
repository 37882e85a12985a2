"""Both sides of pairing a new device with a space (PROTOCOL.md 10.7): this device's own request to
join, and the invites that it has made for others.

A new device asks with the pair secret of the invite that it joined with, or with its card (its
public keys) alone. A secret is bound to the first card that proves it, before that card is added,
and deleted after its device has been answered. So no second device gets in with it, and a crash in
between leaves no device without an answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.keys.private_files import read_private_file, remove_private_file, write_private_file
from confide_crypto.sealing.pairing import Pair
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card
from confide_memory.documents import RequestChannel
from confide_proxy.devices import roster_client
from confide_proxy.link.daemon import load_pin, save_pin

_FILE: Final = re.compile(r"[0-9a-f]{32}\.invite")
_CARD: Final = ".card"
"""Suffix of the file beside an invite, created once, with the Ed25519 key of the card that uses it.
"""


@dataclass(frozen=True, slots=True)
class Joining:
    """This computer's request to become a device of its daemon's space.

    Attributes:
        link: the file that names the daemon that it has joined.
        identity: its key pair.
        pair: the secret that it shares with the inviting device, until that device has answered;
            None if it joined without such an invite.
    """

    link: Path
    identity: Identity
    pair: Pair | None

    @classmethod
    def begin(cls, link: Path, identity: Identity) -> Joining:
        """Prepare the request with the pair secret in the file `link`. Blocks. Raises KeyFileError
        if the file is damaged, or others can write it.
        """
        pinned = load_pin(link)
        return cls(link, identity, Pair(*pinned.pair) if pinned is not None and pinned.pair is not None else None)

    async def ask(self, daemon: RequestChannel) -> bytes | None:
        """Send the request to join, and return the answer of the inviting device; None if it has
        not answered yet, or if this computer has no pair secret.
        """
        if self.pair is None:
            return None
        card = await asyncio.to_thread(Card.of, self.identity)
        with suppress(RequestError):  # this device was removed meanwhile: the roster shows it
            return await roster_client.pair(daemon, request=self.pair.request(card))
        return None

    def accept(self, answer: bytes, roster: Roster) -> None:
        """Check that the inviting device's answer is about this roster, and that this device is on
        it.

        Raises PairingError or RosterError if it is not.
        """
        assert self.pair is not None
        self.pair.accept(answer, self.identity, roster)

    def finish(self) -> None:
        """Delete the pair secret, once this device is on the roster. Blocks. Raises KeyFileError if
        the file cannot be read or written.
        """
        pinned = load_pin(self.link)
        if pinned is not None and pinned.pair is not None:
            save_pin(self.link, replace(pinned, pair=None))

    async def show_card(self, daemon: RequestChannel) -> None:
        """Send this device's card (its public keys) to the daemon, so that users see it on their
        other devices.

        Raises RequestError, ConnectionLost or TimeoutError if the request fails.
        """
        if self.pair is None:  # otherwise the request contains the card
            await roster_client.pair(daemon, card=await asyncio.to_thread(Card.of, self.identity))


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invite that this device has made for another one.

    Attributes:
        space: the id that the daemon gives the space.
        name: the name of the new device.
        pair: the id and the secret of the invite.
        until: its expiry, in seconds since 1970.
        card_key: the Ed25519 key of the device that uses the invite; b"" if it is unused.
    """

    space: str
    name: str
    pair: Pair = field(repr=False)
    until: float
    card_key: bytes = b""


class Invitations:
    """The invites that this device has made, each in a private file in `folder`. Methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, invitation: Invitation) -> None:
        """Store an invite in a file. Raises KeyFileError if it cannot be written."""
        record = {
            "space": invitation.space,
            "name": invitation.name,
            "secret": invitation.pair.secret.hex(),
            "until": invitation.until,
        }
        write_private_file(self._path(invitation), json.dumps(record).encode(), replace=True)

    def has(self, invite_id: bytes) -> bool:
        """Return True if this device has made the invite with this id, and still waits for the new
        device.
        """
        return (self._folder / f"{invite_id.hex()}.invite").exists()

    def used_for(self, invitation: Invitation, card_key: bytes) -> bytes | None:
        """Bind an invite to the device with this card key, unless it is bound already. Return the
        key to which it is bound; None if the invite was completed and deleted.

        Raises KeyFileError if the file cannot be read or written.
        """
        path = self._path(invitation)
        try:
            write_private_file(path.with_suffix(_CARD), f"{card_key.hex()}\n".encode())
        except FileExistsError:
            with suppress(ValueError):
                return _card_of(path)
            return None
        if not path.exists():
            remove_private_file(path.with_suffix(_CARD))
            return None
        return card_key

    def forget(self, invitation: Invitation) -> None:
        """Delete an invite. Raises KeyFileError if its file cannot be deleted."""
        # In this order, a concurrent process finds either the bound card or no secret.
        remove_private_file(self._path(invitation))
        remove_private_file(self._path(invitation).with_suffix(_CARD))

    def of(self, space: str, now: float) -> list[Invitation]:
        """Return the invites to a space. Delete expired ones that no device has used; a device that
        has used one may still wait for its answer.
        """
        found = []
        for invitation in self._all():
            if invitation.until <= now and not invitation.card_key:
                with suppress(ConfideError):
                    self.forget(invitation)
            elif invitation.space == space:
                found.append(invitation)
        return found

    def _all(self) -> Iterator[Invitation]:
        with suppress(OSError):
            for path in sorted(self._folder.iterdir()):
                if _FILE.fullmatch(path.name):
                    # Damaged invites, or ones that others can read, are ignored.
                    with suppress(ConfideError, ValueError, KeyError, TypeError):
                        record = json.loads(read_private_file(path))
                        pair = Pair(bytes.fromhex(path.stem), bytes.fromhex(record["secret"]))
                        until, card_key = float(record["until"]), _card_of(path) or b""
                        yield Invitation(str(record["space"]), str(record["name"]), pair, until, card_key)

    def _path(self, invitation: Invitation) -> Path:
        return self._folder / f"{invitation.pair.invite_id.hex()}.invite"


def _card_of(path: Path) -> bytes | None:
    card = path.with_suffix(_CARD)
    # A damaged card file makes the invite unusable too.
    return bytes.fromhex(read_private_file(card).decode("ascii")) if card.exists() else None
