"""Data of every released version is opened by today's programs: directly, and after the versions in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS, Daemon, Inside, Machine, running_daemon
from tests.support.programs.released import Release, has_archives, releases

from confide_daemon import __version__

pytestmark = pytest.mark.skipif(not has_archives(), reason="the archives of releases are in the repository alone")
PATHS = [(old, after) for n, old in enumerate(releases()) for after in ((), (old, *releases()[n + 1 :]))]
"""A release, and those that open its data before today's programs do."""


def ends(daemon: Daemon, folder: Path, release: Release) -> None:
    """All that the release has recorded is there, as its machines see it."""
    for name, told in release.facts["spaces"].items():
        machine = release.machine(folder, name, daemon)
        # What waits in it changes what is found.
        queue, aside = machine.home / "proxy/journal/queue", folder / f"{name}.queue"
        if "queued" in told:
            queue.rename(aside)
        machine.run("sync")
        for path, document in told["documents"].items():
            read = machine.json("read", path, "--lines", "2000")
            assert (read["content"], read["revision"]) == (document["content"], document["revision"]), path
        for question, answers in told["answers"].items():
            # The best answer stays the best; a later version may order weak ones otherwise.
            found = machine.json("search", question, "--min-score", "0", "-n", "20")["results"]
            assert [[hit["path"], hit["startLine"]] for hit in found[:1]] == answers[:1], question
            assert {path for path, _ in answers} <= {hit["path"] for hit in found}, question
        for placeholder, value in told["secrets"].items():
            assert machine.json("secrets", "show", placeholder, "--raw")["value"] == value
        if "queued" in told:
            aside.rename(queue)
            machine.run("sync")
            assert told["queued"]["line"] in machine.json("read", told["queued"]["path"])["content"]
    rows = json.loads(daemon.run("device", "--json"))
    assert [{name: one[name] for name in release.facts["callers"][0]} for one in rows] == release.facts["callers"]


@pytest.mark.parametrize(
    ("release", "between"), PATHS, ids=[" ".join(one.version for one in (old, *after)) for old, after in PATHS]
)
def test_what_a_release_wrote_is_all_there(tmp_path: Path, release: Release, between: tuple[Release, ...]) -> None:
    """Documents, answers, secrets, what waited in a queue, callers; and doctor finds nothing wrong."""
    release.state(tmp_path)
    home = tmp_path / "server-home"
    home.mkdir()
    (home / "daemon.toml").write_text(NO_MODEL + SERVER_KEEPS)
    for step in between:
        programs = tmp_path / step.version
        programs.mkdir()
        _, confided = step.programs(programs)
        older = Daemon(tmp_path, program=confided)
        older.start()
        older.run("doctor")
        older.stop()
    daemon = Daemon(tmp_path)
    daemon.start("--no-snapshot")
    try:
        ends(daemon, tmp_path, release)
        assert "problem" not in daemon.run("doctor")
        assert "nothing to do" in daemon.run("upgrade", "--check")
    finally:
        daemon.stop()


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.version)
def test_the_export_of_a_release_is_imported(tmp_path: Path, release: Release) -> None:
    """Import a folder that an old `confide export` wrote: every file, and the text of every note."""
    release.state(tmp_path)
    (tmp_path / "server-home").mkdir()
    (tmp_path / "server-home/daemon.toml").write_text(NO_MODEL + SERVER_KEEPS)
    confide, confided = release.programs(tmp_path)
    old = Daemon(tmp_path, program=confided)
    old.start()
    exported = tmp_path / "exported"
    try:
        machine = release.machine(tmp_path, "ann", old, program=confide)
        machine.run("export", str(exported))
        project = machine.json("status")["project"]
    finally:
        old.stop()
    (tmp_path / "new").mkdir()
    with running_daemon(tmp_path / "new") as daemon:
        ann = Inside(tmp_path / "new", "ann")
        ann.run("join", daemon.invite("ann"))
        ann.call_project(project)
        ann.run("import", str(exported), "--yes")
        ann.run("sync")
        documents = release.facts["spaces"]["ann"]["documents"]
        for path, document in documents.items():
            assert ann.json("read", path, "--lines", "2000")["content"] == document["content"], path


