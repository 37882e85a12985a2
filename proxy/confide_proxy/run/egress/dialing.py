"""Connect to hosts, through the proxy in the environment variables if there is one."""

from __future__ import annotations

import asyncio
import base64
import ssl
import urllib.request
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import h11

from confide_proxy.run.egress.http_stream import HttpStream
from confide_proxy.run.egress.proxy_environment import is_listed

CONNECT_S: Final = 20.0
"""Time to reach a host, with the handshake of TLS."""


class OuterProxyError(ConnectionError):
    """The proxy that the environment names does not connect to a host. The message says why; it
    contains neither the address of the proxy nor the password for it.
    """


async def dial(
    host: str, port: int, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a host. With a TLS context, make a TLS connection and verify the host's name.

    Raises OSError (ssl.SSLError for a failed handshake, OuterProxyError if the proxy is at fault)
    or TimeoutError if that fails.
    """
    name = host if tls is not None else None
    async with asyncio.timeout(CONNECT_S):
        if (proxy := _proxy_of(host)) is None:
            return await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
        try:
            reader, writer = await asyncio.open_connection(proxy.hostname, proxy.port or 80)
        except OSError as error:
            raise OuterProxyError(f"the proxy of HTTPS_PROXY cannot be reached: {type(error).__name__}") from error
        try:
            await _have_tunnel(HttpStream(h11.CLIENT, reader, writer), proxy, host, port)
            if tls is not None:
                await writer.start_tls(tls, server_hostname=name)
        except BaseException:
            writer.transport.abort()
            raise
    return reader, writer


def reason(error: Exception) -> str:
    """Describe an error of `dial` in words that contain no secret."""
    return str(error) if isinstance(error, OuterProxyError) else type(error).__name__


def _proxy_of(host: str) -> SplitResult | None:
    """Return the address of the proxy that the environment names for HTTPS to a host; None for none.

    What macOS has in its settings cannot be asked for in a forked process. Raises OuterProxyError
    for an address that this module cannot use: to go around the proxy could reach another host of
    that name.
    """
    named = urllib.request.getproxies_environment()
    if any(is_listed(host, entry) for entry in named.get("no", "").split(",")):
        return None
    if not (address := (named.get("https") or named.get("all") or "").strip()):
        return None
    found = urlsplit(address if "://" in address else f"http://{address}")
    try:
        is_usable = found.scheme == "http" and found.hostname and found.port != 0
    except ValueError:  # no number, or too large
        is_usable = False
    if not is_usable:
        raise OuterProxyError("the proxy of HTTPS_PROXY cannot be used here: it is no http://HOST:PORT")
    return found


async def _have_tunnel(stream: HttpStream, proxy: SplitResult, host: str, port: int) -> None:
    """Have a proxy connect to a host. Raises OSError if it does not."""
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    headers = [("host", name)]
    if proxy.username is not None:
        credential = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        headers.append(("proxy-authorization", f"Basic {base64.b64encode(credential.encode()).decode()}"))
    try:
        await stream.send(h11.Request(method="CONNECT", target=name, headers=headers), h11.EndOfMessage())
        while isinstance(answer := await stream.next(), h11.InformationalResponse):
            pass
    except h11.ProtocolError as error:
        raise OuterProxyError("the proxy of HTTPS_PROXY speaks no HTTP") from error
    if not isinstance(answer, h11.Response):
        raise OuterProxyError("the proxy of HTTPS_PROXY closed the connection")
    if answer.status_code // 100 != 2:
        raise OuterProxyError(f"the proxy of HTTPS_PROXY refused to connect: status {answer.status_code}")
