"""Where a machine's key is kept: the three forms, from one to the other and back, and what is refused. The real program throughout."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from tests.support.deadline import DEADLINE_S
from tests.support.keys.forms import WORDS, choose_keyring, seal, seal_key
from tests.support.keys.runtime import runtime_folder
from tests.support.programs.processes import CONFIDE, Machine

from confide_crypto.keys.identity import Identity, parse_public_key
from confide_crypto.keys.private_files import write_private_file
from confide_proxy.link import device_identity as identities


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that starts no daemon: a command that gets past its key ends with 5."""
    made = Machine(tmp_path, "laptop")
    (made.home / "proxy.toml").write_text("on_demand = false\n")
    made.env.pop("XDG_RUNTIME_DIR", None)
    made.env.pop("DBUS_SESSION_BUS_ADDRESS", None)
    return made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def key_file(machine: Machine) -> Path:
    return machine.home / "proxy" / "identity.key"


def shown(machine: Machine) -> dict[str, Any]:
    record: dict[str, Any] = machine.json("key", "show")
    return record


def test_show_tells_the_key_and_how_it_is_kept(machine: Machine) -> None:
    record = shown(machine)
    line, words = machine.run("device", "key", "show").splitlines()
    assert record == {"publicKey": line, "words": words, "kept": "file", "file": str(key_file(machine))}
    assert parse_public_key(line)[0] == Identity.load(key_file(machine)).public_key


def test_to_the_keyring_and_back(machine: Machine) -> None:
    entries = choose_keyring(machine)
    before = shown(machine)
    seed = key_file(machine).read_text().splitlines()[-1]
    machine.run("key", "move", "keyring")
    assert seed not in key_file(machine).read_text()
    assert list(json.loads(entries.read_text()).values()) == [seed]
    assert key_file(machine).stat().st_mode & 0o777 == 0o600
    assert shown(machine) == {**before, "kept": "keyring"}
    machine.run("status", code=5)  # past the key, to the daemon that is not there
    machine.run("key", "move", "file")
    assert shown(machine) == before
    assert json.loads(entries.read_text()) == {}, "nothing is left in the keyring"
    assert key_file(machine).read_text().splitlines()[-1] == seed


def test_a_machine_without_a_keyring_says_so_and_keeps_its_file(machine: Machine) -> None:
    """What a Linux without a desktop gives, what keeps nothing, and what keeps it in the open."""
    machine.run("key", "show")
    before = key_file(machine).read_bytes()
    for backend, why in (
        ("keyring.backends.fail.Keyring", "there is no keyring here"),
        ("keyring.backends.null.Keyring", "there is no keyring here"),
        ("filed.PlaintextKeyring", "no safer than our own"),
        ("filed.Forgetful", "keyring"),
        ("filed.NoSuchClass", "cannot be used"),
    ):
        choose_keyring(machine, backend)
        told = machine.run("key", "move", "keyring", code=4)
        assert why in told
        assert "hint:" in told
        assert key_file(machine).read_bytes() == before


def test_a_keyring_s_own_failure_quotes_no_secret(machine: Machine) -> None:
    choose_keyring(machine, "filed.Failing")
    machine.run("key", "show")
    told = machine.run("key", "move", "keyring", code=4)
    assert "RuntimeError" in told
    assert "SECRET-KEY" not in told.upper()


def test_a_keyring_that_does_not_answer_is_given_up_in_seconds(machine: Machine) -> None:
    choose_keyring(machine, "filed.Silent")
    machine.run("key", "show")
    before = key_file(machine).read_bytes()
    started = time.monotonic()
    told = machine.run("key", "move", "keyring", code=4)
    assert time.monotonic() - started < 60  # it never answers
    assert "did not answer within" in told
    assert "unlock it" in told
    assert key_file(machine).read_bytes() == before


