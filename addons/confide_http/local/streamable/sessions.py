"""Sessions of clients with a protocol version before 2026-07-28, which `initialize` opens, with
their subscriptions.

A session has a random id and belongs to the token that opened it. With any other token it is not
found.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from typing import Any, Final

from confide_http.door.refusals import RefusalError
from confide_http.local.request_identity import RequestIdentity
from confide_http.local.streamable.notifications import Notifications, NotificationStream
from confide_proxy.mcp.features.subscriptions import CHANGED, RESOURCES

MAX_SESSIONS: Final = 64
MAX_SESSIONS_EACH: Final = 16
IDLE_S: Final = 1800.0
"""Seconds after which a session without a stream is deleted; its client opens another after a 404.
"""


class HttpSession:
    """A session. `calls` has the tasks of its requests by request id, so that they can be
    cancelled. `capabilities` is what its client declared.
    """

    def __init__(self, identity: RequestIdentity, capabilities: object) -> None:
        self.identity, self.capabilities = identity, capabilities
        self.identifier = secrets.token_hex(16)
        # Only a client that may access all projects is notified of resources.
        self.listener = NotificationStream(set(CHANGED) - ({RESOURCES} if identity.is_limited else set()))
        self.calls: dict[str, asyncio.Task[Any]] = {}
        self.has_stream = False
        self.used_at = time.monotonic()

    @property
    def is_idle(self) -> bool:
        return not self.has_stream and not self.calls


class Sessions:
    """The sessions of one gateway."""

    def __init__(self, news: Notifications) -> None:
        self._news = news
        self._sessions: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, identity: RequestIdentity, capabilities: object) -> HttpSession:
        """Open a session. Raises RefusalError with status 429 if too many are in use."""
        self._tidy()
        if Counter(each.identity.key for each in self._sessions.values())[identity.key] >= MAX_SESSIONS_EACH:
            self._make_room(identity.key)
        elif len(self._sessions) >= MAX_SESSIONS:
            self._make_room(None)
        session = HttpSession(identity, capabilities)
        self._news.add(session.listener)
        self._sessions[session.identifier] = session
        return session

    def find(self, identifier: str | None, identity: RequestIdentity) -> HttpSession:
        """Return the session with this id. Raises RefusalError with status 400 if the request names
        none, or 404 if it does not exist or belongs to another token.
        """
        if identifier is None:
            raise RefusalError(400, "invalid", "this needs the Mcp-Session-Id that initialize has answered with")
        session = self._sessions.get(identifier)
        if session is None or session.identity.key != identity.key:
            raise RefusalError(404, "not_found", "there is no such session", hint="initialize opens a new one")
        session.used_at = time.monotonic()
        return session

    def close(self, session: HttpSession) -> None:
        """End a session with its stream and its calls."""
        self._sessions.pop(session.identifier, None)
        self._news.remove(session.listener)
        session.listener.end()
        for task in session.calls.values():
            task.cancel()

    def _tidy(self) -> None:
        now = time.monotonic()
        for session in list(self._sessions.values()):
            if session.is_idle and now - session.used_at > IDLE_S:
                self.close(session)

    def _make_room(self, key: str | None) -> None:
        """Delete the least recently used session, of that token or of any."""
        idle = [each for each in self._sessions.values() if each.is_idle and key in (None, each.identity.key)]
        if not idle:
            raise RefusalError(429, "busy", "there are too many sessions at a time")
        self.close(min(idle, key=lambda each: each.used_at))
