"""A rotation of a machine's key that is cut short anywhere leaves a machine that still gets in (PROTOCOL.md 7.10).

The steps are driven in this process against a real daemon and left there; or the real command is killed at what can be seen from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.keys.forms import WORDS, choose_keyring, seal, seal_key
from tests.support.keys.runtime import runtime_folder
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.errors import EXIT_DENIED
from confide_crypto.handshake.rotation import sign_rotation
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_proxy.config import ProxyConfig
from confide_proxy.devices import device_rotation
from confide_proxy.devices.keyring import Keyring
from confide_proxy.link import device_identity as identities
from confide_proxy.link.daemon_link import open_connection
from confide_proxy.link.device_identity import Form
from confide_proxy.link.key_rotation import MachineKeys, exclusive
from confide_proxy.paths import ProxyPaths

# The command is killed so often at each moment; every step is cut in this process besides. `make chaos` takes the long form.
ATTEMPTS = 10 if os.environ.get("CONFIDE_EVERY_FAULT") else 1
STEPS = [("server", "named"), ("server", "adopted"), ("on demand", "written")]
if ATTEMPTS > 1:
    STEPS += [("server", "written"), ("server", "used"), ("on demand", "used")]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    # The rotations here are cut short in steps of their own, of which the space's list of devices hears nothing.
    with running_daemon(tmp_path_factory.mktemp("daemon"), opens_itself=True) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Inside(tmp_path, "laptop")
    yield made
    made.stop_local_daemon()


def paths_of(machine: Machine) -> ProxyPaths:
    home = machine.home
    return ProxyPaths(home / "proxy.toml", home / "proxy", home / "global", home / "daemon")


def words(machine: Machine) -> str:
    return str(machine.json("key", "show")["words"])


def cut_short(paths: ProxyPaths, after: str, passphrase: str | None = None) -> tuple[Identity, Identity]:
    """A rotation that ends behind this step, as a kill does: nothing is tidied up."""
    old = identities.load_stored(paths.identity).open(passphrase)
    new = Identity.generate()

    async def steps() -> None:
        if passphrase is None:
            identities.write(paths.next_identity, new, Form.FILE)
        else:
            seal(paths.next_identity, new, passphrase)
        if after == "written":
            return
        with exclusive(paths, wait_s=1):
            aside = paths.next_identity.rename(
                paths.state / "aside"
            )  # this process is no other confide, that would finish it
            keys = MachineKeys(paths, passphrase=passphrase)
            connection = await open_connection(paths, ProxyConfig(), keys=keys)
            aside.rename(paths.next_identity)
            serving = asyncio.create_task(connection.serve(on_message=unasked, on_request=unasked))
            await device_rotation.prepare_roster(
                paths.rosters, Keyring(paths, keys), connection, old, new, now=int(time.time())
            )
            await connection.request("rotate", sign_rotation(old, new, connection.session_id), timeout_s=DEADLINE_S)
            await connection.close()
            await asyncio.gather(serving, return_exceptions=True)
            if after == "named":
                return
            # Under the lock that is held here, a connection leaves the files as they are.
            await (await open_connection(paths, ProxyConfig())).close()
            assert paths.next_identity.exists()
        if after == "adopted":
            paths.next_identity.replace(paths.identity)

    asyncio.run(steps())
    return old, new


async def unasked(*_arguments: object) -> dict[str, object]:
    raise AssertionError("nothing is asked here")


@pytest.mark.parametrize(("where", "after"), STEPS)
def test_cut_short_anywhere_the_machine_gets_in(daemon: Daemon, machine: Machine, after: str, where: str) -> None:
    """Four programs at once come to the half-done rotation; all get in, and one of them finishes it."""
    if where == "server":
        machine.run("join", daemon.invite(f"cut-{after}"))
    machine.run("store", "herons nest in March", "--path", "memory/birds.md")
    paths = paths_of(machine)
    thief = Inside(machine.home.parent.parent, "thief")
    shutil.copytree(paths.state, thief.home / "proxy", dirs_exist_ok=True)
    old, new = cut_short(paths, after)
    expected = old if after == "written" else new
    programs = [
        Program([CONFIDE, "search", "herons"], cwd=machine.project, env=machine.env, stdout=-1, stderr=-2)
        for _ in range(4)
    ]
    said = [program.communicate(timeout=DEADLINE_S)[0].decode() for program in programs]
    assert [program.returncode for program in programs] == [0] * 4, said
    assert all("nest in March" in each for each in said)
    assert words(machine) == fingerprint_words(expected.public_key)
    assert not paths.next_identity.exists()
    machine.run("status")
    if where == "server":
        thief.run("status", code=0 if after == "written" else EXIT_DENIED)
    machine.run("key", "rotate")
    assert "nest in March" in machine.run("search", "herons")


def test_a_session_that_runs_finishes_what_was_cut_short(daemon: Daemon, machine: Machine) -> None:
    machine.run("join", daemon.invite("running"))
    with Wire(machine) as agent:
        agent.open()
        assert not agent.tool("memory_status", {}).get("isError")
        _, new = cut_short(paths_of(machine), "named")
        daemon.kill()
        daemon.start()
        wait_until("the session to come back", lambda: not agent.tool("memory_status", {}).get("isError"))
        wait_until("the new key to be this machine's", lambda: not paths_of(machine).next_identity.exists())
        assert words(machine) == fingerprint_words(new.public_key)


@pytest.mark.parametrize("after", ["written", "named"])
def test_unlocking_opens_both_keys_of_a_rotation_that_was_cut_short(
    daemon: Daemon, machine: Machine, after: str
) -> None:
    machine.run("join", daemon.invite(f"sealed-{after}"))
    with runtime_folder() as runtime:
        machine.env["XDG_RUNTIME_DIR"] = str(runtime)
        seal_key(machine)
        old, new = cut_short(paths_of(machine), after, WORDS)
        assert "is locked" in machine.run("status", code=4)
        assert "not finished" in machine.run("key", "passphrase", stdin=f"{WORDS}\n{WORDS} two\n", code=4)
        machine.run("key", "unlock", stdin=f"{WORDS}\n")
        machine.run("status")
        assert words(machine) == fingerprint_words((old if after == "written" else new).public_key)
        assert len(list((runtime / "confide").iterdir())) == 1, "the seed that is no longer used is not kept unlocked"


def test_a_keyring_is_left_with_one_key_by_a_rotation_that_was_killed(daemon: Daemon, machine: Machine) -> None:
    machine.run("join", daemon.invite("killed-in-keyring"))
    entries = choose_keyring(machine)
    machine.run("key", "move", "keyring")
    process = Program([CONFIDE, "key", "rotate"], cwd=machine.project, env=machine.env, stdout=-1, stderr=-2)
    wait_until("the next key", lambda: paths_of(machine).next_identity.exists() or process.poll() is not None)
    process.kill()
    process.communicate()
    machine.run("status")
    assert not paths_of(machine).next_identity.exists()
    assert len(json.loads(entries.read_text())) == 1
    machine.run("status")


def test_a_next_key_is_not_dropped_under_a_rotation_that_goes_on(daemon: Daemon, machine: Machine) -> None:
    """Between its writing and its naming the daemon does not know it: another program gets in with the old one, and leaves it alone."""
    machine.run("join", daemon.invite("under-way"))
    paths = paths_of(machine)
    with exclusive(paths, wait_s=1):
        identities.write(paths.next_identity, Identity.generate(), Form.FILE)
        machine.run("status")
        assert paths.next_identity.exists()
        assert "another confide is changing" in machine.run("key", "rotate", code=4)
        assert "another confide is changing" in machine.run("key", "move", "keyring", code=4)
    assert "next" in machine.json("key", "show")
    machine.run("status")
    assert not paths.next_identity.exists()


def test_a_daemon_that_is_back_from_an_old_copy_knows_the_old_key(
    daemon: Daemon, machine: Machine, tmp_path: Path
) -> None:
    """The daemon's data is from before the rotation: the old key is still there to come in with."""
    machine.run("join", daemon.invite("restored"))
    daemon.stop()
    copy = tmp_path / "copy"
    shutil.copytree(daemon.data, copy)
    daemon.start()
    old, _new = cut_short(paths_of(machine), "named")
    daemon.stop()
    shutil.rmtree(daemon.data)
    shutil.copytree(copy, daemon.data)
    daemon.start()
    machine.run("status")
    assert words(machine) == fingerprint_words(old.public_key)


