"""A person in front of a client decides what waits, through a real session and a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.wire import OPENING, Wire

from confide_memory.documents import has_clash, marked_clash
from confide_proxy.mcp.questions import CREATE

CLASH = marked_clash(["We deploy on Mondays.\n"], ["We deploy on Tuesdays.\n"], ("ann, revision 1", "bob, revision 2"))


def test_a_conflict_is_settled_by_an_answer(tmp_path: Path) -> None:
    """Asked once the agent's own call has its result, and sent to the daemon as the person's edit."""
    machine = Machine(tmp_path, "ann")
    file = machine.project / "memory/deploys.md"
    machine.write("memory/deploys.md", "".join(["# Deploys\n", *CLASH]))
    machine.write("memory/other.md", "Herons fish at dawn.\n")
    try:
        with Wire(machine) as wire:
            wire.call("initialize", {**OPENING, "capabilities": {"elicitation": {}}})
            wire.send({"method": "notifications/initialized"})
            wire.tool("memory_sync", {})
            asked = _next_question(wire)
            assert "memory/deploys.md" in asked["params"]["message"]
            titles = asked["params"]["requestedSchema"]["properties"]["answer"]["enum"]
            answer = {"action": "accept", "content": {"answer": titles[1]}}
            wire.send({"id": asked["id"], "result": answer})
            wait_until("the choice to be carried out", lambda: not has_clash(file.read_text()))
            assert file.read_text() == "# Deploys\nWe deploy on Tuesdays.\n"
            wait_until(
                "the daemon to have it", lambda: not wire.tool("memory_status", {})["structuredContent"]["clashes"]
            )
    finally:
        machine.stop_local_daemon()


def test_a_note_about_changed_code_is_decided_by_an_answer(tmp_path: Path) -> None:
    """In one session the agent is asked to correct it, in the next it is confirmed, in the last it is deleted."""
    machine = Machine(tmp_path, "ann")
    source = machine.project / "app.py"
    source.write_text("def login(user):\n    return user.name\n")
    try:
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_store", {"content": "`login()` in app.py takes the lock first", "title": "Locks"})
        (file,) = (machine.project / "memory/notes").glob("*.md")
        for number in range(3):
            source.write_text(f"def login(user):\n    return user.id{number}\n")
            (machine.home / "proxy/asked.json").unlink(missing_ok=True)  # as on another day
            with Wire(machine) as wire:
                wire.call("initialize", {**OPENING, "capabilities": {"elicitation": {}}})
                wire.send({"method": "notifications/initialized"})
                wire.tool("memory_status", {})
                asked = _next_question(wire)
                text = asked["params"]["message"]
                assert f"is memory/notes/{file.name} still true?" in text
                assert "changed since" in text
                assert "takes the lock first" in text
                titles = asked["params"]["requestedSchema"]["properties"]["answer"]["enum"]
                answer = {"action": "accept", "content": {"answer": titles[(1, 0, 2)[number]]}}
                wire.send({"id": asked["id"], "result": answer})

                def found(wire: Wire = wire) -> str:
                    return str(wire.tool("memory_search", {"query": "login lock"})["content"][0]["text"])

                if number == 0:
                    wait_until("the agent to be told", lambda: "no longer true: correct it" in found())
                    assert "no longer true: correct it" not in found()
                elif number == 1:
                    wait_until("it to be confirmed", lambda: "changed since" not in found())
                else:
                    wait_until("it to be deleted", lambda: not file.exists())
    finally:
        machine.stop_local_daemon()


def _next_question(wire: Wire) -> dict[str, Any]:
    while (message := wire.next()).get("method") != CREATE:
        pass
    return message
