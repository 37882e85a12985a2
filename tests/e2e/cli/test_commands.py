"""`confide` at a terminal: what a person types, what it says, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.documents.closed_folders import closed
from tests.support.programs.command import Ended, confide
from tests.support.programs.processes import CONFIDED, Daemon, Machine, running_daemon

from confide_daemon import __version__
from confide_proxy import VERSION


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for the tests that do not stop it."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has joined nothing and starts nothing."""
    made = Machine(tmp_path, "laptop")
    (made.home / "proxy.toml").write_text("on_demand = false\n")
    return made


def test_join_search_read_store_status(daemon: Daemon, machine: Machine) -> None:
    """The way of the README: join, store, search, read, status, each with --json too."""
    machine.write("MEMORY.md", "# Facts\n\nThe parcel API listens on port 8010.\n")
    told = machine.run("join", daemon.invite("way"))
    assert "joined as way" in told
    assert "the link works" in told
    assert "port 8010" in machine.run("search", "which port does the parcel API use")
    stored = machine.run("store", "- The queue lives in postgres.", "--path", "memory/queue.md")
    assert "memory/queue.md" in stored
    assert "queue lives" in (machine.project / "memory/queue.md").read_text()
    assert "queue lives" in machine.run("read", "memory/queue.md")
    hits = machine.json("search", "where does the queue live")["results"]
    assert hits[0]["path"] == "memory/queue.md"
    assert machine.json("status")["totalFiles"] == 2
    assert " of 2 files in the space" in machine.run("status")
    assert machine.json("sync")["filesScanned"] == 2
    assert machine.json("read", "MEMORY.md", "--from", "3", "--lines", "1")["content"].startswith("The parcel")
    machine.run("store", "-", "--path", "memory/piped.md", stdin="- from a pipe")
    assert (machine.project / "memory/piped.md").read_text() == "- from a pipe\n"


def test_an_invite_works_once(daemon: Daemon, machine: Machine, tmp_path: Path) -> None:
    """The second use is refused, and says so; the first machine is not disturbed."""
    invite = daemon.invite("once")
    told = machine.run("join", stdin=f"{invite}\n")  # no argument, which others could see
    assert invite not in told
    assert "Warning" not in told
    thief = Machine(tmp_path, "thief")
    told = thief.run("join", invite, code=6)
    assert "invite" in told
    assert "hint:" in told
    assert not (thief.home / "proxy" / "link.json").exists()
    machine.run("status")


def test_damaged_invites_are_named(machine: Machine) -> None:
    """A cut or mistyped string is found out before anything is sent."""
    for text in ("confide://host/", "confide://127.0.0.1:1/#invite1qqqq", "https://example.org/#x", "hello"):
        told = machine.run("join", text, code=6)
        assert "confide: " in told
        assert "hint: " in told


def test_nobody_there(machine: Machine, daemon: Daemon) -> None:
    """A refused connection is told apart from a wrong key, with code 5."""
    invite = re.sub(r":\d+/", ":9/", daemon.invite("nobody"))
    assert "refused" in machine.run("join", invite, code=5)


def test_a_wrong_pin_is_not_a_network_fault(machine: Machine, daemon: Daemon) -> None:
    """Another key than the pinned one: the endpoint is named as not holding it, with code 6."""
    key = daemon.run("key").split()[0]
    address = f"ws://127.0.0.1:{daemon.port}/"
    other = Daemon(machine.home / "other")
    machine.run("pin", address, other.run("key", "show").split()[0])
    told = machine.run("status", code=6)
    assert "does not hold the pinned key" in told
    machine.run("pin", address, key)
    told = machine.run("status", code=6)
    assert "not enrolled" in told
    words = machine.run("key", "show").split()[-1]
    assert words in told


def test_joining_by_hand(machine: Machine, daemon: Daemon) -> None:
    """The pasted key line and the pin do what an invite does."""
    line = machine.run("key", "show").splitlines()[0]
    daemon.run("device", "add", " ".join([*line.split()[:2], "byhand"]), "--scope", "write")
    machine.run("pin", f"ws://127.0.0.1:{daemon.port}/", daemon.run("key").split()[0])
    assert machine.json("status")["totalFiles"] == 0
    daemon.run("device", "rm", "byhand")
    assert "revoked" in machine.run("status", code=6)


