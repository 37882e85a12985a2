"""From a question to a ranking: what each leg is asked, how the legs are joined, how neighbours vote, what a score means."""

from __future__ import annotations

import apsw
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from confide_daemon.retrieval.search.cohort import Cohort
from confide_daemon.retrieval.search.ranking import ORIGINAL, Legs, Weights, recency_of, relevance, votes
from confide_daemon.retrieval.search.scoring import (
    MOST_COUNTED,
    CosineScale,
    Evidence,
    QueryTerms,
    ScoreCalibration,
    TermCounts,
    stem_line,
)
from confide_daemon.store.rows import PiecePlace
from confide_memory.tools.question import MOST_TERMS, keyword_query, question, saturate
from confide_memory.tools.words import index_words

DATABASE = apsw.Connection(":memory:")
DATABASE.execute("CREATE VIRTUAL TABLE t USING fts5(header, body, tokenize = 'porter unicode61')")
DATABASE.execute("INSERT INTO t VALUES ('', 'getUserById fails with ERR_CONN_42 in src/app.py at v1.2.3')")


@given(st.text(max_size=200), st.lists(st.text(max_size=20), max_size=3))
@example("what is _._, _@_ and _.md", ["_", "__->__"])
def test_nothing_in_a_question_acts_as_query_syntax(text: str, keywords: list[str]) -> None:
    """Quotes, brackets, stars, NEAR, column names: FTS5 takes every query we build."""
    asked = question(text, keywords)
    for match in filter(None, (asked.match, asked.exact)):
        DATABASE.execute("SELECT rowid FROM t WHERE t MATCH ?", (match,)).fetchall()
    assert 0.0 <= QueryTerms(asked.terms).share([stem_line(text)]) <= 1.0001


@pytest.mark.parametrize(
    "asked", ["getUserById", "what is ERR_CONN_42?", "see src/app.py", "(v1.2.3)", "GETUSERBYID", '"fails with"']
)
def test_exact_identifiers_survive(asked: str) -> None:
    """Symbols, error codes, paths and versions are found as they stand."""
    assert DATABASE.execute("SELECT count(*) FROM t WHERE t MATCH ?", (keyword_query(asked),)).get == 1


def test_an_identifier_is_looked_for_whole_and_in_parts() -> None:
    """The phrase scores for the exact name, the parts still find its kin."""
    assert keyword_query("retry-after header") == '"retry after" OR "retryafter" OR "retry" OR "header"'


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


def test_keywords_that_repeat_the_question_prove_nothing_more() -> None:
    """Nor do words that every text has; another word for it does."""
    asked = "why did we choose postgres"
    for keywords, share in (((), 0.54), (asked.split(), 0.54), (("server",), 1.0)):
        made = question(asked, keywords)
        assert QueryTerms(made.terms, made.also).share([stem_line("we run postgres on that server")]) == pytest.approx(
            share, abs=0.01
        )


def test_a_pasted_log_is_cut_short() -> None:
    """Each term costs a scan of its list."""
    assert keyword_query(" ".join(f"word{n}" for n in range(2000))).count(" OR ") == MOST_TERMS - 1


def test_each_leg_counts_relative_to_its_best() -> None:
    """0.32 of the cosine between the last of its leg and the best, 0.68 of BM25 beside the best; a worked example."""
    legs = Legs({1: 24.0, 2: 12.0}, [3, 1, 4], {3: 0.6, 1: 0.4, 4: 0.2, 2: 0.1})
    assert relevance(legs, Weights()) == pytest.approx({1: 0.32 * 0.5 + 0.68, 2: 0.68 * 0.5, 3: 0.32, 4: 0.0})


def test_a_poor_best_is_not_made_a_good_one() -> None:
    """Words that every piece has do not count as much as words that one has; nor do cosines that hardly differ."""
    assert relevance(Legs({1: 2.0}), Weights())[1] == pytest.approx(0.25)
    legs = Legs({}, [1, 2], {1: 0.11, 2: 0.10})
    assert relevance(legs, Weights())[1] == pytest.approx(0.32 * 0.1)


