"""A note that another one supersedes is found where the past is asked for, or named by the newer one."""

from __future__ import annotations

import re
from typing import Any

from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.documents.notes import Agent, acting

RANKS = ("relevance", "balanced", "importance", "recency")


async def found(agent: Agent, query: str, **arguments: Any) -> list[dict[str, Any]]:
    return list((await agent.call("memory_search", query=query, **arguments))["results"])


async def test_the_newer_note_stands_above_in_every_rank(agent: Agent) -> None:
    """Though the older one fits better, weighs more and is read more often."""
    old = await agent.note("The deploy key lives in vault A.", title="Deploy key place", importance="core")
    new = await agent.note(
        "Since the move it is in the safe: the key for a deploy.",
        title="Moved",
        importance="low",
        relatedTo=[old],
        relation="supersedes",
    )
    for _ in range(3):
        await agent.call("memory_get", id=old)
    for rank in RANKS:
        asked = {"query": "where does the deploy key live, vault A", "rank": rank, "minScore": 0}
        hits = await found(agent, **asked)
        assert [hit["id"] for hit in hits] == [new, old]
        # So they stand in the text, each with the day of its last change.
        text = str(getattr((await agent.client.call_tool("memory_search", asked)).content[0], "text", ""))
        shown = re.findall(rf"(?m)^(mem_\S+) {hits[0]['updatedAt'][:10]}", text)
        assert shown == [hit["shortId"] for hit in hits]
        if rank == "relevance":
            assert hits[0]["score"] >= hits[1]["score"]
        assert [one["id"] for one in hits[1]["supersededBy"]] == [new]
        assert "supersededBy" not in hits[0]


async def test_a_newer_note_that_does_not_match_is_brought_in(agent: Agent) -> None:
    old = await agent.note("The build cache is on the NAS.", title="Build cache")
    other = await agent.note("The build takes nine minutes.", title="Build time")
    new = await agent.note("Gone since July.", title="Nothing there any more", relatedTo=[old], relation="supersedes")
    result = await agent.call("memory_search", query="build cache on the NAS before?", explain=True)
    hits = result["results"]
    assert [hit["id"] for hit in hits][:2] == [new, old]
    # It is as good an answer as what it supersedes, whatever words it has.
    assert result["explain"]["hits"][0]["ownScore"] < 0.25 < hits[0]["score"] == hits[1]["score"]
    assert [one["pulledIn"] for one in result["explain"]["hits"]][:2] == [True, False]
    assert other in [hit["id"] for hit in hits] or len(hits) == 2
    # Counted among the results: of one hit, the newer one is it.
    assert [hit["id"] for hit in await found(agent, "build cache on the NAS", maxResults=1)] == [new]
    # Where it is filtered out, the older one says what there is all the same.
    (alone,) = await found(agent, "build cache on the NAS", path=hits[1]["path"])
    assert (alone["id"], alone["supersededBy"][0]["title"]) == (old, "Nothing there any more")
    text = (await agent.client.call_tool("memory_search", {"query": "build cache on the NAS before?"})).content[0]
    assert f"superseded by: Nothing there any more ({hits[0]['shortId']})" in str(getattr(text, "text", ""))


async def test_of_a_chain_the_newest_comes_first_and_is_brought_in(agent: Agent) -> None:
    ids = [await agent.note("The pump runs at 40 Hz.", title="Pump one")]
    for content in ("The pump: 42 Hz.", "Nothing more of it."):
        ids.append(await agent.note(content, title=content, relatedTo=[ids[-1]], relation="supersedes"))
    first, second, third = ids
    # The middle one matches as well.
    assert [hit["id"] for hit in await found(agent, "pump runs at Hz", minScore=0.0)] == [third, second, first]
    # Of what has to be brought in, only the end of the chain is.
    folder = (await agent.call("memory_get", id=first))["path"]
    (hit,) = await found(agent, "pump runs at 40 Hz", path=folder)
    assert [one["id"] for one in hit["supersededBy"]] == [second]


