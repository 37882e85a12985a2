"""Tool calls about which a client's own process asks: answered, marked and switched off as with the hook's process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from confide_proxy.hooks import counts
from confide_proxy.hooks.server.seat import ClientEvents
from confide_proxy.paths import ProxyPaths

PID = 4711


class Recall:
    """One that answers each request with a note, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(dict(asked))
        return {"context": "a note"}


class Here:
    def __init__(self, root: Path) -> None:
        self.recall: Any = Recall()
        self.state = root / "state"
        self.state.mkdir()
        self.project = root / "project"
        self.project.mkdir()
        (self.project / ".git").mkdir()
        self.config = root / "proxy.toml"
        self._events = ClientEvents(ProxyPaths(self.config, self.state, root / "global", root / "daemon"), self.recall)

    async def answer(self, tool: str, more: Mapping[str, Any] | None = None, **given: object) -> dict[str, object]:
        event = {"hook_event_name": "PostToolUse", "client": "opencode", "session_id": "s1", "cwd": str(self.project)}
        asked = {"event": {**event, "tool_name": tool, "tool_input": given}, "ms": 250, "pid": PID}
        return await self._events.answer({**asked, **(more or {})})

    @property
    def marks(self) -> str:
        file = self.state / "hooks/foreign"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


async def test_a_call_is_answered_in_the_form_of_the_hook_and_counted(here: Here) -> None:
    said = await here.answer("bash", command="make test")
    assert said == {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "a note"}}
    asked = here.recall.asked[0]
    assert (asked["kind"], asked["command"], asked["ms"], asked["client"]) == ("after", "make test", 250, "opencode")
    assert [line[1:3] for line in counts.read(str(here.state))] == [("PostToolUse", counts.ANSWERED)]


async def test_text_of_third_parties_marks_the_client_that_asks(here: Here) -> None:
    for tool, given in (("read", {"filePath": str(here.project / "a.py")}), ("confide_memory_search", {})):
        assert await here.answer(tool, **given) == {}
        assert here.marks == ""
    for tool in ("webfetch", "github_get_issue"):
        assert await here.answer(tool) == {}
    assert here.marks == f"+ s:s1 p:{PID}\n"


@pytest.mark.parametrize("place", ["proxy.toml", "project/.confide.toml"])
async def test_switches_hold(here: Here, place: str) -> None:
    (here.config.parent / place).write_text("action_hooks = false\n")
    assert await here.answer("bash", command="curl https://example.com") == {}
    assert here.marks
    (here.state / "hooks/foreign").unlink()
    (here.config.parent / place).write_text("hooks = false\n")
    assert await here.answer("bash", command="curl https://example.com") == {}
    assert (here.marks, here.recall.asked) == ("", [])


async def test_odd_requests_mark_no_process_and_others_go_on_to_the_recall(here: Here) -> None:
    for pid in (-1, 0, 2**40, "7", None, [1]):
        await here.answer("webfetch", {"pid": pid})
    assert f"p:{PID}" not in here.marks
    assert await here.answer("bash", {"event": {"hook_event_name": "Stop", "cwd": "/x"}}) == {}
    assert here.recall.asked == []
    assert await here.answer("bash", {"event": None, "kind": "turn"}) == {"context": "a note"}
