"""What memory there is, and what changed lately, as a machine is told it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving

from confide_crypto.errors import RequestError

HERE = {"project": "proj"}


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def filled(desk: Machine) -> None:
    await desk.attach()
    await desk.put("MEMORY.md", "# Facts\n\n- The API listens on 8010.\n")
    await desk.put("memory/plan.md", "- one\n")
    await desk.put("memory/plan.md", "- one\n- two herons\n", base=1)
    await desk.put("memory/notes/a.md", "---\ntitle: Tabs\n---\nWe use tabs.\n")
    await desk.put("memory/gone.md", "soon gone\n")
    await desk.request("remove", {**HERE, "path": "memory/gone.md", "base": 1})


async def test_living_documents_are_listed_with_what_they_are(daemon: Serving) -> None:
    """The last changed first; a note has its title and id, another file what it begins with; a folder and a limit narrow it."""
    async with machine(daemon, "desk", space="home") as desk:
        await filled(desk)
        found = await desk.request("documents", HERE)
        assert found["total"] == 3
        assert [one["path"] for one in found["documents"]] == ["memory/notes/a.md", "memory/plan.md", "MEMORY.md"]
        note, plan, _ = found["documents"]
        assert note["title"] == "Tabs"
        assert note["id"].startswith("mem_")
        assert (plan["title"], plan["lines"], plan["bytes"], plan["revision"]) == ("one", 2, 19, 2)
        assert (plan["author"], plan["id"], plan["clash"]) == ("desk", None, False)
        narrow = await desk.request("documents", {**HERE, "path": "memory", "limit": 1})
        assert (len(narrow["documents"]), narrow["total"]) == (1, 2)
        (only,) = (await desk.request("documents", {**HERE, "path": "MEMORY.md"}))["documents"]
        assert only["title"] == "Facts"
        assert (await desk.request("documents", {**HERE, "path": "memory/no%"}))["total"] == 0


async def test_changes_are_told_with_what_each_brought(daemon: Serving) -> None:
    """The newest first, over all documents; of a time, of one file, and no more than asked for."""
    async with machine(daemon, "desk", space="home") as desk:
        await filled(desk)
        found = (await desk.request("changes", HERE))["changes"]
        assert [(one["path"], one["revision"]) for one in found] == [
            ("memory/gone.md", 2),
            ("memory/gone.md", 1),
            ("memory/notes/a.md", 1),
            ("memory/plan.md", 2),
            ("memory/plan.md", 1),
            ("MEMORY.md", 1),
        ]
        assert [one["words"] for one in found] == ["", "soon gone", "We use tabs.", "two herons", "one", "Facts"]
        assert [one["deleted"] for one in found[:2]] == [True, False]
        assert len((await desk.request("changes", {**HERE, "limit": 2}))["changes"]) == 2
        of_plan = await desk.request("changes", {**HERE, "path": "memory/plan.md"})
        assert [one["revision"] for one in of_plan["changes"]] == [2, 1]
        later = {**HERE, "since": "2100-01-01T00:00:00Z"}
        assert (await desk.request("changes", later))["changes"] == []
        with pytest.raises(RequestError):
            await desk.request("changes", {**HERE, "since": "yesterday"})


async def test_what_has_changed_behind_a_place_in_the_sequence(daemon: Serving) -> None:
    """Each document as it stands now, in order, deleted notes by the id that they had; from the last place on nothing comes again."""
    async with machine(daemon, "desk", space="home") as desk:
        await filled(desk)

        async def after(place: int, **more: Any) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await desk.request("changes", {**HERE, "after": place, **more}))["changes"]
            return found

        found = await after(0)
        assert [(one["path"], one["revision"], one["deleted"]) for one in found] == [
            ("MEMORY.md", 1, False),
            ("memory/plan.md", 2, False),
            ("memory/notes/a.md", 1, False),
            ("memory/gone.md", 2, True),
        ]
        assert sorted(one["change"] for one in found) == [one["change"] for one in found]
        assert await after(0, limit=2) == found[:2]
        assert await after(found[1]["change"]) == found[2:]
        assert await after(found[-1]["change"]) == []
        assert await after(0, since="2100-01-01T00:00:00Z") == []
        note = found[2]
        assert note["id"].startswith("mem_")
        await desk.request("remove", {"project": HERE["project"], "path": note["path"], "base": 1})
        (gone,) = await after(found[-1]["change"])
        assert (gone["id"], gone["deleted"]) == (note["id"], True)
        for wrong in (-1, "1", 2**53):
            with pytest.raises(RequestError):
                await after(wrong)  # type: ignore[arg-type]


async def test_neither_tells_what_its_caller_may_not_read(daemon: Serving) -> None:
    """Another project does not exist for a machine that reaches one alone, nor memory for one that reads transcripts."""
    async with machine(daemon, "desk", space="home") as desk:
        await filled(desk)
        assert (await desk.request("documents", {"project": "empty"}))["documents"] == []  # attached or not
    for op in ("documents", "changes"):
        async with machine(daemon, f"web{op}", space="home", projects={"web"}) as web:
            await web.attach("web")
            with pytest.raises(RequestError):
                await web.request(op, HERE)
        async with machine(daemon, f"talker{op}", space="home", sources={"sessions"}) as talker:
            await talker.attach()
            with pytest.raises(RequestError):
                await talker.request(op, HERE)