def test_a_piece_that_waits_for_its_vector_is_judged_by_its_words() -> None:
    """And so are all when there is no model."""
    assert relevance(Legs({1: 16.0, 2: 8.0}), Weights()) == pytest.approx({1: 1.0, 2: 0.5})
    legs = Legs({1: 16.0, 2: 16.0}, [2, 3], {2: 0.5, 3: 0.1})
    assert relevance(legs, Weights()) == pytest.approx({1: 1.0, 2: 1.0, 3: 0.0})


def test_the_original_ranking_is_there_by_name() -> None:
    """0.7 of the cosine and 0.3 by the rank of the keyword leg, without votes."""
    legs = Legs({1: 9.0, 2: 8.0}, [2, 1], {1: 0.2, 2: 0.5})
    assert relevance(legs, ORIGINAL) == pytest.approx({1: 0.7 * 0.2 + 0.3, 2: 0.7 * 0.5 + 0.3 / 2})
    assert ORIGINAL.votes == ()


def test_neighbours_vote() -> None:
    """The nearer the more, in the same document only."""
    places = {
        n: PiecePlace(n, document, position, "2026-01-01", "p", "memory")
        for n, document, position in ((1, 7, 1), (2, 7, 2), (3, 7, 4), (9, 8, 3))
    }
    found = votes({1: 0.4, 2: 0.2, 3: 0.8, 9: 0.9}, places, Weights(votes=(0.2, 0.1)))
    assert found == pytest.approx({1: 0.2 * 0.2, 2: 0.2 * 0.4 + 0.1 * 0.8, 3: 0.1 * 0.2, 9: 0.0})


def test_short_notes_that_were_stored_one_after_the_other_vote_too() -> None:
    """Each is a document of its own. Those of another project or day have no say, nor has a longer document, nor what is not good."""
    places = {
        1: PiecePlace(1, 11, 0, "2026-01-01", "p", "memory", 1),
        2: PiecePlace(2, 12, 0, "2026-01-01", "p", "memory", 1),
        3: PiecePlace(3, 13, 0, "2026-01-02", "p", "memory", 1),
        4: PiecePlace(4, 14, 0, "2026-01-02", "q", "memory", 1),
        5: PiecePlace(5, 15, 7, "2026-01-02", "q", "memory", 40),
        6: PiecePlace(6, 16, 0, "2026-01-02", "q", "memory"),
    }
    equal = dict.fromkeys(places, 1.0) | {6: 0.0}
    found = votes(equal, places, Weights(votes=(0.2, 0.1), notes_above=0.0))
    assert found == pytest.approx({1: 0.2, 2: 0.2, 3: 0.0, 4: 0.0, 5: 0.0, 6: 0.0})
    one_is_good = dict.fromkeys(places, 0.3) | {1: 0.9}
    found = votes(one_is_good, places, Weights(votes=(0.2, 0.1), notes_above=0.5))
    assert found == pytest.approx({1: 0.0, 2: 0.2 * (0.9 - 0.3), 3: 0.0, 4: 0.0, 5: 0.0, 6: 0.0})


SURE = Evidence(0.7, 0.8, 0.6, stated=0.9, held=1.0, missing=0.0, deviation=5.0, everyday=0.3, lead=0.8)
VAGUE = Evidence(0.4, 0.3, 0.15, stated=0.2, held=0.2, missing=0.8, deviation=1.5, everyday=0.0)


def test_a_score_says_how_likely_an_answer_is() -> None:
    """Most when words and meaning agree; little of each does not."""
    assert SURE.score > 0.8 > 0.25 > VAGUE.score
    assert SURE.unasked_score > 0.8 > 0.25 > VAGUE.unasked_score
    assert Evidence(keyword=0.6, terms=0.8).score > 0.25 > Evidence(keyword=0.3, terms=0.3).score
    assert Evidence(keyword=0.3, terms=0.3, is_named=True).score > 0.25


