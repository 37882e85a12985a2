"""The link on networks as they are: IPv6, two addresses, lines that go silent, laptops that sleep; and how it says that it stands."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.crypto.channels import HOST, LAPTOP, Door, echo, hosting, no_message, no_request
from tests.support.network.tls_relay import TlsRelay
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon
from tests.support.programs.wire import Wire

from confide_crypto.errors import ConnectionLost
from confide_crypto.transport.open_channel import Timers, connect


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on loopback")


def sessions(daemon: Daemon) -> int:
    return daemon.log.read_text().count("laptop connected")


# -- IPv6 and names with several addresses --------------------------------------------------------------------------


@needs_ipv6
def test_a_daemon_on_ipv6(tmp_path: Path) -> None:
    """Listen, invite, join, store and search at [::1], and an agent's session."""
    with running_daemon(tmp_path, host="[::1]") as daemon:
        machine = Inside(tmp_path, "laptop")
        invite = daemon.invite("laptop")
        assert invite.startswith(f"confide://[::1]:{daemon.port}/#")
        machine.run("join", invite)
        machine.run("store", "The herons nest at the sixth pond.")
        assert "sixth" in machine.run("search", "where do the herons nest")
        assert machine.json("status")["link"]["address"] == f"confide://[::1]:{daemon.port}"
        with Wire(machine) as wire:
            wire.open()
            assert not wire.tool("memory_status", {}).get("isError")
        daemon.stop()
        assert f"cannot reach the daemon at [::1]:{daemon.port}: connection refused" in machine.run("status", code=5)


