"""What every store must do. A second backend is added to `BACKENDS` and passes the same tests."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from confide_daemon.config import ChunkSettings
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.retrieval.chunker import cut
from confide_daemon.store.rows import Breach, Filter, OperationRow, Piece, TranscriptRow
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.document_tables import OPERATIONS_KEPT_S
from confide_daemon.store.tables.pieces import CACHED_S, CACHED_VECTORS, RECENT_S, Generation
from confide_daemon.store.tables.vector_scan import VectorScan
from confide_daemon.store.upkeep import repair
from confide_memory.documents import text_hash
from confide_memory.tools.question import keyword_query

NOW = 1_700_000_000.0  # 2023-11-14
EMBEDDER = HashedEmbedder(64)
CHUNKING = ChunkSettings(16, 0)


class Backend:
    """Opens connections to one database, as a space does: one that writes, any number that read."""

    def __init__(self, open_store: Callable[[bool], Store]) -> None:
        self._open = open_store
        self._opened: list[Store] = []

    def connection(self, *, writer: bool) -> Store:
        store = self._open(writer)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in reversed(self._opened):
            store.close()
        self._opened.clear()


def sqlite_in_memory_scan(folder: Path) -> Backend:
    """Vectors searched in memory."""
    key, scan = os.urandom(32), VectorScan()
    return Backend(lambda writer: Store.open(folder / "a.db", key, writer=writer, now=NOW, scan=scan))


def sqlite_in_database(folder: Path) -> Backend:
    """Vectors searched by sqlite-vec: the reference, and the way of large spaces."""
    key, scan = os.urandom(32), VectorScan(limit_bytes=0)
    return Backend(lambda writer: Store.open(folder / "a.db", key, writer=writer, now=NOW, scan=scan))


BACKENDS = {"sqlite": sqlite_in_memory_scan, "sqlite-vec": sqlite_in_database}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    made = BACKENDS[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.connection(writer=True)


def put(store: Store, project: str, path: str, text: str, *, now: float = NOW) -> list[Piece]:
    """A document with its pieces, in one transaction."""
    pieces = cut(text, CHUNKING)
    with store.writing():
        row = store.documents.save(project, path, text, author="alice", now=now)
        store.pieces.replace(row, pieces, chunking=CHUNKING.name, now=now)
    return pieces


def live(store: Store, *, model: str = EMBEDDER.model) -> Generation:
    with store.writing():
        generation = store.vectors.add_generation("hashed", model, 64, live=True, now=NOW)
    store.vectors.warm(generation.id)
    return generation


def embed_all(store: Store, generation: Generation, embedder: HashedEmbedder = EMBEDDER) -> int:
    waiting = store.vectors.waiting(generation.id, after=0, limit=10_000)
    vectors = embedder.embed_documents([piece.text for piece in waiting])
    with store.writing_derived():
        return store.vectors.add(generation.id, list(zip([piece.id for piece in waiting], vectors, strict=True)))


def paths(store: Store, pieces: list[int]) -> list[str]:
    rows = store.pieces.hits(pieces)
    return [rows[piece].path for piece in pieces]


def keyword(store: Store, text: str, allowed: Filter | None = None) -> list[str]:
    found = store.keywords.candidates(keyword_query(text), allowed or Filter(), limit=50)
    return paths(store, [piece for piece, _ in found])


def vector(
    store: Store, generation: Generation, text: str, allowed: Filter | None = None, limit: int = 50
) -> list[str]:
    found = store.vectors.nearest(generation.id, EMBEDDER.embed_query(text), allowed or Filter(), limit=limit)
    return paths(store, [piece for piece, _ in found])


def test_a_statement_within_another_leaves_nothing_behind(store: Store) -> None:
    """A version of SQLite's package kept the outer one for ever, and looked through all that it had kept at every statement."""
    outer = store.connection.execute("SELECT name FROM sqlite_schema")
    next(outer)
    store.rows("SELECT 1")
    left = weakref.ref(outer)
    del outer
    assert left() is None


# ---------------------------------------------------------------- documents


def test_every_revision_can_be_read_again(store: Store) -> None:
    """Revisions count from one and keep their text, deletions included."""
    for text in ("first ä\n", "second\n", None, "third\n"):
        with store.writing():
            row = store.documents.save("p", "a.md", text, author="bob", now=NOW)
    assert (row.revision, row.deleted, row.hash) == (4, False, text_hash("third\n"))
    revisions = [store.documents.revision(row.id, number) for number in (1, 2, 3, 4)]
    assert [revision.text for revision in revisions if revision] == ["first ä\n", "second\n", None, "third\n"]
    assert store.documents.revision(row.id, 5) is None


def test_documents_are_told_apart_by_project(store: Store) -> None:
    """The same path in two projects is two documents."""
    put(store, "p", "a.md", "alpha\n")
    put(store, "q", "a.md", "beta\n")
    assert [(row.project, row.path) for row in store.documents.list_documents(None)] == [("p", "a.md"), ("q", "a.md")]
    assert [row.project for row in store.documents.list_documents(frozenset({"q"}))] == ["q"]
    assert store.documents.find("r", "a.md") is None


