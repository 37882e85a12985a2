"""`confide mcp` at the client's end: starts at once, says what is wrong, survives the daemon, and goes when the client goes."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import Machine, running_daemon, wait_until
from tests.support.programs.wire import OPENING, Wire


@pytest.fixture
def lonely(tmp_path: Path) -> Machine:
    """A machine without any daemon, and none to be started."""
    machine = Machine(tmp_path, "lonely")
    (machine.home / "proxy.toml").write_text("on_demand = false\n")
    return machine


def test_answers_without_any_daemon(lonely: Machine) -> None:
    """initialize, tools/list and ping need no daemon; a call says why it fails and what to do, at once."""
    with Wire(lonely, start=subprocess.Popen) as wire:
        opened = wire.open()
        assert opened["protocolVersion"] == OPENING["protocolVersion"]
        tools = wire.call("tools/list")["result"]["tools"]
        assert {tool["name"] for tool in tools} == {
            "memory_search",
            "memory_read",
            "memory_store",
            "memory_status",
            "memory_sync",
            "memory_update",
            "memory_delete",
            "secret_get",
        }
        assert wire.call("ping")["result"] == {}
        started = time.monotonic()
        result = wire.tool("memory_search", {"query": "x"})
        assert result["isError"]
        assert "confide join" in result["content"][0]["text"]
        assert time.monotonic() - started < 8.5  # a call waits 9 s for the first link


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{not json", -32700),
        (b"\xff\xfe\xfd", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"a":' * 50_000, -32700),
    ],
)
def test_malformed_lines_are_refused_and_the_session_lives(lonely: Machine, line: bytes, code: int) -> None:
    """A broken line gets a JSON-RPC error; the next good one its answer."""
    with Wire(lonely) as wire:
        wire.send_line(line)
        assert wire.next()["error"]["code"] == code
        assert "result" in wire.call("initialize", OPENING)


def test_an_oversized_line_is_refused(lonely: Machine) -> None:
    """17 MiB in one line are not buffered without end."""
    with Wire(lonely) as wire:
        wire.send_line(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"a" * (17 * 2**20) + b'"}}')
        assert wire.next()["error"]["code"] == -32600
        wire.open()


def test_goes_when_stdin_closes(lonely: Machine) -> None:
    """Gone within a second, with exit code 0."""
    with Wire(lonely) as wire:
        wire.open()
        assert wire.process.stdin is not None
        wire.process.stdin.close()
        # Half of what a connection may take, which it would wait for; `python -m bench ends` measures the second itself.
        assert wire.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--projekt", "x"], 2, "unknown argument"),
        (["--project"], 2, "needs a value"),
        (["--project", "/no/such/folder"], 2, "not a folder"),
    ],
)
def test_wrong_arguments(lonely: Machine, arguments: list[str], code: int, told: str) -> None:
    """A usage error is said on stderr and ends with its code."""
    assert told in lonely.run("mcp", *arguments, code=code)


def test_a_broken_configuration_names_the_fault(lonely: Machine) -> None:
    """Broken TOML and unknown options end with code 3 and a hint."""
    (lonely.home / "proxy.toml").write_text("toolsets = [")
    assert "is not TOML" in lonely.run("mcp", code=3)
    (lonely.home / "proxy.toml").write_text("tool_sets = []")
    assert "did you mean 'toolsets'" in lonely.run("mcp", code=3)


def test_the_session_outlives_the_daemon(tmp_path: Path) -> None:
    """kill -9 of the daemon: the session goes on, `initialize` is replayed unseen, and what was acknowledged is there."""
    machine = Machine(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        with Wire(machine) as wire:
            wire.open()
            acknowledged = []
            for number in range(5):
                result = wire.tool("memory_store", {"content": f"- fact number {number} about walruses"})
                assert not result.get("isError"), result
                acknowledged.append(f"fact number {number}")
                if number in (1, 3):
                    daemon.kill()
                    daemon.start()
            found = wire.tool("memory_search", {"query": "walruses fact number", "maxResults": 20, "minScore": 0})
            text = str(found)
            for fact in acknowledged:
                assert fact in text


def test_a_cut_link_fails_fast_and_heals(tmp_path: Path) -> None:
    """With the cable out a call fails within its deadline; with the cable in again it works, in the same session."""
    machine = Machine(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon, RecordingRelay(daemon.port) as relay:
        machine.run("join", daemon.invite("ann", port=relay.port))
        with Wire(machine) as wire:
            wire.open()
            assert not wire.tool("memory_status", {}).get("isError")
            relay.cut()
            started = time.monotonic()
            result = wire.tool("memory_sync", {})
            assert result["isError"]
            assert "cannot reach" in result["content"][0]["text"] or "lost" in result["content"][0]["text"]
            assert time.monotonic() - started < 9.5  # 2 s for another link; a call that is given up takes 10 s
            relay.mend()
            wait_until("the link", lambda: not wire.tool("memory_status", {}).get("isError"))


def test_calls_in_flight_when_the_link_breaks(tmp_path: Path) -> None:
    """A search is sent again and answered; so is a store, which is made once, whether or not the daemon had it already."""
    machine = Machine(tmp_path, "ann")
    machine.write("MEMORY.md", "The heron fishes at dawn.\n")
    with running_daemon(tmp_path) as daemon, RecordingRelay(daemon.port) as relay:
        machine.run("join", daemon.invite("ann", port=relay.port))
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_sync", {})
            daemon.signal(signal.SIGSTOP)
            before = len(relay.captured)
            search = wire.ask_tool("memory_search", {"query": "heron at dawn"})
            store = wire.ask_tool("memory_store", {"content": "- the ibis too"})
            wait_until("both calls on the wire", lambda: len(relay.captured) >= before + 2 * 256)
            relay.cut()
            daemon.signal(signal.SIGCONT)
            relay.mend()
            answers: dict[int, dict[str, Any]] = {}
            while not {search, store} <= answers.keys():  # in either order
                message = wire.next()
                answers[message.get("id", 0)] = message
            stored = answers[store]["result"]["structuredContent"]
            assert (stored["revision"], stored["queued"]) == (1, False)
            assert "heron fishes" in str(answers[search]["result"]["structuredContent"])
            assert (machine.project / stored["path"]).read_text() == "- the ibis too\n"


def test_a_saved_file_is_found(tmp_path: Path) -> None:
    """An edit in an editor is searchable soon after, without any tool being called for it; a deleted file is gone."""
    machine = Machine(tmp_path, "ann")
    try:
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_sync", {})
            file = machine.write("memory/animals.md", "# Animals\n\nThe capybara sleeps in the afternoon.\n")

            def found() -> bool:
                return "capybara" in str(wire.tool("memory_search", {"query": "capybara afternoon"}))

            wait_until("the new file", found)
            part = file.with_name("animals.md.tmp")
            part.write_text("# Animals\n\nThe okapi sleeps in the morning.\n")
            part.rename(file)
            wait_until(
                "the edit", lambda: not found() and "okapi" in str(wire.tool("memory_search", {"query": "okapi"})), 10
            )
            file.unlink()
            wait_until("the deletion", lambda: "okapi" not in str(wire.tool("memory_search", {"query": "okapi"})))
    finally:
        machine.stop_local_daemon()


def test_two_sessions_get_one_daemon(tmp_path: Path) -> None:
    """Sessions that start at once share one daemon, and it survives them."""
    machine = Machine(tmp_path, "ann")
    try:
        with Wire(machine) as first, Wire(machine) as second, Wire(machine) as third:
            wires = (first, second, third)
            for wire in wires:
                wire.ask("initialize", OPENING)
            for wire in wires:
                result = wire.tool("memory_status", {})
                assert not result.get("isError"), result
            address = machine.local_daemon
            assert address is not None
        assert machine.local_daemon == address
    finally:
        machine.stop_local_daemon()


def test_the_proxy_tells_stderr_nothing_private(tmp_path: Path) -> None:
    """Content, queries and paths' contents stay out of the client's log files, also when things go wrong."""
    machine = Machine(tmp_path, "ann")
    machine.write("memory/binary.md", "canary-file-3b1c\0")
    with running_daemon(tmp_path) as daemon, RecordingRelay(daemon.port) as relay:
        invite = daemon.invite("ann", port=relay.port)
        machine.run("join", invite)
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_store", {"content": "- canary-content-88aa"})
            wire.tool("memory_search", {"query": "canary-query-51de"})
            wire.tool("memory_read", {"path": "../canary-path-77.md"})
            wire.send_line(b'{"canary-broken-line')
            machine.write("memory/binary.md", "canary-file-3b1d\0")
            relay.cut()
            wire.tool("memory_store", {"content": "- canary-content-99bb"})
            relay.mend()
            wait_until("the link", lambda: not wire.tool("memory_status", {}).get("isError"))
            assert wire.process.stdin is not None
            wire.process.stdin.close()
            wire.process.wait(DEADLINE_S)
            assert wire.process.stderr is not None
            said = wire.process.stderr.read().decode()
        log = daemon.log.read_text()
    assert "ann" in log
    for text in (said, log):
        assert "canary" not in text
        assert invite.split("#")[1] not in text


def text_of(result: dict[str, Any]) -> str:
    """What a read gave, "" where it was refused."""
    return "" if result.get("isError") else str(result["structuredContent"]["content"])


def test_an_answer_too_large_for_the_channel_is_an_error(tmp_path: Path) -> None:
    """It costs that one call, not the session: characters that JSON writes in six bytes make 3 MB of text one of 17 MB."""
    machine = Machine(tmp_path, "ann")
    machine.write(
        "memory/odd.md", ("\x1f" * 1400 + "\n") * 2000
    )  # a blank to the index, which has nothing to do with it
    machine.write("memory/good.md", "The heron fishes at dawn.\n")
    try:
        with Wire(machine) as wire:
            wire.open()
            odd = {"path": "memory/odd.md"}
            few = wait_until("the file to be sent", lambda: text_of(wire.tool("memory_read", {**odd, "lines": 100})))
            assert few.count("\x1f") == 140_000
            asked = {"name": "memory_read", "arguments": {**odd, "lines": 2000}, "_meta": {"confide/structured": True}}

            def is_refused() -> bool:
                answer = wire.call("tools/call", asked)
                return "error" in answer or bool(answer["result"].get("isError"))

            # Until the link is up, the machine itself reads the file, and its answer crosses no channel.
            wait_until("the answer of the daemon, which does not fit", is_refused)
            # It may still be on its way, and on a busy machine the daemon at the answer that nobody gets.
            wait_until(
                "the other file to be found",
                lambda: "heron" in str(wire.tool("memory_search", {"query": "heron at dawn"})),
            )
    finally:
        machine.stop_local_daemon()
