"""The plugin's files are what the clients read: valid, silent without `confide`, of one version, and of no cost until somebody types."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import BIN

import confide_proxy
from confide_proxy import VERSION

ROOT = Path(__file__).parents[3]
PLUGIN = Path(confide_proxy.__file__).parent / "plugin"
LINE = "command -v confide >/dev/null && exec confide hook; exit 0"
BESIDE = "exec 3<&0; { command -v confide >/dev/null && exec confide hook; } <&3 >/dev/null 2>&1 & exit 0"
"""Where nothing is ever answered, and the client need not wait."""
MARKS = BESIDE.replace("exec confide", "exec env CONFIDE_CLIENT_PID=$PPID confide")
"""Where only a mark is made, about the client's process."""
SKILLS = {"remember", "recall", "learned"}
NEVER_UNASKED = {"secret_get", "memory_delete", "memory_dedupe", "memory_forget"}


def read(name: str) -> Any:
    return json.loads((PLUGIN / name).read_text("utf-8"))


def commands(hooks: dict[str, list[dict[str, Any]]]) -> dict[str, list[tuple[str, float]]]:
    """What runs at each event, and for how long at most; entries stand in groups, or directly."""
    flat = {
        event: [each for group in groups for each in group.get("hooks", [group])] for event, groups in hooks.items()
    }
    return {event: [(each["command"], each["timeout"]) for each in entries] for event, entries in flat.items()}


def test_one_line_answers_every_event_of_every_client() -> None:
    """In the shell form, 5 s and at a session's end 1; Gemini counts in milliseconds. The ends of turns and sessions are not waited for."""
    assert commands(read("hooks/hooks.json")["hooks"]) == {
        **{
            event: [(LINE, 5)]
            for event in (
                *("SessionStart", "UserPromptSubmit", "PermissionRequest", "PreCompact", "PostCompact"),
                *("SubagentStop", "PreToolUse", "PostToolUseFailure"),
            )
        },
        "PostToolUse": [(MARKS, 5)],
        "Stop": [(BESIDE, 5)],
        "SessionEnd": [(BESIDE, 1)],
    }
    assert commands(read("gemini/hooks/hooks.json")["hooks"]) == {
        **{event: [(LINE, 5000)] for event in ("SessionStart", "BeforeAgent", "AfterAgent", "PreCompress")},
        "AfterTool": [(LINE, 5000), (LINE, 5000)],
        "SessionEnd": [(LINE, 1000)],
    }
    assert commands(read("cursor/hooks.json")["hooks"]) == {
        event: [(LINE, 5)] for event in ("sessionStart", "postToolUse", "preCompact", "stop")
    }
    assert commands(read("vscode/hooks.json")["hooks"]) == {
        event: [(LINE, 5)] for event in ("SessionStart", "PreToolUse", "PostToolUse", "PreCompact", "Stop")
    }
    shared, codex = read("hooks/hooks.json")["hooks"], read("codex/hooks.json")["hooks"]
    assert {**shared, "PostToolUse": codex["PostToolUse"]} == {
        **codex,
        "PostToolUseFailure": shared["PostToolUseFailure"],
    }
    text = "".join((PLUGIN / name).read_text() for name in ("hooks/hooks.json", "gemini/hooks/hooks.json"))
    assert "async" not in text, "one is killed when a session of one prompt ends, and Codex runs none"


def test_a_resumed_session_starts_no_hook() -> None:
    """The client replays what it had been told: a second briefing would stand there twice."""
    matcher = re.compile(read("hooks/hooks.json")["hooks"]["SessionStart"][0]["matcher"])
    assert [source for source in ("startup", "resume", "fork", "clear", "compact") if matcher.fullmatch(source)] == [
        *("startup", "clear", "compact")
    ]


def test_permission_is_asked_of_us_for_our_tools_alone() -> None:
    """In both forms of installation."""
    matcher = re.compile(read("hooks/hooks.json")["hooks"]["PermissionRequest"][0]["matcher"])
    assert all(matcher.fullmatch(f"mcp__{server}__memory_store") for server in ("confide", "plugin_confide_confide"))
    assert not any(map(matcher.fullmatch, ("Bash", "mcp__other__memory_store", "Write")))