def test_a_failed_transaction_leaves_nothing(store: Store, backend: Backend) -> None:
    """Document, revision, pieces and keyword rows come together or not at all."""
    put(store, "p", "a.md", "alpha stays\n")
    with contextlib.suppress(RuntimeError), store.writing():
        row = store.documents.save("p", "a.md", "omega\n", author="bob", now=NOW)
        store.pieces.replace(row, cut("omega\n", CHUNKING), chunking=CHUNKING.name, now=NOW)
        raise RuntimeError
    row_now = store.documents.find("p", "a.md")
    assert row_now is not None
    assert row_now.revision == 1
    assert keyword(store, "alpha") == ["a.md"]
    assert keyword(store, "omega") == []


def test_a_reader_sees_one_state_while_others_write(store: Store, backend: Backend) -> None:
    """A search never mixes what was before a write with what came after."""
    put(store, "p", "a.md", "alpha\n")
    reader = backend.connection(writer=False)
    with reader.reading():
        assert keyword(reader, "alpha") == ["a.md"]
        put(store, "p", "b.md", "alpha too\n")
        assert keyword(reader, "alpha") == ["a.md"]
        assert reader.documents.find("p", "b.md") is None
    assert sorted(keyword(reader, "alpha")) == ["a.md", "b.md"]


# ---------------------------------------------------------------- pieces and keywords


def test_unchanged_pieces_keep_their_ids_and_vectors(store: Store) -> None:
    """An edit embeds only what it touched."""
    paragraphs = [f"paragraph number {n} about topic{n}\n" for n in range(20)]
    put(store, "p", "a.md", "\n".join(paragraphs))
    generation = live(store)
    embed_all(store, generation)
    before = {piece for piece, _ in store.keywords.candidates('"paragraph"', Filter(), limit=99)}
    paragraphs[10] = "something else about pools\n"
    put(store, "p", "a.md", "\n".join(paragraphs))
    after = {piece for piece, _ in store.keywords.candidates('"paragraph" OR "pools"', Filter(), limit=99)}
    assert 1 <= len(after - before) <= 3
    assert store.vectors.waiting_count(generation.id) == len(after - before)
    assert keyword(store, "topic10") == []
    assert keyword(store, "topic19") == ["a.md"]


def test_pieces_know_their_new_lines_after_an_edit_above(store: Store) -> None:
    """Unchanged pieces move, with their line numbers and headings."""
    put(store, "p", "a.md", "# Old\n\nthe pool was empty\n")
    put(store, "p", "a.md", "# Added\n\nwords words\n\n# New\n\nthe pool was empty\n")
    (piece, _), *_ = store.keywords.candidates('"pool"', Filter(), limit=9)
    row = store.pieces.hits([piece])[piece]
    assert (row.end_line, row.heading) == (7, "New")
    assert keyword(store, "old") == []


def test_documents_come_by_name_from_the_first_above_one(store: Store) -> None:
    names = [("a", "1.md"), ("a", "2.md"), ("a", "é.md"), ("b", "1.md"), ("b", "sessions/x.md"), ("c", "1.md")]
    for project, path in reversed(names):
        store.documents.save(project, path, "text\n", author="alice", now=NOW)
    store.documents.save("a", "gone.md", "text\n", author="alice", now=NOW)
    store.documents.save("a", "gone.md", None, author="alice", now=NOW)

    def following(
        *after: str, projects: set[str] | None = None, sources: set[str] | None = None, limit: int = 9
    ) -> list[tuple[str, str]]:
        reached = None if projects is None else frozenset(projects)
        of = None if sources is None else frozenset(sources)
        rows = store.documents.following(reached, (after[0], after[1]), sources=of, limit=limit)
        return [(row.project, row.path) for row in rows]

    assert following("", "") == names
    assert following("", "", limit=4) == names[:4]
    assert following("a", "2.md") == names[2:]
    assert following("a", "zz") == names[2:]
    assert following("aa", "") == names[3:]
    assert following("a", "1.md", projects={"a", "c"}) == [names[1], names[2], names[5]]
    assert following("b", "", sources={"memory"}) == [names[3], names[5]]
    assert following("", "", projects=set()) == following("", "", sources=set()) == []


def test_deleted_documents_are_not_found(store: Store) -> None:
    """Neither by words nor by meaning."""
    put(store, "p", "a.md", "alpha pool\n")
    generation = live(store)
    embed_all(store, generation)
    with store.writing():
        row = store.documents.save("p", "a.md", None, author="bob", now=NOW)
        store.pieces.replace(row, [], chunking=CHUNKING.name, now=NOW)
    assert keyword(store, "alpha") == []
    assert vector(store, generation, "alpha pool") == []
    assert store.pieces.count() == 0
    assert store.documents.counts(None) == {}


def test_words_are_found_in_headings_and_file_names(store: Store) -> None:
    """The header counts beside the text; stems match."""
    put(store, "p", "memory/notes/deployment-plan.md", "# Rollback\n\nuse the button\n")
    for word in ("deployments", "rollback", "button"):
        assert keyword(store, word) == ["memory/notes/deployment-plan.md"], word


def test_scores_rank_the_rarer_word_higher_even_in_a_small_space(store: Store) -> None:
    """With three notes BM25 alone would hold every word for worthless."""
    put(store, "p", "a.md", "we chose postgres for the project\n")
    put(store, "p", "b.md", "the project is late\n")
    put(store, "p", "c.md", "lunch for the project\n")
    found = store.keywords.candidates(keyword_query("project postgres"), Filter(), limit=9)
    assert paths(store, [piece for piece, _ in found])[0] == "a.md"
    assert all(score > 1 for _, score in found)


