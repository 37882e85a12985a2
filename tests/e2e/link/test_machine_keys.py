"""A machine's key under real sessions: locked and unlocked, in a keyring, and rotated while an agent works (docs/devices.md)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.keys.forms import WORDS, choose_keyring, seal_key
from tests.support.keys.runtime import runtime_folder
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

LOCKED = "this device's key is locked"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Inside(tmp_path, "laptop")
    made.env.pop("XDG_RUNTIME_DIR", None)
    made.env.pop("DBUS_SESSION_BUS_ADDRESS", None)
    yield made
    made.stop_local_daemon()


@contextmanager
def sealed(machine: Machine) -> Iterator[None]:
    """With the device's key under a passphrase, and a place to keep it unlocked."""
    with runtime_folder() as runtime:
        machine.env["XDG_RUNTIME_DIR"] = str(runtime)
        seal_key(machine)
        yield


def unlock(machine: Machine) -> None:
    machine.run("key", "unlock", stdin=f"{WORDS}\n")


def told(wire: Wire, tool: str = "memory_status") -> str:
    """The text of an error, "" where the call worked."""
    result = wire.tool(tool, {})
    return str(result["content"][0]["text"]) if result.get("isError") else ""


def words(machine: Machine) -> str:
    return str(machine.json("key", "show")["words"])


def test_a_locked_session_starts_says_so_and_goes_on_when_it_is_unlocked(daemon: Daemon, machine: Machine) -> None:
    machine.run("join", daemon.invite("locked"))
    with sealed(machine), Wire(machine) as agent:
        assert agent.open()["serverInfo"]
        assert agent.call("tools/list")["result"]["tools"]
        for _ in range(2):
            assert LOCKED in told(agent)
            assert "run confide device key unlock" in told(agent)
        time.sleep(2)  # by now the link waits longer between its attempts
        unlock(machine)
        assert told(agent) == "", "the first call after it, without a restart"
        machine.run("key", "lock")
        daemon.kill()
        daemon.start()
        wait_until("the session to lose its link", lambda: LOCKED in told(agent))
        unlock(machine)
        assert told(agent) == ""


def test_the_daemon_of_this_machine_is_started_once_the_key_is_unlocked(machine: Machine) -> None:
    machine.run("key", "show")
    with sealed(machine), Wire(machine) as agent:
        agent.open()
        assert LOCKED in told(agent)
        assert machine.local_daemon is None
        unlock(machine)
        assert told(agent) == ""
        assert machine.local_daemon is not None


def test_a_keyring_that_waits_for_somebody_does_not_hang_the_agent(daemon: Daemon, machine: Machine) -> None:
    machine.run("join", daemon.invite("keyring"))
    entries = choose_keyring(machine, "filed.Filed")
    machine.run("key", "move", "keyring")
    with Wire(machine) as agent:
        agent.open()
        assert told(agent) == ""
    choose_keyring(machine, "filed.Silent")
    away = entries.with_suffix(".away")
    entries.rename(away)
    with Wire(machine) as agent:
        agent.open()
        started = time.monotonic()
        assert "the keyring did not answer" in told(agent)
        assert time.monotonic() - started < 60  # it never answers
        away.rename(entries)  # somebody has unlocked it
        wait_until("the session to get its key", lambda: told(agent) == "")


@pytest.mark.parametrize("form", ["file", "keyring", "passphrase"])
def test_a_key_is_rotated_under_an_agent_s_session(daemon: Daemon, machine: Machine, form: str, tmp_path: Path) -> None:
    """The session comes back by itself, the old key is out, and the new one is kept as the old one was."""
    machine.run("join", daemon.invite(f"rotated-{form}"))
    stolen = Inside(tmp_path, "stolen")
    shutil.copytree(machine.home / "proxy", stolen.home / "proxy", dirs_exist_ok=True)
    stolen.run("status")
    entries = choose_keyring(machine, "filed.Filed")
    with sealed(machine) if form == "passphrase" else runtime_folder():
        if form == "passphrase":
            unlock(machine)
        if form == "keyring":
            machine.run("key", "move", "keyring")
        before = words(machine)
        with Wire(machine) as agent:
            agent.open()
            assert told(agent) == ""
            said = machine.run("key", "rotate", stdin=f"{WORDS}\n" if form == "passphrase" else None)
            after = words(machine)
            assert before != after
            assert f"old key: {before}" in said
            assert f"new key: {after}" in said
            assert told(agent) == ""
            assert "a new key of this device took its place" in stolen.run("status", code=6)
            assert told(agent) == ""
        assert machine.json("key", "show")["kept"] == form
        machine.run("status")
        if form == "keyring":
            assert len(json.loads(entries.read_text())) == 1, "the old seed is no longer there"
    assert not (machine.home / "proxy/identity.next.key").exists()
    assert after in daemon.run("device")


