"""A note that says it is sensitive: the daemon has its front matter and stand-ins, takes no text of it in clear, and compares none."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.documents.notes import Agent

IN_CLEAR = "comes sealed, and this one does not"


def sealed(kind: str = "note") -> str:
    return f"(sealed:{kind}:{secrets.token_hex(16)})"


async def is_sensitive(laptop: Machine, **named: str) -> bool:
    answer = await laptop.request("is-sensitive", {"project": "proj", **named})
    assert isinstance(answer["sensitive"], bool)
    return answer["sensitive"]


async def test_its_text_is_taken_sealed_alone(agent: Agent, laptop: Machine) -> None:
    """Through every tool that writes; its fields are as open as any other note's."""
    assert IN_CLEAR in await agent.refused("memory_store", content="under the stone", sensitive=True)
    assert IN_CLEAR in await agent.refused("memory_store", content=f"{sealed()} and more", sensitive=True)
    stored = await agent.call("memory_store", content=f"{sealed()}\n", sensitive=True, title="Spare key")
    at: dict[str, Any] = {"path": stored["path"]}
    assert await is_sensitive(laptop, id=stored["id"])
    assert await is_sensitive(laptop, **at)
    assert IN_CLEAR in await agent.refused("memory_update", id=stored["id"], content="under the stone")
    assert IN_CLEAR in await agent.refused("memory_store", content="and the other one", **at)
    assert IN_CLEAR in await agent.refused("memory_store", content="all of it", mode="replace", **at)
    new = {"path": "memory/new.md", "mode": "replace"}
    assert IN_CLEAR in await agent.refused("memory_store", content="---\nsensitive: true\n---\nopen\n", **new)
    for text in (f"{sealed()}\n\n{sealed()}", f"(redacted:note:{secrets.token_hex(12)})"):
        changed = await agent.call("memory_update", id=stored["id"], content=text)
        assert changed["content"].strip() == text
    await agent.call("memory_store", content=sealed(), **at)
    assert (await agent.call("memory_update", id=stored["id"], tags=["keys"]))["tags"] == ["keys"]


@pytest.mark.parametrize("said", ["sensitive: yes", 'Sensitive: "true"', "title: Merger: plan\n'sensitive': true"])
async def test_what_says_so_in_other_words_is_as_sensitive(agent: Agent, laptop: Machine, said: str) -> None:
    """A machine seals such a file whole; what an agent added to it went out in clear."""
    note = "mem_hand_1795307975_be7cc0a4"
    at: dict[str, Any] = {"path": "memory/notes/hand.md"}
    text = f"---\nid: {note}\n{said}\n---\n\n"
    assert IN_CLEAR in await agent.refused("memory_store", content=f"{text}open\n", mode="replace", **at)
    await agent.call("memory_store", content=f"{text}{sealed()}\n", mode="replace", **at)
    assert await is_sensitive(laptop, **at)
    assert await is_sensitive(laptop, id=note)
    assert (await agent.call("memory_get", id=note))["sensitive"]
    assert IN_CLEAR in await agent.refused("memory_store", content="and the other one", **at)
    assert await agent.refused("memory_update", id=note, content="all of it")


async def test_what_is_open_becomes_sensitive_with_its_text_alone(agent: Agent, laptop: Machine) -> None:
    note = await agent.note("under the stone")
    assert "give the content too" in await agent.refused("memory_update", id=note, sensitive=True)
    assert not await is_sensitive(laptop, id=note)
    await agent.call("memory_update", id=note, sensitive=True, content=sealed())
    assert await is_sensitive(laptop, id=note)
    back = await agent.call("memory_update", id=note, sensitive=False, content="nothing to hide")
    assert (back["sensitive"], back["content"].strip()) == (False, "nothing to hide")


async def test_what_nobody_can_read_is_no_duplicate(agent: Agent) -> None:
    """Two of them look alike and say anything; only the same is the same, and no placeholder is a title."""
    first = sealed()
    one = await agent.call("memory_store", content=first, sensitive=True)
    two = await agent.call("memory_store", content=sealed(), sensitive=True)
    assert (two["duplicates"], two["suggestions"]) == ([], {})
    assert (await agent.call("memory_get", id=two["id"]))["title"] == "Note"
    same = await agent.call("memory_store", content=first, sensitive=True)
    assert [other["id"] for other in same["duplicates"]] == [one["id"]]
    assert (await agent.call("memory_dedupe", threshold=0.5))["groups"] == []
    token = f"The token of CI is {sealed('github-token')}."
    await agent.call("memory_store", content=token, title="CI")
    near = await agent.call("memory_store", content=f"{token} Keep it.", title="CI again")
    assert near["duplicates"], "what is partly sealed is compared by the rest"


@pytest.mark.parametrize("named", [{"id": "mem_nobody_1700000000_0badcafe"}, {"path": "memory/none.md"}])
async def test_what_is_not_there_is_not_sensitive(laptop: Machine, named: dict[str, str]) -> None:
    assert not await is_sensitive(laptop, **named)


async def test_who_may_not_read_it_is_told_nothing(agent: Agent, daemon: Serving) -> None:
    stored = await agent.call("memory_store", content=sealed(), sensitive=True, title="Spare key")
    async with machine(daemon, "narrow", space="laptop", projects={"other"}) as narrow:
        await narrow.attach("other")
        assert not await is_sensitive(narrow, id=stored["id"])
        assert not await is_sensitive(narrow, path=stored["path"])
    async with machine(daemon, "wide", space="laptop") as wide:
        await wide.attach("other")
        assert await is_sensitive(wide, id=stored["id"])