# ---------------------------------------------------------------- vectors


def test_cosines_are_true_for_every_piece_that_has_a_vector(store: Store) -> None:
    """Also for those the vector leg did not return; pieces without a vector are left out."""
    texts = [f"word{n} and word{n + 1} in a pool\n" for n in range(30)]
    for n, text in enumerate(texts):
        put(store, "p", f"{n:02}.md", text)
    generation = live(store)
    embed_all(store, generation)
    put(store, "p", "late.md", "not embedded\n")
    asked = EMBEDDER.embed_query("word3 pool")
    every = [piece for piece, _ in store.keywords.candidates('"pool" OR "embedded"', Filter(), limit=99)]
    cosines = store.vectors.cosines(generation.id, asked, every)
    rows = store.pieces.hits(every)
    assert len(cosines) == len(texts)
    for piece, cosine in cosines.items():
        expected = float(EMBEDDER.embed_documents([rows[piece].text])[0] @ asked)
        assert cosine == pytest.approx(expected, abs=1e-5)
    nearest = store.vectors.nearest(generation.id, asked, Filter(), limit=5)
    best = sorted(cosines.values(), reverse=True)[:5]
    assert [score for _, score in nearest] == pytest.approx(best, abs=1e-5)


def test_vectors_of_vanished_pieces_are_not_stored(store: Store) -> None:
    """A piece deleted while it was being embedded; and none is stored twice."""
    put(store, "p", "a.md", "alpha\n")
    generation = live(store)
    waiting = store.vectors.waiting(generation.id, after=0, limit=9)
    put(store, "p", "a.md", "omega\n")
    rows = EMBEDDER.embed_documents([piece.text for piece in waiting])
    with store.writing_derived():
        assert store.vectors.add(generation.id, [(waiting[0].id, rows[0])]) == 0
    assert embed_all(store, generation) == 1
    (piece, _), *_ = store.keywords.candidates('"omega"', Filter(), limit=1)
    with store.writing_derived():
        assert store.vectors.add(generation.id, [(piece, rows[0])]) == 0


def test_the_oldest_waiting_pieces_come_first(store: Store) -> None:
    """Whether few or many wait, old ones or new ones, and from whichever one on."""
    for n in range(12):
        put(store, "p", f"{n:02}.md", f"word{n} in a pool\n")
    generation = live(store)
    waiting = store.vectors.waiting(generation.id, after=0, limit=99)
    held = [waiting[n] for n in (1, 2, 3, 5, 6, 8, 9)]
    with store.writing_derived():
        store.vectors.add(
            generation.id, list(zip((one.id for one in held), EMBEDDER.embed_documents(["x"] * 7), strict=True))
        )
    left = [waiting[n].id for n in (0, 4, 7, 10, 11)]
    for limit in (1, 2, 4, 5, 6, 99):
        for after in (0, left[0], left[2], left[-1]):
            found = store.vectors.waiting(generation.id, after=after, limit=limit)
            assert [one.id for one in found] == [one for one in left if one > after][:limit]
    with store.writing_derived():
        store.vectors.add(generation.id, list(zip(left, EMBEDDER.embed_documents(["x"] * 5), strict=True)))
    assert store.vectors.waiting(generation.id, after=0, limit=9) == []


def test_known_vectors_come_back_without_the_model(store: Store) -> None:
    """Of equal texts in other documents, and of texts that were deleted and return."""
    put(store, "p", "a.md", "alpha pool\n")
    generation = live(store)
    embed_all(store, generation)
    expected = EMBEDDER.embed_query("alpha pool")
    put(store, "q", "copy.md", "alpha pool\n")
    digest = store.vectors.waiting(generation.id, after=0, limit=1)[0].hash
    np.testing.assert_allclose(store.vectors.known_vectors(generation, [digest])[digest], expected, atol=1e-6)
    for project, path in (("p", "a.md"), ("q", "copy.md")):
        put(store, project, path, "gone\n")
    np.testing.assert_allclose(store.vectors.known_vectors(generation, [digest])[digest], expected, atol=1e-6)
    assert store.vectors.known_vectors(generation, [b"unknown"]) == {}


def test_a_new_generation_takes_over_in_one_step(store: Store, backend: Backend) -> None:
    """Until then the old one answers; afterwards it is gone. Models never share a table."""
    put(store, "p", "a.md", "alpha pool\n")
    put(store, "p", "b.md", "beta lake\n")
    first = live(store)
    embed_all(store, first)
    with store.writing():
        second = store.vectors.add_generation("hashed", "other", 64, live=False, now=NOW)
    assert [one.live for one in store.vectors.generations()] == [True, False]
    assert store.vectors.waiting_count(second.id) == 2
    assert vector(store, first, "alpha pool", limit=1) == ["a.md"]
    assert (
        store.vectors.known_vectors(
            second, [piece.hash for piece in store.vectors.waiting(second.id, after=0, limit=9)]
        )
        == {}
    )
    embed_all(store, second, HashedEmbedder(64, model="other"))
    with store.writing():
        store.vectors.make_live(second.id, now=NOW)
    reader = backend.connection(writer=False)
    assert [(one.id, one.live) for one in reader.vectors.generations()] == [(second.id, True)]
    reader.vectors.warm(second.id)
    asked = HashedEmbedder(64, model="other").embed_query("beta lake")
    (piece, cosine), *_ = reader.vectors.nearest(second.id, asked, Filter(), limit=1)
    assert reader.pieces.hits([piece])[piece].path == "b.md"
    assert cosine == pytest.approx(1.0, abs=1e-5)


