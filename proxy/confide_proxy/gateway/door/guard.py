"""The outermost door: what no request passes, whoever makes it.

A page in the person's browser can send requests to loopback, by address or by a name of its own that leads here (DNS rebinding); it cannot
choose `Host` and `Origin`. Pure predicates, and the middleware that asks them before anything else is looked at. No answer has a header of
CORS, so no page reads one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from confide_proxy.gateway.door.refusals import RefusalError
from confide_proxy.gateway.door.tokens import MARK

log = logging.getLogger(__name__)

NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
"""How this machine calls itself."""
LINKS: Final = "/panel/in/"
"""Below it are the panel's links, each good once."""
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


def is_own_host(host: str | None, port: int) -> bool:
    """Whether a `Host` is one of ours: a name that leads here is told apart by it."""
    if host is None:
        return False
    host = host.lower()
    return any(host == f"{name}:{port}" or (port == 80 and host == name) for name in NAMES)


def is_own_origin(origin: str, port: int) -> bool:
    """Whether an `Origin` is a page of ours."""
    scheme, _, host = origin.lower().partition("://")
    return scheme == "http" and is_own_host(host, port)


def _is_link(scope: Scope) -> bool:
    """Whether somebody follows a link into the panel, which leads here from a file. Whoever knows none is given nothing there."""
    mode, dest = _values(scope, b"sec-fetch-mode"), _values(scope, b"sec-fetch-dest")
    is_followed = mode == ["navigate"] and dest in (["document"], ["iframe"])
    return is_followed and scope["method"] == "GET" and scope["path"].startswith(LINKS)


def holds_token(query: bytes) -> bool:
    """Whether a query string has a token in it, or a parameter that is made for one."""
    text = query.decode("latin-1")
    if MARK in text:
        return True
    pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=None)
    return any(name.strip().lower() in _TOKENS or MARK in value for name, value in pairs)


def problem_of(scope: Scope, port: int) -> RefusalError | None:
    """Why a request does not pass; None: it does."""
    hosts, origins, sites = (_values(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
    if len(hosts) != 1 or not is_own_host(hosts[0], port):
        return RefusalError(421, "misdirected", "this gateway answers to its own address alone")
    if any(not is_own_origin(origin, port) for origin in origins):
        return RefusalError(403, "denied", "pages of other origins are refused")
    # A picture or a form brings no Origin, but browsers say this.
    if ("cross-site" in sites or "same-site" in sites) and not _is_link(scope):
        return RefusalError(403, "denied", "requests that other sites cause are refused")
    if holds_token(scope["query_string"]):
        return RefusalError(
            400, "invalid", "a token has no place in an address", hint="send it as Authorization: Bearer TOKEN"
        )
    return None


class Guard:
    """ASGI middleware: refuses what `problem_of` says, stamps every answer, and turns a fault of ours into a plain 500."""

    def __init__(self, app: ASGIApp, port: Callable[[], int]) -> None:
        """`port`: that the gateway listens on, once it does."""
        self._app = app
        self._port = port

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

        refusal = problem_of(scope, self._port())
        try:
            if refusal is None:
                await self._app(scope, receive, stamped)
                return
        except RefusalError as error:
            refusal = error
        except Exception as error:
            # What it says may quote anything that was asked or stored.
            log.error("a request failed: %s", where(error))
            refusal = RefusalError(500, "internal", "the gateway failed", hint="its log has the place")
        if not is_begun:
            await refusal.response()(scope, receive, stamped)
        else:
            # Half of an answer must not pass for a whole one.
            raise ConnectionAbortedError


def _values(scope: Scope, name: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for each, value in headers if each == name]


def where(error: BaseException) -> str:
    """Class and place of an error, without its text."""
    trace = error.__traceback__ or sys.exc_info()[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = Path(trace.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} at {file.parent.name}/{file.name}:{trace.tb_lineno}"
