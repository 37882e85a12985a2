"""Sends what waits in the journal once the daemon can be reached: in order, each made once by its operation's id, by one process at a time.

What the daemon refuses for good is buried with its reason and does not hold up the rest; what it cannot do now is tried again later.
Each is sealed right before it is sent; until this machine can, it waits, with all that changes the same document.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_proxy.errors import LATER, BlockedError, JournalError, StateError, ToolError, UnsealableError
from confide_proxy.locks import SEAT_AGAIN_S, Seat
from confide_proxy.offline.journal import Entry, Journal, is_empty

if TYPE_CHECKING:
    from confide_memory.wire.document_body import Asks
    from confide_proxy.sealing.tool_calls import SealedCalls

CALL_DEADLINE_S: Final = 10.0
KNOWN_S: Final = 85 * 86400.0
"""The daemon knows an operation for 90 days. One that waited for so long may have been made, and be forgotten: a person has to decide."""
MOST_APART: Final = 256
"""Calls that wait for keys, beyond which the others wait with them."""
PAUSES_S: Final = (0.5, 2.0)
"""Between tries of a call that fails inside the daemon, before it is taken for one that always will."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay came to: how many calls were made, how many refused for good.

    Attributes:
        why: something is left; None if nothing is.
        is_for_keys: all that is left waits until this machine can seal.
    """

    sent: int
    refused: int
    why: str | None = None
    is_for_keys: bool = False


class Replay:
    """The replay of one process. `seats` is the folder of the machine's seats, `sealed` seals what is sent."""

    def __init__(self, journal: Journal, seats: Path, sealed: SealedCalls) -> None:
        self._journal = journal
        self._sealed = sealed
        self._seat = Seat(seats, "journal")

    async def run(self, link: Asks) -> Outcome:
        """Send until nothing waits, or something has to wait longer. Another process that sends is waited for.

        Raises:
            ConnectionLost: the link went down.
            StateError, JournalError, KeyFileError: the journal cannot be used.
        """
        try:
            while not self._seat.try_take():
                if is_empty(self._journal.folder):
                    return Outcome(0, 0)
                await asyncio.sleep(SEAT_AGAIN_S)
            return await self._send_all(link)
        finally:
            self._seat.leave()

    async def _send_all(self, link: Asks) -> Outcome:
        sent = refused = 0
        why = None
        apart: set[str] = set()
        documents: set[tuple[str, str]] = set()
        while entry := await asyncio.to_thread(self._journal.first, apart):
            if (entry.target, entry.path) in documents:
                apart.add(entry.id)
                continue
            try:
                await self._send(entry, await self._arguments(entry, link), link)
            except TimeoutError:
                return Outcome(sent, refused, "the daemon did not answer in time")
            except RequestError as error:
                if error.code in LATER:
                    return Outcome(sent, refused, str(error))
                why = f"{error}; {error.hint}" if error.hint else str(error)
                await asyncio.to_thread(self._journal.bury, entry, error.code, why)
                refused += 1
                continue
            except (ConnectionLost, StateError, JournalError):
                raise
            except UnsealableError as error:
                why = f"{error}; {error.hint}"
                apart.add(entry.id)
                documents.add((entry.target, entry.path))
                if len(apart) < MOST_APART:
                    continue
                return Outcome(sent, refused, why)
            except ConfideError as error:
                # No word of the daemon's about this call: the list of devices, say, is not to be believed.
                return Outcome(sent, refused, f"{error}; {error.hint}" if error.hint else str(error))
            await asyncio.to_thread(self._journal.done, entry.id)
            sent += 1
        return Outcome(sent, refused, why, is_for_keys=why is not None)

    async def _arguments(self, entry: Entry, link: Asks) -> Mapping[str, Any]:
        """What the entry says, as it may leave. Raises as `SealedCalls.arguments`, RequestError for what may not."""
        from confide_proxy.sealing.tool_calls import Asked

        try:
            asked = Asked(entry.tool, entry.arguments, entry.project, entry.said)
            return await self._sealed.arguments(link, asked, is_lookup=False)
        except (BlockedError, ToolError) as error:
            raise RequestError("denied", str(error), error.hint) from error

    async def _send(self, entry: Entry, arguments: Mapping[str, Any], link: Asks) -> None:
        if time.time() - entry.at > KNOWN_S:
            problem = "it waited for so long that nobody knows whether it was made"
            raise RequestError("conflict", problem, "see whether it was, and else send it again: confide queue retry")
        body = {
            "project": entry.project,
            "operation": entry.id,
            "said": entry.said,
            "tool": entry.tool,
            "arguments": arguments,
        }
        for pause_s in PAUSES_S:
            try:
                await link.request("call", body, timeout_s=CALL_DEADLINE_S)
            except RequestError as error:
                if error.code != "internal":
                    raise
            else:
                return
            await asyncio.sleep(pause_s)
        await link.request("call", body, timeout_s=CALL_DEADLINE_S)
