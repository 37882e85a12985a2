"""What real clients sent (tests/fixtures/hooks) and what others document: which kind of event each is, and how it is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from confide_memory.tools.call import ASKS_A_PERSON
from confide_proxy.hooks import events
from confide_proxy.mcp.catalogue import packaged_catalogue

RECORDED = Path(__file__).parents[2] / "fixtures" / "hooks"
EXPECTED = {
    "claude-code": "start prompt permission pointer pointer start prompt pointer summariser start pointer pointer pointer",
    "codex": "start prompt permission pointer pointer",
    "gemini": "start prompt pointer pointer pointer pointer pointer",
}


def read(told: dict[str, Any]) -> events.HookEvent:
    event = events.read(json.dumps(told).encode())
    assert event is not None
    return event


@pytest.mark.parametrize("client", sorted(EXPECTED))
def test_what_a_real_client_sent_is_understood(client: str) -> None:
    """Who it is, where it works, which session it is, and what each of its events is."""
    found = [read(json.loads(line)) for line in (RECORDED / f"{client}.jsonl").read_text().splitlines()]
    assert " ".join("summariser" if each.is_summariser else each.kind for each in found) == EXPECTED[client]
    assert {each.client for each in found} == {client}
    assert {each.cwd for each in found} == {"/project"}
    assert all(each.session and each.transcript for each in found)
    assert all("postgres" in each.prompt for each in found if each.kind == events.PROMPT)
    assert all(each.is_allowed for each in found if each.kind == events.PERMISSION)
    assert {each.source for each in found if each.kind == events.START} <= {"startup", "compact"}
    summaries = [each.more["compact_summary"] for each in found if each.name == "PostCompact"]
    assert all(summaries)
    assert len(summaries) == (client == "claude-code")


def test_clients_that_cannot_be_run_here_are_understood_as_they_document_it() -> None:
    told = {"client": "opencode", "session_id": "a", "cwd": "/p"}
    opencode = read({**told, "hook_event_name": "UserPromptSubmit", "prompt": "x"})
    assert (opencode.client, opencode.kind, opencode.prompt) == ("opencode", events.PROMPT, "x")
    compacted = read({**told, "hook_event_name": "SessionStart", "source": "compact"})
    assert (compacted.kind, compacted.source) == (events.START, "compact")
    cursor = read(
        {"conversation_id": "c", "cursor_version": "2", "hook_event_name": "sessionStart", "workspace_roots": ["/p"]}
    )
    assert (cursor.client, cursor.kind, cursor.cwd, cursor.session) == ("cursor", events.START, "/p", "c")
    code = read({"sessionId": "v", "hookEventName": "SessionStart", "cwd": "/p", "source": "new"})
    assert (code.client, code.kind, code.session) == ("vscode", events.START, "v")


def test_each_client_gets_the_form_that_it_reads() -> None:
    start = read({"hook_event_name": "SessionStart", "session_id": "s"})
    said = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "ctx"}}
    assert events.answer(start, "ctx", "") == said
    assert events.answer(start, "ctx", "do it") == {"systemMessage": "do it", **said}
    assert events.answer(start, "", "") == {}
    cursor = read({"conversation_id": "c", "hook_event_name": "sessionStart"})
    assert events.answer(cursor, "ctx", "do it") == {"additional_context": "ctx"}
    asked = read({"hook_event_name": "PermissionRequest", "tool_name": "mcp__confide__memory_read"})
    assert events.allowing(asked)["hookSpecificOutput"]["decision"] == {"behavior": "allow"}


def test_what_runs_without_a_person_is_what_reads_or_adds() -> None:
    """Of our own tools alone, by their whole names; what opens or destroys is left to the client, and to a person."""
    tools = packaged_catalogue(["all"])
    reading = set(tools.read_only)
    assert reading == events.ALLOWED
    assert not {name for name, tool in tools.tools.items() if tool["_meta"].get(ASKS_A_PERSON)} & events.ALLOWED

    def is_allowed(tool: Any) -> bool:
        return read({"hook_event_name": "PermissionRequest", "tool_name": tool}).is_allowed

    assert is_allowed("mcp__plugin_confide_confide__memory_search")
    for tool in (
        *("Bash", "memory_search", "mcp__other__memory_search", "mcp__confide2__memory_search", "", None, ["x"]),
        *("mcp__confide__secret_get", "mcp__confide__memory_delete", "mcp__confide__memory_search_all"),
        *("xmcp__confide__memory_search", "mcp__confide__memory_update", "mcp__confide__memory_store"),
    ):
        assert not is_allowed(tool), tool


@pytest.mark.parametrize(
    ("arguments", "is_allowed"),
    [
        ({"content": "x"}, True),
        ({"content": "x", "title": "A note", "path": "", "mode": None}, True),
        ({"content": "x", "path": "memory/2026-11-28.md", "mode": "append"}, True),
        ({"content": "x", "mode": "replace"}, False),
        ({"content": "x", "path": "memory/2026-11-28.md", "mode": "replace"}, False),
        ({"content": "x", "path": "memory/decisions.md"}, False),
        ({"content": "x", "path": "MEMORY.md", "mode": "append"}, False),
        ({"content": "x", "path": "memory/CLAUDE.md"}, False),
        ({"content": "x", "path": "memory/../2026-11-28.md"}, False),
        ({"content": "x", "path": "memory/\u0662026-11-28.md"}, False),
        ({"content": "x", "path": ["memory/2026-11-28.md"]}, False),
        ({"content": "x", "mode": ["append"]}, False),
        ({"content": "x", "relatedTo": ["mem_a"], "relation": "see_also"}, True),
        ({"content": "x", "relatedTo": ["mem_a"], "relation": "supersedes"}, False),
        ({"content": "x", "relatedTo": ["mem_a"], "relation": ["supersedes"]}, False),
        ("x", False),
        (None, False),
    ],
)
def test_a_store_runs_without_a_person_where_it_only_adds(arguments: Any, is_allowed: bool) -> None:
    """A place of its own, or in the place of other words, is for a person to allow: an order in a page may have asked for it."""
    asked = {"hook_event_name": "PermissionRequest", "tool_name": "mcp__confide__memory_store", "tool_input": arguments}
    assert read(asked).is_allowed == is_allowed


def test_what_is_no_event_is_none() -> None:
    """Unknown ones are nothing; what is no object is no JSON of a client's."""
    for told in (
        {},
        {"hook_event_name": "PostToolBatch"},
        {"hook_event_name": "BeforeTool"},
        {"hook_event_name": "beforeShellExecution"},
        {"hook_event_name": 7},
        {"hook_event_name": "beforeSubmitPrompt"},
    ):
        assert events.read(json.dumps(told).encode()) is None
    for data in (b"", b"[]", b"7", b"{", b'"Stop"', b"\xff\xfe", b"{" * 100_000):
        with pytest.raises((ValueError, RecursionError)):
            events.read(data)
    odd = read({"hook_event_name": "Stop", "session_id": 7, "cwd": [], "transcript_path": None, "workspace_roots": [7]})
    assert (odd.session, odd.cwd, odd.transcript, odd.more) == ("", "", "", {})
