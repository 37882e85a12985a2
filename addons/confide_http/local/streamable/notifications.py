"""Subscriptions of HTTP clients to notifications. One stream from the daemon carries the
notifications for all of them, and each client gets its own part.

A connection has at most eight streams, as many as a daemon allows one agent. So when a client
subscribes to more than the current stream carries, a new stream is opened before the old one is
closed, and no notification is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from typing import Final

from confide_http.door.refusals import RefusalError
from confide_http.local.upstream import Message, UpstreamSession
from confide_proxy.mcp.features.subscriptions import CHANGED, LISTEN, MAX_SUBSCRIBED, MAX_URI, UPDATED
from confide_proxy.mcp.jsonrpc import encode_message

MAX_BUFFERED: Final = 1024
"""Most unread notifications of a listener; beyond it, the listener is ended and may reconnect."""
_URIS: Final = "resourceSubscriptions"
_LISTS: Final = {method: name for name, method in CHANGED.items()}


class NotificationStream:
    """A stream to an HTTP client. `news` queues its notifications as pairs of method and parameters
    without `_meta`; None in the queue ends the stream.
    """

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
    """The streams to HTTP clients of one gateway, with their subscriptions."""

    def __init__(self, exchange: UpstreamSession) -> None:
        self._exchange = exchange
        exchange.on_news = self._on_news
        self._listeners: set[NotificationStream] = set()
        self._stream = ""
        self._uris: frozenset[str] = frozenset()

    def add(self, listener: NotificationStream) -> None:
        """Add a stream to a client. Raises RefusalError if there are too many subscriptions."""
        self._check(listener.uris)
        self._listeners.add(listener)
        self._follow()

    def remove(self, listener: NotificationStream) -> None:
        """Remove a stream to a client."""
        self._listeners.discard(listener)
        self._follow()

    def subscribe(self, listener: NotificationStream, uri: str) -> None:
        """Subscribe a client's stream to a resource. Raises RefusalError if there are too many
        subscriptions.
        """
        self._check({uri})
        listener.uris.add(uri)
        self._follow()

    def unsubscribe(self, listener: NotificationStream, uri: str) -> None:
        """End the subscription of a client's stream to a resource."""
        listener.uris.discard(uri)
        self._follow()

    @property
    def _wanted_uris(self) -> frozenset[str]:
        return frozenset().union(*(each.uris for each in self._listeners))

    def _check(self, uris: Set[str]) -> None:
        if any(not isinstance(uri, str) or len(uri) > MAX_URI for uri in uris):
            raise RefusalError(400, "invalid", f"the address of a resource is a text of at most {MAX_URI} letters")
        if len(self._wanted_uris | uris) > MAX_SUBSCRIBED:
            raise RefusalError(429, "busy", f"{MAX_SUBSCRIBED} resources are listened to already")

    def _follow(self) -> None:
        """Subscribe to all that listeners want, and close a stream that is no longer needed."""
        wanted = self._wanted_uris
        if self._stream and self._listeners and wanted <= self._uris:
            return  # and what it brings besides is passed over
        before = self._stream
        self._stream = ""
        if self._listeners:
            self._stream, self._uris = self._exchange.new_id(), wanted
            asked: Message = dict.fromkeys(CHANGED, True)
            if wanted:
                asked[_URIS] = sorted(wanted)
            message = self._exchange.message(self._stream, LISTEN, {"notifications": asked})
            self._exchange.tunnel.receive(encode_message(message))
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
