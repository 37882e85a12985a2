"""The client's database of claude-memory-mcp is read as it left it; secrets stay where they are."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from confide_proxy.errors import UnreadableError
from confide_transfer.local.reader import Losses, MemoryRecord, screen
from confide_transfer.local.readers.claude_memory_mcp import READER

FIXTURE = Path(__file__).parents[4] / "fixtures" / "importing" / "claude-memory-mcp" / "memory.db"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A copy of the database that the client wrote."""
    return shutil.copy(FIXTURE, tmp_path / "memory.db")


def read(path: Path) -> tuple[dict[str, MemoryRecord], Losses]:
    losses = Losses()
    return {record.origin: record for record in screen(READER.read(path, losses), losses)}, losses


def change(database: Path, *statements: str) -> None:
    with sqlite3.connect(database) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_everything_that_was_stored_comes_out(database: Path) -> None:
    assert READER.recognises(database)
    records, losses = read(database)
    assert list(records) == ["server-4101", "server-4102", "local-3"]
    assert records["server-4101"] == MemoryRecord(
        "claude-memory-mcp",
        "server-4101",
        "Prefers Svelte for new frontends.",
        category="preferences",
        tags=("frontend", "svelte"),
        importance=0.9,
        keywords=("svelte", "frontend", "framework", "ui", "sveltekit"),
        created="2026-01-05T09:00:00Z",
        updated="2026-02-06T10:30:00Z",
        metadata={"server_id": 4101},
    )
    local = records["local-3"]
    assert local.content == "Größenangaben stehen in Millimetern.\n\n- immer\n- überall\n"
    assert (local.category, local.tags, local.importance) == ("decisions", ("drawings", "units"), 0.25)
    assert local.created == "2026-11-21T17:07:07Z"
    assert local.keywords[:2] == ("word0", "word1")
    assert local.metadata["expanded_keywords"].split()[-1] == "word39", "more words than a note has are kept whole"
    assert sorted(path.name for path in database.parent.iterdir()) == ["memory.db"], "something was written"
    assert losses.count == 1
    assert [record.note_id for record in read(database)[0].values()] == [record.note_id for record in records.values()]


def test_of_a_secret_the_redacted_text_is_read_and_nothing_else(database: Path) -> None:
    records, losses = read(database)
    redacted = records["server-4102"]
    assert redacted.content == "The deploy key is [REDACTED:private_key]"
    assert redacted.metadata["is_sensitive"] is True
    assert redacted.metadata["secret"].startswith("not read")
    assert redacted.created == "2026-01-06T07:00:00Z", "of another time zone"
    # Without a server the client keeps the secret itself.
    assert [(lost.origin) for lost in losses.skips] == ["local-5"]
    assert not [record for record in records.values() if "0000" in record.content]


def test_a_memory_is_the_same_one_after_a_full_sync_gave_it_another_number(database: Path) -> None:
    before = read(database)[0]["server-4101"]
    change(database, "UPDATE memories SET id = 900 WHERE server_id = 4101")
    assert read(database)[0]["server-4101"].note_id == before.note_id


def test_a_database_of_its_first_version_is_read(database: Path) -> None:
    change(
        database,
        "DROP INDEX idx_memories_server_id",
        "ALTER TABLE memories DROP COLUMN server_id",
        "DROP TABLE pending_ops",
        "PRAGMA user_version = 0",
    )
    assert READER.recognises(database)
    assert list(read(database)[0]) == ["local-1", "local-2", "local-3"]


def test_odd_rows_are_counted_or_kept_as_they_stand(database: Path) -> None:
    rows = [
        "(10, x'ff', 'facts', '', '', 0.5, 0, '', '')",
        "(11, '', 'facts', '', '', 0.5, 0, '', '')",
        "(12, CAST(x'61ff62' AS TEXT), 'facts', '', '', 0.5, 0, '', '')",
        "(13, 'odd', NULL, NULL, NULL, 'high', NULL, 'yesterday', '')",
        "(14, 'far', 'facts', '', '', 17, 0, '9999-12-31T23:59:59-01:00', '')",
    ]
    change(database, f"INSERT INTO memories VALUES {','.join(row[:-1] + ', NULL)' for row in rows)}")
    records, losses = read(database)
    assert [(lost.origin, lost.reason) for lost in losses.skips[1:]] == [
        ("local-10", "has no text"),
        ("local-11", "is empty"),
        ("local-12", "is not UTF-8 text"),
    ]
    assert (records["local-13"].importance, records["local-13"].created) == ("high", None)
    assert records["local-13"].metadata == {"created_at": "yesterday"}
    assert records["local-14"].importance is None
    assert records["local-14"].metadata["importance"] == 17


def test_a_table_that_lacks_a_column_is_refused(database: Path) -> None:
    change(
        database,
        "DROP TABLE memories_fts",
        *(f"DROP TRIGGER memories_{when}" for when in ("ai", "ad", "au")),
        "ALTER TABLE memories DROP COLUMN importance",
    )
    assert not READER.recognises(database)
    with pytest.raises(UnreadableError, match="without the column importance"):
        read(database)


def test_a_file_that_is_cut_off_is_an_error(database: Path) -> None:
    whole = database.read_bytes()
    for size in (0, 10, 4096, 9000):
        database.write_bytes(whole[:size])
        with pytest.raises(UnreadableError):
            read(database)


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    assert READER.places(tmp_path)[0] == tmp_path / ".claude" / "claude-memory" / "memory" / "memory.db"
    assert not READER.recognises(tmp_path)
    assert not READER.recognises(tmp_path / "missing")
