"""What `confide search --explain` prints of a daemon's explanation, and of one that it does not know."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from confide_proxy.cli import search
from confide_proxy.errors import UnfitAnswerError

NUMBERS = (
    "relevance",
    "votes",
    "dated",
    "source",
    "exact",
    "rank",
    "keyword",
    "terms",
    "stated",
    "held",
    "missing",
    "deviation",
)
HIT = dict.fromkeys(NUMBERS, 0.5)
RESULT: dict[str, Any] = {
    "results": [{"score": 0.75}],
    "searchMode": "hybrid",
    "explain": {
        "matched": '"deploy"',
        "exact": "",
        "days": None,
        "keywordCandidates": 3,
        "vectorCandidates": 128,
        "hits": [{**HIT, "keywordRank": 2, "vectorRank": None, "bm25": 7.25, "cosine": None, "vector": None}],
        "timingsMs": {"keyword": 0.42},
    },
}


def test_an_explanation_is_shown_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """With the place in each leg, the factors and the score."""
    search.show(RESULT)
    shown = capsys.readouterr().out
    assert "3 by keywords, 128 by vectors (hybrid)" in shown
    assert "#2 7.25" in shown
    assert "0.75" in shown


def test_only_columns_that_say_something_are_shown_and_each_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """A reader saw numbers that the score does not use, and not the one that kept it below 0.5."""
    quiet = {"dated": 1.0, "source": 1.0, "exact": 0.0, "vector": 0.5, "cosine": 0.5, "lacking": 0.2, "page": 0.0}
    search.show({**RESULT, "explain": {**RESULT["explain"], "hits": [{**RESULT["explain"]["hits"][0], **quiet}]}})
    shown = capsys.readouterr().out
    for name in ("dated", "source", "exact", "page", "keyword", "terms"):
        assert f"    {name}: " not in shown
    for name in ("relevance", "votes", "rank", "stated", "held", "missing", "vector", "deviation", "lacking", "score"):
        assert f"    {name}: " in shown


def test_what_scores_too_low_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """A search that found nothing said nothing of why."""
    weak = {
        "path": "memory/a.md",
        "startLine": 1,
        "endLine": 2,
        "score": 0.18,
        "project": "p",
        "heading": "",
        "snippet": "a line",
    }
    result = {**RESULT, "results": [], "warnings": [], "tooWeak": [weak]}
    search._print_hits(result, "deploy", explain=True)
    shown = capsys.readouterr().out
    assert "scores too low" in shown
    assert "memory/a.md:1-2  0.18" in shown
    assert "#2 7.25" in shown


@pytest.mark.parametrize("name", [*RESULT["explain"]])
def test_an_explanation_of_another_kind_is_told_as_such(name: str) -> None:
    """By a daemon of another version, or one that means no good."""
    result = copy.deepcopy(RESULT)
    del result["explain"][name]
    with pytest.raises(UnfitAnswerError):
        search.show(result)
    with pytest.raises(UnfitAnswerError):
        search.show({**RESULT, "explain": {**RESULT["explain"], "hits": [{}], "timingsMs": ["x"]}})


def test_an_explanation_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """What the daemon says is text."""
    search.show({**RESULT, "explain": {**RESULT["explain"], "matched": "\x1b[2Jx"}})
    assert "\x1b[2J" not in capsys.readouterr().out
