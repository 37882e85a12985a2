"""The daemon at its port: health, strangers and their garbage, a graceful end, idleness, and what is left on disk and in logs."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import websockets
from tests.support.crypto.channels import no_message, no_request
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S
from websockets.asyncio.client import connect as websocket

from confide_crypto.errors import ConnectionLost, RequestError
from confide_crypto.handshake.handshake import ClientHandshake
from confide_crypto.limits import websocket_options
from confide_crypto.transport.open_channel import accept
from confide_daemon import __version__
from confide_daemon.access.authorization import CallerAuthorization
from confide_daemon.access.registry import create, open_state
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import ListenError, StorageError
from confide_daemon.server import server
from confide_daemon.server.listening import listener
from confide_daemon.server.server import Daemon, Listen
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import SpaceShared

MESSAGE_1_BYTES = 1256


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def http(daemon: Serving, request: bytes) -> tuple[int, bytes, bytes]:
    """Status, headers and body of a plain HTTP request."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


async def works(daemon: Serving, name: str) -> None:
    """A caller can come in and store."""
    async with machine(daemon, name) as laptop:
        await laptop.attach("proj")
        assert (await laptop.put("MEMORY.md", "works\n"))["revision"] == 1


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another part of this process does on its own."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the daemon has no event for what only a test asks
            await asyncio.sleep(0.01)


# Plain HTTP