def test_looking_writes_nothing_and_no_daemon_changes_anything_unasked(tmp_path: Path) -> None:
    """`upgrade --check` says what would happen. Commands and `serve` leave the folder as it is, with the way out."""
    release = releases()[0]
    data = release.state(tmp_path)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    daemon = Daemon(tmp_path)
    told = daemon.run("upgrade", "--check")
    assert f"written by confided {release.version}; this is {__version__}" in told
    assert "spaces: 3" in told
    assert "nothing was changed" in told
    for command in (("status",), ("callers",), ("invite", "x", "--no-wait"), ("reindex",), ("serve",), ("upgrade",)):
        refused = daemon.run(*command, code=3)
        assert f"was written by confided {release.version}; this is {__version__}" in refused, command
        assert "confided upgrade --" in refused
    after = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before
    assert {path.name for path in after.keys() - before.keys()} <= {"daemon.lock"}
    told = daemon.run("upgrade", "--no-snapshot")
    assert f"upgraded: from {release.version} to {__version__}" in told
    assert "carol: its devices keep its key" in told
    assert "nothing to do" in daemon.run("upgrade")
    daemon.start()
    daemon.stop()


def test_a_snapshot_that_cannot_be_made_stops_a_server(tmp_path: Path) -> None:
    """Its disk is not mounted: nothing is changed, and the sentence says why and both ways on."""
    release = releases()[0]
    data = release.state(tmp_path)
    (tmp_path / "server-home").mkdir()
    away = tmp_path / "not mounted"
    (tmp_path / "server-home/daemon.toml").write_text(f'{NO_MODEL}[backup]\nto = "{away}"\n')
    daemon = Daemon(tmp_path)
    before = (data / "registry.db").read_bytes()
    for command in ("serve", "upgrade"):
        told = daemon.run(command, code=3)
        assert "there is no snapshot to go back to" in told
        assert "confided upgrade --no-snapshot" in told
    assert (data / "registry.db").read_bytes() == before
    daemon.start("--no-snapshot")
    daemon.stop()


@pytest.mark.parametrize("has_target", [False, True])
def test_a_person_with_a_daemon_on_demand_is_not_stopped(tmp_path: Path, has_target: bool) -> None:
    """Nobody is there who could be asked: it is upgraded when it is next needed, also where the target is away."""
    release = releases()[0]
    machine = Machine(tmp_path, "ann")
    if has_target:
        with (machine.home / "daemon.toml").open("a") as file:
            file.write(f'[backup]\nto = "{tmp_path / "not mounted"}"\n')
    (machine.home / "daemon").rmdir()
    release.state(tmp_path).rename(machine.home / "daemon")
    try:
        machine.run("store", "- a new line", "--path", "memory/new.md")
        assert "a new line" in machine.json("read", "memory/new.md")["content"]
        assert f"from confided {release.version} to {__version__}" in (machine.home / "daemon/confided.log").read_text()
    finally:
        machine.stop_local_daemon()


def test_an_older_program_refuses_what_a_newer_one_wrote(tmp_path: Path) -> None:
    """The first version as well, which knows no names of versions."""
    release = releases()[0]
    data = release.state(tmp_path)
    daemon = Daemon(tmp_path)
    daemon.run("upgrade", "--no-snapshot")
    before = {path: path.read_bytes() for path in data.rglob("*.db")}
    _, confided = release.programs(tmp_path)
    older = Daemon(tmp_path, program=confided)
    assert "newer version of confide" in older.run("serve", code=8)
    assert {path: path.read_bytes() for path in before} == before
