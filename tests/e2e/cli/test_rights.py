"""What a person at `confide` meets when their machine waits for approval, or may not do everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Inside(tmp_path, "laptop")
    (made.home / "proxy.toml").write_text("on_demand = false\n")
    return made


def test_a_machine_that_joined_works_once_it_is_approved(daemon: Daemon, machine: Machine) -> None:
    told = machine.run("join", daemon.invite("waits", "--approve"), code=6)
    assert "waits for approval" in told
    assert "read the six words to the server's operator" in told
    words = machine.run("key", "show").split()[-1]
    assert words in told
    assert words in daemon.run("device", "ls", "waits")
    assert "waits for approval" in machine.run("status", code=6)
    daemon.run("device", "approve", "waits", "--words", words)
    assert "link up" in machine.run("status")
    machine.run("store", "- It works now.")
    assert "works now" in machine.run("search", "works")


def test_a_machine_that_may_only_read_ends_with_the_right_code(daemon: Daemon, machine: Machine) -> None:
    machine.run("join", daemon.invite("reader", "--scope", "read"))
    told = machine.run("store", "- Not to be kept.", code=6)
    assert "may read the memory but not write it" in told
    assert "confided device edit reader --scope write" in told
    daemon.run("device", "edit", "reader", "--scope", "write")
    machine.run("store", "- To be kept.")


def test_a_machine_of_another_project_is_told_which_grant_is_missing(daemon: Daemon, machine: Machine) -> None:
    """It joins, since the link is good; what it may not do here is said, by every command and to the agent."""
    told = machine.run("join", daemon.invite("limited", "--projects", "elsewhere"))
    assert "joined as limited" in told
    assert "has no grant for the project" in told
    for command in (["search", "x"], ["store", "x"], ["read", "MEMORY.md"], ["sync"]):
        said = machine.run(*command, code=6)
        assert "has no grant for the project" in said
        assert "confided device edit limited --projects elsewhere," in said
    with Wire(machine) as agent:
        agent.open()
        answer = agent.tool("memory_search", {"query": "x"})
        assert answer["isError"]
        assert "has no grant for the project" in answer["content"][0]["text"]
        daemon.run("device", "edit", "limited", "--projects", f"elsewhere,{machine.project.name}")

        def stored() -> bool:
            result = agent.tool("memory_store", {"content": "- Kept at last.", "path": "memory/a.md"})
            return not result.get("isError")

        wait_until("the agent's link to come up with the grant", stored)
    assert "Kept at last" in (machine.project / "memory" / "a.md").read_text()


def test_without_a_grant_for_global_everything_else_goes_on(daemon: Daemon, machine: Machine) -> None:
    machine.write("MEMORY.md", "# Facts\n\nThe kettle is on port 8010.\n")
    shared = machine.home / "global"
    machine.run("join", daemon.invite("partly", "--projects", machine.project.name))
    said = machine.run("search", "kettle")
    assert "port 8010" in said
    assert "could not be compared" not in said
    synced = machine.json("sync")
    assert synced["warnings"] == []
    assert not shared.exists() or not any(shared.iterdir())
    machine.run("store", "- Mine.", "--path", "memory/mine.md")
    assert "Mine" in machine.run("read", "memory/mine.md")
