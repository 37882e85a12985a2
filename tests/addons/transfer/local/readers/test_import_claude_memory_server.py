"""The memories and tasks of @claude-memory/server are read from the databases it wrote, all projects in one go."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.support.archives import unpack

from confide_proxy.errors import UnreadableError
from confide_transfer.local.reader import Losses, MemoryRecord
from confide_transfer.local.readers.claude_memory_server import READER

FIXTURE = Path(__file__).parents[4] / "fixtures" / "importing" / "claude-memory-server" / "data.tar.gz"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder that the server wrote."""
    unpack(FIXTURE, tmp_path)
    return tmp_path / "data"


def read(path: Path) -> tuple[list[MemoryRecord], Losses]:
    losses = Losses()
    return list(READER.read(path, losses)), losses


def test_everything_that_was_stored_comes_out(data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert READER.recognises(data)
    records, losses = read(data)
    found = {record.content.split("\n")[0]: record for record in records}
    assert len(records) == len(found) == 5
    assert losses.count == 0
    style = found["Größe zählt: keep functions short."]
    assert (style.scope, style.project, style.source, style.tags) == ("global", None, "user", ("style", "code"))
    assert style.created == style.updated == "2026-11-21T17:08:19Z"
    assert style.metadata == {"author": "Zoë", "confidence": 0.8, "last_accessed_at": "2026-11-21 17:08:19"}
    assert found["An old one."].metadata["storage_tier"] == "archive"
    assert found["An old one."].metadata["access_count"] == 1
    rule = found["Never push to main."]
    assert (rule.scope, rule.project, rule.source, rule.tags) == ("project", "harbour", "hook", ("git",))
    assert (rule.type, rule.importance, rule.metadata["is_rule"]) == ("rule", 0.95, 1)
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before, "something was written"
    assert [record.note_id for record in read(data)[0]] == [record.note_id for record in records]


def test_a_task_comes_with_what_came_of_it(data: Path) -> None:
    tasks = {record.content.split("\n")[0]: record for record in read(data)[0] if record.origin.startswith("task-")}
    review = tasks["Review the queue module"]
    assert "Two races" in review.content
    assert "Two races were found." in review.content
    assert (review.project, review.type, review.status) == ("harbour", "task_instruction", "completed")
    assert review.importance is None, "its priorities are of another scale"
    assert review.metadata["priority"] == 8
    assert review.metadata["task_type"] == "code-review"
    assert review.metadata["context"] == {"branch": "main"}
    assert review.metadata["repo_url"] == "https://example.invalid/harbour.git"
    (result,) = review.metadata["results"]
    assert (result["success"], result["duration_ms"], result["tokens_used"], result["cost_usd"]) == (1, 1200, 900, 0.02)
    failed = tasks["Update the documents"]
    assert failed.content.endswith("timed out")
    assert (failed.status, failed.scope, failed.metadata["scheduled_for"]) == (
        "failed",
        "global",
        "2026-12-24T02:00:00Z",
    )


def test_one_database_can_be_named(data: Path) -> None:
    database = data / "projects" / "harbour" / "project.db"
    assert READER.recognises(database)
    assert [record.content for record in read(database)[0]] == ["Never push to main."]


def test_a_hash_for_a_project_names_it_only_among_others(data: Path) -> None:
    hashed = "3f2a9c0d1e4b5a67"
    (data / "projects" / "harbour").rename(data / "projects" / hashed)
    database = data / "projects" / hashed / "project.db"
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE memories SET project_id = ?", (hashed,))
    connection.close()
    assert {record.project for record in read(data)[0]} == {None, "harbour", hashed}
    (record,) = read(database)[0]
    assert (record.project, record.scope, record.metadata["project_id"]) == (None, "project", hashed)


def test_a_database_of_its_first_version_is_read(data: Path) -> None:
    with sqlite3.connect(data / "global.db") as connection:
        for index in ("is_rule", "type", "importance", "tier"):
            connection.execute(f"DROP INDEX idx_memories_{index}")
        for column in ("memory_type", "importance_score", "is_rule", "storage_tier"):
            connection.execute(f"ALTER TABLE memories DROP COLUMN {column}")
    connection.close()
    assert READER.recognises(data)
    records, _ = read(data)
    assert len(records) == 5
    assert records[0].importance is None


def test_what_the_server_has_not_yet_moved_out_of_its_log_is_read_too(data: Path) -> None:
    connection = sqlite3.connect(data / "global.db")
    connection.execute("INSERT INTO memories (content) VALUES ('only in the write-ahead log')")
    connection.commit()
    assert (data / "global.db-wal").stat().st_size
    before = sorted(path.name for path in data.iterdir())
    assert "only in the write-ahead log" in [record.content for record in read(data)[0]]
    assert sorted(path.name for path in data.iterdir()) == before
    connection.close()


def test_a_broken_project_does_not_keep_the_others_from_being_read(data: Path) -> None:
    shutil.copytree(data / "projects" / "harbour", data / "projects" / "another")
    (data / "projects" / "another" / "project.db").write_bytes(b"not a database")
    (data / "projects" / "linked").symlink_to(data / "projects" / "harbour")
    records, losses = read(data)
    assert len(records) == 5
    assert [lost.origin for lost in losses.skips] == ["projects/another/project.db"]


def test_odd_rows_are_counted_or_kept_as_they_stand(data: Path) -> None:
    with sqlite3.connect(data / "global.db") as connection:
        connection.execute("INSERT INTO memories (id, content) VALUES ('blob', x'00ff')")
        connection.execute("INSERT INTO memories (id, content, metadata) VALUES ('odd', 'text', '{broken')")
        connection.execute("INSERT INTO memories (id, content, metadata) VALUES ('list', 'text', '[1, 2]')")
    connection.close()
    records, losses = read(data)
    assert [(lost.origin, lost.reason) for lost in losses.skips] == [("blob", "has no text")]
    metadata = {record.origin: record.metadata for record in records}
    assert metadata["odd"]["metadata"] == "{broken"
    assert metadata["list"]["metadata"] == [1, 2]


def test_a_view_in_place_of_the_table_is_refused(data: Path) -> None:
    with sqlite3.connect(data / "global.db") as connection:
        connection.execute("ALTER TABLE memories RENAME TO hidden")
        connection.execute(
            "CREATE VIEW memories AS WITH RECURSIVE more(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM more)"
            " SELECT id, 'x' content, '' source, '' project_id, '' created_at, '' updated_at, '' metadata FROM more"
        )
    connection.close()
    assert not READER.recognises(data)
    with pytest.raises(UnreadableError, match="no table memories"):
        read(data)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"\xff" * 5000, b"text"])
def test_a_broken_database_is_an_error(data: Path, content: bytes) -> None:
    (data / "global.db").write_bytes(content)
    assert not READER.recognises(data)
    with pytest.raises(UnreadableError):
        read(data)


def test_other_folders_and_files_are_not_taken_for_it(tmp_path: Path) -> None:
    assert not READER.recognises(tmp_path)
    assert not READER.recognises(tmp_path / "missing")
    assert READER.places(tmp_path) == [tmp_path / ".claude-memory" / "data"]
