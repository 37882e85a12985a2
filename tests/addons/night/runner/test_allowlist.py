"""What a request to a model may have in it: what agents send passes, and nothing that has the provider fetch, run or remember."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.addons.night.runner.test_budget import ASK, asking
from tests.support.runs import MODEL, answer, model_api

from confide_night.runner.budget.allowlist import DOCUMENT_TOKENS, IMAGE_TOKENS, UnfitError
from confide_night.runner.budget.apis import APIS
from confide_night.runner.settings.prices import TokenUse, price_of

REQUESTS = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "fixtures/models/requests.jsonl").read_text("utf-8").splitlines()
]
AWAY = "https://evil.example/?d=THE-SOURCE"
PNG = "iVBORw0KGgo="


def user(*blocks: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 10, "messages": [{"role": "user", "content": list(blocks)}]}


def items(*found: Any, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-5.4", "input": list(found), **more}


def within(*blocks: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": list(blocks)}


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_what_real_agents_send_passes_but_for_tools_of_the_provider(number: int) -> None:
    """Claude Code and Codex: reading pictures, documents and notebooks, with agents below them, in their newest form."""
    request = REQUESTS[number]
    api = APIS[request["api"]]
    found = api.request(request["body"]).body
    tools = [each for each in request["body"]["tools"] if not each.get("type", "custom").startswith("web_search")]
    expected = {**request["body"], "tools": tools}
    if not tools:
        expected = {name: each for name, each in expected.items() if name not in ("tools", "tool_choice")}
    assert found == expected
    assert api.headers(request["headers"], "key").items() >= request["headers"].items()


IMAGE = {"type": "image", "source": {"type": "url", "url": AWAY}}
DOCUMENT = {"type": "document", "source": {"type": "url", "url": AWAY}}
BEYOND: list[tuple[str, dict[str, Any], str]] = [
    ("anthropic", user(IMAGE), "messages[0].content[0].source"),
    ("anthropic", user(DOCUMENT), "messages[0].content[0].source"),
    ("anthropic", user(within(IMAGE)), "messages[0].content[0].content[0].source"),
    ("anthropic", user(within(DOCUMENT)), "messages[0].content[0].content[0].source"),
    ("anthropic", user({"type": "image", "source": {"type": "file", "file_id": "f"}}), "messages[0].content[0].source"),
    ("anthropic", user({"type": "image", "source": {"type": "base64", "data": AWAY}}), "content[0].source.data"),
    ("anthropic", user({"type": "image", "source": {"type": "base64", "data": PNG, "url": AWAY}}), "source.url"),
    ("anthropic", user({"type": "image", "url": AWAY, "source": {"type": "base64", "data": PNG}}), "content[0].url"),
    (
        "anthropic",
        user({"type": "document", "source": {"type": "content", "content": [IMAGE]}}),
        "content[0].source.content[0].source",
    ),
    ("anthropic", user({"type": "container_upload", "file_id": "f"}), "messages[0].content[0].type"),
    ("anthropic", user({"type": "web_fetch_tool_result", "content": AWAY}), "messages[0].content[0].type"),
    ("anthropic", user({"type": "server_tool_use", "name": "web_fetch", "input": {"url": AWAY}}), "content[0].type"),
    ("anthropic", user({"type": "mcp_tool_use", "server_name": "s"}), "messages[0].content[0].type"),
    ("anthropic", user("text"), "messages[0].content[0]"),
    (
        "anthropic",
        user(
            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"type": "web_fetch_20260209"}}}
        ),
        "content[0].tool.definition",
    ),
    ("anthropic", {**ASK, "system": [IMAGE]}, "system[0].type"),
    ("anthropic", {**ASK, "mcp_servers": [{"url": AWAY}]}, "mcp_servers"),
    ("anthropic", {**ASK, "container": {"skills": [{"skill_id": "s"}]}}, "container"),
    ("anthropic", {**ASK, "fallbacks": [{"model": "a-dearer-one"}]}, "fallbacks"),
    ("anthropic", {**ASK, "something_new": {"url": AWAY}}, "something_new"),
    (
        "anthropic",
        {**ASK, "context_management": {"edits": [{"type": "compact_20260112"}]}},
        "context_management.edits[0]",
    ),
    ("anthropic", {**ASK, "metadata": {"user_id": {"url": AWAY}}}, "metadata.user_id"),
    ("anthropic", {**ASK, "tools": [{"name": "t", "input_schema": {"$ref": AWAY}}]}, "tools[0].input_schema.$ref"),
    (
        "anthropic",
        {**ASK, "tools": [{"name": "t", "input_schema": {"items": [{"$schema": AWAY}]}}]},
        "tools[0].input_schema.items[0].$schema",
    ),
    (
        "anthropic",
        {**ASK, "tools": [{"name": "t", "allowed_callers": ["code_execution_20260120"]}]},
        "allowed_callers[0]",
    ),
    ("anthropic", {**ASK, "tools": [{"name": "t", "server_url": AWAY}]}, "tools[0].server_url"),
    (
        "openai",
        items({"role": "user", "content": [{"type": "input_image", "image_url": AWAY}]}),
        "content[0].image_url",
    ),
    ("openai", items({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}), "content[0].file_id"),
    ("openai", items({"role": "user", "content": [{"type": "input_file", "file_url": AWAY}]}), "content[0].file_url"),
    ("openai", items({"role": "user", "content": [{"type": "input_file", "file_data": AWAY}]}), "content[0].file_data"),
    (
        "openai",
        items({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": AWAY}]}),
        "input[0].output[0].image_url",
    ),
    (
        "openai",
        items({"type": "custom_tool_call_output", "output": [{"type": "input_file", "file_url": AWAY}]}),
        "input[0].output[0].file_url",
    ),
    (
        "openai",
        items({"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": AWAY}}),
        "input[0].type",
    ),
    ("openai", items({"type": "item_reference", "id": "i"}), "input[0].type"),
    ("openai", items({"type": "mcp_approval_response", "approve": True}), "input[0].type"),
    ("openai", items({"type": "web_search_call", "action": {"type": "open_page", "url": AWAY}}), "input[0].type"),
    ("openai", items({"type": "shell_call", "environment": {"type": "container_reference"}}), "input[0].environment"),
    ("openai", items({"type": "tool_search_call", "execution": "server"}), "input[0].execution"),
    ("openai", items(previous_response_id="r"), "previous_response_id"),
    ("openai", items(conversation="c"), "conversation"),
    ("openai", items(background=True), "background"),
    ("openai", items(prompt={"id": "p"}), "prompt"),
    ("openai", items(include=["file_search_call.results"]), "include[0]"),
    ("openai", items(tool_choice={"type": "mcp", "server_label": "s"}), "tool_choice.server_label"),
    ("openai", items(context_management=[{"type": "compaction"}]), "context_management"),
]


@pytest.mark.parametrize(("api", "body", "named"), BEYOND, ids=[f"{api} {named}" for api, _, named in BEYOND])
def test_what_reaches_beyond_the_model_is_refused_by_name(api: str, body: dict[str, Any], named: str) -> None:
    """An address of 200 bytes has the provider make a request of the sandbox's choosing, and takes the source along."""
    tools = body.get("tools")
    body = {**body, "tools": tools} if tools else {**body, "tools": [{"type": "custom", "name": "t"}]}
    with pytest.raises(UnfitError) as found:
        APIS[api].request(body)
    assert named in str(found.value)
    assert AWAY not in str(found.value)