def test_the_daemon_of_this_machine_takes_the_new_key_too(machine: Machine) -> None:
    machine.run("store", "the parser is recursive descent")
    before = words(machine)
    with Wire(machine) as agent:
        agent.open()
        assert told(agent) == ""
        record = machine.json("key", "rotate")
        assert (record["old"]["words"], record["new"]["words"]) == (before, words(machine))
        assert told(agent) == ""
        assert "recursive descent" in machine.run("search", "parser")
    machine.stop_local_daemon()
    assert "recursive descent" in machine.run("search", "parser")
    lines = list((machine.home / "daemon/authorized").glob("*.pub"))
    assert [record["new"]["publicKey"].split()[1] in line.read_text() for line in lines] == [True]


def test_a_rotation_without_a_daemon_changes_nothing(daemon: Daemon, machine: Machine) -> None:
    machine.run("join", daemon.invite("alone"))
    before = words(machine)
    link = machine.home / "proxy/link.json"
    kept = link.read_text()
    link.write_text(kept.replace(f":{daemon.port}/", ":1/"))
    machine.run("key", "rotate", code=5)
    link.write_text(kept)
    assert words(machine) == before
    assert not (machine.home / "proxy/identity.next.key").exists()
    with sealed(machine):
        assert "does not open" in machine.run("key", "rotate", stdin="another passphrase\n", code=4)
        machine.run("key", "rotate", stdin=f"{WORDS}\n")
        assert words(machine) != before
        assert LOCKED in machine.run("status", code=4), "it was locked before, and is"


@pytest.mark.skipif(
    not (shutil.which("gnome-keyring-daemon") and shutil.which("dbus-daemon")),
    reason="no Secret Service to be run here",
)
def test_a_real_secret_service_keeps_the_key(daemon: Daemon, machine: Machine, tmp_path: Path) -> None:
    """GNOME's keyring on a bus at its usual place; `confide` is not told where, as by a client that passes no environment on."""
    machine.run("join", daemon.invite("desktop"))
    seed = (machine.home / "proxy/identity.key").read_text().splitlines()[-1]
    with runtime_folder() as runtime, desktop(runtime, tmp_path):
        machine.env["XDG_RUNTIME_DIR"] = str(runtime)
        machine.run("key", "move", "keyring")
        assert seed not in (machine.home / "proxy/identity.key").read_text()
        with Wire(machine) as agent:
            agent.open()
            assert told(agent) == ""
            machine.run("key", "rotate")
            assert told(agent) == ""
    assert "keyring" in machine.run("status", code=4), "without the desktop there is no key"


@contextmanager
def desktop(runtime: Path, root: Path) -> Iterator[None]:
    """A session bus and an unlocked keyring."""
    address = f"unix:path={runtime / 'bus'}"
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "DBUS_SESSION_BUS_ADDRESS": address}
    env |= {"HOME": str(root), "XDG_DATA_HOME": str(root / "data")}
    commands = (
        ["dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address={address}"],
        ["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"],
    )
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            process = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            running.append(process)
            assert process.stdin is not None
            process.stdin.write(b"login")
            process.stdin.close()
            wait_until("the bus", (runtime / "bus").exists)
        wait_until("the keyring's own socket", (runtime / "keyring/control").exists)
        yield
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(DEADLINE_S)


def test_joining_by_each_way_answers_in_json(daemon: Daemon, machine: Machine, tmp_path: Path) -> None:
    """One object on stdout and nothing else, with the words to compare."""
    joined = machine.json("join", daemon.invite("scripted"))
    assert joined["name"] == "scripted"
    assert joined["words"] == words(machine)
    assert joined["words"] in daemon.run("device")
    assert joined["files"] == 0
    by_hand = Inside(tmp_path, "by-hand")
    url, key = f"ws://127.0.0.1:{daemon.port}", daemon.run("key").split()[0]
    assert by_hand.json("pin", url, key) == {"daemon": url, "words": words(by_hand)}
    alone = Inside(tmp_path, "alone")
    alone.write("memory/birds.md", "# Birds\n\nHerons nest in March.\n")
    try:
        started = alone.json("quickstart", "--write")
        assert started["filesScanned"] == 1
        assert started["entryAdded"] is True
        assert "confide" in json.loads((alone.project / ".mcp.json").read_text())["mcpServers"]
        assert alone.json("quickstart", "--write")["entryAdded"] is False
    finally:
        alone.stop_local_daemon()
