"""The stores of vector-memory-mcp are read as its own two storage layers wrote them: LanceDB, and SQLite since its version 2."""

import os
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from tests.support.archives import unpack
from tests.support.sealing.sealers import SEALER

from confide_memory.errors import with_extra
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import UnreadableError
from confide_proxy.sync.project import identify
from confide_transfer.errors import ReaderMissingError
from confide_transfer.local.plan import ImportPlan, ImportSource
from confide_transfer.local.reader import Losses, MemoryRecord
from confide_transfer.local.readers.vector_memory_mcp import READER

FIXTURES = Path(__file__).parents[4] / "fixtures" / "importing" / "vector-memory-mcp"
BUILDS, LAPTOPS, TEXT, THROWN, REPLACED, HANDOFF = (
    f"7c0e4a10-0000-4000-8000-00000000000{n}" for n in (1, 2, 3, 4, 5, 0)
)


@pytest.fixture
def lance(tmp_path: Path) -> Path:
    """The LanceDB database that it wrote."""
    unpack(FIXTURES / "memories.db.tar.gz", tmp_path)
    return tmp_path / "memories.db"


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    """The SQLite database that it wrote."""
    return shutil.copy(FIXTURES / "memories-2.db", tmp_path / "memories-2.db")


def read(path: Path) -> tuple[dict[str, MemoryRecord], Losses]:
    losses = Losses()
    return {record.origin: record for record in READER.read(path, losses)}, losses


def test_everything_that_was_stored_in_lancedb_comes_out(lance: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in lance.rglob("*")}
    assert READER.recognises(lance)
    records, losses = read(lance)
    assert records[BUILDS] == MemoryRecord(
        "vector-memory-mcp",
        BUILDS,
        "Builds run on the shared machine, not on laptops.",
        project="harbour",
        category="decisions",
        tags=("build", "ci"),
        importance="high",
        source="session_end",
        created="2025-11-27T08:30:00Z",
        updated="2025-11-27T08:30:00Z",
        relations=(("supersedes", LAPTOPS),),
        metadata={"model": "MiniLM", "usefulness": 1.5, "access_count": 3, "last_accessed": "2025-12-01T10:00:00Z"},
    )
    assert records[LAPTOPS].importance == "normal"
    assert records[LAPTOPS].metadata == {}
    text = records[TEXT]
    assert text.content == "Größe 🚢\n\n- erstens\n- zweitens\n", "as it was updated"
    assert (text.importance, text.tags) == ("core", ("text",))
    assert (text.created, text.updated) == ("2025-11-28T12:00:00Z", "2025-11-29T12:00:00Z")
    handoff = records[HANDOFF]
    assert (handoff.type, handoff.created) == ("handoff", "2025-11-30T18:00:00Z")
    assert handoff.metadata == {"date": "2025-11-30", "branch": "main", "memory_ids": [BUILDS]}
    assert [(lost.origin, lost.reason) for lost in losses.skips] == [(THROWN, "was deleted there")]
    assert records[REPLACED].metadata == {"superseded_by": THROWN}, "by what is not imported"
    assert len(records) == 5
    assert {path: path.stat().st_mtime_ns for path in lance.rglob("*")} == before, "something was written"
    assert {record.note_id for record in read(lance)[0].values()} == {record.note_id for record in records.values()}


def test_the_folder_of_the_table_can_be_named_too(lance: Path) -> None:
    assert READER.recognises(lance / "memories.lance")
    assert len(read(lance / "memories.lance")[0]) == 5


def test_everything_that_was_stored_in_sqlite_comes_out(sqlite: Path) -> None:
    assert READER.recognises(sqlite)
    records, losses = read(sqlite)
    replicas = records[BUILDS]
    assert (replicas.content, replicas.project, replicas.type) == ("Two replicas are enough.", "harbour", "decision")
    assert (replicas.importance, replicas.tags, replicas.relations) == ("core", ("ops",), (("supersedes", LAPTOPS),))
    assert replicas.created == "2026-03-01T08:30:00Z"
    assert replicas.metadata == {
        "project": "/home/zoe/work/harbour",
        "importance": "stated twice",
        "key": "replicas",
        "confidence": "verified",
        "pinned": 1,
        "expires_at": "2027-03-01T00:00:00Z",
        "quality_score": 0.75,
        "episode_id": "e1",
        "sequence_number": 2,
        "preceding_memory_id": LAPTOPS,
        "usefulness": 2.0,
    }
    assert (records[LAPTOPS].importance, records[LAPTOPS].metadata) == ("low", {"archived": 1})
    assert [lost.reason for lost in losses.skips] == ["was deleted there"]
    assert [record.note_id for record in read(sqlite)[0].values()] == [record.note_id for record in records.values()]


