"""Notes are stored as markdown files with front matter, which people and tools read alike."""

from __future__ import annotations

from typing import Any

import yaml
from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent


async def test_a_note_is_a_file_that_people_can_read(agent: Agent, laptop: Machine) -> None:
    first = await agent.note("The auth service uses opaque tokens.", entity="auth-service")
    stored = await agent.call(
        "memory_store",
        content="We moved to JWT because gateways check them without a call.",
        title="JWT in place of opaque tokens",
        type="project_context",
        category="decisions",
        entity="auth-service",
        tags=["auth", "gateway"],
        importance="high",
        keywords=["json web token"],
        relatedTo=[first],
        relation="supersedes",
        status="active",
        source="user",
        metadata={"ticket": "SEC-12", "votes": {"for": 3, "against": 0}},
    )
    assert stored["onDisk"] is True
    assert stored["path"].startswith("memory/notes/jwt-in-place-of-opaque-tokens-")
    assert stored["id"].startswith("mem_auth-service_")
    assert stored["path"].removesuffix(".md").endswith(stored["id"].rsplit("_", 1)[1])
    text = laptop.files["proj", stored["path"]]
    _, head, body = text.split("---\n", 2)
    fields = yaml.safe_load(head)
    assert body.strip() == "We moved to JWT because gateways check them without a call."
    assert fields["created"] == fields["updated"]
    assert {key: fields[key] for key in ("id", "title", "scope", "importance", "tags", "relations", "metadata")} == {
        "id": stored["id"],
        "title": "JWT in place of opaque tokens",
        "scope": "project",
        "importance": "high",
        "tags": ["auth", "gateway"],
        "relations": [{"relation": "supersedes", "id": first}],
        "metadata": {"ticket": "SEC-12", "votes": {"for": 3, "against": 0}},
    }
    note = await agent.call("memory_get", id=stored["id"])
    assert note["content"] == "We moved to JWT because gateways check them without a call."
    assert (note["importance"], note["level"], note["category"]) == (0.75, "high", "decisions")
    assert [(one["relation"], one["direction"], one["id"]) for one in note["relations"]] == [
        ("supersedes", "to", first)
    ]
    old = await agent.call("memory_get", id=first)
    assert old["supersededBy"] == [stored["id"]]


async def test_a_note_is_found_by_its_fields_and_shown_without_them(agent: Agent) -> None:
    stored = await agent.note(
        "Rotate it every ninety days.",
        title="Signing key",
        tags=["pki"],
        keywords=["certificate"],
        entity="vaultwarden",
    )
    for query in ("signing key", "pki", "certificate", "vaultwarden"):
        (hit,) = (await agent.call("memory_search", query=query))["results"]
        assert hit["snippet"] == "Rotate it every ninety days."
        assert hit["heading"] == "Signing key"
        assert hit["path"].endswith(f"-{stored.rsplit('_', 1)[1]}.md")
        # The line as an editor counts it, front matter included.
        read = await agent.call("memory_read", path=hit["path"], fromLine=hit["startLine"], lines=1)
        assert read["content"] == "Rotate it every ninety days."


async def test_identical_content_stores_nothing_new(agent: Agent, laptop: Machine) -> None:
    first = await agent.call("memory_store", content="Deploys happen on Tuesdays.\n", tags=["deploy"])
    again = await agent.call("memory_store", content="  Deploys happen on Tuesdays.", tags=["Deploy"])
    assert again["id"] == first["id"]
    assert (again["path"], again["linesWritten"], again["revision"]) == (first["path"], 0, 1)
    assert [(one["id"], one["by"]) for one in again["duplicates"]] == [(first["id"], "content")]
    assert len(laptop.files) == 1
    # Another place is another note.
    elsewhere = await agent.call("memory_store", content="Deploys happen on Tuesdays.", scope="global", tags=["deploy"])
    assert elsewhere["id"] != first["id"]
    assert elsewhere["project"] == "global"


async def test_one_text_about_two_things_is_two_notes(agent: Agent) -> None:
    """A title or an entity tells them apart, and nothing merges them afterwards; what says no more than a note is that note."""
    made = [
        await agent.call("memory_store", content="The port is 8080.", **names)
        for names in (
            {"title": "Billing service"}, {"title": "Search service"}, {"title": "Search service", "entity": "search"},
            {"title": "Search service", "entity": "suggest"},
        )
    ]  # fmt: skip
    assert len({one["id"] for one in made}) == 4
    for names, same in (
        ({"type": "fact"}, made[0]),
        ({"title": "Search service"}, made[1]),
        ({"entity": "Search"}, made[2]),
    ):
        again = await agent.call("memory_store", content="The port is 8080.", **names)
        assert (again["id"], again["linesWritten"]) == (same["id"], 0)
    await agent.call("memory_sync")
    assert (await agent.call("memory_dedupe", merge=True))["groups"] == []
    found = (await agent.call("memory_search", query="search service port"))["results"]
    assert found[0]["title"] == "Search service"


