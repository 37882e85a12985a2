"""Pieces under edits and odd texts: a change stays where it is made, no cut parts a character, no text takes long."""

from __future__ import annotations

import base64
import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.draws import draws
from tests.support.growth import NEARLY_LINEAR, growth

from confide_daemon.config import ChunkSettings
from confide_daemon.embedding.token_counts import count_tokens, token_ends
from confide_daemon.retrieval.chunker import cut, may_part
from confide_daemon.retrieval.search.results import snippet
from confide_daemon.store.rows import HitRow, Piece
from confide_daemon.store.tables.pieces import match_pieces, piece_hash

WORDS = re.findall(
    r"\S+",
    "the pool was empty because service keeps connection open error retry timeout postgres deploy index search vector cache "
    "note decided chose team monday release branch merge token 数据库 连接 naïve getUserById",
)

# Texts in which filling pieces from the front would move every seam behind a change, and others. Each gives a line.
KINDS: dict[str, Callable[[random.Random, int], str]] = {
    "rows": lambda chance, n: f"| {n:05} | {chance.choice(WORDS)} | {chance.choice(WORDS)} |",
    "items": lambda chance, n: f"- {words(chance, 8, 8)} {n}",
    "items of any length": lambda chance, n: f"- {words(chance, 3, 40)} {n}",
    "paragraphs": lambda chance, n: f"{words(chance, 5, 80)}.\n",
    "log": lambda chance, n: f"2026-01-01 12:{n % 60:02}:00 INFO {words(chance, 3, 6)}",
    "code": lambda chance, n: "    " * chance.randint(0, 3) + words(chance, 1, 5),
}
BEGINS = {"rows": "| id | one | two |\n|---|---|---|\n"}
LINES = 160
# Nearly all changes make at most three new pieces; where they are bounded is a matter of chance, and seven were never seen.
USUALLY, EVER = 3, 8


def words(chance: random.Random, least: int, most: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(least, most)))


def new_pieces(before: list[Piece], after: list[Piece]) -> int:
    """How many would have to be embedded."""
    return sum((Counter(piece.text for piece in after) - Counter(piece.text for piece in before)).values())


@pytest.mark.parametrize("chosen", [ChunkSettings(), ChunkSettings(400, 80)], ids=lambda chosen: chosen.name)
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_line_changes_the_pieces_around_it_alone(kind: str, chosen: ChunkSettings) -> None:
    """One line changed, put in or taken out: nearly always at most three new pieces, in any kind of text, also in rows of like length."""
    chance = random.Random(kind)
    lines = [KINDS[kind](chance, number) for number in range(LINES)]
    begin = BEGINS.get(kind, "")
    before = cut(begin + "\n".join(lines), chosen)
    counts = []
    for number in range(12):
        place = chance.randrange(LINES)
        changed = list(lines)
        if number % 3 == 0:
            changed[place] = KINDS[kind](chance, place)
        elif number % 3 == 1:
            changed.insert(place, KINDS[kind](chance, place))
        else:
            del changed[place]
        counts.append(new_pieces(before, cut(begin + "\n".join(changed), chosen)))
    assert max(counts) <= EVER, counts
    assert sum(count <= USUALLY for count in counts) >= len(counts) * 0.75, counts


@given(data=st.data())
@settings(max_examples=draws(30), deadline=None)
def test_no_edit_of_any_lines_reaches_far(data: st.DataObject) -> None:
    """Whatever stands in the lines of a list and whatever is put in, what is far from it stays as it was."""
    some = data.draw(st.lists(st.text("ab c1.文", min_size=1, max_size=40), min_size=1, max_size=6))
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    lines = [f"- {chance.choice(some)} {words(chance, 1, 12)}" for _ in range(200)]
    place = data.draw(st.integers(0, 199))
    put = data.draw(st.text("ab c1.文", max_size=60))
    before = cut("\n".join(lines), ChunkSettings())
    after = cut("\n".join([*lines[:place], f"- {put}", *lines[place:]]), ChunkSettings())
    assert new_pieces(before, after) <= 12
    far = Counter(piece.text for piece in before if abs(piece.start_line - place) > 60)
    assert not far - Counter(piece.text for piece in after)


@pytest.mark.parametrize("kind", ["base64", "json", "chinese", "words"])
def test_a_change_within_a_long_line_stays_there(kind: str) -> None:
    """A file that is one line of many thousand characters: what changes in it changes the pieces there."""
    chance = random.Random(kind)
    line = {
        "base64": lambda: base64.b64encode(chance.randbytes(draws(150_000, 40_000))).decode(),
        "json": lambda: json.dumps(
            [{"id": n, "v": chance.random()} for n in range(draws(6000, 1600))], separators=(",", ":")
        ),
        "chinese": lambda: "".join(chr(chance.randrange(0x4E00, 0x5000)) for _ in range(20_000)),
        "words": lambda: words(chance, *[draws(30_000, 24_000)] * 2),
    }[kind]()
    before = cut(line, ChunkSettings())
    assert len(before) > 500
    counts = []
    for _ in range(3):
        place = chance.randrange(len(line))
        counts.append(new_pieces(before, cut(f"{line[:place]}Xy{line[place:]}", ChunkSettings())))
    assert max(counts) <= EVER, counts


def test_pieces_that_moved_keep_their_ids() -> None:
    """A section that is moved within its document, small or large, takes its pieces along: hardly any is new."""
    for sections in (40, 700):  # fewer and more pieces than are aligned exactly
        chance = random.Random(sections)
        parts = [f"## Part {n}\n\n{words(chance, 60, 90)}.\n" for n in range(sections)]
        moved = [*parts[5:20], *parts[:5], *parts[20:]]
        before, after = (
            [piece_hash(piece.text) for piece in cut("\n".join(each), ChunkSettings())] for each in (parts, moved)
        )
        assert len(after) - len(match_pieces(before, after)) <= 2


