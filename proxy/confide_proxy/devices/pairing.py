"""How this machine asks the devices of a space to take it in: with the pair secret of the invite it joined with, or by its card alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from confide_crypto.errors import RequestError
from confide_crypto.sealing.pairing import Pair
from confide_crypto.sealing.roster_entry import Card
from confide_proxy.devices import roster_client
from confide_proxy.link import pin

if TYPE_CHECKING:
    from confide_crypto.keys.identity import Identity
    from confide_crypto.sealing.roster import Roster
    from confide_memory.wire.document_body import Asks


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
        pinned = pin.load(link)
        return cls(link, identity, Pair(*pinned.pair) if pinned is not None and pinned.pair is not None else None)

    async def ask(self, daemon: Asks) -> bytes | None:
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
        pinned = pin.load(self.link)
        if pinned is not None and pinned.pair is not None:
            pin.save(self.link, replace(pinned, pair=None))

    async def show_card(self, daemon: Asks) -> None:
        """Have the daemon show this machine to people. Raises RequestError, ConnectionLost, TimeoutError."""
        if self.pair is None:  # the request shows the card as well
            await roster_client.pair(daemon, card=await asyncio.to_thread(Card.of, self.identity))
