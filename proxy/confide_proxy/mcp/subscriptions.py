"""What a client listens to, resource by resource or as a stream: each new session of the daemon's is told of it, and knows nothing before.

Between the last news of one connection and the first of the next nobody tells of a change, so the client is told to look itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from confide_proxy.mcp.pending import Call

MAX_SUBSCRIBED: Final = 256
LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
STREAM_KEY: Final = "io.modelcontextprotocol/subscriptionId"
REPLAY_ID: Final = "confide-replay"
"""The id of what is replayed unseen, and what the ids of replayed subscriptions begin with."""
_SUBSCRIBE: Final = "resources/subscribe"
_UNSUBSCRIBE: Final = "resources/unsubscribe"
_REPLAYED: Final = f"{REPLAY_ID}:"
"""What a subscription is replayed under, before its URI."""


class Subscriptions:
    """Those of one client."""

    def __init__(self) -> None:
        self._by_uri: dict[str, dict[str, Any]] = {}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What a new session of the daemon's is told."""
        return list(self._by_uri.values())

    def note(self, call: Call) -> None:
        """A client subscribes, or takes it back; any other call is passed over."""
        if call.method not in (_SUBSCRIBE, _UNSUBSCRIBE) or not isinstance(uri := call.params.get("uri"), str):
            return
        if call.method == _UNSUBSCRIBE:
            self._by_uri.pop(uri, None)
        elif len(self._by_uri) < MAX_SUBSCRIBED:
            self._by_uri[uri] = {**call.message, "id": f"{_REPLAYED}{uri}"}

    def forget(self, call: Call) -> None:
        """It was refused, and its client told so."""
        if call.method == _SUBSCRIBE and isinstance(uri := call.params.get("uri"), str):
            self._by_uri.pop(uri, None)

    def news_after(self, identifier: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
        """What the client is told once the daemon has answered a replayed request."""
        uri = identifier.removeprefix(_REPLAYED)
        return [{"uri": uri}] if uri in self._by_uri and "error" not in answer else []


def stream_of(acknowledgement: dict[str, Any]) -> Any:
    """The id of the request whose stream is acknowledged; None where it names none."""
    try:
        return acknowledgement["params"]["_meta"][STREAM_KEY]
    except (KeyError, TypeError):
        return None


def news_of(stream: Call) -> list[dict[str, Any]]:
    """What the client is told once its stream is open on another connection: its resources, one by one."""
    wanted = stream.params.get("notifications")
    uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
    return [{"uri": uri, "_meta": {STREAM_KEY: stream.identifier}} for uri in (uris if isinstance(uris, list) else ())]
