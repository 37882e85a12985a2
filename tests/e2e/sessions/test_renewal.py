"""Fresh keys every hour, here every second: no call notices (PROTOCOL.md 7.9)."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire


def joined(tmp_path: Path, daemon: Daemon, *, renew_s: int) -> Machine:
    machine = Inside(tmp_path, "laptop")
    (machine.home / "proxy.toml").write_text(f"renew_s = {renew_s}\n")
    machine.run("join", daemon.invite("laptop"))
    return machine


def sessions(daemon: Daemon) -> int:
    """How many sessions the machine has had so far."""
    return daemon.log.read_text().count("laptop connected")


def test_calls_go_on_while_the_link_moves(tmp_path: Path) -> None:
    """Stores and searches at every moment of several moves: each is done once, none fails; one long job spans them all."""
    with running_daemon(tmp_path) as daemon:
        machine = joined(tmp_path, daemon, renew_s=1)
        for number in range(100):
            machine.write(f"memory/notes/{number}.md", f"# Note {number}\n\n" + f"The {number}th fact. " * 20)
        before = sessions(daemon)
        with Wire(machine) as wire:
            wire.open()
            long_job = wire.ask_tool("memory_sync", {"force": True})
            answers = {}
            count = 0
            while sessions(daemon) - before < 4:
                assert time.monotonic() - wire.started < DEADLINE_S
                asked = wire.ask(
                    "tools/call",
                    {"name": "memory_store", "arguments": {"content": f"- line {count}", "path": "memory/log.md"}},
                )
                count += 1
                while asked not in answers:
                    message = wire.next()
                    if "id" in message and "method" not in message:
                        answers[message["id"]] = message
                assert not answers[asked]["result"].get("isError"), answers[asked]
                time.sleep(0.02)  # every moment of a move is met so as well, and other tests get their turn
            if long_job not in answers:
                answers[long_job] = wire.answer(long_job, timeout_s=DEADLINE_S)
            result = answers[long_job]["result"]
            assert not result.get("isError"), result
            assert result["structuredContent"]["filesScanned"] >= 100
            # Each store exactly once, in order.
            wait_until(
                "the last line on disk",
                lambda: f"- line {count - 1}\n" in (machine.project / "memory/log.md").read_text(),
            )
            lines = (machine.project / "memory" / "log.md").read_text().splitlines()
            assert [line for line in lines if line.startswith("- line")] == [f"- line {n}" for n in range(count)]
        daemon.stop()
        log = daemon.log.read_text()
    assert "broke" not in log
    assert "ConnectionLost" not in log


def test_a_machine_at_its_limit_of_connections_can_still_move(tmp_path: Path) -> None:
    """The connection that it replaces does not count."""
    with running_daemon(tmp_path) as daemon:
        machine = joined(tmp_path, daemon, renew_s=1)
        before = sessions(daemon)
        wires = [Wire(machine) for _ in range(8)]
        try:
            for wire in wires:
                wire.open()
                assert not wire.tool("memory_status", {}).get("isError")
            wait_until("every session to move", lambda: sessions(daemon) - before >= 16)
            for wire in wires:
                assert not wire.tool("memory_status", {}).get("isError")
        finally:
            for wire in wires:
                wire.__exit__(None, None, None)


def test_a_connection_has_an_end(tmp_path: Path) -> None:
    """A machine that never moves is closed by the daemon, and is back at once."""
    daemon = Daemon(tmp_path)
    daemon.start()
    try:
        machine = joined(tmp_path, daemon, renew_s=3600)  # which takes longer than a second on a busy machine
        daemon.stop()
        with (tmp_path / "server-home" / "daemon.toml").open("a") as config:
            config.write("[server]\nmax_session_s = 1\n")
        daemon.start()
        before = sessions(daemon)
        with Wire(machine) as wire:
            wire.open()

            def is_back_twice() -> bool:
                assert not wire.tool("memory_search", {"query": "anything"}).get("isError")
                return sessions(daemon) - before >= 3

            wait_until("the second connection to end", is_back_twice)
    finally:
        daemon.stop()


def test_a_machine_that_has_joined_another_daemon_meanwhile_begins_anew_there(tmp_path: Path) -> None:
    """It moves when it is time for fresh keys, and what was confirmed at the old daemon counts for nothing at the new one."""
    with running_daemon(tmp_path / "old") as old, running_daemon(tmp_path / "new") as new:
        bob = Inside(tmp_path, "bob")
        bob.run("join", new.invite("bob"))
        machine = joined(tmp_path, old, renew_s=1)
        for each, text in ((bob, "of bob"), (machine, "of the laptop")):
            each.call_project("shared")
            each.write("memory/plan.md", f"# Plan\n\nThe plan {text}.\n")
        with Wire(bob) as theirs, Wire(machine) as wire:
            for agent in (theirs, wire):
                agent.open()
                assert not agent.tool("memory_sync", {}).get("isError")
            machine.run("join", new.invite("laptop", "--space", "bob"))
            wait_until("the session to move", lambda: sessions(new) >= 3)
            plan = machine.project / "memory/plan.md"
            wait_until("both plans", lambda: {"of bob", "of the laptop"} <= set(_plans(plan)))
            wait_until("both plans at bob's", lambda: set(_plans(bob.project / "memory/plan.md")) == set(_plans(plan)))


def _plans(path: Path) -> list[str]:
    return [line.removeprefix("The plan ").rstrip(".") for line in path.read_text().splitlines() if "The plan" in line]
