"""The daemon's key is rotated under the real programs: who connects in time notices nothing, who does not is told why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import CONFIDED, Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.keys.identity import format_daemon_key
from confide_daemon.datadir import daemon_keys
from confide_daemon.datadir.paths import DataFolder


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path) as running:
        yield running


def joined_machine(root: Path, name: str, daemon: Daemon, *, port: int | None = None) -> Machine:
    machine = Inside(root, name)
    machine.run("join", daemon.invite(name, port=port))
    return machine


def pinned(machine: Machine) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((machine.home / "proxy/link.json").read_bytes())
    return record


def rotate(daemon: Daemon) -> dict[str, Any]:
    """Rotate with `confided key --new`; returns what it printed."""
    told = daemon.run("key", "--new", "--json")
    assert "the running daemon uses both keys" in told
    answer: dict[str, Any] = json.loads(told.splitlines()[0])
    return answer


def until_retired(daemon: Daemon) -> None:
    """End the old key, and wait until the running daemon says so."""
    ended = daemon.log.read_text().count("its old one ended")
    assert daemon.run("key", "--end-old").startswith("ended: confided1")
    wait_until("the daemon to drop its old key", lambda: daemon.log.read_text().count("its old one ended") > ended)


def found(wire: Wire, query: str, text: str) -> bool:
    """Whether a search of the agent's brings this text."""
    result = wire.tool("memory_search", {"query": query})
    return not result.get("isError") and text in json.dumps(result, ensure_ascii=False)


def test_an_agents_session_lives_through_a_rotation_and_its_pin_follows(tmp_path: Path, daemon: Daemon) -> None:
    sleeper = joined_machine(tmp_path, "sleeper", daemon)
    with RecordingRelay(daemon.port) as relay:
        laptop = joined_machine(tmp_path, "laptop", daemon, port=relay.port)
        before = pinned(laptop)
        assert before["daemonKey"] == daemon.run("key").strip()
        an_agent_follows(laptop, daemon, relay)
    told = sleeper.run("status", code=6)
    assert "this endpoint does not hold the pinned key" in told
    assert "its key was rotated while this device was away" in told
    assert pinned(sleeper)["daemonKey"] == before["daemonKey"]
    sleeper.run("join", daemon.invite("sleeper-again"))
    assert "link" in sleeper.run("status")


def an_agent_follows(laptop: Machine, daemon: Daemon, relay: RecordingRelay) -> None:
    """The laptop's side: a session of an agent before, during and after the rotation."""
    before = pinned(laptop)
    with Wire(laptop) as agent:
        agent.open()
        agent.tool("memory_store", {"content": "we chose postgres for its row locks"})
        keys = rotate(daemon)
        assert keys["previous"]["key"] == before["daemonKey"] != keys["key"]
        assert {keys["key"], keys["previous"]["key"]} <= set(daemon.run("key").split())
        assert found(agent, "why postgres", "row locks"), "an open session goes on"
        assert pinned(laptop) == before, "nobody has told it yet"
        relay.cut()
        relay.mend()
        wait_until("the pin to follow", lambda: pinned(laptop)["daemonKey"] == keys["key"])
        assert pinned(laptop)["url"] == before["url"]
        assert pinned(laptop)["daemonEd25519"] != before["daemonEd25519"]
        assert found(agent, "why postgres", "row locks")
        until_retired(daemon)
        relay.cut()
        relay.mend()
        wait_until("the session to come back by the new key", lambda: found(agent, "why postgres", "row locks"))


def test_an_invite_of_before_a_rotation_pins_the_key_of_after_it(tmp_path: Path, daemon: Daemon) -> None:
    early, late = daemon.invite("early"), daemon.invite("late")
    keys = rotate(daemon)
    machine = Inside(tmp_path, "early")
    assert "the link works" in machine.run("join", early)
    assert pinned(machine)["daemonKey"] == keys["key"]
    until_retired(daemon)
    machine.run("status")
    refused = Inside(tmp_path, "late").run("join", late, code=6)
    assert "does not hold the pinned key" in refused


def test_a_rotation_of_a_stopped_daemon_holds_over_kills_and_restarts(tmp_path: Path, daemon: Daemon) -> None:
    laptop = joined_machine(tmp_path, "laptop", daemon)
    other = joined_machine(tmp_path, "other", daemon)
    daemon.kill()
    key = json.loads(daemon.run("key", "--new", "--json").splitlines()[0])["key"]
    daemon.start()
    laptop.run("status")
    assert pinned(laptop)["daemonKey"] == key
    daemon.kill()
    daemon.start()
    other.run("status")
    assert pinned(other)["daemonKey"] == key
    told = daemon.run("key", "--new", code=4)
    assert "a rotation is under way" in told
    assert "confided key --end-old" in told
    assert "old one is valid until" in daemon.run("status")
    daemon.stop()
    daemon.run("key", "--end-old")
    assert "no rotation is under way" in daemon.run("key", "--end-old", code=4)
    daemon.start()
    laptop.run("status")


def test_the_daemon_on_demand_can_be_rotated_under_an_open_session(tmp_path: Path) -> None:
    machine = Inside(tmp_path, "solo")
    try:
        machine.run("store", "the parser is recursive descent")
        address = machine.local_daemon
        assert address is not None
        with Wire(machine) as agent:
            agent.open()
            assert found(agent, "parser", "recursive descent")
            machine.run("key", "rotate", program=CONFIDED)
            told = machine.local_daemon
            assert told is not None
            assert told["pid"] == address["pid"]
            assert told["key"] != address["key"]
            assert "recursive descent" in machine.run("search", "parser")
            machine.run("key", "retire", program=CONFIDED)
            assert "recursive descent" in machine.run("search", "parser")
            machine.stop_local_daemon()
            wait_until("the session to come back", lambda: found(agent, "parser", "recursive descent"))
    finally:
        machine.stop_local_daemon()


def test_no_seed_and_no_signature_is_printed_or_logged(tmp_path: Path, daemon: Daemon) -> None:
    laptop = joined_machine(tmp_path, "laptop", daemon)
    folder = DataFolder(daemon.data)
    before = daemon_keys.load(folder).current
    printed = daemon.run("key", "--new", "--keep", "2d") + daemon.run("key") + laptop.run("status")
    keys = daemon_keys.load(folder)
    assert keys.rotation is not None
    assert format_daemon_key(keys.current.static_key) in printed
    secrets = [before.seed, keys.current.seed, keys.rotation.statement.by_old, keys.rotation.statement.by_new]
    secrets += [before.static_secret, keys.current.static_secret]
    said = printed + daemon.log.read_text()
    files = folder.identity.read_text() + folder.previous.read_text()
    for line in files.splitlines():
        assert line.startswith("#") or line.lower() not in said.lower()
    assert not [secret for secret in secrets if secret.hex() in said]
    assert folder.previous.stat().st_mode & 0o077 == 0
