"""A daemon behind what stands before it in the real world: nginx and Caddy with the files of `configs/`, TLS, a path, timeouts.

The same runs against a relay of our own, so that the behaviour is tested where neither is installed.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.crypto.channels import HOST, LAPTOP
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.network.reverse_proxies import KINDS, Authority, front, program, require
from tests.support.programs.processes import Daemon, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire
from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.errors import UnreachableError
from confide_crypto.transport.open_channel import connect, websocket_options

KEEPALIVE_S = 5


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "ca")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("daemon")
    (root / "server-home").mkdir()
    (root / "server-home" / "daemon.toml").write_text(
        f'[server]\nkeepalive_s = {KEEPALIVE_S}\n[embedding]\nprovider = "hashed"\n'
    )
    with running_daemon(root) as running:
        yield running


def joined(root: Path, daemon: Daemon, url: str, name: str, authority: Authority | None) -> Machine:
    """A machine that has joined through `url`; it trusts the private CA as docs/server.md says."""
    machine = Machine(root, name)
    (machine.home / "proxy.toml").write_text(f"keepalive_s = {KEEPALIVE_S}\n")
    if authority:
        machine.env["SSL_CERT_FILE"] = str(authority.ca_file)
    made = json.loads(daemon.run("invite", name, "--no-wait", "--json", "--url", url))
    machine.run("join", made["invite"])
    return machine


def sessions(daemon: Daemon, name: str) -> int:
    return daemon.log.read_text().count(f"{name} connected")


@pytest.mark.parametrize("is_tls", [True, False], ids=["tls", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_everything_works_through_it(
    kind: str, is_tls: bool, tmp_path: Path, daemon: Daemon, authority: Authority
) -> None:
    """Join, an agent's session, and the monitor's question, below a path; with TLS also store, search and status."""
    require(kind)
    ca = authority if is_tls else None
    name = f"{kind}{is_tls}".lower()
    with front(kind, tmp_path / "front", daemon.port, ca) as url:
        machine = joined(tmp_path, daemon, url, name, ca)
        if is_tls:
            machine.run("store", "The wombat sleeps in the boiler room.")
            assert "boiler" in machine.run("search", "where does the wombat sleep")
            link = machine.json("status")["link"]
            assert (link["state"], link["address"], link["tls"]) == ("up", url, True)
        with Wire(machine) as wire:
            wire.open()
            stored = wire.tool("memory_store", {"content": "Herons nest in the yard."})
            assert not stored.get("isError"), stored
            found = wire.tool("memory_search", {"query": "where do herons nest"})
            assert "yard" in json.dumps(found["structuredContent"])
        assert health(url, ca) == "ok"


def health(url: str, authority: Authority | None) -> str:
    """What a monitor is told through the reverse proxy."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    made = (
        http.client.HTTPSConnection(
            host, context=ssl.create_default_context(cafile=str(authority.ca_file)), timeout=DEADLINE_S
        )
        if scheme == "confides" and authority
        else http.client.HTTPConnection(host, timeout=DEADLINE_S)
    )
    try:
        made.request("GET", f"/{path}/health")
        answer: dict[str, str] = json.loads(made.getresponse().read())
    finally:
        made.close()
    return answer["status"]


def test_a_silent_session_outlives_the_proxys_patience(tmp_path: Path, daemon: Daemon, authority: Authority) -> None:
    """Who cuts after 7 s of silence does not cut a session that says every 5 s, inside the channel, that it is there."""
    kinds = [kind for kind in ("nginx", "relay") if kind == "relay" or program(kind)]
    with ExitStack() as stack:
        wires = {}
        for kind in kinds:
            url = stack.enter_context(front(kind, tmp_path / kind, daemon.port, authority, idle_s=7))
            machine = joined(tmp_path, daemon, url, f"quiet-{kind}", authority)
            wires[kind] = stack.enter_context(Wire(machine))
            wires[kind].open()
            assert not wires[kind].tool("memory_status", {}).get("isError")
        before = {kind: sessions(daemon, f"quiet-{kind}") for kind in kinds}
        time.sleep(9)
        for kind in kinds:
            assert not wires[kind].tool("memory_status", {}).get("isError")
        assert {kind: sessions(daemon, f"quiet-{kind}") for kind in kinds} == before


