"""What clients keep for all projects: of Claude Code's subagents, Codex and Gemini CLI, each as its documents describe the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from confide_proxy.sync.project import Project
from confide_transfer.local import plan
from confide_transfer.local.fields import project_of
from confide_transfer.local.reader import Losses
from confide_transfer.local.readers.agent_notes import READER

FILES = {
    ".claude/agent-memory/reviewer/MEMORY.md": "# Reviewer\n\n- Herons are reviewed by Ann.\n",
    ".claude/agent-memory/reviewer/style.md": "---\nname: style\ndescription: of code\n---\nTabs in Makefiles alone.\n",
    ".codex/memories/MEMORY.md": "# Task Group: herons\n\n## Builds\n\nRun make herons before a push.\n",
    ".codex/memories/memory_summary.md": "v1\n\n## User Profile\n\nAnn keeps herons.\n",
    ".codex/memories/raw_memories.md": "# Raw\n\nNot for people.\n",
    ".codex/memories/rollout_summaries/a.md": "# A\n\nNot for people.\n",
    ".gemini/GEMINI.md": "# Mine\n\n## Gemini Added Memories\n\n- The heron server is on port 80.\n",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def read(path: Path) -> tuple[set[str], Losses]:
    losses = Losses()
    records = list(READER.read(path, losses))
    assert {project_of(record, "shop") for record in records} <= {"global"}
    return {record.content.removeprefix("- ") for record in records}, losses


def test_each_clients_notes_are_found_for_all_projects(home: Path) -> None:
    found = [one for one in plan.in_home(home) if one.reader is READER]
    assert [one.label for one in found] == ["~/.claude/agent-memory", "~/.codex/memories", "~/.gemini/GEMINI.md"]
    texts = [read(one.path)[0] for one in found]
    assert texts == [
        {"Herons are reviewed by Ann.", "Tabs in Makefiles alone."},
        {"Run make herons before a push.", "Ann keeps herons."},
        {"The heron server is on port 80."},
    ]


def test_folders_that_the_environment_names(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (home / ".codex").rename(home / "elsewhere")
    assert not READER.recognises(home / "elsewhere/memories")
    monkeypatch.setenv("CODEX_HOME", str(home / "elsewhere"))
    assert READER.recognises(home / "elsewhere/memories")
    assert plan.reader_of(home / "elsewhere/memories") is READER


def test_a_projects_subagents_are_the_projects(home: Path) -> None:
    """Those of the user, which have the same name where the project is the home folder, are not."""
    root = home / "shop"
    for name in (".claude/agent-memory/r/a.md", ".claude/agent-memory-local/r/b.md", "GEMINI.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("# A\n\nB.\n")
    (root / ".claude/agent-memory-local/r/b.md").unlink()
    found = plan.to_project_path(Project("shop", root, is_git=False))
    assert [(one.path.relative_to(root).as_posix(), one.reader.name) for one in found] == [
        ("GEMINI.md", "markdown"),
        (".claude/agent-memory", "markdown"),
    ]
    assert plan.to_project_path(Project("home", home, is_git=False)) == []


def test_what_is_broken_costs_itself_alone(home: Path) -> None:
    (home / ".codex/memories/MEMORY.md").write_bytes(b"\xff\xfe")
    (home / ".claude/agent-memory/reviewer/MEMORY.md").unlink()
    (home / ".claude/agent-memory/reviewer/MEMORY.md").symlink_to(home / ".gemini/GEMINI.md")
    assert (read(home / ".codex/memories")[0], read(home / ".claude/agent-memory")[0]) == (
        {"Ann keeps herons."},
        {"Tabs in Makefiles alone."},
    )
    assert read(home / ".codex/memories")[1].count == read(home / ".claude/agent-memory")[1].count == 1
    for odd in (home / "nothing", Path("a\0b"), home):
        assert not READER.recognises(odd)
