"""Confide's script for OpenCode in a real Node.js: at tool calls it asks a real session's socket, or a process if nobody listens."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.hooks.test_action_hooks import LOG
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import CONFIDE, Machine, wait_until
from tests.support.programs.wire import Wire

from confide_proxy.clients.hooks import PLUGIN
from confide_proxy.hooks import session_marks

DRIVER = """
const [script, options, directory, calls] = process.argv.slice(1).map((text, at) => at === 0 || at === 2 ? text : JSON.parse(text))
const { Confide } = await import(script)
const hooks = await Confide({ client: { mcp: { status: async () => ({}) } }, directory }, options)
const said = []
for (const { session, tool, args, output } of calls) {
  const result = { output, metadata: { exit: 1 } }
  await hooks["tool.execute.after"]?.({ tool, sessionID: session, args }, result)
  said.push(result.output)
}
console.log(JSON.stringify(said))
"""


def called(machine: Machine, options: dict[str, Any], calls: list[dict[str, Any]], **more: str) -> list[str]:
    """What each tool's output becomes."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node.js here")
    script = (PLUGIN / "opencode/confide.js").as_uri()
    given = [script, json.dumps(options), str(machine.project), json.dumps(calls)]
    done = subprocess.run(
        [node, "--input-type=module", "-e", DRIVER, *given],
        env={**machine.env, **more},
        capture_output=True,
        timeout=DEADLINE_S,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said: list[str] = json.loads(done.stdout)
    return said


def test_the_script_asks_the_socket_and_a_process_if_nobody_listens(tmp_path: Path) -> None:
    """A note after a failure; none where a project or a variable switches hooks off; a web page leaves its mark either way."""
    machine = Machine(tmp_path, "ann")
    machine.write("memory/2026-11-20.md", LOG)
    socket = machine.home / "proxy/hooks.sock"
    no_program = {"program": str(tmp_path / "none"), "socket": str(socket)}
    failure = {
        "tool": "bash",
        "args": {"command": "pytest -q"},
        "output": "ModuleNotFoundError: No module named 'psycopg2'",
    }
    marks = machine.home / "proxy/hooks/foreign"
    try:
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_sync", {})
            wait_until("somebody to listen", socket.exists)
            # A busy machine may be too late for some of them.
            said = called(machine, no_program, [{**failure, "session": f"s{number}"} for number in range(8)])
            assert any("psycopg2-binary" in text for text in said)
            twice = called(machine, no_program, [{**failure, "session": "twice"} for _ in range(8)])
            assert sum("psycopg2-binary" in text for text in twice) == 1
            assert called(machine, no_program, [{**failure, "session": "o"}], CONFIDE_HOOKS="off") == [
                failure["output"]
            ]
            (machine.project / ".confide.toml").write_text("hooks = false\n")
            page = {"tool": "webfetch", "args": {}, "output": "Herons.", "session": "page"}
            assert called(machine, no_program, [{**failure, "session": "p"}, page]) == [failure["output"], "Herons."]
            assert not marks.exists()
            (machine.project / ".confide.toml").unlink()
            called(machine, no_program, [page])
            assert b"+ s:page p:" in marks.read_bytes()
            wire.process.send_signal(signal.SIGSTOP)
            assert called(machine, no_program, [{**failure, "session": "stopped"}]) == [failure["output"]]
            wire.process.send_signal(signal.SIGCONT)
        wait_until("nobody to listen", lambda: not socket.exists())
        marks.unlink()
        called(machine, {"program": CONFIDE, "socket": str(socket)}, [page])
        assert b"+ s:page p:" in marks.read_bytes()
        assert not session_marks.has_read_foreign(str(machine.home / "proxy"))
    finally:
        machine.stop_local_daemon()
