"""`confide/within`: a call of somebody who has less than the machine reaches no more than that (PROTOCOL.md 9.2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, machine, serving
from tests.support.documents.notes import text_of

from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.tools.call import WITHIN

OTHER = "memory/notes/b.md"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Machine]:
    """A machine of two projects, each with a note."""
    async with serving(tmp_path / "data") as daemon, machine(daemon, "desk") as found:
        answer = await found.attach("proj", "other", GLOBAL_PROJECT, toolsets=["all"])
        assert answer["bounds"] is True
        for project, path, word in (("proj", "memory/notes/a.md", "Herons"), ("other", OTHER, "Storks")):
            text = (
                f"---\nid: mem_{word.lower()}_20261125T120000_00000000\ntitle: {word}\n---\n{word} nest in the reeds.\n"
            )
            await found.put(path, text, project=project)
        yield found


async def test_a_call_reaches_no_more_than_its_bounds(desk: Machine) -> None:
    """By whatever it names the other project, or a note of it; and nothing tells whether there is one."""
    bounds = {WITHIN: {"projects": ["proj"], "scope": "write"}}
    storks = "mem_storks_20261125T120000_00000000"

    async with desk.mcp() as client:

        async def call(tool: str, **arguments: Any) -> Any:
            return await client.call_tool(tool, arguments, meta=bounds)

        for project in ({}, {"project": "*"}):
            found = await call("memory_search", query="what nests in the reeds", minScore=0, **project)
            assert {hit["project"] for hit in found.structured_content["results"]} == {"proj"}
            listed = await call("memory_list", **project)
            assert [note["title"] for note in listed.structured_content["memories"]] == ["Herons"]
        refused = [
            await call("memory_search", query="storks", project="other"),
            await call("memory_read", path=OTHER, project="other"),
            await call("memory_get", id=storks),
            await call("memory_update", id=storks, content="Gone."),
            await call("memory_delete", id=storks),
            await call("memory_history", id=storks),
            await call("memory_store", content="Gone.", path="memory/c.md", project="other"),
            await call("memory_link", id="mem_herons_20261125T120000_00000000", relatedId=storks, relation="see_also"),
        ]
        for result in refused:
            assert result.is_error, result.structured_content
            assert "Storks" not in text_of(result)
            assert "confided device edit" not in text_of(result)  # which would give the machine more, and not the token
        assert not (await call("memory_store", content="Grebes dance.", path="memory/d.md")).is_error
        kept = await client.call_tool("memory_read", {"path": OTHER, "project": "other"})
        assert "nest in the reeds" in text_of(kept)


async def test_a_reader_writes_nothing(desk: Machine) -> None:
    async with desk.mcp() as client:
        meta = {WITHIN: {"scope": "read"}}
        stored = await client.call_tool("memory_store", {"content": "Grebes dance."}, meta=meta)
        assert stored.is_error
        assert "this token may read the memory but not write it" in text_of(stored)
        assert not (await client.call_tool("memory_search", {"query": "herons"}, meta=meta)).is_error


async def test_bounds_raise_nothing(tmp_path: Path) -> None:
    """A machine that reaches one project gives nobody another."""
    async with serving(tmp_path / "data") as daemon, machine(daemon, "desk") as desk:
        await desk.attach("other")
        await desk.put("memory/a.md", "Storks nest.\n", project="other")
        async with machine(daemon, "guest", space="desk", projects={"proj"}) as guest:
            await guest.attach("proj")
            async with guest.mcp() as client:
                meta = {WITHIN: {"projects": ["proj", "other"], "scope": "write"}}
                result = await client.call_tool("memory_search", {"query": "storks", "project": "other"}, meta=meta)
    assert result.is_error


NO_BOUNDS = [
    [],
    {},
    {"scope": "admin"},
    {"scope": "read", "projects": "proj"},
    {"scope": "read", "projects": [1]},
    {"scope": "read", "projects": [""]},
    {"scope": "read", "projects": ["x"] * 65},
]


async def test_bounds_that_are_none_do_nothing(desk: Machine) -> None:
    """And do not pass for none at all."""
    async with desk.mcp() as client:
        for bounds in NO_BOUNDS:
            result = await client.call_tool("memory_search", {"query": "herons"}, meta={WITHIN: bounds})
            assert result.is_error, bounds
            assert "bounds of a call" in text_of(result)