def test_sessions_of_one_process_wait_together_for_a_keyring_that_was_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `confide sync --watch` has them, a thread each: once it answers, all of them go on."""
    stuck: Future[None] = Future()
    monkeypatch.setattr(identities, "_stuck", stuck)
    monkeypatch.setattr(identities, "_backend", object)
    with ThreadPoolExecutor(8) as sessions:
        answers = [sessions.submit(identities._call_keyring, lambda _backend: "answer") for _ in range(8)]
        time.sleep(0.05)
        stuck.set_result(None)
        assert [answer.result() for answer in answers] == ["answer"] * 8


def test_an_entry_that_is_gone_or_another_s_is_named(machine: Machine) -> None:
    entries = choose_keyring(machine)
    machine.run("key", "show")
    machine.run("key", "move", "keyring")
    (name,) = json.loads(entries.read_text())
    stranger = Identity.generate().to_line()
    for content in ({}, {name: "x"}, {name: stranger}):
        entries.write_text(json.dumps(content))
        told = machine.run("status", code=4)
        assert name.split("/")[1] in told
        assert stranger not in told


def test_without_the_extra_the_way_to_it_is_told(machine: Machine, tmp_path: Path) -> None:
    machine.run("key", "show")
    (tmp_path / "keyring.py").write_text("raise ImportError")
    machine.env["PYTHONPATH"] = str(tmp_path)
    assert "install confide with its extra keyring too" in machine.run("key", "move", "keyring", code=4)


def test_under_a_passphrase_locked_unlocked_and_back(machine: Machine) -> None:
    before = shown(machine)
    seed = key_file(machine).read_text().splitlines()[-1]
    identity = Identity.load(key_file(machine))
    with runtime_folder() as runtime:
        machine.env["XDG_RUNTIME_DIR"] = str(runtime)
        machine.run("key", "move", "passphrase", stdin=f"{WORDS}\n")
        assert seed not in key_file(machine).read_text()
        sealed = identities.read(key_file(machine)).sealed
        assert sealed is not None
        assert (sealed.opslimit, sealed.memlimit_kib) == (3, 256 * 1024), (
            "what a guess costs: other tests' files are cheap, and so is this one from here on"
        )
        seal(key_file(machine), identity)
        assert shown(machine) == {**before, "kept": "passphrase", "unlockedUntil": None}
        told = machine.run("status", code=4)
        assert "this device's key is locked" in told
        assert "run confide device key unlock" in told
        assert "does not open" in machine.run("key", "unlock", stdin="another passphrase\n", code=4)
        assert list(runtime.iterdir()) in ([], [runtime / "confide"])
        assert "unlocked until" in machine.run("key", "unlock", "--for", "30m", stdin=f"{WORDS}\n")
        (copy,) = (runtime / "confide").iterdir()
        assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert shown(machine)["unlockedUntil"]
        machine.run("status", code=5)
        assert "locked" in machine.run("key", "lock")
        assert not copy.exists()
        machine.run("status", code=4)
        machine.run("key", "unlock", stdin=f"{WORDS}\n")
        machine.run("key", "move", "file")
        assert not copy.exists()
    assert shown(machine) == before
    assert key_file(machine).read_text().splitlines()[-1] == seed


def test_an_unlocked_key_ends_by_itself(machine: Machine) -> None:
    """By its time, by a clock that was set back, and by whatever is not as it was written."""
    machine.run("key", "show")
    with runtime_folder() as runtime:
        machine.env["XDG_RUNTIME_DIR"] = str(runtime)
        seal_key(machine)
        machine.run("key", "unlock", stdin=f"{WORDS}\n")
        (copy,) = (runtime / "confide").iterdir()
        record = json.loads(copy.read_text())
        now = time.time()
        for change in (
            {"until": now - 1},
            {"from": now + 3600, "until": now + 7200},
            {"key": Identity.generate().to_line()},
            {"until": "never"},
        ):
            write_private_file(copy, json.dumps({**record, **change}).encode(), replace=True)
            assert "is locked" in machine.run("status", code=4)
            assert not copy.exists(), change
        write_private_file(copy, json.dumps(record).encode())
        machine.run("status", code=5)
        copy.chmod(0o640)  # somebody else may have read it
        assert "is locked" in machine.run("status", code=4)
        assert not copy.exists()


def test_an_unlocked_key_is_kept_in_memory_only(machine: Machine, tmp_path: Path) -> None:
    machine.run("key", "show")
    seal_key(machine)
    # Not below `tmp_path`, which is in memory where there is room.
    with runtime_folder() as runtime, tempfile.TemporaryDirectory(dir="/var/tmp") as on_disk:
        loose = runtime / "loose"
        loose.mkdir()
        loose.chmod(0o755)
        for place, why in (
            (on_disk, "not in memory"),
            (loose, "open to other users"),
            (tmp_path / "none", "no such file"),
        ):
            machine.env["XDG_RUNTIME_DIR"] = str(place)
            told = machine.run("key", "unlock", stdin=f"{WORDS}\n", code=4)
            assert why in told
            assert "hint:" in told
            assert not [*tmp_path.rglob("*.unlocked"), *Path(on_disk).rglob("*.unlocked")]


def test_unlock_and_lock_say_where_there_is_nothing_to_do(machine: Machine) -> None:
    machine.run("key", "show")
    assert "nothing to unlock" in machine.run("key", "unlock")
    assert "no passphrase" in machine.run("key", "lock")
    assert "already" in machine.run("key", "move", "file")
    for duration in ("8", "0h", "8d", "-1h"):
        machine.run("key", "unlock", "--for", duration, code=2)
    with runtime_folder() as runtime:
        machine.env["XDG_RUNTIME_DIR"] = str(runtime)
        assert "no passphrase was given" in machine.run("key", "move", "passphrase", stdin="", code=4)
        assert "at least 8" in machine.run("key", "move", "passphrase", stdin="short\n", code=4)
    assert shown(machine)["kept"] == "file"


def test_a_passphrase_is_refused_where_nothing_could_be_unlocked(machine: Machine) -> None:
    """Before the key is changed: else it would be locked for good, as over ssh without a folder of one's own in memory."""
    machine.run("key", "show")
    machine.env["XDG_RUNTIME_DIR"] = str(machine.project)
    told = machine.run("key", "move", "passphrase", stdin=f"{WORDS}\n", code=4)
    assert "no safe place to keep the key unlocked" in told
    assert "confide device key move keyring" in told
    assert shown(machine)["kept"] == "file"


