"""Where the gateway's requests go: to the recipe's hosts and the model, whatever path, header or answer says otherwise."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.draws import draws
from tests.support.network.tls_hosts import AUTHORITY, TlsHost, lead, tls_host
from tests.support.runs import KEY

from confide_night.runner.budget import budget_gateway
from confide_night.runner.budget.budget_gateway import BudgetGateway, RunTerms
from confide_night.runner.budget.meter import Meter
from confide_night.runner.settings.prices import price_of
from confide_proxy.run.egress.header_secrets import Destination
from confide_proxy.run.egress.host_connection import HostConnection, HostError

NAME = "registry.example.test"
ENCODED = NAME.replace(".", "%2e")
SECRET = "THE-RECIPES-SECRET"
MODEL = "https://model.example.test"


class Outside:
    """All that is reached from a gateway: the host that a recipe names, another one, and the model in place of a network."""

    def __init__(self, host: TlsHost, evil: TlsHost) -> None:
        self.host = host
        self.evil = evil
        self.requests: list[httpx2.Request] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b"ok"
        host.answer = lambda _head: self._raw()

    def _raw(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} x", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)

        async def pieces() -> AsyncIterator[bytes]:
            yield self.body

        return httpx2.Response(self.status, headers=self.headers, content=pieces())


class Inside:
    """An agent that writes its requests byte by byte, as a program in the sandbox can."""

    def __init__(self, gateway: BudgetGateway) -> None:
        self._gateway = gateway

    async def ask(
        self, raw_path: str, *, query: str = "", method: str = "GET", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body of the answer; a scope is made of a request's line as uvicorn makes it."""
        sent: list[dict[str, Any]] = []
        given = {"host": "gateway", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw_path),
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        is_given = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if is_given.is_set():
                await asyncio.Event().wait()
            is_given.set()
            return {"type": "http.request", "body": b"{}" if method == "POST" else b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._gateway.app(scope, receive, send)
        start, *rest = sent
        said = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        return start["status"], said, b"".join(each.get("body", b"") for each in rest)


@pytest.fixture(scope="module", autouse=True)
def one_context() -> Iterator[None]:
    """The authority of the hosts is trusted in place of the system's."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_gateway, "_verifying", lambda _terms: context)
        yield


@pytest.fixture
async def outside(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Outside]:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with tls_host(NAME) as host, tls_host("evil.test", NAME) as evil:
        lead(monkeypatch, {(NAME, 443): host.port}, evil.port)
        yield Outside(host, evil)


@asynccontextmanager
async def sandbox(
    outside: Outside, *, headers: dict[str, str] | None = None, name: str = NAME
) -> AsyncIterator[Inside]:
    """A gateway of a recipe that names one host, with a secret for it."""
    given = {"private-token": f"Bearer {SECRET}"} if headers is None else headers
    named = Destination.parse(name)
    assert named is not None
    terms = RunTerms("anthropic", MODEL, KEY, lambda model: price_of(model, {}), {named: given}, (SECRET,))
    gateway = BudgetGateway(terms, Meter(1.0), lambda _said: None)
    inner = gateway._client
    # What the gateway's own client was made with stays as it is, but for the way out.
    inner._transport, inner._mounts = httpx2.MockTransport(outside.answer), {}
    try:
        yield Inside(gateway)
    finally:
        await gateway.close()


@pytest.mark.parametrize(
    "path",
    [
        "/hosts/evil.test:9302/x",
        f"/hosts/{NAME}@evil.test:9302/x",
        f"/hosts/{NAME}:9302/x",
        f"/hosts/{NAME}.evil.test/x",
        f"/hosts/evil.test%2f{NAME}/x",
        f"/hosts%2f{NAME}/x",
        f"/hosts//{NAME}/x",
        f"/hosts/user:word%40{NAME}/x",
        "/hosts/",
        "/hosts",
    ],
)
async def test_a_host_that_the_recipe_does_not_name_is_not_asked(path: str, outside: Outside) -> None:
    async with sandbox(outside) as agent:
        status, _, _ = await agent.ask(path)
    assert (status, outside.host.connections, outside.evil.connections) == (404, 0, 0)


@pytest.mark.parametrize("named", [NAME, ENCODED, NAME.replace("r", "%72"), NAME.replace("e", "%65")])
@pytest.mark.parametrize(
    "rest",
    [
        f"/hosts/{NAME}@evil.test:9302/steal",
        f"/hosts/{NAME}.evil.test:9302/steal",
        f"/hosts/{NAME}:9302/other-port",
        "//evil.test/steal",
        "/@evil.test/steal",
        "/..//evil.test/steal",
        "/%2f%2fevil.test/steal",
        "/https://evil.test/steal",
        "/\\evil.test/steal",
        ":9302/steal",
    ],
)
async def test_whatever_stands_behind_a_host_is_that_hosts_own_path(named: str, rest: str, outside: Outside) -> None:
    """The name in one form and again in another: two readers of one address took the secret to whoever was named second."""
    async with sandbox(outside) as agent:
        await agent.ask(f"/hosts/{named}{rest}", query="d=1")
    assert outside.evil.connections == 0
    assert all(f"\r\nhost: {NAME}\r\n".encode() in head for head in outside.host.heads)


async def test_a_host_of_the_recipe_gets_its_secret_and_gives_it_to_nobody(outside: Outside) -> None:
    """The header is set outside; an answer that repeats it is masked, also where the secret is cut in two."""
    half = len(SECRET) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one.encode()) for one in (SECRET[:half], SECRET[half:]))
    outside.host.answer = lambda _head: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    async with sandbox(outside) as agent:
        status, _, body = await agent.ask(f"/hosts/{NAME}/simple")
    assert f"private-token: Bearer {SECRET}".encode() in outside.host.heads[0]
    assert (status, body) == (200, b"(masked)")


_PIECES = st.sampled_from(
    [
        *("/", "//", "hosts", NAME, ENCODED, "evil.test", "@", ":", ":9302", "%2f", "%5c", "\\", "..", "%2e%2e", "?"),
        *("#", "%23", "%3f", "%40", "%00", "%zz", "[::1]", "user:word@", "https:", ";", "x"),
    ]
)
_PRINTED = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=8)


@given(path=st.lists(_PIECES | _PRINTED, max_size=12).map("".join), query=_PRINTED, port=st.sampled_from(["", ":8443"]))
@settings(max_examples=draws(300), deadline=None)
def test_whatever_the_path_a_request_goes_to_the_recipes_host(path: str, query: str, port: str) -> None:
    opened: list[Destination] = []

    async def refuse(destination: Destination, *_: object) -> HostConnection:
        opened.append(destination)
        raise HostError("it is not there")

    async def run() -> None:
        outside = Outside(TlsHost(), TlsHost())
        async with sandbox(outside, name=NAME + port) as agent:
            await agent.ask(f"/hosts/{path}", query=query)
            await agent.ask(f"/hosts/{ENCODED}{port}/{path}", query=query)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostConnection, "open", refuse)
        asyncio.run(run())
    assert set(opened) == {Destination(NAME, 8443 if port else 443)}


async def test_a_path_arrives_as_it_was_written(outside: Outside) -> None:
    """Packages of a scope are named with an `@` and an encoded slash, and both are their registry's business."""
    async with sandbox(outside) as agent:
        status, _, _ = await agent.ask(f"/hosts/{NAME}/@scope%2Fpackage/-/a%20b.tgz", query="x=%2F&y")
    assert status == 200
    assert outside.host.heads[0].startswith(b"GET /@scope%2Fpackage/-/a%20b.tgz?x=%2F&y HTTP/1.1\r\n")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("path", "method"), [(f"/hosts/{NAME}/x", "GET"), (f"/hosts/{NAME}/x", "POST"), ("/v1/models", "GET")]
)
async def test_a_redirect_is_told_and_not_followed(status: int, path: str, method: str, outside: Outside) -> None:
    """With it would go the header that has the secret, to wherever the host, or who answers in its name, likes."""
    outside.status, outside.headers = status, {"location": "https://evil.test/steal"}
    async with sandbox(outside) as agent:
        found, headers, _ = await agent.ask(path, method=method)
    assert (found, headers["location"]) == (status, "https://evil.test/steal")
    assert len(outside.host.heads) + len(outside.requests) == 1
    assert outside.evil.connections == 0


