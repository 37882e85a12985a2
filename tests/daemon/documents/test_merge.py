"""Three-way merging by lines."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from confide_daemon.documents.merge import MOST_LINES_MATCHED, regions

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "\n"]), max_size=14)


def flat(base: list[str], ours: list[str], theirs: list[str]) -> tuple[list[str], bool]:
    """The merge with both sides of a clash, ours first, and whether there was one."""
    merged: list[str] = []
    clash = False
    for region in regions(base, ours, theirs):
        clash |= region.merged_lines is None
        merged += region.merged_lines if region.merged_lines is not None else [*region.ours, *region.theirs]
    return merged, clash


@given(LINES, LINES)
def test_a_side_that_changed_nothing_gives_way(base: list[str], other: list[str]) -> None:
    """The change of the other side is taken whole, either way round, and never clashes."""
    assert flat(base, base, other) == (other, False)
    assert flat(base, other, base) == (other, False)
    assert flat(base, other, other) == (other, False)


@given(LINES, LINES, LINES)
def test_no_line_that_either_side_added_is_lost(base: list[str], ours: list[str], theirs: list[str]) -> None:
    """However the texts differ, every line of either side that the base lacks is in the result."""
    merged, _ = flat(base, ours, theirs)
    for side in (ours, theirs):
        for line in set(side) - set(base):
            assert line in merged


@given(LINES, LINES, LINES)
def test_the_sides_clash_alike_either_way_round(base: list[str], ours: list[str], theirs: list[str]) -> None:
    """Who is called ours does not decide whether there is a clash."""
    assert flat(base, ours, theirs)[1] == flat(base, theirs, ours)[1]


def test_apart_changes_merge_and_same_place_clashes() -> None:
    """The example everybody expects."""
    base = ["one\n", "two\n", "three\n"]
    assert flat(base, ["ONE\n", "two\n", "three\n"], ["one\n", "two\n", "THREE\n"]) == (
        ["ONE\n", "two\n", "THREE\n"],
        False,
    )
    assert flat(base, ["one\n", "2\n", "three\n"], ["one\n", "zwei\n", "three\n"])[1]


def test_a_pathological_text_is_bounded() -> None:
    """Very many repeated lines are not matched line by line; nothing of them is lost either."""
    base = ["x\n", "y\n"] * MOST_LINES_MATCHED
    ours, theirs = ["o\n", *base[::-1], "o\n"], ["t\n", *base[::-1], "t\n"]
    started = time.process_time()
    merged, clash = flat(base, ours, theirs)
    assert clash
    assert merged == [*ours, *theirs]
    assert time.process_time() - started < 30  # the bound, not the speed: unbounded it takes hours
