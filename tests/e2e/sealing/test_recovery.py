"""A recovery code: a device on paper, for when every machine is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.programs.forked import Program
from tests.support.programs.pair import joined
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDE, Inside, Machine, running_daemon

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"


@pytest.mark.parametrize("custody", ["server", "caller"])
def test_a_new_machine_comes_back_with_the_code_alone(tmp_path: Path, custody: str) -> None:
    """All machines are lost; a new one joins, uses the code, opens what they sealed, and removes them."""
    home = tmp_path / "server-home"
    home.mkdir()
    (home / "daemon.toml").write_text(f'[embedding]\nprovider = "hashed"\n[at_rest]\ncustody = "{custody}"\n')
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        ann.write("memory/deploy.md", f"The token is {TOKEN}.\n")
        ann.run("sync")
        made = ann.json("recovery", "new")
        assert "has a recovery code" in ann.run("recovery", "new", code=7)
        placeholder = sealed_in(ann)
        shutil.rmtree(ann.home)
        daemon.stop()
        daemon.start()

        new = Inside(tmp_path, "new")
        new.call_project("shared")
        new.run("join", daemon.invite("new", "--space", "ann"))
        before = new.json("device", "ls")
        assert not before["canSeal"]
        assert before["space"]["words"] == made["spaceWords"]
        assert before["space"]["isLocked"] == (custody == "caller")
        wrong = made["code"][:-1] + ("0" if made["code"][-1] != "0" else "1")
        assert "typing error" in new.run("recovery", "use", "--yes", code=7, stdin=f"{wrong}\n")
        assert "no device is called" in new.run(
            "recovery", "use", "--yes", "--remove", "nobody", code=7, stdin=made["code"]
        )
        assert not new.json("device", "ls")["canSeal"]  # a command that is refused has done nothing
        said = new.run(
            "recovery",
            "use",
            "--yes",
            "--remove",
            before["devices"][0]["words"],
            stdin=made["code"].lower(),
            program=CONFIDE,
        )
        assert "removed" in said
        after = new.json("device", "ls")
        assert after["canSeal"]
        assert [(one["isThis"], one["isPaper"]) for one in after["devices"]] == [(False, True), (True, False)]
        new.run("sync")
        assert placeholder in (new.project / "memory/deploy.md").read_text()

        again = new.json("recovery", "new", "--replace")
        assert "not of the space" in new.run("recovery", "use", "--yes", code=7, stdin=made["code"])
        assert again["code"] != made["code"]

        unseen(new, *["--json"][: custody == "caller"], is_pipe=custody == "caller")


def unseen(machine: Machine, *options: str, is_pipe: bool) -> None:
    """A code that went to a full disk, or a pipe that nobody reads, is said to be one that nobody has: the old one is void already."""
    reading, writing = os.pipe() if is_pipe else (-1, os.open("/dev/full", os.O_WRONLY))
    if is_pipe:
        os.close(reading)
    command = [CONFIDE, "recovery", "new", "--replace", *options]
    env = {name: value for name, value in machine.env.items() if name != "PYTHONUNBUFFERED"}
    with Program(command, cwd=machine.project, env=env, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        told = process.communicate(timeout=COMMAND_DEADLINE_S)[1]
    assert process.returncode == 8, told
    assert "Traceback" not in told
    assert "Exception ignored" not in told
    assert "the new recovery code could not be shown" in told
    assert "it was never shown: confide device recovery new --replace" in told


def sealed_in(machine: Machine) -> str:
    """The placeholder that a search shows in the place of the token."""
    (hit,) = machine.json("search", "token")["results"]
    text: str = hit["snippet"]
    assert TOKEN not in text
    return text[text.index("(sealed:") : text.index(")") + 1]
