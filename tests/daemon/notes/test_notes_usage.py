"""Uses are counted where an agent reads or is shown something, in the background, and last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.documents.notes import Agent

from confide_daemon.documents import document_service
from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

KEY = os.urandom(32)


async def uses(agent: Agent, note: str) -> int:
    """How often it was used before this question, which is a use itself."""
    return int((await agent.call("memory_get", id=note))["accessCount"])


async def test_reads_and_hits_count_and_nothing_else(agent: Agent) -> None:
    note = await agent.note("Order the pump in May.", title="Pump")
    other = await agent.note("Something else.", title="Else")
    path = (await agent.call("memory_get", id=note))["path"]
    assert await uses(agent, note) == 1
    await agent.call("memory_read", path=path)
    await agent.call("memory_search", query="pump in may")
    assert await uses(agent, note) == 4
    await agent.call("memory_search", query="volcanoes of iceland")
    await agent.refused("memory_get", id="mem_nobody_1_abcdef12")
    await agent.call("memory_status")
    assert await uses(agent, note) == 5
    assert await uses(agent, other) == 0
    # A list and a change are no uses, and tell of all, if most of them are not written down yet.
    listed = (await agent.call("memory_list"))["memories"]
    assert {each["id"]: each["accessCount"] for each in listed} == {note: 6, other: 1}
    assert (await agent.call("memory_update", id=note, status="done"))["accessCount"] == 6


async def open_space(path: Path) -> Space:
    return await Space.open(path, KEY, SpaceShared(IndexSettings(), LoadedModel.none()), space_id="s")


async def test_uses_are_written_down_when_the_space_is_closed(tmp_path: Path) -> None:
    space = await open_space(tmp_path / "s.db")
    await space.documents.put("p", "memory/notes/a.md", "pump\n", base=0, author="a")
    document = (await space.documents.read("p", "memory/notes/a.md")).document
    for _ in range(9):
        space.usage.count([document, document])
    await space.close()
    space = await open_space(tmp_path / "s.db")
    (hit,) = (await space.index.searcher.search(SearchQuery("pump", min_score=0.0))).hits
    # log(1 + 9) / log(1 + 100), once for each showing
    assert hit.usage == pytest.approx(0.4989, abs=0.001)
    assert hit.note is not None
    assert hit.note.uses == 9
    await space.close()


async def test_uses_are_written_down_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while others come, and a document that is gone costs nothing."""
    monkeypatch.setattr(document_service, "WRITTEN_AFTER_S", 0.0)
    space = await open_space(tmp_path / "s.db")
    await space.documents.put("p", "memory/notes/a.md", "pump\n", base=0, author="a")
    document = (await space.documents.read("p", "memory/notes/a.md")).document
    for number in range(5):
        space.usage.count([document, 1000 + number])
        while space.usage.waiting(document):
            await space.documents.states("p")
    (hit,) = (await space.index.searcher.search(SearchQuery("pump", min_score=0.0))).hits
    assert hit.note is not None
    assert hit.note.uses == 5
    await space.close()


async def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_service, "MOST_WAITING", 3)
    space = await open_space(tmp_path / "s.db")
    for document in range(1, 11):
        space.usage.count([document])
    space.usage.count([1])
    assert [space.usage.waiting(document) for document in range(1, 5)] == [2, 1, 1, 0]
    await space.close()


async def test_what_no_agent_sees_counts_nothing(tmp_path: Path) -> None:
    """Benchmarks and probes ask the space itself."""
    space = await open_space(tmp_path / "s.db")
    await space.documents.put("p", "memory/notes/a.md", "pump\n", base=0, author="a")
    for _ in range(3):
        (hit,) = (await space.index.searcher.search(SearchQuery("pump", min_score=0.0))).hits
    assert space.usage.waiting(hit.document) == 0
    await space.close()
    space = await open_space(tmp_path / "s.db")
    (hit,) = (await space.index.searcher.search(SearchQuery("pump", min_score=0.0))).hits
    assert hit.usage == 0
    await space.close()
