"""`confide ls`, `log`, `edit`, `rm`, `store` with a note's fields, and `history --diff`, as a person uses them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.programs.forked import Program
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDE, Daemon, Inside, Machine, running_daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def desk(daemon: Daemon, tmp_path: Path) -> Machine:
    """A machine of the daemon's space, in a project that no other test has."""
    return joined(daemon, tmp_path, "desk")


def joined(daemon: Daemon, root: Path, name: str, *options: str) -> Machine:
    machine = Inside(root, name)
    machine.call_project(root.name)
    machine.run("join", daemon.invite(f"{name}-{root.name}", *options))
    return machine


def test_what_there_is_and_what_changed(desk: Machine) -> None:
    """Files and notes are listed with their titles and sizes, narrowed by folder, tag and number; the log tells what each brought."""
    desk.write("MEMORY.md", "# Decisions\n\n- We chose postgres.\n")
    desk.run("store", "- one approval", "--path", "memory/plan.md")
    desk.run("store", "- two herons", "--path", "memory/plan.md")
    told = desk.run(
        *("store", "We use tabs", "--title", "Tabs", "--tag", "style", "--type", "decision", "--importance", "high")
    )
    assert "as note mem_" in told
    found = desk.json("ls")
    assert {one["path"] for one in found["documents"]} >= {"MEMORY.md", "memory/plan.md"}
    assert found["documents"][0]["title"] == "Tabs"
    assert found["offline"] is False
    told = desk.run("ls")
    assert "MEMORY.md" in told
    assert "3 lines  Decisions" in told
    assert "1 of 3; more with -n 3" in desk.run("ls", "-n", "1")
    assert "Tabs" in desk.run("ls", "--tag", "style")
    assert "Decisions" not in desk.run("ls", "--type", "decision")
    assert [one["path"] for one in desk.json("ls", "memory/plan.md")["documents"]] == ["memory/plan.md"]
    assert "no such memory" in desk.run("ls", "memory/nothing")
    log = desk.json("log", "memory/plan.md")["changes"]
    assert [(one["revision"], one["words"]) for one in log] == [(2, "two herons"), (1, "one approval")]
    assert "revision 2  two herons" in desk.run("log", "--since", "1h", "-n", "2")
    assert "nothing has changed since 2100-01-01" in desk.run("log", "--since", "2100-01-01")
    desk.run("log", "--since", "yesterday", code=2)
    told = desk.run("history", "memory/plan.md", "--diff")
    assert "+- two herons" in told
    assert "\x1b" not in told
    assert "+- one approval" in desk.run("history", "memory/plan.md", "--diff", "--revision", "1")
    assert "no revision 7" in desk.run("history", "memory/plan.md", "--diff", "--revision", "7", code=7)
    desk.run("history", "memory/plan.md", "--revision", "1", code=2)


def test_a_file_is_known_however_it_is_named(desk: Machine) -> None:
    """By its absolute path, a folder or a glob, in every command that takes a path: what is there is not called unknown."""
    file = desk.project / "memory" / "my plans" / "a b.md"
    desk.run("store", "- one heron", "--path", str(file))
    name = "memory/my plans/a b.md"
    for said in (str(file), "memory/my plans", "memory/my*/*.md", str(file.parent), "**/a*.md"):
        assert [one["path"] for one in desk.json("ls", said)["documents"]] == [name], said
    assert "one heron" in desk.run("read", str(file))
    assert desk.json("history", str(file))["path"] == name
    assert [one["path"] for one in desk.json("history", str(file.parent))["changes"]] == [name]
    assert "no memory file of" in desk.run("rm", "--yes", "memory/zz*", code=7)
    for said in ("memory/my plans", "memory/my*/*", str(file)):
        assert "deleted memory/my plans/a b.md" in desk.run("rm", "--yes", said)
        assert "confide restore 'memory/my plans/a b.md'" in desk.run("rm", "--yes", str(file), code=7)
        desk.run("restore", str(file))
    assert "is not in the project's folder" in desk.run("ls", "/etc", code=7)
    for command in ("ls", "history"):
        assert "there is no project kitchn" in desk.run(command, "--only", "kitchn", code=7)