async def test_a_circle_ends(agent: Agent, laptop: Machine) -> None:
    for name, other in (("one", "three"), ("two", "one"), ("three", "two")):
        head = f"---\nid: mem_{name}_1_00000000\nrelations: {{supersedes: [mem_{other}_1_00000000, mem_{name}_1_00000000]}}\n---\n"
        await laptop.put(f"memory/notes/{name}.md", f"{head}The valve is {name}.\n")
    hits = await found(agent, "valve is one", minScore=0.0)
    assert sorted(hit["id"] for hit in hits) == [f"mem_{name}_1_00000000" for name in ("one", "three", "two")]
    assert all(len(hit["supersededBy"]) == 1 for hit in hits)


async def test_a_deleted_note_supersedes_nothing(agent: Agent, laptop: Machine) -> None:
    old = await agent.note("Backups run at two.", title="Backups")
    new = await agent.note("Now at three.", title="Later", relatedTo=[old], relation="supersedes")
    path = (await agent.call("memory_get", id=new))["path"]
    await laptop.request("remove", {"project": "proj", "path": path, "base": 1})
    (hit,) = await found(agent, "backups run at two")
    assert (hit["id"], "supersededBy" in hit) == (old, False)


async def test_a_note_in_a_task_does_not_come_in_where_tasks_are_left_out(agent: Agent) -> None:
    old = await agent.note("Invoices are sent on the first.", title="Invoices")
    new = await agent.note("Not this time.", title="Once", taskId="audit", relatedTo=[old], relation="supersedes")
    assert [hit["id"] for hit in await found(agent, "invoices are sent")] == [old]
    (hit,) = await found(agent, "invoices are sent", taskId="audit")
    assert (hit["id"], [one["id"] for one in hit["supersedes"]]) == (new, [old])


async def test_the_budget_of_tokens_holds(agent: Agent) -> None:
    old = await agent.note("The lamp is red. " * 8, title="Lamp")
    new = await agent.note("It went. " * 30, title="Gone", relatedTo=[old], relation="supersedes")
    hits = await found(agent, "lamp is red", maxTokens=50, minScore=0.0)
    assert [hit["id"] for hit in hits] == [new]


async def test_what_a_caller_does_not_reach_supersedes_nothing_for_it(
    agent: Agent, laptop: Machine, daemon: Serving
) -> None:
    """Nor is it related with anything; whoever reaches both is told."""
    old = await agent.note("The door code is four digits.", title="Door")
    new = "mem_secret_1_0badcafe"
    text = f"---\nid: {new}\ntitle: Hidden\nrelations:\n  supersedes: {old}\n---\nIt has six.\n"
    await laptop.attach("proj", "hidden", "global", toolsets=["all"])
    await laptop.put("memory/notes/x.md", text, project="hidden")
    await laptop.attach("proj", "global", toolsets=["all"])
    (hit,) = await found(agent, "door code digits", includeRelated=True)
    assert [one["id"] for one in hit["supersededBy"]] == [one["id"] for one in hit["related"]] == [new]
    async with machine(daemon, "narrow", space="laptop", projects={"proj", "global"}) as narrow:
        await narrow.attach("proj", "global", toolsets=["all"])
        async with acting(narrow) as other:
            result = await other.client.call_tool(
                "memory_search", {"query": "door code digits", "includeRelated": True, "project": "*", "explain": True}
            )
    assert old in str(result)
    assert "supersededBy" not in str(result)
    assert "Hidden" not in str(result)
    assert new not in str(result)


async def test_a_long_line_of_notes_is_followed_to_its_newest(agent: Agent, laptop: Machine) -> None:
    """As many as an agent writes that keeps a state by superseding the last one; each by hand, so that the test is quick."""
    for number in range(40):
        text = f"The kettle of room {number} is green." if number else "The kettle descales itself by ultrasound."
        stated = f"relations:\n  supersedes: mem_k_1_{number - 1:08x}\n" if number else ""
        await laptop.put(f"memory/notes/k{number}.md", f"---\nid: mem_k_1_{number:08x}\n{stated}---\n\n{text}\n")
    found = await agent.call("memory_search", query="kettle descales by ultrasound before?", maxResults=2)
    assert [one["id"] for one in found["results"]] == ["mem_k_1_00000027", "mem_k_1_00000000"]
    assert "supersededBy" not in found["results"][0]
    assert [one["id"] for one in found["results"][1]["supersededBy"]] == ["mem_k_1_00000001"]
    (alone,) = (await agent.call("memory_search", query="kettle descales by ultrasound", maxResults=1))["results"]
    assert alone["id"] == "mem_k_1_00000027"


