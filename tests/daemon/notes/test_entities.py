"""What notes are about, projects in numbers, and where the agent works."""

from __future__ import annotations

from tests.support.daemon.loopback import Machine, Serving, machine
from tests.support.documents.notes import Agent, acting


async def test_entities_are_listed_by_how_much_is_written_about_them(agent: Agent) -> None:
    await agent.note("Uses JWT.", entity="auth-service", type="project_context")
    await agent.note("Has two replicas.", entity="Auth-Service")
    await agent.note("Prefers tea.", entity="Vera", scope="global", type="core_identity")
    await agent.note("Step one is done.", entity="release", scope="task", taskId="r1")
    listed = await agent.call("entity_list")
    assert [(one["entity"].lower(), one["count"], one["scope"]) for one in listed["entities"]] == [
        ("auth-service", 2, "project"),
        ("vera", 1, "global"),
    ]
    assert listed["total"] == 2
    assert [one["entity"] for one in (await agent.call("entity_list", scope="task"))["entities"]] == ["release"]
    assert [one["entity"] for one in (await agent.call("entity_list", scope="global"))["entities"]] == ["Vera"]
    assert [one["entity"] for one in (await agent.call("entity_list", type="core_identity"))["entities"]] == ["Vera"]


WRITTEN_OTHERWISE = [
    ("authentication service", "auth-service"),
    ("service auth", "auth-service"),
    ("viktor", "Victor"),
    ("billing", "billing-worker"),
    ("AUTH_SERVICE", "auth-service"),
]


async def test_a_name_that_is_written_otherwise_is_found(agent: Agent) -> None:
    for entity in ("auth-service", "Victor", "billing-worker", "gateway"):
        await agent.note(f"Something of {entity}.", entity=entity)
    for query, name in WRITTEN_OTHERWISE:
        (first, *_) = (await agent.call("entity_search", query=query))["matches"]
        assert first["entity"] == name
        assert 0.6 <= first["score"] <= 1


async def test_a_name_like_none_finds_nothing(agent: Agent) -> None:
    await agent.note("Something.", entity="auth-service")
    assert (await agent.call("entity_search", query="zzzz"))["matches"] == []
    assert "is empty" in await agent.refused("entity_search", query=" ")


def test_a_name_among_thousands_is_found() -> None:
    """The quick measures that choose among many do not lose the right one."""
    from confide_daemon.notes import note_service

    names = [f"component-{number:05d} of the shop" for number in range(5000)]
    names.insert(4000, "invoice renderer")
    for query in ("invoice", "renderer for invoices", "invoce rendrer", "Invoice_Renderer"):
        assert note_service.matches(query, names, limit=3)[0][0] == "invoice renderer"


async def test_a_project_in_numbers(agent: Agent) -> None:
    nothing = await agent.call("project_summary")
    assert (nothing["exists"], nothing["files"], nothing["lastUpdate"]) == (False, 0, None)
    assert (await agent.call("project_summary"))["exists"] is False  # asking creates nothing
    await agent.note("Uses JWT.", entity="auth", type="project_context", category="decisions")
    await agent.call("memory_store", content="A line for the log.")
    known = await agent.call("project_summary", project="proj")
    assert (known["exists"], known["files"], known["notes"]) == (True, 2, 1)
    assert known["byType"] == {"project_context": 1}
    assert known["byCategory"] == {"decisions": 1}
    assert [one["entity"] for one in known["entities"]] == ["auth"]


async def test_a_project_is_begun_when_that_is_asked_for(agent: Agent, laptop: Machine) -> None:
    begun = await agent.call("project_summary", create=True)
    assert (begun["exists"], begun["created"], begun["notes"]) == (True, True, 1)
    assert len(laptop.files) == 1
    assert (await agent.call("project_summary", create=True))["created"] is False
    assert "cannot begin the project" in await agent.refused("project_summary", project="other", create=True)


async def test_where_the_agent_works(agent: Agent) -> None:
    known = await agent.call("context_info")
    assert (known["project"], known["machine"], known["directory"]) == ("proj", "box", "shop")
    assert known["git"] == {"repository": "shop", "branch": "main", "remote": "example.org/team/shop"}
    assert known["time"] == "2026-11-21T12:00:00+01:00"


async def test_entities_of_projects_that_a_caller_does_not_reach_are_not_there(daemon: Serving, agent: Agent) -> None:
    await agent.note("Hidden.", entity="secret-thing")
    async with machine(daemon, "other", projects={"elsewhere"}) as other:
        await other.attach("elsewhere", toolsets=["all"])
        async with acting(other) as limited:
            assert (await limited.call("entity_list", project="*"))["entities"] == []
            assert (await limited.call("entity_search", query="secret-thing"))["matches"] == []
            assert "proj" in await limited.refused("project_summary", project="proj")
