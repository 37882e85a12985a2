"""Refuses, before any other check, requests that no client may make.

A web page can make the browser send requests to every address that the browser can reach, including
loopback, also by a name that resolves to it (DNS rebinding). It cannot choose the headers `Host`
and `Origin`, which are checked here. No response has a CORS header, so no page can read one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from confide_crypto.errors import ConfideError, where
from confide_crypto.keys.bearer_tokens import MARK
from confide_http.door.refusals import RefusalError, handlers, refusal_of

log = logging.getLogger(__name__)

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
"""The names of the loopback interface."""
_TOKENS: Final = frozenset(
    {"access_token", "accesstoken", "api_key", "apikey", "api-key", "auth", "authorization", "bearer", "key", "token"}
)
"""Query parameters in which clients send tokens. URLs are kept in histories, logs and referrers."""
_SAFE: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Headers of every response that does not set its own."""


@dataclass(frozen=True, slots=True)
class GatewayNames:
    """The names under which a gateway accepts requests.

    Attributes:
        hosts: accepted values of `Host`, in lower case, with the port where one is needed.
        schemes: the URL schemes that clients use: http or https.
        open_to_links: prefixes of paths to which pages of other sites may link. The response to
            such a request contains nothing but what is in its URL.
        in_frames: True if such a link may also open in a frame; the page's own headers then decide
            which sites may show it.
    """

    hosts: Collection[str]
    schemes: Collection[str] = ("http", "https")
    open_to_links: Sequence[str] = ()
    in_frames: bool = False

    def has_host(self, host: str) -> bool:
        """Return True if the header `Host` names this gateway; a request by DNS rebinding names
        another host.
        """
        return host.lower() in self.hosts

    def has_origin(self, origin: str) -> bool:
        """Return True if the header `Origin` names this gateway, so that the request comes from one
        of its own pages.
        """
        scheme, _, host = origin.lower().partition("://")
        return scheme in self.schemes and host in self.hosts


def holds_token(query: bytes) -> bool:
    """Return True if a query string contains a token, or a parameter whose name is meant for one."""
    text = query.decode("latin-1")
    if MARK in text:
        return True
    pairs = parse_qsl(text, keep_blank_values=True)
    return any(name.strip().lower() in _TOKENS or MARK in value for name, value in pairs)


def problem_of(scope: Scope, names: GatewayNames) -> RefusalError | None:
    """Return the refusal of a request that no client may make, or None if the request may be
    handled.
    """
    hosts, origins, sites = (_values(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
    if len(hosts) != 1 or not names.has_host(hosts[0]):
        lacks_port = len(hosts) == 1 and any(name.rpartition(":")[0] == hosts[0].lower() for name in names.hosts)
        hint = "the port is missing in Host: a proxy in front has to pass it on as it came" if lacks_port else None
        return RefusalError(421, "misdirected", "this gateway answers to its own names alone", hint=hint)
    if any(not names.has_origin(origin) for origin in origins):
        return RefusalError(403, "denied", "pages of other origins are refused")
    # An image or a form sends no Origin, but browsers send this header.
    if ("cross-site" in sites or "same-site" in sites) and not _is_link(scope, names):
        return RefusalError(403, "denied", "requests that other sites cause are refused")
    if holds_token(scope["query_string"]):
        hint = "send it as Authorization: Bearer TOKEN"
        return RefusalError(400, "invalid", "a token has no place in an address", hint=hint)
    return None


class Guard:
    """ASGI middleware that refuses the requests that `problem_of` rejects, adds security headers to
    every response, and answers 500 after an unexpected exception.
    """

    def __init__(self, app: ASGIApp, names: GatewayNames, *, hint: str) -> None:
        """`hint`: where the log is that describes a bug further."""
        self._app = app
        self._names = names
        self._hint = hint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                there = {name.lower() for name, _ in message.get("headers", ())}
                more = [(name, value) for name, value in _SAFE if name not in there]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        refusal = problem_of(scope, self._names)
        try:
            if refusal is None:
                await self._app(scope, receive, send_with_headers)
                return
        except RefusalError as error:
            refusal = error
        except Exception as error:
            # The error's text may quote anything from the request or the store.
            log.error("a request failed: %s", where(error))
            refusal = RefusalError(500, "internal", "the gateway failed", hint=self._hint)
        if is_begun:
            # A partial answer must not look like a whole one.
            raise ConnectionAbortedError
        await refusal.response()(scope, receive, send_with_headers)


def application(
    routes: Sequence[Route],
    names: GatewayNames,
    *,
    hint: str,
    told: Callable[[ConfideError], RefusalError] = refusal_of,
) -> Guard:
    """Return the ASGI application of a gateway: its routes with `Guard` in front.

    Args:
        hint: names the log that describes an unexpected exception.
        told: maps a failure to the refusal that the client gets.
    """
    found = Starlette(routes=routes, exception_handlers=handlers(told))
    found.router.redirect_slashes = False
    return Guard(found, names, hint=hint)


def _is_link(scope: Scope, names: GatewayNames) -> bool:
    """Return True if a user follows a link to a page to which other sites may link."""
    mode, dest = _values(scope, b"sec-fetch-mode"), _values(scope, b"sec-fetch-dest")
    is_followed = mode == ["navigate"] and (dest == ["document"] or (names.in_frames and dest == ["iframe"]))
    return is_followed and scope["method"] == "GET" and scope["path"].startswith(tuple(names.open_to_links))


def _values(scope: Scope, name: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for each, value in headers if each == name]
