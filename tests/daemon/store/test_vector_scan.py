"""The search of vectors in memory finds what exact search finds, keeps to what is committed, and is never in the way of a search."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw
import numpy as np
import pytest
import sqlite_vec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.draws import draws

from confide_daemon.embedding.embedder import Vectors
from confide_daemon.store.database import connect
from confide_daemon.store.rows import Filter, Piece
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation
from confide_daemon.store.tables.vector_scan import COARSE, SLICE, Codes, VectorScan, pack

NOW = 1_700_000_000.0
KEY = bytes(range(32))
DIMENSIONS = 96


def text_like(count: int, dimensions: int, *, seed: int) -> Vectors:
    """Unit vectors that lie as those of texts do: a few hundred topics in a space of far fewer dimensions than they have, and noise."""
    chance = np.random.default_rng(seed)
    inner = dimensions // 4
    basis = chance.standard_normal((inner, dimensions), dtype=np.float32)
    topics = chance.standard_normal((200, inner), dtype=np.float32)
    of = chance.integers(0, len(topics), count)
    made = (topics[of] + 0.6 * chance.standard_normal((count, inner), dtype=np.float32)) @ basis
    made += 1.5 * chance.standard_normal((count, dimensions), dtype=np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)


class Opened:
    """A store whose pieces have the vectors they are given, and vec0 beside it, which searches them exactly."""

    def __init__(self, path: Path, *, dimensions: int = DIMENSIONS, scan: VectorScan | None = None) -> None:
        self.scan = scan or VectorScan()
        self.path, self.dimensions = path, dimensions
        self.store = Store.open(path, KEY, writer=True, now=NOW, scan=self.scan)
        with self.store.writing():
            self.generation = self.store.vectors.add_generation("test", "text-like", dimensions, live=True, now=NOW)

    def reader(self) -> Store:
        return Store.open(self.path, KEY, writer=False, now=NOW, scan=self.scan)

    def put(self, path: str, vectors: Vectors) -> list[int]:
        """A document with a piece for each vector; their ids."""
        with self.store.writing():
            row = self.store.documents.save("p", path, path, author="alice", now=NOW)
            pieces = [Piece(line, line, f"{path} {line}", "", 4) for line in range(1, len(vectors) + 1)]
            self.store.pieces.replace(row, pieces, chunking="test", now=NOW)
            ids = [piece.id for piece in self.store.vectors.waiting(self.generation.id, after=0, limit=len(vectors))]
            self.store.vectors.add(self.generation.id, list(zip(ids, vectors, strict=True)))
        return ids

    def remove(self, path: str) -> None:
        with self.store.writing():
            row = self.store.documents.save("p", path, None, author="alice", now=NOW)
            self.store.pieces.replace(row, [], chunking="test", now=NOW)

    def warm(self) -> None:
        while self.store.vectors.warm(self.generation.id):
            pass

    def found(self, vector: Vectors, *, limit: int = 10, path: str | None = None) -> list[tuple[int, float]]:
        return self.store.vectors.nearest(self.generation.id, vector, Filter(path=path), limit=limit)


def exactly(ids: list[int], vectors: Vectors, question: Vectors, limit: int) -> list[int]:
    """The nearest by sqlite-vec's own table, in a database of its own."""
    database = apsw.Connection(":memory:")
    database.enable_load_extension(True)
    database.load_extension(sqlite_vec.loadable_path())
    database.execute(f"CREATE VIRTUAL TABLE v USING vec0(id INTEGER PRIMARY KEY, e FLOAT[{vectors.shape[1]}])")
    rows = [(one, vector.tobytes()) for one, vector in zip(ids, vectors, strict=True)]
    database.executemany("INSERT INTO v VALUES (?, ?)", rows)
    found = database.execute("SELECT id FROM v WHERE e MATCH ? AND k = ?", (question.tobytes(), limit)).fetchall()
    database.close()
    return [row[0] for row in found]