async def test_a_superseded_note_is_a_line_of_the_newer_one(agent: Agent) -> None:
    """However many removes there are, and only as long as the past is not asked for."""
    first = await agent.note("The billing service runs on Heroku.", title="Billing host")
    second = await agent.note("Billing runs on Fly.", title="Billing moved", relatedTo=[first], relation="supersedes")
    third = await agent.note("Hetzner has it.", title="Moved again", relatedTo=[second], relation="supersedes")
    await agent.note("The billing service is in Go.", title="Language")
    hits = await found(agent, "where does the billing service run")
    told = {hit["id"]: hit.get("supersedes") for hit in hits}
    assert first not in told
    assert second not in told
    assert {one["id"] for one in told[third]} == {first, second}
    text = (await agent.client.call_tool("memory_search", {"query": "where does the billing service run"})).content[0]
    assert "supersedes: Billing host (mem_" in str(getattr(text, "text", ""))
    for past in (
        "where did the billing service run before?",
        "where did the billing service run previously",
        "where was the old billing service",
        "the billing service used to run on",
        "Wo lief der billing service früher?",
        "où tournait billing service avant ?",
        "¿dónde corría antes billing service?",
    ):
        ids = [hit["id"] for hit in await found(agent, past)]
        assert {third, first} <= set(ids), past
        assert ids.index(third) < ids.index(first), past


async def test_what_is_done_is_found_where_it_is_asked_for(agent: Agent, laptop: Machine) -> None:
    head = "---\ntitle: Pool SHOP-77\nstatus: {}\n---\n"
    body = "The connection pool of the shop runs empty at night.\n"
    for name, status in (("a", "resolved"), ("b", "Done."), ("c", "superseded by ADR-7"), ("d", "accepted")):
        await laptop.put(f"memory/notes/{name}.md", head.format(status) + body.replace("night", f"night {name}"))
    await laptop.put("memory/notes/e.md", f"---\nsuperseded_by: ADR 9\n---\n{body}")
    now = await agent.call("memory_search", query="connection pool of the shop empty at night")
    assert [hit["path"] for hit in now["results"]] == ["memory/notes/d.md"]
    assert now["results"][0]["alike"] == 0
    await laptop.request("remove", {"project": "proj", "path": "memory/notes/d.md", "base": 1})
    none = await agent.call("memory_search", query="connection pool of the shop empty at night")
    assert not none["results"]
    assert any("superseded or done" in warning for warning in none["warnings"])
    for asked in ("did we fix the connection pool of the shop", "SHOP-77", "why was the connection pool empty"):
        assert await found(agent, asked), asked
    assert await found(agent, "connection pool of the shop", path="memory/notes/a.md")


async def test_nothing_of_the_past_comes_unasked(agent: Agent) -> None:
    """Whatever the prompt says of the past; nor is it listed for a briefing."""
    old = await agent.note("The deploy key is in vault A.", title="Deploy key", importance="core")
    new = await agent.note(
        "The deploy key is in vault B.", title="Deploy key now", relatedTo=[old], relation="supersedes"
    )
    done = await agent.note("Renew the deploy key.", title="Renew", status="done")
    meta = {"confide/unasked": True}
    for tool, asked in (
        ("memory_search", {"query": "where was the deploy key before?", "minScore": 0}),
        ("memory_list", {"sort": "importance"}),
    ):
        result = await agent.client.call_tool(tool, asked, meta=meta)
        text = str(result.structured_content)
        assert new in text
        assert f"'id': '{done}'" not in text
        assert f"'id': '{old}', 'title': 'Deploy key', 'tags'" not in text
