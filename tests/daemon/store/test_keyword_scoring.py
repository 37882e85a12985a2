"""Of a question whose words are everywhere the keyword leg scores only some rows, and still finds what a full scoring puts first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from confide_daemon.store.rows import Filter, Piece
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables import keyword as leg

NOW = 1_700_000_000.0
COMMON = ("deploy", "server", "note", "check", "today", "branch", "review", "build")
MATCH = '"deploy" OR "server" OR "certificate" OR "note" OR "kerberos"'


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """1,200 pieces of common words in sixty documents; every fortieth has a rare one. They count as many."""
    monkeypatch.setattr(leg, "SMALL", 1000)
    monkeypatch.setattr(leg, "FEW", 500)
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
    monkeypatch.setattr(leg, "FEW", 0)
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
    """Among the allowed pieces alone, many or few: nothing tells what the rest holds."""
    matches = ['"deploy"', '"kerberos"', '"absent"']
    having, pieces = store.keywords.holding(matches, Filter(), most=100)
    assert (having[0], having[2], pieces) == (100, 0, 1200)
    assert 0 < having[1] < 60
    many, few = Filter(projects=frozenset({"p"})), Filter(projects=frozenset({"q"}))
    for allowed, is_limited, total in ((few, False, 400), (few, True, 400), (many, False, 800), (many, True, 800)):
        own, pieces = store.keywords.holding(matches, allowed, most=100, is_limited=is_limited)
        assert pieces == total
        assert 0 < own[1] < having[1]


@pytest.mark.parametrize("match", [MATCH, '"kerberos"', '"absent"'])
@pytest.mark.parametrize(("project", "is_limited"), [("q", False), ("q", True), ("p", True)])
def test_words_are_counted_among_what_is_asked_alone(store: Store, match: str, project: str, is_limited: bool) -> None:
    """Of few pieces, and for who may see a part of the space: scores and counts are those of a space that holds nothing else."""
    asked, terms = Filter(projects=frozenset({project})), match.split(" OR ")

    def found() -> tuple[object, object]:
        with store.reading():
            best = store.keywords.candidates(match, asked, limit=400, is_limited=is_limited)
            return best, store.keywords.holding(terms, asked, most=500, is_limited=is_limited)

    before = found()
    with store.writing():
        for number in range(9):
            row = store.documents.save("vault", f"{number}.md", str(number), author="alice", now=NOW)
            store.pieces.replace(row, [Piece(1, 1, "kerberos deploy " * number, "", 9)], chunking="test", now=NOW)
    assert found() == before


def test_a_part_of_what_is_asked_has_the_scores_of_the_whole(store: Store) -> None:
    """The days that a question names are looked at once more: the same piece scores the same there."""
    asked, part = Filter(projects=frozenset({"q"})), Filter(projects=frozenset({"q"}), path="3.md")
    whole = dict(store.keywords.candidates(MATCH, asked, limit=1000))
    found = dict(store.keywords.candidates(MATCH, part, limit=1000, of=asked))
    assert 0 < len(found) < len(whole)
    assert found.items() <= whole.items()