@pytest.mark.parametrize("dimensions", [384, 1024])
def test_the_codes_find_what_exact_search_finds(dimensions: int) -> None:
    """Of the ten nearest at least 98 in 100 are among the candidates; on real embeddings it is 99 (bench/vector_leg.py)."""
    made = text_like(8_040, dimensions, seed=1)
    vectors, questions = made[:-40], made[-40:]
    ids = np.arange(1, len(vectors) + 1)
    codes = Codes.empty(dimensions).with_rows(ids, ids, pack(vectors))
    found = 0
    for question in questions:
        nearest = ids[np.argsort(-(vectors @ question))[:10]]
        found += len(np.intersect1d(codes.nearest(question, 512, None), nearest))
    assert found >= 0.98 * 10 * len(questions)


def test_a_search_gives_what_vec0_gives(tmp_path: Path) -> None:
    """The same pieces in the same order with their true cosines, from the memory and from the database."""
    opened = Opened(tmp_path / "a.db")
    vectors = text_like(500, DIMENSIONS, seed=2)
    ids = opened.put("a.md", vectors[:250]) + opened.put("b.md", vectors[250:])
    for question in text_like(5, DIMENSIONS, seed=3):
        cold = opened.found(question)
        assert [piece for piece, _ in cold] == exactly(ids, vectors, question, 10)
        opened.warm()
        warm = opened.found(question)
        assert [piece for piece, _ in warm] == [piece for piece, _ in cold]
        cosines = vectors[[piece - ids[0] for piece, _ in warm]] @ question
        assert [cosine for _, cosine in warm] == pytest.approx(cosines.tolist(), abs=1e-5)
    opened.store.close()


def test_vectors_of_an_older_version_are_taken_over(tmp_path: Path) -> None:
    """A database whose vectors are in a vec0 table has them in a plain one after it is opened, and finds the same."""
    opened = Opened(tmp_path / "a.db", dimensions=16)
    vectors = text_like(60, 16, seed=13)
    ids = opened.put("a.md", vectors)
    opened.store.close()
    connection, table = connect(opened.path, KEY, writer=True), f"vector_{opened.generation.id}"
    connection.execute(f"DROP TABLE {table}")
    connection.execute(
        f"""CREATE VIRTUAL TABLE {table} USING vec0(
            chunk INTEGER PRIMARY KEY, project INTEGER PARTITION KEY, embedding FLOAT[16])"""
    )
    rows = [(one, vector.tobytes()) for one, vector in zip(ids, vectors, strict=True)]
    connection.executemany(f"INSERT INTO {table} (chunk, project, embedding) VALUES (?, 1, ?)", rows)
    connection.close()
    opened.store = Store.open(opened.path, KEY, writer=True, now=NOW, scan=opened.scan)
    opened.warm()
    assert [piece for piece, _ in opened.found(vectors[9])] == exactly(ids, vectors, vectors[9], 10)
    assert opened.store.vectors.waiting_count(opened.generation.id) == 0
    opened.remove("a.md")
    assert opened.found(vectors[9]) == []
    opened.store.close()


def test_a_small_set_is_searched_exactly(tmp_path: Path) -> None:
    """What a filter leaves is never lost among nearer pieces of other documents."""
    opened = Opened(tmp_path / "a.db")
    question = text_like(1, DIMENSIONS, seed=4)[0]
    near = question + 0.01 * text_like(2000, DIMENSIONS, seed=5)
    opened.put("near.md", np.asarray(near / np.linalg.norm(near, axis=1, keepdims=True), dtype=np.float32))
    far = opened.put("far.md", -text_like(30, DIMENSIONS, seed=6))
    opened.warm()
    assert {piece for piece, _ in opened.found(question, limit=50, path="far.md")} == set(far)
    opened.store.close()


