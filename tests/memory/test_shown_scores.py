"""The scores of hits as they are shown."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_memory.tools.shown_scores import falling


@pytest.mark.parametrize(
    ("scores", "shown"),
    [
        ([], []),
        ([0.9, 0.5, 0.5, 0.1], [0.9, 0.5, 0.5, 0.1]),
        ([0.90, 0.94], [0.92, 0.92]),
        ([0.2, 0.5, 0.8], [0.5, 0.5, 0.5]),
        ([0.9, 0.3, 0.5, 0.1], [0.9, 0.4, 0.4, 0.1]),
    ],
)
def test_what_stands_above_a_higher_score_gets_the_mean_of_both(scores: list[float], shown: list[float]) -> None:
    assert falling(scores) == pytest.approx(shown)


@given(st.lists(st.floats(0.25, 1.0), max_size=30))
def test_they_never_rise_and_stay_within_what_was_given(scores: list[float]) -> None:
    """So a least score that each has passed is passed by all that is shown."""
    shown = falling(scores)
    assert all(one >= other - 1e-12 for one, other in pairwise(shown))
    assert len(shown) == len(scores)
    assert all(min(scores) - 1e-9 <= one <= max(scores) + 1e-9 for one in shown)
    assert sum(shown) == pytest.approx(sum(scores))
