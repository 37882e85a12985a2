"""The database of claude-mem, as its own session store wrote it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.support.documents.imports import ids, read, unpacked

from confide_proxy.errors import UnreadableError
from confide_transfer.local.readers.claude_mem import READER


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return unpacked("claude-mem/claude-mem.db.gz", tmp_path)


def test_observations(database: Path) -> None:
    """Title, kind, facts and story are the note; files and what else is known of it are its metadata."""
    assert READER.recognises(database)
    records, losses = read(READER, database)
    first = records["observation:1"]
    assert (first.title, first.type, first.project) == ("The scheduler takes the row lock twice", "bugfix", "engine")
    assert first.content == (
        "A second cursor on the same job\n\n"
        "claim() keeps its transaction open while run() opens another; the second waits for the first.\n\n"
        "- FOR UPDATE is taken in claim() and again in run()\n- PostgreSQL 16"
    )
    assert (first.tags, first.created) == (("problem-solution", "gotcha"), "2026-10-01T09:30:00Z")
    assert first.relations == (("part_of", "session:1"),)
    assert first.metadata == {
        "memory_session_id": "mem-1",
        "files_read": ["src/queue.py", "src/run.py"],
        "files_modified": ["src/queue.py"],
        "prompt_number": 2,
        "discovery_tokens": 1234,
        "content_hash": "13940ad5ba906185",
        "generated_by_model": "claude-sonnet-4",
        "agent_type": "explorer",
        "agent_id": "a1",
        "metadata": {"ticket": 17},
    }
    decision = records["observation:2"]
    assert decision.category == "decisions"
    assert decision.content == "Advisory locks outlive a crash of the worker's connection pool – ungünstig."
    assert records["observation:3"].project == "website"
    assert not losses.count


def test_summaries(database: Path) -> None:
    """Every part of a summary that says something, under its name."""
    records, _ = read(READER, database)
    summary = records["summary:1"]
    assert summary.content == (
        "Why does the scheduler hang?\n\n## Investigated\n\nclaim() and run()\n\n## Learned\n\nTwo transactions on one row\n\n"
        "## Completed\n\nrun() uses the transaction of claim()\n\n## Next steps\n\nLoad test\n\n## Notes\n\nAsk Ada"
    )
    assert (summary.title, summary.type) == ("Why does the scheduler hang?", "episodic")
    assert summary.relations == (("part_of", "session:1"),)
    assert summary.metadata["files_edited"] == ["src/queue.py"]
    assert records["summary:2"].content == "Make the header blue\n\n## Completed\n\nDone"


def test_prompts(database: Path) -> None:
    """What was typed in a session is one note; without prompts it is what the session began with."""
    records, _ = read(READER, database)
    session = records["session:1"]
    assert (
        session.content
        == "1. Why does the scheduler hang?\n2. Fix it, and write a test.\n   \n   ```sh\n   make test\n   ```"
    )
    assert (session.title, session.type, session.project) == ("The hanging scheduler", "episodic", "engine")
    assert session.created == "2026-10-01T08:30:01Z"
    assert session.metadata["content_session_id"] == "0a6afc57-2f31-4cb4-8ff0-01247f50c64c"
    assert records["session:2"].content == "1. Make the header blue"
    assert records["session:2"].metadata["platform_source"] == "cursor"


def test_while_it_is_in_use(database: Path) -> None:
    """The worker always runs: what it has just stored is read, and nothing is written beside its files. The ids stay."""
    before = ids(READER, database)
    with sqlite3.connect(database, isolation_level=None) as worker:
        worker.execute("PRAGMA journal_mode = wal")
        worker.execute(
            "INSERT INTO observations (memory_session_id, project, type, title, facts, concepts, created_at, created_at_epoch)"
            " VALUES ('mem-2', 'website', 'discovery', 'Only a title', 'no list', '[[', 'x', 'y')"
        )
        worker.execute("UPDATE observations SET merged_into_project = 'engine' WHERE id = 3")
        state = {file.name: file.read_bytes() for file in database.parent.iterdir()}
        records, losses = read(READER, database)
        assert {file.name: file.read_bytes() for file in database.parent.iterdir()} == state
    worker.close()
    new = records["observation:4"]
    assert (new.content, new.tags, new.created) == ("- no list", ("[[",), None)
    assert (records["observation:3"].project, records["observation:3"].metadata["project"]) == ("engine", "website")
    assert not losses.count
    assert [note for note in ids(READER, database) if note in before] == before


def test_many_prompts(database: Path) -> None:
    """A session's prompts are one note that fits into a document, whatever was pasted into them."""
    with sqlite3.connect(database) as worker:
        for number in range(3, 9):
            worker.execute(
                "INSERT INTO user_prompts (session_db_id, content_session_id, prompt_number, prompt_text, created_at, created_at_epoch)"
                " VALUES (1, 's', ?, ?, '', 0)",
                (number, "ü" * 100_000),
            )
    worker.close()
    records, losses = read(READER, database)
    assert 400_000 < len(records["session:1"].content.encode()) <= 500_000
    assert not losses.count


def test_a_view_is_not_asked(database: Path) -> None:
    """It could be a query that never ends."""
    with sqlite3.connect(database) as worker:
        worker.execute("DROP TABLE user_prompts")
        worker.execute(
            "CREATE VIEW user_prompts AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
            " SELECT x AS id, 1 AS session_db_id, '' AS content_session_id, x AS prompt_number, 'p' AS prompt_text FROM n"
        )
    worker.close()
    assert read(READER, database)[0]["session:1"].content == "1. Why does the scheduler hang?"


def test_no_such_database(database: Path, tmp_path: Path) -> None:
    """Without a table, or cut off in the middle."""
    with sqlite3.connect(database) as worker:
        worker.execute("PRAGMA foreign_keys = off")
        worker.execute("DROP TABLE observations")
    worker.close()
    assert not READER.recognises(database)
    with pytest.raises(UnreadableError, match="has no table observations"):
        read(READER, database)
    cut = tmp_path / "cut.db"
    cut.write_bytes(database.read_bytes()[:20_000])
    with pytest.raises(UnreadableError, match="cannot be read as a database"):
        read(READER, cut)
