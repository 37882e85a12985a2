"""The lines that four real clients sent, replayed: the form of `make clients` that needs no npm (tests/fixtures/clients/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.programs.processes import Machine, running_daemon
from tests.support.programs.wire import Wire

from confide_daemon.server.mcp.tool_calls import catalogue
from confide_memory.tools.call import NOTICE
from confide_proxy.mcp.features.subscriptions import ACKNOWLEDGED

RECORDED = sorted((Path(__file__).parents[2] / "fixtures/clients").glob("*.jsonl"))
FACT = "We chose postgres over mysql for its row locks."
VERSION = "io.modelcontextprotocol/protocolVersion"


def replayed(wire: Wire, recorded: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each request of a client with its answer; a stream of news is answered by its acknowledgement."""
    found = []
    for line in recorded.read_bytes().splitlines():
        message = json.loads(line)
        wire.send_line(line)
        if "id" in message:
            is_stream = message["method"] == "subscriptions/listen"
            found.append((message, heard(wire, ACKNOWLEDGED) if is_stream else wire.answer(message["id"])))
    return found


def heard(wire: Wire, method: str) -> dict[str, Any]:
    while (message := wire.next()).get("method") != method:
        pass
    return message


def test_each_client_gets_what_it_asks_for(tmp_path: Path) -> None:
    """On one daemon: what it asks first, and of the tools text alone, which says whose data it is."""
    assert [file.stem for file in RECORDED] == ["claude-code", "codex", "gemini", "opencode"]
    machine = Machine(tmp_path, "ann")
    machine.write("memory/decisions.md", f"# Decisions\n\n{FACT}\n")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        machine.run("sync")
        for recorded in RECORDED:
            with Wire(machine) as wire:
                for asked, answer in replayed(wire, recorded):
                    check(recorded.stem, asked, answer)


def check(client: str, asked: dict[str, Any], answer: dict[str, Any]) -> None:
    method, params = asked["method"], asked.get("params", {})
    where = (client, method, answer)
    if method == "subscriptions/listen":
        assert answer["params"]["notifications"] == params["notifications"], where
        return
    result = answer["result"]
    if method == "initialize":
        assert result["protocolVersion"] == params["protocolVersion"], where
        assert "lasting memory" in result["instructions"], where
    elif method == "tools/list":
        assert result["tools"] == catalogue(["core"])["tools"], where
        assert all("outputSchema" not in tool for tool in result["tools"]), where
    elif method == "tools/call":
        assert not result.get("isError"), where
        assert "structuredContent" not in result, where
        ((kind, text),) = [(part["type"], part["text"]) for part in result["content"]]
        assert kind == "text", where
        if params["name"] == "memory_search":
            assert NOTICE in text, where
            assert FACT in text, where
            assert "memory/decisions.md:" in text, where
        else:
            assert text.startswith("Stored in memory/"), where
    assert ("resultType" in result) == (VERSION in params.get("_meta", {})), where
