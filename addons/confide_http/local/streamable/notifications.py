"""Who listens to what. One stream to the daemon brings what all listeners of HTTP have asked for together, and each gets its own share.

The tunnel has eight streams, as many as a daemon has for one agent. So this one is opened anew when somebody listens to something that it
does not bring, before the old one is closed: nothing falls between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from typing import Final

from confide_http.door.refusals import RefusalError
from confide_http.local.upstream import Message, UpstreamSession
from confide_proxy.mcp.jsonrpc import encoded
from confide_proxy.mcp.subscriptions import CHANGED, LISTEN, MAX_SUBSCRIBED, MAX_URI, UPDATED

MAX_BUFFERED: Final = 1024
"""News of one listener that it has not read; one that does not read is ended, and comes back with nothing missed that it knew of."""
_URIS: Final = "resourceSubscriptions"
_LISTS: Final = {method: name for name, method in CHANGED.items()}


class NotificationStream:
    """One stream of HTTP. `news` has what it is to be told: the method and the parameters, without `_meta`; None: it is ended."""

    def __init__(self, lists: Iterable[str], uris: Iterable[str] = ()) -> None:
        """`lists`: names of `CHANGED`."""
        self.lists = frozenset(lists)
        self.uris = set(uris)
        self.news: asyncio.Queue[tuple[str, Message] | None] = asyncio.Queue()

    def notify(self, method: str, params: Message) -> None:
        if self.news.qsize() < MAX_BUFFERED:
            self.news.put_nowait((method, params))
        elif self.news.qsize() == MAX_BUFFERED:
            self.news.put_nowait(None)

    def end(self) -> None:
        self.news.put_nowait(None)


class Notifications:
    """The listeners of one gateway."""

    def __init__(self, exchange: UpstreamSession) -> None:
        self._exchange = exchange
        exchange.on_news = self._on_news
        self._listeners: set[NotificationStream] = set()
        self._stream = ""
        self._brought: frozenset[str] = frozenset()

    def add(self, listener: NotificationStream) -> None:
        """From now on it is told. Raises RefusalError: there is too much to listen to."""
        self._check(listener.uris)
        self._listeners.add(listener)
        self._follow()

    def remove(self, listener: NotificationStream) -> None:
        """It is told no more."""
        self._listeners.discard(listener)
        self._follow()

    def subscribe(self, listener: NotificationStream, uri: str) -> None:
        """One resource more for a listener. Raises RefusalError as `add`."""
        self._check({uri})
        listener.uris.add(uri)
        self._follow()

    def unsubscribe(self, listener: NotificationStream, uri: str) -> None:
        """One less."""
        listener.uris.discard(uri)
        self._follow()

    @property
    def _wanted(self) -> frozenset[str]:
        return frozenset().union(*(each.uris for each in self._listeners))

    def _check(self, uris: Set[str]) -> None:
        if any(not isinstance(uri, str) or len(uri) > MAX_URI for uri in uris):
            raise RefusalError(400, "invalid", f"the address of a resource is a text of at most {MAX_URI} letters")
        if len(self._wanted | uris) > MAX_SUBSCRIBED:
            raise RefusalError(429, "busy", f"{MAX_SUBSCRIBED} resources are listened to already")

    def _follow(self) -> None:
        """Have the daemon tell of what is listened to, and close the stream that nobody needs any more."""
        wanted = self._wanted
        if self._stream and self._listeners and wanted <= self._brought:
            return  # and what it brings besides is passed over
        before = self._stream
        self._stream = ""
        if self._listeners:
            self._stream, self._brought = self._exchange.new_id(), wanted
            asked: Message = dict.fromkeys(CHANGED, True)
            if wanted:
                asked[_URIS] = sorted(wanted)
            message = self._exchange.message(self._stream, LISTEN, {"notifications": asked})
            self._exchange.tunnel.receive(encoded(message))
        if before:
            self._exchange.cancel(before)

    def _on_news(self, method: str, params: Message) -> None:
        if not method:  # an answer, which ends the stream
            if params.get("id") == self._stream:
                self._stream = ""
            return
        for listener in list(self._listeners):
            if method == UPDATED and params.get("uri") in listener.uris:
                listener.notify(method, {"uri": params["uri"]})
            elif (name := _LISTS.get(method)) is not None and name in listener.lists:
                listener.notify(method, {})