async def test_what_is_said_again_with_more_gives_the_note_what_it_lacks(agent: Agent, laptop: Machine) -> None:
    """Tags, keywords and relations; said once more it changes nothing."""
    other = await agent.note("Something else.")
    first = await agent.call("memory_store", content="Deploys happen on Tuesdays.", title="Deploys", tags=["ops"])
    more = {"tags": ["Ops", "release"], "keywords": ["ship"], "relatedTo": [other], "relation": "refines"}
    for revision in (2, 2):
        again = await agent.call("memory_store", content="Deploys happen on Tuesdays.", title="Deploys", **more)
        assert (again["id"], again["revision"], again["linesWritten"]) == (first["id"], revision, 0)
    note = await agent.call("memory_get", id=first["id"])
    assert (note["tags"], note["keywords"]) == (["ops", "release"], ["ship"])
    assert [(one["relation"], one["id"]) for one in note["relations"]] == [("refines", other)]
    assert "release" in laptop.files["proj", first["path"]]


async def test_a_task_has_a_folder_of_its_own(agent: Agent) -> None:
    stored = await agent.call("memory_store", content="Check the migration first.", scope="task", taskId="release-42")
    assert stored["path"].startswith("memory/tasks/release-42/")
    note = await agent.call("memory_get", id=stored["id"])
    assert (note["scope"], note["taskId"]) == ("task", "release-42")


NO_NOTES = [
    ({"scope": "task"}, "needs 'taskId'"),
    ({"taskId": "../../etc"}, "not usable as a folder"),
    ({"taskId": "x", "scope": "global"}, "goes with scope 'task'"),
    ({"scope": "global", "project": "proj"}, "exclude each other"),
    ({"relation": "supports"}, "needs 'relatedTo'"),
    ({"relatedTo": ["mem_nobody_1_abcdef12"]}, "no note of that id"),
    ({"relatedTo": ["nonsense"]}, "no note of that id"),
    ({"importance": "urgent"}, "core, high, normal, low"),
    ({"importance": 1.5}, "core, high, normal, low"),
    ({"importance": True}, "must be"),
    ({"tags": ["x"] * 33}, "the limit is 32"),
    ({"title": "x" * 201}, "too long"),
    ({"title": "a\x00b"}, "control characters"),
    ({"tags": ["x"], "path": "MEMORY.md"}, "a note has a file of its own"),
    ({"tags": ["x"], "heading": "H"}, "a note has a file of its own"),
    ({"metadata": {"x": "y" * 20_000}}, "the limit is 16,384"),
    ({"metadata": "text"}, "must be an object"),
    ({"type": 7}, "must be a string"),
]


async def test_what_makes_no_note_is_refused_with_a_way_out(agent: Agent) -> None:
    for arguments, says in NO_NOTES:
        text = await agent.refused("memory_store", content="Something.", **arguments)
        assert says in text


async def test_a_file_by_hand_is_a_note_and_stays_as_it_is(agent: Agent, laptop: Machine) -> None:
    text = "# Tea\n\nGreen tea, no sugar.\n"
    await laptop.put("memory/notes/tea.md", text)
    odd = "---\ntitle: Coffee # mine\nimportance: very\ntags: drinks, hot\nrelations: nonsense\nmood: sleepy\n---\nBlack.\n"
    await laptop.put("memory/notes/coffee.md", odd)
    (hit,) = (await agent.call("memory_search", query="green tea sugar"))["results"]
    assert hit["path"] == "memory/notes/tea.md"
    from confide_memory.note_names import id_of_path

    note = await agent.call("memory_get", id=id_of_path("proj", "memory/notes/coffee.md"))
    assert (note["title"], note["tags"], note["importance"], note["content"]) == (
        "Coffee",
        ["drinks", "hot"],
        0.5,
        "Black.",
    )
    assert len(note["problems"]) == 2
    assert laptop.files["proj", "memory/notes/coffee.md"] == odd
    assert laptop.files["proj", "memory/notes/tea.md"] == text


async def test_a_note_that_is_sent_again_is_there_though_what_it_names_is_not(agent: Agent) -> None:
    """A link broke before the answer came, and somebody deleted the other note meanwhile."""
    other = await agent.note("Other.")
    arguments = {"content": "Text.", "title": "T", "relatedTo": [other]}
    again: Any = {"confide/operation": "ab" * 16}
    first = await agent.client.call_tool("memory_store", arguments, meta=again)
    await agent.call("memory_delete", id=other)
    second = await agent.client.call_tool("memory_store", arguments, meta=again)
    assert first.structured_content is not None
    assert second.structured_content is not None
    assert second.structured_content["id"] == first.structured_content["id"]
    assert "no note of that id" in await agent.refused("memory_store", **(arguments | {"content": "More."}))
