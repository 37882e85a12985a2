"""What a client listens to: resource by resource, or by streams of news in the 2026-07-28 era.

A stream is opened here, at once: a client of that era counts as connected when its stream is acknowledged, and must not wait for a daemon
for it. The daemon is told of it once there is one, and again after each break; what may have changed meanwhile the client is told to look
at. Between the last news of one connection and the first of the next nobody tells of a change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from confide_proxy.mcp.jsonrpc import REPLAY_ID, PendingCall

MAX_SUBSCRIBED: Final = 256
MAX_STREAMS: Final = 8
"""As many as a daemon has for one agent; so is the number of a stream's resources, and the length of an address."""
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
"""Lists that may change: what a stream calls each, and the news of it."""
_URIS: Final = "resourceSubscriptions"
_SUBSCRIBE: Final = "resources/subscribe"
_UNSUBSCRIBE: Final = "resources/unsubscribe"
_REPLAYED: Final = f"{REPLAY_ID}:"
"""What a subscription is replayed under, before its URI."""


class Subscriptions:
    """What a client listens to, resource by resource: each new session of the daemon's is told of it, and knows nothing before."""

    def __init__(self) -> None:
        self._by_uri: dict[str, dict[str, object]] = {}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What a new session of the daemon's is told."""
        return list(self._by_uri.values())

    def has(self, uri: Any) -> bool:
        """Whether the client listens to this resource."""
        return isinstance(uri, str) and uri in self._by_uri

    def note(self, call: PendingCall) -> None:
        """A client subscribes, or takes it back; any other call is passed over."""
        if call.method not in (_SUBSCRIBE, _UNSUBSCRIBE) or not isinstance(uri := call.params.get("uri"), str):
            return
        if call.method == _UNSUBSCRIBE:
            self._by_uri.pop(uri, None)
        elif len(self._by_uri) < MAX_SUBSCRIBED:
            self._by_uri[uri] = {**call.message, "id": f"{_REPLAYED}{uri}"}

    def forget(self, call: PendingCall) -> None:
        """It was refused, and its client told so."""
        if call.method == _SUBSCRIBE and isinstance(uri := call.params.get("uri"), str):
            self._by_uri.pop(uri, None)

    def news_after(self, identifier: str, answer: dict[str, object]) -> list[dict[str, object]]:
        """What the client is told once the daemon has answered a replayed request."""
        uri = identifier.removeprefix(_REPLAYED)
        return [{"uri": uri}] if uri in self._by_uri and "error" not in answer else []


def stream_of(acknowledgement: dict[str, Any]) -> Any:
    """The id of the request whose stream is acknowledged, by the notification's parameters; None where it names none."""
    try:
        return acknowledgement["_meta"][STREAM_KEY]
    except (KeyError, TypeError):
        return None


def uris_of(stream: PendingCall) -> list[Any]:
    """The resources of which a stream is to bring news."""
    uris = _wanted(stream).get(_URIS)
    return uris if isinstance(uris, list) else []


def refusal_of(stream: PendingCall) -> str | None:
    """Why a stream is not opened, in the words that the daemon would use; None: it is."""
    if not isinstance(stream.params.get("notifications"), dict):
        return "'notifications' is missing: an object that names what the stream is to bring"
    uris = uris_of(stream)
    if len(uris) > MAX_SUBSCRIBED or any(not isinstance(uri, str) or len(uri) > MAX_URI for uri in uris):
        return f"a stream is told of at most {MAX_SUBSCRIBED} resources, each of at most {MAX_URI} letters"
    return None


def acknowledgement_of(stream: PendingCall) -> dict[str, object]:
    """The first message of a stream: which news it brings. All that this version knows of what was asked for."""
    wanted = _wanted(stream)
    honored: dict[str, object] = {name: True for name in CHANGED if wanted.get(name) is True}
    if uris := uris_of(stream):
        honored[_URIS] = uris
    return _news(ACKNOWLEDGED, stream, notifications=honored)


def news_of_change(stream: PendingCall, name: str) -> Iterator[dict[str, object]]:
    """What a stream brings when the list of that name has changed, if it was asked to."""
    if _wanted(stream).get(name) is True:
        yield _news(CHANGED[name], stream)


def news_after_break(stream: PendingCall) -> Iterator[dict[str, object]]:
    """What a stream brings once the daemon tells of news again: any of its resources may have changed, or have come or gone."""
    for uri in uris_of(stream):
        yield _news(UPDATED, stream, uri=uri)
    yield from news_of_change(stream, RESOURCES)


def _wanted(stream: PendingCall) -> dict[str, Any]:
    wanted = stream.params.get("notifications")
    return wanted if isinstance(wanted, dict) else {}


def _news(method: str, stream: PendingCall, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": {**more, "_meta": {STREAM_KEY: stream.identifier}}}