@pytest.mark.parametrize("moment", ["at once", "a little later", "the daemon stands still", "the daemon has noted it"])
def test_the_command_itself_is_killed(daemon: Daemon, machine: Machine, moment: str) -> None:
    """kill -9 as soon as the next key is on the disk, and behind it; a few times each, since nobody can see every step from outside."""
    machine.run("join", daemon.invite(f"killed-{moment.replace(' ', '-')}"))
    paths = paths_of(machine)
    for attempt in range(ATTEMPTS):
        before = words(machine)
        noted = daemon.log.read_text().count("will have a new key")
        process = Program(
            [CONFIDE, "key", "rotate"], cwd=machine.project, env=machine.env, stdout=subprocess.DEVNULL, stderr=-1
        )
        following = None
        end = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < end:
            if moment == "the daemon has noted it":
                if daemon.log.read_text().count("will have a new key") > noted:
                    break
            elif paths.next_identity.exists():
                break
            time.sleep(0.0005)
        if moment == "the daemon stands still":
            daemon.signal(signal.SIGSTOP)
            time.sleep(0.1)
        if moment == "a little later":
            time.sleep(0.004 * (attempt + 1))
        process.kill()
        process.communicate()
        if moment == "the daemon stands still":
            daemon.signal(signal.SIGCONT)
        if paths.next_identity.exists():
            following = identities.read(paths.next_identity).public_key
        machine.run("status")
        after = words(machine)
        assert not paths.next_identity.exists()
        if following is not None:
            assert after in (before, fingerprint_words(following))
        if moment == "the daemon has noted it":
            assert after != before
        assert machine.json("status")["sealing"]["canSeal"]
        devices = machine.json("device", "ls")["devices"]
        assert [device["words"] for device in devices] == [words(machine)], "one machine is one device"
    rows = json.loads(daemon.run("device", "--json"))
    assert words(machine) in json.dumps(rows)
