"""The MCP inspector's command line, from npm, lists and calls the tools (`make clients`)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import serving
from tests.support.programs.processes import CONFIDE, Machine

WITH_TOKEN = """
const send = globalThis.fetch;
globalThis.fetch = (where, how = {}) => {
  const headers = new Headers(how.headers);
  headers.set("authorization", `Bearer ${process.env.CONFIDE_TOKEN}`);
  return send(where, {...how, headers});
};
"""
"""What its command line has no option for: a header with each request."""


@pytest.fixture(scope="module")
def inspector() -> Path:
    """The installed inspector."""
    made = Path(os.environ.get("CONFIDE_INSPECTOR", ""))
    if not made.is_file():
        pytest.skip("CONFIDE_INSPECTOR names no inspector, as `make clients` does")
    return made


@pytest.mark.timeout(240)
def test_the_inspector_does_so_over_http(inspector: Path, tmp_path: Path) -> None:
    """It finds by the URL of `confide http serve`, with a token."""
    machine = Machine(tmp_path, "ann")
    machine.write("MEMORY.md", "Otters hold hands while they sleep.\n")
    try:
        with serving(machine) as gateway:
            token = gateway.token("inspector")
            preload = tmp_path / "token.cjs"
            preload.write_text(WITH_TOKEN)
            env = {**machine.env, "NODE_OPTIONS": f"--require {preload}", "CONFIDE_TOKEN": token}
            call = ("--method", "tools/call", "--tool-name", "memory_search")
            done = subprocess.run(
                [
                    *(str(inspector), "--cli", f"{gateway.url}/mcp", "--transport", "http"),
                    *(*call, "--tool-arg", "query=how do otters sleep"),
                ],
                cwd=machine.project,
                env=env,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert "hold hands" in json.loads(done.stdout)["content"][0]["text"]
    finally:
        machine.stop_local_daemon()


@pytest.mark.timeout(240)
def test_the_inspector_lists_and_calls(inspector: Path, tmp_path: Path) -> None:
    """An independent client sees the tools, stores and finds."""
    machine = Machine(tmp_path, "ann")

    def inspect(*arguments: str) -> Any:
        done = subprocess.run(
            [str(inspector), "--cli", CONFIDE, "mcp", *arguments],
            cwd=machine.project,
            env=machine.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    try:
        tools = inspect("--method", "tools/list")["tools"]
        assert {"memory_search", "memory_store"} <= {tool["name"] for tool in tools}
        call = ("--method", "tools/call", "--tool-name")
        stored = inspect(*call, "memory_store", "--tool-arg", "content=Otters hold hands while they sleep.")
        assert not stored.get("isError"), stored
        found = inspect(*call, "memory_search", "--tool-arg", "query=how do otters sleep")
        assert "hold hands" in found["content"][0]["text"]
        assert "structuredContent" not in found
    finally:
        machine.stop_local_daemon()
