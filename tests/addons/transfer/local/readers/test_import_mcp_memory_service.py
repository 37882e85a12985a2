"""The database of mcp-memory-service, as the service itself wrote it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.support.documents.imports import ids, read, unpacked

from confide_proxy.errors import UnreadableError
from confide_transfer.local.readers.mcp_memory_service import READER


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return unpacked("mcp-memory-service/sqlite_vec.db.gz", tmp_path)


def by_text(path: Path) -> dict[str, str]:
    """The origins by the first words."""
    return {" ".join(record.content.split()[:3]): origin for origin, record in read(READER, path)[0].items()}


def test_every_field(database: Path) -> None:
    """What was deleted stays deleted; tags, type, times and metadata come along."""
    assert READER.recognises(database)
    records, losses = read(READER, database)
    assert [record.content for record in records.values()] == [
        "The scheduler takes row locks with FOR UPDATE SKIP LOCKED.",
        "Row locks kept two workers from the same job in the load test.",
        "Advisory locks would have been simpler.",
        "The scheduler takes table locks.",
        "The scheduler takes row locks, no longer table locks.",
    ]
    locks = next(iter(records.values()))
    assert (locks.type, locks.category, locks.tags) == ("decision", "decisions", ("postgres", "scheduler"))
    assert (locks.created, locks.updated) == ("2025-10-09T08:53:20Z", "2025-10-09T08:53:20Z")
    assert locks.metadata == {"source": "review", "quality_score": 0.8, "files": ["src/queue.py"]}
    learning = next(record for record in records.values() if record.type == "learning")
    assert (learning.tags, learning.metadata, learning.category) == ((), {"author": "Zoë"}, None)
    assert not losses.count


def test_links_and_versions(database: Path) -> None:
    """A new version supersedes the old one; of a link in both directions one is enough."""
    records, _ = read(READER, database)
    named = by_text(database)
    tested, advisory = named["Row locks kept"], named["Advisory locks would"]
    relations = {record.content: record.relations for record in records.values()}
    new = relations["The scheduler takes row locks, no longer table locks."]
    assert [(kind, records[other].content) for kind, other in new] == [
        ("supersedes", "The scheduler takes table locks.")
    ]
    first = next(iter(records))
    assert set(records[tested].relations) == {("supports", first), ("see_also", advisory)}
    kept = records[tested].metadata["memory_graph"]
    assert [(link["relationship_type"], link["target_hash"], link["similarity"]) for link in kept] == [
        ("follows", advisory, 0.4)
    ]
    pairs = [(one, *relation) for one in (first, advisory) for relation in records[one].relations]
    assert len(pairs) == 1
    assert pairs[0][1] == "contradicts"
    assert {pairs[0][0], pairs[0][2]} == {first, advisory}


def test_nothing_is_written(database: Path) -> None:
    """Neither while it lies still nor while the service has it open, whose newest memories are in the log beside it."""
    before = ids(READER, database)
    assert [file.name for file in database.parent.iterdir()] == [database.name]
    with sqlite3.connect(database, isolation_level=None) as service:
        service.execute("PRAGMA journal_mode = wal")
        service.execute("PRAGMA wal_autocheckpoint = 0")
        columns = "content_hash, content, tags, memory_type, metadata, created_at"
        service.execute(f"INSERT INTO memories ({columns}) VALUES ('h', 'Just stored', '', NULL, '{{', 1)")
        state = {file.name: file.read_bytes() for file in database.parent.iterdir()}
        assert sorted(state) == [database.name + end for end in ("", "-shm", "-wal")]
        assert READER.recognises(database)
        records, _ = read(READER, database)
        assert records["h"].content == "Just stored"
        assert records["h"].metadata == {"metadata": "{"}
        assert {file.name: file.read_bytes() for file in database.parent.iterdir()} == state
    service.close()
    assert [note for note in ids(READER, database) if note in before] == before


def test_a_bad_row_costs_itself(database: Path) -> None:
    """Text that is not UTF-8, none at all, and more than a document holds."""
    rows = "INSERT INTO memories (content_hash, content, tags, memory_type, metadata, created_at) VALUES "
    with sqlite3.connect(database) as service:
        service.execute(rows + "('bad', CAST(x'ff41' AS TEXT), CAST(x'ff' AS TEXT), 'note', '{}', 1)")
        service.execute(rows + "(CAST(x'ff' AS TEXT), 'A hash of no text', 'a', 'note', '{}', 1)")
        service.execute(rows + "('blob', x'00ff', 'a', 'note', '{}', 1)")
        service.execute(rows + "('large', printf('%.*c', 500001, 'x'), 'a', 'note', '{}', 1)")
        service.execute(rows + "('deep', 'Deep', 'a', 'note', ?, 'never')", ("[" * 50_000,))
        service.execute(rows + "('last', 'Last', '#tag, ', 'note', 'null', 9e99)")
    service.close()
    records, losses = read(READER, database)
    assert [record.content for record in records.values()][5:] == ["Deep", "Last"]
    assert (records["last"].tags, records["last"].created, records["deep"].created) == (("#tag",), None, None)
    assert [loss.reason for loss in losses.skips] == [
        "is not UTF-8 text",
        "has no hash or no text",
        "has no hash or no text",
        "is larger than 500,000 bytes",
    ]


def test_old_schemas(tmp_path: Path) -> None:
    """Before tombstones, versions and links there were only memories."""
    file = tmp_path / "old.db"
    with sqlite3.connect(file) as service:
        service.execute(
            "CREATE TABLE memories (id INTEGER PRIMARY KEY, content_hash TEXT, content TEXT, tags TEXT, memory_type TEXT,"
            " metadata TEXT, created_at REAL, updated_at REAL, created_at_iso TEXT, updated_at_iso TEXT)"
        )
        service.execute("INSERT INTO memories VALUES (1, 'h', 'Old', 'a,b', 'note', NULL, 1.5, NULL, NULL, NULL)")
    service.close()
    records, _ = read(READER, file)
    assert (records["h"].tags, records["h"].created, records["h"].metadata) == (("a", "b"), "1970-01-01T00:00:01Z", {})


def test_no_such_database(database: Path, tmp_path: Path) -> None:
    """A damaged one, a view in place of the table, another program's, and what is no database."""
    damaged = tmp_path / "damaged.db"
    data = bytearray(database.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    damaged.write_bytes(data)
    other, view, text, link = (tmp_path / name for name in ("other.db", "view.db", "text.db", "link.db"))
    with sqlite3.connect(other) as service:
        service.execute("CREATE TABLE memories (content)")
    service.close()
    with sqlite3.connect(view) as service:
        service.execute(
            "CREATE VIEW memories AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS content_hash,"
            " x AS content, '' AS tags, '' AS memory_type, '' AS metadata, 0 AS created_at FROM n"
        )
    service.close()
    text.write_text("SQLite")
    link.symlink_to(database)
    for file, problem in (
        (damaged, "cannot be read as a database|has no table"),
        (other, "without the column content_hash"),
        (view, "has no table memories"),
        (text, "is no SQLite database"),
        (link, "is a symlink"),
        (tmp_path, "is no regular file"),
    ):
        assert file == damaged or not READER.recognises(file)
        with pytest.raises(UnreadableError, match=problem):
            read(READER, file)
    shutil.rmtree(database.parent)
    assert not READER.recognises(database)
