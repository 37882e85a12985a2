"""Whatever happens to the rows and pages of a space is found, put right, counted and shown, while it can be read and searched."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import shutil
import time
import zlib
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest
from tests.support.daemon import damage as damaging
from tests.support.daemon.damage import DOCUMENTS, found, open_space, run, text_of
from tests.support.deadline import DEADLINE_S
from tests.support.draws import draws

from confide_daemon.cli import health
from confide_daemon.datadir.disk import Disk
from confide_daemon.errors import StorageError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.server.operator.job_runner import perform
from confide_daemon.spaces import maintenance
from confide_daemon.spaces.space import Space
from confide_daemon.store.upkeep import integrity, salvage
from confide_memory.documents import text_hash


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "s.db"
    asyncio.run(damaging.make(path))
    damaging.sound(path)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return damaging.copy(made, tmp_path)


async def whole(space: Space, *, without: frozenset[int] = frozenset()) -> None:
    """Every document can be read and is found by its own word."""
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    for number in range(DOCUMENTS):
        if number not in without:
            assert (await space.documents.read("p", f"{number}.md")).text == text_of(number)
            assert await found(space, number)


async def healed(space: Space) -> None:
    """Waits until the upkeep, which began by itself, has put everything right."""
    async with asyncio.timeout(60):
        while (await space.status(None)).health.healed_breaches == 0 or space.upkeep.health().state != "ok":  # noqa: ASYNC110 - the upkeep tells nobody
            await asyncio.sleep(0.02)


async def healed_breaches(space: Space) -> set[str]:
    """What was found and put right, as it is written down."""
    noted = await space.threads.read(lambda store: store.breaches.list_breaches(limit=10))
    assert all(one.rows > 0 for one in noted)
    return {one.what for one in noted if one.healed_at is not None}


def vector(*values: float) -> str:
    """SQL for the vector of 64 numbers that begins with these."""
    return f"x'{np.array([*values, *[0.0] * (64 - len(values))], dtype=np.float32).tobytes().hex()}'"


STALE = text_of(5) + "\nstaleword\n"
FOUND_BY_IDS = {
    integrity.KEYWORD_MISSING: "DELETE FROM keyword WHERE rowid IN (SELECT id FROM chunk WHERE document IN (3, 9))",
    integrity.KEYWORD_SURPLUS: "INSERT INTO keyword (rowid, header, body) VALUES (99999, 'word3x3', 'word3x3')",
    integrity.KEYWORD_BROKEN: "DROP TABLE keyword",
    integrity.VECTOR_SURPLUS: f"INSERT INTO vector_1 (chunk, embedding) VALUES (99999, {vector(1.0)})",
    integrity.VECTOR_TABLES: "DROP TABLE vector_1",
    integrity.PIECES_SURPLUS: """INSERT INTO chunk (document, position, start_line, end_line, heading, tokens, hash, text, added_at)
        VALUES (777, 0, 1, 1, '', 3, x'00', 'word3x3 of a document that is not there', 0)""",
    integrity.PIECES_STALE: f"""UPDATE revision SET text = x'{zlib.compress(STALE.encode()).hex()}', hash = '{text_hash(STALE)}'
        WHERE document = 6; UPDATE document SET hash = '{text_hash(STALE)}' WHERE id = 6""",
    integrity.UNCUT: "UPDATE document SET chunking = '~ValueError', pieces = NULL WHERE id = 6",
    integrity.PARTS_SURPLUS: "INSERT INTO transcript_part (document, transcript, position) VALUES (777, 5, 1)",
    integrity.NAMES_LOST: "DELETE FROM project",
    integrity.TEXTS_LOST: "DELETE FROM revision WHERE document = 4",
}


@pytest.mark.parametrize("what", FOUND_BY_IDS)
async def test_what_ids_tell_is_put_right_by_itself(path: Path, what: str) -> None:
    """Nobody asks: the space is opened, and soon it is whole again; what was found is written down and shown."""
    run(path, *FOUND_BY_IDS[what].split(";"))
    space = await open_space(path)
    await healed(space)
    lost_names = what == integrity.NAMES_LOST
    if lost_names:
        assert (await space.status(None)).projects == ["recovered-1"]
        assert (await space.documents.read("recovered-1", "3.md")).text == text_of(3)
    else:
        await whole(space, without=frozenset([5]) if what == integrity.PIECES_STALE else frozenset())
    if what == integrity.PIECES_STALE:
        assert (await space.index.searcher.search(SearchQuery("staleword", min_score=0.0))).hits[0].path == "5.md"
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    assert what in await healed_breaches(space)
    await space.close()
    damaging.sound(path)


def test_doctor_says_why_a_document_cannot_be_cut(path: Path) -> None:
    """By the class of the fault, which tells nothing of the text."""
    run(path, FOUND_BY_IDS[integrity.UNCUT])
    assert health.inspect(path, damaging.KEY) == {"documents that cannot be cut (ValueError)": 1}


NOTE = "---\nid: mem_a_1_abcdef12\ntags: [a, B]\nrelations:\n  supersedes: mem_b_1_abcdef12\n---\n\nThe pool is full.\n"
OTHER = "---\nid: mem_b_1_abcdef12\ntags: [a]\n---\n\nThe pool is empty.\n"


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("DELETE FROM note_tag WHERE tag = 'b'", integrity.NOTES_PARTIAL),
        ("DELETE FROM note_relation", integrity.NOTES_PARTIAL),
        ("DELETE FROM note_tag; DELETE FROM note_relation; DELETE FROM note", integrity.NOTES_MISSING),
        ("UPDATE note_tag SET document = document + 700", integrity.NOTES_PARTIAL),
        ("UPDATE note_tag SET document = document + 700", integrity.NOTES_SURPLUS),
        ("DELETE FROM document_tag", integrity.MENTIONS_PARTIAL),
        ("UPDATE document_name SET document = document + 700", integrity.MENTIONS_SURPLUS),
    ],
)
async def test_what_is_missing_of_notes_is_read_from_their_files_again(path: Path, damage: str, what: str) -> None:
    """A search by a tag, and what supersedes what, would otherwise go wrong unnoticed."""
    space = await open_space(path)
    for name, text in (("a", NOTE), ("b", OTHER)):
        await space.documents.put("p", f"memory/notes/{name}.md", text, base=0, author="a")
    await space.close()
    run(path, *damage.split(";"))
    space = await open_space(path)
    await healed(space)
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    assert what in await healed_breaches(space)
    found = (await space.index.searcher.search(SearchQuery("pool", min_score=0.0, tags=frozenset({"b"})))).hits
    assert [hit.path for hit in found] == ["memory/notes/a.md"]
    older = await space.notes.get("mem_b_1_abcdef12", None)
    assert [(one.note, one.kind) for one in older.relations] == [("mem_a_1_abcdef12", "supersedes")]
    await space.close()
    damaging.sound(path)


FOUND_BY_READING = {
    integrity.KEYWORD_BROKEN: "UPDATE keyword_data SET block = zeroblob(40) WHERE id > 10",
    integrity.VECTOR_UNUSABLE
    + ", not a number": f"UPDATE vector_1 SET embedding = {vector(float('nan'))} WHERE chunk IN (7, 9)",
    integrity.VECTOR_UNUSABLE + ", another length": "UPDATE vector_1 SET embedding = zeroblob(128) WHERE chunk = 7",
    integrity.VECTOR_UNUSABLE
    + ", not of unit length": f"UPDATE vector_1 SET embedding = {vector(0.5)} WHERE chunk = 7",
    integrity.VECTOR_UNUSABLE + ", zero": "UPDATE vector_1 SET embedding = zeroblob(256) WHERE chunk = 7",
    integrity.CACHE_UNUSABLE: "INSERT INTO vector_cache (model, hash, vector, kept_at) VALUES ('hashed/words/64', x'01', x'0000', 9e9)",
    integrity.PIECES_DAMAGED: "UPDATE chunk SET text = 'something else' WHERE id IN (20, 21)",
    integrity.TEXTS_LOST: "UPDATE revision SET text = x'0102' WHERE document = 4",
}


@pytest.mark.parametrize("name", FOUND_BY_READING)
async def test_what_only_reading_tells_is_put_right_by_a_whole_check(path: Path, name: str) -> None:
    """Rows that are all there, and wrong."""
    run(path, FOUND_BY_READING[name])
    space = await open_space(path)
    what = name.split(",")[0]
    assert what in await space.upkeep.check()
    assert what in await healed_breaches(space)
    assert space.upkeep.health().state == "ok"
    await whole(space)
    assert not await space.upkeep.check()
    await space.close()
    damaging.sound(path)


async def test_an_index_that_misses_rows_is_made_anew(path: Path) -> None:
    damaging.hide_from_index(path)
    space = await open_space(path)
    assert integrity.INDEX_BROKEN in await space.upkeep.check()
    await whole(space)
    await space.close()
    damaging.sound(path)


async def test_what_was_written_between_two_checks_is_no_fault(path: Path) -> None:
    """A daemon that runs for days checks every day, over the same connection."""
    space = await open_space(path)
    assert not await space.upkeep.check()
    for number in range(3):
        await space.documents.put("p", "more.md", f"moreword{number}", base=number, author="a")
        await space.upkeep.give_back()  # merges the words
        assert not await space.upkeep.check()
    await space.close()


async def test_vectors_of_another_model_are_never_compared_with(path: Path) -> None:
    """The row of the generation says whose they are: a database moved to a daemon with another model builds its own beside them."""
    run(path, "UPDATE generation SET model = 'another'")
    space = await open_space(path)
    result = await space.index.searcher.search(SearchQuery("word3x3", min_score=0.0))
    assert result.mode == "keyword" or all(hit.vector is not None for hit in result.hits)
    await whole(space)
    assert (await space.status(None)).model == "words"
    await space.close()
    damaging.sound(path)


async def test_a_model_replaced_under_the_same_name_is_seen_and_its_vectors_are_computed_anew(path: Path) -> None:
    """As when a server or a folder gets another model and keeps its name: dimensions and names agree, and meanings do not."""
    run(path, "UPDATE generation SET model = 'other'")
    space = await open_space(path, model="other")
    assert await space.upkeep.check() == {integrity.VECTORS_FOREIGN: 8}
    await whole(space)
    assert integrity.VECTORS_FOREIGN in await healed_breaches(space)
    assert not await space.upkeep.check()
    await space.close()
    damaging.sound(path)


@pytest.mark.parametrize(
    "name",
    [
        "keyword_data",
        "keyword_docsize",
        "vector_1",
        "vector_1_chunk",
        "chunk",
        "chunk_hash",
        "sqlite_autoindex_document_1",
    ],
)
async def test_a_damaged_page_of_what_is_derived_costs_nothing(path: Path, name: str) -> None:
    """One wrong bit makes a page unreadable. Documents are read and found all the while, and after it everything is as it was."""
    damaging.flip(path, damaging.pages_of(path, name)[0])
    space = await open_space(path)
    while_healing = asyncio.create_task(space.upkeep.check())
    searches = 0
    while not while_healing.done():
        result = await space.index.searcher.search(SearchQuery("word3x3", min_score=0.0))
        assert result.hits or result.warnings
        searches += 1
        await asyncio.sleep(0.01)
    await while_healing
    assert searches
    await whole(space)
    assert space.upkeep.health().state == "ok"
    assert integrity.PAGES in await healed_breaches(space)
    assert path.with_name("s.db.damaged").exists()
    await space.close()
    damaging.sound(path)


@pytest.mark.parametrize("part", ["keyword_data", "vector_1"])
async def test_a_search_goes_around_a_damaged_leg_and_says_so(
    path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is put right: the other leg answers."""
    for page in damaging.pages_of(path, part):
        damaging.flip(path, page)
    monkeypatch.setattr("confide_daemon.spaces.maintenance.Upkeep.start", lambda self: None)
    space = await open_space(path)
    result = await space.index.searcher.search(SearchQuery("word3x3", min_score=0.0))
    assert any("damaged" in warning for warning in result.warnings)
    assert space.upkeep.health().state == "healing"
    if part == "vector_1":
        assert result.hits[0].path == "3.md"
    await space.upkeep.check()
    result = await space.index.searcher.search(SearchQuery("word3x3", min_score=0.0))
    assert not any("damaged" in warning for warning in result.warnings)
    await whole(space)
    await space.close()


