"""The invites that this machine has made for new devices: their pair secrets, until one device was added with each (PROTOCOL.md 10.7).

A secret is bound to the first card that shows it before that card is added, and forgotten when its device has been answered. So no second
device comes in by it, and a crash in between leaves nobody without an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError
from confide_crypto.private import read_private_file, remove_private_file, write_private_file
from confide_crypto.sealing.pairing import Pair

_FILE: Final = re.compile(r"[0-9a-f]{32}\.invite")


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
        """Remember an invite, or that it was used. Raises KeyFileError."""
        record = {
            "space": invitation.space,
            "name": invitation.name,
            "secret": invitation.pair.secret.hex(),
            "until": invitation.until,
            "cardKey": invitation.card_key.hex(),
        }
        write_private_file(self._path(invitation), json.dumps(record).encode(), replace=True)

    def forget(self, invitation: Invitation) -> None:
        """Forget a secret. Raises KeyFileError."""
        remove_private_file(self._path(invitation))

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
                        yield _read(path)

    def _path(self, invitation: Invitation) -> Path:
        return self._folder / f"{invitation.pair.invite_id.hex()}.invite"


def _read(path: Path) -> Invitation:
    record = json.loads(read_private_file(path))
    pair = Pair(bytes.fromhex(path.stem), bytes.fromhex(record["secret"]))
    card_key = bytes.fromhex(record["cardKey"])
    return Invitation(str(record["space"]), str(record["name"]), pair, float(record["until"]), card_key)
