"""memory_status counts notes by what they say of themselves."""

from __future__ import annotations

from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.documents.notes import Agent, acting


async def test_notes_are_counted_by_kind(daemon: Serving, agent: Agent, laptop: Machine) -> None:
    await agent.note("One.", category="decisions", type="project_context")
    await agent.note("Two.", category="decisions")
    await laptop.put("memory/notes/odd.md", "---\nimportance: very\n---\nOdd.\n")
    counted = (await agent.call("memory_status"))["notes"]
    assert counted == {
        "total": 3,
        "byType": {"none": 2, "project_context": 1},
        "byCategory": {"decisions": 2, "none": 1},
        "withProblems": 1,
    }
    async with machine(daemon, "other", projects={"elsewhere"}) as other:
        await other.attach("elsewhere", toolsets=["all"])
        async with acting(other) as limited:
            assert (await limited.call("memory_status"))["notes"]["total"] == 0