@needs_ipv6
@pytest.mark.parametrize("has_ipv4_first", [True, False])
async def test_a_name_with_both_families_is_reached_by_the_one_that_answers(
    has_ipv4_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """localhost is ::1 and 127.0.0.1 on most machines, and the daemon listens on one of them."""
    async with hosting(Door(LAPTOP.public_key), echo) as host:
        port = int(host.url.rsplit(":", 1)[1].strip("/"))
        addresses: list[Any] = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        if has_ipv4_first:
            addresses.reverse()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        connection = await connect(f"ws://localhost:{port}/", LAPTOP, HOST.static_key, timeout_s=5)
        await connection.close()


async def test_an_address_that_swallows_everything_does_not_take_the_whole_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broken IPv6 is the usual case: the next address is tried while the first one still says nothing."""
    # The kernel answers no more SYNs on a listener whose queue is full: a black hole without any network.
    with socket.socket() as hole, socket.socket() as one, socket.socket() as two:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for each in (one, two):
            each.setblocking(False)
            each.connect_ex(hole.getsockname())
        async with hosting(Door(LAPTOP.public_key), echo) as host:
            port = int(host.url.rsplit(":", 1)[1].strip("/"))
            places = [hole.getsockname(), ("127.0.0.1", port)]
            monkeypatch.setattr(
                socket,
                "getaddrinfo",
                lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", at) for at in places],
            )
            connection = await connect(f"ws://localhost:{port}/", LAPTOP, HOST.static_key, timeout_s=8)
            await connection.close()


# -- silence and sleep ----------------------------------------------------------------------------------------------


async def test_a_network_that_swallows_everything_is_noticed_by_both_ends() -> None:
    """Nothing is closed and nothing comes any more: each end gives up after the idle limit of its keepalive, here a hundredth of 5 s."""
    quick = Timers.every(0.05)
    assert quick.idle_s == pytest.approx(0.18)
    async with hosting(Door(LAPTOP.public_key), echo, timers=quick) as host:
        with TlsRelay(int(host.url.rsplit(":", 1)[1].strip("/"))) as relay:
            connection = await connect(f"ws://127.0.0.1:{relay.port}/", LAPTOP, HOST.static_key, timers=quick)
            serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
            await asyncio.wait({serving}, timeout=0.5)
            assert not serving.done(), "while it is forwarded, keepalives keep it"
            relay.swallow()
            async with asyncio.timeout(10):
                with pytest.raises(ConnectionLost) as lost:
                    await serving
                other = await host.ended.get()
                assert isinstance(other, ConnectionLost)
                # Whichever is first hangs up, and the other may hear of that.
                assert "no sign of life" in f"{lost.value} {other}"


def test_a_laptop_that_slept_is_back_within_seconds(tmp_path: Path) -> None:
    """Its process is stopped, and meanwhile the way forgets the connection without a word; nothing waits for the idle limit of 90 s."""
    with running_daemon(tmp_path) as daemon, TlsRelay(daemon.port) as relay:
        machine = Inside(tmp_path, "laptop")
        machine.run("join", daemon.invite("laptop", port=relay.port))
        with Wire(machine) as wire:
            wire.open()
            assert not wire.tool("memory_status", {}).get("isError")
            before = sessions(daemon)
            wire.process.send_signal(signal.SIGSTOP)
            slept = time.monotonic()
            relay.swallow()
            # The daemon hangs for a part of the same time: who asks waits for the deadline of a question, not for ever.
            daemon.signal(signal.SIGSTOP)
            try:
                assert "timed out after 4 s" in down(machine, 5)["reason"]
            finally:
                daemon.signal(signal.SIGCONT)
            time.sleep(max(0, slept + 12.5 - time.monotonic()))  # longer than a wait may be late
            wire.process.send_signal(signal.SIGCONT)
            asked = wire.ask("tools/call", {"name": "memory_search", "arguments": {"query": "anything"}})
            answer = wire.answer(asked, timeout_s=9)
            assert not answer["result"].get("isError"), answer
            assert sessions(daemon) == before + 1


# -- how it says that it stands -------------------------------------------------------------------------------------


def test_status_tells_how_the_link_stands(tmp_path: Path) -> None:
    """Up: where, with whom and how fast. Down: why and what to do, with the code of the error, in JSON too. Never a secret."""
    with running_daemon(tmp_path) as daemon:
        machine = Inside(tmp_path, "laptop")
        invite = daemon.invite("laptop")
        machine.run("join", invite)
        words = machine.json("key", "show")["words"]
        told = machine.json("status")
        link = told["link"]
        key = daemon.run("key").split()[0]
        assert link["state"] == "up"
        assert link["address"] == f"confide://127.0.0.1:{daemon.port}"
        assert link["tls"] is False
        assert link["words"] == words
        assert key.startswith(link["daemonKey"].removesuffix("…"))
        assert len(link["daemonKey"]) < len(key) / 2
        assert 0 < link["roundTripMs"] < 10_000
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}[+-]\d\d:\d\d", link["since"])
        assert f"session {link['sessionId']}: laptop connected" in daemon.log.read_text()
        assert (link["caller"], told["totalFiles"]) == ("laptop", 0), "what was told before is told still"
        text = machine.run("status", "-v")
        assert ", link up, " in text.splitlines()[0]
        for part in (words, link["daemonKey"], link["address"], "total files"):
            assert part in text

        daemon.run("device", "rm", "laptop")
        denied = down(machine, 6)
        assert "revoked" in denied["reason"]
        assert "new invite" in denied["hint"]
        daemon.stop()
        refused = down(machine, 5)
        assert "connection refused" in refused["reason"]
        assert "is confided running" in refused["hint"]
        assert (refused["words"], refused["address"]) == (words, link["address"])
        text = machine.run("status", code=5)
        assert ", link down\n" in text
        assert "hint: is confided running" in text
        assert invite.split("#")[1] not in text

        machine.run("pin", f"ws://someone:s3cret@127.0.0.1:{daemon.port}/way/", key)
        text = machine.run("status", code=5) + json.dumps(down(machine, 5))
        assert "s3cret" not in text
        assert f"confide://127.0.0.1:{daemon.port}/way" in text


def test_status_where_no_daemon_is_known(tmp_path: Path) -> None:
    alone = Inside(tmp_path, "alone")
    (alone.home / "proxy.toml").write_text("on_demand = false\n")
    link = down(alone, 5)
    assert "has not joined a daemon" in link["reason"]
    assert "confide join" in link["hint"]
    assert link["address"] is None


def test_a_folder_that_a_machine_may_not_reach_is_not_a_link_that_is_down(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        machine = Inside(tmp_path, "laptop")
        machine.run("join", daemon.invite("laptop", "--projects", "elsewhere"))
        text = machine.run("status", "--json", code=6)
        link = json.loads(text[: text.rindex("}") + 1])["link"]
        assert link["state"] == "up"
        assert link["reason"]


def down(machine: Machine, code: int) -> dict[str, Any]:
    """The link as `confide status --json` tells it where it ends with `code`."""
    text = machine.run("status", "--json", code=code)
    link: dict[str, Any] = json.loads(text[: text.rindex("}") + 1])["link"]
    assert link["state"] == "down"
    return link