@pytest.mark.parametrize("kind", ["nginx", "relay"])
def test_an_impatient_proxy_costs_no_call_that_can_be_repeated(
    kind: str, tmp_path: Path, daemon: Daemon, authority: Authority
) -> None:
    """Cut after every second of silence, the link comes back by itself."""
    require(kind)
    name = f"cut-{kind}"
    with front(kind, tmp_path / "front", daemon.port, authority, idle_s=1) as url:
        machine = joined(tmp_path, daemon, url, name, authority)
        before = sessions(daemon, name)
        with Wire(machine) as wire:
            wire.open()
            for _ in range(4):
                answer = wire.tool("memory_search", {"query": "anything"})
                assert not answer.get("isError"), answer
                time.sleep(1.3)  # so that the next call meets a link that was cut a moment ago
            wait_until("the link to have been cut and to have come back", lambda: sessions(daemon, name) - before >= 3)


def test_a_daemon_that_restarts_behind_it_is_found_again(tmp_path: Path, authority: Authority) -> None:
    """While it is down the reverse proxy answers for it; a person is told so, and an agent's session comes back."""
    root = tmp_path / "daemon"
    root.mkdir()
    with running_daemon(root) as daemon, front("relay", tmp_path / "front", daemon.port, authority) as url:
        machine = joined(tmp_path, daemon, url, "laptop", authority)
        with Wire(machine) as wire:
            wire.open()
            assert not wire.tool("memory_status", {}).get("isError")
            daemon.stop()
            told = machine.run("status", code=5)
            assert "the reverse proxy there answers, but the daemon behind it does not (http 502)" in told
            assert "is confided running" in told
            assert json.loads(failed_json(machine, 5))["link"]["state"] == "down"
            daemon.start()
            wait_until(
                "the session to come back", lambda: not wire.tool("memory_search", {"query": "x"}).get("isError")
            )


def failed_json(machine: Machine, code: int) -> str:
    """What `confide status --json` prints where it ends with `code`."""
    text = machine.run("status", "--json", code=code)
    return text[: text.rindex("}") + 1]


# -- what a person is told where there is no way ---------------------------------------------------------------------


async def refused(url: str) -> UnreachableError:
    """Why `url` cannot be connected to."""
    with pytest.raises(UnreachableError) as caught:
        await connect(url, LAPTOP, HOST.static_key, timeout_s=5)
    assert caught.value.exit_code == 5
    assert caught.value.hint
    return caught.value


async def test_a_certificate_of_nobody_known(authority: Authority) -> None:
    async with tls_server(authority) as url:
        error = await refused(url)
    assert "not from an authority that this machine trusts" in str(error)
    assert "set SSL_CERT_FILE" in (error.hint or "")


async def test_the_file_of_a_private_ca_that_is_not_there(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL says nothing about it, so we do."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    async with tls_server(authority) as url:
        assert (await refused(url)).hint == "SSL_CERT_FILE names a file that is not there"


@pytest.mark.parametrize(
    ("names", "days", "sentence", "hint"),
    [
        ((), (-9, -2), "its certificate has expired", "renew it"),
        ((), (2, 9), "its certificate is not valid yet", "clock"),
        (("memory.example.org",), (-9, 9), "its certificate is not for the name localhost", "use the name in the"),
    ],
    ids=["expired", "too early", "another name"],
)
async def test_a_certificate_that_does_not_fit(
    names: tuple[str, ...],
    days: tuple[int, int],
    sentence: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, last = (datetime.now(UTC).replace(tzinfo=None) + timedelta(days=day) for day in days)
    ill = Authority(tmp_path / "ca", *names, not_before=first, not_after=last)
    monkeypatch.setenv("SSL_CERT_FILE", str(ill.ca_file))
    async with tls_server(ill) as url:
        error = await refused(url)
    assert sentence in str(error)
    assert hint in (error.hint or "")


@pytest.mark.parametrize("kind", ["nginx", "caddy"])
async def test_the_wrong_kind_of_port(kind: str, tmp_path: Path, authority: Authority) -> None:
    """Plain words to a TLS port, and TLS to a plain one."""
    require(kind)
    with (
        front(kind, tmp_path / "tls", free_port(), authority) as tls,
        front(kind, tmp_path / "plain", free_port(), None) as plain,
    ):
        error = await refused(tls.replace("confides:", "confide:"))
        assert "that port speaks tls, and the address does not" in str(error)
        assert "confides://" in (error.hint or "")
        error = await refused(plain.replace("confide:", "confides:"))
        assert "what answers there does not speak tls" in str(error)
        assert "confide://" in (error.hint or "")


async def test_tls_to_the_daemon_itself(daemon: Daemon, authority: Authority) -> None:
    """And plain words to a TLS port that only hangs up."""
    error = await refused(f"wss://localhost:{daemon.port}/")
    assert "the connection was cut" in str(error)
    assert "confided itself speaks none" in (error.hint or "")
    async with tls_server(authority) as url:
        error = await refused(url.replace("wss:", "ws:"))
    assert "not a websocket" in str(error)
    assert "if that port speaks tls, the address begins with confides://" in (error.hint or "")


@pytest.mark.parametrize("kind", ["nginx", "caddy"])
async def test_a_name_or_a_path_that_it_does_not_serve(
    kind: str, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(kind)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    with front(kind, tmp_path / "front", free_port(), authority) as url:
        error = await refused(url)
        assert "the daemon behind it does not (http 502)" in str(error)
        error = await refused(url.replace("/confide", "/elsewhere"))
        assert ("nothing under this path (http 404)" if kind == "nginx" else "answers http 200") in str(error)
        assert "path" in (error.hint or "")
        if kind == "caddy":
            everywhere = [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(url.split(":")[2].split("/")[0])))
            ]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: everywhere)
            error = await refused(url.replace("localhost", "other.example"))
            assert "no certificate for the name other.example" in str(error)


