"""docs/upgrading.md, followed command by command on a server of the first version that runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.programs.processes import CONFIDED, NO_MODEL, SERVER_KEEPS, Daemon, wait_until
from tests.support.programs.released import ROOT, has_archives, releases

from confide_daemon import __version__

pytestmark = pytest.mark.skipif(not has_archives(), reason="the archives of releases are in the repository alone")
PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")


def blocks(kind: str, heading: str) -> list[str]:
    """The fenced blocks of a kind in a section, without what they are indented by."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(rf"^( *)```{kind}\n(.*?)^\1```", section, re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def test_a_server_is_upgraded_as_the_page_says(tmp_path: Path) -> None:
    """While the old daemon runs nothing changes; then its folder is upgraded, and a machine finds what it had."""
    release = releases()[0]
    release.state(tmp_path)
    (tmp_path / "server-home").mkdir()
    (tmp_path / "server-home/daemon.toml").write_text(NO_MODEL + SERVER_KEEPS)
    _, confided = release.programs(tmp_path)
    old = Daemon(tmp_path, program=confided)
    old.start()
    new = Daemon(tmp_path, program=CONFIDED)
    commands = [
        line.partition("#")[0].removeprefix("$ ").strip()
        for text in blocks("console", "A server and devices")
        for line in text.splitlines()
    ]
    assert commands == [
        "confided upgrade --check",
        "confided backup init --to /srv/backups/confide",
        "confided stop",
        "confided serve",
        "confided doctor",
        "confided stop",
        "confided upgrade --no-snapshot",
    ]
    backups = tmp_path / "backups"
    try:
        (shown,) = blocks("text", "A server and devices")
        assert "no target is configured" in new.run("upgrade", "--check")
        new.run("backup", "init", "--to", str(backups))
        with (tmp_path / "server-home/daemon.toml").open("a") as file:
            file.write(f'[backup]\nto = "{backups}"\n')
        told = new.run("upgrade", "--check")
        shown = (
            shown.replace("/srv/backups/confide", str(backups))
            .replace("/home/ann/.local/share/confide/daemon", str(new.data))
            .replace("0.3.0", __version__)
        )
        assert sorted(re.sub(r"\d+ steps?", "N", told).splitlines()) == sorted(
            re.sub(r"\d+ steps?", "N", shown).splitlines()
        )
        machine = release.machine(tmp_path, "ann", old)
        assert machine.json("status")["daemonVersion"] == release.version
        assert "stopped" in new.run("stop")
        old.stop()
        new.port = old.port
        new.start()
        (snapshot,) = json.loads(new.run("backup", "ls", "--json"))
        assert f"the snapshot before it is {snapshot['snapshot']}" in new.log.read_text()
        # A test has one disk.
        found = json.loads(new.run("doctor", "--json", code=1))
        assert [one["check"] for one in found if not one["ok"]] == ["disk of the backups"]
        assert machine.json("status")["daemonVersion"] == __version__
        assert "row locks" in machine.run("search", "why postgres")
        wait_until("the version of the machine", lambda: __version__ in new.run("device", "ls", "ann"))
    finally:
        old.stop()
        new.stop()
    assert "nothing to do" in new.run("upgrade", "--no-snapshot")
