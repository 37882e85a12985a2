"""`confided serve` as a process: what survives its end, what ends it, and what its log holds."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import resource
import signal
import socket
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided

from confide_crypto.errors import RequestError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity


async def test_a_machine_stores_and_finds_after_a_restart(ready: Confided) -> None:
    identity = ready.enroll()
    first = ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")
        await laptop.put("MEMORY.md", "the harbour is blue\n")
    first.terminate()
    assert await asyncio.to_thread(first.wait, 30) == 0
    assert ready.address is None
    ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")
        async with laptop.mcp() as client:
            found = await client.call_tool("memory_search", {"query": "harbour"})
    assert found.structured_content["results"][0]["snippet"] == "the harbour is blue"


async def test_what_was_acknowledged_before_a_kill_is_there_after_it(ready: Confided) -> None:
    identity = ready.enroll()
    process = ready.serve()
    acknowledged: list[int] = []
    laptop = await ready.connect(identity)
    await laptop.attach("proj")

    async def store(client: Any, number: int) -> None:
        result = await client.call_tool("memory_store", {"content": f"line {number} end", "path": "MEMORY.md"})
        if not result.is_error:
            acknowledged.append(number)
        if len(acknowledged) == 8:
            process.kill()  # while the others are on their way

    async with laptop.mcp() as client:
        await asyncio.wait_for(
            asyncio.gather(*(store(client, n) for n in range(60)), return_exceptions=True), DEADLINE_S
        )
    await laptop.ended_within(30)
    laptop._received.close()
    await asyncio.to_thread(process.wait, 30)
    assert len(acknowledged) >= 8
    ready.serve()
    async with await ready.connect(identity) as again:
        await again.attach("proj")
        text = (await again.request("pull", {"project": "proj", "path": "MEMORY.md"}))["text"]
        async with again.mcp() as client:
            synced = await client.call_tool("memory_sync", {})
            assert not synced.structured_content["warnings"]
            found = await client.call_tool("memory_search", {"query": f"line {acknowledged[-1]} end", "minScore": 0})
    assert all(f"line {number} end\n" in text for number in acknowledged)
    assert found.structured_content["results"]


async def test_a_full_disk_is_said_and_loses_nothing(ready: Confided) -> None:
    """The limit on the size of a file stands in for a full disk: SQLite's writes fail in the same place."""
    identity = ready.enroll()
    process = ready.serve()
    stored: dict[str, str] = {}
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")

        async def fill() -> None:
            for number in range(1, 200):
                path, text = f"memory/{number}.md", f"document {number}\n\n" + os.urandom(20_000).hex() + "\n"
                await laptop.put(path, text)
                stored[path] = text

        await laptop.put("memory/0.md", "while there was room\n")
        stored["memory/0.md"] = "while there was room\n"
        # How far the log of a new database has been folded in is not this test's business.
        largest = max(file.stat().st_size for file in ready.data.rglob("*") if file.is_file())
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest + 500_000, largest + 500_000))
        with pytest.raises(RequestError) as refused:
            await fill()
        assert refused.value.code == "storage_full"
        assert "disk" in str(refused.value)
        async with laptop.mcp() as client:
            large = {"content": os.urandom(200_000).hex(), "path": "MEMORY.md"}
            failed = await client.call_tool("memory_store", large)
            while (
                "did not finish in time" in failed.content[0].text
            ):  # a busy machine, and what it says is to try again
                failed = await client.call_tool("memory_store", large)
            assert failed.is_error
            assert "disk" in failed.content[0].text
            read = await client.call_tool("memory_read", {"path": "memory/0.md"})
            assert not read.is_error
    assert len(stored) > 1
    assert process.poll() is None
    process.terminate()
    await asyncio.to_thread(process.wait, 30)
    ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")
        for path, text in stored.items():
            assert (await laptop.request("pull", {"project": "proj", "path": path}))["text"] == text
        assert (await laptop.put("memory/more.md", "room again\n"))["revision"] == 1


async def test_revoke_from_the_command_line_ends_the_live_connection(ready: Confided) -> None:
    identity = ready.enroll()
    ready.serve()
    laptop = await ready.connect(identity)
    await laptop.attach("proj")
    await asyncio.to_thread(ready.run, "device", "rm", "laptop")
    await laptop.ended_within(1.0)
    assert laptop.connection.close_code == "revoked"
    laptop._received.close()


def test_a_port_in_use(ready: Confided) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ready.run("serve", "--listen", f"127.0.0.1:{port}", code=5)
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use" in done.stderr
    assert "--listen" in done.stderr


def test_a_listen_address_that_is_none(ready: Confided) -> None:
    assert "'x' is not a port number" in ready.run("serve", "--listen", "127.0.0.1:x", code=7).stderr


def test_a_second_daemon_on_the_same_folder(ready: Confided) -> None:
    ready.serve()
    assert "another confided serves" in ready.run("serve", "--listen", "127.0.0.1:0", code=5).stderr


def test_health_and_status(ready: Confided) -> None:
    assert json.loads(ready.run("status", "--json", code=5).stdout)["running"] is False
    ready.serve()
    status = ready.json("status")
    assert status["running"] is True
    assert ready.address is not None
    assert status["url"] == ready.address["url"]
    connection = http.client.HTTPConnection("127.0.0.1", int(status["url"].rsplit(":", 1)[1]), timeout=DEADLINE_S)
    connection.request("GET", "/health")
    assert json.loads(connection.getresponse().read())["status"] == "ok"
    connection.close()


def test_a_killed_daemon_is_not_said_to_run(ready: Confided) -> None:
    process = ready.serve()
    process.kill()
    process.wait()
    assert ready.address is not None  # the stale file
    assert json.loads(ready.run("status", "--json", code=5).stdout)["running"] is False
    ready.serve()
    assert ready.json("status")["running"] is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_in_good_order(ready: Confided, number: int) -> None:
    process = ready.serve()
    process.send_signal(number)
    assert process.wait(DEADLINE_S) == 0
    assert ready.address is None
    assert "confided ended" in ready.log


async def test_a_log_holds_no_secrets(ready: Confided) -> None:
    ready.serve("--listen", "127.0.0.1:0", "--verbose")
    text = ready.json("invite", "laptop", "--url", str(ready.address and ready.address["url"]))["invite"]
    identity = Identity.generate()
    async with await ready.connect(identity, invite=Invite.parse(text)) as laptop:
        await laptop.attach("proj")
        async with laptop.mcp() as client:
            await client.call_tool("memory_store", {"content": "canary-content", "path": "memory/canary.md"})
            await client.call_tool("memory_search", {"query": "canary-query", "canary-key": "canary-value"})
            await client.call_tool("memory_search", {"query": "canary-query"})
        await laptop.connection.send_message(b'{"jsonrpc":"2.0","id":1,"method":"canary-method","params":{"canary":1}}')
        await laptop.connection.send_message(b"canary-garbage")
        async with asyncio.timeout(10):
            await laptop.refusals.get()
    ready.processes[0].terminate()
    ready.processes[0].wait(DEADLINE_S)
    log = ready.log
    assert "laptop connected" in log
    assert "memory_search done in" in log
    assert "canary" not in log
    assert text.rpartition("#")[2] not in log
