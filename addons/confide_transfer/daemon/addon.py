"""The daemon's add-on for import and export: it adds their requests to each session."""

from __future__ import annotations

from collections.abc import Iterable

from confide_daemon.addons import Addon, SessionHost, SessionPart
from confide_transfer.daemon.requests import TransferRequests


class Transfer(Addon):
    """The add-on for import, export and refill in the daemon."""

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return the requests for import, export and refill of this session."""
        return (TransferRequests(session),)
