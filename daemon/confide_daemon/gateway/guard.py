"""The outermost door: what no request passes, whoever makes it.

A page can send requests to whatever its reader's browser reaches, by address or by a name of its own that leads here (DNS rebinding); it
cannot choose `Host` and `Origin`. Pure predicates, and the middleware that asks them before anything else is looked at. No answer has a
header of CORS, so no page reads one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from confide_crypto.errors import ConfideError
from confide_daemon.access.gateway_clients import MARK
from confide_daemon.config import GatewayConfig, parse_listen
from confide_daemon.gateway.refusals import RefusalError

log = logging.getLogger(__name__)

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - what is listened on, to be told by what can be reached
_PORTS: Final = {"https": 443, "http": 80}
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


def hosts_of(config: GatewayConfig, port: int) -> frozenset[str]:
    """How the gateway is called, as it stands in `Host`; `port`: that it listens on."""
    found = {host.lower() for host in config.hosts}
    if config.public_url:
        url = urlsplit(config.public_url.lower())
        found.add(url.netloc)
        if url.port is None:
            found.add(f"{url.netloc}:{_PORTS[url.scheme]}")
        elif url.port == _PORTS[url.scheme]:
            found.add(url.netloc.rpartition(":")[0])
    host, _ = parse_listen(config.listen)
    shown = f"[{host}]" if ":" in host else host.lower()
    own = _LOOPBACK if host in _EVERYWHERE or shown in _LOOPBACK else (shown,)
    return frozenset(found | {f"{name}:{port}" for name in own})


def origin_of(config: GatewayConfig, port: int) -> str:
    """Of the addresses that clients are told, such as `https://memory.example.org`."""
    if config.public_url:
        return config.public_url.rstrip("/")
    host, _ = parse_listen(config.listen)
    name = "127.0.0.1" if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"{'https' if config.cert else 'http'}://{name}:{port}"


def holds_token(query: bytes) -> bool:
    """Whether a query string has a token in it, or a parameter that is made for one."""
    text = query.decode("latin-1")
    if MARK in text:
        return True
    return any(name.strip().lower() in _TOKENS or MARK in value for name, value in parse_qsl(text, True))


def problem_of(scope: Scope, hosts: Collection[str]) -> RefusalError | None:
    """Why a request does not pass; None: it does."""
    said, origins, sites = (_values(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
    if len(said) != 1 or said[0].lower() not in hosts:
        return RefusalError(421, "misdirected", "this gateway answers to its own names alone")
    for origin in origins:
        scheme, _, host = origin.lower().partition("://")
        if scheme not in _PORTS or host not in hosts:
            return RefusalError(403, "denied", "pages of other origins are refused")
    # A picture or a form brings no Origin, but browsers say this.
    if "cross-site" in sites or "same-site" in sites:
        return RefusalError(403, "denied", "requests that other sites cause are refused")
    if holds_token(scope["query_string"]):
        hint = "send it as Authorization: Bearer TOKEN"
        return RefusalError(400, "invalid", "a token has no place in an address", hint=hint)
    return None


class Guard:
    """ASGI middleware: refuses what `problem_of` says, stamps every answer, and turns a fault of ours into a plain 500."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

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

        refusal = problem_of(scope, self._hosts)
        try:
            if refusal is None:
                await self._app(scope, receive, stamped)
                return
        except ConfideError as error:
            refusal = RefusalError.of(error)
        except Exception as error:
            # What it says may quote anything that was asked or stored.
            log.error("a request of the gateway failed: %s", type(error).__name__)
            refusal = RefusalError(
                500, "internal", "the gateway failed", hint="whoever runs the daemon finds it in its log"
            )
        if is_begun:
            # Half of an answer must not pass for a whole one.
            raise ConnectionAbortedError
        await refusal.response()(scope, receive, stamped)


def _values(scope: Scope, name: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for each, value in headers if each == name]
