"""Two clones of one repository on two machines, as their user lives with them: a cut line, a daemon that restarts, and nothing lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import Daemon, Inside, running_daemon, wait_until
from tests.support.programs.wire import Wire

REMOTES = ("git@example.com:team/app.git", "https://example.com/team/app")


class Clone:
    """A machine with its clone, its cable and its agent."""

    def __init__(self, root: Path, name: str, remote: str, daemon: Daemon, *space: str) -> None:
        self.machine = Inside(root, name)
        self.machine.project = root / name / f"work-of-{name}"
        self.machine.project.mkdir()
        for command in (["init", "-q"], ["remote", "add", "origin", remote]):
            subprocess.run(["git", *command], cwd=self.machine.project, check=True)
        self.cable = RecordingRelay(daemon.port)
        self.machine.run("join", daemon.invite(name, *space, port=self.cable.port))
        self.agent = Wire(self.machine)
        self.agent.open()

    def text(self, path: str) -> str:
        """A file of the clone, "" where there is none."""
        file = self.machine.project / path
        return file.read_text() if file.exists() else ""

    def end(self) -> None:
        """Everything of it."""
        self.agent.__exit__(None, None, None)
        self.cable.__exit__(None, None, None)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path) as running:
        yield running


def test_two_clones_live_through_a_cut_and_a_restart(tmp_path: Path, daemon: Daemon) -> None:
    with ExitStack() as stack:
        laptop = Clone(tmp_path, "laptop", REMOTES[0], daemon)
        stack.callback(laptop.end)
        desktop = Clone(tmp_path, "desktop", REMOTES[1], daemon, "--space", "laptop")
        stack.callback(desktop.end)

        told = laptop.agent.tool("memory_store", {"content": "We chose postgres.", "path": "MEMORY.md"})
        assert told["structuredContent"]["onDisk"]
        wait_until("the other clone to have it", lambda: "postgres" in desktop.text("MEMORY.md"))

        laptop.cable.cut()
        log = "memory/2026-11-21.md"
        queued = laptop.agent.tool("memory_store", {"content": "- told on the train", "path": log})
        assert queued["structuredContent"]["queued"]
        found = laptop.agent.tool("memory_search", {"query": "what was told on the train"})["structuredContent"]
        assert found["searchMode"] == "offline"
        assert any("train" in hit["snippet"] for hit in found["results"])
        laptop.machine.write("MEMORY.md", laptop.text("MEMORY.md") + "Edited on the train.\n")
        desktop.agent.tool("memory_store", {"content": "- told at home", "path": log})

        daemon.stop()
        desktop.machine.write("memory/plan.md", "# Plan\n\nWritten while the server was down.\n")
        daemon.start()
        laptop.cable.mend()

        def is_whole(clone: Clone) -> bool:
            lines = clone.text(log)
            return (
                lines.count("told on the train") == lines.count("told at home") == 1
                and "Edited on the train." in clone.text("MEMORY.md")
                and "server was down" in clone.text("memory/plan.md")
            )

        for clone in (laptop, desktop):
            wait_until("both clones to have everything once", lambda clone=clone: is_whole(clone))
        status = laptop.machine.json("status")
        assert (status["queuedOffline"], status["deadLetters"], status["pendingUploads"]) == (0, 0, 0)
        assert "example.com/team/app" in laptop.machine.run("projects")
