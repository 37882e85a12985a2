"""Of a question whose words are everywhere the keyword leg scores only some rows, and still finds what a full scoring puts first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from confide_daemon.store.rows import Filter, Piece
from confide_daemon.store.store import Store
from confide_daemon.store.tables import keyword as leg

NOW = 1_700_000_000.0
COMMON = ("deploy", "server", "note", "check", "today", "branch", "review", "build")
MATCH = '"deploy" OR "server" OR "certificate" OR "note" OR "kerberos"'


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """1,200 pieces of common words in sixty documents; every fortieth has a rare one. They count as many."""
    monkeypatch.setattr(leg, "SMALL", 1000)
    store = Store.open(tmp_path / "a.db", bytes(range(32)), writer=True, now=NOW)
    chance = random.Random(1)
    for number in range(60):
        pieces = []
        for line in range(1, 21):
            words = chance.choices(COMMON, k=12) + (
                ["certificate", "kerberos"][: chance.randint(1, 2)] if line == 7 else []
            )
            pieces.append(Piece(line, line, " ".join(words[: chance.randint(6, 14)]), "", 12))
        with store.writing():
            row = store.documents.save("p" if number % 3 else "q", f"{number}.md", str(number), author="alice", now=NOW)
            store.pieces.replace(row, pieces, chunking="test", now=NOW)
    yield store
    store.close()


@pytest.mark.parametrize("allowed", [Filter(), Filter(projects=frozenset({"p"})), Filter(path="4.md")])
def test_the_best_are_those_of_a_full_scoring(store: Store, allowed: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ten by score, filtered or not."""
    full = store.keywords.candidates(MATCH, allowed, limit=10)
    monkeypatch.setattr(leg, "MOST_SCORED", 300)
    some = store.keywords.candidates(MATCH, allowed, limit=10)
    # Words that most rows have score a millionth: which of those rows come last does not matter.
    assert [score for _, score in some] == pytest.approx([score for _, score in full], abs=1e-5)


def test_as_many_as_are_asked_for_are_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rare words have too few rows, those of the common ones make up the number."""
    monkeypatch.setattr(leg, "MOST_SCORED", 300)
    assert len(store.keywords.candidates(MATCH, Filter(), limit=250)) == 250
    assert len(store.keywords.candidates('"deploy"', Filter(), limit=250)) == 250


def test_a_question_of_very_many_words_is_understood(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms that are looked for two by two do not make the query longer than FTS5 takes."""
    monkeypatch.setattr(leg, "MOST_SCORED", 50)
    match = " OR ".join(
        f'"{word}"' for word in [*COMMON, *(f"{one} {other}" for one in COMMON for other in COMMON[:5])]
    )
    assert len(store.keywords.candidates(match, Filter(), limit=10)) == 10


def test_how_many_pieces_hold_a_term_is_counted_up_to_a_bound(store: Store) -> None:
    """And, for who may see a part of the space, in that part alone: nothing tells what the rest holds."""
    matches = ['"deploy"', '"kerberos"', '"absent"']
    having, pieces = store.keywords.holding(matches, Filter(), most=100)
    assert (having[0], having[2], pieces) == (100, 0, 1200)
    assert 0 < having[1] < 60
    some = Filter(projects=frozenset({"q"}))
    assert store.keywords.holding(matches, some, most=100)[1] == 1200
    own, pieces = store.keywords.holding(matches, some, most=100, is_limited=True)
    assert pieces == 400
    assert 0 < own[1] < having[1]
