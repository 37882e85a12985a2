"""The daemon's add-on for import and export: it adds their requests to each session."""

from __future__ import annotations

from collections.abc import Iterable

from confide_daemon.addons import Addon, SessionHost, SessionPart
from confide_transfer.daemon.requests import TransferRequests


class Transfer(Addon):
    """The daemon's add-on for import and export, and for refill, which restores missing documents
    from an export.
    """

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return the handler of a session's requests for import, export and refill."""
        return (TransferRequests(session),)