def test_the_generation_before_can_be_kept_beside(store: Store, backend: Backend) -> None:
    """With its vectors, and swapped in again as it is; pieces that come and go are counted in both."""
    put(store, "p", "a.md", "alpha pool\n")
    first = live(store)
    embed_all(store, first)
    with store.writing():
        second = store.vectors.add_generation("hashed", "other", 64, live=False, now=NOW)
    embed_all(store, second, HashedEmbedder(64, model="other"))
    with store.writing():
        store.vectors.make_live(second.id, now=NOW, keep=True)
    assert [(one.id, one.live) for one in store.vectors.generations()] == [(first.id, False), (second.id, True)]
    put(store, "p", "b.md", "beta lake\n")
    assert [store.vectors.waiting_count(one.id) for one in store.vectors.generations()] == [1, 1]
    with store.writing():
        store.vectors.make_live(first.id, now=NOW, keep=True)
    assert [one.live for one in store.vectors.generations()] == [True, False]
    assert vector(store, first, "alpha pool") == ["a.md"]
    with contextlib.suppress(InterruptedError), store.writing():
        store.vectors.make_live(second.id, now=NOW)
        raise InterruptedError
    assert [one.live for one in backend.connection(writer=False).vectors.generations()] == [True, False]


def test_vectors_of_a_dropped_generation_are_known_to_the_next_unless_it_is_to_be_fresh(store: Store) -> None:
    """So that a change that is taken back costs nothing, and one that is asked for is made."""
    put(store, "p", "a.md", "alpha pool\n")
    put(store, "p", "b.md", "beta lake\n")
    digests = [piece.hash for piece in store.vectors.waiting(live(store).id, after=0, limit=9)]
    with store.writing():
        other = store.vectors.add_generation("hashed", "other", 64, live=False, now=NOW)
    embed_all(store, other, HashedEmbedder(64, model="other"))
    with store.writing():
        store.vectors.drop(other.id, now=NOW)
        again = store.vectors.add_generation("hashed", "other", 64, live=False, now=NOW)
    assert set(store.vectors.known_vectors(again, digests)) == set(digests)
    with store.writing():
        store.vectors.drop(again.id, now=NOW)
        fresh = store.vectors.add_generation("hashed", "other", 64, live=False, now=NOW, fresh=True)
    assert store.vectors.known_vectors(fresh, digests) == {}
    kept = EMBEDDER.embed_query("beta lake")
    with store.writing():
        store.vectors.keep(fresh, [(digests[1], kept)], now=NOW)
    np.testing.assert_allclose(store.vectors.known_vectors(fresh, digests)[digests[1]], kept, atol=1e-6)


def test_the_cache_is_bounded_in_number_and_in_age(store: Store) -> None:
    """After seven days the oldest go first; what nobody has asked for in 90 days goes as well."""
    generation = live(store)
    vector_of = EMBEDDER.embed_query("alpha")
    digests = [number.to_bytes(16, "big") for number in range(CACHED_VECTORS + 10)]
    with store.writing():
        store.vectors.keep(generation, [(digest, vector_of) for digest in digests[:5]], now=NOW)
        store.vectors.keep(generation, [(digest, vector_of) for digest in digests[5:]], now=NOW + 9)
        store.vectors.thin_out(now=NOW + 10)
    assert len(store.vectors.known_vectors(generation, digests)) == CACHED_VECTORS + 10
    with store.writing():
        store.vectors.thin_out(now=NOW + 10 + RECENT_S)
    assert not store.vectors.known_vectors(generation, digests[:10])
    assert len(store.vectors.known_vectors(generation, digests)) == CACHED_VECTORS
    with store.writing():
        store.vectors.keep(generation, [(b"new", vector_of)], now=NOW + 9 + CACHED_S + 1)
        store.vectors.thin_out(now=NOW + 9 + CACHED_S + 1)
    assert list(store.vectors.known_vectors(generation, [*digests, b"new"])) == [b"new"]


def test_tokens_are_counted_by_month_and_model(store: Store) -> None:
    """What is taken back never makes less than nothing; a transaction that fails counts nothing."""
    with store.writing():
        store.tokens.count("2026-11", "voyage", "voyage-3-large", 100)
        store.tokens.count("2026-11", "voyage", "voyage-3-large", 20)
        store.tokens.count("2026-11", "openai", "text-embedding-3-small", 7)
        store.tokens.count("2026-12", "voyage", "voyage-3-large", 1)
    with contextlib.suppress(InterruptedError), store.writing():
        store.tokens.count("2026-11", "voyage", "voyage-3-large", 1000)
        raise InterruptedError
    assert store.tokens.used_tokens("2026-11") == [
        ("openai", "text-embedding-3-small", 7),
        ("voyage", "voyage-3-large", 120),
    ]
    with store.writing():
        store.tokens.count("2026-12", "voyage", "voyage-3-large", -5)
    assert store.tokens.used_tokens("2026-12") == [("voyage", "voyage-3-large", 0)]
    assert store.tokens.used_tokens("2027-01") == []


