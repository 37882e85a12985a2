"""A question about several things finds each of them, and says for which there is nothing."""

from __future__ import annotations

from tests.support.documents.notes import Agent


async def test_each_part_gets_its_answer(agent: Agent) -> None:
    port = await agent.note("The API listens on port 8443.", title="API port")
    owner = await agent.note("Billing belongs to Ann Miller.", title="Owner of billing")
    for number in range(12):
        await agent.note(f"Endpoint {number} of the API uses port forwarding rule {number}.", title=f"API {number}")
    asked = {"query": "what port does the API listen on and who owns billing?", "maxResults": 4}
    result = await agent.call("memory_search", **asked, explain=True)
    hits = result["results"]
    assert {port, owner} <= {hit["id"] for hit in hits}
    assert len(hits) == len(result["explain"]["hits"]) <= 4
    assert result["explain"]["parts"] == ["what port does the API listen on", "who owns billing?"]
    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert not any("nothing was found" in warning for warning in result["warnings"])
    lines = [(hit["path"], hit["startLine"]) for hit in hits]
    assert len(lines) == len(set(lines))


async def test_a_part_without_an_answer_is_named(agent: Agent) -> None:
    await agent.note("The API listens on port 8443.", title="API port")
    result = await agent.call(
        "memory_search", query="Which port does the API listen on?\nWho waters the bamboo orchid?", maxTokens=400
    )
    assert [hit["title"] for hit in result["results"]] == ["API port"]
    assert "nothing was found for: Who waters the bamboo orchid?" in result["warnings"]
    none = await agent.call("memory_search", query="Who waters the bamboo orchid? Where sleeps the ginger cat?")
    assert not none["results"]
    assert not any("nothing was found" in warning for warning in none["warnings"])
