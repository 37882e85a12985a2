"""Memory over HTTP, as the daemon sees it: what each session answers."""

from __future__ import annotations

from collections.abc import Iterable

from confide_daemon.addons import Addon, SessionHost, SessionPart
from confide_http.server.requests import SignInRequests


class Gateway(Addon):
    """Programs reach a space by HTTP, as far as its devices let them."""

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return the requests by which a device decides who reaches its space."""
        return (SignInRequests(session),)