async def test_a_document_whose_text_is_gone_comes_back_from_a_working_copy(path: Path) -> None:
    """It cannot be rebuilt here, which is said; a machine that compares its files is asked for it."""
    run(
        path,
        "UPDATE revision SET text = x'0102' WHERE document = 4",
        "DELETE FROM chunk WHERE document = 4 AND position = 2",
    )
    space = await open_space(path)
    await space.upkeep.check()
    status = await space.status(None)
    assert status.health.state == "damaged"
    assert any("confide sync" in warning for warning in status.warnings)
    with pytest.raises(StorageError) as caught:
        await space.documents.read("p", "3.md")
    assert caught.value.hint
    comparison = await space.documents.compare("p", [("3.md", text_hash(text_of(3)), 1)], [])
    assert comparison.send == ["3.md"]
    assert (await space.documents.put("p", "3.md", text_of(3), base=1, author="bob")).revision == 2
    await space.upkeep.check()
    assert space.upkeep.health().state == "ok"
    await whole(space)
    await space.close()


@pytest.mark.parametrize("name", ["revision", "document"])
async def test_damaged_pages_of_documents_lose_no_others(path: Path, name: str) -> None:
    """What was on the page is lost or recovered under another name; all the rest is as it was, and machines can send the lost ones."""
    damaging.flip(path, damaging.pages_of(path, name)[0])
    space = await open_space(path)
    await space.upkeep.check()
    assert space.upkeep.health().state == "damaged"
    assert (await space.status(None)).warnings
    entries = [(f"{number}.md", text_hash(text_of(number)), 1) for number in range(DOCUMENTS)]
    comparison = await space.documents.compare("p", entries, [])
    assert len(comparison.send) < DOCUMENTS
    for path_ in comparison.send:
        await space.documents.put("p", path_, text_of(int(path_.removesuffix(".md"))), base=1, author="bob")
    await space.upkeep.check(accept_losses=True)
    assert space.upkeep.health().state == "ok"
    for number in range(DOCUMENTS):
        assert (await space.documents.read("p", f"{number}.md")).text == text_of(number)
    await space.close()


