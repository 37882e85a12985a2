"""Files that a person left in an odd state break no tool, and notes keep their ids while their files are moved about."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.notes import Agent
from tests.support.serving import Machine

from confide_daemon.notes.naming import id_of_path

ODD = id_of_path("proj", "memory/notes/odd.md")


@pytest.mark.parametrize(
    "moment", ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999999", "0001-01-01T00:00:00+14:00"]
)
async def test_a_date_that_no_calendar_has_breaks_no_tool(agent: Agent, laptop: Machine, moment: str) -> None:
    text = f"---\ntitle: Odd\nentity: X\ncreated: {moment}\nupdated: {moment}\n---\n\nXylophones.\n"
    await laptop.put("memory/notes/odd.md", text)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory_list", {}),
        ("memory_search", {"query": "xylophones"}),
        ("entity_list", {}),
        ("entity_search", {"query": "x"}),
        ("project_summary", {}),
    ]
    for tool, arguments in calls:
        await agent.call(tool, **arguments)
    assert len((await agent.call("memory_get", id=ODD))["problems"]) == 2


async def test_a_list_until_the_last_of_all_days(agent: Agent) -> None:
    await agent.note("Text.")
    for until in ("9999-12-31", "9999-12-31T23:59:59"):
        assert (await agent.call("memory_list", until=until))["total"] == 1