def test_an_edit_is_sent_and_its_outcome_told(daemon: Daemon, desk: Machine, tmp_path: Path) -> None:
    """Also of a file that came from another machine, and of a note by its id; an editor that fails loses nothing of what it saved."""
    other = joined(daemon, tmp_path, "other", "--space", f"desk-{tmp_path.name}")
    other.run("store", "- three herons", "--path", "memory/far.md")
    other.run("store", "We use tabs", "--title", "Tabs")
    desk.env["EDITOR"] = "sed -i s/three/four/"
    assert "sent memory/far.md as revision 2" in desk.run("edit", "memory/far.md", program=CONFIDE)
    assert "unchanged" in desk.run("edit", "memory/far.md")
    identity = desk.json("ls", "memory/notes")["documents"][0]["id"]
    desk.env["EDITOR"] = "sed -i s/tabs/blanks/"
    assert "as revision 2" in desk.run("edit", identity)
    other.run("sync")
    assert "four herons" in (other.project / "memory/far.md").read_text()
    script = tmp_path / "failing"
    script.write_text('#!/bin/sh\necho "- saved before it broke" >> "$1"\nexit 3\n')
    script.chmod(0o700)
    desk.env["EDITOR"] = str(script)
    told = desk.run("edit", "memory/far.md", code=1)
    assert "the editor ended with 3" in told
    assert "as revision 3" in told
    desk.env["EDITOR"] = ""
    assert "export EDITOR" in desk.run("edit", "memory/far.md", code=7)
    desk.env["VISUAL"] = "no-such-editor"
    assert "cannot be run" in desk.run("edit", "memory/far.md", code=7)
    desk.env["VISUAL"] = "true"
    desk.run("edit", "memory/never.md", code=7)
    desk.run("edit", "../outside.md", code=7)


def test_what_is_deleted_is_asked_about_and_comes_back(desk: Machine) -> None:
    """Without a terminal and without --yes nothing goes; only memory can go, and the way back is told."""
    desk.run("store", "- a heron", "--path", "memory/gone.md")
    desk.run("store", "We use tabs", "--title", "Tabs")
    assert "--yes" in desk.run("rm", "memory/gone.md", code=7)
    assert (desk.project / "memory/gone.md").exists()
    told = desk.run("rm", "memory/gone.md", "--yes")
    assert "confide restore memory/gone.md" in told
    assert not (desk.project / "memory/gone.md").exists()
    assert "is deleted already" in desk.run("rm", "memory/gone.md", "--yes", code=7)
    desk.run("restore", "memory/gone.md")
    assert (desk.project / "memory/gone.md").exists()
    identity = desk.json("ls", "memory/notes")["documents"][0]["id"]
    short = f"mem_{identity[-8:-2]}"
    assert desk.json("history", short)["revisions"][0]["revision"] == 1
    assert "We use tabs" in desk.run("read", short)
    assert desk.json("rm", short, "--yes")["deleted"][0]["id"] == identity
    assert desk.json("restore", short)["path"] == desk.json("ls", "memory/notes")["documents"][0]["path"]
    assert desk.json("rm", identity, "--yes")["deleted"][0]["deleted"] is True
    outside = desk.write("README.md", "mine\n")
    for path in ("README.md", "../x.md", "/etc/passwd"):
        desk.run("rm", path, "--yes", code=7)
    assert outside.exists()
    desk.run("rm", "mem_no_such", "--yes", code=7)


def test_a_line_that_is_there_is_stored_once(desk: Machine) -> None:
    """It says where; --again stores it once more, and who names another file wants it there."""
    desk.write("memory/x.md", "# Facts\n\n- We chose postgres\n")
    told = desk.run("store", "We chose postgres")
    assert "is there already: memory/x.md:3" in told
    assert desk.json("store", "- We chose postgres")["line"] == 3
    assert "stored in" in desk.run("store", "We chose postgres", "--path", "memory/y.md")
    assert "is there already: memory/y.md:1" in desk.run("store", "We chose postgres", "--path", "memory/y.md")
    assert "(revision 2)" in desk.run("store", "We chose postgres", "--path", "memory/y.md", "--again")
    desk.run("store", "We use tabs", "--title", "Tabs")
    assert "is there already: memory/notes/" in desk.run("store", "We use tabs", "--title", "Tabs")
    assert "is for files" in desk.run("store", "x", "--title", "Tabs", "--path", "memory/x.md", code=2)


