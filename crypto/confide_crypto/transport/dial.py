"""The client's connection to the websocket at the daemon's address (PROTOCOL.md 3), and an error
message with a hint for each cause of failure.

`websockets` is the heaviest import here, so its client half is loaded when a client connects.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidProxy, InvalidStatus, InvalidURI, ProxyError
from websockets.http11 import Response

from confide_crypto.errors import UnreachableError
from confide_crypto.limits import SUBPROTOCOL, websocket_options

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NEXT_ADDRESS_S: Final = 0.25
"""Seconds without a connection after which the name's next address is tried as well (RFC 8305), so
that a dead IPv6 costs no timeout.
"""

# OpenSSL's x509_vfy.h
_NOT_YET: Final = 9
_EXPIRED: Final = 10
_NOT_THIS_NAME: Final = (62, 64)
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
_NO_CERTIFICATE: Final = ("TLSV1_ALERT_INTERNAL_ERROR", "TLSV1_UNRECOGNIZED_NAME", "SSLV3_ALERT_HANDSHAKE_FAILURE")

_NOT_UPGRADED: Final = b'{"error": "not found"}'
"""Body of confided's answer to a plain HTTP request."""

_WANTS_TLS: Final = ("that port speaks tls, and the address does not", "the address has to begin with confides://")
_OWN_PROXY: Final = "check HTTPS_PROXY and HTTP_PROXY; NO_PROXY lists what is reached without"
_WANTS_NO_TLS: Final = (
    "confided itself speaks none: without a reverse proxy that does, the address begins with confide://"
)


def websocket_url(url: str) -> str:
    """Return `url` with ws:// or wss:// instead of confide:// or confides://."""
    for ours, theirs in (("confide://", "ws://"), ("confides://", "wss://")):
        if url.startswith(ours):
            return theirs + url.removeprefix(ours)
    return url


def shown_url(url: str) -> str:
    """Return `url` as users write it: with confide:// or confides://, without user name and
    password.

    With ws:// a user might think that the connection is not encrypted.
    """
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    shown = {"ws": "confide", "wss": "confides"}.get(scheme, scheme)
    return f"{shown}{separator}{place.rpartition('@')[2]}{slash}{path}".removesuffix("/")


