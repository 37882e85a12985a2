"""What a note might have for importance and tags is suggested where the caller says nothing, and never written."""

from __future__ import annotations

import pytest
import yaml
from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent

from confide_daemon.notes.field_suggestions import importance_for, tags_for, words_of


@pytest.mark.parametrize(
    ("text", "importance", "tag"),
    [
        ("The system design splits ingest and query into two microservices.", "high", "architecture"),
        ("Passwords are never logged; authentication goes through the gateway.", "high", "security"),
        ("Error codes are the same across all services.", "high", "cross-cutting"),
        ("Renaming a field is a breaking change of the public API.", "high", "api"),
        # Words of every day say what it is about, and only two of them how much it matters.
        ("Always run the linter before a commit.", None, "rule"),
        ("Our naming convention for branches is team/ticket.", None, "convention"),
        ("Ann prefers tabs.", None, "preference"),
        ("We decided to keep Postgres.", None, "decision"),
        ("We decided that branches always follow the naming convention.", "high", "decision"),
        ("Fixed a bug in the parser: it forgot the last line.", None, "fix"),
        ("Workaround: restart the worker twice a day.", None, "temporary"),
        ("Customer data must never leave the region.", "core", "rule"),
        ("Under no circumstances deploy on a Friday.", "core", "deployment"),
        # What is temporary goes by, a fix of something that matters stays worth knowing.
        ("For now authentication is switched off in staging.", None, "security"),
        ("Fixed the SQL injection in the login form.", "high", "security"),
        ("The office has a green door.", None, None),
        # Parts of words are no words.
        ("The prefixed alwaysness of the securityless mustard.", None, None),
    ],
)
def test_what_a_text_suggests(text: str, importance: str | None, tag: str | None) -> None:
    assert importance_for(text) == importance
    tags = tags_for(text, [])
    assert tag in tags if tag else not tags


def test_tags_in_use_come_first_and_are_few() -> None:
    text = "Always encrypt the database; we decided it for performance and testing, as architecture and convention."
    tags = tags_for(text, ["encryption-at-rest", "security"])
    assert tags[:2] == ["encryption-at-rest", "security"]
    assert len(tags) == len(set(tags)) == 5


def test_words_that_could_be_tags_are_joined_as_people_join_them() -> None:
    words = words_of("The Error Handling of C++ and of api-v2, 42 times")
    assert {"error-handling", "error handling", "error_handling", "api-v2"} <= set(words)
    assert not {"the", "of", "42"} & set(words)


async def test_suggestions_are_answered_and_not_written(agent: Agent, laptop: Machine) -> None:
    stored = await agent.call("memory_store", content="The architecture keeps tenants apart.", title="Tenants")
    assert stored["suggestions"] == {"importance": "high", "tags": ["architecture"]}
    fields = yaml.safe_load(laptop.files["proj", stored["path"]].split("---\n")[1])
    assert "tags" not in fields
    assert "importance" not in fields


async def test_only_what_the_caller_left_out_is_suggested(agent: Agent) -> None:
    text = "The architecture keeps tenants apart, part {}."
    given = await agent.call("memory_store", content=text.format("one"), importance="low")
    assert given["suggestions"].keys() & {"importance", "tags"} == {"tags"}
    given = await agent.call("memory_store", content="Module boundaries are drawn by team.", tags=["teams"])
    assert given["suggestions"] == {"importance": "high"}
    filed = await agent.call("memory_store", content="The architecture keeps tenants apart.", path="memory/log.md")
    assert filed["suggestions"] == {}


async def test_tags_of_this_place_are_suggested_and_no_others(agent: Agent, laptop: Machine) -> None:
    await agent.note("One thing.", tags=["Tenant-Isolation", "unused-here"])
    await agent.note("Another thing.", scope="global", tags=["billing"])
    await laptop.attach("elsewhere")
    await laptop.put("memory/notes/secret.md", "---\ntags: [invoices]\n---\n\nA third thing.\n", project="elsewhere")
    stored = await agent.call("memory_store", content="Billing knows of tenant isolation in invoices.", title="Bills")
    assert stored["suggestions"]["tags"] == ["billing", "tenant-isolation"]
