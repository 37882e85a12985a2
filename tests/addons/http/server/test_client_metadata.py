"""Documents that describe a program at an address: from listed hosts alone, over a real TLS server; and nothing else is ever asked."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest
import trustme
from tests.support.deadline import DEADLINE_S

from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import Registry
from confide_http.door.refusals import RefusalError
from confide_http.server.access.applications import Applications
from confide_http.server.oauth import client_metadata
from confide_http.server.oauth.client_metadata import MAX_BYTES, ClientMetadata, is_public

HOST = "client.example"
ADDRESS = f"https://{HOST}/about/client.json"
REDIRECT = "https://client.example/callback"
DOCUMENT = {"client_id": ADDRESS, "client_name": "Client", "redirect_uris": [REDIRECT]}
AUTHORITY = trustme.CA()


def answer(document: Any = DOCUMENT, *, status: str = "200 OK", more: str = "") -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


@asynccontextmanager
async def serving(said: bytes, *, host: str = HOST, is_slow: bool = False) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server of that name; its port, and the heads that it has got."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if is_slow:
            await reader.read()
        writer.write(said)
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(host).configure_cert(context)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server, asyncio.timeout(DEADLINE_S):
        yield server.sockets[0].getsockname()[1], asked


@pytest.fixture
def applications(registry: Registry) -> Applications:
    registry.add_caller(b"d" * 32, Grants("laptop", "write"), space="home", added_by="invite")
    return Applications(registry)


def about(
    applications: Applications, port: int, *, addresses: tuple[str, ...] = ("127.0.0.1",), **more: Any
) -> ClientMetadata:
    """As a gateway that lists the host; which here is on this machine."""

    async def resolve(host: str) -> list[str]:
        assert host == HOST
        return list(addresses)

    # Without the system's own authorities, which take most of a test's time.
    trusted = ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())
    options = {"may_reach": lambda _address: True, "port": port, "trusted": trusted, "resolve": resolve, **more}
    return ClientMetadata(applications, [HOST], "home", **options)


async def test_a_program_of_a_listed_host_is_known_by_its_document(applications: Applications) -> None:
    """It is asked for once in a while, and counts as it is then."""
    async with serving(answer()) as (port, asked):
        found = about(applications, port)
        first = await found.application(ADDRESS)
        assert first is not None
        assert (first.name, first.space, first.redirects, first.is_registered) == ("Client", "home", (REDIRECT,), True)
        assert await found.application(ADDRESS) == first
        assert len(asked) == 1
        assert b"GET /about/client.json HTTP/1.1" in asked[0]
        assert b"host: client.example\r\n" in asked[0].lower()
    changed = {**DOCUMENT, "redirect_uris": [f"{REDIRECT}/2"]}
    async with serving(answer(changed)) as (port, _):
        again = await about(applications, port).application(ADDRESS)
    assert again is not None
    assert again.redirects == (f"{REDIRECT}/2",)
    assert applications.all() == [again]


async def test_the_programs_of_the_example_come_back_on_the_port_that_they_have(applications: Applications) -> None:
    """The documents of Claude Code and VS Code, in the fields that are read here."""
    described = {
        ("http://localhost/callback", "http://127.0.0.1/callback"): "http://localhost:62224/callback",
        ("http://127.0.0.1/", "http://127.0.0.1:33418/", "https://vscode.dev/redirect"): "http://127.0.0.1:54321/",
    }
    for redirects, asked in described.items():
        async with serving(answer({**DOCUMENT, "redirect_uris": list(redirects)})) as (port, _):
            found = await about(applications, port).application(ADDRESS)
        assert found is not None
        assert found.may_send_to(asked)
        assert not found.may_send_to(asked.replace("http:", "https:"))


OTHER_ADDRESSES = [
    "https://other.example/client.json",
    "https://client.example.evil.example/x",
    "https://evil.client.example/x",
    f"http://{HOST}/x",
    f"https://{HOST}",
    f"https://{HOST}/",
    f"https://{HOST}:8443/x",
    f"https://me@{HOST}/x",
    f"https://{HOST}/x?y",
    f"https://{HOST}/x#y",
    f"https://{HOST}/a/../x",
    f"https://{HOST}\\@evil.example/x",
    "https://127.0.0.1/x",
    "https://[::1]/x",
    "https://[",
    f"https://{HOST}/" + "x" * 2000,
    "",
    "another-program",
]


async def test_no_other_address_is_asked(applications: Applications) -> None:
    async def never(_host: str) -> list[str]:
        raise AssertionError

    for identifier in OTHER_ADDRESSES:
        assert await about(applications, 1, resolve=never).application(identifier) is None


@pytest.mark.parametrize(
    "addresses",
    [
        *(("127.0.0.1",), ("10.0.0.8",), ("169.254.169.254",), ("192.168.1.1",), ("100.64.0.1",), ("0.0.0.0",)),
        *(("::1",), ("fe80::1",), ("fd00::1",), ("::ffff:127.0.0.1",), ("2002:7f00:1::",), ("64:ff9b::7f00:1",)),
        *(("224.0.0.1",), ("ff02::1",), ("93.184.215.14", "127.0.0.1"), ()),
    ],
    ids=str,
)
async def test_a_name_that_leads_into_a_private_network_is_not_followed(
    applications: Applications, addresses: tuple[str, ...]
) -> None:
    """Nor one that leads to both: the next try would go there."""
    async with serving(answer()) as (port, asked):
        with pytest.raises(RefusalError) as refused:
            await about(applications, port, addresses=addresses, may_reach=is_public).application(ADDRESS)
        assert refused.value.status == 400
        assert asked == []
    assert applications.all() == []


async def test_all_that_a_name_leads_to_is_looked_at(applications: Applications) -> None:
    """Though the first could be asked."""
    async with serving(answer()) as (port, asked):
        found = about(
            applications,
            port,
            addresses=("127.0.0.1", "10.0.0.8"),
            may_reach=lambda address: str(address) != "10.0.0.8",
        )
        with pytest.raises(RefusalError):
            await found.application(ADDRESS)
        assert asked == []


def test_what_all_the_world_reaches_is_public() -> None:
    for address in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"):
        assert is_public(ip_address(address))


ODD = [
    answer(status="302 Found", more="Location: https://client.example/other\r\n"),
    answer(status="404 Not Found"),
    answer({**DOCUMENT, "client_id": f"{ADDRESS}x"}),
    answer({**DOCUMENT, "redirect_uris": ["http://evil.example/"]}),
    answer({**DOCUMENT, "redirect_uris": [1]}),
    answer({**DOCUMENT, "redirect_uris": []}),
    answer({**DOCUMENT, "client_name": "a\u202eb"}),
    answer({**DOCUMENT, "token_endpoint_auth_method": "client_secret_post"}),
    answer({**DOCUMENT, "client_secret": "x"}),
    answer({**DOCUMENT, "more": "x" * MAX_BYTES}),
    answer(b"[" * 60_000),
    answer(b"\xff"),
    answer([DOCUMENT]),
    b"nothing of HTTP\r\n\r\n",
]


async def test_a_document_that_is_odd_does_not_count(applications: Applications) -> None:
    for said in ODD:
        async with serving(said) as (port, asked):
            with pytest.raises(RefusalError):
                await about(applications, port).application(ADDRESS)
            assert len(asked) == 1
        assert applications.all() == []


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_not_followed_wherever_it_leads(applications: Applications, status: str) -> None:
    """To where a document would be found that counts: on the same server, under the name that was looked up, and at the address of it."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head)
        port = writer.get_extra_info("sockname")[1]
        places = [f"https://127.0.0.1:{port}/found", "/found", f"//127.0.0.1:{port}/found"]
        is_there = head.startswith(b"GET /found")
        place = places[len(asked) % len(places)]
        close = "Connection: close\r\n"  # so that whoever follows comes anew
        writer.write(answer(more=close) if is_there else answer(status=status, more=f"Location: {place}\r\n{close}"))
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(HOST, "127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server, asyncio.timeout(DEADLINE_S):
        for number in range(3):
            with pytest.raises(RefusalError):
                await about(applications, server.sockets[0].getsockname()[1]).application(ADDRESS)
            assert len(asked) == number + 1
    assert applications.all() == []


async def test_what_is_wrong_here_is_not_told_to_a_stranger(applications: Applications) -> None:
    """As that the space is none which they may ask for: its name, and those of the others, are nobody's."""
    async with serving(answer()) as (port, _):
        found = about(applications, port)
        found._space = "hame"
        with pytest.raises(RefusalError) as refused:
            await found.application(ADDRESS)
    assert refused.value.status == 503
    assert "hame" not in str(refused.value) + str(refused.value.hint)
    assert "home" not in str(refused.value) + str(refused.value.hint)


async def test_a_server_of_another_name_or_one_that_is_slow_is_none(
    applications: Applications, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(answer(), host="other.example") as (port, asked):
        with pytest.raises(RefusalError):
            await about(applications, port).application(ADDRESS)
        assert asked == []
    monkeypatch.setattr(client_metadata, "FETCH_S", 0.2)
    async with serving(answer(), is_slow=True) as (port, _):
        with pytest.raises(RefusalError):
            await about(applications, port).application(ADDRESS)


async def test_strangers_cause_few_fetches(applications: Applications) -> None:
    """Whatever they ask for."""

    async def nothing(_host: str) -> list[str]:
        raise OSError

    found = about(applications, 1, resolve=nothing)
    statuses = []
    for number in range(40):
        with pytest.raises(RefusalError) as refused:
            await found.application(f"https://{HOST}/{number}")
        statuses.append(refused.value.status)
    assert statuses == [400] * 30 + [429] * 10
