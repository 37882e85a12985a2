"""Behind a company's proxy, hosts are reached through it, and never around it."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.tls_hosts import AUTHORITY, OK, TlsHost, tls_host

from confide_proxy.run.egress import dialing
from confide_proxy.run.egress.dialing import OuterProxyError, dial

NAME = "api.example.test"
PASSWORD = "p@ss/word"


@dataclass
class CompanyProxy:
    """A proxy with a password. It connects each CONNECT to the same host, whatever name that has."""

    host: TlsHost
    lines: list[bytes] = field(default_factory=list)
    port: int = 0
    answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.lines.append(head)
        word = base64.b64encode(f"me:{PASSWORD}".encode())
        if b"proxy-authorization: basic " + word.lower() not in head.lower():
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        writer.write(self.answer)
        there, into = await asyncio.open_connection("127.0.0.1", self.host.port)
        try:
            await asyncio.gather(pump(reader, into), pump(there, writer))
        finally:
            into.transport.abort()


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(65536):
        target.write(piece)
    target.write_eof()


@pytest.fixture
async def company(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CompanyProxy]:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with asyncio.timeout(DEADLINE_S), tls_host(NAME) as host:
        proxy = CompanyProxy(host)
        server = await asyncio.start_server(proxy.take, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        yield proxy
        server.close()


async def asked(name: str = NAME) -> bytes:
    """Send a GET request to a host over HTTPS, and return the response."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(trust)
    reader, writer = await dial(name, 443, trust)
    writer.write(f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
    said = await reader.readexactly(len(OK))
    writer.transport.abort()
    return said


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_a_host_is_reached_through_it(
    company: CompanyProxy, monkeypatch: pytest.MonkeyPatch, variable: str, scheme: str
) -> None:
    """By its name, which only the proxy looks up. The host's certificate is verified here."""
    monkeypatch.setenv(variable, f"{scheme}me:p%40ss%2Fword@127.0.0.1:{company.port}")
    assert await asked() == OK
    assert company.lines[0].startswith(f"CONNECT {NAME}:443 HTTP/1.1\r\n".encode())
    assert len(company.host.heads) == 1
    with pytest.raises(ssl.SSLCertVerificationError):
        await asked("other.example.test")
    assert len(company.host.heads) == 1


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://127.0.0.1:{port}", "refused to connect: status 407"),
        ("https://127.0.0.1:{port}", "no http://HOST:PORT"),
        ("socks5://127.0.0.1:{port}", "no http://HOST:PORT"),
        ("http://127.0.0.1:port", "no http://HOST:PORT"),
        ("http://", "no http://HOST:PORT"),
        ("http://me:p%40ss%2Fword@127.0.0.1:1", "cannot be reached: ConnectionRefusedError"),
    ],
)
async def test_where_it_does_not_connect_that_is_said(
    company: CompanyProxy, monkeypatch: pytest.MonkeyPatch, address: str, why: str
) -> None:
    """Nothing goes around it, and the password is in no error."""
    monkeypatch.setenv("HTTPS_PROXY", address.format(port=company.port))
    with pytest.raises(OuterProxyError) as caught:
        await asked()
    assert dialing.reason(caught.value).endswith(why)
    assert PASSWORD not in str(caught.value)
    assert company.host.connections == 0


@pytest.mark.parametrize(
    ("answer", "why"), [(b"hello\r\n\r\n", "speaks no HTTP"), (b"HTTP/1.1 503 Busy\r\n\r\n", "status 503")]
)
async def test_what_it_says_before_the_connection_is_read_as_http(
    company: CompanyProxy, monkeypatch: pytest.MonkeyPatch, answer: bytes, why: str
) -> None:
    company.answer = answer
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss%2Fword@127.0.0.1:{company.port}")
    with pytest.raises(OuterProxyError, match=why):
        await asked()


async def test_one_that_never_answers_is_waited_for_so_long(
    company: CompanyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.answer = b""
    monkeypatch.setattr(dialing, "CONNECT_S", 0.2)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss%2Fword@127.0.0.1:{company.port}")
    with pytest.raises(TimeoutError):
        await asked()


async def test_hosts_of_no_proxy_are_reached_without_it(company: CompanyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    reader, writer = await dial("127.0.0.1", company.port)
    writer.write(b"\r\n\r\n")
    assert (await reader.read(12)).startswith(b"HTTP/1.1 407")
    writer.transport.abort()