@pytest.mark.parametrize(
    ("api", "tool"),
    [
        ("anthropic", {"type": "web_search_20250305", "name": "web_search"}),
        ("anthropic", {"type": "web_fetch_20260309", "name": "web_fetch"}),
        ("anthropic", {"type": "memory_hosted_20270101", "name": "memory"}),
        ("anthropic", {"type": "bash_20270101_hosted", "name": "bash"}),
        ("anthropic", {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}),
        ("anthropic", {"type": "mcp_toolset", "mcp_server_name": "s"}),
        (
            "openai",
            {"type": "shell", "environment": {"type": "container_auto", "network_policy": {"type": "allowlist"}}},
        ),
        ("openai", {"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}}),
        ("openai", {"type": "namespace", "name": "n", "tools": [{"type": "web_search"}]}),
        ("openai", {"type": "namespace", "name": "n", "tools": [{"type": "namespace", "name": "m", "tools": []}]}),
        ("openai", {"type": "mcp", "server_url": AWAY}),
        ("openai", {"type": "tool_search"}),
        ("openai", {"type": "tool_search", "execution": "server"}),
        ("openai", {"type": "code_interpreter", "container": {"type": "auto"}}),
        ("openai", {"type": "a_new_one"}),
    ],
)
def test_a_tool_of_the_providers_is_taken_out(api: str, tool: dict[str, Any]) -> None:
    mine = {"type": "custom", "name": "mine"}
    assert APIS[api].request({"model": "m", "tools": [tool, mine]}).body["tools"] == [mine]
    alone = APIS[api].request({"model": "m", "tools": [tool], "tool_choice": {"type": "tool", "name": "x"}}).body
    assert set(alone) == {"model"}


def test_tools_in_the_middle_of_a_conversation_are_looked_at_as_well() -> None:
    mine = {"type": "function", "name": "mine"}
    hosted = {"type": "web_search"}
    given = items(
        {"type": "additional_tools", "role": "developer", "tools": [hosted]},
        {"type": "additional_tools", "role": "developer", "tools": [hosted, mine]},
        {"type": "tool_search_output", "execution": "client", "tools": [mine, hosted]},
    )
    assert APIS["openai"].request(given).body["input"] == [
        {"type": "additional_tools", "role": "developer", "tools": [mine]},
        {"type": "tool_search_output", "execution": "client", "tools": [mine]},
    ]


@pytest.mark.parametrize("shell", [{"type": "shell"}, {"type": "shell", "environment": {"type": "local"}}])
def test_the_agents_own_shell_stays(shell: dict[str, Any]) -> None:
    assert APIS["openai"].request({"model": "m", "tools": [shell]}).body["tools"] == [shell]


def test_what_asks_for_nothing_does_no_harm() -> None:
    """Clients write out what they do not use; a refusal of it would end runs for nothing."""
    given = {**ASK, "mcp_servers": [], "container": None, "service_tier": "auto", "new": False, "top_k": 0}
    assert APIS["anthropic"].request(given).body == {**ASK, "top_k": 0}
    assert APIS["openai"].request(items(background=False, previous_response_id=None)).body == items()


def test_a_name_in_a_header_is_passed_on_if_it_is_known() -> None:
    given = {
        "anthropic-beta": "claude-code-20250219, mcp-client-2025-11-20,files-api-2025-04-14,effort-2025-11-24,fast-mode-2026-02-01",
        "anthropic-version": "2023-06-01",
        "openai-beta": "responses=experimental, realtime=v1",
        "x-api-key": "placeholder",
        "anthropic-organization": "x",
    }
    assert APIS["anthropic"].headers(given, "key") == {
        "anthropic-beta": "claude-code-20250219,effort-2025-11-24",
        "anthropic-version": "2023-06-01",
        "openai-beta": "responses=experimental",
        "content-type": "application/json",
        "x-api-key": "key",
    }
    assert set(APIS["anthropic"].headers({"anthropic-beta": "files-api-2025-04-14"}, "k")) == {
        "content-type",
        "x-api-key",
    }


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([AWAY, "text", "url", "base64", "container_auto"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "url",
                    "source",
                    "content",
                    "data",
                    "image_url",
                    "file_url",
                    "tools",
                    "environment",
                    "output",
                    "role",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_OPAQUE = ("input", "arguments", "text", "role", "id")


def _addresses(value: Any, name: str = "") -> list[str]:
    """The names of members under which an address stands."""
    if isinstance(value, dict):
        return [found for key, each in value.items() for found in _addresses(each, key)]
    if isinstance(value, list):
        return [found for each in value for found in _addresses(each, name)]
    return [name] if value == AWAY else []


@given(
    api=st.sampled_from(["anthropic", "openai"]),
    member=st.sampled_from(["messages", "input", "tools", "system", "new", "container", "context_management"]),
    kind=st.sampled_from(
        ["text", "image", "document", "tool_result", "message", "input_image", "function_call_output"]
    ),
    value=_VALUES,
)
@settings(max_examples=200, deadline=None)
def test_no_address_goes_out_where_a_provider_would_follow_it(api: str, member: str, kind: str, value: Any) -> None:
    """Drawn: whatever is put where. What comes through is text, or a word about it."""
    inner = {**value, "type": kind} if isinstance(value, dict) else value
    for drawn in (value, [inner], [{"role": "user", "content": [inner]}], [{"type": kind, "content": [inner]}]):
        try:
            body = APIS[api].request({"model": "m", member: drawn}).body
        except UnfitError:
            continue
        assert not {"url", "image_url", "file_url", "source"} & set(_addresses(body))


def test_what_is_no_text_counts_at_its_most() -> None:
    def tokens(api: str, body: dict[str, Any]) -> int:
        found = APIS[api].request(body)
        return found.weight.tokens(json.dumps(body, ensure_ascii=False).encode())

    data = "A" * 400_000
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}}
    written = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x" * 4000}}
    # Of a picture its size says nothing, in either direction.
    assert IMAGE_TOKENS <= tokens("anthropic", user(image)) <= IMAGE_TOKENS + 200
    assert 2 * IMAGE_TOKENS <= tokens("anthropic", user(image, within(image))) <= 2 * IMAGE_TOKENS + 200
    assert tokens("anthropic", user(document)) >= DOCUMENT_TOKENS
    assert tokens("anthropic", user(within(document))) >= DOCUMENT_TOKENS
    assert 2000 <= tokens("anthropic", user(written)) <= 2200
    # Of rare letters a tokenizer may know the bytes alone.
    assert tokens("anthropic", user({"type": "text", "text": "\u1fae" * 1000})) >= 3000
    assert tokens("openai", items({"role": "user", "content": "\U00013000" * 1000})) >= 4000
    shown = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    filed = {"type": "input_file", "filename": "x.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}
    assert tokens("openai", items({"role": "user", "content": [shown]})) >= IMAGE_TOKENS
    assert tokens("openai", items({"type": "function_call_output", "output": [shown]})) >= IMAGE_TOKENS
    assert tokens("openai", items({"role": "user", "content": [filed]})) >= DOCUMENT_TOKENS


@pytest.mark.parametrize("kind", ["document", "image"])
async def test_documents_at_once_spend_no_more_than_the_limit_and_one_input(kind: str) -> None:
    """Few bytes may be read as 200,000 tokens: sixteen of them at once spent twenty-five times the limit."""
    read = 200_000 if kind == "document" else IMAGE_TOKENS
    block = {"type": kind, "source": {"type": "base64", "media_type": "x/y", "data": PNG}}
    with model_api(lambda body: answer(read_tokens=read, written=body["max_tokens"])) as api:
        async with asking(api, 0.1) as agent:
            found = await asyncio.gather(*(agent.post(user(block)) for _ in range(16)))
            price = price_of(MODEL, {})
            assert price is not None
            assert agent.meter.spent_usd <= 0.1 + price.usd(TokenUse(read, 16))
    assert {each.status_code for each in found} == {200, 402}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_counting_is_as_closed_as_asking(path: str) -> None:
    """It costs nothing, and a provider that counts a picture's tokens fetches it."""
    with model_api() as api:
        async with asking(api) as agent:
            refused = await agent.post(user(IMAGE), path)
            assert (refused.status_code, api.requests) == (400, [])
            assert "messages[0].content[0].source" in refused.json()["error"]["message"]
            assert agent.told[-1] == {"refused": "form"}
            assert (await agent.post(user({"type": "text", "text": "x"}), path)).status_code == 200
        assert len(api.requests) == 1