def test_it_loads_while_pieces_come_and_go(tmp_path: Path) -> None:
    """What is committed between two slices is there, or gone, when loading ends; until then the database is searched."""
    opened = Opened(tmp_path / "a.db", dimensions=16)
    vectors = text_like(SLICE + 400, 16, seed=7)
    first = opened.put("first.md", vectors[:100])
    rest = opened.put("rest.md", vectors[100:-100])
    assert opened.store.vectors.warm(opened.generation.id)
    assert opened.scan.codes(opened.generation.id) is None
    assert [piece for piece, _ in opened.found(vectors[5], limit=1)] == [first[5]]
    late = opened.put("late.md", vectors[-100:])
    opened.remove("first.md")
    opened.warm()
    codes = opened.scan.codes(opened.generation.id)
    assert codes is not None
    assert len(codes) == len(rest) + len(late)
    assert codes.missing(np.array(first)).all()
    assert not codes.missing(np.array(late)).any()
    opened.store.close()


def test_a_new_generation_takes_the_place_of_the_old(tmp_path: Path) -> None:
    """After the swap the memory holds the new one, of other dimensions; loading one that is dropped meanwhile ends quietly."""
    opened = Opened(tmp_path / "a.db", dimensions=16)
    ids = opened.put("a.md", text_like(50, 16, seed=8))
    opened.warm()
    with opened.store.writing():
        new: Generation = opened.store.vectors.add_generation("test", "other", 32, live=False, now=NOW)
        vectors = text_like(50, 32, seed=9)
        opened.store.vectors.add(new.id, list(zip(ids, vectors, strict=True)))
    assert opened.scan.codes(opened.generation.id) is not None
    with opened.store.writing():
        opened.store.vectors.make_live(new.id, now=NOW)
    assert not opened.store.vectors.warm(opened.generation.id)
    old, opened.generation = opened.generation, new
    opened.warm()
    assert opened.scan.codes(old.id) is None
    assert opened.found(vectors[7], limit=1) == [(ids[7], pytest.approx(1.0, abs=1e-5))]
    opened.store.close()


def test_a_space_too_large_for_memory_is_searched_in_the_database(tmp_path: Path) -> None:
    """Over the limit the memory is given back, and every answer stays right."""
    opened = Opened(tmp_path / "a.db", scan=VectorScan(limit_bytes=2000))
    vectors = text_like(300, DIMENSIONS, seed=10)
    opened.warm()
    ids = opened.put("a.md", vectors)
    assert opened.scan.codes(opened.generation.id) is None
    assert not opened.store.vectors.warm(opened.generation.id)
    assert opened.scan.size_bytes == 0
    assert opened.found(vectors[123], limit=1)[0][0] == ids[123]
    opened.store.close()


def test_searches_go_on_while_everything_changes(tmp_path: Path) -> None:
    """A reader finds a piece that stays, each time, while others are added and removed beside it."""
    opened = Opened(tmp_path / "a.db")
    vectors = text_like(400, DIMENSIONS, seed=11)
    staying = opened.put("staying.md", vectors[:200])
    opened.warm()
    reader, ended, wrong = opened.reader(), threading.Event(), []

    def search() -> None:
        turn = 0
        while not ended.is_set():
            turn = (turn + 1) % len(staying)
            with reader.reading():
                found = reader.vectors.nearest(opened.generation.id, vectors[turn], Filter(), limit=1)
            if [piece for piece, _ in found] != [staying[turn]]:
                wrong.append(turn)

    searching = threading.Thread(target=search)
    searching.start()
    for _ in range(15):
        opened.put("passing.md", vectors[200:])
        opened.remove("passing.md")
    ended.set()
    searching.join(30)
    reader.close()
    opened.store.close()
    assert not wrong