def test_the_passphrase_can_be_changed(machine: Machine) -> None:
    before = shown(machine)
    seal_key(machine)
    machine.run("key", "passphrase", stdin=f"not it at all\n{WORDS} two\n", code=4)
    machine.run("key", "passphrase", stdin=f"{WORDS}\n{WORDS} two\n")
    machine.run("key", "move", "file", stdin=f"{WORDS}\n", code=4)
    machine.run("key", "move", "file", stdin=f"{WORDS} two\n")
    assert shown(machine) == before


def test_the_passphrase_is_asked_for_at_a_terminal_without_an_echo(machine: Machine, stack: ExitStack) -> None:
    import pty

    machine.run("key", "show")
    runtime = stack.enter_context(runtime_folder())
    machine.env["XDG_RUNTIME_DIR"] = str(runtime)
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [CONFIDE, "key", "move", "passphrase"],
        cwd=machine.project,
        env=machine.env,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
    )
    os.close(inner)
    said = b""
    try:
        for prompt in (b"new passphrase: ", b"the same again: "):
            while prompt not in said:
                said += os.read(outer, 1024)
            os.write(outer, WORDS.encode() + b"\n")
        while True:
            try:
                said += os.read(outer, 1024)
            except OSError:
                break
        assert process.wait(DEADLINE_S) == 0, said
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        os.close(outer)
    assert WORDS.encode() not in said
    assert shown(machine)["kept"] == "passphrase"


def pem(path: Path, protection: KeySerializationEncryption | None = None) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection or NoEncryption()))
    path.chmod(0o600)
    return key


def test_a_key_is_imported_once(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "mine.pem"
    key = pem(file)
    record = machine.json("key", "import", str(file))
    assert parse_public_key(record["publicKey"])[0] == key.public_key().public_bytes_raw()
    assert shown(machine) == record
    assert key_file(machine).stat().st_mode & 0o777 == 0o600
    pem(file)
    before = key_file(machine).read_bytes()
    told = machine.run("key", "import", str(file), code=4)
    assert "already has a key" in told
    assert "confide device key show" in told
    assert f"mv {key_file(machine)}" in told
    assert key_file(machine).read_bytes() == before


def test_what_cannot_be_imported_says_why(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "mine.pem"
    pem(file)
    file.chmod(0o644)
    assert "chmod 600" in machine.run("key", "import", str(file), code=4)
    link = tmp_path / "link"
    link.symlink_to(file)
    assert "is a link" in machine.run("key", "import", str(link), code=4)
    pem(file, BestAvailableEncryption(b"secret"))
    assert "openssl pkey" in machine.run("key", "import", str(file), code=4)
    file.write_text("# a note\nnothing of ours\n")
    assert "not an identity file" in machine.run("key", "import", str(file), code=4)
    assert "is not there" in machine.run("key", "import", str(tmp_path / "none"), code=4)
    assert not key_file(machine).exists()


def test_an_identity_file_of_another_machine_can_be_imported(machine: Machine, tmp_path: Path) -> None:
    """A plain one and a sealed one, which stays sealed; the marker of another machine's keyring is no key."""
    other = Machine(tmp_path, "other")
    choose_keyring(other)
    before = shown(other)
    machine.run("key", "import", str(key_file(other)))
    assert shown(machine)["words"] == before["words"]
    key_file(machine).unlink()
    seal_key(other)
    machine.run("key", "import", str(key_file(other)))
    assert (shown(machine)["words"], shown(machine)["kept"]) == (before["words"], "passphrase")
    key_file(machine).unlink()
    other.run("key", "move", "keyring", stdin=f"{WORDS}\n")
    assert "only names an entry" in machine.run("key", "import", str(key_file(other)), code=4)


def test_a_loose_folder_or_file_stops_every_command(machine: Machine) -> None:
    machine.run("key", "show")
    key_file(machine).parent.chmod(0o770)
    assert "chmod 700" in machine.run("status", code=4)
    key_file(machine).parent.chmod(0o700)
    key_file(machine).chmod(0o604)
    assert "chmod 600" in machine.run("key", "show", code=4)
    key_file(machine).chmod(0o600)
    if os.geteuid() == 0:
        os.chown(key_file(machine), 12345, -1)
        assert "chown" in machine.run("status", code=4)
        os.chown(key_file(machine), 0, -1)
    machine.run("status", code=5)
