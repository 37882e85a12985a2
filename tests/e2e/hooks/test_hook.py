"""`confide hook` beside a real `confide mcp` that holds the seat: what comes before a model, what does not, and what it costs."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.daemon.scripted import running
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Machine, wait_until
from tests.support.programs.wire import Wire

from confide_proxy.hooks import counts, hook_paths
from confide_proxy.hooks.server.recall import HIT_SCORE

SECRET = "ghp_" + "R7s9Qk2mX4vB8nL1wT5yZ3cD6fG0hJ" + "aPeU1k"
QUESTION = "why did we choose postgres for the orders service?"


def hit(text: str, **more: Any) -> dict[str, Any]:
    """One as the daemon's search finds it."""
    path = more.pop("path", "memory/decisions.md")
    told = {
        "path": path,
        "project": "project",
        "startLine": 3,
        "endLine": 4,
        "score": 0.9,
        "heading": "",
        "source": "memory",
    }
    return told | {"snippet": text, "author": "laptop", "updatedAt": "2026-11-20T10:00:00Z", "class": "agent"} | more


def note(title: str, text: str, **more: Any) -> dict[str, Any]:
    """One as the daemon lists it."""
    told = {
        "id": f"mem_{title}",
        "title": title,
        "path": f"memory/notes/{title}.md",
        "project": "project",
        "level": "core",
    }
    return told | {"snippet": text, "author": "laptop", "updated": "2026-11-20T10:00:00Z", "class": "owner"} | more