def test_reader_and_writer_agree_on_vectors_after_many_changes(store: Store, backend: Backend) -> None:
    """Whatever is added, changed and removed, the nearest pieces are those an exact comparison finds."""
    generation = live(store)
    reader = backend.connection(writer=False)
    random = np.random.default_rng(3)
    for step in range(60):
        number = int(random.integers(0, 15))
        words = " ".join(f"w{n}" for n in random.integers(0, 40, 6))
        if step % 7 == 6 and (row := store.documents.find("p", f"{number}.md")) is not None:
            with store.writing():
                row = store.documents.save("p", row.path, None, author="a", now=NOW)
                store.pieces.replace(row, [], chunking=CHUNKING.name, now=NOW)
        else:
            put(store, "p", f"{number}.md", words + "\n")
        embed_all(store, generation)
        asked = EMBEDDER.embed_query(" ".join(f"w{n}" for n in random.integers(0, 40, 3)))
        everything = [
            p for p, _ in reader.keywords.candidates(" OR ".join(f'"w{n}"' for n in range(40)), Filter(), limit=99)
        ]
        rows = reader.pieces.hits(everything)
        expected = {p: float(EMBEDDER.embed_query(rows[p].text) @ asked) for p in everything}
        found = reader.vectors.nearest(generation.id, asked, Filter(), limit=99)
        assert {p for p, _ in found} == set(everything)
        for piece, cosine in found:
            assert cosine == pytest.approx(expected[piece], abs=1e-5)


# ---------------------------------------------------------------- filters

FILTERS = [
    (Filter(projects=frozenset({"p"})), {"MEMORY.md", "memory/2026-11-20.md", "memory/notes/pool.md"}),
    (
        Filter(projects=frozenset({"p", "q"})),
        {"MEMORY.md", "memory/2026-11-20.md", "memory/notes/pool.md", "memory/q.md"},
    ),
    (Filter(projects=frozenset()), set()),
    (Filter(path="memory/q.md"), {"memory/q.md"}),
    (Filter(path="memory/notes"), {"memory/notes/pool.md"}),
    (Filter(path="memory/notes/"), {"memory/notes/pool.md"}),
    (Filter(path="memory/2026-*.md"), {"memory/2026-11-20.md"}),
    (Filter(path="mem"), set()),
    (Filter(sources=frozenset({"sessions"})), {"sessions/s1.md"}),
    (Filter(since="2026-01-01"), {"memory/2026-11-20.md"}),
    (
        Filter(until="2023-11-14", sources=frozenset({"memory"}), projects=frozenset({"p"})),
        {"MEMORY.md", "memory/notes/pool.md"},
    ),
    (Filter(since="2026-11-20", until="2026-11-20"), {"memory/2026-11-20.md"}),
]


def test_filters_hold_in_both_legs(store: Store) -> None:
    """Inside the query: a limit of one still finds the one allowed piece among many nearer ones."""
    for project, path in (
        ("p", "MEMORY.md"),
        ("p", "memory/2026-11-20.md"),
        ("p", "memory/notes/pool.md"),
        ("q", "memory/q.md"),
        ("r", "sessions/s1.md"),
    ):
        put(store, project, path, "the pool was empty\n")
    for n in range(40):
        put(store, "noise", f"x{n}.md", "pool pool empty\n")
    generation = live(store)
    embed_all(store, generation)
    for allowed, expected in FILTERS:
        hidden = {f"x{n}.md" for n in range(40)} if allowed.projects is None and allowed.path is None else set()
        assert set(keyword(store, "pool empty", allowed)) - hidden == expected, allowed
        assert set(vector(store, generation, "pool empty", allowed)) - hidden == expected, allowed
        if expected and not hidden:
            assert set(vector(store, generation, "pool empty", allowed, limit=1)) <= expected, allowed
            assert len(vector(store, generation, "pool empty", allowed, limit=1)) == 1, allowed


# ---------------------------------------------------------------- counts and settings


def test_counts_follow_projects_and_sources(store: Store) -> None:
    """What status shows a caller is of its projects only."""
    put(store, "p", "a.md", "alpha\n")
    put(store, "q", "sessions/s.md", "beta\n\n# more\n\ntext\n")
    assert {name: (count.files, count.chunks) for name, count in store.documents.counts(None).items()} == {
        "memory": (1, 1),
        "sessions": (1, 2),
    }
    assert list(store.documents.counts(frozenset({"p"}))) == ["memory"]
    assert store.projects.names() == ["p", "q"]
    assert store.size_bytes() > 0


def test_documents_cut_by_other_settings_are_found(store: Store) -> None:
    """So that a change of settings takes hold; deleted ones need nothing."""
    put(store, "p", "a.md", "alpha\n")
    put(store, "p", "b.md", "beta\n")
    with store.writing():
        row = store.documents.save("p", "b.md", None, author="a", now=NOW)
        store.pieces.replace(row, [], chunking=CHUNKING.name, now=NOW)
    assert store.documents.documents_to_cut(CHUNKING.name, limit=9) == []
    assert [row.path for row in store.documents.documents_to_cut("400/80/1", limit=9)] == ["a.md"]


def test_a_sound_store_needs_no_healing(store: Store) -> None:
    """The check at opening changes nothing in the normal case."""
    put(store, "p", "a.md", "alpha\n")
    embed_all(store, live(store))
    with store.writing():
        assert not any(store.repair.fix(what, limit=9) for what in (*repair._OF_IDS, *repair._OF_ALL))
    assert store.integrity.glance() == []
    assert [found for found in store.integrity.examine() if found] == []
    assert keyword(store, "alpha") == ["a.md"]


