"""The roster that a daemon shows beside the one that is known: it goes on, has lost something, or is another (PROTOCOL.md 10.6)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from confide_crypto.errors import RequestError
from confide_crypto.sealing.errors import WithheldRosterError
from confide_crypto.sealing.roster import Pin, Roster
from confide_proxy.devices import roster_client
from confide_proxy.devices.roster_client import Shown

if TYPE_CHECKING:
    from confide_crypto.keys.identity import Identity
    from confide_memory.wire.document_body import Asks

log = logging.getLogger(__name__)

_GONE: Final = (
    "the daemon may have been restored from an old copy: connect with the machine that began the space, or that "
    "made the last change"
)


async def continued(link: Asks, known: Roster, shown: Shown) -> tuple[Roster, Shown]:
    """What is known with the daemon's news behind it, and what it shows now. A daemon that knows less, and nothing else, is told the rest.

    Raises:
        ForkedRosterError and others of RosterError: it shows another history.
        WithheldRosterError: it shows less, and does not take the rest.
        RequestError, ConnectionLost, TimeoutError: from the link.
    """
    newest = len(known.entries) - 1
    if shown.number < newest:
        _check(known, shown)
        log.warning("the daemon has lost %d changes to the list of devices; sending them again", newest - shown.number)
        await _send_again(link, known, shown.number + 1)
        shown = await roster_client.roster(link, len(known.entries))
        if shown.number < newest:
            raise WithheldRosterError("the newest changes to the list of devices are missing", hint=_GONE)
    _check(known, shown)
    return await asyncio.to_thread(known.extend, shown.entries), shown


async def founded(link: Asks, identity: Identity, name: str) -> Roster | None:
    """The beginning of a space that has no roster, with this machine as its only device; None if another one was first.

    Raises:
        RequestError, ConnectionLost, TimeoutError: from the link; `denied` where this machine may not write.
    """
    made, _ = await asyncio.to_thread(Roster.found, identity, name, now=int(time.time()))
    try:
        await roster_client.extend(link, made.entries[0])
    except RequestError as error:
        if error.code == "conflict":
            return None
        raise
    return made


def is_known(roster: Roster, pin: Pin | None, identity: Identity) -> bool:
    """Whether there is a reason to believe a whole roster that is shown: what this machine has seen of it, or that it began it.

    Raises:
        RosterError: it is not what this machine has seen.
    """
    if pin is not None:
        roster.check(pin)
    # One's own genesis without a pin: a crash came between the daemon's answer and the pin.
    return pin is not None or roster.entries[0].signer == identity.public_key


def withheld() -> WithheldRosterError:
    """There is a roster, and the daemon shows none."""
    return WithheldRosterError("the daemon does not show the devices of this space", hint=_GONE)


def _check(known: Roster, shown: Shown) -> None:
    """Check that its newest entry is the known one of that number, if there is one of that number."""
    if 0 <= shown.number < len(known.entries):
        known.check(Pin(known.space, shown.number, shown.head))


async def _send_again(link: Asks, known: Roster, since: int) -> None:
    for entry in known.entries[since:]:
        try:
            await roster_client.extend(link, entry)
        except RequestError as error:
            if error.code == "conflict":  # another device tells it the same
                continue
            problem = "the daemon has lost the newest changes to the list of devices, and does not take them again"
            raise WithheldRosterError(problem, hint=_GONE) from error
