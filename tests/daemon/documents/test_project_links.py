"""The projects of a space, and those that are searched together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving

from confide_crypto.errors import RequestError


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[Serving]:
    """A space with three projects and the global one, each with a file of its own."""
    async with serving(tmp_path / "data") as running:
        async with machine(running, "owner", space="home") as owner:
            await owner.attach("app", "web", "ops", "global")
            for project in ("app", "web", "ops", "global"):
                await owner.put(f"memory/{project}.md", f"the {project} harbour is blue\n", project=project)
        yield running


async def searched(laptop: Machine, **arguments: Any) -> set[str]:
    """The projects in which a search finds something."""
    async with laptop.mcp() as client:
        result = await client.call_tool("memory_search", {"query": "harbour", "minScore": 0, **arguments})
    return {hit["project"] for hit in result.structured_content["results"]}


async def refused(work: Any, code: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await work
    assert caught.value.code == code
    return caught.value


async def test_projects_are_listed_as_far_as_the_caller_reaches(filled: Serving) -> None:
    """With their files and their last change, the last changed first."""
    async with machine(filled, "laptop", space="home") as laptop:
        await laptop.attach("app")
        await laptop.put("memory/b.md", "more\n", project="app")
        listed = await laptop.request("projects", {"project": "app"})
        assert listed["complete"]
        assert listed["projects"][0]["name"] == "app"
        assert listed["projects"][0]["files"] == 2
        assert {item["name"] for item in listed["projects"]} == {"app", "web", "ops", "global"}
        assert all(item["updated"].endswith("Z") for item in listed["projects"])
    async with machine(filled, "guest", space="home", projects={"web"}) as guest:
        await guest.attach("web")
        assert [item["name"] for item in (await guest.request("projects", {"project": "web"}))["projects"]] == ["web"]


async def test_a_search_looks_in_linked_projects_both_ways(filled: Serving) -> None:
    """Where it names no project; `scope` and `project` mean what they always did."""
    async with machine(filled, "laptop", space="home") as laptop:
        await laptop.attach("app")
        assert (await laptop.request("link", {"project": "app", "other": "web"}))["linked"] == ["web"]
        assert await searched(laptop) == {"app", "web", "global"}
    async with machine(filled, "desk", space="home") as desk:
        await desk.attach("web")
        assert await searched(desk) == {"app", "web", "global"}
    for arguments, expected in (
        ({"scope": "project"}, {"app"}),
        ({"project": "app"}, {"app"}),
        ({"project": "*"}, {"app", "web", "ops", "global"}),
    ):
        async with machine(filled, f"m{len(str(arguments))}", space="home") as other:
            await other.attach("app")
            assert await searched(other, **arguments) == expected


async def test_a_file_of_a_linked_project_can_be_read(filled: Serving) -> None:
    """By the path that the search showed."""
    async with machine(filled, "laptop", space="home") as laptop:
        await laptop.attach("app")
        await laptop.request("link", {"project": "app", "other": "web"})
        async with laptop.mcp() as client:
            found = await client.call_tool("memory_read", {"path": "memory/web.md"})
            assert found.structured_content["project"] == "web"


async def test_a_link_lets_nobody_see_more(filled: Serving) -> None:
    """A caller without a grant for the other project neither finds it nor hears of the link, and cannot make or end one."""
    async with machine(filled, "laptop", space="home") as laptop:
        await laptop.attach("app")
        await laptop.request("link", {"project": "app", "other": "web"})
    async with machine(filled, "guest", space="home", projects={"app", "ops"}) as guest:
        await guest.attach("app")
        assert (await guest.request("links", {"project": "app"}))["linked"] == []
        assert not any(item["linked"] for item in (await guest.request("projects", {"project": "app"}))["projects"])
        for op in ("link", "unlink"):
            await refused(guest.request(op, {"project": "app", "other": "web"}), "denied")
        assert await searched(guest) == {"app"}
    async with machine(filled, "reader", space="home", scope="read") as reader:
        await reader.attach("app")
        assert (await reader.request("links", {"project": "app"}))["linked"] == ["web"]
        for op in ("link", "unlink"):
            await refused(reader.request(op, {"project": "app", "other": "ops"}), "denied")


async def test_links_outlast_the_daemon_and_end(tmp_path: Path) -> None:
    """They are kept in the space; ending one takes effect at once."""
    async with serving(tmp_path / "data") as first, machine(first, "laptop", space="home") as laptop:
        await laptop.attach("app", "web")
        await laptop.put("memory/web.md", "the web harbour\n", project="web")
        await laptop.request("link", {"project": "app", "other": "web"})
        await laptop.request("link", {"project": "app", "other": "web"})  # again: nothing new
    async with serving(tmp_path / "data") as second, machine(second, "desk", space="home") as desk:
        await desk.attach("app")
        assert (await desk.request("links", {"project": "app"}))["linked"] == ["web"]
        assert (await desk.request("unlink", {"project": "app", "other": "web"}))["linked"] == []
        assert await searched(desk) == set()
        await refused(desk.request("unlink", {"project": "app", "other": "web"}), "not_found")


async def test_what_cannot_be_linked_is_said(filled: Serving) -> None:
    """Itself, the global memory, a project that is not there (with the name that may be meant), and what is no name."""
    async with machine(filled, "laptop", space="home") as laptop:
        await laptop.attach("app")
        await refused(laptop.request("link", {"project": "app", "other": "app"}), "invalid")
        await refused(laptop.request("link", {"project": "app", "other": "global"}), "invalid")
        error = await refused(laptop.request("link", {"project": "app", "other": "wbe"}), "not_found")
        assert "web" in str(error.hint)
        for wrong in (None, 7, "", "a\nb", "x" * 300):
            await refused(laptop.request("link", {"project": "app", "other": wrong}), "invalid")