def test_a_check_goes_on_when_a_generation_goes_meanwhile(backend: Backend) -> None:
    """Its vectors were to be read next, and are nobody's any more."""
    store, reader = backend.connection(writer=True), backend.connection(writer=False)
    put(store, "p", "a.md", "alpha\n")
    former = live(store)
    embed_all(store, former)
    # Its vectors, and after them the cache, are what a check looks at last.
    before = len(list(reader.integrity.examine())) - 2
    slices = reader.integrity.examine()
    assert [next(slices) for _ in range(before)] == [[]] * before
    with store.writing():
        store.vectors.make_live(store.vectors.add_generation("other", "m", 3, live=False, now=NOW).id, now=NOW)
    assert former.id not in [one.id for one in store.vectors.generations()]
    assert [found for found in slices if found] == []


@pytest.mark.parametrize("seed", [0.0, 0.5, 0.999])
def test_some_texts_can_be_had_with_their_vectors(store: Store, seed: float) -> None:
    """Each with its own, wherever the sample begins."""
    put(store, "p", "a.md", "\n\n".join(f"# Part {part}\n\nalpha{part} pool" for part in range(9)))
    generation = live(store)
    assert store.vectors.sample(generation.id, 4, seed=seed) == []
    embed_all(store, generation)
    found = store.vectors.sample(generation.id, 4, seed=seed)
    assert len(found) == 4
    for text, packed in found:
        assert np.allclose(np.frombuffer(packed, dtype=np.float32), EMBEDDER.embed_query(text), atol=1e-6)


def test_a_breach_is_written_down_once_until_it_is_healed(store: Store) -> None:
    """The largest count of it stays, and what comes back after it was healed is another one."""
    with store.writing():
        for rows, found_at in ((3, NOW), (7, NOW + 1), (2, NOW + 2)):
            store.breaches.note(Breach("something", rows, found_at))
        store.breaches.note(Breach("another", 1, NOW))
    assert store.breaches.list_breaches(limit=10) == [Breach("another", 1, NOW), Breach("something", 7, NOW)]
    with store.writing():
        store.breaches.settle(["something", "unheard of"], now=NOW + 9)
        store.breaches.note(Breach("something", 1, NOW + 10))
    found = store.breaches.list_breaches(limit=2)
    assert [(one.what, one.rows, one.healed_at) for one in found] == [("something", 1, None), ("another", 1, None)]
    assert store.breaches.list_breaches(limit=10)[-1] == Breach("something", 7, NOW, NOW + 9)


def test_a_mark_is_kept(backend: Backend) -> None:
    """Other connections see it; one that was never set is nothing."""
    store = backend.connection(writer=True)
    assert store.marks.find("open") == 0.0
    with store.writing():
        store.marks.put("open", 1.0)
        store.marks.put("checked_at", NOW)
    other = backend.connection(writer=False)
    assert (other.marks.find("open"), other.marks.find("checked_at")) == (1.0, NOW)


def test_room_is_given_back_in_steps(store: Store) -> None:
    """Until it is not worth more; what is left is found as before."""
    put(store, "p", "a.md", "alpha\n")
    put(store, "p", "big.md", "\n\n".join(os.urandom(400).hex() for _ in range(250)))
    with store.writing():
        row = store.documents.save("p", "big.md", None, author="a", now=NOW)
        store.pieces.replace(row, [], chunking=CHUNKING.name, now=NOW)
    with store.writing():
        store.documents.forget_deleted(NOW + 1, limit=10)
    assert not store.free_space.is_old()
    given = 0
    while step := store.free_space.give_back():
        given += step
    assert given > 150_000
    assert store.free_space.fold_log()
    assert store.free_space.merge_words(begin=True) in (True, False)
    assert keyword(store, "alpha") == ["a.md"]
    assert store.integrity.glance() == []


@pytest.mark.parametrize("match", ['"a" OR "b"', '"src/app.py"', '"' + "x" * 5000 + '"', '"数据库"', '"é"'])
def test_queries_as_they_are_built_are_understood(store: Store, match: str) -> None:
    """Nothing a question can hold makes the store fail."""
    put(store, "p", "a.md", "see src/app.py é\n")
    store.keywords.candidates(match, Filter(), limit=5)
    assert store.keywords.candidates("", Filter(), limit=5) == []


def test_a_change_is_known_by_its_id_for_ninety_days(store: Store) -> None:
    """With the transaction that makes it or not at all; ids that are older are forgotten as new ones come."""
    with store.writing():
        for moment in (NOW, NOW + 86_400):  # the clock has shown it twice, a day apart
            store.marks.confirm_clock(moment)
    for name, when in (("old", NOW - OPERATIONS_KEPT_S - 1), ("young", NOW - OPERATIONS_KEPT_S + 60), ("new", NOW)):
        with store.writing():
            store.operations.add(OperationRow(name, "asked", 1, "", None, 1), now=when)
    assert store.operations.find("old") is None
    assert store.operations.find("young") == OperationRow("young", "asked", 1, "", None, 1)
    with contextlib.suppress(InterruptedError), store.writing():
        store.operations.add(OperationRow("undone", "asked", 1, "", None, 1), now=NOW)
        raise InterruptedError
    assert store.operations.find("undone") is None


# ---------------------------------------------------------------- history and projects