@given(st.sampled_from(["stated", "held", "vector", "deviation"]), st.floats(0, 1))
def test_more_evidence_never_lowers_a_score(name: str, more: float) -> None:
    """Whatever else is known; what is missing never raises it."""
    higher = VAGUE._replace(**{name: getattr(VAGUE, name) + more})
    assert 0.0 <= VAGUE.score <= higher.score <= 1.0
    assert VAGUE._replace(missing=VAGUE.missing + more).score <= VAGUE.score
    assert VAGUE._replace(unnamed=True).score < VAGUE.score


def test_what_nobody_asked_for_is_measured_by_everyday_texts() -> None:
    """A prompt that is nearer to those than to any note is helped by none; without a vector there is the other score alone."""
    evidence = Evidence(0.6, 0.6, 0.5, stated=0.6, held=0.6, deviation=4.0, everyday=0.2)
    assert (
        evidence._replace(everyday=0.4).unasked_score
        > evidence.unasked_score
        > evidence._replace(everyday=-0.3).unasked_score
    )
    ahead = evidence._replace(lead=0.5)
    assert evidence._replace(lead=-0.2).unasked_score < evidence.unasked_score < ahead.unasked_score
    assert Evidence(0.6, 0.8).unasked_score == Evidence(0.6, 0.8).score


@given(
    st.sampled_from([None, 0.0, 0.3, 0.8]),
    st.floats(-1, 1),
    st.floats(-1, 1),
    st.fixed_dictionaries({name: st.floats(0, 1) for name in ("keyword", "terms", "stated", "held", "missing", "few")}),
    st.booleans(),
)
def test_no_text_makes_a_chunk_better_for_a_prompt_than_was_known_before(
    vector: float | None, everyday: float, lead: float, of_text: dict[str, float], is_named: bool
) -> None:
    """So chunks that cannot reach what is asked for are not read."""
    known = Evidence(0.0, 0.0, vector, everyday=everyday, lead=lead)
    read = known._replace(**of_text, is_named=is_named)
    assert read.unasked_score <= known.best_unasked_score <= 1.0


def test_a_question_that_is_near_to_everything_says_little() -> None:
    """By what a cosine has above those with texts that concern nobody; each chunk by its own."""
    texts = np.eye(3, dtype=np.float32)
    yardstick = ScoreCalibration(CosineScale(unrelated=0.1, related=1.0), Cohort(texts[:2], texts[2:]))
    background = yardstick.background(np.array([0.28, 0.1, 0.19], dtype=np.float32))
    deviation, everyday = background.of(0.55)
    assert deviation == pytest.approx((0.55 - 0.19) / 0.09)
    assert everyday == pytest.approx(background.scale.of(0.55) - background.scale.of(0.19))
    assert background.of(0.2) < background.of(0.55)
    assert ScoreCalibration().background(texts[0]).of(0.9) == ScoreCalibration().background(texts[1]).of(0.1)


def test_a_rare_term_says_more_than_a_common_one() -> None:
    """By how many pieces hold it, and by how rare it is in writing in general."""
    asked = question("postgres server").terms
    terms = QueryTerms(asked, counts=TermCounts((2, MOST_COUNTED), 10_000))
    rare, common = (terms.share([stem_line(text)]) for text in ("our postgres", "our server"))
    assert rare > 0.6 > common
    few = QueryTerms(question("kombucha error").terms, counts=TermCounts((1, 1), 12))
    assert few.share([stem_line("kombucha")]) > 0.6 > few.share([stem_line("an error")])


