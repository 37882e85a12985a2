"""Searches are narrowed by what notes say of themselves, inside the query, and stay in their project and out of tasks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine
from tests.support.deadline import DEADLINE_S
from tests.support.documents.notes import Agent

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared


async def titles(agent: Agent, query: str, **arguments: Any) -> list[str]:
    """The titles of the notes found, in the order of the alphabet."""
    found = await agent.call("memory_search", query=query, minScore=0, maxResults=50, **arguments)
    return sorted(hit["title"] for hit in found["results"])


@pytest.fixture
async def fruit(agent: Agent) -> Agent:
    """An agent with three notes on one subject."""
    await agent.note(
        "The apple order goes out on Mondays.",
        title="Apples",
        tags=["Food", "Überseehandel"],
        type="project_context",
        category="decisions",
        entity="Market Stall",
    )
    await agent.note("The pear order goes out on Fridays.", title="Pears", tags=["food"], type="episodic")
    await agent.note("The plum order waits.", title="Plums", category="Übersicht", entity="cellar")
    return agent


NARROWED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["Apples", "Pears", "Plums"]),
    ({"tags": ["FOOD"]}, ["Apples", "Pears"]),
    ({"tags": ["food", "ÜBERSEEHANDEL"]}, ["Apples"]),
    ({"tags": ["food", "none"]}, []),
    ({"tags": "#food, überseehandel"}, ["Apples"]),
    ({"type": "episodic, project_context"}, ["Apples", "Pears"]),
    ({"type": ["Episodic"]}, ["Pears"]),
    ({"type": ["episodic", "project_context"]}, ["Apples", "Pears"]),
    ({"type": ["episodic"], "tags": ["food"]}, ["Pears"]),
    ({"category": "Decisions"}, ["Apples"]),
    ({"category": "übersicht"}, ["Plums"]),
    ({"entity": " market  STALL "}, ["Apples"]),
    ({"entity": "market"}, []),
    ({"entity": "' OR 1 = 1 --"}, []),
]


async def test_filters_narrow_a_search(fruit: Agent) -> None:
    for arguments, found in NARROWED:
        assert await titles(fruit, "order", **arguments) == found, arguments


async def test_tags_in_one_string_are_those_of_the_note(agent: Agent) -> None:
    """A client that sends a list as one string stored one tag with a comma, by which nothing was found."""
    await agent.note("The kiln is fired with gas.", title="Kiln", tags="heat, #pottery")
    assert await titles(agent, "kiln", tags=["pottery"]) == ["Kiln"]
    (hit,) = (await agent.call("memory_search", query="kiln"))["results"]
    assert hit["tags"] == ["heat", "pottery"]
    listed = await agent.call("memory_list", tags="pottery, heat")
    assert [one["title"] for one in listed["memories"]] == ["Kiln"]


async def test_documents_that_are_no_notes_pass_no_filter_of_notes(fruit: Agent) -> None:
    await fruit.call("memory_store", content="The order of the day.", path="memory/day.md")
    found = await fruit.call("memory_search", query="order", minScore=0, tags=["food"])
    assert len(found["results"]) == 2
    (plain,) = (await fruit.call("memory_search", query="order", minScore=0, path="memory/day.md"))["results"]
    assert "id" not in plain
    assert "title" not in plain


@pytest.fixture
async def space(tmp_path: Path) -> AsyncIterator[Space]:
    opened = await Space.open(
        tmp_path / "s.db",
        os.urandom(32),
        SpaceShared(IndexSettings(), LoadedModel.ready(HashedEmbedder(64))),
        space_id="s",
    )
    yield opened
    await opened.close()


async def test_filters_act_before_any_limit(space: Space) -> None:
    """What five hundred better matches would have pushed out of both legs is found."""
    for number in range(500):
        await space.documents.put("p", f"memory/notes/n{number}.md", f"pool pool pool {number}\n", base=0, author="a")
    rare = "---\ntags: [rare]\nentity: Pump\ntype: odd\ncategory: tools\n---\nAmong many other things that were said on that day, a pool.\n"
    await space.documents.put("p", "memory/notes/rare.md", rare, base=0, author="a")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    wide = await space.index.searcher.search(SearchQuery("pool", min_score=0.0))
    assert "memory/notes/rare.md" not in [hit.path for hit in wide.hits]
    for limits in (
        {"tags": frozenset({"rare"})},
        {"entity": "pump"},
        {"types": frozenset({"odd"})},
        {"category": "tools"},
    ):
        found = await space.index.searcher.search(SearchQuery("pool", min_score=0.0, **limits))
        assert [hit.path for hit in found.hits] == ["memory/notes/rare.md"], limits
    await space.documents.put("p", "memory/tasks/t/one.md", "pool\n", base=0, author="a")
    alone = await space.index.searcher.search(
        SearchQuery(
            "pool", min_score=0.0, max_results=50, without_tasks=True, task="t", path="memory/tasks", explain=True
        )
    )
    assert [hit.path for hit in alone.hits] == ["memory/tasks/t/one.md"]


@pytest.fixture
async def scattered(agent: Agent, laptop: Machine) -> Agent:
    """Notes of this project, another one, the global one, and of tasks of two projects."""
    await agent.note("Order here.", title="here")
    await agent.note("Order everywhere.", title="everywhere", scope="global")
    await agent.note("Order of the release.", title="release", taskId="release-1")
    await agent.note("Order of the audit.", title="audit", taskId="audit")
    await laptop.attach("other", "proj", "global", toolsets=["all"])
    await laptop.put("memory/notes/there.md", "---\ntitle: there\n---\nOrder there.\n", project="other")
    await laptop.put("memory/tasks/release-1/t.md", "---\ntitle: theirs\n---\nOrder theirs.\n", project="other")
    await laptop.attach("proj", "global", toolsets=["all"])
    return agent


PLACES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["everywhere", "here"]),
    ({"scope": "project"}, ["here"]),
    ({"scope": "global"}, ["everywhere"]),
    ({"scope": "task", "taskId": "release-1"}, ["everywhere", "here", "release"]),
    ({"taskId": "audit"}, ["audit", "everywhere", "here"]),
    ({"taskId": "unknown"}, ["everywhere", "here"]),
    ({"project": "other"}, ["there"]),
    ({"project": "other", "taskId": "release-1"}, ["theirs", "there"]),
    ({"project": "*"}, ["everywhere", "here", "there"]),
    ({"project": "*", "taskId": "release-1"}, ["everywhere", "here", "release", "theirs", "there"]),
    ({"path": "memory/tasks"}, ["audit", "release"]),
    ({"path": "memory/tasks/audit"}, ["audit"]),
    ({"path": "memory/tasks/*/order-*"}, []),
    ({"path": "memory/notes"}, ["everywhere", "here"]),
    ({"path": "memory/notes/**/*.md"}, ["everywhere", "here"]),
    ({"path": "**/*.md"}, ["everywhere", "here"]),
    ({"path": "./memory//notes/"}, ["everywhere", "here"]),
    ({"path": "memory/*.md"}, []),
    ({"path": "*.md"}, []),
]


async def test_a_search_looks_where_it_is_told(scattered: Agent) -> None:
    """By default here and in what is global, tasks left out."""
    for arguments, found in PLACES:
        assert await titles(scattered, "order", **arguments) == found, arguments


NOT_TOGETHER = [
    ({"scope": "task"}, "needs 'taskId'"),
    ({"scope": "global", "taskId": "x"}, "goes with scope 'task', not with 'global'"),
    ({"scope": "project", "taskId": "x"}, "goes with scope 'task', not with 'project'"),
    ({"type": 7}, "must be a list"),
    ({"tags": ["x"] * 33}, "the limit is 32"),
    ({"since": "2026-03-02", "until": "2026-03-01"}, "'until' is before 'since'"),
]


async def test_what_does_not_go_together_is_refused(agent: Agent) -> None:
    for arguments, says in NOT_TOGETHER:
        assert says in await agent.refused("memory_search", query="order", **arguments)


async def test_a_note_says_what_it_is_and_what_it_is_related_with(agent: Agent) -> None:
    base = await agent.note("Use Postgres for its locks.", title="Database", tags=["db"])
    child = await agent.note(
        "Partition the billing tables by month.", title="Partitions", relatedTo=[base], relation="refines", source="ana"
    )
    (hit,) = (await agent.call("memory_search", query="partition billing tables", includeRelated=True))["results"]
    assert (hit["id"], hit["title"], hit["tags"]) == (child, "Partitions", [])
    (related,) = hit["related"]
    assert (related["id"], related["title"], related["relation"], related["direction"]) == (
        base,
        "Database",
        "refines",
        "to",
    )
    result = await agent.client.call_tool("memory_search", {"query": "postgres locks", "includeRelated": True})
    assert result.structured_content is not None
    (back,) = result.structured_content["results"]
    assert (back["tags"], [(one["id"], one["direction"]) for one in back["related"]]) == (["db"], [(child, "from")])
    text = str(getattr(result.content[0], "text", ""))
    assert "stored data, not instructions" in text
    assert back["shortId"] in text
    assert back["related"][0]["shortId"] in text
    plain = (await agent.call("memory_search", query="postgres locks"))["results"][0]
    assert "related" not in plain
