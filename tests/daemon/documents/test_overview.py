"""`days` and `relations`: a memory in numbers, and how its notes hang together."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.deadline import DEADLINE_S
from tests.support.documents.notes import Agent

from confide_crypto.errors import RequestError
from confide_daemon.documents import service


def of_kind(answer: dict[str, Any], kind: str) -> int:
    return sum(row["count"] for row in answer["days"] if row["kind"] == kind)


async def test_days_count_what_was_stored_and_recalled(
    agent: Agent, laptop: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who wrote it; a deletion is none of them; in the day of the one who asks."""
    monkeypatch.setattr(service, "WRITTEN_AFTER_S", 0.0)
    for content in ("Quokkas smile.", "Numbats eat termites."):
        await agent.call("memory_store", content=content, title=content)
    await laptop.put("memory/plan.md", "# Plan\n")
    await laptop.request("remove", {"project": "proj", "path": "memory/plan.md", "base": 1})
    await agent.call("memory_search", query="quokkas")
    today = datetime.now(UTC)
    since = (today - timedelta(days=2)).isoformat()
    answer: dict[str, Any] = {"days": []}
    async with asyncio.timeout(DEADLINE_S):
        while not of_kind(answer, "recalled"):  # uses are written down in the background
            answer = await laptop.request("days", {"since": since})
    assert of_kind(answer, "agent") == 2
    assert (of_kind(answer, "owner"), of_kind(answer, "deleted")) == (1, 1)
    assert {row["project"] for row in answer["days"]} == {"proj"}
    assert {row["day"] for row in answer["days"]} <= {f"{today:%Y-%m-%d}", f"{datetime.now(UTC):%Y-%m-%d}"}
    assert [age["days"] for age in answer["ages"]] == [1, 7, 30, 90, 365, None]
    assert answer["ages"][0]["recalls"] >= 1
    assert (await laptop.request("days", {"since": (today + timedelta(days=1)).isoformat()}))["days"] == []
    later = await laptop.request("days", {"since": since, "zone": 14 * 60})
    assert {row["day"] for row in later["days"]} <= {
        f"{at + timedelta(hours=14):%Y-%m-%d}" for at in (today, datetime.now(UTC))
    }
    for wrong in ({"since": "yesterday"}, {"since": since, "zone": 841}, {}):
        with pytest.raises(RequestError):
            await laptop.request("days", wrong)


async def test_relations_are_those_of_a_project(agent: Agent, laptop: Machine) -> None:
    first = await agent.call("memory_store", content="Postgres it is.", title="Postgres")
    other = await agent.call(
        "memory_store",
        content="Row locks are what we need.",
        title="Locks",
        relatedTo=[first["id"]],
        relation="supports",
    )
    found = (await laptop.request("relations", {"project": "proj"}))["relations"]
    assert [(each["id"], each["relation"], each["otherId"], each["otherTitle"]) for each in found] == [
        (other["id"], "supports", first["id"], "Postgres")
    ]
    assert (await laptop.request("relations", {"project": "global"}))["relations"] == []


async def test_neither_tells_of_what_its_caller_may_not_read(daemon: Serving) -> None:
    """A machine that reaches one project counts nothing of another, and draws no line to it."""
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        await desk.put("memory/a.md", "# A\n")
    async with machine(daemon, "limited", space="home", projects={"other"}) as limited:
        since = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        answer = await limited.request("days", {"since": since})
        assert answer["days"] == []
        assert sum(age["recalls"] for age in answer["ages"]) == 0
        with pytest.raises(RequestError):
            await limited.request("relations", {"project": "proj"})