def test_no_path_leaves_the_memory(daemon: Daemon, machine: Machine) -> None:
    """Traversal in any parameter is refused with code 7 and nothing is written."""
    machine.run("join", daemon.invite("path"))
    before = sorted(machine.project.parent.rglob("*.md"))
    for path in (
        "../../etc/passwd.md",
        "/etc/passwd",
        "memory/../../x.md",
        ".ssh/id.md",
        "README.md",
        "x" * 600 + ".md",
    ):
        machine.run("store", "x", "--path", path, code=7)
        machine.run("read", path, code=7)
    assert sorted(machine.project.parent.rglob("*.md")) == before


def test_loose_key_files_are_refused(daemon: Daemon, machine: Machine) -> None:
    """A key that others can read is not used; the hint says what to do."""
    machine.run("join", daemon.invite("loose"))
    (machine.home / "proxy" / "identity.key").chmod(0o644)
    told = machine.run("status", code=4)
    assert "chmod 600" in told


def test_files_that_cannot_be_sent_are_said_to_be(daemon: Daemon, machine: Machine) -> None:
    """Binary, huge and linked files are skipped with a reason; the others go up."""
    machine.write("memory/good.md", "A good line about herons.\n")
    (machine.project / "memory/binary.md").write_bytes(b"\x89PNG\0\xff")
    (machine.project / "memory/huge.md").write_bytes(b"x" * (5 * 2**20))
    (machine.project / "memory/link.md").symlink_to("/etc/hosts")
    machine.write("memory/Terns.MD", "A line about terns.\n")
    machine.run("join", daemon.invite("odd"))
    result = machine.json("sync")
    left = {f"memory/{name}" for name in ("binary.md", "huge.md", "link.md", "Terns.MD")}
    assert {item["path"] for item in result["skipped"]} == left
    assert "memory/Terns.MD: does not end in .md: rename it" in machine.run("sync")
    assert "herons" in machine.run("search", "herons")


@pytest.mark.parametrize("mode", [0o000, 0o600])
def test_memory_that_may_not_be_read_is_not_said_to_be_empty(daemon: Daemon, machine: Machine, mode: int) -> None:
    """As after a container has made the folder, or chmod -R 600: every command that looks says so."""
    machine.write("memory/own/newt.md", "The newt is in the pond.\n")
    machine.run("join", daemon.invite(f"closed{mode}"))
    with closed(machine.project / "memory", mode):
        synced = confide(machine, "sync")
        path = "memory/own" if mode else "memory"
        assert (synced.code, f"skipped {path}: cannot be listed: Permission denied" in synced.err) == (8, True)
        refused = "1 memory file or folder could not be read or written here at the last comparison"
        assert refused in confide(machine, "status").out
        assert (
            f"{machine.project / path} cannot be listed: Permission denied"
            in _check(confide(machine, "doctor", "--json"))["detail"]
        )
        found = confide(machine, "search", "newt")
        assert f"{path} is not searched: it cannot be listed" in found.err
        scanned = json.loads(confide(machine, "secrets", "scan", "--json").out)
        assert [each["path"] for each in scanned["skipped"]] == [path]
    assert machine.json("sync")["filesSent"] == 1
    assert refused not in machine.run("status")


def test_a_project_file_that_cannot_be_read_is_told_of_everywhere(daemon: Daemon, machine: Machine) -> None:
    """It excludes all, so nothing is sent: no command says that all is well."""
    machine.write("memory/newt.md", "The newt is in the pond.\n")
    machine.write(".confide.toml", 'exclude = ["memory/private\n')
    machine.run("join", daemon.invite("broken"))
    for command, code in (("sync", 3), ("status", 0), ("search newt", 0), ("secrets scan", 7)):
        ended = confide(machine, *command.split())
        assert ended.code == code
        assert ".confide.toml" in ended.out + ended.err
        assert "nothing of this project is sent or received until it is right" in ended.out + ended.err
    check = _check(confide(machine, "doctor", "--json"))
    assert (check["state"], check["detail"].startswith(".confide.toml is not TOML")) == ("problem", True)
    machine.write(".confide.toml", "")
    assert machine.json("sync")["filesSent"] == 1
    assert ".confide.toml" not in machine.run("status")


def test_a_glob_that_finds_nothing_is_no_success(daemon: Daemon, machine: Machine) -> None:
    """The doctor said of it that all files are well."""
    machine.write("docs/newt.md", "The newt is in the pond.\n")
    machine.run("join", daemon.invite("idle"))
    for globs, state in ((["docs/*.md"], "ok"), (["docs/*.md", "dcos"], "hint")):
        (machine.home / "proxy.toml").write_text(f'[folders."{machine.project}"]\nextra = {globs}\n')
        check = _check(confide(machine, "doctor", "--json"))
        assert (check["state"], "by dcos" in check["detail"]) == (state, state == "hint")