def test_bytes_that_are_no_text_are_said_to_be_none(desk: Machine) -> None:
    """From a pipe too: which byte, and nothing is stored."""
    pipe = subprocess.PIPE
    with Program(
        [CONFIDE, "store", "-"], cwd=desk.project, env=desk.env, stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        stdout, stderr = process.communicate(b"caf\xe9\n", COMMAND_DEADLINE_S)
    assert (process.returncode, stdout) == (7, b"")
    assert b"is not UTF-8 text (byte 3)" in stderr
    assert desk.json("ls")["total"] == 0


def test_without_the_daemon_they_use_what_is_here(daemon: Daemon, desk: Machine) -> None:
    """`ls` lists the files on this machine and says so, an edit is sent later, a deletion waits."""
    desk.run("store", "- a heron", "--path", "memory/birds.md")
    desk.run("store", "- a fox", "--path", "memory/foxes.md")
    daemon.stop()
    try:
        found = desk.json("ls", "memory/birds.md")
        assert found["offline"] is True
        assert [(one["path"], one["lines"]) for one in found["documents"]] == [("memory/birds.md", 1)]
        assert "these are the files on this device" in desk.run("ls")
        desk.env["EDITOR"] = "sed -i s/heron/crane/"
        assert "once the daemon can be reached" in desk.run("edit", "memory/birds.md")
        desk.run("log", code=5)
        desk.run("rm", "memory/never.md", "--yes", code=7)
        assert "is queued until the server is reachable" in desk.run("rm", "memory/foxes.md", "--yes")
    finally:
        daemon.start()
    desk.run("sync")
    assert desk.json("log", "memory/birds.md")["changes"][0]["revision"] == 2
    assert desk.json("log", "memory/foxes.md")["changes"][0]["deleted"] is True


def test_commands_list_and_confirm(desk: Machine) -> None:
    """A note by command, an edit of what it names, and its confirmation; a note that names nothing is said to."""
    auth = "def login(user):\n    return user.name\n"
    source = desk.project / "src/auth.py"
    source.parent.mkdir(parents=True)
    source.write_text(auth)
    stored = desk.json("store", "`login()` in src/auth.py takes the lock first", "--title", "Locks")
    other = desk.json("store", "Tabs, not spaces", "--title", "Style")
    assert "nothing has changed since: 1 note" in desk.run("stale")
    source.write_text(auth.replace("user.name", "user.id"))
    (listed,) = desk.json("stale")["notes"]
    assert listed["path"] == stored["path"]
    assert listed["state"] == "changed"
    assert listed["mark"].endswith(": src/auth.py#login")
    (hit,) = (hit for hit in desk.json("search", "which lock is first")["results"] if hit["path"] == stored["path"])
    assert hit["stale"] == listed["mark"]
    assert listed["mark"] in desk.run("search", "which lock is first")
    assert listed["mark"] in desk.run("read", stored["path"])
    confirmed = {"path": stored["path"], "parts": ["src/auth.py#login"], "unchecked": []}
    assert desk.json("fresh", stored["path"])["confirmed"] == [confirmed]
    assert desk.json("stale")["notes"] == []
    assert "names no file of this project" in desk.run("fresh", other["path"], code=7)
    decisions = desk.project / "memory/decisions.md"
    decisions.write_text("---\nabout: [src/auth.py#login]\n---\nWe lock first.\n")
    desk.run("sync")
    source.write_text(auth)
    assert [each["path"] for each in desk.json("stale")["notes"]] == [stored["path"], "memory/decisions.md"]
    assert "is confirmed: src/auth.py#login" in desk.run("fresh", "memory/decisions.md", stored["path"])
    assert desk.json("stale")["notes"] == []
    source.unlink()
    source.symlink_to("/dev/null")
    assert "cannot be confirmed here; not checked: src/auth.py#login (a link)" in desk.run(
        "fresh", stored["path"], code=7
    )
    assert [each["state"] for each in desk.json("stale")["notes"]] == ["unchecked", "unchecked"]