@pytest.mark.parametrize(
    ("answer", "sentence", "hint"),
    [
        (b"301 Moved\r\nLocation: https://x.example/", "redirects to another address (http 301), which", "confides://"),
        (b"302 Found\r\nLocation: /way/", "redirects to another address (http 302)", "without a slash at its end"),
        (b"308 Moved\r\nLocation: ws://evil.example/", "not followed", "ask its operator"),
        (b"401 Unauthorized", "asks for a login of its own (http 401)", "without one"),
        (b"404 Not Found", "nothing under this path (http 404)", "check the path"),
        (b"503 Service Unavailable", "the daemon behind it does not (http 503)", "is confided running"),
        (b"530 Origin", "the daemon behind it does not (http 530)", "is confided running"),
        (b"200 OK", "answers http 200, not as a daemon", "check the address and the path"),
    ],
    ids=lambda value: value.split()[0].decode() if isinstance(value, bytes) else "",
)
async def test_what_else_answers_is_named(answer: bytes, sentence: str, hint: str) -> None:
    async with answering(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n") as url:
        error = await refused(url + "way")
    assert sentence in str(error)
    assert hint in (error.hint or "")
    assert "evil" not in str(error) + (error.hint or ""), "another address is nothing to send a person to"


async def test_a_proxy_that_does_not_pass_the_upgrade_on_is_named(daemon: Daemon) -> None:
    """The daemon is asked for a web page and says so; the same bytes come back to us."""
    asked = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=DEADLINE_S)
    asked.request("GET", "/confide")
    page = asked.getresponse().read()
    asked.close()
    length = str(len(page)).encode()
    async with answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: " + length + b"\r\n\r\n" + page) as url:
        error = await refused(url)
    assert "does not pass websockets on (http 404)" in str(error)
    assert "Upgrade" in (error.hint or "")


async def test_another_program_is_no_websocket() -> None:
    async with answering(b"SSH-2.0-OpenSSH_9.2\r\n") as url:
        assert "what answers there is not a websocket" in str(await refused(url))


async def test_the_proxy_of_a_company_is_told_from_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that the environment names: it refuses, or is not there itself."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with answering(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") as url:
        monkeypatch.setenv("http_proxy", url.replace("ws:", "http:"))
        error = await refused("ws://memory.example.org:7733/")
    assert "does not let it through" in str(error)
    assert "NO_PROXY" in (error.hint or "")
    error = await refused("ws://memory.example.org:7733/")
    assert "the proxy that this machine has to use cannot be reached" in str(error)


@asynccontextmanager
async def tls_server(authority: Authority) -> AsyncIterator[str]:
    """A websocket server that does nothing, with this authority's certificate."""

    async def wait(ws: ServerConnection) -> None:
        await ws.wait_closed()

    async with serve(wait, "127.0.0.1", 0, ssl=authority.context, **websocket_options()) as server:
        yield f"wss://localhost:{next(iter(server.sockets)).getsockname()[1]}/"


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[str]:
    """A server that says the same to everybody."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(on_connection, "127.0.0.1", 0) as server:
        yield f"ws://localhost:{server.sockets[0].getsockname()[1]}/"