def test_what_a_chunk_lacks_counts_against_it() -> None:
    """Only what stands neither in it nor around it; a name most of all."""
    asked = question("what did Yusuf say about the kombucha?").terms
    terms = QueryTerms(asked, counts=TermCounts((1,) * len(asked), 40))
    own, near = stem_line("the kombucha ferments for nine days"), stem_line("Yusuf brews it")
    alone, beside = terms.match([own], [own]), terms.match([own], [own, near])
    assert (alone.unnamed, beside.unnamed) == (True, False)
    assert alone.missing >= beside.missing
    assert alone.stated == beside.stated < 1.0
    assert terms.match([near], [near]).missing > 0.5


def test_the_callers_synonyms_stand_for_what_is_lacking() -> None:
    terms = question("drink", ["kombucha"])
    found = QueryTerms(terms.terms, terms.also, TermCounts((1, 1), 40)).match(*[[stem_line("our kombucha")]] * 2)
    assert (found.missing, found.unnamed) == (0.0, False)


def test_what_no_note_holds_says_little_among_few() -> None:
    """Hardly any word stands in a store of one note; among ten thousand it is known to be missing."""
    asked = question("why did we choose postgres, issue 42").terms
    having = tuple(int(term.ways == (("postgres",),)) for term in asked)
    few, many = (QueryTerms(asked, counts=TermCounts(having, pieces)) for pieces in (1, 10_000))
    line = stem_line("we run postgres")
    assert few.share([line]) > many.share([line])


def test_cosines_of_another_model_are_brought_to_one_scale() -> None:
    """What is unrelated for one model is near for another."""
    scale = CosineScale(unrelated=0.72, related=0.86)
    assert scale.of(0.72) == pytest.approx(CosineScale().unrelated)
    assert scale.of(0.86) == pytest.approx(CosineScale().related)
    assert scale.of(0.1) == 0.0
    assert CosineScale().of(0.3) == pytest.approx(0.3)


def test_saturated_bm25_stays_below_one() -> None:
    """Half at eight, and never negative."""
    assert [saturate(value) for value in (-1.0, 0.0, 8.0, 24.0)] == pytest.approx([0.0, 0.0, 0.5, 0.75])


@pytest.mark.parametrize(
    ("asked", "text", "share"),
    [
        ("connections failing", "the connection fails", 1.0),  # stems, as the keyword leg has them
        ("ERR_CONN_42", "saw err_conn_42 again", 1.0),
        ("ERR_CONN", "saw ERR_CONN_42 again", 1.0),  # the beginning of a name
        ("getUserById", "calls get_user_by_id", 1.0),
        ("ERR_CONN_42", "42 errors on the connection", 0.0),
        ("数据库连接", "我们的数据库很快", 0.5),
        ("!?", "anything", 0.0),
    ],
)
def test_the_share_of_a_questions_terms(asked: str, text: str, share: float) -> None:
    """By weight: a name counts as one thing."""
    assert QueryTerms(question(asked).terms).share([stem_line(text)]) == pytest.approx(share)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("getUserById", "def get_user_by_id(): ..."),
        ("get_user_by_id", "the method getUserById"),
        ("UserBy", "the method getUserById"),
        ("ERR_CONN", "failed with ERR_CONN_42"),
        ("d08dd9", "fixed in d08dd90c"),
        ("1.2.3", "since v1.2.3"),
        ("v1.2.3", "since 1.2.3"),
        ("postgr", "we chose PostgreSQL"),
        ("数据库", "我们的数据库连接失败"),
        ("東京", "会議は東京駅で"),
        ("駅", "会議は東京駅で"),
        ("데이터", "우리데이터베이스는"),
        ("ประเทศ", "ทุกประเทศไทย"),
        ("python", "Python入門"),
    ],
)
def test_names_and_words_are_found_inside_of_what_the_tokenizer_takes_for_one_word(asked: str, text: str) -> None:
    """With what the index holds beside the text."""
    database = apsw.Connection(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize = 'porter unicode61')")
    database.execute("INSERT INTO t VALUES (?)", (f"{text}\n{index_words(text)}",))
    assert database.execute("SELECT count(*) FROM t WHERE t MATCH ?", (keyword_query(asked),)).get == 1


