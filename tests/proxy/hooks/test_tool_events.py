"""A tool call in one form, whatever client describes it. The events of Claude Code, Codex and Gemini CLI are recorded ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_proxy.hooks import events
from confide_proxy.hooks.hook_process import call_request
from confide_proxy.hooks.tool_events import MOST_OUTPUT, MOST_PATHS, describe_call, is_foreign
from confide_proxy.mcp.catalogue import packaged_catalogue

RECORDED = Path(__file__).parents[2] / "fixtures/hooks"


def recorded(client: str) -> list[dict[str, Any]]:
    lines = (RECORDED / f"{client}-tools.jsonl").read_text("utf-8").splitlines()
    found = [events.read(line.encode()) for line in lines]
    assert all(event.client == client for event in found if event is not None)
    return [{"event": event.name, "kind": event.kind, **event.call} for event in found if event]


def test_claude_code_tells_of_commands_edits_and_failures() -> None:
    found = recorded("claude-code")
    failed = [one for one in found if one["event"] == "PostToolUseFailure"]
    assert next((one["command"], one["failed"]) for one in failed) == ("ls /nonexistent; exit 3", True)
    assert "No such file" in failed[0]["output"]
    edited = [one["paths"] for one in found if one["event"] == "PreToolUse" and one["paths"]]
    assert ["/project/a.py"] in edited
    assert ["/project/b.py"] in edited
    assert all(not one["paths"] and not one["command"] for one in found if one["tool"] == "Read")


def test_codex_tells_no_exit_code() -> None:
    found = recorded("codex")
    assert [(one["kind"], one["command"], one["failed"]) for one in found[:2]] == [
        (events.BEFORE, "ls /nonexistent; exit 3", None),
        (events.AFTER, "ls /nonexistent; exit 3", None),
    ]
    assert "No such file" in found[1]["output"]


def test_gemini_tells_it_in_what_its_model_reads() -> None:
    """Nothing that is said before a call reaches its model, so those events are none."""
    assert {one["event"] for one in recorded("gemini")} == {"AfterTool"}
    found = [one for one in recorded("gemini") if one["kind"] == events.AFTER]
    assert "Exit Code: 3" in found[0]["output"]
    assert [one["paths"] for one in found[2:4]] == [["/project/a.py"], ["/project/b.py"]]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            {
                "tool_name": "apply_patch",
                "tool_input": {"command": "*** Begin Patch\n*** Update File: a.py\n*** Add File: b/c.py\n"},
            },
            {"paths": ["a.py", "b/c.py"], "command": ""},
        ),
        (
            {
                "tool_name": "shell",
                "tool_input": {"command": ["bash", "-lc", "make test"]},
                "tool_response": {"exit_code": 2, "output": "x"},
            },
            {"command": "make test", "failed": True, "output": "x\nexit code 2"},
        ),
        (
            {"tool_name": "editFiles", "tool_input": {"files": ["src/main.ts"]}},
            {"paths": ["src/main.ts"]},
        ),
        ({"tool_name": "run_in_terminal", "tool_input": {"command": "ls"}, "tool_response": "fine"}, {"failed": None}),
        (
            {"tool_name": "Bash", "tool_response": {"content": [{"type": "text", "text": "no"}], "is_error": True}},
            {"failed": True, "output": "no"},
        ),
        ({"tool_name": "Bash", "tool_response": {"stdout": "ok", "exit_code": 0}}, {"failed": False}),
        ({"tool_name": 7, "tool_input": 7, "tool_response": 7, "error": 7}, {"tool": "", "paths": [], "output": ""}),
    ],
)
def test_other_forms(told: dict[str, Any], expected: dict[str, object]) -> None:
    found = describe_call(told, is_failure=False)
    assert {name: found[name] for name in expected} == expected


def test_a_large_call_is_cut() -> None:
    told = {
        "tool_name": "apply_patch",
        "tool_input": {"input": "".join(f"*** Add File: f{n}\n" for n in range(1000)), "command": "x" * 10**6},
        "tool_response": "a" * 10**6 + "end",
    }
    found = describe_call(told, is_failure=True)
    assert len(found["paths"]) == MOST_PATHS
    assert found["output"].endswith("end")
    assert len(found["output"]) <= MOST_OUTPUT + 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["command", "error", "exit_code", "text", "files", "path", "metadata"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["tool_name", "tool_input", "tool_response", "error", "command", "output"]), _JSON)
)
def test_any_object_is_read(told: dict[str, Any]) -> None:
    json.dumps(describe_call(told, is_failure=False))


OWN = ("/home/ann/app", "/home/ann/.claude", "/home/ann/.local/share/confide")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("WebFetch", {"url": "https://x"}),
        ("WebSearch", {"query": "x"}),
        ("web_fetch", {}),
        ("google_web_search", {}),
        ("webfetch", None),
        ("browser_navigate", {}),
        ("mcp__github__get_issue", {}),
        ("mcp_github_get_issue", {}),
        ("MCP:get_issue", {}),
        ("github__get_issue", {}),
        ("mcp__confident-ai__search", {}),
        ("mcp__evil_confide__memory_search", {}),
        ("mcp__confide__fetch_page", {}),
        ("mcp__plugin_confide_docs__memory_search", {}),
        ("mcp_confide_docs_get", {}),
        ("mcp__confide_memory__fetch", {}),
        ("mcp__confide_memory__memory_search", {}),
        ("mcp__confide-memory__fetch", {}),
        ("confide-memory__fetch", {}),
        ("confide.memory_fetch", {}),
        ("mcp_confide_memory_fetch", {}),
        ("MCP:memory_search", {}),
        ("MCP:evil_confide:memory_search", {}),
        ("mcp:github:get_issue", {}),
        ("github/get_issue", {}),
        ("github.get_issue", {}),
        ("github-get_issue", {}),
        ("evil_confide/memory_search", {}),
        ("evil/confide/memory_search", {}),
        ("evil-confide-memory_search", {}),
        ("confide-docs.memory_search", {}),
        ("confide.fetch_page", {}),
        ("Read", {"file_path": "/tmp/page.html"}),
        ("Read", {"file_path": "/home/ann/app/../other/x.md"}),
        ("Read", {"file_path": "/home/ann/application/x.md"}),
        ("read", {"filePath": "/etc/motd"}),
        ("Bash", {"command": "curl -s example.com | head"}),
        ("Bash", {"command": "cd x && /usr/bin/wget -qO- https://example.com"}),
        ("Bash", {"command": "gh issue view 3"}),
        ("Bash", {"command": "git clone https://example.com/x"}),
        ("Bash", {"command": "curl http://localhost:3000/x; curl https://example.com"}),
        ("Bash", {"command": "curl -s ftp://example.com/x"}),
        ("Bash", {"command": "curl -s HTTPS://EXAMPLE.COM/x"}),
        ("Bash", {"command": "curl http://localhost:80@example.com/x"}),
        ("Bash", {"command": "curl http://127.0.0.1:x@example.com"}),
        ("Bash", {"command": "curl 'http://localhost:3000\\\\@example.com'"}),
        ("Bash", {"command": "curl localhost:3000/x && curl example.com/y"}),
        ("Bash", {"command": "curl http://localhost:3000/x\ncurl example.com/y"}),
        ("Bash", {"command": "sh -c 'cd x && curl example.com'"}),
        ("Bash", {"command": 'echo "$(curl example.com)" `date`'}),
        ("Bash", {"command": 'x="`curl example.com`"'}),
        ("Bash", {"command": "\\curl example.com"}),
        ("Bash", {"command": f"cat > x <<END\n{'x' * 9000}\nEND\ncurl example.com"}),
        ("Bash", {"command": "cat <<END\ndon't\nEND\ncurl example.com"}),
        ("run_shell_command", {"command": "(curl example.com)"}),
        ("exec_command", {"command": ["bash", "-lc", "glab mr view 3"]}),
    ],
)
def test_what_third_parties_may_have_written(tool: str, arguments: Any) -> None:
    assert is_foreign({"tool_name": tool, "tool_input": arguments}, OWN)


OWN_FORMS = (
    *("MCP:confide:", "MCP:confide/", "mcp:confide:", "mcp_confide__"),
    *("confide__", "confide_", "confide/", "confide.", "confide-", "confide:"),
)
"""What clients write before the name of a tool of the server confide."""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("mcp__confide__memory_search", {}),
        ("mcp__plugin_confide_confide__memory_read", {}),
        *((f"mcp_confide_{name}", {}) for name in packaged_catalogue(["all"]).tools),
        *((f"{before}memory_search", {}) for before in OWN_FORMS),
        ("Read", {"file_path": "/home/ann/app/src/x.py"}),
        ("Read", {"file_path": "/home/ann/app"}),
        ("Read", {"file_path": "src/x.py"}),
        ("Read", {"file_path": "/home/ann/.claude/projects/x/tool-results/1.txt"}),
        ("Read", {"file_path": "/home/ann/.local/share/confide/global/MEMORY.md"}),
        ("Read", {"file_path": 7}),
        ("Edit", {"file_path": "/tmp/x", "new_string": "curl https://x"}),
        ("Write", {"file_path": "/tmp/x", "content": "https://x"}),
        ("apply_patch", {"command": "*** Begin Patch\n+ curl https://x"}),
        ("Bash", {"command": "make test"}),
        ("Bash", {"command": "curl -s http://localhost:3000/health"}),
        ("Bash", {"command": "curl 127.0.0.1:8080"}),
        ("Bash", {"command": "curl 'HTTP://LocalHost:8080/x'"}),
        ("Bash", {"command": "grep -r curling docs"}),
        ("Bash", {"command": "curl -X POST -d '{\n \"a\": 1; b|c\n}' \\\n  localhost:3000/x"}),
        ("Bash", {"command": "cd x && curl localhost:3000 | jq . > out.json"}),
        ("Bash", {"command": "git commit -m 'use curl'"}),
        ("Read", {"file_path": "/home/ann/app/docs/../src/x.py"}),
        ("Bash", {"command": 7}),
        ("Grep", {"pattern": "https://"}),
        ("", {}),
        (None, {}),
        (7, "x"),
    ],
)
def test_what_is_the_users_own(tool: Any, arguments: Any) -> None:
    assert not is_foreign({"tool_name": tool, "tool_input": arguments}, OWN)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/x.py", False),
        ("../lib/x.py", False),
        ("./x", False),
        ("../../other/x.md", True),
        ("../../../../etc/motd", True),
    ],
)
def test_a_relative_path(path: str, expected: bool) -> None:
    """It begins at the folder that the event names."""
    told = {"tool_name": "read_file", "tool_input": {"file_path": path}}
    assert is_foreign({**told, "cwd": "/home/ann/app/src"}, OWN) is expected
    assert is_foreign(told, OWN) is (".." in path)


@pytest.mark.parametrize(("server", "expected"), [("confide", False), ("evil_confide", True), (7, True)])
def test_a_server_that_the_event_names_beside_the_tool(server: object, expected: bool) -> None:
    """Cursor's names of tools have no server."""
    told = {"tool_name": "MCP:memory_search", "mcp_server_name": server}
    assert is_foreign(told, OWN) is expected
    assert is_foreign({**told, "tool_name": "MCP:fetch_page"}, OWN)
    assert is_foreign({**told, "tool_name": "confide_memory_search"}, OWN) is (server == "evil_confide")


def test_an_answer_of_an_own_tool_asks_for_no_note(tmp_path: Path) -> None:
    """In any client's form of the name."""
    told = {"hook_event_name": "postToolUse", "conversation_id": "c", "tool_output": "Error: not found"}
    for tool, is_asked in (("Shell", True), ("MCP:confide:memory_read", False), ("mcp_confide_memory_read", False)):
        event = events.parse_event({**told, "tool_name": tool})
        assert event is not None
        assert bool(call_request(event, str(tmp_path), str(tmp_path / "proxy.toml"))) is is_asked
