"""The command `confided` as a process: what an operator types, sees, and gets as an exit code."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import os
import pty
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.confided import Confided
from tests.support.programs import CONFIDED, wait_until

from confide_crypto.enroll import Invite
from confide_crypto.errors import RequestError
from confide_crypto.keys import Identity, format_public_key
from confide_daemon.tools.catalogue import catalogue

COMMANDS = ["init", "serve", "invite", "callers", "revoke", "audit", "key", "reindex", "status", "doctor"]


@pytest.fixture
def confided(tmp_path: Path) -> Iterator[Confided]:
    program = Confided(tmp_path / "home")
    yield program
    program.end()


@pytest.fixture
def ready(confided: Confided) -> Confided:
    confided.run("init")
    return confided


# Help and mistakes


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([name] for name in COMMANDS),
        *(["callers", name] for name in ("add", "approve", "grant", "rename", "show")),
        ["invite", "ls"],
        ["invite", "rm"],
        ["key", "show"],
    ],
)
def test_every_command_has_help(confided: Confided, command: list[str]) -> None:
    text = confided.run(*command, "--help").stdout
    assert "Usage: confided" in text
    if command and command != ["key"]:
        assert "--data" in text
        assert "--config" in text


def test_the_help_lists_every_command_and_the_exit_codes(confided: Confided) -> None:
    text = confided.run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", text, re.MULTILINE)
    assert "Exit codes: 0 ok" in text


def test_a_mistyped_command_is_answered_with_the_nearest(confided: Confided) -> None:
    assert "Did you mean 'revoke'?" in confided.run("revok", code=2).stderr


@pytest.mark.parametrize(
    "command",
    [
        ["invite", "x"],
        ["invite", "ls"],
        ["callers"],
        ["key", "show"],
        ["status"],
        ["serve"],
        ["revoke", "x"],
        ["audit"],
    ],
)
def test_before_init_every_command_says_what_to_do(confided: Confided, command: list[str]) -> None:
    assert "hint: run: confided init" in confided.run(*command, code=4).stderr


# init


def test_init_makes_private_keys_and_leaves_them_alone_after(confided: Confided) -> None:
    first = confided.json("init")
    assert first["created"] is True
    assert first["key"].startswith("confided1")
    for path in [confided.data, *confided.data.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    second = confided.json("init")
    assert second == {**first, "created": False}
    assert confided.run("key", "show").stdout.strip() == first["key"]


def test_init_says_that_the_keys_need_a_backup(confided: Confided) -> None:
    assert "Back up identity.key and master.key" in confided.run("init").stderr


def test_a_lost_master_key_is_not_replaced(ready: Confided) -> None:
    (ready.data / "master.key").unlink()
    assert "restore master.key from a backup" in ready.run("init", code=4).stderr


@pytest.mark.parametrize("name", ["identity.key", "master.key", "."])
def test_what_others_can_read_is_refused(ready: Confided, name: str) -> None:
    (ready.data / name).chmod(0o755 if name == "." else 0o644)
    said = ready.run("serve", code=4).stderr
    assert "open to other users" in said
    assert "hint: chmod" in said


def test_a_data_folder_that_is_not_writable(confided: Confided) -> None:
    # A file where a folder should be stops root too, whom no mode stops.
    (confided.home / "daemon").write_text("")
    assert confided.run("init", code=4).stderr.startswith("confided: ")


def test_a_damaged_registry_is_named(ready: Confided) -> None:
    (ready.data / "registry.db").write_bytes(b"not a database" * 1000)
    for leftover in ("registry.db-wal", "registry.db-shm"):
        (ready.data / leftover).unlink(missing_ok=True)
    said = ready.run("callers", code=8).stderr
    assert "not a database" in said or "damaged" in said


def test_a_broken_configuration_names_file_and_line(ready: Confided) -> None:
    (ready.home / "daemon.toml").write_text("[server\nlisten = 1\n")
    said = ready.run("serve", code=3).stderr
    assert "daemon.toml is not TOML" in said
    assert "line 1" in said


def test_a_configuration_that_was_named_must_exist(ready: Confided) -> None:
    ready.run("serve", "--config", "/nowhere/daemon.toml", code=3)


# Invites and callers


def test_an_invite_is_one_line_on_stdout(ready: Confided) -> None:
    done = ready.run("invite", "laptop", "--url", "confide://memory.example.org")
    (line,) = done.stdout.splitlines()
    invite = Invite.parse(line)
    assert (invite.host, invite.port) == ("memory.example.org", 7733)
    assert line.rpartition("#")[2] not in done.stderr
    assert "confided is not running here" in done.stderr


def test_an_invite_for_this_machine_only_is_said_to_be(ready: Confided) -> None:
    assert "can be reached from this machine only" in ready.run("invite", "laptop").stderr


async def test_an_invite_that_waits_shows_who_joined(ready: Confided) -> None:
    ready.serve()
    waiting = ready.start("invite", "laptop", "--wait", "--json")
    assert waiting.stdout is not None
    invite = Invite.parse(json.loads(await asyncio.to_thread(waiting.stdout.readline))["invite"])
    identity = Identity.generate()
    async with await ready.connect(identity, invite=invite):
        joined = json.loads(await asyncio.to_thread(waiting.stdout.readline))
    assert joined["joined"] == "laptop"
    assert len(joined["fingerprint"].split("-")) == 6
    assert await asyncio.to_thread(waiting.wait, 30) == 0
    (row,) = ready.json("callers")
    assert (row["name"], row["fingerprint"], row["addedBy"]) == ("laptop", joined["fingerprint"], "invite")


async def test_in_a_terminal_an_invite_waits_by_itself(ready: Confided) -> None:
    ready.serve()
    controller, terminal = pty.openpty()
    process = subprocess.Popen(  # noqa: ASYNC220 - the pseudo-terminal is what is tried
        [CONFIDED, "invite", "laptop"], env=ready.env, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL
    )
    os.close(terminal)
    try:
        seen = b""
        while b"\n" not in seen:
            seen += await asyncio.to_thread(os.read, controller, 4096)
        async with await ready.connect(Identity.generate(), invite=Invite.parse(seen.decode().split()[0])):
            seen = b""
            while b"\n" not in seen:
                seen += await asyncio.to_thread(os.read, controller, 4096)
        assert re.fullmatch(r"joined: laptop  (\w+-){5}\w+", seen.decode().strip())
        assert await asyncio.to_thread(process.wait, 30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def test_an_invite_that_nobody_uses_ends_with_its_time(ready: Confided) -> None:
    done = ready.run("invite", "laptop", "--ttl", "1s", "--wait", code=1)
    assert "nobody joined" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["bad name"], 7, "cannot name a machine"),
        (["laptop", "--ttl", "soon"], 7, "use 90s, 15m, 1h or 2d"),
        (["laptop", "--ttl", "90d"], 7, "at most 30d"),
        (["laptop", "--scope", "root"], 7, "the scopes are read, write, admin"),
        (["laptop", "--space", "nowhere"], 7, "there is no space named 'nowhere'"),
        (["laptop", "--url", "https://x"], 6, "confide://"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_an_invite_cannot_be(ready: Confided, arguments: list[str], code: int, said: str) -> None:
    assert said in ready.run("invite", *arguments, code=code).stderr


def test_a_key_line_is_added_listed_and_revoked(ready: Confided) -> None:
    ready.enroll()
    assert re.search(r"^laptop  laptop  write  (\w+-){5}\w+  line ", ready.run("callers").stdout)
    assert "did you mean laptop?" in ready.run("revoke", "laptpo", code=7).stderr
    assert ready.run("revoke", "laptop").stdout.startswith("revoked: laptop  ")
    assert ready.json("callers") == []


@pytest.mark.parametrize("line", ["ssh-ed25519 AAAA me", "confide-ed25519 confide1qqqq me", ""])
def test_what_is_no_key_line(ready: Confided, line: str) -> None:
    assert "hint: " in ready.run("callers", "add", line, code=7).stderr


# Serving


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
        await asyncio.wait_for(asyncio.gather(*(store(client, n) for n in range(60)), return_exceptions=True), 60)
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
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    stored: dict[str, str] = {}
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")

        async def fill() -> None:
            for number in range(200):
                path, text = f"memory/{number}.md", f"document {number}\n\n" + os.urandom(20_000).hex() + "\n"
                await laptop.put(path, text)
                stored[path] = text

        with pytest.raises(RequestError) as refused:
            await fill()
        assert refused.value.code == "storage_full"
        assert "disk" in str(refused.value)
        async with laptop.mcp() as client:
            failed = await client.call_tool("memory_store", {"content": os.urandom(200_000).hex(), "path": "MEMORY.md"})
            assert failed.is_error
            assert "disk" in failed.content[0].text
            read = await client.call_tool("memory_read", {"path": "memory/0.md"})
            assert not read.is_error
    assert stored
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
    await asyncio.to_thread(ready.run, "revoke", "laptop")
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
    assert "another confided serves" in ready.run("reindex", code=5).stderr


def test_health_and_status(ready: Confided) -> None:
    assert ready.json("status")["running"] is False
    ready.serve()
    status = ready.json("status")
    assert status["running"] is True
    assert ready.address is not None
    assert status["url"] == ready.address["url"]
    connection = http.client.HTTPConnection("127.0.0.1", int(status["url"].rsplit(":", 1)[1]), timeout=10)
    connection.request("GET", "/health")
    assert json.loads(connection.getresponse().read())["status"] == "ok"
    connection.close()


def test_a_killed_daemon_is_not_said_to_run(ready: Confided) -> None:
    process = ready.serve()
    process.kill()
    process.wait()
    assert ready.address is not None  # the stale file
    assert ready.json("status")["running"] is False
    ready.serve()
    assert ready.json("status")["running"] is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_in_good_order(ready: Confided, number: int) -> None:
    process = ready.serve()
    process.send_signal(number)
    assert process.wait(30) == 0
    assert ready.address is None
    assert "confided ended" in ready.log


# On demand


def test_two_started_on_demand_at_once_are_one(confided: Confided) -> None:
    arguments = ("serve", "--on-demand", "--idle-exit", "60", "--data", str(confided.data))
    started = [confided.start(*arguments) for _ in range(5)]
    wait_until("the daemon to listen", lambda: confided.address)
    wait_until("the others to end", lambda: sum(process.poll() is None for process in started) == 1)
    (left,) = [process for process in started if process.poll() is None]
    assert [process.returncode for process in started if process is not left] == [0] * 4
    assert confided.address is not None
    assert confided.address["pid"] == left.pid
    assert confided.address["url"].startswith("confide://127.0.0.1:")
    assert confided.log.count("listens on") == 1


async def test_on_demand_trusts_a_key_line_in_its_folder(confided: Confided) -> None:
    identity = Identity.generate()
    folder = confided.data / "authorized"
    folder.mkdir(parents=True, mode=0o700)
    confided.data.chmod(0o700)
    (folder / "me.pub").write_text(format_public_key(identity.public_key, "me"))
    (folder / "me.pub").chmod(0o600)
    confided.serve("--on-demand")
    async with await confided.connect(identity) as me:
        assert me.connection.welcome["space"] == "local"


def test_on_demand_it_ends_when_nobody_comes_and_can_be_started_again(confided: Confided) -> None:
    for _ in range(2):
        process = confided.serve("--on-demand", "--idle-exit", "1")
        assert process.wait(30) == 0
        assert confided.address is None


def test_one_that_ends_is_followed_by_the_one_that_waits(confided: Confided) -> None:
    """A newcomer that finds the lock held but no address is not turned away: the holder may be on its way out."""
    confided.data.mkdir(mode=0o700)
    with (confided.data / "daemon.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        newcomer = confided.start("serve", "--on-demand")
        time.sleep(1.0)  # long enough for it to find the lock held
        assert newcomer.poll() is None
    wait_until("the newcomer to take over", lambda: confided.address)


# Upkeep


async def test_reindex_rebuilds_every_space(ready: Confided) -> None:
    identity = ready.enroll()
    process = ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")
        await laptop.put("MEMORY.md", "# One\n\nfact\n")
    process.terminate()
    process.wait(30)
    (row,) = ready.json("reindex", "--reembed")
    assert row["space"] == "laptop"
    ready.run("reindex")


def test_doctor_finds_nothing_wrong_and_then_something(ready: Confided) -> None:
    ready.enroll()
    assert all(check["ok"] for check in ready.json("doctor"))
    (ready.home / "daemon.toml").write_text('[embedding]\nfolder = "/nowhere"\n')
    said = ready.run("doctor", code=1)
    assert "problem  embedding model" in said.stdout
    assert "hint: " in said.stderr


def test_the_catalogue_is_printed_the_same_each_time(confided: Confided) -> None:
    done = [
        subprocess.run(
            [sys.executable, "-m", "confide_daemon", "catalogue"],
            env={**confided.env, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert done[0] == done[1]
    assert json.loads(done[0]) == catalogue(["core"])


# What the log holds


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
    ready.processes[0].wait(30)
    log = ready.log
    assert "laptop connected" in log
    assert "memory_search done in" in log
    assert "canary" not in log
    assert text.rpartition("#")[2] not in log
