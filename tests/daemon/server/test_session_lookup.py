"""`lookup`: a machine asks a tool that only reads, about any project that its grants reach (PROTOCOL.md 9.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import machine, serving

from confide_crypto.errors import RequestError
from confide_memory.documents import GLOBAL_PROJECT


async def test_a_machine_asks_about_projects_that_its_connection_has_not_attached(tmp_path: Path) -> None:
    """As an agent of that project would: itself, what is linked, and the global one. What changes something is refused, like no tool."""
    async with serving(tmp_path / "data") as daemon, machine(daemon, "desk", space="home") as desk:
        await desk.attach("proj", "other", GLOBAL_PROJECT, toolsets=["core"])
        await desk.put("memory/notes/a.md", "---\ntitle: Herons\nimportance: core\n---\nHerons nest in the reeds.\n")
        await desk.put("memory/b.md", "Storks nest on the roof.\n", project="other")
        async with machine(daemon, "laptop", space="home") as laptop:
            await laptop.attach(GLOBAL_PROJECT)

            async def ask(project: str, tool: str, **arguments: Any) -> dict[str, Any]:
                body = {"project": project, "tool": tool, "arguments": arguments}
                result: dict[str, Any] = (await laptop.request("lookup", body))["result"]
                return result

            found = await ask("proj", "memory_search", query="where do herons nest", minScore=0)
            assert {hit["project"] for hit in found["results"]} == {"proj"}
            (note,) = (await ask("proj", "memory_list", sort="importance"))["memories"]
            assert (note["title"], note["level"]) == ("Herons", "core")
            await desk.request("link", {"project": "proj", "other": "other"})
            found = await ask("proj", "memory_search", query="where do storks nest", minScore=0)
            assert found["results"][0]["project"] == "other"
            asked = {"project": "proj", "tool": "memory_list", "arguments": {}, "meta": {"confide/operation": "x"}}
            with pytest.raises(RequestError, match="hex digits"):
                await laptop.request("lookup", asked)
            for tool in ("memory_store", "memory_delete", "secret_get", "nothing"):
                with pytest.raises(RequestError, match="none that only reads"):
                    await ask("proj", tool, content="x")
            with pytest.raises(RequestError, match="query"):
                await ask("proj", "memory_search")
            with pytest.raises(RequestError, match="must be an object"):
                await laptop.request("lookup", {"project": "proj", "tool": "memory_search", "arguments": []})