async def test_of_an_agents_headers_a_host_gets_those_that_are_harmless(outside: Outside) -> None:
    """A host believes what its own proxy says of a caller (`X-Forwarded-For`), and a name in `Host` can be another site of its."""
    asked = {
        "accept": "text/html",
        "user-agent": "pip",
        "host": "inner.example.test",
        "authorization": "Basic x",
        "cookie": "a=b",
        "private-token": "mine",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-host": "inner.example.test",
        "forwarded": "for=127.0.0.1",
        "x-original-url": "/admin",
        "x-http-method-override": "DELETE",
        "range": "bytes=0-3",
        "if-range": "x",
        "accept-encoding": "gzip",
    }
    async with sandbox(outside) as agent:
        await agent.ask(f"/hosts/{NAME}/x", headers=asked)
    lines = outside.host.heads[0].decode().split("\r\n")[1:]
    assert dict(line.split(": ", 1) for line in lines) == {
        "host": NAME,
        "accept": "text/html",
        "user-agent": "pip",
        "accept-encoding": "identity",
        "private-token": f"Bearer {SECRET}",
    }


@pytest.mark.parametrize("name", ["location", "etag", "content-type", "retry-after", "last-modified", "x-request-id"])
@pytest.mark.parametrize("repeated", [f"Bearer {SECRET}", SECRET, f"https://{NAME}/?private_token={SECRET}&x=1"])
async def test_a_secret_that_a_host_repeats_is_masked_in_headers_too(
    name: str, repeated: str, outside: Outside
) -> None:
    """With what stands around it in the header, or without."""
    outside.headers, outside.body = {name: repeated}, repeated.encode()
    async with sandbox(outside) as agent:
        _, headers, body = await agent.ask(f"/hosts/{NAME}/x")
    assert SECRET not in str(headers) + body.decode()
    assert "(masked)" in headers[name]


async def test_what_a_host_packs_is_not_passed_on_where_a_secret_could_be_in_it(outside: Outside) -> None:
    outside.headers = {"content-encoding": "zstd"}
    async with sandbox(outside) as agent:
        assert (await agent.ask(f"/hosts/{NAME}/x"))[0] == 502
    async with sandbox(outside, headers={}) as agent:
        assert (await agent.ask(f"/hosts/{NAME}/x"))[0] == 200


async def test_the_models_own_key_is_masked_in_what_its_api_refuses(outside: Outside) -> None:
    outside.status, outside.body, outside.headers = 401, f"incorrect key: {KEY}".encode(), {"request-id": KEY}
    async with sandbox(outside) as agent:
        status, headers, body = await agent.ask("/v1/models")
    assert status == 401
    assert KEY not in str(headers) + body.decode()


@pytest.mark.parametrize("host", ["x/v1/messages?", "model.example.test/v1/models?", "evil.test:80/v1/models#"])
async def test_a_host_header_is_no_part_of_what_is_asked(host: str, outside: Outside) -> None:
    """Some put a request's address together of it, and then read the path out of that."""
    async with sandbox(outside) as agent:
        assert (await agent.ask("/v1/files", headers={"host": host}))[0] == 404
    assert outside.requests == []
