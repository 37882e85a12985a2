"""The client's way to a websocket at the daemon's address, and what a person is told where there is none (PROTOCOL.md 3).

`websockets` is the heaviest import here, so its client half is loaded when a client connects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from confide_crypto.errors import UnreachableError
from confide_crypto.limits import SUBPROTOCOL, websocket_options

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def websocket_url(url: str) -> str:
    """`url` with confide:// and confides:// as `websockets` knows them."""
    for ours, theirs in (("confide://", "ws://"), ("confides://", "wss://")):
        if url.startswith(ours):
            return theirs + url.removeprefix(ours)
    return url


async def open_websocket(url: str, where: str) -> ClientConnection:
    """A websocket of the right subprotocol to `url`; the caller sets the deadline.

    Raises:
        UnreachableError: there is none: refused, no such name, tls, something else answers. `where` names the place to a person.
    """
    import errno
    import socket
    import ssl

    from websockets.asyncio import client
    from websockets.exceptions import InvalidHandshake, InvalidProxy, InvalidStatus, InvalidURI

    class Opening(client.connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc  # the pin belongs to this address; a redirect could only lead the traffic past where it was meant to go

    is_local = (urlsplit(url).hostname or "") in _LOCAL_HOSTS
    try:
        ws = await Opening(
            url, **websocket_options(), open_timeout=None, user_agent_header=None, proxy=None if is_local else True
        )
    except ConnectionRefusedError:
        raise _refused(where) from None
    except socket.gaierror:
        raise UnreachableError(where, "no such name", hint="check the address and the network") from None
    except ssl.SSLError as error:
        reason = (error.reason or type(error).__name__).lower().replace("_", " ")
        raise UnreachableError(where, f"tls failed: {reason}", hint="check its certificate") from None
    except ConnectionError:
        problem = "tls failed: the connection was cut" if url.startswith("wss:") else "the connection was cut"
        raise UnreachableError(where, problem, hint="check the address and the port") from None
    except InvalidStatus as error:
        status = error.response.status_code
        raise UnreachableError(
            where, f"it answers http {status}, not as a daemon", hint="check the address and the path"
        ) from None
    except (InvalidURI, InvalidProxy):
        raise UnreachableError(where, "the address or the proxy setting is malformed") from None
    except (InvalidHandshake, EOFError):
        raise UnreachableError(
            where, "what answers there is not a websocket", hint="check the address and the port"
        ) from None
    except OSError as error:
        # A name with two addresses, as localhost is: asyncio puts both refusals into one text.
        if f"[Errno {errno.ECONNREFUSED}]" in str(error):
            raise _refused(where) from None
        raise UnreachableError(where, (error.strerror or str(error) or type(error).__name__).lower()) from None
    if ws.subprotocol != SUBPROTOCOL:
        ws.transport.abort()
        raise UnreachableError(
            where, "a websocket answers there, but not a daemon of this version", hint="check the address"
        )
    return ws


def _refused(where: str) -> UnreachableError:
    return UnreachableError(where, "connection refused", hint="is confided running? try confide status")
