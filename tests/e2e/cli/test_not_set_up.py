"""A machine that nobody has set up: looking at it makes nothing, and a join that failed leaves nothing that begins a space of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.daemon.disks import mounted
from tests.support.deadline import DEADLINE_S
from tests.support.programs import commands
from tests.support.programs.command import confide
from tests.support.programs.processes import NO_MODEL, Inside, Machine, running_daemon
from tests.support.programs.wire import Wire

MAKING = {
    ("quickstart",),
    *(("device", "key", "show"), ("device", "key", "move", "file"), ("device", "key", "import", "../no-key")),
    *(("project", "allow"), ("http", "token", "new", "editor", "--scope", "write")),
}
"""What a person runs to set the machine up, to make its key, or to decide something by hand."""
NEED_NOTHING = {
    ("sync", "--queue", "--show"),
    ("sync", "--queue", "--retry"),
    ("project", "ls", "--folders"),
    ("task", "runner", "--init", "--print"),
    ("task", "runner", "--runs"),
    ("http", "token", "ls"),
    ("learn", "transcripts"),
    ("stats",),
    ("secrets", "audit"),
    ("secrets", "scan"),
    ("secrets", "scan", "--all"),
}
"""What needs no daemon, and answers that there is nothing."""
LEARNING = {("learn", each) for each in ("ls", "now", "keep", "refuse")}
REFUSED = {
    ("sync", "--queue", "--drop"),
    ("project", "allow", "--undo"),
    ("device", "key", "move", "passphrase"),
    ("device", "recovery", "use"),
    ("secrets", "show"),
    ("secrets", "name"),
    ("task", "accept"),
    ("http", "token", "rm"),
    ("trust",),
}
"""What ends with a code of its own: nothing is there that it could be about, or nobody to ask."""


@pytest.mark.addons
def test_no_command_that_looks_makes_anything(tmp_path: Path) -> None:
    """Every command that is not for setting up says that nothing is set up, ends with 5, and leaves all files as they were."""
    machine = Inside(tmp_path, "fresh", is_set_up=False)
    machine.env["EDITOR"] = "true"
    machine.write("memory/a.md", "- herons fish at dawn, api key ghp_" + "a1B2c3D4e5F6" * 3 + "\n")
    before = tree(tmp_path)
    for line in [*commands.every(), ("sync", "--watch")]:
        if line in MAKING:
            continue
        ended = confide(machine, *line)
        assert tree(tmp_path) == before, line
        if line in NEED_NOTHING:
            assert ended.code in (0, 9), (line, ended)
        elif line == ("doctor",):
            assert (ended.code, "not set up" in ended.out) == (1, True), ended
        elif line[0] == "setup":
            assert ended.code == 0, (line, ended)
        elif line[:2] in LEARNING:  # it is off, and nothing waits
            assert ended.code in (0, 7), (line, ended)
        elif not any(line[: len(each)] == each for each in REFUSED):
            assert ended.code == 5, (line, ended)
            assert "this device is not set up" in ended.err, (line, ended)
            assert "hint: confide quickstart" in ended.err, (line, ended)
        else:
            assert ended.code, (line, ended)


def test_status_as_json_says_that_nothing_is_set_up(tmp_path: Path) -> None:
    """A program can tell a machine that is not set up from one whose daemon is away."""
    ended = confide(Inside(tmp_path, "fresh", is_set_up=False), "status", "--json")
    assert ended.code == 5
    assert json.loads(ended.out)["link"]["state"] == "not set up"


def test_an_agents_session_sets_the_machine_up(tmp_path: Path) -> None:
    """Whoever lets a client start `confide mcp` needs no other command."""
    machine = Inside(tmp_path, "fresh", is_set_up=False)
    try:
        with Wire(machine) as agent:
            agent.open()
            told = agent.tool("memory_store", {"content": "- herons fish at dawn"})
            assert "queued" not in told["content"][0]["text"], told
        assert "herons" in machine.run("search", "herons")
    finally:
        machine.stop_local_daemon()


def test_a_session_on_a_read_only_disk_says_what_to_do(tmp_path: Path) -> None:
    """Commands too; none of them ends with more than a sentence."""
    machine = Inside(tmp_path, "fresh", is_set_up=False)
    machine.home.mkdir(parents=True, exist_ok=True)
    is_disk = mounted(machine.home, "ro")
    if os.geteuid() == 0 and not is_disk:
        pytest.skip("root may write in every folder, and mounting a disk is not allowed")
    if not is_disk:
        machine.home.chmod(0o500)
    try:
        with Wire(machine) as agent:
            agent.open()
            for tool, arguments in (("memory_status", {}), ("memory_search", {"query": "herons"})):
                said = agent.tool(tool, arguments)["content"][0]["text"]
                assert f"this device is not set up, and {machine.home} cannot be written to" in said
                assert "or set CONFIDE_HOME to a folder of yours" in said
        ended = confide(machine, "status")
        assert (ended.code, f"{machine.home} cannot be written to" in ended.err) == (5, True)
        assert "cannot be made: " in confide(machine, "quickstart").err
    finally:
        if is_disk:
            subprocess.run(["umount", str(machine.home)], check=True)
        else:
            machine.home.chmod(0o700)


def test_a_failed_join_founds_nothing(tmp_path: Path) -> None:
    """Neither the next command nor an agent's session begins a space of its own in the place of the daemon that was to be joined; a good
    join after it asks nothing and warns of nothing."""
    machine = Inside(tmp_path, "fresh", is_set_up=False)
    with running_daemon(tmp_path) as daemon:
        spent = daemon.invite("other")
        Inside(tmp_path, "other").run("join", spent)
        for invite in (daemon.invite("laptop", port=1), spent, "confide://127.0.0.1:1/#invite1nonsense"):
            ended = confide(machine, "join", invite)
            assert ended.code in (5, 6, 7), ended
            for command in (("status",), ("store", "- herons")):
                then = confide(machine, *command)
                assert then.code == 5, then
                assert "is not set up: the last confide join failed" in then.err, then
                assert ended.err.splitlines()[0].removeprefix("confide: ")[:60] in then.err, (ended, then)
        with Wire(machine) as agent:
            agent.open()
            answer = agent.tool("memory_store", {"content": "- herons fish at dawn"})
            assert answer["isError"], answer
            assert "not set up" in answer["content"][0]["text"], answer
        assert machine.local_daemon is None
        assert not (machine.home / "daemon").exists()
        told = confide(machine, "join", daemon.invite("laptop"))
        assert told.code == 0, told
        assert "opens nothing" not in told.err, told
        assert "compare these words with the server's" in told.out
        assert confide(machine, "status").code == 0


def test_nobody_is_asked_about_a_space_that_holds_nothing(tmp_path: Path) -> None:
    """A machine that was alone joins a server without a word about what it leaves behind."""
    machine = Inside(tmp_path, "alone", is_set_up=False)
    with running_daemon(tmp_path) as daemon:
        try:
            machine.run("quickstart")
            assert "opens nothing" not in machine.run("join", daemon.invite("alone"))
        finally:
            machine.stop_local_daemon()


def tree(root: Path) -> dict[str, bytes | None]:
    """What lies below a folder: each name, and what is in a file."""
    return {str(each.relative_to(root)): each.read_bytes() if each.is_file() else None for each in root.rglob("*")}


@pytest.mark.parametrize("name", ["CONFIDE_HOME", "XDG_DATA_HOME"])
def test_a_client_that_passes_few_variables_has_the_same_memory(tmp_path: Path, name: str) -> None:
    """As Codex and desktop programs start servers: HOME, PATH and little else. There is one memory, one key and one daemon afterwards."""
    machine = Machine(tmp_path, "ann")
    bare = {key: value for key, value in machine.env.items() if key != "CONFIDE_HOME"}
    there = machine.home if name == "CONFIDE_HOME" else tmp_path / "ann" / "data"
    if name == "XDG_DATA_HOME":
        there.mkdir()
        machine.env = {**bare, name: str(there)}
        (tmp_path / "ann" / ".config" / "confide").mkdir(mode=0o700, parents=True)
        (tmp_path / "ann" / ".config" / "confide" / "daemon.toml").write_text(NO_MODEL)
    try:
        machine.run("quickstart")
        machine.run("store", "We chose postgres for its row locks.")
        machine.env = bare
        with Wire(machine) as wire:
            wire.open()
            asked = {"name": "memory_search", "arguments": {"query": "why postgres"}}
            wire.send({"id": 1, "method": "tools/call", "params": asked})
            found = wire.next(DEADLINE_S)
            asked = {"name": "memory_status", "arguments": {}}
            wire.send({"id": 2, "method": "tools/call", "params": asked})
            status = wire.next(DEADLINE_S)
        told = machine.run("doctor", code=0)
    finally:
        machine.env = {**bare, name: str(there)}
        machine.run("stop")
    assert "row locks" in str(found)
    assert f"started without {name}" in str(status)
    assert f"started without {name}" in " ".join(told.split())
    assert not (tmp_path / "ann" / ".local" / "share" / "confide").exists()
