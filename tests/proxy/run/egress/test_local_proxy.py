"""A secret for a header of a host goes to that host in that header, whatever else the command sends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import trustme
from tests.support.deadline import DEADLINE_S
from tests.support.network.tls_hosts import AUTHORITY, TlsHost, lead, tls_host

from confide_proxy.run.egress import run_certificate
from confide_proxy.run.egress.header_secrets import Destination, HeaderSecret, HeaderSecrets
from confide_proxy.run.egress.local_proxy import LocalProxy
from confide_proxy.run.egress.proxy_environment import USER
from confide_proxy.sealing.masking import SecretForms

VALUE = b"xK7mQ2vR9tLw4zz"
SHOWN = b"(sealed:token:0f)"
NAME = "api.example.test"
EVIL = "evil.example.test"
BEARER = b"Authorization: Bearer secret:api\r\n"


@dataclass
class Away:
    """What is outside: the host that gets the secret, another one, and the proxy on the way."""

    host: TlsHost
    evil: TlsHost
    port: int
    client: ssl.SSLContext
    credential: str = "word"

    async def connected(
        self, place: str, *, credential: bytes = b""
    ) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        """The status of a `CONNECT`, and the way through the proxy."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        word = credential or b"Basic " + base64.b64encode(f"{USER}:{self.credential}".encode())
        line = place.encode()
        writer.write(
            b"CONNECT "
            + line
            + b" HTTP/1.1\r\nHost: "
            + NAME.encode()
            + b"\r\nProxy-Authorization: "
            + word
            + b"\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1]), reader, writer

    async def sent(self, raw: bytes, place: str = f"{NAME}:443", *, name: str = NAME) -> bytes:
        """All that comes back for these bytes, within TLS to `name`; b"" if the proxy does not connect."""
        status, reader, writer = await self.connected(place)
        try:
            if status != 200:
                return b""
            await writer.start_tls(self.client, server_hostname=name)
            writer.write(raw)
            said = b""
            with contextlib.suppress(OSError):
                while piece := await reader.read(65536):
                    said += piece
            return said
        except ssl.SSLCertVerificationError:
            return b""
        finally:
            writer.transport.abort()


@pytest.fixture(scope="module")
def certificate() -> run_certificate.RunCertificate:
    return run_certificate.make([NAME])


@pytest.fixture
async def away(certificate: run_certificate.RunCertificate, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Away]:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    secret = HeaderSecret(Destination(NAME), "authorization", ("secret:api", str(SHOWN, "ascii")), VALUE)
    outer, client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (outer, client):
        AUTHORITY.configure_trust(context)
    client.load_verify_locations(cadata=certificate.authority.decode())
    proxy = LocalProxy(HeaderSecrets([secret]), SecretForms({VALUE: SHOWN}), "word", certificate.context, outer)
    async with asyncio.timeout(DEADLINE_S), tls_host(NAME) as host, tls_host(EVIL, NAME) as evil:
        lead(monkeypatch, {(NAME, 443): host.port}, evil.port)
        listener = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(proxy.serve(listener))
        yield Away(host, evil, listener.getsockname()[1], client)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def request(
    line: str = "GET /x HTTP/1.1", *headers: bytes, host: str = NAME, end: bytes = b"Connection: close\r\n"
) -> bytes:
    """The bytes of a request that asks for the secret."""
    named = b"" if not host else b"Host: " + host.encode() + b"\r\n"
    return line.encode() + b"\r\n" + named + BEARER + b"".join(headers) + end + b"\r\n"


async def test_the_named_header_gets_the_value_and_nothing_else_does(away: Away) -> None:
    body = b"secret:api"
    raw = request(
        "POST /secret:api?q=secret:api HTTP/1.1",
        *(b"X-Other: secret:api\r\n", b"Cookie: secret:api\r\n", b"Range: bytes=0-3\r\n", b"Accept-Encoding: gzip\r\n"),
        *(b"Proxy-Authorization: Basic x\r\n", b"Content-Length: 10\r\n"),
    )
    assert (await away.sent(raw + body)).startswith(b"HTTP/1.1 200")
    (head,) = away.host.heads
    assert head.count(VALUE) == 1
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"post /secret:api?q=secret:api http/1.1"
    assert b"authorization: bearer " + VALUE.lower() in lines
    assert not {line.partition(b":")[0] for line in lines} & {b"range", b"proxy-authorization", b"connection"}
    assert b"accept-encoding: identity" in lines
    assert away.host.seen.endswith(body)


@pytest.mark.parametrize(
    "text",
    [
        "secret:api",
        "Bearer secret:api",
        "token (sealed:token:0f)",
        "Basic " + base64.b64encode(b"me:secret:api").decode(),
    ],
)
async def test_a_placeholder_is_replaced_where_it_stands(away: Away, text: str) -> None:
    await away.sent(request().replace(BEARER, f"authorization: {text}\r\n".encode()))
    got = next(line for line in away.host.heads[0].split(b"\r\n") if line.startswith(b"authorization: "))
    got = got.removeprefix(b"authorization: ")
    got = base64.b64decode(got.split()[1]) if text.startswith("Basic") else got
    assert got.endswith(VALUE)
    assert b"secret" not in got


async def test_a_longer_name_is_another_placeholder(away: Away) -> None:
    await away.sent(request().replace(b"secret:api", b"secret:api-2"))
    assert VALUE not in away.host.seen


@pytest.mark.parametrize(
    "place",
    [
        f"{EVIL}:443",
        f"{NAME}:8443",
        f"{NAME}.:443",
        f"{NAME}.{EVIL}:443",
        f"{NAME}@{EVIL}:443",
        f"{EVIL}@{NAME}:443",
        f"{NAME}:443@{EVIL}:443",
        f"{NAME}:443:443",
        f"{NAME}:65979",
        f"{NAME}:+443",
        f"{NAME}:",
        NAME,
        f"https://{NAME}:443",
        f"{NAME}:443/",
        f"{NAME.replace('.', '%2e')}:443",
        f"{NAME}%00.{EVIL}:443",
        f"{NAME}#.{EVIL}:443",
        "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        f"[{NAME}]:443",
        "2130706433:443",
        "0x7f.1:443",
        "ąpi.example.test:443",
        "api。example。test:443",
        "xn--api-.example.test:443",
        ":443",
        "*:443",
    ],
)
async def test_another_address_gets_no_value(away: Away, place: str) -> None:
    """N1: two readers of one address. What is not the named host, letter by letter, goes through unopened, or not at all."""
    for name in (NAME, EVIL):
        for host in (NAME, EVIL):
            await away.sent(request(host=host), place, name=name)
    assert VALUE not in away.evil.seen
    assert away.host.seen == b""


async def test_an_address_of_the_host_itself_is_another_host(away: Away) -> None:
    await away.sent(request(), f"127.0.0.1:{away.host.port}")
    assert VALUE not in away.host.seen
    assert b"secret:api" in away.host.seen


async def test_a_name_is_the_same_in_any_case(away: Away) -> None:
    await away.sent(request(host=NAME.title()), f"{NAME.upper()}:0443")
    assert VALUE in away.host.seen


@pytest.mark.parametrize(
    "raw",
    [
        request(host=EVIL),
        request(host=f"{NAME}:8443"),
        request(host=f"{NAME}."),
        request(host=f"user@{NAME}"),
        request(host=f"{NAME}, {EVIL}"),
        request(host=""),
        request("GET /x HTTP/1.0", host=""),
        request("GET /x HTTP/1.1", f"Host: {EVIL}\r\n".encode()),
        request("GET /x HTTP/1.1", f"Host: {NAME}\r\n".encode()),
        request(f"GET https://{EVIL}/x HTTP/1.1"),
        request(f"GET https://{NAME}/x HTTP/1.1"),
        request(f"GET http://{NAME}@{EVIL}/x HTTP/1.1"),
        request(f"CONNECT {EVIL}:443 HTTP/1.1"),
        request("OPTIONS * HTTP/1.1"),
        request(f"GET {EVIL} HTTP/1.1"),
        request("GET /x#y HTTP/1.1"),
        request("GET \\x HTTP/1.1"),
        request("GET /x HTTP/1.1", b" folded: x\r\nHost : x\r\n"),
        request("GET /x HTTP/1.1", b"Content-Length: 3\r\nContent-Length: 4\r\n"),
        request("GET /x HTTP/1.1", b"Transfer-Encoding: x, chunked\r\n"),
        request("GET /x HTTP/1.1", b"X: \x00\r\n"),
        request("GET /x HTTP/1.1", b"X: " + b"x" * 200_000 + b"\r\n"),
        b"\x16\x03\x01\r\n\r\n",
    ],
)
async def test_a_request_that_names_another_host_is_refused(away: Away, raw: bytes) -> None:
    said = await away.sent(raw)
    assert int(said.split()[1]) in (400, 421, 431, 501)
    assert (away.host.seen, away.evil.seen) == (b"", b"")


async def test_whatever_stands_in_a_path_is_the_hosts_own(away: Away) -> None:
    for path in (
        f"//{EVIL}/x",
        f"/@{EVIL}/x",
        f"/..//{EVIL}",
        f"/https://{EVIL}/",
        f"/%2f%2f{EVIL}/",
        f"/?u=https://{EVIL}",
    ):
        assert b" 200 " in (await away.sent(request(f"GET {path} HTTP/1.1")))[:20]
    assert len(away.host.heads) == 6
    assert all(f"host: {NAME}".encode() in head for head in away.host.heads)
    assert away.evil.seen == b""


async def test_each_of_several_requests_is_looked_at(away: Away) -> None:
    """One after another on a connection, or all at once: the second is to another host, or hides in the body of the first."""
    first, second = request(end=b""), request(host=EVIL)
    said = await away.sent(first + second)
    assert b" 421 " in said
    await away.sent(request(end=b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + b"0\r\n\r\n" + second)
    assert b"content-length" not in away.host.heads[1].lower()
    assert EVIL.encode() not in away.host.seen
    assert away.evil.seen == b""
    said = await away.sent(request(end=b"") + request(end=b"") + request())
    assert said.count(b"HTTP/1.1 200") == 3
    assert away.host.connections == 3


async def test_a_redirect_goes_back_and_is_not_followed(away: Away) -> None:
    away.host.answer = lambda _head: (
        f"HTTP/1.1 307 x\r\nLocation: https://{EVIL}/steal\r\nContent-Length: 0\r\n\r\n".encode()
    )
    said = await away.sent(request())
    assert said.startswith(b"HTTP/1.1 307")
    assert f"https://{EVIL}/steal".encode() in said
    await away.sent(request(host=EVIL), f"{EVIL}:443", name=EVIL)
    assert b"secret:api" in away.evil.seen
    assert VALUE not in away.evil.seen


async def test_a_value_that_the_host_repeats_is_masked(away: Away) -> None:
    """In headers, names of headers, the body, and there in base64 or in two chunks."""
    packed = base64.b64encode(VALUE)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in (VALUE[:7], VALUE[7:], b" ", packed, b"end"))
    away.host.answer = lambda _head: (
        b"HTTP/1.1 401 " + VALUE + b"\r\nTransfer-Encoding: chunked\r\nX-Echo: Bearer " + VALUE + b"\r\n"
        b"Set-Cookie: t="
        + packed
        + b"\r\nX-"
        + VALUE
        + b': 1\r\nAlt-Svc: h3=":443"\r\n\r\n'
        + chunks
        + b"0\r\nT: "
        + VALUE
        + b"\r\n\r\n"
    )
    said = await away.sent(request())
    assert said.startswith(b"HTTP/1.1 401")
    assert VALUE not in said
    assert VALUE.lower() not in said
    assert packed[:12] not in said
    assert b"X-Echo: Bearer " in said or b"x-echo: Bearer " + SHOWN in said
    assert b"alt-svc" not in said.lower()
    assert said.rstrip().endswith(b"0")
    away.host.answer = lambda _head: b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok"
    assert b" 502 " in await away.sent(request())
    away.host.answer = lambda _head: b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\nConnection: close\r\n\r\n"
    assert b"content-length: 77" in (await away.sent(request("HEAD /x HTTP/1.1"))).lower()


async def test_a_host_that_is_not_whom_it_is_named_gets_nothing(away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere, a certificate for another name, and one of an authority that nobody trusts."""
    async with tls_host(EVIL) as other, tls_host(NAME, authority=trustme.CA()) as forged:
        for port in (other.port, forged.port, 1):
            lead(monkeypatch, {(NAME, 443): port}, port)
            said = await away.sent(request())
            assert b" 502 " in said
            assert NAME.encode() in said
        assert other.seen + forged.seen == b""


async def test_nobody_without_the_credential_is_answered(away: Away) -> None:
    """No other process of this machine, which sees the port: not with none, another, or two of them. With it, only `CONNECT` is."""
    word = base64.b64encode(f"{USER}:word".encode())
    for credential in (
        b"Basic x",
        b"Bearer " + word,
        b"basic  " + word,
        b"Basic " + word + b"\r\nProxy-Authorization: Basic x",
    ):
        status, _, writer = await away.connected(f"{NAME}:443", credential=credential)
        assert status == 407
        writer.transport.abort()
    reader, writer = await asyncio.open_connection("127.0.0.1", away.port)
    asked = f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    writer.write(asked)
    assert b" 407 " in await reader.readuntil(b"another command\n")
    # As curl does it: again on the same connection, now with the credential.
    plain = f"GET http://{NAME}/ HTTP/1.1\r\nHost: {NAME}\r\nProxy-Authorization: Basic ".encode() + word + b"\r\n\r\n"
    writer.write(plain)
    assert b" 400 " in await reader.read()
    writer.transport.abort()
    assert (away.host.seen, away.evil.seen) == (b"", b"")


async def test_a_connection_ends_although_the_command_does_not_end_it(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS waits for the other side's end too; a command that has what it wanted may never send it."""
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 3600.0)

    def rest() -> bytes:
        with socket.socket() as plain:
            plain.settimeout(DEADLINE_S)
            plain.connect(("127.0.0.1", away.port))
            word = base64.b64encode(f"{USER}:{away.credential}".encode())
            plain.sendall(
                b"CONNECT %s:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n" % (NAME.encode(), word)
            )
            assert b" 200 " in plain.recv(4096)
            with away.client.wrap_socket(plain, server_hostname=NAME) as inside:
                inside.sendall(request())
                while inside.recv(65536):
                    pass
                return socket.socket.recv(inside, 1)  # below TLS

    assert await asyncio.to_thread(rest) == b""


async def test_a_large_body_goes_both_ways(away: Away) -> None:
    sent = b"x" * 3_000_000
    away.host.answer = lambda _head: b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + sent
    said = await away.sent(request("PUT /x HTTP/1.1", b"Content-Length: 3000000\r\n") + sent)
    assert said.count(b"x") == 3_000_000
    assert away.host.seen.count(b"x") >= 3_000_000 or away.host.seen.startswith(b"PUT")