changes = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "add backwards"]), st.integers(1, 400), st.integers(0, 2**32 - 1)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=draws(40), deadline=None)
@given(changes=changes, documents=st.none() | st.sets(st.integers(0, 9)))
def test_it_holds_what_was_added_and_not_removed(
    changes: list[tuple[str, int, int]], documents: set[int] | None
) -> None:
    """After any changes the candidates are those of a plain computation over the same pieces, filtered or not."""
    scan, held = VectorScan(), dict[int, tuple[int, Vectors]]()
    assert scan.next_slice(1, 70) == 0
    scan.load(1, [])
    unused = 1
    for kind, count, seed in changes:
        chance = np.random.default_rng(seed)
        if kind == "remove":
            gone = chance.choice([*held, 0], min(count, len(held) + 1), replace=False).tolist()
            scan.remove(gone)
            held = {piece: value for piece, value in held.items() if piece not in gone}
            continue
        new = {
            unused + step: (int(chance.integers(10)), vector)
            for step, vector in enumerate(text_like(count, 70, seed=seed))
        }
        unused += count
        order = reversed(new) if kind == "add backwards" else list(new)
        rows = [(piece, *new[piece]) for piece in order]
        scan.add(1, rows)
        scan.add(1, rows[: count // 2])  # a change may come twice
        held |= new
    codes = scan.codes(1)
    assert codes is not None
    assert len(codes) == len(held)
    allowed = [piece for piece, (document, _) in held.items() if documents is None or document in documents]
    question = text_like(1, 70, seed=3)[0]
    found = codes.nearest(question, 64, None if documents is None else sorted(documents)).tolist()
    assert len(set(found)) == len(found) == min(64, len(allowed))
    scores = {piece: float(question[held[piece][1] > 0].sum()) for piece in allowed}
    best = sorted(scores, key=lambda piece: -scores[piece])[:64]
    assert len(set(best) & set(found)) >= 0.8 * len(best)  # a question's numbers are rounded


@pytest.mark.parametrize("least", [0.8, 0.9, 0.97])
def test_the_close_ones_are_all_that_reach_a_cosine(least: float) -> None:
    """None of them is missed, few others are read, and there is no answer if they are too many."""
    vectors = text_like(3_000, 384, seed=21)
    chance = np.random.default_rng(22)
    for place in range(0, 600, 2):  # the next one is nearly the same
        noise = chance.standard_normal(384, dtype=np.float32)
        near = vectors[place] + chance.uniform(0.1, 0.9) * noise / np.linalg.norm(noise)
        vectors[place + 1] = near / np.linalg.norm(near)
    ids = np.arange(1, len(vectors) + 1)
    codes = Codes.empty(384).with_rows(ids, ids, pack(vectors)).without(ids[-100:])
    for question in vectors[:600:2]:
        reaching = ids[:-100][vectors[:-100] @ question >= least]
        close = codes.close(question, least, most=200)
        assert close is not None
        assert set(reaching) <= set(close)
    assert codes.close(vectors[0], -1.0, most=200) is None


def test_removed_pieces_give_their_room_back() -> None:
    """However often a thousand pieces are replaced, the memory is that of a thousand."""
    codes = Codes.empty(64)
    for turn in range(60):
        ids = np.arange(turn * 1000, turn * 1000 + 1000)
        codes = codes.with_rows(ids, ids, pack(text_like(1000, 64, seed=turn)))
        codes = codes.without(ids - 1000)
    assert len(codes) == 1000
    assert codes.size_bytes < 24 * 4000


def test_the_first_step_never_returns_a_removed_piece() -> None:
    """Not even when most of the nearest were removed, in a space large enough for both steps."""
    vectors = text_like(COARSE + 2000, 64, seed=12)
    ids = np.arange(1, len(vectors) + 1)
    codes = Codes.empty(64).with_rows(ids, ids % 3, pack(vectors))
    question = vectors[0]
    nearest = codes.nearest(question, 500, None)
    codes = codes.without(nearest)
    again = codes.nearest(question, 500, None)
    assert len(again) == 500
    assert not np.isin(again, nearest).any()
    assert not np.isin(codes.nearest(question, 500, [0, 1, 2]), nearest).any()
