"""Entries of logs, lists and tables: each is found without its neighbours, with what it needs from above."""

from __future__ import annotations

import random
import time

import pytest
from tests.support.draws import draws

from confide_daemon.config import ChunkSettings
from confide_daemon.retrieval import chunker
from confide_daemon.retrieval.chunker import CONTEXT_CHARACTERS, MOST_CONTEXT, TITLE_CHARACTERS, cut
from confide_daemon.store.rows import Piece

SETTINGS = ChunkSettings()
SECONDS = 30.0  # of a processor; none takes a tenth on an idle machine


def texts(text: str) -> list[str]:
    return [piece.text for piece in cut(text, SETTINGS)]


def holding(pieces: list[Piece], words: str) -> Piece:
    return next(piece for piece in pieces if words in piece.text)


@pytest.mark.parametrize("mark", ["-", "*", "+", "1.", "- [ ]", "- [x]"])
def test_a_list_item_stands_by_itself(mark: str) -> None:
    """Also in a list with blank lines between its items; continuation lines belong to their item."""
    items = [
        "We chose postgres over mysql\n  for its row locks",
        "prod db: postgres://db.example.org:5432/shop",
        "Anna has the keys of the office",
    ]
    for between in ("\n", "\n\n"):
        found = texts(between.join(f"{mark} {item}" for item in items))
        assert found == [f"{mark} {item}" for item in items]


@pytest.mark.parametrize(
    "begin", ["2026-11-18 12:00 ", "12:00 ", "[2026-11-18 12:00:01] ", "**09:30** ", "18.11.2026: ", "Nov 18 12:00:01 "]
)
def test_a_line_of_a_log_that_begins_with_its_time_stands_by_itself(begin: str) -> None:
    lines = [f"{begin}{what}" for what in ("the pool of the service was empty", "Anna took over the staging machine")]
    assert texts("\n".join(lines)) == lines


def test_a_paragraph_of_a_daily_log_stands_by_itself() -> None:
    """`memory_store` adds paragraphs to it; elsewhere short paragraphs go together, and so does talk."""
    said = ["We chose postgres over mysql for its row locks.", "prod db: postgres://db.example.org:5432/shop, ask Anna"]
    text = "\n\n".join(["# 2026-11-18", *said])
    found = [piece.text for piece in cut(text, SETTINGS, is_log=True)]
    assert found == [f"# 2026-11-18\n\n{said[0]}", said[1]]
    assert len(texts(text)) == 1
    talk = "\n\n".join(f"**Anna:** {one}" for one in said)
    assert len(cut(talk, SETTINGS, is_log=True)) == 1


def test_lines_of_a_paragraph_stay_together() -> None:
    """Prose that is wrapped is no list of entries."""
    text = "We chose postgres over mysql\nfor its row locks, and because\nAnna knows it well."
    assert texts(text) == [text]


def test_very_short_entries_join_a_neighbour() -> None:
    """Two or three words say nothing by themselves."""
    found = texts("- ok\n- done\n- the connection pool of the shop has twenty places\n- yes")
    assert len(found) == 1


def test_nested_items_are_with_their_item_where_they_fit() -> None:
    whole = "- deploys of the shop\n  - go out with bin/ship\n  - never on a Friday"
    assert texts(f"{whole}\n- Anna has the keys of the office") == [whole, "- Anna has the keys of the office"]


def test_nested_items_that_do_not_fit_know_the_item_above() -> None:
    nested = [f"  - number {n} of the many rules that hold for this, written down by Anna in spring" for n in range(6)]
    pieces = cut("# Rules\n\n- deploys of the shop\n" + "\n".join(nested), SETTINGS)
    assert [piece.heading for piece in pieces if "number 3" in piece.text] == ["Rules > deploys of the shop"]
    assert holding(pieces, "number 3").above == (1, 3)
    assert "deploys" not in holding(pieces, "number 3").text


