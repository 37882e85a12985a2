"""A machine and a daemon of different versions work together, either way: every release that is at most two minor versions behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.programs.processes import CONFIDE, CONFIDED, NO_MODEL, Daemon, Machine
from tests.support.programs.released import Release, has_archives, releases

from confide_memory.versions import is_behind
from confide_proxy import VERSION

pytestmark = pytest.mark.skipif(not has_archives(), reason="the archives of releases are in the repository alone")
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"
WITHIN = [release for release in releases() if not is_behind(release.version, VERSION)]


@pytest.fixture(scope="module", params=WITHIN, ids=[release.version for release in WITHIN])
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, str, str]:
    """A release, and its `confide` and `confided`."""
    release: Release = request.param
    return release, *release.programs(tmp_path_factory.mktemp(release.version))


@pytest.mark.parametrize("is_daemon_older", [True, False], ids=["older daemon", "older machine"])
def test_join_sync_store_search_secret_and_queue(
    tmp_path: Path, older: tuple[Release, str, str], is_daemon_older: bool
) -> None:
    """With another machine of the other version in the same space."""
    release, program, older_daemon = older
    (tmp_path / "server-home").mkdir()
    (tmp_path / "server-home/daemon.toml").write_text(NO_MODEL)
    daemon = Daemon(tmp_path, program=older_daemon if is_daemon_older else CONFIDED)
    daemon.start()
    try:
        ann = Machine(tmp_path, "ann", program=CONFIDE if is_daemon_older else program)
        bob = Machine(tmp_path, "bob", program=program if is_daemon_older else CONFIDE)
        for machine in (ann, bob):
            machine.call_project("shared")
            machine.run("join", daemon.invite(machine.name, *([] if machine is ann else ["--space", "ann"])))
        ann.write("memory/deploy.md", f"# Deploy\n\nThe pipeline pushes with {TOKEN}.\n")
        ann.run("sync")
        ann.run("store", "- walrus tickets are sold in Bergen", "--path", "memory/deploy.md")
        hits = ann.json("search", "where are walrus tickets sold")["results"]
        assert hits[0]["path"] == "memory/deploy.md"
        (secret,) = ann.json("secrets", "ls")
        assert ann.json("secrets", "show", secret["id"], "--raw")["value"] == TOKEN
        served, own = ann.json("status")["daemonVersion"], VERSION if is_daemon_older else release.version
        assert served != own
        assert "problem" not in ann.run("doctor").partition("versions")[2].splitlines()[0]
        daemon.stop()
        ann.run("store", "- herons fish at dawn", "--path", "memory/queued.md")
        daemon.start()
        ann.run("sync")
        bob.run("sync")
        assert "walrus tickets" in (bob.project / "memory/deploy.md").read_text()
        assert "herons fish" in (bob.project / "memory/queued.md").read_text()
        assert ann.json("queue")["calls"] == []
    finally:
        daemon.stop()
