"""`memory_list`: which notes, in which order, and how many in all."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.documents.notes import Agent, acting


async def titles(agent: Agent, **arguments: Any) -> list[str]:
    return [one["title"] for one in (await agent.call("memory_list", **arguments))["memories"]]


def by_hand(title: str, *, updated: str = "2026-01-01", body: str = "Text.", **fields: Any) -> str:
    lines = [f"{name}: {value}" for name, value in {"title": title, "updated": updated, **fields}.items()]
    return "\n".join(["---", *lines, "---", body, ""])


async def test_the_default_is_this_project_the_global_one_and_those_linked(
    daemon: Serving, laptop: Machine, agent: Agent
) -> None:
    async with machine(daemon, "desktop", space="laptop") as box:
        for project in ("linked", "elsewhere"):
            await box.attach(project)
            await box.put("memory/notes/a.md", by_hand(project), project=project)
        await box.attach("global")
        await box.put("memory/notes/a.md", by_hand("everywhere"), project="global")
        await box.put("memory/plan.md", "# No note\n", project="linked")
    await laptop.put("memory/notes/a.md", by_hand("here"))
    await laptop.put("memory/tasks/release-42/a.md", by_hand("of the task"))
    await laptop.put("memory/tasks/other/a.md", by_hand("of another"))
    await laptop.request("link", {"project": "proj", "other": "linked"})
    assert set(await titles(agent)) == {"here", "everywhere", "linked"}
    assert set(await titles(agent, project="*")) == {"here", "everywhere", "linked", "elsewhere"}
    assert await titles(agent, project="elsewhere") == ["elsewhere"]
    assert await titles(agent, scope="project") == ["here"]
    assert await titles(agent, scope="global") == ["everywhere"]
    assert set(await titles(agent, scope="task", taskId="release-42")) == {
        "here",
        "everywhere",
        "linked",
        "of the task",
    }
    assert set(await titles(agent, project="proj", taskId="release-42")) == {"here", "of the task"}
    assert await titles(agent, project="elsewhere", taskId="release-42") == ["elsewhere"]
    assert set(await titles(agent, path="memory/tasks")) == {"of the task", "of another"}
    assert await titles(agent, path="memory/tasks/other/") == ["of another"]
    assert "there is no project" in await agent.refused("memory_list", project="nowhere")


async def test_every_filter_and_all_together(laptop: Machine, agent: Agent) -> None:
    await laptop.put(
        "memory/notes/a/tea.md",
        by_hand(
            "tea",
            tags="[Drinks, hot]",
            type="episodic",
            category="Facts",
            entity="Green  Tea",
            status="active",
            updated="2026-03-01",
        ),
    )
    await laptop.put(
        "memory/notes/coffee.md",
        by_hand("coffee", tags="[drinks, black]", type="Runbook", updated="2026-04-01T12:00:00Z"),
    )
    await laptop.put(
        "memory/notes/soup.md", by_hand("soup", tags="[hot]", category="facts", status="draft", updated="2026-05-01")
    )
    for arguments, found in (
        ({"tags": ["drinks"]}, {"tea", "coffee"}),
        ({"tags": ["#DRINKS", "hot"]}, {"tea"}),
        ({"tags": ["dri"]}, set()),
        ({"type": ["episodic", "runbook"]}, {"tea", "coffee"}),
        ({"category": "facts"}, {"tea", "soup"}),
        ({"entity": "green tea"}, {"tea"}),
        ({"status": "Draft"}, {"soup"}),
        ({"path": "memory/notes/a"}, {"tea"}),
        ({"path": "memory/notes/coffee.md"}, {"coffee"}),
        ({"path": "memory/notes/*o*.md"}, {"coffee", "soup"}),
        ({"path": "memory/notes/*.md"}, {"coffee", "soup"}),
        ({"path": "memory/notes/**/*.md"}, {"tea", "coffee", "soup"}),
        ({"path": "memory/**/[!c]*.md"}, {"tea", "soup"}),
        ({"path": "*"}, set()),
        ({"path": "memory/notes"}, {"tea", "coffee", "soup"}),
        ({"since": "2026-04-01"}, {"coffee", "soup"}),
        ({"until": "2026-04-01"}, {"tea", "coffee"}),
        ({"until": "2026-04-01T11:59:59Z"}, {"tea"}),
        ({"since": "2026-03-02", "until": "20260401"}, {"coffee"}),
        (
            {"tags": ["hot"], "category": "facts", "type": ["episodic"], "since": "2026-02-01", "entity": "Green Tea"},
            {"tea"},
        ),
    ):
        page = await agent.call("memory_list", **arguments)
        assert ({one["title"] for one in page["memories"]}, page["total"]) == (found, len(found)), arguments
    recent = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    await agent.note("New.", title="new")
    assert await titles(agent, since=recent) == await titles(agent, since="2d") == ["new"]


async def test_orders_and_pages(laptop: Machine, agent: Agent) -> None:
    for number in range(7):
        fields = {"created": f"2026-02-{28 - number}", "importance": [0.1, 0.9][number % 2]}
        await laptop.put(f"memory/notes/{number}.md", by_hand(f"n{number}", updated=f"2026-03-0{number + 1}", **fields))
    newest = [f"n{number}" for number in (6, 5, 4, 3, 2, 1, 0)]
    assert await titles(agent) == newest
    assert await titles(agent, sort="created") == newest[::-1]
    assert await titles(agent, sort="importance") == ["n5", "n3", "n1", "n6", "n4", "n2", "n0"]
    assert await titles(agent, sort="usage") == newest
    pages = [await agent.call("memory_list", limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [[one["title"] for one in page["memories"]] for page in pages] == [newest[:3], newest[3:6], newest[6:], []]
    assert {page["total"] for page in pages} == {7}


async def test_an_entry_tells_what_the_note_says_and_what_was_not_understood(laptop: Machine, agent: Agent) -> None:
    await laptop.put(
        "memory/notes/odd.md", by_hand("odd", importance="very", relations="x", body="# Odd\n\n" + "words " * 80)
    )
    await laptop.put("memory/notes/bare.md", "---\ntitle: bare\n---\n")
    odd, bare = (await agent.call("memory_list", sort="created"))["memories"][::-1]
    if odd["title"] != "odd":
        odd, bare = bare, odd
    assert (odd["problems"], odd["scope"], odd["project"], odd["path"]) == (2, "project", "proj", "memory/notes/odd.md")
    assert odd["snippet"].startswith("# Odd words words")
    assert odd["snippet"].endswith(" …")
    assert len(odd["snippet"]) < 200
    assert (bare["problems"], bare["snippet"]) == (0, "")
    assert (await agent.call("memory_get", id=odd["id"]))["title"] == "odd"


NO_LISTS = [
    ({"scope": "task"}, "needs 'taskId'"),
    ({"scope": "global", "taskId": "x"}, "goes with scope 'task'"),
    ({"scope": "global", "project": "proj"}, "leaves nothing"),
    ({"since": "yesterday"}, "is not a date"),
    ({"limit": 101}, "between 1 and 100"),
    ({"limit": 0}, "between 1 and 100"),
    ({"offset": -1}, "between 0"),
    ({"sort": "title"}, "must be one of"),
    ({"tags": ["x"] * 33}, "the limit is 32"),
    ({"query": "x"}, "unknown parameter"),
]


async def test_what_makes_no_list_is_refused(agent: Agent) -> None:
    for arguments, says in NO_LISTS:
        assert says in await agent.refused("memory_list", **arguments)


async def test_a_caller_lists_what_it_reaches(daemon: Serving, laptop: Machine, agent: Agent) -> None:
    await laptop.put("memory/notes/secret.md", by_hand("secret"))
    async with machine(daemon, "guest", space="laptop", projects={"other"}) as box:
        await box.attach("other", toolsets=["all"])
        await box.put("memory/notes/mine.md", by_hand("mine"), project="other")
        async with acting(box) as guest:
            assert await titles(guest, project="*") == await titles(guest) == ["mine"]
            nothing = await guest.refused("memory_list", project="proj")
            other = await guest.refused("memory_list", project="proz")
            assert other == re.sub(r"\bproj\b", "proz", nothing)
    async with machine(daemon, "ear", space="laptop", sources={"sessions"}) as box:
        await box.attach("proj", toolsets=["all"])
        async with acting(box) as ear:
            assert "no grant for the source 'memory'" in await ear.refused("memory_list")


async def test_lists_searches_and_entities_compare_words_alike(agent: Agent, laptop: Machine) -> None:
    """However they are written, in any script."""
    text = by_hand("a", body="Kettle.", type="Ärger", category="Größe", status="Übel", tags="[Käse]", entity="Zoë")
    await laptop.put("memory/notes/a.md", text)
    await laptop.put("memory/notes/b.md", by_hand("b", body="Kettle.", type="Episodic", entity="Bo"))
    asked: list[dict[str, Any]] = [
        {"type": ["ärger"]},
        {"type": [" ÄRGER ", "nobody"]},
        {"category": "GRÖSSE"},
        {"tags": ["#käse"]},
        {"entity": "ZOË"},
    ]
    for arguments in asked:
        assert await titles(agent, **arguments) == ["a"], arguments
        hits = (await agent.call("memory_search", query="kettle", minScore=0, **arguments))["results"]
        assert [hit["title"] for hit in hits] == ["a"], arguments
    assert await titles(agent, status="übel") == ["a"]
    for kind, entity in (("ärger", "Zoë"), ("EPISODIC", "Bo")):
        (found,) = (await agent.call("entity_list", type=kind))["entities"]
        assert found["entity"] == entity
