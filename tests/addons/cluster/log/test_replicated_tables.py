"""What is in the log: every table but those that are derived, and all of it arrives."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support.daemon.logged import Node, Store, held
from tests.support.documents.transcripts import SESSION
from tests.support.sealing.rosters import KEYS

from confide_cluster.daemon.log import opening
from confide_cluster.daemon.log.log_tables import Log
from confide_cluster.daemon.log.postgres_engine import PostgresEngine
from confide_cluster.daemon.log.replicated_tables import DERIVED, LogReplay, Recorder, truths
from confide_cluster.errors import LogError
from confide_crypto.sealing.record import SealedRecord
from confide_daemon.documents.transcripts import MessageBatch, SessionName, TranscriptMessage
from confide_daemon.documents.writer import RepeatableChange
from confide_daemon.errors import ConfideError
from confide_daemon.store.database import connect
from confide_daemon.store.space_store import Store as Database

KEY = bytes(range(32))
KNOWN = {
    *("chunk", "generation", "note", "note_relation", "note_tag", "breach", "migration", "vector_cache"),
    *("document_name", "document_tag", "document_link"),
    *("keyword", "keyword_config", "keyword_data", "keyword_docsize", "keyword_idx"),
}
LISTS = ("document_name", "document_link", "(SELECT document, tag, 0 FROM document_tag)")
WORDS = ("parrot", "heron", "postgres", "lock", "pool", "tag")


@pytest.fixture
def connection(tmp_path: Path) -> Any:
    """To a new database of this version."""
    with closing(Database.open(tmp_path / "s.db", KEY, writer=True, now=0.0)) as database:
        yield database.connection


def test_every_table_is_truth_unless_it_is_listed_as_derived(connection: apsw.Connection) -> None:
    """A truth has a key by which sessions know its rows, and is no virtual table; `receipt_key` has one row ever."""
    tables = connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main'").fetchall()
    assert {name for name, _ in tables if DERIVED.fullmatch(str(name)) and not str(name).startswith("sqlite_")} == KNOWN
    found = truths(connection)
    assert {"document", "revision", "operation", "sealed_record", "life", "trusted_text"} <= set(found)
    assert {name for name, kind in tables if kind != "table"} & set(found) == set()
    without = [table for table in found if not any(row[5] for row in connection.execute(f"PRAGMA table_info({table})"))]
    assert without == ["receipt_key"]


def test_a_table_that_a_later_version_adds_is_in_the_log_unasked(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE later (id INTEGER PRIMARY KEY, said TEXT)")
    recorder = Recorder(connection)
    connection.execute("INSERT INTO later VALUES (1, 'something')")
    connection.execute("INSERT OR REPLACE INTO mark VALUES ('checked_at', 1), ('open', 1)")  # about this copy alone
    changes = [(one.name, one.new) for one in apsw.Changeset.iter(recorder.patchset())]
    assert changes == [("later", (1, "something"))]
    recorder.close()


def test_how_far_derived_rows_are_is_no_change(connection: apsw.Connection) -> None:
    """Else whoever takes a space over would log that it was cut again, and the next one would cut it again for that."""
    recorder = Recorder(connection)
    connection.execute("INSERT INTO project VALUES (1, 'p')")
    connection.execute(
        "INSERT INTO document (id, project, path, revision, hash, author, updated_at, source, day) "
        "VALUES (1, 1, 'a.md', 1, 'h', 'a', 0, 'memory', '2026-01-01')"
    )
    recorder.restart()
    connection.execute("UPDATE document SET chunking = '48/0/2', cut_hash = 'h', pieces = 3, mentions = 0")
    assert recorder.patchset() == b""
    connection.execute("UPDATE document SET hash = 'i'")
    assert len(list(apsw.Changeset.iter(recorder.patchset()))) == 1
    recorder.close()


def test_what_sqlite_would_leave_out_is_refused(connection: apsw.Connection, tmp_path: Path) -> None:
    """It applies nothing, and says nothing, where a patchset has a column that a table lacks."""
    connection.execute("ALTER TABLE project ADD COLUMN newer TEXT")
    recorder = Recorder(connection)
    connection.execute("INSERT INTO project (id, name, newer) VALUES (1, 'p', 'x')")
    patchset = recorder.patchset()
    recorder.close()
    with closing(Database.open(tmp_path / "older.db", KEY, writer=True, now=0.0)) as older:
        apsw.Changeset.apply(patchset, older.connection)
        assert older.connection.execute("SELECT count(*) FROM project").get == 0
        with pytest.raises(LogError, match="does not know"):
            LogReplay(older.connection).apply(patchset)


@pytest.mark.parametrize("seed", range(2))
async def test_after_drawn_operations_two_copies_have_the_same_truths(store: Store, tmp_path: Path, seed: int) -> None:
    """One that wrote them, and one that has them from the log alone; a document in both is found by the same pieces and names.

    An entry has all that is true of its write: nothing that was derived meanwhile waits for the next one.
    """
    draw = random.Random(seed)
    async with store.node() as node:
        outbox: Any = (await node.space()).outbox
        for number in range(60):
            before = outbox._number
            with suppress(ConfideError):  # what is not there cannot be deleted
                await operate(node, draw, number)
            pending = {one.name for one in apsw.Changeset.iter(outbox._pending)} if outbox.has_pending else set()
            # How often something is used is counted by itself, now and then, as notes are looked at by themselves that
            # repeat each other: both go with the next write.
            assert outbox._number == before or pending <= {"document_use", "night_findings", "recall"}
        # In a transaction of what is derived.
        await (await node.space()).usage._write()
    copy = tmp_path / "copy.db"
    engine = PostgresEngine(store.url)
    space_log = Log(engine, node.space_id, lambda: 0, 3.0)
    opened = await asyncio.to_thread(lambda: opening.bring(space_log, space_log.take(), copy, node.key, now=0.0))
    engine.close()
    one, other = held(node.path, node.key), held(copy, node.key)
    assert one == other
    assert sum(map(len, one.values())) > 60
    assert len(opened.documents) > 5
    store.sql("DELETE FROM node")
    async with store.node("two") as two:
        await two.space()
    assert derived(node.path, node.key) == derived(two.path, two.key)


def derived(path: Path, key: bytes) -> list[Any]:
    """What a database has of its documents beside them, that no order of writing changes."""
    with closing(connect(path, key, writer=False)) as connection:
        names = [connection.execute(f"SELECT * FROM {one} ORDER BY 1, 2, 3").fetchall() for one in LISTS]
        found = (
            "SELECT id, mentions, words, importance, pieces, class FROM document WHERE source = 'memory' ORDER BY id"
        )
        pieces = "SELECT document, position, start_line, end_line, heading, text, doubted FROM chunk ORDER BY 1, 2"
        return [*names, connection.execute(found).fetchall(), connection.execute(pieces).fetchall()]


async def operate(node: Node, draw: random.Random, number: int) -> None:
    """One of what machines do, drawn."""
    space = await node.space()
    path = f"memory/{draw.choice(WORDS)}.md"
    project = draw.choice(("p", "q"))
    text = f"# {draw.choice(WORDS)}\n\n{' '.join(draw.choices(WORDS, k=8))} #{draw.choice(WORDS)} [[{draw.choice(WORDS)}]]\n"
    match draw.randrange(12):
        case 0 | 1:
            await space.documents.put(project, path, text, base=0, author="a", by="owner")
        case 2 | 3:
            operation = RepeatableChange(f"{number:032x}", "asked")
            await space.documents.append(project, path, text, heading=None, author="a", operation=operation)
        case 4:
            await space.documents.delete(project, path, author="a")
        case 5:
            await space.documents.restore(project, path, revision=None, author="a")
        case 6:
            if draw.random() < 0.5:
                await space.projects.link("p", "q", known=["p", "q"])
            else:
                await space.projects.unlink("p", "q")
        case 7:
            space.usage.count([1, 2, 3])
            await space.usage._write()
        case 8:
            await space.records.put([SealedRecord.seal(KEYS, "password", b"secret %d" % number)])
        case 9:
            note = f"memory/notes/{draw.choice(WORDS)}.md"
            front = "---\nid: mem_parrot_20261125T120000_abcdef\ntype: decision\ntags: [a, b]\n---\n"
            await space.documents.put(project, note, front + text, base=0, author="a", by="untrusted")
        case 10:
            found = await space.documents.read(project, path)
            await space.documents.trust(project, path, found.hash, author="laptop")
        case 11:
            name = SessionName(project, "claude-code", SESSION)
            state = await space.transcripts.state(name)
            message = TranscriptMessage("user", text, datetime(2026, 11, 20, 14, number, tzinfo=UTC), "main")
            batch = MessageBatch(name, state.version, state.offset, state.offset + 10, "h", "m", (message,))
            await space.transcripts.take(batch, author="a")
