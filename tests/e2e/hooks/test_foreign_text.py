"""What an agent stores after it has read text of third parties, through real hooks, a real session and a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.hooks.test_hook import fired
from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire

from confide_proxy.hooks.session_marks import CLIENT_PID


def test_what_is_stored_after_a_web_page_is_untrusted(tmp_path: Path) -> None:
    """Without learning. What was stored before stays an agent's, and so does what the next session stores."""
    machine = Machine(tmp_path, "ann")
    try:
        with Wire(machine) as wire:
            machine.env[CLIENT_PID] = Path(f"/proc/{wire.process.pid}/stat").read_text().rpartition(")")[2].split()[1]
            wire.open()
            assert _stored(wire, "before") == "agent"
            for tool, given in (
                ("Read", {"file_path": str(machine.project / "README.md")}),
                ("Bash", {"command": "make"}),
            ):
                fired(machine, "PostToolUse", tool_name=tool, tool_input=given)
            assert _stored(wire, "own") == "agent"
            page = {"url": "https://example.com"}
            assert fired(machine, "PostToolUse", tool_name="WebFetch", tool_input=page, tool_response="Herons.") is None
            assert _stored(wire, "after") == "untrusted"
            assert fired(machine, "SessionStart", session_id="s2", source="compact") is not None
            assert _stored(wire, "compacted") == "untrusted"
            fired(machine, "SessionStart", session_id="s2", source="clear")
            assert _stored(wire, "cleared") == "agent"
            assert _class(wire, "after") == "untrusted"
    finally:
        machine.stop_local_daemon()


def _stored(wire: Wire, name: str) -> Any:
    wire.tool("memory_store", {"content": f"Herons, {name}: they fish at dawn.", "path": f"memory/{name}.md"})
    return _class(wire, name)


def _class(wire: Wire, name: str) -> Any:
    return wire.tool("memory_read", {"path": f"memory/{name}.md"})["structuredContent"]["class"]
