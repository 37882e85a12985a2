"""The outermost door: what no request passes, whoever makes it.

A page can send requests to whatever its reader's browser reaches, loopback too, by address or by a name of its own that leads here (DNS
rebinding); it cannot choose `Host` and `Origin`. Pure predicates, and the middleware that asks them before anything else is looked at. No
answer has a header of CORS, so no page reads one.
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
"""How a machine calls itself."""
_TOKENS: Final = frozenset(
    {"access_token", "accesstoken", "api_key", "apikey", "api-key", "auth", "authorization", "bearer", "key", "token"}
)
"""Parameters that clients put tokens into. An address is kept in histories, logs and referrers."""
_SAFE: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""On every answer that does not say otherwise."""


@dataclass(frozen=True, slots=True)
class GatewayNames:
    """How a gateway is called.

    Attributes:
        hosts: as they stand in `Host`, in small letters, with the port where one has to be said.
        schemes: by which it is reached.
        open_to_links: what paths begin with that a page of another site may lead a person to. Whoever comes along there is given nothing
            that is not in the address.
        in_frames: whether these may be led to within a frame as well. Whether such a page shows itself there, its own headers say.
    """

    hosts: Collection[str]
    schemes: Collection[str] = ("http", "https")
    open_to_links: Sequence[str] = ()
    in_frames: bool = False

    def has_host(self, host: str) -> bool:
        """Whether a `Host` is one of ours: a name that leads here is told apart by it."""
        return host.lower() in self.hosts

    def has_origin(self, origin: str) -> bool:
        """Whether an `Origin` is a page of ours."""
        scheme, _, host = origin.lower().partition("://")
        return scheme in self.schemes and host in self.hosts


def holds_token(query: bytes) -> bool:
    """Whether a query string has a token in it, or a parameter that is made for one."""
    text = query.decode("latin-1")
    if MARK in text:
        return True
    pairs = parse_qsl(text, keep_blank_values=True)
    return any(name.strip().lower() in _TOKENS or MARK in value for name, value in pairs)


def problem_of(scope: Scope, names: GatewayNames) -> RefusalError | None:
    """Why a request does not pass; None: it does."""
    hosts, origins, sites = (_values(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
    if len(hosts) != 1 or not names.has_host(hosts[0]):
        lacks_port = len(hosts) == 1 and any(name.rpartition(":")[0] == hosts[0].lower() for name in names.hosts)
        hint = "the port is missing in Host: a proxy in front has to pass it on as it came" if lacks_port else None
        return RefusalError(421, "misdirected", "this gateway answers to its own names alone", hint=hint)
    if any(not names.has_origin(origin) for origin in origins):
        return RefusalError(403, "denied", "pages of other origins are refused")
    # A picture or a form brings no Origin, but browsers say this.
    if ("cross-site" in sites or "same-site" in sites) and not _is_link(scope, names):
        return RefusalError(403, "denied", "requests that other sites cause are refused")
    if holds_token(scope["query_string"]):
        hint = "send it as Authorization: Bearer TOKEN"
        return RefusalError(400, "invalid", "a token has no place in an address", hint=hint)
    return None


class Guard:
    """ASGI middleware: refuses what `problem_of` says, stamps every answer, and turns a fault of ours into a plain 500."""

    def __init__(self, app: ASGIApp, names: GatewayNames, *, hint: str) -> None:
        """`hint`: where the log is that says more of a fault of ours."""
        self._app = app
        self._names = names
        self._hint = hint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_begun = False

        async def stamped(message: Message) -> None:
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
                await self._app(scope, receive, stamped)
                return
        except RefusalError as error:
            refusal = error
        except Exception as error:
            # What it says may quote anything that was asked or stored.
            log.error("a request failed: %s", where(error))
            refusal = RefusalError(500, "internal", "the gateway failed", hint=self._hint)
        if is_begun:
            # Half of an answer must not pass for a whole one.
            raise ConnectionAbortedError
        await refusal.response()(scope, receive, stamped)


def application(
    routes: Sequence[Route],
    names: GatewayNames,
    *,
    hint: str,
    told: Callable[[ConfideError], RefusalError] = refusal_of,
) -> Guard:
    """What a gateway serves: its routes, behind the guard.

    Args:
        hint: where the log is that says more of a fault of ours.
        told: what a failure means to whoever asks.
    """
    found = Starlette(routes=routes, exception_handlers=handlers(told))
    found.router.redirect_slashes = False
    return Guard(found, names, hint=hint)


def _is_link(scope: Scope, names: GatewayNames) -> bool:
    """Whether somebody follows a link to a page that others may lead to."""
    mode, dest = _values(scope, b"sec-fetch-mode"), _values(scope, b"sec-fetch-dest")
    is_followed = mode == ["navigate"] and (dest == ["document"] or (names.in_frames and dest == ["iframe"]))
    return is_followed and scope["method"] == "GET" and scope["path"].startswith(tuple(names.open_to_links))


def _values(scope: Scope, name: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for each, value in headers if each == name]