def test_without_confide_the_hooks_say_nothing(tmp_path: Path) -> None:
    """And with one they run it, with the event on stdin; whatever it ends with, the client sees 0."""
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", LINE],
        env={"PATH": str(empty)},
        input=b"{}" * 100_000,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    program = empty / "confide"
    program.write_text('#!/bin/sh\n[ "$*" = hook ] && read -r line && echo "answered $line"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", LINE], env={"PATH": str(empty)}, input=b'{"a": 1}\n', capture_output=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b'answered {"a": 1}\n', b"")


def test_the_end_of_a_turn_is_not_waited_for(tmp_path: Path) -> None:
    """The client has its 0 and the end of all output while the program still runs; that gets the event all the same."""
    for name in ("go", "said"):
        os.mkfifo(tmp_path / name)
    program = tmp_path / "confide"
    program.write_text('#!/bin/sh\nread -r line\nread -r go < go\necho "$* $line" > said\n')
    program.chmod(0o755)
    env = {"PATH": str(tmp_path)}
    done = subprocess.run(
        ["/bin/sh", "-c", BESIDE], cwd=tmp_path, env=env, input=b'{"a": 1}\n', capture_output=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (tmp_path / "go").write_text("go\n")
    assert (tmp_path / "said").read_text() == 'hook {"a": 1}\n'


def test_the_hooks_of_the_plugin_reach_the_real_program(tmp_path: Path) -> None:
    """Every event's line, as a client runs it: here a question about a tool of ours, which needs nobody else to answer."""
    (tmp_path / "proxy").mkdir(mode=0o700)
    tool = "mcp__plugin_confide_confide__memory_store"
    asked = {"hook_event_name": "PermissionRequest", "tool_name": tool, "tool_input": {"content": "x"}}
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "CONFIDE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    for tool, is_answered in ((asked["tool_name"], True), ("mcp__confide__secret_get", False)):
        told = json.dumps({**asked, "tool_name": tool, "cwd": str(tmp_path)}).encode()
        done = subprocess.run(["/bin/sh", "-c", LINE], env=env, input=told, capture_output=True, timeout=DEADLINE_S)
        assert (done.returncode, done.stderr) == (0, b"")
        assert (b'"behavior": "allow"' in done.stdout) == is_answered, done


def test_the_server_is_started_without_placeholders() -> None:
    """Codex expands none."""
    entry = {"confide": {"command": "confide", "args": ["mcp"]}}
    assert read(".mcp.json") == {"mcpServers": entry}
    assert read("gemini/gemini-extension.json")["mcpServers"] == entry
    assert "${" not in "".join(path.read_text("utf-8") for path in PLUGIN.rglob("*.json"))


def test_all_versions_are_that_of_the_package() -> None:
    """Clients that copy a plugin ask by its version whether theirs is old."""
    assert read(".claude-plugin/plugin.json")["version"] == VERSION
    assert read("gemini/gemini-extension.json")["version"] == VERSION


@pytest.mark.parametrize("marketplace", [ROOT, PLUGIN], ids=["of the repository", "of the package"])
def test_both_marketplaces_lead_to_this_folder(marketplace: Path) -> None:
    """`owner/repo` and the installed package offer the same plugin, under one name."""
    said = json.loads((marketplace / ".claude-plugin/marketplace.json").read_text("utf-8"))
    (plugin,) = said["plugins"]
    assert (said["name"], plugin["name"]) == ("confide", "confide")
    assert (marketplace / plugin["source"]).resolve() == PLUGIN.resolve()


@pytest.mark.parametrize("name", sorted(SKILLS))
def test_a_skill_costs_nothing_until_it_is_typed(name: str) -> None:
    """No model starts it by itself; it may call no tool that opens or destroys; Gemini has the same as a command."""
    head, body = (PLUGIN / "skills" / name / "SKILL.md").read_text("utf-8").split("---\n")[1:]
    told = yaml.safe_load(head)
    assert (told["name"], told["disable-model-invocation"]) == (name, True)
    policy = yaml.safe_load((PLUGIN / "skills" / name / "agents/openai.yaml").read_text("utf-8"))["policy"]
    assert policy == {"allow_implicit_invocation": False}
    tools = [each.split("__") for each in told["allowed-tools"].split(", ") if each.startswith("mcp__")]
    ours = {each[2] for each in tools}
    assert {tuple(each[1:]) for each in tools} == {
        (server, tool) for server in ("confide", "plugin_confide_confide") for tool in ours
    }
    assert not ours & NEVER_UNASKED
    command = tomllib.loads((PLUGIN / "gemini/commands/confide" / f"{name}.toml").read_text("utf-8"))
    assert command["description"] == told["description"]
    assert command["prompt"].strip() == body.strip().replace("$ARGUMENTS", "{{args}}")


def test_the_plugin_of_opencode_is_short() -> None:
    """Whoever installs it can read it."""
    assert len((PLUGIN / "opencode/confide.js").read_text("utf-8").splitlines()) <= 70


def test_a_shop_window() -> None:
    """What directories of plugins ask for: a README of 40 words, and an icon that is a small square image."""
    assert len((PLUGIN / "README.md").read_text("utf-8").split()) >= 40
    icon = (PLUGIN / "icon.png").read_bytes()
    width, height = struct.unpack(">II", icon[16:24])
    assert icon.startswith(b"\x89PNG\r\n\x1a\n")
    assert (width, height, len(icon) < 10_000) == (128, 128, True)
