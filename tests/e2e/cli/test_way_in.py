"""The first hour at one machine: what quickstart, status, doctor, stop and start say and do, and which folder is which project."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs.command import confide
from tests.support.programs.processes import CONFIDE, Machine, running_daemon
from tests.support.programs.wire import Wire

from confide_proxy.errors import DiskRefusalError
from confide_proxy.hooks import counts
from confide_proxy.sync.folder import Folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a daemon of its own, and a git repository for its project."""
    machine = Machine(tmp_path_factory.mktemp("alone"), "alone", is_set_up=False)
    subprocess.run(["git", "init", "-q", machine.project], check=True, env=machine.env)
    for number in range(25):
        machine.write(f"docs/page{number}.md", f"# Page {number}\n")
    try:
        said = machine.run("quickstart")
        (machine.home.parent / "said").write_text(said)
        yield machine
    finally:
        machine.stop_local_daemon()


def test_quickstart_says_what_it_did_and_what_to_do(alone: Machine) -> None:
    """Where the daemon's data is, which project this is, what else could be indexed with the very line, and the next command."""
    said = (alone.home.parent / "said").read_text()
    assert f"a daemon answers, here, with its data in {alone.home / 'daemon'}" in said
    assert "this folder is the project project in the space local" in said
    assert "0 memory files compared" in said
    assert "beside the memory are 25 markdown files, 240 bytes: docs/page0.md, docs/page1.md" in said
    assert '  [folders."~/project"]\n  extra = ["**/*.md"]\n' in said
    assert str(alone.home / "proxy.toml") in said
    assert "confide setup claude-code --write" in said
    assert "may be another's name" not in said


def test_the_home_folder_is_no_project_and_said_to_be_none(alone: Machine) -> None:
    """One sentence says so, no other one calls it a project, and the next command is one that works there."""
    home = str(alone.home.parent)
    said = alone.run("quickstart", "--project", home)
    assert said.count("is your home folder, and no project: only the memory that all projects share is here") == 1
    assert "project global" not in said
    assert "is the project" not in said
    assert "confide setup claude-code --write --user\n" in said
    assert "then go to a project's folder\nand try:  confide store" in said
    told = alone.run("status", "--project", home)
    assert re.search(r"^project +none here, the memory that all projects share, 0 files here", told, re.MULTILINE), told


def test_status_is_six_lines_and_all_else_on_demand(alone: Machine) -> None:
    """No JSON, no name of a field, no bytes; times are local with their zone; `-v` has the places of all files."""
    alone.run("sync")
    lines = confide(alone, "status").out.splitlines()
    assert [line.split()[0] for line in lines] == ["daemon", "space", "project", "index", "waiting", "problems"]
    text = "\n".join(lines)
    assert not re.search(r"[{}\[\]\"]|[a-z][A-Z]", text), text
    assert re.search(r"compared \d{4}-\d\d-\d\d \d\d:\d\d \w+, no conflict", text), text
    verbose = confide(alone, "status", "-v").out
    assert not re.search(r"[{}\"]|\b[a-z]+[A-Z][a-z]+:", verbose), verbose
    for place in ("proxy.toml", "proxy", "global", "daemon"):
        assert str(alone.home / place) in verbose
    told = json.loads(confide(alone, "status", "--json").out)
    assert told["lastSync"] is not None
    assert told["paths"]["configuration"] == str(alone.home / "proxy.toml")


