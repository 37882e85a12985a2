"""The restore in docs/backup.md, followed with real programs: a server is lost, and its machines go on with the next one."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.support.programs.forked import run
from tests.support.programs.pair import joined
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDED, NO_MODEL, Daemon

PAGE = (Path(__file__).parents[4] / "docs" / "backup.md").read_text(encoding="utf-8")
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"


def commands() -> list[str]:
    """The commands of the page's restore, in order."""
    section = PAGE.partition("\n## Restore\n")[2].partition("\n## ")[0]
    blocks = "".join(re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
    return [line.partition("  #")[0].removeprefix("$ ") for line in blocks.splitlines()]


@pytest.mark.parametrize("is_same_address", [True, False], ids=["same address", "new address"])
def test_a_lost_server_comes_back(tmp_path: Path, is_same_address: bool) -> None:
    """Its space is locked until a machine connects. Both machines find what was stored before and since, open a secret, and go on writing;
    the one that was revoked since stays out."""
    backups = tmp_path / "backups"
    (tmp_path / "server-home").mkdir()
    (tmp_path / "server-home/daemon.toml").write_text(f'{NO_MODEL}[backup]\nto = "{backups}"\n')
    lost = Daemon(tmp_path)
    code = json.loads(lost.run("backup", "init", "--to", str(backups), "--json").splitlines()[0])["recoveryCode"]
    lost.start()
    ann, bob, eve = joined(tmp_path, lost, "ann", "bob", "eve")
    ann.write("memory/deploy.md", f"# Deploy\n\nThe pipeline pushes with {TOKEN}.\n")
    for machine in (ann, bob):
        machine.run("sync")
    lost.invite("later", "--space", "ann")
    lost.run("backup")
    (snapshot,) = (path for path in backups.iterdir() if re.fullmatch(r"\d{4}-.*Z", path.name))
    ann.write("memory/since.md", "# Since\n\nThe heron colony has nineteen nests.\n")
    ann.run("sync")
    lost.run("device", "rm", "eve", "--yes")
    lost.kill()
    shutil.rmtree(lost.data)

    new_root = tmp_path / "new device"
    new_root.mkdir()
    restoring, serving = commands()
    assert restoring == "confided restore /srv/backups/confide/2026-11-22T023000Z --code"
    assert serving == "confided serve --listen 0.0.0.0:7733"
    env = {**lost.env, "HOME": str(new_root), "CONFIDE_HOME": str(new_root / "server-home")}
    place = ["--data", str(new_root / "server")]
    done = run(
        [CONFIDED, "restore", str(snapshot), "--code", *place],
        env=env,
        input=f"{code.lower()}\n",
        timeout=COMMAND_DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "spaces that open at once: none" in done.stderr
    assert "spaces that open when one of their devices connects: ann" in done.stderr
    assert "removed since the snapshot, and removed again: eve" in done.stdout
    assert "open invites withdrawn: 1" in done.stdout
    # A test has one disk.
    assert re.findall("problem  (.+?):", done.stdout) == ["disk of the backups"]
    assert code not in done.stdout + done.stderr
    restored = Daemon(new_root)
    assert backups.name in (new_root / "server-home/daemon.toml").read_text()
    if is_same_address:
        restored.port = lost.port
    restored.start()
    try:
        for machine in (ann, bob):  # the first of them is the device that opens the space
            if not is_same_address:
                key = restored.run("key").strip()
                machine.run("join", "--pin", f"confide://127.0.0.1:{restored.port}", key)
            machine.run("sync")
        if is_same_address:
            assert "revoked" in eve.run("status", code=6)
        assert ann.json("status")["wentBack"]["sentAgain"] == 1
        for machine in (ann, bob):
            assert (
                machine.json("search", "how many nests has the heron colony")["results"][0]["path"] == "memory/since.md"
            )
        (secret,) = ann.json("secrets", "ls")
        assert ann.json("secrets", "show", secret["id"], "--raw")["value"] == TOKEN
        ann.run("store", "- the ferry leaves at noon", "--path", "memory/plans.md")
        bob.run("sync")
        bob.run("store", "- and comes back at four", "--path", "memory/plans.md")
        ann.run("sync")
        for machine in (ann, bob):
            assert "noon" in (machine.project / "memory/plans.md").read_text()
            assert "four" in (machine.project / "memory/plans.md").read_text()
        assert json.loads(restored.run("backup", "ls", "--json"))
        restored.run("backup")
    finally:
        restored.stop()


def test_what_is_typed_wrongly_is_a_sentence(tmp_path: Path) -> None:
    """And a restore asks nobody who is not there. That there is no such snapshot is said first: nobody looks for the code in vain."""
    daemon = Daemon(tmp_path)
    shutil.rmtree(daemon.data)
    (there := tmp_path / "there").mkdir()
    for arguments, typed, exit_code, sentence in (
        (["restore", str(tmp_path / "none"), "--code"], "CR1-WRONG\n", 8, f"the snapshot {tmp_path}/none is not there"),
        (["restore", str(tmp_path / "none")], "", 8, "is not there"),
        (["restore", str(there), "--code"], "CR1-WRONG\n", 7, "recovery code"),
        (["restore", str(there)], "", 1, "name a source for the daemon's keys"),
        (["restore", str(tmp_path / "none"), "--keys", str(tmp_path)], "", 8, "is not there"),
        (["restore", "x", "--keys", "y", "--code"], "", 2, "--code or --keys"),
    ):
        command = [CONFIDED, *arguments, "--data", str(daemon.data)]
        done = run(command, env=daemon.env, input=typed, timeout=COMMAND_DEADLINE_S)
        assert (done.returncode, sentence in done.stderr) == (exit_code, True), done.stderr
        assert "Traceback" not in done.stderr
    assert not daemon.data.exists()
