"""Files with credentials on two machines, with the real programs: edits both ways, approval, kills, and a daemon that is away."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.pair import joined
from tests.support.programs.processes import CONFIDE, Daemon, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"
FILE = "memory/deploy.md"
TEXT = f"# Deploy\n\nexport GITHUB_TOKEN={TOKEN}\n\nThen wait.\n"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path) as running:
        yield running


def approve(by: Machine, newcomer: Machine) -> None:
    """Both people have compared the words."""
    newcomer.run("status")
    head = by.json("device", "approve", newcomer.json("key", "show")["words"])["headWords"]
    newcomer.run("device", "confirm", "--words", head)


def shown(machine: Machine, path: str = FILE) -> str:
    """A file as it is on a machine, "" while it is not there."""
    file = machine.project / path
    return file.read_text() if file.exists() else ""


def document(wire: Wire, path: str = FILE) -> str:
    """A document as the daemon has it, "" where it has none."""
    answer = wire.tool("memory_read", {"path": path})
    return str(answer["structuredContent"]["content"]) if "structuredContent" in answer else ""


def test_two_sessions_edit_one_file_and_one_waits_for_its_keys_first(tmp_path: Path, daemon: Daemon) -> None:
    ann, bob = joined(tmp_path, daemon, "ann", "bob")
    ann.write(FILE, TEXT)
    bob.write("memory/own.md", TEXT)
    with Wire(ann) as laptop, Wire(bob) as desk:
        laptop.open()
        desk.open()
        wait_until("Ann's file is sealed", lambda: "(sealed:github-token:" in document(desk))
        wait_until("Bob's is redacted", lambda: "(redacted:github-token:" in document(desk, "memory/own.md"))
        approve(ann, bob)
        wait_until("Bob's is sealed", lambda: "(sealed:github-token:" in document(laptop, "memory/own.md"))
        assert shown(ann) == shown(bob, "memory/own.md") == TEXT
        wait_until("Bob has Ann's", lambda: "(sealed:github-token:" in shown(bob))
        bob.write(FILE, shown(bob).replace("Then wait.", "Then wait for it."))
        edited = TEXT.replace("Then wait.", "Then wait for it.")
        wait_until("Ann has the edit", lambda: shown(ann) == edited)
        ann.write(FILE, edited.replace("# Deploy", "# Deploy the shop"))
        wait_until("Bob has the other", lambda: "# Deploy the shop" in shown(bob))
        assert TOKEN not in document(laptop)
        assert TOKEN not in shown(bob)
        assert shown(ann) == edited.replace("# Deploy", "# Deploy the shop")
        daemon.stop()
        found = wait_until("an answer from here", lambda: away(laptop))
        assert "(sealed:github-token:" in json.dumps(found)
        assert TOKEN not in json.dumps(found)


def away(wire: Wire) -> dict[str, Any] | None:
    """A search that this machine answers; None while the daemon still does."""
    found = wire.tool("memory_search", {"query": "deploy token", "minScore": 0.0})
    return found if "offline" in json.dumps(found) else None


def test_a_sync_that_is_killed_leaves_no_text_without_its_record(tmp_path: Path, daemon: Daemon) -> None:
    """Wherever it is killed, files stay as they are, and the next one ends it."""
    ann, bob = joined(tmp_path, daemon, "ann", "bob")
    texts = {
        f"memory/{n}.md": f"# {n}\n\nexport GITHUB_TOKEN={TOKEN[:-4]}{n:04}\n{'Some words. ' * 100}\n"
        for n in range(60)
    }
    ann.run("sync")
    approve(ann, bob)
    for path, text in texts.items():
        ann.write(path, text)
    for round_ in range(3):
        killed: Any = Program(
            [CONFIDE, "sync"],
            cwd=ann.project,
            env=ann.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Not a deadline: any moment of it will do, and each round another one.
        time.sleep(0.4 + 0.25 * round_)
        killed.send_signal(signal.SIGKILL)
        killed.wait(DEADLINE_S)
        told = bob.json("export", str(tmp_path / f"tree{round_}"))
        held = "".join(file.read_text() for file in (tmp_path / f"tree{round_}").rglob("*.md"))
        named = held.count("(sealed:github-token:")
        assert told["secrets"] >= named
        assert TOKEN[:-4] not in held
    ann.run("sync")
    assert {path: shown(ann, path) for path in texts} == texts
    bob.run("sync")
    assert all("(sealed:github-token:" in shown(bob, path) for path in texts)
    assert bob.json("export", str(tmp_path / "tree"))["secrets"] == len(texts)