def test_revisions_clashes_and_deletions_are_listed(store: Store) -> None:
    """Newest first, with sizes; a clash counts while its marks are in the newest text of a memory file that is there."""
    mark = "<<<<<<< confide: a\n"
    with store.writing():
        for number, text in enumerate(("ä\n", mark, None)):
            row = store.documents.save("p", "memory/a.md", text, author="bob", now=NOW + number)
        store.documents.save("p", "memory/b.md", mark, author="bob", now=NOW)
        store.documents.save("q", "memory/c.md", mark, author="bob", now=NOW)
        store.documents.save("q", "sessions/d.md", mark, author="bob", now=NOW)
    entries = store.documents.revisions(row.id, limit=2)
    assert [(one.number, one.bytes, one.deleted, one.clash) for one in entries] == [
        (3, 0, True, False),
        (2, len(mark), False, True),
    ]
    assert store.documents.clashing(None, limit=9) == [("p", "memory/b.md", 1), ("q", "memory/c.md", 1)]
    assert store.documents.clashing(None, limit=1) == [("p", "memory/b.md", 1)]
    assert store.documents.clashing(frozenset({"q"}), limit=9) == [("q", "memory/c.md", 1)]
    assert store.documents.deleted_paths("p", limit=9) == ["memory/a.md"]
    assert store.documents.deleted_paths("q", limit=9) == []


def test_memory_is_listed_as_it_was_at_any_moment(store: Store) -> None:
    """To the moment: made, changed, deleted, come back; and what is no longer kept is counted, never left out in silence."""
    with store.writing():
        for at, name, text in (
            (0, "memory/a.md", "one\n"),
            (10, "memory/a.md", "two\n"),
            (20, "memory/a.md", None),
            (30, "memory/a.md", "one\n"),
            (10, "memory/b.md", "stays\n"),
            (10, "memory/gone.md", "soon gone\n"),
            (20, "memory/gone.md", None),
        ):
            store.documents.save("p", name, text, author="bob", now=NOW + at)

    def at(moment: float, below: str = "", limit: int = 9, offset: int = 0) -> tuple[list[tuple[str, int, bool]], int]:
        rows, total = store.documents.page_at("p", below=below, moment=NOW + moment, limit=limit, offset=offset)
        return [(row.path, row.revision, is_current) for row, is_current in rows], total

    a, b, gone = "memory/a.md", "memory/b.md", "memory/gone.md"
    assert at(-1) == ([], 0)
    assert at(0) == ([(a, 1, True)], 1)  # the same text as now
    assert at(9.9) == at(0)
    assert at(10) == ([(a, 2, False), (b, 1, True), (gone, 1, False)], 3)
    assert at(20) == ([(b, 1, True)], 1)
    assert at(99) == ([(a, 4, True), (b, 1, True)], 2)
    assert at(10, below=a) == ([(a, 2, False)], 1)
    assert at(10, limit=1, offset=1) == ([(b, 1, True)], 3)
    assert store.documents.count_lost("p", below="", since=NOW) == 0
    with store.writing():
        store.documents.forget_deleted(NOW + 21, limit=9)
    assert at(10) == ([(a, 2, False), (b, 1, True)], 2)
    assert store.documents.count_lost("p", below="", since=NOW + 10) == 1
    assert store.documents.count_lost("p", below=a, since=NOW + 10) == 0
    assert store.documents.count_lost("p", below="", since=NOW + 21) == 0
    changes = store.documents.changes("p", below="", since=NOW, until=NOW + 19, limit=9)
    assert {(row.path, row.revision) for row in changes} == {(a, 1), (a, 2), (b, 1)}


def test_texts_of_deleted_documents_are_forgotten_but_not_their_numbers(store: Store) -> None:
    """The oldest first, as many as are asked for; what comes again goes on counting."""
    with store.writing():
        for number, name in enumerate(("a.md", "b.md", "c.md")):
            store.documents.save("p", name, "text\n", author="bob", now=NOW)
            store.documents.save("p", name, None, author="bob", now=NOW + number)
        store.documents.save("p", "d.md", "stays\n", author="bob", now=NOW)
    with store.writing():
        assert store.documents.forget_deleted(NOW + 2, limit=1) == 1
        assert store.documents.deleted_paths("p", limit=9) == ["c.md", "b.md"]
        assert store.documents.forget_deleted(NOW + 2, limit=9) == 1
        assert store.documents.forget_deleted(NOW + 2, limit=9) == 0
    assert store.documents.deleted_paths("p", limit=9) == ["c.md"]
    with store.writing():
        row = store.documents.save("p", "a.md", "again\n", author="bob", now=NOW + 9)
    assert [one.number for one in store.documents.revisions(row.id, limit=9)] == [3]


def test_projects_and_their_links_are_listed(store: Store) -> None:
    """A project counts what is there of the sources asked for; a link is one, whoever of the two is named first."""
    put(store, "p", "memory/a.md", "alpha\n")
    put(store, "q", "memory/b.md", "beta\n", now=NOW + 5)
    put(store, "q", "sessions/c.md", "gamma\n")
    assert [(row.name, row.files, row.updated_at) for row in store.projects.list_projects(None, None, limit=9)] == [
        ("q", 2, NOW + 5),
        ("p", 1, NOW),
    ]
    assert [row.name for row in store.projects.list_projects(frozenset({"p"}), None, limit=9)] == ["p"]
    assert [(row.name, row.files) for row in store.projects.list_projects(None, frozenset({"sessions"}), limit=9)] == [
        ("q", 1)
    ]
    with store.writing():
        store.projects.add_link("q", "p", now=NOW)
        store.projects.add_link("p", "q", now=NOW)
        store.projects.add_link("q", "new", now=NOW)
    assert {frozenset(pair) for pair in store.projects.links()} == {frozenset({"p", "q"}), frozenset({"q", "new"})}
    assert len(store.projects.links()) == 2
    with store.writing():
        store.projects.remove_link("p", "q")
    assert [set(pair) for pair in store.projects.links()] == [{"q", "new"}]


