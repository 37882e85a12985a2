"""The command `confided` as a process: what an operator types, sees, and gets as an exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided
from tests.support.programs.forked import Program
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDED

from confide_daemon.server.mcp.tool_calls import catalogue
from confide_proxy.mcp.catalogue import PACKAGED

COMMANDS = ["init", "serve", "invite", "device", "audit", "key", "space", "status", "doctor", "stop", "upgrade"]


# Help and mistakes


@pytest.mark.parametrize(("is_pipe", "code"), [(False, 8), (True, 1)])
def test_an_output_that_cannot_be_written(ready: Confided, is_pipe: bool, code: int) -> None:
    """A full disk is told in one sentence; of a pipe that nobody reads nothing is said."""
    reading, writing = os.pipe() if is_pipe else (-1, os.open("/dev/full", os.O_WRONLY))
    if is_pipe:
        os.close(reading)
    env = {name: value for name, value in ready.env.items() if name != "PYTHONUNBUFFERED"}
    with Program([CONFIDED, "status"], env=env, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        told = process.communicate(timeout=COMMAND_DEADLINE_S)[1]
    assert process.returncode == code, told
    assert told == ("" if is_pipe else "confided: the output cannot be used: No space left on device\n")


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([name] for name in COMMANDS),
        *(["device", name] for name in ("ls", "add", "approve", "edit", "rm")),
        *(["space", name] for name in ("ls", "rm", "reindex", "bench", "key")),
    ],
)
def test_every_command_has_help(confided: Confided, command: list[str]) -> None:
    text = confided.run(*command, "--help").stdout
    assert "Usage: confided" in text
    if command and command not in (["device"], ["space"]):
        assert "--data" in text
        assert "--config" in text


def test_the_help_lists_every_command_and_the_exit_codes(confided: Confided) -> None:
    text = confided.run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", text, re.MULTILINE)
    assert "Exit codes: 0 ok" in text
    assert confided.run().stdout == confided.run("help").stdout == text
    assert confided.run("-V").stdout == confided.run("--version").stdout


def test_the_help_of_a_command_ends_with_an_example(confided: Confided) -> None:
    """Also by `help COMMAND`, in a group, and where the command has no word of its own."""
    for command in ("serve", "device edit", "invite", "space rm"):
        text = confided.run("help", *command.split()).stdout
        assert re.search(rf"\nExamples?:\n  confided {command}\b", text), text


def test_times_have_their_zone(ready: Confided) -> None:
    ready.run("invite", "laptop", "--no-wait")
    assert re.search(r"valid until \d{4}-\d\d-\d\d \d\d:\d\d [A-Z]", ready.run("invite").stdout)


def test_a_mistyped_command_is_answered_with_the_nearest(confided: Confided) -> None:
    assert "hint: did you mean confided space reindex?" in confided.run("reindx", code=2).stderr


@pytest.mark.parametrize(
    "command",
    [
        ["invite", "x"],
        ["invite"],
        ["device"],
        ["key"],
        ["status"],
        ["serve"],
        ["device", "rm", "x"],
        ["audit"],
    ],
)
def test_before_init_every_command_says_what_to_do(confided: Confided, command: list[str]) -> None:
    assert "hint: run: confided init" in confided.run(*command, code=4).stderr


# init


def test_init_makes_private_keys_and_leaves_them_alone_after(confided: Confided) -> None:
    first = confided.json("init")
    assert first["created"] is True
    assert first["key"].startswith("confided1")
    for path in [confided.data, *confided.data.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    second = confided.json("init")
    assert second == {**first, "created": False}
    assert confided.run("key").stdout.strip() == first["key"]


def test_init_says_that_the_keys_need_a_backup(confided: Confided) -> None:
    assert "Back up identity.key and master.key" in confided.run("init").stderr


def test_where_the_configuration_belongs_is_said(confided: Confided) -> None:
    """At the first command, and in the log of each start; one that lies beside the data is named as not read."""
    file = confided.home / "daemon.toml"
    assert f"configuration: {file}\n" in confided.run("init").stdout
    misplaced = confided.data / "daemon.toml"
    file.rename(misplaced)
    assert f"configuration: {file} (does not exist; defaults apply)\n" in confided.run("init").stdout
    confided.serve()
    assert f"configuration: none at {file}; defaults apply" in confided.log
    assert f"{misplaced} is ignored; the configuration file is {file}" in confided.log


def test_a_lost_master_key_is_not_replaced(ready: Confided) -> None:
    (ready.data / "master.key").unlink()
    assert "restore master.key from a backup" in ready.run("init", code=4).stderr


@pytest.mark.parametrize("name", ["identity.key", "master.key", "."])
def test_what_others_can_read_is_refused(ready: Confided, name: str) -> None:
    (ready.data / name).chmod(0o755 if name == "." else 0o644)
    said = ready.run("serve", code=4).stderr
    assert "open to other users" in said
    assert "hint: chmod" in said


def test_a_data_folder_that_is_not_writable(confided: Confided) -> None:
    # A file where a folder should be stops root too, whom no mode stops.
    (confided.home / "daemon").write_text("")
    assert confided.run("init", code=4).stderr.startswith("confided: ")


def test_a_damaged_registry_is_named(ready: Confided) -> None:
    (ready.data / "registry.db").write_bytes(b"not a database" * 1000)
    for leftover in ("registry.db-wal", "registry.db-shm"):
        (ready.data / leftover).unlink(missing_ok=True)
    said = ready.run("device", code=8).stderr
    assert "not a database" in said or "damaged" in said


def test_a_broken_configuration_names_file_and_line(ready: Confided) -> None:
    (ready.home / "daemon.toml").write_text("[server\nlisten = 1\n")
    said = ready.run("serve", code=3).stderr
    assert "daemon.toml is not TOML" in said
    assert "line 1" in said


def test_a_configuration_that_was_named_must_exist(ready: Confided) -> None:
    ready.run("serve", "--config", "/nowhere/daemon.toml", code=3)


# Upkeep


async def test_reindex_rebuilds_every_space(ready: Confided) -> None:
    identity = ready.enroll()
    process = ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")
        await laptop.put("MEMORY.md", "# One\n\nfact\n")
    process.terminate()
    process.wait(DEADLINE_S)
    (row,) = ready.json("space", "reindex", "--reembed")
    assert row["space"] == "laptop"
    ready.run("space", "reindex")


def test_doctor_finds_nothing_wrong_and_then_something(ready: Confided) -> None:
    ready.enroll()
    assert all(check["ok"] for check in ready.json("doctor"))
    (ready.home / "daemon.toml").write_text('[embedding]\nfolder = "/nowhere"\n')
    said = ready.run("doctor", code=1)
    assert "problem  embedding model" in said.stdout
    assert "hint: " in said.stderr


@pytest.mark.addons
def test_the_catalogue_is_printed_the_same_each_time(confided: Confided) -> None:
    """Byte for byte what was printed when the proxy's file was made, by a process that hashed otherwise."""
    done = subprocess.run(
        [sys.executable, "-m", "confide_daemon", "catalogue"],
        env={**confided.env, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    ).stdout
    assert done == PACKAGED.read_text()
    assert json.loads(done) == catalogue(["core"])
