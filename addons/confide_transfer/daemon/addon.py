"""Import and export, as the daemon sees them: what each session answers."""

from __future__ import annotations

from collections.abc import Iterable

from confide_daemon.addons import Addon, SessionHost, SessionPart
from confide_transfer.daemon.requests import TransferRequests


class Transfer(Addon):
    """Memories of other systems come in, and a space is written out and filled again."""

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return the requests by which memories come and go."""
        return (TransferRequests(session),)
