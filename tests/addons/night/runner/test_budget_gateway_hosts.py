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
from tests.support.runs import KEY

from confide_night.runner.budget import budget_gateway
from confide_night.runner.budget.budget_gateway import BudgetGateway, RunTerms
from confide_night.runner.budget.meter import Meter
from confide_night.runner.settings.prices import price_of

NAME = "registry.example.test"
ENCODED = NAME.replace(".", "%2e")
SECRET = "THE-RECIPES-SECRET"
MODEL = "https://model.example.test"


class Outside:
    """All that is reached from a gateway, in place of a network; `answer` gives what it says."""

    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b"ok"

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
    """No request leaves: the system's authorities are loaded once, and not for each of 150 gateways."""
    context = ssl.create_default_context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_gateway, "_verifying", lambda _terms: context)
        yield


@asynccontextmanager
async def sandbox(
    outside: Outside, *, headers: dict[str, str] | None = None, name: str = NAME
) -> AsyncIterator[Inside]:
    """A gateway of a recipe that names one host, with a secret for it."""
    given = {"private-token": f"Bearer {SECRET}"} if headers is None else headers
    terms = RunTerms("anthropic", MODEL, KEY, lambda model: price_of(model, {}), {name: given}, "https", (SECRET,))
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
async def test_a_host_that_the_recipe_does_not_name_is_not_asked(path: str) -> None:
    outside = Outside()
    async with sandbox(outside) as agent:
        status, _, _ = await agent.ask(path)
    assert (status, outside.requests) == (404, [])


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
async def test_whatever_stands_behind_a_host_is_that_hosts_own_path(named: str, rest: str) -> None:
    """The name in one form and again in another: two readers of one address took the secret to whoever was named second."""
    outside = Outside()
    async with sandbox(outside) as agent:
        await agent.ask(f"/hosts/{named}{rest}", query="d=1")
    for request in outside.requests:
        assert (request.url.scheme, request.url.host, request.url.port) == ("https", NAME, None)
        assert request.headers["host"] == NAME


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
    async def run() -> None:
        outside = Outside()
        async with sandbox(outside, name=NAME + port) as agent:
            await agent.ask(f"/hosts/{path}", query=query)
            await agent.ask(f"/hosts/{ENCODED}{port}/{path}", query=query)
        for request in outside.requests:
            place = (request.url.scheme, request.url.host, request.url.port, request.url.userinfo)
            assert place == ("https", NAME, 8443 if port else None, b"")

    asyncio.run(run())


async def test_a_path_arrives_as_it_was_written() -> None:
    """Packages of a scope are named with an `@` and an encoded slash, and both are their registry's business."""
    outside = Outside()
    async with sandbox(outside) as agent:
        status, _, _ = await agent.ask(f"/hosts/{NAME}/@scope%2Fpackage/-/a%20b.tgz", query="x=%2F&y")
    assert status == 200
    assert str(outside.requests[0].url) == f"https://{NAME}/@scope%2Fpackage/-/a%20b.tgz?x=%2F&y"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("path", "method"), [(f"/hosts/{NAME}/x", "GET"), (f"/hosts/{NAME}/x", "POST"), ("/v1/models", "GET")]
)
async def test_a_redirect_is_told_and_not_followed(status: int, path: str, method: str) -> None:
    """With it would go the header that has the secret, to wherever the host, or who answers in its name, likes."""
    outside = Outside()
    outside.status, outside.headers = status, {"location": "https://evil.test/steal"}
    async with sandbox(outside) as agent:
        found, headers, _ = await agent.ask(path, method=method)
    assert (found, headers["location"]) == (status, "https://evil.test/steal")
    assert [request.url.host for request in outside.requests] == [NAME if "hosts" in path else "model.example.test"]


async def test_of_an_agents_headers_a_host_gets_those_that_are_harmless() -> None:
    """A host believes what its own proxy says of a caller (`X-Forwarded-For`), and a name in `Host` can be another site of its."""
    outside = Outside()
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
    got = dict(outside.requests[0].headers)
    assert got == {
        "host": NAME,
        "accept": "text/html",
        "user-agent": "pip",
        "accept-encoding": "identity",
        "private-token": f"Bearer {SECRET}",
        "connection": "keep-alive",
    }


@pytest.mark.parametrize("name", ["location", "etag", "content-type", "retry-after", "last-modified", "x-request-id"])
@pytest.mark.parametrize("repeated", [f"Bearer {SECRET}", SECRET, f"https://{NAME}/?private_token={SECRET}&x=1"])
async def test_a_secret_that_a_host_repeats_is_masked_in_headers_too(name: str, repeated: str) -> None:
    """With what stands around it in the header, or without."""
    outside = Outside()
    outside.headers, outside.body = {name: repeated}, repeated.encode()
    async with sandbox(outside) as agent:
        _, headers, body = await agent.ask(f"/hosts/{NAME}/x")
    assert SECRET not in str(headers) + body.decode()
    assert "(masked)" in headers[name]


async def test_what_a_host_packs_is_not_passed_on_where_a_secret_could_be_in_it() -> None:
    outside = Outside()
    outside.headers = {"content-encoding": "zstd"}
    async with sandbox(outside) as agent:
        assert (await agent.ask(f"/hosts/{NAME}/x"))[0] == 502
    async with sandbox(outside, headers={}) as agent:
        assert (await agent.ask(f"/hosts/{NAME}/x"))[0] == 200


async def test_the_models_own_key_is_masked_in_what_its_api_refuses() -> None:
    outside = Outside()
    outside.status, outside.body, outside.headers = 401, f"incorrect key: {KEY}".encode(), {"request-id": KEY}
    async with sandbox(outside) as agent:
        status, headers, body = await agent.ask("/v1/models")
    assert status == 401
    assert KEY not in str(headers) + body.decode()


@pytest.mark.parametrize("host", ["x/v1/messages?", "model.example.test/v1/models?", "evil.test:80/v1/models#"])
async def test_a_host_header_is_no_part_of_what_is_asked(host: str) -> None:
    """Some put a request's address together of it, and then read the path out of that."""
    outside = Outside()
    async with sandbox(outside) as agent:
        assert (await agent.ask("/v1/files", headers={"host": host}))[0] == 404
    assert outside.requests == []