# transcripts


def test_how_far_a_transcript_is(store: Store) -> None:
    """One state for each session of each agent in each project, and its documents in order."""
    assert store.transcripts.find("p", "codex", "s") is None
    row = TranscriptRow(0, "p", "codex", "s", 1, 10, "h", "m")
    with store.writing():
        identity = store.transcripts.save(row, now=NOW)
        documents = [
            store.documents.save("p", path, "x\n", author="a", now=NOW) for path in ("sessions/b.md", "sessions/a.md")
        ]
        for document in documents:
            store.transcripts.add_part(identity, document.id)
    assert store.transcripts.find("p", "codex", "s") == replace(row, id=identity)
    assert store.transcripts.parts(identity) == ["sessions/b.md", "sessions/a.md"]
    with store.writing():
        assert store.transcripts.save(replace(row, version=2, offset=20, forgotten=True), now=NOW) == identity
        other = store.transcripts.save(replace(row, project="q"), now=NOW)
        store.transcripts.drop_parts(identity)
    assert other != identity
    assert store.transcripts.find("p", "codex", "s") == replace(row, id=identity, version=2, offset=20, forgotten=True)
    assert store.transcripts.parts(identity) == []


def test_the_state_of_a_transcript_and_its_text_are_one(store: Store) -> None:
    """A transaction that fails leaves neither."""

    def fail() -> None:
        with store.writing():
            store.transcripts.save(TranscriptRow(0, "p", "codex", "s", 1, 10, "h", "m"), now=NOW)
            store.documents.save("p", "sessions/a.md", "x\n", author="a", now=NOW)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.transcripts.find("p", "codex", "s") is None
    assert store.documents.find("p", "sessions/a.md") is None


def test_pieces_are_added_behind_the_others(store: Store) -> None:
    """They are found, stand in order, and wait for their vectors; an older revision can be dropped meanwhile."""
    generation = live(store)
    put(store, "p", "sessions/a.md", "alpha\n")
    assert store.documents.has_transcripts()
    embed_all(store, generation)
    with store.writing():
        row = store.documents.save("p", "sessions/a.md", "alpha\n\nbeta\n", author="a", now=NOW)
        store.documents.drop_revision(row.id, 1)
        store.pieces.add(row, [Piece(3, 3, "beta", "", 1)], now=NOW)
    assert keyword(store, "beta") == ["sessions/a.md"]
    assert store.vectors.waiting_count(generation.id) == 1
    assert store.documents.revision(row.id, 1) is None
    found = store.documents.revision(row.id, 2)
    assert found is not None
    assert found.text == "alpha\n\nbeta\n"
    hits = store.pieces.hits([1, 2])
    assert [hits[number].position for number in (1, 2)] == [0, 1]


def test_whether_there_are_transcripts(store: Store) -> None:
    """Living ones."""
    put(store, "p", "memory/a.md", "alpha\n")
    assert not store.documents.has_transcripts()
    put(store, "p", "sessions/a.md", "alpha\n")
    with store.writing():
        store.documents.save("p", "sessions/a.md", None, author="a", now=NOW)
    assert not store.documents.has_transcripts()


def test_a_text_without_a_vector_waits_for_none_and_is_near_to_nothing(store: Store) -> None:
    """What its model did not understand: neither the scan in memory, the table, the cache nor the check of the index takes it for one."""
    with store.writing():
        row = store.documents.save("p", "a.md", "a", author="alice", now=NOW)
        store.pieces.replace(row, [Piece(1, 1, "one", "", 1), Piece(2, 2, "two", "", 1)], chunking="test", now=NOW)
        generation = store.vectors.add_generation("fake", "m", 3, live=True, now=NOW)
        one, two = store.vectors.waiting(generation.id, after=0, limit=9)
        known = np.array([0.6, 0.8, 0.0], dtype=np.float32)
        store.vectors.add(generation.id, [(one.id, known), (two.id, np.zeros(3, dtype=np.float32))])
    asked = np.array([1.0, 0.0, 0.0], dtype=np.float32)
    assert store.vectors.waiting_count(generation.id) == 0
    for _ in range(2):
        assert [piece for piece, _ in store.vectors.nearest(generation.id, asked, Filter(), limit=9)] == [one.id]
        store.vectors.warm_in_view(generation.id)
    assert store.vectors.cosines(generation.id, asked, [one.id, two.id]) == {one.id: pytest.approx(0.6)}
    assert store.vectors.of_pieces(generation.id, [one.id, two.id]).keys() == {one.id}
    assert [text for text, _ in store.vectors.sample(generation.id, 9, seed=0.0)] == ["one"]
    assert not store.vectors.known_vectors(generation, [two.hash])[two.hash].any()
    assert [found for found in store.integrity.examine() if found] == []
    with store.writing():
        store.vectors.remove([two.id], now=NOW)
    assert not store.vectors.known_vectors(generation, [two.hash])[two.hash].any()
