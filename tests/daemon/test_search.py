"""From a question to a ranking: the keyword query, the score, the neighbours."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_daemon.search import Weights, fuse, recency_of, with_neighbours
from confide_daemon.store import Place
from confide_daemon.words import MOST_TERMS, keyword_query

DATABASE = apsw.Connection(":memory:")
DATABASE.execute("CREATE VIRTUAL TABLE t USING fts5(header, body, tokenize = 'porter unicode61')")
DATABASE.execute("INSERT INTO t VALUES ('', 'getUserById fails with ERR_CONN_42 in src/app.py at v1.2.3')")


@given(st.text(max_size=200), st.lists(st.text(max_size=20), max_size=3))
def test_nothing_in_a_question_acts_as_query_syntax(text: str, keywords: list[str]) -> None:
    """Quotes, brackets, stars, NEAR, column names: FTS5 takes every query we build."""
    match = keyword_query(text, keywords)
    if match:
        DATABASE.execute("SELECT rowid FROM t WHERE t MATCH ?", (match,)).fetchall()


@pytest.mark.parametrize(
    "asked", ["getUserById", "what is ERR_CONN_42?", "see src/app.py", "(v1.2.3)", "GETUSERBYID", '"fails with"']
)
def test_exact_identifiers_survive(asked: str) -> None:
    """Symbols, error codes, paths and versions are found as they stand."""
    assert DATABASE.execute("SELECT count(*) FROM t WHERE t MATCH ?", (keyword_query(asked),)).get == 1


def test_an_identifier_is_looked_for_whole_and_in_parts() -> None:
    """The phrase scores for the exact name, the parts still find its kin."""
    assert keyword_query("retry-after header") == '"retry-after" OR "retry" OR "header"'


def test_stop_words_are_dropped_unless_there_is_nothing_else() -> None:
    """A question is found by what it is about."""
    assert keyword_query("why did we choose Postgres?") == '"choose" OR "postgres"'
    assert keyword_query("to be or not to be") == '"to" OR "be" OR "or" OR "not"'
    assert keyword_query("?!") == ""


def test_the_callers_keywords_and_phrases_join_in() -> None:
    """Phrases stay phrases."""
    assert keyword_query('the "connection pool" died', ("database error",)) == (
        '"connection pool" OR "database error" OR "connection" OR "pool" OR "died"'
    )


def test_a_pasted_log_is_cut_short() -> None:
    """Each term costs a scan of its list."""
    assert keyword_query(" ".join(f"word{n}" for n in range(2000))).count(" OR ") == MOST_TERMS - 1


def test_the_score_is_that_of_the_design() -> None:
    """0.4 cosine and 0.6 saturated BM25, with the cosine of pieces that only the keywords found; a worked example."""
    scores = fuse({1: 8.0, 2: 24.0}, {1: 0.5, 2: -0.2, 3: 0.6}, Weights(), hybrid=True)
    assert scores == pytest.approx({1: 0.4 * 0.5 + 0.6 * 0.5, 2: 0.6 * 0.75, 3: 0.4 * 0.6})


def test_without_a_vector_the_keyword_score_stands_alone() -> None:
    """On the same scale, so that the same threshold serves; a piece that waits for its vector is no worse off."""
    assert fuse({1: 8.0}, {}, Weights(), hybrid=False) == {1: 0.5}
    assert fuse({1: 8.0, 2: 8.0}, {2: 0.9}, Weights(), hybrid=True) == pytest.approx({1: 0.5, 2: 0.66})


def test_neighbours_vote() -> None:
    """0.7 times the mean of the two before and the two after, in the same document only."""
    places = {
        n: Place(n, document, position, "2026-01-01", "p", "memory")
        for n, document, position in ((1, 7, 0), (2, 7, 1), (3, 7, 3), (4, 8, 2))
    }
    smoothed = with_neighbours({1: 0.4, 2: 0.2, 3: 0.8, 4: 0.9}, places, Weights())
    assert smoothed == pytest.approx(
        {1: 0.4 + 0.7 * 0.2 / 4, 2: 0.2 + 0.7 * (0.4 + 0.8) / 4, 3: 0.8 + 0.7 * 0.2 / 4, 4: 0.9}
    )


def test_recency_halves_with_the_half_life() -> None:
    """Days of the future count as today."""
    weights = Weights(half_life_days=30)
    assert recency_of("2026-11-21", "2026-11-21", weights) == 1
    assert recency_of("2026-10-22", "2026-11-21", weights) == pytest.approx(0.5)
    assert recency_of("2027-01-01", "2026-11-21", weights) == 1
