"""Text is known again by what it says, however it is laid out."""

from __future__ import annotations

import random

import pytest

from confide_memory.classes.text_marks import SURE, TextBlock, blocks, blocks_with, marks

SAID = "the deploy key lives in the vault below infra and is rotated every ninety days by the team on call"


def shares(one: str, other: str) -> bool:
    lines, others = one.split("\n"), other.split("\n")
    numbers = marks(lines, blocks(lines))
    return bool(blocks_with(marks(others, blocks(others)), frozenset().union(*numbers.values())))


def test_blocks_are_paragraphs_items_and_headings() -> None:
    """Lines that belong together; blank ones are in none."""
    text = "# Title\nintro\nmore\n\n- one\n  goes on\n- two\n1. three\n\n| a | b |\n| c | d |"
    assert blocks(text.split("\n")) == [
        *(TextBlock(1, 1), TextBlock(2, 3), TextBlock(5, 6), TextBlock(7, 7), TextBlock(8, 8)),
        *(TextBlock(10, 10), TextBlock(11, 11)),
    ]


@pytest.mark.parametrize(
    "other",
    [
        f"A line of ours before it. {SAID.capitalize()}. And one behind.",
        f"* {SAID[:40]}\n  **{SAID[40:52]}**{SAID[52:]}\n",
        SAID.upper().replace(" ", "   "),
        f"> {SAID[:30]}\n> {SAID[30:]}",
    ],
)
def test_it_is_known_again_however_it_is_laid_out(other: str) -> None:
    """Within other text, broken otherwise, marked up, in capitals."""
    assert shares(SAID, other)


def test_any_run_of_so_many_words_is_enough() -> None:
    """Wherever it stands in both texts; and texts that share fewer are not taken for each other."""
    chance = random.Random(25)
    words = [f"word{number}" for number in range(400)]
    for _ in range(200):
        run = [chance.choice(words) for _ in range(SURE)]
        one, other = ([chance.choice(words) for _ in range(chance.randrange(30))] for _ in range(2))
        assert shares(" ".join([*one, *run, *one]), " ".join([*other, *run]))
    assert not shares(
        SAID, "the key of the deploy lives in a vault and the team is on call every ninety days below infra"
    )


def test_short_blocks_are_known_as_a_whole() -> None:
    """From three words on, headings from six; less says nothing of where it is from. Letters of scripts without blanks are words."""
    assert shares("- always force push", "Some text.\n\n* Always FORCE push!\n")
    assert not shares("- always force push", "- always force push to forks")
    assert not shares("- yes, do", "- yes, do")
    assert not shares("## What is open now", "## What is open now")
    assert shares("总是强制推送", "- 总是强制推送")