def test_ordinary_text_costs_nothing_beside_itself() -> None:
    """Only names and unspaced scripts do."""
    assert index_words("We chose Postgres for its row-level security, on 2026-05-03 at 10:30.") == ""


def test_recency_halves_with_the_half_life() -> None:
    """Days of the future count as today."""
    weights = Weights(half_life_days=30)
    assert recency_of("2026-11-21", "2026-11-21", weights) == 1
    assert recency_of("2026-10-22", "2026-11-21", weights) == pytest.approx(0.5)
    assert recency_of("2027-01-01", "2026-11-21", weights) == 1


@pytest.mark.parametrize(
    ("asked", "text", "is_found"),
    [
        ("SHOP-123", "Ticket SHOP-1234 is open.", False),
        ("SHOP-123", "Ticket SHOP-123 is open.", True),
        ("SHOP-123", "Ticket SHOP-123: open.", True),
        ("10.0.0.1", "The gateway is 10.0.0.12", False),
        ("10.0.0.1", "The gateway is 10.0.0.1:8080", True),
        ("INC0042", "INC00421 was closed", False),
        ("ERR_CONN_4", "ERR_CONN_42 again", False),
        ("ERR_CONN", "ERR_CONN_42 again", True),
        ("8010", "port 80100", False),
        ("d08dd9", "commit d08dd90c1f", True),
        ("a3f9c12b7d", "fixed by a3f9c12", True),
        ("a3f9c12b7d", "fixed by a3f9c12ffff", False),
        ("a3f9c12b7d", "fixed by a3f9c13", False),
        ("v1.2.3", "released 1.2.3", True),
        ("v1.2.3", "released 1.2.30", False),
    ],
)
def test_a_number_that_begins_another_number_is_another_number(asked: str, text: str, is_found: bool) -> None:
    """Of tickets, addresses, codes, ports, versions; a hash and its beginning are one thing, both ways round."""
    database = apsw.Connection(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize = 'porter unicode61')")
    database.execute("INSERT INTO t VALUES (?)", (f"{text}\n{index_words(text)}",))
    (term,) = question(asked).terms[:1]
    assert bool(database.execute("SELECT 1 FROM t WHERE t MATCH ?", (term.match,)).fetchall()) == is_found
    assert (QueryTerms([term]).share([stem_line(text)]) > 0) == is_found
    exact = question(asked).exact or term.match
    assert is_found or not database.execute("SELECT 1 FROM t WHERE t MATCH ?", (exact,)).fetchall()


@pytest.mark.parametrize(
    "text", ["SHOP-123", "10.0.0.1", "a3f9c12b7d", "v1.2.3", "CVE-2024-1234", "INC0042", "ERR_CONN_42"]
)
def test_what_says_which_of_many_things_is_meant(text: str) -> None:
    """And what does not: names of kinds, files, symbols, days."""
    assert [term.is_identifier for term in question(f"what about {text} now").terms if term.is_name] == [True]


@pytest.mark.parametrize(
    "text", ["sha256", "OAuth2", "utf8", "README.md", "src/app.py", "getUserById", "2026-05-03", "k8s", "3.11"]
)
def test_what_names_a_kind_of_things(text: str) -> None:
    assert not any(term.is_identifier for term in question(f"what about {text} now").terms)


def test_a_piece_without_the_identifier_that_is_asked_for_is_no_sure_answer() -> None:
    """However much else speaks for it; of a question that is little more it is none."""
    evidence = SURE
    assert evidence.score > 0.95
    assert evidence._replace(lacking=0.3).score <= 0.5
    assert evidence._replace(lacking=0.9).score < 0.25
    assert Evidence(0.9, 0.9, lacking=0.9).score < 0.25