def place_of(url: str) -> str:
    """Return the host and port of `url`, for messages. Raises UnreachableError if the address is
    malformed.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # the port is parsed only on access
    except ValueError:
        raise UnreachableError("its address", "the address is malformed", hint="join again, or pin it again") from None
    return parts.netloc.rpartition("@")[2]  # hide a password for a proxy


async def open_websocket(url: str, where: str) -> ClientConnection:
    """Open a websocket of Confide's subprotocol to `url`. There is no timeout here; the calling
    code must set one.

    Raises UnreachableError, with `where` as the name of the address, if the connection is refused,
    the name does not exist, TLS fails, or another service answers.
    """
    from websockets.asyncio import client

    class Opening(client.connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc  # the pin is for this address; a redirect could only misdirect the traffic

    is_local = (urlsplit(url).hostname or "") in LOCAL_HOSTS
    try:
        ws = await Opening(
            url,
            **websocket_options(),
            open_timeout=None,
            user_agent_header=None,
            proxy=None if is_local else True,
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
            ssl=ssl.create_default_context() if url.startswith("wss:") else None,
        )
    except (OSError, EOFError, InvalidHandshake, InvalidProxy, InvalidURI) as error:
        raise diagnose(url, where, error) from None
    if ws.subprotocol != SUBPROTOCOL:
        ws.transport.abort()
        raise UnreachableError(
            where, "a websocket answers there, but not a daemon of this version", hint="check the address"
        )
    return ws


def diagnose(url: str, where: str, error: Exception) -> UnreachableError:
    """Return the error to show to a user for an `error` that the websocket library, the system or
    TLS raised.

    Args:
        url: the address as it was opened, with ws:// or wss://.
        where: name of the address, for the message.
        error: the cause.
    """
    problem, hint = _explain(url, error)
    return UnreachableError(where, problem, hint=hint)


def _explain(url: str, error: Exception) -> tuple[str, str | None]:

    is_tls = url.startswith("wss:")
    # Without TLS, the ssl module is not loaded just to find that the error is not one of TLS.
    has_tls = isinstance(error, OSError) and (is_tls or _is_by_proxy(url))
    if has_tls and isinstance(error, ssl.SSLCertVerificationError):
        return _certificate(urlsplit(url).hostname or "", error)
    if has_tls and isinstance(error, ssl.SSLError):
        return _tls(urlsplit(url).hostname or "", error)
    if isinstance(error, InvalidStatus):
        return _status(url, error.response)
    if isinstance(error, InvalidURI | InvalidProxy):
        return "the address or the proxy setting is malformed", None
    if isinstance(error, ProxyError):
        return "the proxy that this machine has to use does not let it through", _OWN_PROXY
    if isinstance(error, InvalidMessage) and not is_tls and "HTTP/1.0 400" in str(error.__cause__):
        return _WANTS_TLS  # the answer of servers in Go to plain HTTP on a TLS port (Caddy, many tunnels)
    if isinstance(error, InvalidHandshake | EOFError):
        tls = "" if is_tls else "; if that port speaks tls, the address begins with confides://"
        return "what answers there is not a websocket", f"check the address and the port{tls}"
    return _network(url, error, is_tls=is_tls)


def _network(url: str, error: Exception, *, is_tls: bool) -> tuple[str, str | None]:
    """Return problem and hint for a connection that failed or was cut."""

    if isinstance(error, ConnectionRefusedError | socket.gaierror) and _is_by_proxy(url):
        return "the proxy that this machine has to use cannot be reached", _OWN_PROXY
    if isinstance(error, socket.gaierror):
        return "no such name", "check the address and the network"
    # For a name with two addresses, such as localhost, asyncio joins both refusals in one text.
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "connection refused", "is confided running? on its machine: confided status"
    if isinstance(error, ConnectionError):
        if is_tls:
            return "tls failed: the connection was cut", _WANTS_NO_TLS
        return "the connection was cut", "check the address and the port"
    return ((isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__).lower(), None


def _is_by_proxy(url: str) -> bool:
    """Return True if the environment sets an HTTP or SOCKS proxy for this address."""
    from websockets.proxy import get_proxy
    from websockets.uri import parse_uri

    return (urlsplit(url).hostname or "") not in LOCAL_HOSTS and get_proxy(parse_uri(url)) is not None


def _certificate(host: str, error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    code = error.verify_code
    if code in _UNKNOWN_AUTHORITY:
        file = os.environ.get("SSL_CERT_FILE")
        if file and not Path(file).is_file():
            hint = "SSL_CERT_FILE names a file that is not there"
        else:
            hint = "if the authority is your own, set SSL_CERT_FILE to its certificate (docs/server.md)"
        return "its certificate is not from an authority that this machine trusts", hint
    if code == _EXPIRED:
        return "its certificate has expired", "renew it on the reverse proxy; or is this machine's clock wrong?"
    if code == _NOT_YET:
        return "its certificate is not valid yet", "is this machine's clock wrong?"
    if code in _NOT_THIS_NAME:
        return (
            f"its certificate is not for the name {host}",
            "use the name in the certificate, or have one made for this",
        )
    return f"its certificate is refused: {error.verify_message}", "check the certificate on the reverse proxy"


def _tls(host: str, error: ssl.SSLError) -> tuple[str, str]:
    reason = error.reason or type(error).__name__
    if reason in _NO_TLS:
        return "what answers there does not speak tls", _WANTS_NO_TLS
    if reason in _NO_CERTIFICATE:
        return f"the reverse proxy there has no certificate for the name {host}", "check the name, and what it serves"
    return f"tls failed: {reason.lower().replace('_', ' ')}", "check the certificate and tls of the reverse proxy"


def _status(url: str, response: Response) -> tuple[str, str]:
    status, body = response.status_code, bytes(response.body or b"")
    http = f"(http {status})"
    if status == 400 and url.startswith("ws:") and b"https" in body.lower():
        return _WANTS_TLS
    if status == 404 and body.strip() == _NOT_UPGRADED:
        return (
            f"the reverse proxy there does not pass websockets on {http}",
            "have it pass Upgrade and Connection (docs/server.md)",
        )
    if status == 404:
        return f"a web server answers there, but nothing under this path {http}", "check the path of the address"
    if status in (502, 503, 504) or 520 <= status <= 530:  # the last ones are Cloudflare's
        return (
            f"the reverse proxy there answers, but the daemon behind it does not {http}",
            "is confided running, and does the reverse proxy pass to its port?",
        )
    if status in (401, 403, 407):
        return (
            f"the reverse proxy there asks for a login of its own {http}",
            "let this path through without one: the channel proves both ends itself",
        )
    if 300 <= status < 400:
        return f"it redirects to another address {http}, which is not followed", _redirect(url, response)
    return f"it answers {http[1:-1]}, not as a daemon", "check the address and the path"


def _redirect(url: str, response: Response) -> str:
    """Return a hint for a redirect; it does not show the other address, which an attacker could
    have written.
    """
    to, path = urlsplit(response.headers.get("Location", "")), urlsplit(url).path
    if to.scheme == "https" and url.startswith("ws:"):
        return "it may want tls: then the address begins with confides://"
    if to.path == f"{path}/":
        return "let the reverse proxy pass the path without a slash at its end too (docs/server.md)"
    return "ask its operator for the address to join with"
