"""Explain in sentences why the daemon is not used, and count the queued calls, for agents, users
and the daemon.
"""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from confide_crypto.errors import ConfideError, DeniedError, KeyFileError, LinkError, RequestError, WrongDaemonKey
from confide_proxy.errors import LATER, DaemonMissingError, NotJoinedError

if TYPE_CHECKING:
    from confide_proxy.offline.journal import JournalCounts

log = logging.getLogger(__name__)

_WAITING_DENIALS: Final = frozenset({"disabled", "busy"})


class Outage(NamedTuple):
    """The reason why the daemon is not used.

    Attributes:
        reason: the error that ended the link; None before the first link, or if the daemon does not
            answer.
        since: the time at which it began, in seconds since 1970.
        is_behind: True if the link is up, but older queued calls must be sent first.
    """

    reason: ConfideError | None
    since: float
    is_behind: bool = False

    @property
    def sentence(self) -> str:
        """Return the reason why the daemon is not used, as a sentence for the agent and its user."""
        if self.is_behind:
            return "calls that were queued before are still on their way to the daemon"
        moment = datetime.fromtimestamp(self.since).astimezone()
        is_today = moment.date() == datetime.now().astimezone().date()
        when = moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")
        what = str(self.reason) if self.reason else "the daemon does not answer"
        return f"{what} (since {when})"

    @property
    def hint(self) -> str | None:
        """Return the reason's advice for the user, or None if there is none."""
        return self.reason.hint if self.reason else None

    @property
    def hints(self) -> list[str]:
        """Return the advice for the user as a list of at most one warning. Empty for a broken link,
        which recovers by itself.
        """
        return [f"hint: {self.hint}"] if self.hint and not isinstance(self.reason, LinkError) else []

    @property
    def is_told(self) -> bool:
        """Return True if every call must fail with an error, local ones too: nothing is set up yet,
        or the daemon refuses this project.
        """
        reason = self.reason
        is_denied = isinstance(reason, RequestError) and reason.code not in LATER
        return is_denied or isinstance(reason, NotJoinedError | DaemonMissingError)

    @property
    def is_final(self) -> bool:
        """Return True if waiting does not help, so that no call may be queued: the daemon has
        refused this device, or its identity is wrong.
        """
        if isinstance(self.reason, DeniedError):
            return self.reason.reason not in _WAITING_DENIALS
        return self.is_told or isinstance(self.reason, WrongDaemonKey | KeyFileError)


def queue_sentence(counts: JournalCounts) -> str:
    """Return a sentence about the calls queued on this device, or "" if there are none."""
    parts = []
    if counts.queued:
        parts.append(
            f"{counts.queued} {'store waits' if counts.queued == 1 else 'stores wait'} on this device for the daemon"
        )
    if counts.dead:
        parts.append(f"{counts.dead} that it refused {'is' if counts.dead == 1 else 'are'} kept here")
    if counts.damaged:
        parts.append(f"{counts.damaged} damaged {'record is' if counts.damaged == 1 else 'records are'} kept aside")
    return f"{'; '.join(parts)} (confide sync --queue)" if parts else ""


def backlog(journal: Path) -> dict[str, int]:
    """Return the numbers of queued and refused calls, as they are reported to the daemon."""
    if not journal.exists():
        return {"queuedOffline": 0, "deadLetters": 0}
    from confide_proxy.offline.journal import Journal  # most sessions never need it

    try:
        counts = Journal(journal).counts()
    except ConfideError as error:
        log.warning("what waits for the daemon could not be counted: %s", error)
        return {}
    return {"queuedOffline": counts.queued, "deadLetters": counts.dead}