def test_what_one_salvage_could_not_read_outlives_the_next(path: Path) -> None:
    """A disk that fails fails again: the file of the first time, which alone may hold what was lost then, stays for its month."""
    kept = path.with_name("s.db.damaged")
    damaging.flip(path, damaging.pages_of(path, "revision")[0])
    first = path.read_bytes()
    assert salvage.salvage(path, damaging.KEY)
    for _ in range(4):
        salvage.salvage(path, damaging.KEY)
    assert kept.read_bytes() == first
    assert len(list(path.parent.iterdir())) == 4
    assert not salvage.forget_damaged(path, time.time() - 60)
    assert salvage.forget_damaged(path, time.time() + 60)
    assert [file.name for file in path.parent.iterdir()] == ["s.db"]


async def test_a_file_that_was_cut_off_keeps_what_is_left(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 9 // 10])
    space = await open_space(path)
    await space.upkeep.check()
    await space.documents.put("p", "new.md", "a new note about the pool\n", base=0, author="a")
    comparison = await space.documents.compare(
        "p", [(f"{n}.md", text_hash(text_of(n)), 1) for n in range(DOCUMENTS)], []
    )
    for name in comparison.send:
        await space.documents.put("p", name, text_of(int(name.removesuffix(".md"))), base=1, author="bob")
    await space.upkeep.check(accept_losses=True)
    await whole(space)
    assert space.upkeep.health().state == "ok"
    await space.close()


async def test_a_lost_log_loses_the_last_writes_and_nothing_else(path: Path, tmp_path: Path) -> None:
    """Somebody copied the file without its log, or deleted that."""
    space = await open_space(path)
    await space.documents.put("p", "3.md", "another text\n", base=1, author="a")
    other = tmp_path / "other"
    other.mkdir()
    copied = damaging.copy(path, other)
    await space.close()
    space = await open_space(copied)
    assert not await space.upkeep.check()
    await whole(space)
    comparison = await space.documents.compare("p", [("3.md", text_hash("another text\n"), 2)], [])
    assert comparison.send == ["3.md"]
    await space.close()


async def test_a_crash_is_known_and_leads_to_a_whole_check(path: Path) -> None:
    """Closed in good order nothing is read but ids; after a crash everything is, though no reading has met the damage."""
    run(
        path,
        "UPDATE chunk SET text = 'something else' WHERE id = 20",
        "UPDATE mark SET value = 9e9 WHERE name = 'checked_at'",
    )
    space = await open_space(path)
    await asyncio.sleep(0.3)
    await space.close()
    run(path, "UPDATE mark SET value = 1 WHERE name = 'open'")
    space = await open_space(path)
    await healed(space)
    await whole(space)
    await space.close()


async def test_a_deleted_space_gives_its_room_back_while_it_is_searched(tmp_path: Path) -> None:
    """The file itself gets smaller, and what was deleted is in no page of it any more."""
    path = tmp_path / "s.db"
    space = await open_space(path)
    filler = " ".join(f"filler{number}" for number in range(1200))
    for number in range(12):
        await space.documents.put("p", f"big{number}.md", f"# Big {number}\n\n{filler} {number}\n", base=0, author="a")
    await space.documents.put("p", "3.md", text_of(3), base=0, author="a")
    await space.wait_indexed(timeout_s=DEADLINE_S)
    await space.upkeep.give_back()
    before = path.stat().st_size
    for number in range(12):
        await space.documents.remove("p", f"big{number}.md", base=1, author="a")
    await space.threads.write(lambda store: store.documents.forget_deleted(9e12, limit=1000))
    giving: asyncio.Task[int] = asyncio.create_task(space.upkeep.give_back())
    while not giving.done():
        assert await found(space, 3)
        await asyncio.sleep(0.01)
    assert await giving > 0
    # A search that reads just as the log is folded in keeps the file as it is until the next time.
    for _ in range(100):
        if path.stat().st_size < before / 2:
            break
        await space.upkeep.give_back()
    assert path.stat().st_size < before / 2
    assert await found(space, 3)
    await space.close()


async def test_an_old_database_is_rewritten_once_when_nobody_uses_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One made before files could be shortened. Where there is little room on the disk, that waits."""
    run(path, "PRAGMA auto_vacuum = NONE", "VACUUM", "DELETE FROM revision WHERE document > 5")
    size = path.stat().st_size
    space = await open_space(path, disk=(disk := Disk(path.parent)))
    assert (await space.upkeep.give_back(), path.stat().st_size) == (0, size)
    monkeypatch.setattr("confide_daemon.spaces.maintenance.QUIET_S", 0.0)
    disk.is_low = True
    assert (await space.upkeep.give_back(), path.stat().st_size, disk.waiting) == (0, size, ["vacuum"])
    disk.is_low = False
    await space.upkeep.give_back()
    assert await found(space, 3)
    await space.close()
    connection = damaging.connect(path, damaging.KEY, writer=False)
    assert connection.pragma("auto_vacuum") == 2
    connection.close()


async def test_the_looks_at_many_spaces_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were opened at once are not all looked at at once later; a look that somebody asks for waits for none."""
    monkeypatch.setattr(maintenance, "LOOK_S", 0.0)
    monkeypatch.setattr(maintenance, "APART_S", 0.05)
    looks: list[float] = []
    enough = asyncio.Event()

    async def look(_upkeep: maintenance.Upkeep) -> None:
        looks.append(asyncio.get_running_loop().time())
        if len(looks) == 16:
            enough.set()

    monkeypatch.setattr(maintenance.Upkeep, "_round", look)
    turns = maintenance.MaintenanceTurns()
    spaces = [await open_space(tmp_path / f"{number}.db", turns=turns) for number in range(3)]
    looks.clear()
    enough.clear()
    async with asyncio.timeout(DEADLINE_S):
        await enough.wait()
    # Those right behind the opening are not kept apart: three at most.
    assert looks[-1] - looks[0] >= 0.05 * (len(looks) - 1 - 3)
    monkeypatch.setattr(maintenance, "APART_S", 1e6)
    turns.next_s()
    before = len(looks)
    async with asyncio.timeout(DEADLINE_S):
        while len(looks) == before:
            spaces[0].upkeep._wake.set()
            await asyncio.sleep(0.01)
        for space in spaces:
            await space.close()


async def test_room_that_a_reader_holds_back_is_given_back_when_it_is_done(tmp_path: Path) -> None:
    """Then there is nothing more to cut off, and the file is as long as it was all the same."""
    path = tmp_path / "s.db"
    space = await open_space(path)
    filler = " ".join(f"filler{number}" for number in range(1200))
    for number in range(12):
        await space.documents.put("p", f"big{number}.md", f"# Big {number}\n\n{filler} {number}\n", base=0, author="a")
    await space.wait_indexed(timeout_s=DEADLINE_S)
    await space.upkeep.give_back()
    for number in range(12):
        await space.documents.remove("p", f"big{number}.md", base=1, author="a")
    await space.threads.write(lambda store: store.documents.forget_deleted(9e12, limit=1000))
    before = path.stat().st_size
    reader = damaging.connect(path, damaging.KEY, writer=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM document").fetchall()
    assert await space.upkeep.give_back() > 0
    assert path.stat().st_size >= before
    reader.close()
    assert await space.upkeep.give_back() == 0
    assert path.stat().st_size < before / 2
    await space.close()


async def test_a_rebuild_that_is_given_up_leaves_everything_as_whole_as_before(path: Path) -> None:
    """Between two documents; others write and search meanwhile, and asked again it goes through."""
    space = await open_space(path)
    steps: list[tuple[str, int, int]] = []

    def follow(step: str, done: int, total: int) -> None:
        steps.append((step, done, total))

    given_up = await perform(space, "reindex", follow, since=0.0, is_cancelled=lambda: len(steps) > 5)
    assert not given_up["indexed"]
    assert 0 < given_up["chunksUpdated"] < 6 * DOCUMENTS
    await whole(space)
    rebuilding = asyncio.create_task(perform(space, "reembed", follow, since=0.0, is_cancelled=lambda: False))
    written = 0
    while not rebuilding.done():
        await space.documents.put("q", f"{written}.md", "written meanwhile\n", base=0, author="a")
        assert await found(space, 3)
        written += 1
    assert (await rebuilding)["indexed"]
    assert ("cutting documents", DOCUMENTS - 1) in {(step, done) for step, done, _ in steps}
    assert written
    await whole(space)
    assert not await space.upkeep.check()
    await space.close()


# This process has loaded libraries that may not be forked; the one that forks here has loaded this module alone.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload([__name__])


def heal(path: Path, begun: Event) -> None:
    """Heals the space, for longer than anybody lets it."""

    async def healing() -> None:
        begun.set()
        space = await open_space(path)
        await space.upkeep.check()
        await asyncio.sleep(60)

    asyncio.run(healing())


def heal_and_be_killed(path: Path, after_s: float) -> None:
    """Heals the space in a process that is killed in the middle of it, somewhere."""
    begun = FORKING.Event()
    process = FORKING.Process(target=heal, args=(path, begun))
    process.start()
    assert begun.wait(DEADLINE_S)
    # The moment of the kill is the one thing here that is meant to be a matter of time.
    process.join(after_s)
    process.kill()
    process.join(10)
    process.close()


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["rows", "keyword_data", "chunk"])
def test_killed_while_it_heals_it_heals_after_that(path: Path, name: str) -> None:
    """kill -9 at any moment: while rows are mended, the new file is made, or it takes the place of the old one."""
    if name == "rows":
        run(
            path,
            "DELETE FROM keyword WHERE rowid > 0",
            "DELETE FROM vector_1",
            "UPDATE chunk SET text = '' WHERE id < 50",
        )
    else:
        damaging.flip(path, damaging.pages_of(path, name)[0])
    chance = random.Random(7)
    for _ in range(draws(6, 4)):
        heal_and_be_killed(path, chance.uniform(0.02, 0.4))

    async def last() -> None:
        space = await open_space(path)
        await space.upkeep.check()
        await whole(space)
        assert space.upkeep.health().state == "ok"
        await space.close()

    asyncio.run(last())
    damaging.sound(path)


@pytest.mark.parametrize("how", ["deleted", "replaced by another file"])
async def test_a_file_that_goes_while_it_is_open_takes_no_more_writes(path: Path, how: str) -> None:
    """What was written into it would last as long as the process: nothing is acknowledged, and health says why."""
    space = await open_space(path)
    assert "storage" not in space.health_problems()
    if how == "deleted":
        path.unlink()
    else:
        shutil.copy(path, path.with_name("other"))
        path.with_name("other").rename(path)
    assert "storage" in space.health_problems()
    with pytest.raises(StorageError, match=f"its file was {how} while it was open") as refused:
        await space.documents.put("p", "lost.md", "a text\n", base=0, author="a")
    assert "restore a backup" in (refused.value.hint or "")
    assert "storage" in space.health_problems()
    assert any("nothing new can be stored" in line for line in space.upkeep.warnings())
    await space.close()


async def test_a_file_that_was_replaced_ends_no_reader_and_no_process(path: Path) -> None:
    """A connection that is opened then would cut off the index of the log under all that are open: the process would end by SIGBUS."""
    space = await open_space(path)
    assert (await space.documents.read("p", "3.md")).text == text_of(3)
    await space.documents.put("p", "new.md", "a text\n", base=0, author="a")
    shutil.copy(path, path.with_name("other"))
    path.with_name("other").rename(path)
    await space.threads.rest()  # who examines opens the file anew
    with pytest.raises(StorageError, match="replaced by another file while it was open"):
        await space.threads.examine(lambda store: store.rows("SELECT count(*) FROM document"))
    await space.close()


async def test_a_write_that_was_refused_is_known_until_one_is_made(path: Path) -> None:
    """Reads go on meanwhile. The upkeep tries by itself, so that nobody has to store something to see that all is well again."""
    space = await open_space(path)
    await space.threads.maintain(lambda store: store.rows("PRAGMA query_only = ON"))
    with pytest.raises(StorageError, match="not writable"):
        await space.documents.put("p", "new.md", "a text\n", base=0, author="a")
    assert "storage" in space.health_problems()
    assert (await space.documents.read("p", "3.md")).text == text_of(3)
    await space.threads.maintain(lambda store: store.rows("PRAGMA query_only = OFF"))
    space.upkeep.look()
    async with asyncio.timeout(DEADLINE_S):
        while "storage" in space.health_problems():  # noqa: ASYNC110 - as /health asks
            await asyncio.sleep(0.01)
    await space.close()


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_file_that_is_missing_at_the_start_is_a_loss(tmp_path: Path, is_known: bool, is_empty: bool) -> None:
    """Of a space that machines have used; it serves, and says so until an operator has seen it. An empty one is no better."""
    if is_empty:
        (tmp_path / "s.db").touch()
    space = await open_space(tmp_path / "s.db", is_known=is_known)
    health = space.upkeep.health()
    assert (health.state, "storage" in space.health_problems()) == (("damaged", True) if is_known else ("ok", False))
    assert any("missing when the space was opened" in line for line in space.upkeep.warnings()) is is_known
    await space.documents.put("p", "again.md", "from a machine\n", base=0, author="a")
    await space.upkeep.check(accept_losses=True)
    assert space.upkeep.health().state == "ok"
    await space.close()
