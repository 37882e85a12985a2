"""Memories of elsewhere become notes, by the command and by the agent's tool, as their user sees it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents.notes import text_of
from tests.support.programs.forked import Program
from tests.support.programs.mcp_session import ERAS, Era, session
from tests.support.programs.processes import (
    COMMAND_DEADLINE_S,
    CONFIDE,
    Daemon,
    Inside,
    Machine,
    running_daemon,
    wait_until,
)

NOTES = """# Shop

We sell tea.

## Database

We chose Postgres for its row locks.

## Preferences

- Use pnpm, never npm
- Write commits in the present tense
"""
DECISION = "# 1. Use Postgres\n\nDate: 2024-02-03\n\n## Status\n\nAccepted\n\n## Context\n\nOrders.\n\n## Decision\n\nPostgres.\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def laptop(daemon: Daemon, tmp_path: Path) -> Machine:
    machine = Inside(tmp_path, "laptop")
    machine.run("join", daemon.invite(f"laptop-{tmp_path.name}"))
    (machine.home / "proxy.toml").write_text('toolsets = ["core", "notes"]\n')
    return machine


def note_files(machine: Machine) -> list[Path]:
    return sorted((machine.project / "memory" / "notes").glob("*.md"))


def test_the_command_finds_previews_and_imports_once(laptop: Machine) -> None:
    laptop.write("NOTES.md", NOTES)
    laptop.write("docs/adr/0001-use-postgres.md", DECISION)
    laptop.write("memory/2026-01-01.md", "# Log\n\nThis is memory already.\n")
    shown = laptop.run("import", "--dry-run")
    assert "NOTES.md" in shown
    assert "4 notes" in shown
    assert "importance high 1" in shown
    assert "5 new" in shown
    assert note_files(laptop) == []
    # Nobody is there to be asked.
    assert "--yes" in laptop.run("import", stdin="")
    assert note_files(laptop) == []

    assert "imported 5 notes" in laptop.run("import", "--yes")
    assert len(note_files(laptop)) == 5
    decision = next(file for file in note_files(laptop) if "use-postgres" in file.name).read_text()
    assert "category: decisions" in decision
    assert "source: import" in decision
    assert "system: markdown" in decision
    assert "created: 2024-02-03T00:00:00Z" in decision
    assert laptop.json("import", "--yes")["results"] == {
        "new": 0,
        "known": 5,
        "identical": 0,
        "deleted": 0,
        "refused": 0,
    }
    found = laptop.json("search", "row locks", "--min-score", "0")
    assert any("row locks" in hit["snippet"] for hit in found["results"])


def test_what_was_deleted_stays_so_until_it_is_asked_for(laptop: Machine) -> None:
    file = laptop.write("facts.jsonl", json.dumps({"id": 7, "text": "The office closes at six."}) + "\n")
    laptop.run("import", str(file), "--yes")
    (note,) = note_files(laptop)
    note.unlink()
    laptop.run("sync")
    assert laptop.json("import", str(file), "--yes")["results"]["deleted"] == 1
    assert note_files(laptop) == []
    assert laptop.json("import", str(file), "--yes", "--again")["results"]["new"] == 1
    assert note_files(laptop) == [note]


async def test_what_was_imported_into_another_project_is_told_so(laptop: Machine) -> None:
    """Where it is asked for now it is not to be found."""
    file = laptop.write("facts.jsonl", json.dumps({"id": 7, "text": "The office closes at six."}) + "\n")
    laptop.run("import", str(file), "--yes")
    (other := laptop.project.parent / "other").mkdir()
    told = laptop.run("import", str(file), "--yes", "--project", str(other))
    assert "1 imported before, into project 1" in told
    assert "into project" not in laptop.run("import", str(file), "--yes")


def test_hostile_inputs_are_told_and_skipped(laptop: Machine, tmp_path: Path) -> None:
    """In a tree they cost only themselves; named by themselves they are errors with a way out."""
    tree = laptop.project / "notes"
    secret = tmp_path / "secret.md"
    secret.write_text("# Secret\n\nThe password of the bank.\n")
    laptop.write("notes/good.md", "# Good\n\nThe one good note.\n")
    laptop.write("notes/bad.md", "").write_bytes(b"# Bad\n\n\xff\xfe is no UTF-8\n")
    (tree / "link.md").symlink_to(secret)
    (tree / "folder").symlink_to(tmp_path)
    os.mkfifo(tree / "pipe.md")
    with (tree / "huge.md").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    told = laptop.json("import", str(tree), "--yes")
    (store,) = told["stores"]
    assert told["results"]["new"] == store["notes"] == 1
    reasons = {one["origin"]: one["reason"] for one in store["skipped"]}
    assert set(reasons) == {"bad.md", "huge.md", "link.md", "pipe.md"}
    assert "UTF-8" in reasons["bad.md"]
    assert "MiB" in reasons["huge.md"]
    for name in ("bad.md", "pipe.md", "huge.md"):
        assert "cannot import" in laptop.run("import", str(tree / name), "--yes", code=7)
    assert "hint: what can be read" in laptop.run("import", laptop.write("data.bin", "x").name, code=7)
    assert "--from takes" in laptop.run("import", "--from", "nobody", code=7)
    assert len(note_files(laptop)) == 1


async def test_what_a_project_excludes_is_not_imported_either(laptop: Machine) -> None:
    """By a person or by an agent, named or found, in this project or in another one below the home folder."""
    laptop.write(".confide.toml", 'exclude = ["docs/private", "NOTES.md", "keys.json"]\n')
    laptop.write("NOTES.md", NOTES)
    laptop.write("keys.json", '[{"content": "A key."}]')
    laptop.write("docs/private/plan.md", "# Plan\n\nA secret plan.\n")
    laptop.write("docs/.draft.md", "# Draft\n\nA hidden draft.\n")
    laptop.write("docs/open.md", "# Open\n\nAnybody may know.\n")
    assert laptop.json("import", "--dry-run")["stores"] == []
    told = laptop.json("import", "docs", "--dry-run")
    assert told["results"]["new"] == 1
    assert told["stores"][0]["skipped"] == [{"origin": "private/plan.md", "reason": "is excluded by .confide.toml"}]
    for name in ("NOTES.md", "keys.json", "docs/private", "docs/private/plan.md"):
        assert "is excluded by .confide.toml" in laptop.run("import", name, "--yes", code=7)
    async with session(laptop) as client:
        for name in ("NOTES.md", "keys.json", "docs/private"):
            refused = await client.call_tool("memory_import", {"paths": [name], "confirm": True})
            assert refused.is_error
            assert "is excluded by .confide.toml" in text_of(refused)
    assert note_files(laptop) == []


def test_names_of_files_may_be_any_bytes(laptop: Machine) -> None:
    """Not UTF-8, with line breaks or escapes for the terminal: the notes are stored, once, and the names are shown harmless."""
    tree = os.fsencode(laptop.project / "notes")
    Path(os.fsdecode(tree)).mkdir()
    names = [
        b"\xff\xfe.md",
        b"new\nline.md",
        b"red\x1b[31m.md",
        "e\u0301.md".encode(),
        "\u00e9.md".encode(),
        b"x" * 252 + b".md",
    ]
    for number, name in enumerate([*names, b"bad\xff\x1b.md"]):
        text = b"\xff" if b"bad" in name else f"# Heading\n\nFact {number}.\n".encode()
        Path(os.fsdecode(tree + b"/" + name)).write_bytes(text)
    told = laptop.json("import", "notes", "--yes")
    assert told["results"]["new"] == len(names)
    assert told["refused"] == []
    assert told["stores"][0]["skippedCount"] == 1
    assert len(note_files(laptop)) == len(names)
    shown = laptop.run("import", "notes", "--yes")
    assert f"{len(names)} imported before" in shown
    assert "\x1b" not in shown
    for name, code in ((b"red\x1b[31m.md", 0), (b"bad\xff\x1b.md", 7), (b"none\xff\x1b.md", 7)):
        assert "\x1b" not in laptop.run("import", os.fsdecode(b"notes/" + name), "--yes", code=code)


async def test_paths_that_lead_nowhere_are_told(laptop: Machine) -> None:
    (laptop.project / "loop.md").symlink_to("loop.md")
    laptop.write("one.md", "# One\n\nA fact.\n")
    for path in ("~nobody-of-that-name/x.md", "loop.md"):
        assert path.split("/")[0] in laptop.run("import", path, "--yes", code=7)
        async with session(laptop) as client:
            refused = await client.call_tool("memory_import", {"paths": [path]})
            assert path in text_of(refused)
    assert "loop.md" in laptop.run("export", "loop.md", code=7)
    assert laptop.json("import", "one.md", "./one.md", "--dry-run")["results"]["new"] == 1


def test_setting_up_a_client_tells_what_is_there(laptop: Machine) -> None:
    """Once, and only where there is something."""
    assert "confide import" not in laptop.run("setup", "claude-code", "--write")
    (laptop.project / ".mcp.json").unlink()
    laptop.write("NOTES.md", NOTES)
    told = laptop.run("setup", "claude-code", "--write")
    assert "NOTES.md; to look at them: confide import" in told
    assert "confide import" not in laptop.run("setup", "claude-code", "--write")


@pytest.mark.parametrize("answer", ["y", "n"])
def test_at_a_terminal_it_asks(laptop: Machine, answer: str) -> None:
    laptop.write("NOTES.md", NOTES)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    pipes: dict[str, Any] = {"stdin": theirs, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with Program([CONFIDE, "import"], cwd=laptop.project, env=laptop.env, **pipes) as process:
        os.close(theirs)
        told, _ = process.communicate(timeout=COMMAND_DEADLINE_S)
    os.close(ours)
    assert "4 notes: 4 new" in told
    assert "import into project?" in told
    assert len(note_files(laptop)) == (4 if answer == "y" else 0), told


@pytest.mark.parametrize("era", ERAS)
async def test_the_tool_previews_and_imports(laptop: Machine, era: Era) -> None:
    laptop.write("NOTES.md", NOTES)
    told: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, _message: str | None) -> None:
        told.append((done, total))

    async with session(laptop, era) as client:
        await client.list_tools()
        preview = await client.call_tool("memory_import", {"paths": ["NOTES.md"]})
        assert not preview.is_error, text_of(preview)
        content: Any = preview.structured_content
        assert content["confirmed"] is False
        assert content["results"]["new"] == content["stores"][0]["notes"] == 4
        assert content["stores"][0]["categories"] == {"preferences": 2}
        assert "confirm: true" in text_of(preview)
        assert note_files(laptop) == []

        done = await client.call_tool(
            "memory_import", {"paths": ["./NOTES.md"], "confirm": True}, progress_callback=progress
        )
        content = done.structured_content
        assert content["results"]["new"] == 4
        assert told[-1] == (4, 4)
        wait_until("the notes on disk", lambda: len(note_files(laptop)) == 4)
        again = await client.call_tool("memory_import", {"paths": ["NOTES.md"], "confirm": True})
        content = again.structured_content
        assert content["results"]["known"] == 4


async def test_imports_of_an_agent_wait_for_each_other(laptop: Machine) -> None:
    """Many at once would take all threads from the sync of its files."""
    for name in ("a", "b"):
        lines = [json.dumps({"id": f"{name}{number}", "text": f"Fact {number} of {name}."}) for number in range(30)]
        laptop.write(f"{name}.jsonl", "\n".join(lines) + "\n")
    async with session(laptop) as client:
        await client.list_tools()
        orders = (["a.jsonl", "b.jsonl"], ["b.jsonl", "a.jsonl"])
        calls = [client.call_tool("memory_import", {"paths": paths, "confirm": True}) for paths in orders]
        results: list[Any] = [result.structured_content["results"] for result in await asyncio.gather(*calls)]
    assert sorted((one["new"], one["known"]) for one in results) == [(0, 60), (60, 0)]


async def test_the_tool_reads_no_further_than_it_may(laptop: Machine, tmp_path: Path) -> None:
    """Not outside of the project and the home folder, through no symlink, nothing hidden, nothing of an unknown form."""
    outside = tmp_path / "outside.md"
    outside.write_text("# Out\n\nNot for the agent.\n")
    laptop.write("plain.txt", "text")
    laptop.write(".secrets/keys.json", '[{"content": "a key"}]')
    (laptop.project / "link.md").symlink_to(outside)
    (laptop.project / "there").symlink_to(tmp_path)
    reasons = {
        str(outside): "neither below this project nor below the home folder",
        "../../../outside.md": "neither below this project nor below the home folder",
        "link.md": "symlink",
        "there/outside.md": "symlink",
        ".secrets/keys.json": "hidden",
        "~": "whole home folder",
        "plain.txt": "no form that is known",
        "missing.md": "is not there",
        "a\0b": "NUL",
    }
    async with session(laptop) as client:
        await client.list_tools()
        for path, reason in reasons.items():
            refused = await client.call_tool("memory_import", {"paths": [path], "confirm": True})
            assert refused.is_error, path
            assert reason in text_of(refused)
            assert "a key" not in text_of(refused)
        wrong = await client.call_tool("memory_import", {"path": "NOTES.md"})
        assert "unknown parameter" in text_of(wrong)
    assert note_files(laptop) == []


def test_an_import_is_undone(laptop: Machine) -> None:
    """What came from there is deleted, edited or not, and can be restored; other notes stay, and what is not there is no failure."""
    laptop.write("NOTES.md", NOTES)
    laptop.run("store", "By hand.", "--title", "Mine")
    laptop.run("import", "NOTES.md", "--yes")
    before = len(note_files(laptop))
    assert before > 3
    laptop.run(
        "rm",
        "--yes",
        str(next(file for file in note_files(laptop) if "Mine" not in file.read_text()).relative_to(laptop.project)),
    )
    assert "came from there" in laptop.run("import", "NOTES.md", "--undo", "--dry-run")
    assert len(note_files(laptop)) == before - 1
    laptop.run("import", "NOTES.md", "--undo", code=7)
    assert f"deleted {before - 2} notes" in laptop.run("import", "NOTES.md", "--undo", "--yes")
    assert ["Mine" in file.read_text() for file in note_files(laptop)] == [True]
    assert "0 notes" in laptop.run("import", "NOTES.md", "--undo", "--yes")
    laptop.run("restore", "--since", "1h")
    assert len(note_files(laptop)) == before


def test_two_with_one_text_are_told_apart_or_named(laptop: Machine) -> None:
    """The twin of what is not stored is named, so that nobody believes it lost."""
    file = laptop.write(
        "two.json", '[{"id": "1", "content": "Ann", "title": "Owner"}, {"id": "2", "content": "Ann", "title": "Owner"}]'
    )
    told = laptop.run("import", str(file), "--yes")
    assert "1 the same as a note that is there" in told
    found = re.search(r"not stored, since a note says just this: .*two\.json#2; it is confide read (\S+)", told)
    assert found, told
    assert "Ann" in laptop.run("read", found[1])
