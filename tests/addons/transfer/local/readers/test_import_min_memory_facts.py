"""The facts that min-memory kept before Qdrant are read. Its code of that time is published nowhere: the table is that of its migration."""

import sqlite3
from pathlib import Path

import pytest

from confide_proxy.errors import UnreadableError
from confide_transfer.local.reader import Losses, MemoryRecord
from confide_transfer.local.readers.min_memory_facts import READER

FACTS = [
    ("user_preferences", "communication_style", "concise, no fluff", "2025-09-15T08:00:00"),
    ("clarity", "storage", "Qdrant, nur Vektoren – größer", "2025-09-16T08:00:00+02:00"),
    ("Zoë", "role", "reviews releases", None),
]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with the columns that min-memory's own migration reads."""
    path = tmp_path / "memory.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE facts (id INTEGER PRIMARY KEY, entity TEXT, attribute TEXT, value TEXT, timestamp TEXT)"
        )
        connection.execute("CREATE TABLE master_list (entity TEXT)")
        connection.executemany("INSERT INTO facts (entity, attribute, value, timestamp) VALUES (?, ?, ?, ?)", FACTS)
    connection.close()
    return path


def read(path: Path) -> tuple[list[MemoryRecord], Losses]:
    losses = Losses()
    return list(READER.read(path, losses)), losses


def add(database: Path, *facts: tuple[object, ...]) -> None:
    with sqlite3.connect(database) as connection:
        connection.executemany("INSERT INTO facts (entity, attribute, value, timestamp) VALUES (?, ?, ?, ?)", facts)
    connection.close()


def test_a_fact_is_said_as_min_memory_itself_moved_it(database: Path) -> None:
    assert READER.recognises(database)
    records, losses = read(database)
    style, storage, role = records
    assert style == MemoryRecord(
        "min-memory-facts",
        "user_preferences.communication_style@2025-09-15T08:00:00",
        "user_preferences.communication_style: concise, no fluff",
        title="user_preferences.communication_style",
        scope="global",
        type="core_identity",
        entity="user_preferences",
        tags=("communication_style",),
        created="2025-09-15T08:00:00Z",
    )
    assert storage.content == "clarity.storage: Qdrant, nur Vektoren – größer"
    assert (storage.scope, storage.project, storage.type) == ("project", "clarity", "project_context")
    assert storage.created == "2025-09-16T06:00:00Z"
    assert (role.scope, role.entity, role.created) == ("global", "Zoë", None)
    assert losses.count == 0
    assert [record.note_id for record in read(database)[0]] == [record.note_id for record in records]


def test_a_fact_that_is_told_again_is_another_one_and_the_first_keeps_its_id(database: Path) -> None:
    before = read(database)[0][0]
    add(database, ("user_preferences", "communication_style", "with examples", "2025-10-01T08:00:00"), FACTS[0])
    records, _ = read(database)
    assert records[0].note_id == before.note_id
    assert len({record.note_id for record in records}) == 5
    assert records[4].origin == f"{before.origin}#2"


def test_a_column_that_is_not_known_is_kept(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("ALTER TABLE facts ADD COLUMN confidence REAL DEFAULT 0.5")
    connection.close()
    assert [record.metadata for record in read(database)[0]] == [{"confidence": 0.5}] * 3


def test_odd_rows_are_counted(database: Path) -> None:
    add(
        database, ("tim", "nothing", None, None), (None, "x", "y", "z"), ("tim", "blob", b"\xff", ""), ("tim", "", 3, 0)
    )
    records, losses = read(database)
    assert [lost.reason for lost in losses.skips] == ["has no value"] * 3
    assert (records[-1].content, records[-1].tags) == ("tim: 3", ())


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"\0" * 5000, b"entity,attribute,value,timestamp\n"])
def test_a_broken_database_is_an_error(database: Path, content: bytes) -> None:
    database.write_bytes(content)
    assert not READER.recognises(database)
    with pytest.raises(UnreadableError):
        read(database)


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    assert READER.places(tmp_path) == [tmp_path / ".local" / "share" / "mcp-memory" / "memory.db"]