@pytest.mark.parametrize("chosen", [ChunkSettings(16, 0), ChunkSettings(60, 30)], ids=lambda chosen: chosen.name)
def test_neighbouring_pieces_give_the_text_back(chosen: ChunkSettings) -> None:
    """Pieces that are made one hit lose no words, also where one ends and the next begins within a line."""
    long = ". ".join(f"Sentence {n} of the long line" for n in range(12))
    text = f"{long}.\nA short line.\nAnother one.\n\n- an item\n- and one more item\n"
    rows = [
        HitRow(n, 1, n, piece.start_line, piece.end_line, "", piece.tokens, piece.text, "p", "a.md", "memory", "x", 0.0)
        for n, piece in enumerate(cut(text, chosen))
    ]
    for first in range(len(rows) - 1):
        joined = snippet(rows[first : first + 2])
        own = rows[first + 1].text
        assert set(re.findall(r"\w+", own)) <= set(re.findall(r"\w+", joined))
        assert joined.startswith(rows[first].text)


EMOJI = "👨‍👩‍👧‍👦"


@pytest.mark.parametrize("unit", [EMOJI, "🇩🇪", "👍🏽", "e\u0301\u0323", "กำ", "क्षि", "❤️"])
def test_no_cut_parts_a_character(unit: str) -> None:
    """Families, flags, skin colours and letters with marks stay whole in text without blanks."""
    text = unit * 400
    pieces = cut(text, ChunkSettings())
    assert "".join(piece.text for piece in pieces) == text
    assert len(pieces) > 5
    for piece in pieces:
        first = piece.text[0]
        assert unicodedata.category(first) not in ("Mn", "Mc", "Me", "Sk", "Cf")
        assert not piece.text.endswith("\u200d")
        if unit in (EMOJI, "🇩🇪"):
            assert piece.text == unit * (len(piece.text) // len(unit))


def test_marks_without_end_are_cut_all_the_same() -> None:
    """A letter under thousands of marks is no reason for a piece over the limit."""
    text = "e" + "\u0301" * 5000
    pieces = cut(text, ChunkSettings())
    assert "".join(piece.text for piece in pieces) == text
    assert max(piece.tokens for piece in pieces) <= 48
    assert not may_part(text, 0, 5)


@given(text=st.text(max_size=300) | st.text("ab \n。e\u0301🇩字", max_size=6000))
@example("a" * 5000 + "\n\n" + "b" * 5000)
@settings(max_examples=draws(100), deadline=None)
def test_tokens_end_where_the_text_does(text: str) -> None:
    """The ends of tokens grow, the last is the end of the text, and there are as many as are counted."""
    ends = token_ends(text).tolist()
    assert ends == sorted(ends)
    assert not text or ends[-1] == len(text)
    if len(text) <= 2048:
        assert len(ends) == count_tokens(text)


@pytest.mark.parametrize("text", ["", " ", "\n\n\n", "\ufeff", "\ufeff\r\n", "\t\n \u2003\n"])
def test_nothing_gives_no_pieces(text: str) -> None:
    assert cut(text, ChunkSettings()) == []


def test_windows_line_ends_and_a_mark_change_nothing() -> None:
    """The same text with "\\r\\n" and a byte order mark has the same pieces, so a change of editor embeds nothing."""
    text = "# A\n\n- one\n  - two\n\n```\ncode\n\nmore\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert cut("\ufeff" + text.replace("\n", "\r\n"), ChunkSettings()) == cut(text, ChunkSettings())


def test_the_head_of_a_table_stays_together() -> None:
    """The names of the columns, the ruler under them and a first row are in one piece, which is how a table is recognised."""
    rows = "\n".join(f"| service {n} | keeps {n * 7} connections | team {n % 5} |" for n in range(200))
    pieces = cut(f"Some text.\n\n| name | connections | owner |\n|---|---|---|\n{rows}\n", ChunkSettings())
    assert sum("| name | connections | owner |\n|---|---|---|" in piece.text for piece in pieces) == 1
    assert not any(piece.text.startswith("|---") for piece in pieces)


@pytest.mark.parametrize("fence", ["```", "~~~~", "  ```"])
def test_what_stands_in_a_fence_is_no_heading(fence: str) -> None:
    """Also where the fence is made of tildes, holds another one, or is never closed."""
    pieces = cut(f"# Top\n\n{fence}md\n# not one\n\n``\n## nor this\n", ChunkSettings(16, 0))
    assert {piece.heading for piece in pieces} == {"Top"}


def test_a_heading_of_a_megabyte_is_not_repeated_in_every_piece() -> None:
    """Each piece carries the headings above it, so they are carried short."""
    pieces = cut("# " + "very long title " * 60_000 + "\n\ntext\n", ChunkSettings())
    assert sum(len(piece.heading) for piece in pieces) < 4_000_000


HOSTILE_CHARACTERS = draws(64_000, 32_000)
HOSTILE = {
    "lines of one letter": "a\n",
    "paragraphs of one letter": "a\n\n",
    "sentences of one mark": "。",
    "one letter": "a",
    "words of one letter": "a ",
    "marks": "\u0301",
    "families": EMOJI + " ",
    "headings": "# a\n",
    "ideographs of four bytes": "\U00012000",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_holds_the_writer_for_long(name: str) -> None:
    unit = HOSTILE[name]
    pieces: list[Piece] = []

    def work(size: int) -> None:
        pieces[:] = cut((unit * size)[:size], ChunkSettings())

    assert growth(work, HOSTILE_CHARACTERS) < NEARLY_LINEAR
    assert max(piece.tokens for piece in pieces) <= 48