def _check(doctor: Ended) -> dict[str, str]:
    """What the doctor found of the files."""
    [found] = [each for each in json.loads(doctor.out) if each["check"] == "files"]
    return found


def test_a_store_that_cannot_reach_the_disk_says_so(daemon: Daemon, machine: Machine) -> None:
    """Where a file stands in the folder's place the daemon keeps the text, and the person is told that the file is missing."""
    (machine.project / "memory").rmdir()
    machine.write("memory", "a file, not a folder")
    machine.run("join", daemon.invite("nofolder"))
    told = machine.run("store", "The newt is in the pond.", "--path", "memory/newt.md")
    assert "stored in memory/newt.md" in told
    assert "note: " in told
    assert "newt is in" in machine.run("search", "where is the newt")


def test_the_daemon_answers_a_machine_that_cannot_write_its_state(daemon: Daemon, machine: Machine) -> None:
    """What both ends have agreed on cannot be written down, as on a full disk; searches and stores need none of that."""
    machine.write("memory/newt.md", "The newt is in the pond.\n")
    machine.run("join", daemon.invite("nodisk"))
    machine.run("sync")
    for ledger in (machine.home / "proxy" / "confirmed").glob("*.jsonl"):
        ledger.unlink()
        ledger.symlink_to("nowhere/ledger")
    for command in (["search", "where is the newt"], ["store", "- and the heron", "--path", "memory/heron.md"]):
        told = machine.run(*command)
        assert "note: the files here could not be compared: No such file" in told
    assert "newt is in" in machine.run("search", "where is the newt")
    assert "and the heron" in machine.run("read", "memory/heron.md")


def test_plausible_mistakes_get_a_hint(machine: Machine) -> None:
    """A mistyped command names the near one; a bad option its usage."""
    assert "search" in machine.run("serach", "x", code=2)
    assert "not a folder" in machine.run("search", "x", "--project", "/no/where", code=2)
    for command in ("restore", "read"):
        assert "--revision 3" in machine.run(command, "memory/a.md", "3", code=2)
    assert "--since TIME" in machine.run("restore", code=2)
    assert "goes with one file" in machine.run("restore", "memory/*.md", "--revision", "2", code=2)
    assert "confide join" in machine.run("status", code=5)


def test_both_programs_tell_their_version(machine: Machine) -> None:
    assert machine.run("--version") == f"confide {VERSION}\n"
    assert machine.run("--version", program=CONFIDED) == f"confided {__version__}\n"


def test_every_command_has_help_and_is_documented(machine: Machine) -> None:
    """--help works everywhere, and docs/commands.md knows each command."""
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
    listed = re.findall(r"^  ([a-z]+)\s", machine.run("--help"), re.MULTILINE)
    assert len(listed) >= 11
    for command in listed:
        assert machine.run(command, "--help")
        assert f"`{command}" in page, command


def test_setup_prints_or_merges(machine: Machine) -> None:
    """Without --write nothing is touched."""
    printed = machine.run("setup", "claude-code")
    assert '"command": "/' in printed
    assert not (machine.project / ".mcp.json").exists()
    machine.run("setup", "claude-code", "--write")
    assert json.loads((machine.project / ".mcp.json").read_text())["mcpServers"]["confide"]["args"] == ["mcp"]


def test_quickstart_is_one_command(tmp_path: Path) -> None:
    """One machine, no server: a daemon comes up, the project is indexed, a search finds; the daemon's end loses nothing."""
    alone = Machine(tmp_path, "alone")
    alone.write("memory/2026-11-20.md", "# Log\n\n- We chose postgres for its row locks.\n")
    try:
        assert "a daemon answers" in alone.run("quickstart")
        assert "row locks" in alone.run("search", "why postgres")
        alone.stop_local_daemon()
        assert "row locks" in alone.run("search", "why postgres")
    finally:
        alone.stop_local_daemon()


def test_a_daemon_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A damaged key or an open data folder is named at once, with its way out; nothing is made anew over it."""
    alone = Machine(tmp_path, "alone")
    try:
        alone.run("quickstart")
        alone.stop_local_daemon()
        master = alone.home / "daemon" / "master.key"
        kept = master.read_bytes()
        master.write_bytes(b"short")
        told = alone.run("status", code=5)
        assert "cannot start the daemon" in told
        assert "master.key" in told
        assert master.read_bytes() == b"short"
        master.write_bytes(kept)
        (alone.home / "daemon").chmod(0o755)
        assert "chmod 700" in alone.run("status", code=4)
        (alone.home / "daemon").chmod(0o700)
        alone.run("status")
    finally:
        alone.stop_local_daemon()
