"""A suggestion as a question: which one, in what words, and what a choice does; the daemon is played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide_learn.local import suggestion_questions
from confide_learn.local.suggestions import Suggestion, Suggestions
from confide_proxy import config as configuration
from confide_proxy.hooks.server.pending_decisions import DecisionPlace
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project

FOUND = Suggestion("3f9a2c1b", "Run make\x1b[2J style.", "", "preference", "shop", "/x/shop", "s", "claude", "rules", 1)
STORED = {"id": "mem_1", "path": "memory/notes/a.md", "linesWritten": 1, "duplicates": []}


class Here:
    """A machine that learns, and the tools that were called."""

    def __init__(self, root: Path) -> None:
        file = root / "proxy.toml"
        file.write_text('[learn]\nmode = "suggest"\n')
        paths = ProxyPaths(file, root / "proxy", root / "global", root / "daemon")
        self.suggestions = Suggestions(paths.learn)
        self.calls: list[str] = []
        self.said: list[str] = []
        project = Project("shop", root, is_git=False)
        self.place = DecisionPlace(paths, configuration.load(file), project, self.connect, self.said.append)

    @asynccontextmanager
    async def connect(self, _project: Project) -> AsyncIterator[Any]:
        yield self

    async def call(self, tool: str, _arguments: dict[str, Any], **_more: Any) -> dict[str, Any]:
        self.calls.append(tool)
        return STORED

    def states(self) -> list[str]:
        return [each.state for each in self.suggestions.all()]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.mark.parametrize(
    ("choice", "state", "tools"), [("keep", "stored", ["memory_store"]), ("refuse", "refused", [])]
)
async def test_the_oldest_is_asked(here: Here, choice: str, state: str, tools: list[str]) -> None:
    here.suggestions.add(FOUND)
    here.suggestions.add(replace(FOUND, id="11111111", text="Deploy from the release branch.", at=2))
    (decision,) = await suggestion_questions.pending(here.place)
    assert decision.question.text.endswith("Run make?[2J style.")
    assert [each.name for each in decision.question.choices] == ["keep", "refuse"]
    await decision.carry_out(choice)
    assert here.states() == [state, "waiting"]
    assert here.calls == tools
    (after,) = await suggestion_questions.pending(here.place)
    assert "release branch" in after.question.text


async def test_one_that_was_decided_meanwhile_stays(here: Here) -> None:
    here.suggestions.add(FOUND)
    (decision,) = await suggestion_questions.pending(here.place)
    here.suggestions.put(replace(FOUND, state="refused"))
    await decision.carry_out("keep")
    assert here.states() == ["refused"]
    assert not here.calls


async def test_others_are_not_asked(here: Here) -> None:
    """Of another project, or too long for a question; none where learning is off."""
    here.suggestions.add(replace(FOUND, project="other"))
    here.suggestions.add(replace(FOUND, id="11111111", text="x" * (suggestion_questions.MOST_SHOWN + 1)))
    assert await suggestion_questions.pending(here.place) == []
    here.suggestions.add(FOUND)
    here.place.paths.config.write_text("")
    off = here.place._replace(config=configuration.load(here.place.paths.config))
    assert await suggestion_questions.pending(off) == []
