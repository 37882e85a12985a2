"""The client's subscriptions: to single resources, or by notification streams in the 2026-07-28
version of MCP.

The proxy opens a stream at once: a client of that version counts as connected when its stream is
acknowledged, and must not wait for a daemon. The proxy sends the stream to the daemon when the link
is up, and again after each break. Changes between two connections are not reported, so the client
then gets notifications for all resources of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from confide_proxy.mcp.jsonrpc import REPLAY_ID, PendingCall

MAX_SUBSCRIBED: Final = 256
MAX_STREAMS: Final = 8
"""Most streams of one client, as the daemon limits them for one agent. The limits for resources of
a stream and for the length of a URI are the daemon's too.
"""
MAX_URI: Final = 8192
LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
STREAM_KEY: Final = "io.modelcontextprotocol/subscriptionId"
TOOLS: Final = "toolsListChanged"
PROMPTS: Final = "promptsListChanged"
RESOURCES: Final = "resourcesListChanged"
CHANGED: Final = {
    TOOLS: "notifications/tools/list_changed",
    PROMPTS: "notifications/prompts/list_changed",
    RESOURCES: "notifications/resources/list_changed",
}
"""Lists that may change: the name in a stream's request, and the method of the notification."""
_URIS: Final = "resourceSubscriptions"
_SUBSCRIBE: Final = "resources/subscribe"
_UNSUBSCRIBE: Final = "resources/unsubscribe"
_REPLAYED: Final = f"{REPLAY_ID}:"
"""Prefix of the id of a replayed subscription, before its URI."""


class Subscriptions:
    """The client's subscriptions to single resources. They are sent again to each new session of
    the daemon.
    """

    def __init__(self) -> None:
        self._by_uri: dict[str, dict[str, object]] = {}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the `resources/subscribe` requests to send again to a new session of the daemon."""
        return list(self._by_uri.values())

    def has(self, uri: Any) -> bool:
        """Return True if the client is subscribed to this resource."""
        return isinstance(uri, str) and uri in self._by_uri

    def note(self, call: PendingCall) -> None:
        """Record the subscription, or the end of one, that a call asks for. Ignores other calls."""
        if call.method not in (_SUBSCRIBE, _UNSUBSCRIBE) or not isinstance(uri := call.params.get("uri"), str):
            return
        if call.method == _UNSUBSCRIBE:
            self._by_uri.pop(uri, None)
        elif len(self._by_uri) < MAX_SUBSCRIBED:
            self._by_uri[uri] = {**call.message, "id": f"{_REPLAYED}{uri}"}

    def forget(self, call: PendingCall) -> None:
        """Remove a subscription whose call the daemon has refused."""
        if call.method == _SUBSCRIBE and isinstance(uri := call.params.get("uri"), str):
            self._by_uri.pop(uri, None)

    def news_after(self, identifier: str, answer: dict[str, object]) -> list[dict[str, object]]:
        """Return the parameters of the update notifications to send after the daemon has answered a
        subscription that was sent again, since the resource may have changed meanwhile. Empty if
        the daemon refused it.
        """
        uri = identifier.removeprefix(_REPLAYED)
        return [{"uri": uri}] if uri in self._by_uri and "error" not in answer else []


def stream_of(acknowledgement: dict[str, Any]) -> Any:
    """Return the id of the request that opened the stream to which a notification belongs; None if
    its parameters name none.
    """
    try:
        return acknowledgement["_meta"][STREAM_KEY]
    except (KeyError, TypeError):
        return None


def uris_of(stream: PendingCall) -> list[Any]:
    """Return the URIs of the resources whose changes a stream's request asks for."""
    uris = _filter_of(stream).get(_URIS)
    return uris if isinstance(uris, list) else []


def refusal_of(stream: PendingCall) -> str | None:
    """Return why a stream's request is invalid, in the daemon's words; None if it is valid."""
    if not isinstance(stream.params.get("notifications"), dict):
        return "'notifications' is missing: an object that names what the stream is to bring"
    uris = uris_of(stream)
    if len(uris) > MAX_SUBSCRIBED or any(not isinstance(uri, str) or len(uri) > MAX_URI for uri in uris):
        return f"a stream is notified of at most {MAX_SUBSCRIBED} resources, each of at most {MAX_URI} letters"
    return None


def acknowledgement_of(stream: PendingCall) -> dict[str, object]:
    """Return the first message of a stream, which lists those of the requested notifications that
    this version supports.
    """
    wanted = _filter_of(stream)
    honored: dict[str, object] = {name: True for name in CHANGED if wanted.get(name) is True}
    if uris := uris_of(stream):
        honored[_URIS] = uris
    return _news(ACKNOWLEDGED, stream, notifications=honored)


def news_of_change(stream: PendingCall, name: str) -> Iterator[dict[str, object]]:
    """Yield the notification that the list `name` (of tools, for example) has changed, if the
    stream's request asks for it.
    """
    if _filter_of(stream).get(name) is True:
        yield _news(CHANGED[name], stream)


def news_after_break(stream: PendingCall) -> Iterator[dict[str, object]]:
    """Yield the notifications to send on a stream after a break of the link. Any of the stream's
    resources may have changed, appeared or disappeared meanwhile.
    """
    for uri in uris_of(stream):
        yield _news(UPDATED, stream, uri=uri)
    yield from news_of_change(stream, RESOURCES)


def _filter_of(stream: PendingCall) -> dict[str, object]:
    wanted = stream.params.get("notifications")
    return wanted if isinstance(wanted, dict) else {}


def _news(method: str, stream: PendingCall, **more: Any) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method, "params": {**more, "_meta": {STREAM_KEY: stream.identifier}}}
