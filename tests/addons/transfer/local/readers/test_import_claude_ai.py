"""An export of Claude, in the forms that were seen: a folder, a zip, one file or several, and what is wrong with some."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents.imports import FIXTURES, ids, read

from confide_proxy.errors import UnreadableError
from confide_transfer.local.readers.chatgpt import READER as CHATGPT
from confide_transfer.local.readers.claude_ai import READER

EXPORT = FIXTURES / "claude-ai"
ACCOUNT, PROJECT = "0b0c0d0e-0000-4000-8000-000000000001", "0b0c0d0e-0000-4000-8000-000000000002"
DOCUMENT = "doc:0b0c0d0e-0000-4000-8000-000000000301"
FIRST, SECOND = (f"conversation:0b0c0d0e-0000-4000-8000-0000000002{number:02}" for number in (0, 1))


def loaded(name: str) -> list[dict[str, Any]]:
    found = json.loads((EXPORT / f"{name}.json").read_text())
    assert isinstance(found, list)
    return found


def written(path: Path, value: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def test_conversations() -> None:
    """What was shown, with what was attached; no tools, no thoughts, and no note of a conversation without text."""
    assert READER.recognises(EXPORT)
    assert not CHATGPT.recognises(EXPORT)
    records, losses = read(READER, EXPORT)
    first = records[FIRST]
    assert first.content == (
        "**User:**\n\nHow do two workers not take the same job?\n\n"
        "[file: plan.txt]\n\nMonday: tables\nTuesday: locks\n\n[file: diagram.png]\n\n"
        "**Assistant:**\n\nWith `FOR UPDATE SKIP LOCKED`.\n\n```sql\nSELECT 1\n```\n\n"
        "**User:**\n\nDanke 🗓"
    )
    assert (first.title, first.type) == ("Row locks", "episodic")
    assert (first.created, first.updated) == ("2026-02-03T10:00:00Z", "2026-02-03T10:30:00Z")
    assert first.metadata == {
        "summary": "**Locks** were talked about.",
        "project": {"uuid": PROJECT, "name": "Scheduler"},
    }
    assert (records[SECOND].title, records[SECOND].content) == (
        "An old message,",
        "**User:**\n\nAn old message,\nof text alone",
    )
    assert [origin for origin in records if origin.startswith("conversation:")] == [FIRST, SECOND]
    assert not losses.count


def test_memories() -> None:
    """What Claude remembers of the person holds everywhere, what it remembers of a project is a part of it."""
    records, _ = read(READER, EXPORT)
    own, project = records[f"memory:{ACCOUNT}"], records[f"project-memory:{PROJECT}"]
    assert own.content == "**Work context**\n\nAda maintains a job scheduler."
    assert (own.scope, own.type, own.category) == ("global", "core_identity", "facts")
    assert project.content == "The table of jobs is partitioned by day."
    assert (project.title, project.entity, project.scope) == ("What Claude remembers of Scheduler", "Scheduler", None)
    assert project.relations == (("part_of", f"project:{PROJECT}"),)


def test_projects() -> None:
    """Description, instructions and documents; not the example that every account has."""
    records, _ = read(READER, EXPORT)
    project, document = records[f"project:{PROJECT}"], records[DOCUMENT]
    assert project.content == "The job scheduler.\n\n## Instructions\n\nAnswer as a database administrator."
    assert (project.title, project.type, project.category, project.entity) == (
        "Scheduler",
        "project_context",
        "projects",
        "Scheduler",
    )
    assert (project.created, project.updated) == ("2026-01-02T08:00:00Z", "2026-01-03T08:00:00Z")
    assert project.metadata == {"is_private": True}
    assert (document.title, document.content) == ("schema.md", "# Tables\n\n- jobs\n- workers")
    assert (document.entity, document.created) == ("Scheduler", "2026-01-02T09:00:00Z")
    assert document.relations == (("part_of", f"project:{PROJECT}"),)
    assert not any("How to use Claude" in (record.title or "") for record in records.values())


def test_every_form(tmp_path: Path) -> None:
    """The zip, the newer folders with a file each, and the conversations alone: the same notes with the same ids."""
    expected = sorted(ids(READER, EXPORT))
    assert sorted(ids(READER, EXPORT)) == expected
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writing:
        for file in EXPORT.glob("*.json"):
            writing.write(file, f"data-2026-02-04/{file.name}")
    newer = tmp_path / "newer"
    shutil.copytree(EXPORT, newer)
    for name in ("projects", "memories"):
        (newer / f"{name}.json").unlink()
        for item in loaded(name):
            written(newer / name / f"{item.get('uuid', ACCOUNT)}.json", item)
    newer_zip = shutil.make_archive(str(tmp_path / "newer"), "zip", newer)
    for path in (archive, newer, Path(newer_zip)):
        assert READER.recognises(path)
        assert sorted(ids(READER, path)) == expected
    alone = shutil.copy(EXPORT / "conversations.json", tmp_path / "talks.json")
    assert READER.recognises(alone)
    assert set(ids(READER, alone)) < set(expected)
    memories = written(tmp_path / "memories" / "memories.json", loaded("memories")).parent
    assert READER.recognises(memories)
    assert list(read(READER, memories)[0]) == [f"memory:{ACCOUNT}", f"project-memory:{PROJECT}"]


def test_what_is_large(tmp_path: Path) -> None:
    """A document of a project is kept whole, in parts; what was pasted into a message is cut."""
    text = "\n".join(f"line {number}" for number in range(100_000))
    project = {"uuid": "p", "name": "P", "docs": [{"uuid": "d", "filename": "large.txt", "content": text}]}
    pasted = {"sender": "human", "content": [], "attachments": [{"file_name": "", "extracted_content": "x" * 30_000}]}
    written(tmp_path / "projects.json", [project])
    written(tmp_path / "conversations.json", [{"uuid": "c", "name": "C", "chat_messages": [pasted]}])
    records, losses = read(READER, tmp_path)
    parts = [record for origin, record in records.items() if origin.startswith("doc:d")]
    assert len(parts) == 3
    assert "\n".join(part.content for part in parts) == text
    assert [part.title for part in parts] == ["large.txt", "large.txt (2)", "large.txt (3)"]
    assert records["project:p"].content == "P"
    content = records["conversation:c"].content
    assert content.startswith("**User:**\n\n[file: pasted text]\n\nxxx")
    assert content.endswith("x\n[…]")
    assert len(content) < 21_000
    assert not losses.count


def test_odd_values(tmp_path: Path) -> None:
    """Fields of other types cost themselves alone."""
    odd: list[Any] = [
        {"uuid": "a", "name": 7, "chat_messages": [7, {"sender": []}, {"sender": "human", "text": 7, "content": "x"}]},
        {
            "uuid": "b",
            "chat_messages": [{"sender": "human", "content": [7, {"type": "text"}], "files": [{}], "attachments": 7}],
        },
        {
            "uuid": "c",
            "created_at": 7e99,
            "chat_messages": [{"sender": "human", "text": "said \ud83d", "attachments": [7]}],
        },
        {"uuid": 7, "chat_messages": []},
        {"uuid": "e"},
        7,
    ]
    written(tmp_path / "conversations.json", odd)
    written(tmp_path / "projects.json", [{"uuid": "p", "name": None, "docs": [7, {"uuid": "d"}]}, {"name": "no uuid"}])
    written(tmp_path / "memories.json", [{"conversations_memory": 7, "project_memories": {"x": 7, "y": "of y"}}])
    records, losses = read(READER, tmp_path)
    assert {origin: record.content for origin, record in records.items()} == {
        "project-memory:y": "of y",
        "conversation:c": "**User:**\n\nsaid ?",
    }
    assert [loss.origin for loss in losses.skips] == [
        "document 1 of project p",
        "document 2 of project p",
        "project 2",
        "conversation 4",
        "conversation 5",
        "conversations.json, element 6",
    ]


def test_a_broken_file_among_others(tmp_path: Path) -> None:
    """The others are read; where all are broken, that is the error."""
    shutil.copytree(EXPORT, tmp_path / "export")
    (tmp_path / "export" / "conversations.json").write_bytes(b"\xff")
    records, losses = read(READER, tmp_path / "export")
    assert DOCUMENT in records
    assert [(loss.origin, loss.reason) for loss in losses.skips] == [("conversations.json", "is not UTF-8 text")]
    for name in ("projects", "memories"):
        (tmp_path / "export" / f"{name}.json").write_text("[" * 100_000)
    with pytest.raises(UnreadableError, match=r"nested too deeply|not UTF-8"):
        read(READER, tmp_path / "export")
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 2**23 + b"]")
    with pytest.raises(UnreadableError, match="zip bomb"):
        read(READER, bomb)
    with pytest.raises(UnreadableError, match=r"holds no conversations\.json"):
        read(READER, tmp_path)
