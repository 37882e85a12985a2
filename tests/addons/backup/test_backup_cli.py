"""`confided backup` as an operator types it, with a daemon that runs and without one; docs/backup.md is followed line by line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.daemon.backups import fill
from tests.support.daemon.disks import mounted, remount
from tests.support.programs.confided import Confided

from confide_backup.daemon.manifest import BackupManifest
from confide_backup.daemon.sealed_keys import unseal
from confide_backup.errors import SnapshotError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.recovery_code import RecoveryCode

PAGE = (Path(__file__).parents[3] / "docs" / "backup.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ (confided backup.*?)(?: +#.*)?$", PAGE, re.M)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "srv"


async def stored(program: Confided) -> Identity:
    """A machine that has stored something in the running daemon."""
    laptop = program.enroll()
    async with await program.connect(laptop) as machine:
        await machine.attach("proj")
        await fill(machine, 3)
    return laptop


async def test_the_page_is_followed(ready: Confided, target: Path) -> None:
    """Every command that it shows, in its order, while the daemon serves."""
    ready.serve()
    await stored(ready)
    assert len(COMMANDS) > 5
    for line in COMMANDS:
        if "--new-code" in line:
            continue
        newest = sorted(path.name for path in target.glob("2*"))
        line = line.replace("/srv/backups/confide", str(target)).replace("2026-11-22T023000Z", (newest or ["-"])[-1])
        done = ready.run(*line.split()[1:])
        if " init" in line:
            assert "recovery code: CR" in done.stdout
            with (ready.home / "daemon.toml").open("a") as file:
                file.write(f'[backup]\nto = "{target}"\n')
            # The daemon has read its configuration before.
            ready.end()
            ready.serve()
    assert ready.json("backup", "ls")[-1]["verdict"] == "proven"
    checks = {check["check"]: check for check in json.loads(ready.run("doctor", "--json", code=1).stdout)}
    assert checks["backups"]["ok"]
    assert not checks["disk of the backups"]["ok"]  # here it is the same


async def test_the_code_opens_the_keys_of_its_snapshots_and_no_other(ready: Confided, target: Path) -> None:
    """Without a daemon; a code that follows opens what follows."""
    told = ready.json("backup", "init", "--to", str(target))
    code = RecoveryCode.parse(told["recoveryCode"])
    first = ready.json("backup", "--to", str(target))
    assert ready.json("backup", "init", "--to", str(target))["recoveryCode"] is None
    other = RecoveryCode.parse(ready.json("backup", "init", "--to", str(target), "--new-code")["recoveryCode"])
    second = ready.json("backup", "--to", str(target))
    identity = Identity.load(ready.data / "identity.key")
    for made, opens, fails in ((first, code, other), (second, other, code)):
        folder = Path(made["folder"])
        sealed, name = (folder / "keys.sealed").read_bytes(), made["snapshot"]
        keys = unseal(sealed, opens, daemon=identity.public_key, snapshot=name)
        assert keys.master == (ready.data / "master.key").read_bytes()
        assert keys.identity == (ready.data / "identity.key").read_bytes()
        with pytest.raises(SnapshotError, match="this code does not open"):
            unseal(sealed, fails, daemon=identity.public_key, snapshot=name)
        with pytest.raises(SnapshotError):
            unseal(sealed, opens, daemon=identity.public_key, snapshot="2020-01-01T000000Z")
        BackupManifest.parse((folder / "manifest.json").read_bytes(), name=name, signers=[identity.public_key])
        for secret in (keys.master, keys.identity, identity.seed):
            assert not [path for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_a_new_key_of_the_daemon_leaves_older_snapshots_its_own(ready: Confided, target: Path) -> None:
    """Also once the old key is ended."""
    ready.run("backup", "init", "--to", str(target))
    ready.run("backup", "--to", str(target))
    ready.run("backup", "verify", "--to", str(target))
    ready.run("key", "--new")
    ready.run("backup", "--to", str(target))
    ready.run("key", "--end-old")
    assert [row["verdict"] for row in ready.json("backup", "ls", "--to", str(target))] == ["proven", None]
    ready.run("backup", "verify", "--to", str(target))


def test_a_target_that_is_none_is_a_sentence_with_a_way_out(ready: Confided, target: Path, tmp_path: Path) -> None:
    """Not named, not there, another daemon's, in the data folder, full of something else, damaged."""

    def refused(*arguments: str, code: int = 8) -> str:
        said = ready.run("backup", *arguments, code=code).stderr
        assert "hint: " in said
        return said

    assert "no folder for backups is configured" in refused(code=1)
    ready.run("backup", "init", "--to", str(target))
    assert "is not a target of backups" in refused("--to", str(tmp_path / "nowhere"))
    assert "is in the data folder" in refused("init", "--to", str(ready.data / "backups"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo.jpg").touch()
    assert "holds something else" in refused("init", "--to", str(tmp_path / "other"))
    assert not (tmp_path / "other" / "confide-backup.json").exists()
    foreign = Confided(tmp_path / "foreign")
    foreign.run("init")
    foreign.run("backup", "init", "--to", str(tmp_path / "theirs"))
    assert "is the target of another daemon" in refused("--to", str(tmp_path / "theirs"))
    (target / "confide-backup.json").write_text('{"format":2,"daemon":""}')
    assert "newer version" in refused("--to", str(target))
    assert "is no snapshot" in refused("verify", "../x", "--to", str(target), code=7)


def test_a_read_only_target_takes_nothing_and_can_be_verified(ready: Confided, target: Path) -> None:
    """A disk that is mounted read-only holds root too; anybody else has a folder without the right to write."""
    target.mkdir()
    is_disk = mounted(target, "size=2g,mode=700")
    if os.geteuid() == 0 and not is_disk:
        pytest.skip("root may write in every folder, and mounting a disk is not allowed")
    try:
        ready.run("backup", "init", "--to", str(target))
        name = ready.json("backup", "--to", str(target))["snapshot"]
        remount(target, "ro") if is_disk else target.chmod(0o500)
        why = "read-only file system" if is_disk else "permission denied"
        assert f"cannot be written: {why}" in ready.run("backup", "--to", str(target), code=8).stderr
        assert ready.json("backup", "verify", "--to", str(target))["verdict"] == "proven"
        assert [path.name for path in target.glob("2*")] == [name]
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True) if is_disk else target.chmod(0o700)


async def test_a_verification_ends_with_what_it_has_found(ready: Confided, target: Path) -> None:
    """0 proven, 1 it differs, 8 it cannot be read, 10 some of it is locked; names of spaces, and no ids."""
    ready.run("backup", "init", "--to", str(target))
    ready.serve()
    await stored(ready)
    made = ready.json("backup", "--to", str(target))
    assert ready.json("backup", "verify", made["snapshot"], "--to", str(target))["spaces"] == {"laptop": "proven"}
    (database,) = Path(made["folder"], "spaces").glob("*.db")
    whole = database.read_bytes()
    database.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    done = ready.run("backup", "verify", "--to", str(target), code=1)
    assert "it differs from what was saved" in done.stdout
    assert ready.json("backup", "ls", "--to", str(target))[0]["said"] == "changed since"
    database.write_bytes(whole)
    ready.end()
    shutil.move(ready.data / "master.key", target.parent / "master.key")
    (ready.data / "master.key").write_bytes(os.urandom(32))
    (ready.data / "master.key").chmod(0o600)
    ready.run("backup", "verify", "--to", str(target), code=8)