def test_a_sync_that_could_not_read_a_file_does_not_end_well(alone: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that gives or takes nothing is a failure, named by file; a file that is no memory file is not."""
    alone.write("memory/torn.md", "- on a bad sector\n")
    alone.write("memory/odd.md", "").write_bytes(b"caf\xe9\n")
    read = Folder.read

    def torn(folder: Folder, path: str) -> Any:
        if path == "memory/torn.md":
            raise DiskRefusalError(path, "cannot be opened: Input/output error")
        return read(folder, path)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "read", torn)
        ended = confide(alone, "sync")
    assert ended.code == 8
    assert "skipped memory/torn.md: cannot be opened: Input/output error" in ended.err
    again = confide(alone, "sync")
    assert (again.code, "skipped memory/odd.md" in again.err) == (0, True), again
    (alone.project / "memory/odd.md").unlink()


def test_a_store_that_has_git_leave_memory_out_says_so(alone: Machine) -> None:
    """A file of the person's own that is changed by the way is named."""
    said = confide(alone, "store", "- the first line").err
    assert f"note: added memory/ to {alone.project / '.git/info/exclude'}" in said
    assert "exclude" not in confide(alone, "store", "- the second line").err


def test_the_doctor_finds_nothing_and_writes_nothing(alone: Machine) -> None:
    """A machine that is well: every line ok or a hint, exit code 0, and no file of the proxy's is other than before."""
    confide(alone, "status")
    before = proxy_files(alone)
    ended = confide(alone, "doctor", "--json")
    assert ended.code == 0, ended
    found = {each["check"]: each["state"] for each in json.loads(ended.out)}
    assert {
        "configuration",
        "rights",
        "key",
        "clock",
        "disk",
        "queue",
        "link",
        "versions",
        "files",
        "hooks",
    } <= found.keys()
    assert set(found.values()) <= {"ok", "hint"}
    assert proxy_files(alone) == before


def test_the_doctor_mends_what_is_safe(alone: Machine) -> None:
    """Rights that are too wide and an entry that leads nowhere are problems, with a way out; `--fix` puts both right."""
    (alone.home / "proxy").chmod(0o755)
    file = alone.write(
        ".mcp.json", json.dumps({"mcpServers": {"confide": {"command": "/gone/confide", "args": ["mcp"]}}})
    )
    ended = confide(alone, "doctor")
    assert ended.code == 1
    assert f"other users can read {alone.home / 'proxy'}" in ended.out
    assert "/gone/confide, which is not there" in ended.out
    assert confide(alone, "doctor", "--fix").code == 0
    assert confide(alone, "doctor").code == 0
    assert Path(json.loads(file.read_text())["mcpServers"]["confide"]["command"]).is_file()
    file.unlink()


def test_the_doctor_starts_an_entry_as_its_client_does(
    alone: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that is there says nothing of what is behind it: not its arguments, nor the few variables that a client hands on."""
    confide(alone, "status")
    monkeypatch.setitem(alone.env, "HOME", str(tmp_path))
    confide(alone, "setup", "codex", "--write")
    config = tmp_path / ".codex" / "config.toml"
    right, before = config.read_text(), proxy_files(alone)
    assert "ok codex" in told_of("codex", alone)
    assert {**proxy_files(alone), "hooks/starting": b""} == {**before, "hooks/starting": b""}, (
        "but for a session's mark"
    )
    for old, new, why in (
        ('["mcp"]', '["mpc"]', "it ended at once, with 2"),
        ('"mcp"', '"--version"', "it speaks no MCP"),
        ("\n", "\nnothing = 1\n", ""),
    ):
        config.write_text(right.replace(old, new, 1))
        assert why in told_of("codex", alone)
        assert ("problem codex" in told_of("codex", alone)) == bool(why)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "./confide"},
        {"env": {"PYTHONPATH": "."}},
        {"command": "/bin/sh", "args": ["./confide"]},
        {"args": ["store", "planted"]},
        {"args": ["mcp", "--project", "elsewhere"]},
    ],
)
def test_the_doctor_starts_nothing_that_a_repository_names(alone: Machine, entry: dict[str, Any]) -> None:
    """A client asks its person first."""
    confide(alone, "status")
    environment = {"CONFIDE_HOME": alone.env["CONFIDE_HOME"], **entry.get("env", {})}
    entry = {"command": CONFIDE, "args": ["mcp"], **entry, "env": environment}
    for name in ("confide", "sitecustomize.py"):
        alone.write(name, "#!/bin/sh\ntouch started\n" if name == "confide" else "open('started', 'w')\n").chmod(0o755)
    file = alone.write(".mcp.json", json.dumps({"mcpServers": {"confide": entry}}))
    assert "was not tried" in told_of("claude-code", alone)
    file.unlink()
    assert not (alone.project / "started").exists()
    assert not any("planted" in each.read_text() for each in (alone.project / "memory").rglob("*.md"))


def test_the_doctor_calls_an_address(alone: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes connections there, or it is a problem."""
    confide(alone, "status")
    monkeypatch.setitem(alone.env, "HOME", str(tmp_path))
    (tmp_path / ".codex").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/mcp"
        (tmp_path / ".codex" / "config.toml").write_text(f'[mcp_servers.confide]\nurl = "{url}"\n')
        assert "it accepts connections" in told_of("codex", alone)
    told = told_of("codex", alone)
    assert "problem codex" in told
    assert "cannot be reached: connection refused" in told


def told_of(client: str, machine: Machine) -> str:
    """State, name and sentence."""
    found = [each for each in json.loads(confide(machine, "doctor", "--json").out) if each["check"] == client]
    return " ".join(f"{each['state']} {client} {each['detail']}" for each in found)


def test_the_doctor_tells_what_hooks_did(alone: Machine) -> None:
    """They say nothing of it themselves: how many fired, what became of them, the last error; and whether they are switched off."""
    state = str(alone.home / "proxy")
    counts.note(state, event="Stop", client="codex", outcome="failed", ms=3, why="errno-13")
    told = next(line for line in confide(alone, "doctor").out.splitlines() if " hooks " in line)
    assert told.startswith("hint")
    assert ": 1 failed, last errno-13 at" in told
    Path(state, counts.FOLDER, counts.EVENTS).unlink()
    for outcome, why in (("answered", "-"), ("silent", "-"), ("absent", "-"), ("failed", "no-json")):
        counts.note(state, event="Stop", client="codex", outcome=outcome, ms=3, why=why)
    told = next(line for line in confide(alone, "doctor").out.splitlines() if " hooks " in line)
    assert told.startswith("hint")  # one of them found no session to ask
    assert "4 ran since" in told
    assert "1 answered, 1 silent, 1 found no session to ask, 1 failed, last no-json at" in told
    for _ in range(3):
        counts.note(state, event="UserPromptSubmit", client="codex", outcome="late", ms=400)
    assert "a session that is just beginning has none yet" in confide(alone, "doctor").out
    (alone.home / "proxy.toml").write_text("hooks = false\n")
    assert f"off: {alone.home / 'proxy.toml'}" in confide(alone, "doctor").out
    (alone.home / "proxy.toml").unlink()


def test_setup_shows_the_difference_and_can_be_taken_back(alone: Machine) -> None:
    """What changes is shown first; the entry has an absolute path; --remove leaves the file as it was."""
    file = alone.write(".mcp.json", json.dumps({"mcpServers": {"other": {"command": "x"}}}, indent=2) + "\n")
    before = file.read_text()
    said = confide(alone, "setup", "claude-code", "--write").out
    assert '+    "confide": {' in said
    assert f"added confide to {file}" in said
    assert Path(json.loads(file.read_text())["mcpServers"]["confide"]["command"]).is_absolute()
    assert "removed confide from" in confide(alone, "setup", "claude-code", "--remove").out
    assert file.read_text() == before
    file.unlink()


def test_folders_of_one_name_are_two_projects(alone: Machine) -> None:
    """What is stored in one is neither found in the other nor written there, and the person is told once how to join them."""
    folders = [alone.home.parent / place / "api" for place in ("clients", "private")]
    for folder in folders:
        folder.mkdir(parents=True)
    assert confide(alone, "store", "- the client's contract ends in May", "-p", str(folders[0])).code == 0
    asked = confide(alone, "search", "contract", "-p", str(folders[1]))
    assert "contract" not in asked.out
    assert "confide project allow" in asked.err
    again = confide(alone, "sync", "-p", str(folders[1]))
    assert (again.code, "project allow" in again.err) == (0, False), "it is said once"
    assert "(calls itself api: confide project allow)" in confide(alone, "status", "-p", str(folders[1])).out
    assert not list(folders[1].rglob("*.md"))
    names = {
        each["folder"]: each["project"]
        for each in json.loads(confide(alone, "project", "ls", "--folders", "--json").out)
    }
    assert names[str(folders[0])] == "api"
    assert names[str(folders[1])].startswith("api~")


def test_home_and_root_are_no_projects(alone: Machine) -> None:
    """Nothing is stored there; other commands and an agent's session have the memory that all projects share."""
    home = alone.home.parent
    for place, what in (("/", "the root of the disk"), (str(home), "your home folder")):
        ended = confide(alone, "store", "- lost", "-p", place)
        assert (ended.code, "--project" in ended.err) == (7, True), ended
        assert f"is {what}, and no project" in ended.err
        assert confide(alone, "status", "-p", place).code == 0
    with Wire(alone, "--project", str(home)) as agent:
        agent.open()
        assert not agent.tool("memory_store", {"content": "- for all projects"}).get("isError")
    assert list((alone.home / "global").rglob("*.md"))
    assert not (home / "memory").exists()


def test_the_daemon_stops_and_starts(alone: Machine) -> None:
    """`stop` waits until it is gone and says what starts it again; `start` starts it, and neither does anything twice."""
    confide(alone, "status")
    running = alone.local_daemon
    assert running is not None
    said = confide(alone, "stop")
    assert f"stopped process {running['pid']}" in said.out
    assert "starts it again" in said.err
    assert alone.local_daemon is None
    assert "no daemon runs on this device" in confide(alone, "stop").out
    assert confide(alone, "doctor").code == 0
    assert alone.local_daemon is None, "the doctor starts nothing"
    alone.run("start")
    assert alone.local_daemon is not None
    assert "runs already" in confide(alone, "start").out


def test_a_daemon_elsewhere_is_not_stopped_from_here(tmp_path: Path) -> None:
    """Where the daemon is somebody else's to stop, that is said, and where it is."""
    machine = Machine(tmp_path, "laptop", is_set_up=False)
    with running_daemon(tmp_path) as daemon:
        confide(machine, "join", daemon.invite("laptop"))
        for command in ("stop", "start"):
            ended = confide(machine, command)
            assert ended.code == 7
            assert f"127.0.0.1:{daemon.port}" in ended.err
        ended = confide(machine, "doctor")
        assert ended.code == 0
        assert f" confide://127.0.0.1:{daemon.port} answers" in ended.out
        daemon.stop()
        ended = confide(machine, "doctor")
        assert ended.code == 1
        assert "connection refused" in ended.out


def proxy_files(machine: Machine) -> dict[str, bytes]:
    """What the proxy keeps, by path."""
    root = machine.home / "proxy"
    return {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()}
