"""A folder of notes of an app: its `[[links]]` are relations, and its tags filter searches."""

from __future__ import annotations

from typing import Any

from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent


async def write(laptop: Machine, **files: str) -> None:
    for path, text in files.items():
        await laptop.put(f"{path}.md", text, base=0)


async def found(agent: Agent, query: str, **more: Any) -> dict[str, dict[str, Any]]:
    """What a search finds, by path."""
    answer = await agent.call("memory_search", query=query, minScore=0, includeRelated=True, maxResults=20, **more)
    return {hit["path"]: hit for hit in answer["results"]}


async def ends(agent: Agent, query: str, path: str) -> set[tuple[str, str]]:
    """(direction, path) of what a file is related with."""
    related = (await found(agent, query))[path].get("related", [])
    assert {one["relation"] for one in related} <= {"see_also"}
    return {(one["direction"], one["path"]) for one in related}


async def test_links_lead_where_the_app_would_lead(agent: Agent, laptop: Machine) -> None:
    """By name, path, alias or title; a whole path, the same folder, the shortest path; unresolved ones are no error."""
    files = {
        "home": "zebra [[alpha]] [[deep/Beta|shown]] ![[the letter c]] [[Missing]] [[home#here]] [[Delta]]\n",
        "notes/Alpha": "one\n",
        "archive/old/alpha": "other\n",
        "deep/Beta": "two\n",
        "Beta": "not this\n",
        "x/gamma": "---\naliases: [The Letter C]\n---\nthree\n",
        "archive/old/Zeta": "giraffe [[alpha]] [[beta]]\n",
        "d": "---\ntitle: Delta\n---\nfour\n",
    }
    await write(laptop, **files)
    linked = {"notes/Alpha.md", "deep/Beta.md", "x/gamma.md", "d.md"}
    assert await ends(agent, "zebra", "home.md") == {("to", path) for path in linked}
    assert await ends(agent, "two", "deep/Beta.md") == {("from", "home.md")}
    assert await ends(agent, "three", "x/gamma.md") == {("from", "home.md")}
    assert await ends(agent, "giraffe", "archive/old/Zeta.md") == {("to", "archive/old/alpha.md"), ("to", "Beta.md")}
    assert await ends(agent, "not this", "Beta.md") == {("from", "archive/old/Zeta.md")}


async def test_a_graph_of_a_project_has_its_links(agent: Agent, laptop: Machine) -> None:
    """With the target as it was written, folded; of one document also those that lead to it. Without being asked for there are none."""
    note = await agent.call("memory_store", content="A zebra, see [[home]].", title="Zebra")
    await write(laptop, home="[[deep/Beta|shown]] [[Missing]] [[zebra]]\n", **{"deep/Beta": "two\n"})

    async def links(**more: Any) -> set[tuple[str, str, str]]:
        rows = (await laptop.request("relations", {"project": "proj", **more}))["relations"]
        assert {row["relation"] for row in rows} <= {"see_also"}
        return {(row["path"], row["target"], row["otherPath"]) for row in rows}

    held = {("home.md", "deep/beta", "deep/Beta.md"), (note["path"], "home", "home.md")}
    assert await links() == set()
    assert await links(links=True) >= held
    assert await links(path="deep/Beta.md") == {("home.md", "", "deep/Beta.md")}
    assert await links(path="home.md") >= {("home.md", "deep/beta", "deep/Beta.md"), (note["path"], "", "home.md")}
    assert await links(path="nowhere.md") == set()
    (row,) = (await laptop.request("relations", {"project": "proj", "path": note["path"], "limit": 1}))["relations"]
    assert (row["id"], row["otherId"], row["title"]) == (note["id"], "", "Zebra")


async def test_links_follow_files_that_move_and_go(agent: Agent, laptop: Machine) -> None:
    """A link is by name: it leads to where the file of that name is now, and nowhere when there is none."""
    await write(laptop, home="zebra [[alpha]]\n", **{"a/alpha": "one\n"})
    assert await ends(agent, "zebra", "home.md") == {("to", "a/alpha.md")}
    await write(laptop, **{"b/alpha": "one\n"})
    await laptop.request("remove", {"project": "proj", "path": "a/alpha.md", "base": 1})
    assert await ends(agent, "zebra", "home.md") == {("to", "b/alpha.md")}
    await laptop.request("remove", {"project": "proj", "path": "b/alpha.md", "base": 1})
    assert await ends(agent, "zebra", "home.md") == set()


async def test_tags_of_any_memory_file_filter_searches(agent: Agent, laptop: Machine) -> None:
    """Those of the front matter and those in the text, of notes and of other files; all that are asked for must be there."""
    await write(
        laptop,
        **{
            "a": "---\ntags: [Infra, db]\n---\nThe pool is full.\n",
            "b": "The pool is empty. #infra\n",
            "memory/notes/c": "---\nid: mem_c_1_abcdef12\ntags: [infra]\n---\nThe pool leaks. #db\n",
            "d": "The pool is blue. `#infra`\n",
        },
    )
    assert set(await found(agent, "pool", tags=["#infra"])) == {"a.md", "b.md", "memory/notes/c.md"}
    assert set(await found(agent, "pool", tags=["infra", "DB"])) == {"a.md", "memory/notes/c.md"}
    await laptop.put("a.md", "The pool is full.\n", base=1)
    assert set(await found(agent, "pool", tags=["infra", "db"])) == {"memory/notes/c.md"}


async def test_a_note_tells_what_it_links_to_and_what_links_to_it(agent: Agent, laptop: Machine) -> None:
    """memory_get shows links as relations: a file that is no note has a path and no id."""
    await write(
        laptop,
        **{
            "memory/notes/c": "---\nid: mem_c_1_abcdef12\ntitle: The pool\n---\nSee [[plan]].\n",
            "docs/plan": "As [[The pool]] says.\n",
        },
    )
    note = await agent.call("memory_get", id="mem_c_1_abcdef12")
    assert note["relationCount"] == 2
    plan = {"relation": "see_also", "title": "plan", "path": "docs/plan.md", "project": "proj"}
    assert note["relations"] == [plan | {"direction": "to"}, plan | {"direction": "from"}]


async def test_a_page_is_found_above_those_that_link_to_it(agent: Agent, laptop: Machine) -> None:
    """By its name, by an alias, in a question about it; and what it links to is told of a plain file."""
    files = {
        "memory/pages/Partielle Ordnung.md": "alias:: Halbordnung\n\n- reflexiv, transitiv und [Kette](Kette.md)\n",
        "memory/pages/Kette.md": "- Jede [[Partielle Ordnung]] hat eine, die Partielle Ordnung ist [[Halbordnung]].\n",
        "memory/pages/Verband.md": "- Ein Verband ist eine [[Partielle Ordnung]], und Partielle Ordnung heißt [[Halbordnung]].\n",
    }
    for path, text in files.items():
        await laptop.put(path, text)
    for query in ("Partielle Ordnung", "was ist eine Partielle Ordnung?", "Halbordnung", "partielle ordnung"):
        result = await agent.call("memory_search", query=query, includeRelated=True)
        first = result["results"][0]
        assert first["path"] == "memory/pages/Partielle Ordnung.md", query
        assert first["score"] >= max(hit["score"] for hit in result["results"])
        related = {(one["direction"], one["path"]) for one in first["related"]}
        assert related == {
            ("to", "memory/pages/Kette.md"),
            ("from", "memory/pages/Kette.md"),
            ("from", "memory/pages/Verband.md"),
        }
