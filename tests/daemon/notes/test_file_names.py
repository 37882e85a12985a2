"""A note that says no id is known by its file's name, in every tool that takes an id."""

from __future__ import annotations

from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent

JWT = "---\ntitle: Tokens\ntags: [auth]\n---\n\nTokens live for a quarter of an hour.\n"


async def test_by_its_name_and_by_its_path(agent: Agent, laptop: Machine) -> None:
    await laptop.put("memory/notes/jwt.md", JWT)
    other = await agent.note("Sessions end with the browser.", title="Sessions")
    for name in ("jwt", "jwt.md", "memory/notes/jwt.md", "notes/jwt.md", "./memory/notes/jwt.md", " jwt "):
        assert (await agent.call("memory_get", id=name))["path"] == "memory/notes/jwt.md", name
    assert (await agent.call("memory_update", id="jwt", status="done"))["status"] == "done"
    assert (await agent.call("memory_link", id="jwt.md", relatedId=other, relation="refines"))["changed"]
    assert "jwt.md" in str(await agent.call("memory_get", id=other))
    assert (await agent.call("memory_delete", id="memory/notes/jwt.md"))["deleted"]
    assert "no note of that id" in await agent.refused("memory_get", id="jwt")


async def test_where_several_have_it_nobody_is_guessed(agent: Agent, laptop: Machine) -> None:
    await laptop.put("memory/notes/jwt.md", JWT)
    await laptop.put("memory/notes/old/jwt.md", JWT.replace("quarter", "half"))
    told = await agent.refused("memory_delete", id="jwt")
    assert "jwt is the file's name of several notes" in told
    assert (await agent.call("memory_get", id="memory/notes/old/jwt.md"))["path"] == "memory/notes/old/jwt.md"
    for odd in ("t", "wt.md", "notes", "%", "_wt", "../jwt", "memory/notes/"):
        assert "no note of that id" in await agent.refused("memory_get", id=odd), odd
