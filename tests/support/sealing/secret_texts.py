"""One maker for each secret text form of ours, by the mark that it begins with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity, SealedKey
from confide_crypto.sealing.pairing import DeviceInvite
from confide_crypto.sealing.recovery_code import RecoveryCode

_URL: Final = "ws://desk.example:7733/"


@functools.cache
def _sealed() -> str:
    return SealedKey.seal(Identity.generate(), "four random words", opslimit=1, memlimit_kib=8).to_line()


MAKERS: Final[tuple[tuple[str, Callable[[], str]], ...]] = (
    ("confide-secret-key-1", lambda: Identity.generate().to_line()),
    ("confide-sealed-key-1", _sealed),
    ("invite1", lambda: Invite.new(bytes(32), _URL).to_string().partition("#")[2]),
    ("invite1", lambda: DeviceInvite.new(bytes(32), _URL).to_string().partition("#")[2]),
    ("cr", lambda: RecoveryCode.generate().to_string()),
)
"""(mark, maker): the forms of PROTOCOL.md 2.3, 5.1 and 10.8."""