def test_a_row_of_a_table_knows_the_names_of_its_columns() -> None:
    """In what is searched with it, not in its text."""
    rows = [f"| timeout {n} of the service | {n} seconds | Anna |" for n in range(4)]
    pieces = cut(
        "# Limits\n\n| limit | value | owner |\n|---|---|---|\n"
        + "\n".join(rows)
        + "\n\nText that stands after the table of limits.",
        SETTINGS,
    )
    assert [piece.text for piece in pieces if "timeout 2" in piece.text] == [rows[2]]
    assert holding(pieces, "timeout 2").heading == "Limits > limit | value | owner"
    assert holding(pieces, "timeout 2").above == (1, 3)
    assert holding(pieces, "timeout 0").heading == "Limits"  # the names are in its text
    assert holding(pieces, "Text that").heading == "Limits"
    assert holding(pieces, "Text that").text == "Text that stands after the table of limits."


def test_a_text_that_is_too_long_to_be_parsed_has_entries_too() -> None:
    """Nested ones, and headings that end them; none in a fence."""
    some = "\n".join(f"- entry {n} of the log: the pool of the service was empty\n  again" for n in range(9000))
    fence = "```\n- no entry by itself\n- nor this one here\n```"
    pieces = cut(f"# Log\n\n{some}\n\n# Code\n\n{fence}\n", SETTINGS)
    assert holding(pieces, "entry 4711 ").text == "- entry 4711 of the log: the pool of the service was empty\n  again"
    assert "nor this one" in holding(pieces, "no entry").text
    assert pieces[-1].heading == "Code"


HOSTILE = {
    "columns": lambda: "|" + "a|" * 3000 + "\n|" + "-|" * 3000 + "\n" + ("|" + "b|" * 3000 + "\n") * 3,
    "a line of a log of 4 MB": lambda: "2026-11-18 12:00 " + "the pool was empty " * draws(220_000, 60_000),
    "an item of 1 MB": lambda: "- " + "the pool was empty " * draws(55_000, 20_000),
    "levels": lambda: "\n".join("  " * n + f"- item {n}" for n in range(900)),
    "levels of a text that is not parsed": lambda: "\n".join("  " * (n % 900) + f"- item {n}" for n in range(1800)),
    "marks": lambda: "- " * 20_000,
    "brackets": lambda: "[" * 20_000,
    "brackets and lists": lambda: "- [" * 20_000 + "\n" + "- [ ] " * 5000,
    "short items": lambda: "- a\n" * 40_000,
    "short rows": lambda: "| a |\n|---|\n" + "| b |\n" * 20_000,
    "times": lambda: "12:00\n" * 60_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_list_or_table_takes_long_or_repeats_much(name: str) -> None:
    """The limit holds, all of the text is there, and what a chunk quotes from above is short."""
    text = HOSTILE[name]()
    began = time.process_time()
    pieces = cut(text, SETTINGS)
    assert time.process_time() - began < SECONDS
    assert max(piece.tokens for piece in pieces) <= SETTINGS.size
    assert sum(len("".join(piece.text.split())) for piece in pieces) == len("".join(text.split()))
    assert max(len(piece.heading) for piece in pieces) <= TITLE_CHARACTERS + MOST_CONTEXT * (CONTEXT_CHARACTERS + 3)


def test_a_change_of_an_entry_changes_its_own_chunk_alone() -> None:
    chance = random.Random(7)
    lines = [f"- entry {n}: {chance.randbytes(8).hex()} of the pool was empty" for n in range(200)]
    before = set(texts("\n".join(lines)))
    for place in (0, 3, 100, 199):
        changed = [*lines]
        changed[place] += " and full again"
        assert len(set(texts("\n".join(changed))) - before) == 1


def test_the_least_size_of_an_entry_is_that_of_some_words() -> None:
    """A larger one would put "why postgres" beside its neighbour again."""
    assert chunker.SHORTEST <= 8