async def test_health_tells_liveness_and_version_only(daemon: Serving) -> None:
    status, head, body = await http(daemon, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == 200
    assert json.loads(body) == {"status": "ok", "version": __version__}
    assert b"application/json" in head
    assert b"server:" not in head.lower()


@pytest.mark.parametrize("path", ["/", "/mcp", "/healthz", "/health/x", "/../health/.."])
async def test_nothing_else_is_there(daemon: Serving, path: str) -> None:
    status, _, body = await http(daemon, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert status == 404
    assert b"confide" not in body.lower()


GARBAGE = [
    b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + b"\r\n\r\n",
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + b"\r\n",
    b"\r\n\r\n",
]


async def test_garbage_instead_of_http_is_turned_away(daemon: Serving, caplog: pytest.LogCaptureFixture) -> None:
    for number, request_ in enumerate(GARBAGE):
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
            writer.write(request_)
            answer = await reader.read()
            writer.close()
        assert b"200 OK" not in answer
        assert b"Traceback" not in answer
        assert "Traceback" not in caplog.text
        await works(daemon, f"after-{number}")


# Strangers on the websocket


NO_MESSAGES = [
    b"",
    b"x",
    b"\0" * MESSAGE_1_BYTES,
    b"\xff" * MESSAGE_1_BYTES,
    b"\0" * (MESSAGE_1_BYTES + 1),
    b"x" * 3000,
    "text",
]


async def test_a_first_message_that_is_none_closes_without_a_reason(daemon: Serving) -> None:
    for number, first in enumerate(NO_MESSAGES):
        async with asyncio.timeout(15), websocket(f"ws://127.0.0.1:{daemon.port}", **websocket_options()) as ws:
            await ws.send(first)
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await ws.recv()
        assert closed.value.rcvd is not None
        # What is over the limit is closed by the websocket layer (RFC 6455 7.4.1), everything else by the handshake.
        assert closed.value.rcvd.code == (1009 if len(first) > 2048 else 4400), first
        await works(daemon, f"after-{number}")


async def test_a_websocket_without_our_subprotocol_gets_no_further(daemon: Serving) -> None:
    with pytest.raises(websockets.InvalidStatus, match="HTTP 400"):
        await websocket(f"ws://127.0.0.1:{daemon.port}", compression=None)
    await works(daemon, "after")


async def test_garbage_inside_an_open_channel_ends_that_connection_only(daemon: Serving) -> None:
    async with machine(daemon, "good") as good:
        await good.attach("proj")
        bad = Machine(await daemon.connect(daemon.enroll("bad")))
        await bad.attach("proj")
        await bad.connection._ws.send(b"\0" * 300)
        ended = await bad.ended_within(10)
        assert isinstance(ended, ConnectionLost)
        assert (await good.put("MEMORY.md", "still here\n"))["revision"] == 1
        bad._received.close()


async def test_a_connection_that_is_cut_leaves_no_session_behind(daemon: Serving) -> None:
    laptop = Machine(await daemon.connect(daemon.enroll("laptop")))
    await laptop.attach("proj")
    laptop.connection._ws.transport.abort()
    await laptop.ended_within(10)
    await until(lambda: not daemon.daemon.sessions)
    laptop._received.close()


async def test_strangers_do_not_keep_callers_out(daemon: Serving) -> None:
    async with machine(daemon, "laptop") as laptop:
        await laptop.attach("proj")
        streams = [await asyncio.open_connection("127.0.0.1", daemon.port) for _ in range(200)]
        for _, writer in streams:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")  # and never the rest
        async with asyncio.timeout(20):
            assert (await laptop.put("MEMORY.md", "served\n"))["revision"] == 1
        # Not only once they were cut off for saying nothing.
        assert not streams[-1][0].at_eof()
        for _, writer in streams:
            writer.close()


# Ends


async def test_a_stop_says_goodbye_and_takes_the_address_away(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as daemon:
        assert json.loads(daemon.state.folder.address.read_text())["url"] == daemon.url
        assert daemon.state.folder.address.stat().st_mode & 0o777 == 0o600
        laptop = Machine(await daemon.connect(daemon.enroll("laptop")))
        await laptop.attach("proj")
        daemon.daemon.stop()
        assert await laptop.ended_within(10) is None
        assert laptop.connection.close_code == "shutdown"
        laptop._received.close()
    assert not (tmp_path / "data" / "daemon.address").exists()


@pytest.mark.parametrize("after_ms", [0, 1, 3, 6, 12, 25])
async def test_a_stop_right_behind_a_welcome_ends_that_session_too(tmp_path: Path, after_ms: int) -> None:
    async with serving(tmp_path / "data") as daemon:
        laptop = Machine(await daemon.connect(daemon.enroll("laptop")))
        await asyncio.sleep(after_ms / 1000)
        daemon.daemon.stop()
        assert await laptop.ended_within(5) is None
        assert laptop.connection.close_code == "shutdown"
        laptop._received.close()


async def test_a_stop_does_not_wait_for_who_is_to_hear_later_that_its_space_does_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "EXPLAIN_S", 2 * DEADLINE_S)
    asked, may_fail = asyncio.Event(), asyncio.Event()
    close_sessions = Daemon._close_sessions

    async def get(_spaces: Spaces, _space_id: str) -> None:
        asked.set()
        await may_fail.wait()
        raise StorageError("this is no database")

    async def closed(daemon: Daemon) -> None:
        await close_sessions(daemon)
        may_fail.set()

    monkeypatch.setattr(Spaces, "get", get)
    monkeypatch.setattr(Daemon, "_close_sessions", closed)
    async with serving(tmp_path / "data") as daemon:
        connection = await daemon.connect(daemon.enroll("laptop"))
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
        daemon.daemon.stop()
    connection.abort()


@pytest.mark.parametrize("stage", ["tcp", "websocket", "message 1", "explained"])
async def test_a_stop_does_not_wait_for_who_has_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """A stranger who thinks before message 3 could hold it up for as long as that may take: here for longer than the test waits."""
    monkeypatch.setattr(server, "EXPLAIN_S", 2 * DEADLINE_S)
    monkeypatch.setattr(server, "STOP_DEADLINE_S", 2 * DEADLINE_S)
    monkeypatch.setattr(listener, "HTTP_DEADLINE_S", 2 * DEADLINE_S)
    monkeypatch.setitem(accept.__kwdefaults__, "timeout_s", 2 * DEADLINE_S)
    async with serving(tmp_path / "data") as daemon:
        identity = daemon.enroll("laptop")
        if stage == "tcp":
            _, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
            writer.write(b"GET / HTTP/1.1\r\n")
        elif stage == "explained":
            daemon.state.folder.space(daemon.state.registry.spaces()["laptop"]).write_bytes(b"no database" * 1000)
            connection = await daemon.connect(identity)
        else:
            ws = await websocket(daemon.url.replace("confide", "ws", 1), **websocket_options())
            if stage == "message 1":
                await ws.send(ClientHandshake(identity, daemon.state.identity.static_key).write_message1())
                await ws.recv()
        await asyncio.sleep(0.1)
        daemon.daemon.stop()
    if stage == "tcp":
        writer.close()
    elif stage == "explained":
        connection.abort()
    else:
        ws.transport.abort()


async def test_a_signal_as_soon_as_the_address_is_there_stops_it_in_good_order(tmp_path: Path) -> None:
    """Whoever starts a daemon may stop it once it says where it listens."""
    data = DataFolder(tmp_path / "data")
    create(data)
    state = open_state(data)
    daemon = Daemon(state, DaemonConfig(), Spaces(state, SpaceShared(IndexSettings(), LoadedModel.none())))
    missed: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: missed.append(number))

    def told(url: str) -> None:
        assert json.loads(data.address.read_text())["url"] == url
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        async with asyncio.timeout(10):
            await daemon.run(Listen("127.0.0.1", 0), on_ready=told)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
        state.close()
    assert not missed
    assert not data.address.exists()


async def test_a_stop_lets_a_running_store_finish(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("proj")
        async with laptop.mcp() as client:
            puts = [
                asyncio.create_task(client.call_tool("memory_store", {"content": f"line {n}", "path": "MEMORY.md"}))
                for n in range(10)
            ]
            async with asyncio.timeout(10):
                await laptop.applied.get()
                daemon.daemon.stop()
                results = await asyncio.gather(*puts, return_exceptions=True)
            acknowledged = [
                n for n, one in enumerate(results) if not isinstance(one, BaseException) and not one.is_error
            ]
        assert acknowledged
    async with serving(tmp_path / "data") as daemon, machine(daemon, "again", space="laptop") as again:
        await again.attach("proj")
        text = (await again.request("pull", {"project": "proj", "path": "MEMORY.md"}))["text"]
        assert all(f"line {n}\n" in text for n in acknowledged)


async def test_a_daemon_that_nobody_uses_ends(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", idle_exit_s=0.5) as daemon:
        async with machine(daemon) as laptop:
            await laptop.attach("proj")
            await asyncio.sleep(1.0)  # longer than it would wait with nobody there
            assert (await laptop.put("MEMORY.md", "still served\n"))["revision"] == 1
        await until(lambda: not daemon.state.folder.address.exists())


async def test_a_port_in_use_is_named(daemon: Serving) -> None:
    spaces = Spaces(daemon.state, SpaceShared(IndexSettings(), LoadedModel.ready(HashedEmbedder())))
    second = Daemon(daemon.state, DaemonConfig(), spaces)
    with pytest.raises(ListenError, match=f"127.0.0.1:{daemon.port}: the port is in use") as caught:
        await second.run(Listen("127.0.0.1", daemon.port))
    assert caught.value.exit_code == 5
    assert "--listen" in (caught.value.hint or "")


async def test_a_host_that_is_not_here_is_named(daemon: Serving) -> None:
    second = Daemon(
        daemon.state, DaemonConfig(), Spaces(daemon.state, SpaceShared(IndexSettings(), LoadedModel.none()))
    )
    with pytest.raises(ListenError, match=r"192\.0\.2\.1:1"):
        await second.run(Listen("192.0.2.1", 1))


# What is left behind


async def test_planted_secrets_are_in_no_log_and_no_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for noisy in ("asyncio", "mcp", "websockets"):
        caplog.set_level(logging.CRITICAL, logger=noisy)  # as `confided serve` sets them
    async with serving(tmp_path / "data") as daemon:
        invite = daemon.invite("laptop")
        async with machine(daemon, "desktop") as desktop:
            await desktop.attach("canary-project")
            async with desktop.mcp() as client:
                await client.call_tool("memory_store", {"content": "canary-content", "path": "memory/canary-path.md"})
                await client.call_tool("memory_search", {"query": "canary-query"})
                await client.call_tool("memory_search", {"query": "x", "since": "canary-date"})
                await client.call_tool("memory_read", {"path": "memory/canary-absent.md"})
            await desktop.connection.send_message(b'{"canary": "message"}')
        seeds = [daemon.state.identity.seed, invite.token, invite.invite_psk]
        secret = invite.to_string().rpartition("#")[2]
    assert "canary" not in caplog.text
    assert secret not in caplog.text
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file() and path.name not in ("identity.key", "master.key"):
            data = path.read_bytes()
            assert b"canary" not in data, path.name
            assert not any(seed in data for seed in seeds), path.name


async def test_a_space_that_cannot_be_opened_is_explained_and_the_others_go_on(daemon: Serving) -> None:
    identity = daemon.enroll("laptop")
    space_id = daemon.state.registry.spaces()["laptop"]
    broken = daemon.state.folder.space(space_id)
    broken.write_bytes(b"not a database at all" * 1000)
    async with Machine(await daemon.connect(identity)) as laptop:
        with pytest.raises(RequestError, match="cannot use this device's space: cannot open the database") as refused:
            await laptop.attach("proj")
        assert refused.value.code == "unavailable"
    await works(daemon, "other")
    broken.unlink()
    async with Machine(await daemon.connect(identity)) as laptop:
        await laptop.attach("proj")
        assert (await laptop.put("MEMORY.md", "healed\n"))["revision"] == 1


@pytest.mark.parametrize("step", ["admit", "current"])
@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (StorageError("cannot read the registry: disk I/O error"), "disk I/O error"),
        (ValueError("canary"), "ValueError"),
    ],
    ids=["storage", "bug"],
)
async def test_a_failure_of_the_daemons_own_is_in_its_log_and_the_next_caller_gets_in(
    daemon: Serving,
    step: str,
    failure: Exception,
    told: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the welcome or right behind it: nobody else could tell the operator, the caller only sees its connection end."""
    identity = daemon.enroll("laptop")

    def fail(*_arguments: object) -> None:
        raise failure

    with monkeypatch.context() as broken:
        broken.setattr(CallerAuthorization, step, fail)
        if step == "admit":
            with pytest.raises(ConnectionLost):
                await daemon.connect(identity)
        else:
            connection = await daemon.connect(identity)
            async with asyncio.timeout(20):
                await connection.serve(on_message=no_message, on_request=no_request)
            assert connection.close_code == "internal"
    assert told in caplog.text
    assert "canary" not in caplog.text
    async with Machine(await daemon.connect(identity)) as laptop:
        await laptop.attach("proj")


async def write_on(one: Machine) -> None:
    """As long as it may."""
    for number in itertools.count():
        await one.put("memory/more.md", f"{number}\n")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("failure", [StorageError("cannot read the registry: disk I/O error"), ValueError("canary")])
async def test_a_registry_that_cannot_be_read_for_a_moment_ends_nothing(
    daemon: Serving, failure: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was changed meanwhile is taken up once it can be read: a machine that was revoked is shut out then."""

    def fail(*_arguments: object) -> None:
        raise failure

    async with Machine(await daemon.connect(daemon.enroll("laptop"))) as laptop:
        await laptop.attach("proj")
        with monkeypatch.context() as broken:
            broken.setattr(CallerAuthorization, "changes_since", fail)
            daemon.state.registry.revoke("laptop")
            async with asyncio.timeout(DEADLINE_S):
                while "so who is connected stays" not in caplog.text:  # noqa: ASYNC110 - the registry is looked at again and again
                    await asyncio.sleep(0.02)
            await laptop.put("MEMORY.md", "still here\n")
            assert "storage" in daemon.daemon.health_problems()
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises((ConnectionLost, RequestError)):
                await write_on(laptop)
    assert "canary" not in caplog.text


async def test_health_is_as_before_once_an_unchanged_registry_can_be_read_again(
    daemon: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise StorageError("cannot read the registry: disk I/O error")

    async def until(is_degraded: bool) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while ("storage" in daemon.daemon.health_problems()) != is_degraded:  # noqa: ASYNC110 - as /health asks
                await asyncio.sleep(0.02)

    with monkeypatch.context() as broken:
        broken.setattr(daemon.state.registry, "version", fail)
        await until(is_degraded=True)
    await until(is_degraded=False)


async def test_the_data_folder_is_private(daemon: Serving) -> None:
    async with machine(daemon) as laptop:
        await laptop.attach("proj")
        await laptop.put("MEMORY.md", "private\n")
        for path in [daemon.state.folder.root, *daemon.state.folder.root.rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0, path