def test_a_memory_keeps_its_id_when_the_store_moves_from_lancedb_to_sqlite(lance: Path, sqlite: Path) -> None:
    before = read(lance)[0][LAPTOPS]
    with sqlite3.connect(sqlite) as connection:
        connection.execute("UPDATE memories SET created_at = 1759276800000 WHERE id = ?", (LAPTOPS,))
    connection.close()
    assert read(sqlite)[0][LAPTOPS].note_id == before.note_id


def test_without_the_library_a_person_is_told_what_to_install(lance: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lance", None)  # what importing it comes to where it is not installed
    assert READER.recognises(lance), "that takes no library"
    with pytest.raises(ReaderMissingError) as caught:
        read(lance)
    assert caught.value.hint == with_extra("lancedb")


def test_a_library_that_is_missing_does_not_keep_other_stores_from_being_imported(
    lance: Path, sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lance", None)
    plan = ImportPlan(
        [ImportSource(lance, READER), ImportSource(sqlite, READER)], identify(lance.parent).grant(), ProxyConfig()
    )
    missing, other = plan.survey()
    assert isinstance(missing.failure, ReaderMissingError)
    assert (missing.notes, other.failure) == (0, None)
    assert other.notes == sum(len(batch.notes) for batch in plan.batches(SEALER)) == 2


@pytest.mark.parametrize("kind", ["data", "_versions"])
@pytest.mark.parametrize("damage", [b"", b"\0" * 200, b"\xff" * 3000])
def test_a_damaged_table_is_an_error(lance: Path, kind: str, damage: bytes) -> None:
    for file in (lance / "memories.lance" / kind).iterdir():
        file.write_bytes(damage)
    with pytest.raises(UnreadableError, match=r"cannot be read as a Lance table|has no column"):
        read(lance)


def test_a_table_whose_files_are_cut_off_is_an_error(lance: Path) -> None:
    for file in (lance / "memories.lance" / "data").iterdir():
        os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(UnreadableError) as caught:
        read(lance)
    assert "pylance" in (caught.value.hint or "")


def test_a_table_that_leads_elsewhere_is_refused(lance: Path, tmp_path: Path) -> None:
    table = lance / "memories.lance"
    (file, *_) = (table / "data").iterdir()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnreadableError, match="symlink"):
        read(lance)
    table.rename(tmp_path / "table")
    table.symlink_to(tmp_path / "table")
    with pytest.raises(UnreadableError, match="no folder"):
        read(lance)


def test_other_stores_are_not_taken_for_it(tmp_path: Path, lance: Path) -> None:
    assert not READER.recognises(tmp_path)
    assert not READER.recognises(tmp_path / "missing")
    for manifest in (lance / "memories.lance" / "_versions").iterdir():
        manifest.write_bytes(manifest.read_bytes().replace(b"superseded_by", b"text_of_others"))
    assert not READER.recognises(lance)
    with pytest.raises(UnreadableError):
        read(tmp_path)


def test_odd_rows_are_counted_or_kept_as_they_stand(sqlite: Path) -> None:
    with sqlite3.connect(sqlite) as connection:
        insert = "INSERT INTO memories (id, content, metadata, created_at, updated_at, superseded_by) VALUES "
        connection.execute(insert + "('blob', x'ff', '{}', 0, 0, NULL)")
        connection.execute(insert + "('odd', 'text', '{broken', 'soon', 1e300, 'odd')")
        connection.execute(insert + "('list', 'text', '[1]', 1, 2, 'nobody')")
    connection.close()
    records, losses = read(sqlite)
    assert ("blob", "has no text") in [(lost.origin, lost.reason) for lost in losses.skips]
    assert records["odd"].created is None
    assert records["odd"].metadata["metadata"] == "{broken"
    assert records["odd"].metadata["created_at"] == "soon"
    assert records["list"].metadata == {"metadata": [1], "superseded_by": "nobody"}


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    assert READER.places(tmp_path) == [tmp_path / ".local" / "share" / "vector-memory-mcp" / "memories.db"]
