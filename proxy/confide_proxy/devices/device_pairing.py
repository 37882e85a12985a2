"""Both ends of pairing (PROTOCOL.md 10.7): a machine that asks to be taken in, and the invites that this one has made for others.

A machine asks with the pair secret of the invite it joined with, or by its card alone. A secret is bound to the first card that shows it
before that card is added, and forgotten when its device has been answered. So no second device comes in by it, and a crash in between
leaves nobody without an answer.
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
"""Of the file beside it, made once, with the Ed25519 key of the card that it is used for."""


@dataclass(frozen=True, slots=True)
class Joining:
    """A machine that is no device yet.

    Attributes:
        link: the file that says which daemon it has joined, and how.
        identity: who it is.
        pair: what it shares with the device that invited it, until that has answered; None without one.
    """

    link: Path
    identity: Identity
    pair: Pair | None

    @classmethod
    def begin(cls, link: Path, identity: Identity) -> Joining:
        """As the file says. Blocks. Raises KeyFileError."""
        pinned = load_pin(link)
        return cls(link, identity, Pair(*pinned.pair) if pinned is not None and pinned.pair is not None else None)

    async def ask(self, daemon: RequestChannel) -> bytes | None:
        """What the device that invited this machine has answered; None if it has not, or none did."""
        if self.pair is None:
            return None
        card = await asyncio.to_thread(Card.of, self.identity)
        with suppress(RequestError):  # a machine that was removed meanwhile: the roster shows it
            return await roster_client.pair(daemon, request=self.pair.request(card))
        return None

    def accept(self, answer: bytes, roster: Roster) -> None:
        """Check that the answer is about this roster, and that this machine is on it. Raises PairingError, RosterError."""
        assert self.pair is not None
        self.pair.accept(answer, self.identity, roster)

    def finish(self) -> None:
        """Forget the secret: this machine is a device. Blocks. Raises KeyFileError."""
        pinned = load_pin(self.link)
        if pinned is not None and pinned.pair is not None:
            save_pin(self.link, replace(pinned, pair=None))

    async def show_card(self, daemon: RequestChannel) -> None:
        """Have the daemon show this machine to people. Raises RequestError, ConnectionLost, TimeoutError."""
        if self.pair is None:  # the request shows the card as well
            await roster_client.pair(daemon, card=await asyncio.to_thread(Card.of, self.identity))


@dataclass(frozen=True, slots=True)
class Invitation:
    """One invite.

    Attributes:
        space: the id that the daemon gives the space.
        name: what the new device will be called.
        pair: its id and the secret.
        until: when it ends, in seconds since 1970.
        card_key: the Ed25519 key that it was used for, b"" while it was not.
    """

    space: str
    name: str
    pair: Pair = field(repr=False)
    until: float
    card_key: bytes = b""


class Invitations:
    """Those of this machine, one private file each, in `folder`. Blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, invitation: Invitation) -> None:
        """Remember an invite. Raises KeyFileError."""
        record = {
            "space": invitation.space,
            "name": invitation.name,
            "secret": invitation.pair.secret.hex(),
            "until": invitation.until,
        }
        write_private_file(self._path(invitation), json.dumps(record).encode(), replace=True)

    def has(self, invite_id: bytes) -> bool:
        """Whether this machine has made that invite, and still waits for its device."""
        return (self._folder / f"{invite_id.hex()}.invite").exists()

    def used_for(self, invitation: Invitation, card_key: bytes) -> bytes | None:
        """Note that an invite is used for this card, unless another process of this machine was first: the card that it is used for.

        None: it was used and is forgotten. Raises KeyFileError.
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
        """Forget a secret. Raises KeyFileError."""
        # In this order: who comes late finds either the card that it was used for, or no secret.
        remove_private_file(self._path(invitation))
        remove_private_file(self._path(invitation).with_suffix(_CARD))

    def of(self, space: str, now: float) -> list[Invitation]:
        """Those of a space. One whose time is over is forgotten, unless a device that was added with it may still wait for its answer."""
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
                    # One that is damaged, or open to others, lets nobody in.
                    with suppress(ConfideError, ValueError, KeyError, TypeError):
                        record = json.loads(read_private_file(path))
                        pair = Pair(bytes.fromhex(path.stem), bytes.fromhex(record["secret"]))
                        until, card_key = float(record["until"]), _card_of(path) or b""
                        yield Invitation(str(record["space"]), str(record["name"]), pair, until, card_key)

    def _path(self, invitation: Invitation) -> Path:
        return self._folder / f"{invitation.pair.invite_id.hex()}.invite"


def _card_of(path: Path) -> bytes | None:
    card = path.with_suffix(_CARD)
    # A damaged one lets nobody in either.
    return bytes.fromhex(read_private_file(card).decode("ascii")) if card.exists() else None
