"""The client's way to a websocket at the daemon's address (PROTOCOL.md 3). What a person is told where there is none: `diagnosis`.

`websockets` is the heaviest import here, so its client half is loaded when a client connects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from confide_crypto.errors import UnreachableError
from confide_crypto.limits import SUBPROTOCOL, websocket_options

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NEXT_ADDRESS_S: Final = 0.25
"""RFC 8305's: after so long without a connection the name's next address is tried as well, so that a dead IPv6 costs no timeout."""


def websocket_url(url: str) -> str:
    """`url` with confide:// and confides:// as `websockets` knows them."""
    for ours, theirs in (("confide://", "ws://"), ("confides://", "wss://")):
        if url.startswith(ours):
            return theirs + url.removeprefix(ours)
    return url


def place_of(url: str) -> str:
    """Host and port in `url`, as they are named to a person.

    Raises:
        UnreachableError: there can be no such place.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at only when it is asked for
    except ValueError:
        raise UnreachableError("its address", "the address is malformed", hint="join again, or pin it anew") from None
    return parts.netloc.rpartition("@")[2]  # a password for a proxy on the way is nobody's to read


async def open_websocket(url: str, where: str) -> ClientConnection:
    """A websocket of the right subprotocol to `url`; the caller sets the deadline.

    Raises:
        UnreachableError: there is none: refused, no such name, tls, something else answers. `where` names the place to a person.
    """
    from websockets.asyncio import client
    from websockets.exceptions import InvalidHandshake, InvalidProxy, InvalidURI

    class Opening(client.connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc  # the pin belongs to this address; a redirect could only lead the traffic past where it was meant to go

    is_local = (urlsplit(url).hostname or "") in LOCAL_HOSTS
    try:
        ws = await Opening(
            url,
            **websocket_options(),
            open_timeout=None,
            user_agent_header=None,
            proxy=None if is_local else True,
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
        )
    except (OSError, EOFError, InvalidHandshake, InvalidProxy, InvalidURI) as error:
        from confide_crypto.diagnosis import diagnose

        raise diagnose(url, where, error) from None
    if ws.subprotocol != SUBPROTOCOL:
        ws.transport.abort()
        raise UnreachableError(
            where, "a websocket answers there, but not a daemon of this version", hint="check the address"
        )
    return ws