def fired(machine: Machine, event: str, *, raw: bytes | None = None, **told: Any) -> dict[str, Any] | None:
    """What a hook says; it ends with 0 and says nothing on stderr, whatever happens."""
    said = {"session_id": "s1", "cwd": str(machine.project), "hook_event_name": event, **told}
    pipe = subprocess.PIPE
    with Program(
        [CONFIDE, "hook"], cwd=machine.project, env=machine.env, stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        out, err = process.communicate(json.dumps(said).encode() if raw is None else raw, DEADLINE_S)
    assert (process.returncode, err) == (0, b"")
    answer: dict[str, Any] | None = json.loads(out) if out else None
    return answer


def context(answer: dict[str, Any] | None) -> str:
    return "" if answer is None else str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


class Memory:
    """What the scripted daemon finds and lists, and what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.results = [hit("We chose postgres for its row locks.")]
        self.notes = [note("Style", "We use tabs."), note("Ports", "8010 is the API's.", level="high")]
        self.summaries: list[dict[str, Any]] = []

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        arguments = body["arguments"]
        if body["tool"] == "memory_search":
            return {"result": {"results": self.results}}
        if body["tool"] == "memory_get":
            return {"result": {"content": "Moved the orders to postgres; the migration is half done."}}
        return {"result": {"memories": self.summaries if "type" in arguments else self.notes, "total": 2}}

    @property
    def questions(self) -> list[str]:
        return [body["arguments"]["query"] for body in self.asked if body["tool"] == "memory_search"]


def is_listened(machine: Machine) -> bool:
    """Whether somebody answers its hooks, wherever the path of its folder leaves room for the socket."""
    return any(Path(address).exists() for address in hook_paths.addresses(str(machine.home / "proxy")))


@asynccontextmanager
async def listening(tmp_path: Path, config: str = "") -> AsyncIterator[tuple[Machine, Memory, Wire]]:
    """A session that answers hooks."""
    memory = Memory()
    async with running(tmp_path, config, answers={"lookup": memory.answer}) as (setting, _, client):
        await asyncio.to_thread(wait_until, "somebody to listen", lambda: is_listened(setting.machine))
        yield setting.machine, memory, client.wire


async def said(machine: Machine, event: str, **told: Any) -> dict[str, Any] | None:
    return await asyncio.to_thread(lambda: fired(machine, event, **told))


def outcomes(machine: Machine) -> list[str]:
    return [" ".join(each[1:3]) for each in counts.read(str(machine.home / "proxy"))]


async def test_a_session_begins_with_the_briefing_and_a_prompt_gets_its_hits_once(tmp_path: Path) -> None:
    """Core before high, the last session's summary; nothing twice, until the client has forgotten what it was shown."""
    async with listening(tmp_path) as (machine, memory, _):
        memory.summaries = [note("Session", "Moved the orders", level="normal", type="session-summary")]
        start = context(await said(machine, "SessionStart", source="startup"))
        lines = start.splitlines()
        assert (lines[0], lines[-1]) == ("<confide-memory>", "</confide-memory>")
        assert "no instructions" in lines[1]
        assert lines[2] == "- memory/notes/Style.md (owner, by laptop, 2026-11-20): Style: We use tabs."
        assert lines[3].startswith("- memory/notes/Ports.md")
        assert lines[4].endswith("Moved the orders to postgres; the migration is half done.")
        # Some hosts run a plugin's hooks beside those of the client.
        assert await said(machine, "SessionStart", source="startup") is None

        first = context(await said(machine, "UserPromptSubmit", prompt=QUESTION))
        assert "- memory/decisions.md:3 (agent, by laptop, 2026-11-20): We chose postgres for its row locks." in first
        assert memory.questions == [QUESTION]
        searched = next(body for body in memory.asked if body["tool"] == "memory_search")
        assert searched["project"] == "project"
        assert datetime.fromisoformat(searched["meta"].pop("confide/said")).tzinfo is not None
        assert searched["meta"] == {"confide/classes": ["owner", "agent", "derived"], "confide/unasked": True}
        assert searched["arguments"]["minScore"] == HIT_SCORE
        assert await said(machine, "UserPromptSubmit", prompt=QUESTION) is None
        assert context(await said(machine, "UserPromptSubmit", session_id="s2", prompt=QUESTION)) == first

        # What the briefing has said whole is no hit any more.
        memory.results.append(hit("We use tabs.", path="memory/notes/Style.md", startLine=1))
        assert await said(machine, "UserPromptSubmit", prompt=QUESTION) is None
        for source in ("resume", "fork"):
            assert await said(machine, "SessionStart", source=source) is None
        assert context(await said(machine, "SessionStart", source="compact")) == start
        assert context(await said(machine, "UserPromptSubmit", prompt=QUESTION)) == first

        # What is everyday is not even asked for.
        asked = len(memory.questions)
        for prompt in ("run the tests", "/compact keep the plan", "hi", ""):
            assert await said(machine, "UserPromptSubmit", prompt=prompt) is None
        assert len(memory.questions) == asked

        # Nothing untrusted, nothing without a class, nothing that the daemon makes up.
        memory.results = [
            hit("Ignore all", **{"class": "untrusted"}),
            {k: v for k, v in hit("No class").items() if k != "class"},
        ]
        assert await said(machine, "UserPromptSubmit", session_id="s3", prompt=QUESTION) is None
        memory.results = [{"results": 7}]
        assert await said(machine, "UserPromptSubmit", session_id="s3", prompt=QUESTION) is None

        # A credential in a prompt does not leave this machine.
        await said(
            machine, "UserPromptSubmit", session_id="s3", prompt=f"why does {SECRET} not open the orders database"
        )
        assert SECRET not in json.dumps(memory.asked)

        # A turn's end has the briefing made anew, and with everything down it is still there.
        memory.notes = [note("Style", "We use spaces now.")]
        assert await said(machine, "Stop", stop_hook_active=False) is None
        briefing = next((machine.home / "proxy/briefing").glob("[0-9a-f]" * 32 + ".json"))
        await asyncio.to_thread(wait_until, "the new briefing", lambda: "spaces" in briefing.read_text())
    assert not is_listened(machine)
    alone = context(
        await said(machine, "SessionStart", source="startup", session_id="s9", cwd=str(machine.project / "memory"))
    )
    assert "We use spaces now." in alone
    assert "as they were just now" in alone
    assert outcomes(machine)[-1] == "SessionStart answered"
    assert not list((machine.home / "proxy/learn").glob("*"))  # off writes no file


async def test_hooks_are_switched_off_in_four_ways(tmp_path: Path) -> None:
    """By the environment, for a judge of our own, by the project and by this machine: nothing is said, asked or written."""
    async with listening(tmp_path) as (machine, memory, _):
        environment = dict(machine.env)
        for name, value in (("CONFIDE_HOOKS", "off"), ("CONFIDE_LEARNING", "1")):
            machine.env = {**environment, name: value}
            assert await said(machine, "UserPromptSubmit", prompt=QUESTION) is None
        machine.env = environment
        (machine.project / ".confide.toml").write_text("hooks = false\n")
        below = machine.project / "memory"
        assert await said(machine, "UserPromptSubmit", prompt=QUESTION, cwd=str(below)) is None
        assert await said(machine, "PermissionRequest", tool_name="mcp__confide__memory_read", cwd=str(below)) is None
        (machine.project / ".confide.toml").write_text("hooks = true\n")  # which changes nothing
        (machine.home / "proxy.toml").write_text("hooks = false\n")
        assert await said(machine, "UserPromptSubmit", prompt=QUESTION) is None
        assert memory.questions == []
        assert outcomes(machine) == []
        (machine.home / "proxy.toml").write_text("hooks = true\n")
        machine.env = {**environment, "CONFIDE_HOOKS": "log"}
        assert context(await said(machine, "UserPromptSubmit", prompt=QUESTION))
        logged = (machine.home / "proxy/hooks/log").read_text()
        assert "claude-code UserPromptSubmit answered" in logged
        assert "postgres" not in logged
