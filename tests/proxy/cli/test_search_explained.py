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
