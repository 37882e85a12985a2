"""Cutting documents into pieces: nothing is lost, nothing is too large, and an edit disturbs little."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.draws import draws

from confide_daemon.config import ChunkSettings
from confide_daemon.embedding.token_counts import count_tokens
from confide_daemon.retrieval.chunker import cut
from confide_daemon.store.rows import Piece
from confide_daemon.store.tables.pieces import match_pieces, piece_hash

SETTINGS = [ChunkSettings(), ChunkSettings(16, 0), ChunkSettings(60, 20), ChunkSettings(400, 80)]

words = st.sampled_from(
    [
        "the",
        "pool",
        "was",
        "empty",
        "because",
        "数据库",
        "连接",
        "getUserById()",
        "ERR_CONN_42",
        "src/app.py",
        "a_b_c",
        "naïve",
        "🙂",
        "x",
    ]
)
sentence = st.lists(words, min_size=1, max_size=30).map(lambda chosen: " ".join(chosen) + ".")
line = st.one_of(
    sentence,
    sentence.map(lambda text: f"- {text}"),
    sentence.map(lambda text: f"   1. {text}"),
    sentence.map(lambda text: f"> {text}"),
    st.tuples(st.integers(1, 6), words).map(lambda both: "#" * both[0] + " " + both[1]),
    st.sampled_from(
        ["", "  ", "```python", "```", "---", "| a | b |", "|---|---|", "| 1 | 2 |", "===", "<div>", "    code", "\tx"]
    ),
    st.text(max_size=60).map(lambda text: text.replace("\n", " ")),
    st.sampled_from(["A", "字", "=", "aB3", "x y "]).flatmap(lambda unit: st.integers(1, 900).map(lambda n: unit * n)),
)
markdown = st.lists(line, max_size=40).map("\n".join)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("chosen", SETTINGS, ids=lambda chosen: chosen.name)
@given(text=markdown)
@settings(max_examples=draws(120), deadline=None)
def test_any_text_is_covered_in_order_and_within_the_limit(chosen: ChunkSettings, text: str) -> None:
    """Whatever the text, every line that is not blank is in a piece, pieces follow each other, and none is over the limit."""
    pieces = cut(text, chosen)
    lines = text.split("\n")
    covered = set()
    for piece in pieces:
        assert 1 <= piece.start_line <= piece.end_line <= len(lines)
        assert piece.text.strip()
        assert piece.tokens == count_tokens(piece.text) <= chosen.size
        covered.update(range(piece.start_line, piece.end_line + 1))
    assert {number for number, content in enumerate(lines, 1) if content.strip()} <= covered
    starts = [(piece.start_line, piece.end_line) for piece in pieces]
    assert starts == sorted(starts)
    assert pieces == cut(text, chosen)
    if not chosen.overlap:
        assert squeezed("".join(piece.text for piece in pieces)) == squeezed(text)


@given(text=markdown)
@settings(max_examples=draws(100), deadline=None)
def test_a_piece_of_whole_lines_is_those_lines(text: str) -> None:
    """The text of a piece is what stands on its lines, so an agent can read the file from there."""
    lines = text.split("\n")
    pieces = cut(text, ChunkSettings(60, 0))
    for before, piece, after in zip([None, *pieces], pieces, [*pieces[1:], None], strict=False):
        alone = (before is None or before.end_line < piece.start_line) and (
            after is None or after.start_line > piece.end_line
        )
        if alone:
            expected = "\n".join(lines[piece.start_line - 1 : piece.end_line])
            assert squeezed(piece.text) == squeezed(expected)
            assert len(piece.text.split("\n")) == piece.end_line - piece.start_line + 1


def find(pieces: list[Piece], words: str) -> Piece:
    return next(piece for piece in pieces if words in piece.text)


def test_pieces_know_the_headings_above_them() -> None:
    """The heading path is that of a real parser: setext headings count, lines in fences do not."""
    text = "Title\n=====\n\nintro\n\n## Choices\n\nwe chose\n\n```sh\n# not a heading\necho\n```\n\n### Why\n\nbecause\n\n## Later\n\nthen"
    pieces = cut(text, ChunkSettings(16, 0))
    assert find(pieces, "intro").heading == "Title"
    assert find(pieces, "# not a heading").heading == "Title > Choices"
    assert find(pieces, "because").heading == "Title > Choices > Why"
    assert find(pieces, "then").heading == "Title > Later"


def test_a_heading_begins_a_piece_and_keeps_what_follows() -> None:
    """A section never starts in the middle of a piece, and headings in a row stay with the text below them."""
    pieces = cut("# A\n\n## B\n\none\n\n## C\n\ntwo\n", ChunkSettings(60, 0))
    assert [(piece.start_line, piece.end_line) for piece in pieces] == [(1, 5), (7, 9)]


def test_parts_that_fit_are_not_torn() -> None:
    """A fence, a list item and a table row stay whole while there is room for them in a piece."""
    fence = "```python\n" + "\n".join(f"value_{n} = {n}" for n in range(5)) + "\n\nprint(value_1)\n```"
    items = "\n".join(
        f"- item number {n} says something about the pool\n  and goes on in a second line" for n in range(12)
    )
    table = "| name | value |\n|---|---|\n" + "\n".join(f"| name {n} | some value {n} |" for n in range(30))
    pieces = cut(f"text before that fills a part of the piece\n\n{fence}\n\n{items}\n\n{table}\n", ChunkSettings(60, 0))
    assert sum(fence in piece.text for piece in pieces) == 1
    for piece in pieces:
        for wrapped in re.finditer(r"item number \d+ .*", piece.text):
            assert "and goes on" in piece.text[wrapped.end() :], "an item was cut between its lines"
    assert all(row in "\n".join(piece.text for piece in pieces) for row in table.split("\n"))


def test_front_matter_is_a_part_of_its_own() -> None:
    """YAML at the top is kept and searched, and is no heading."""
    pieces = cut("---\ntitle: Pools\ntags: [db]\n---\n\n# Pools\n\ntext\n", ChunkSettings(60, 0))
    assert pieces[0].text == "---\ntitle: Pools\ntags: [db]\n---"
    assert pieces[0].heading == ""
    assert pieces[1].heading == "Pools"


def test_a_very_long_line_is_cut_at_sentences() -> None:
    """A paragraph without line breaks becomes pieces that end where sentences end, all on its line."""
    sentences = [f"The service number {n} keeps its own pool of connections." for n in range(40)]
    pieces = cut("# T\n\n" + " ".join(sentences), ChunkSettings(60, 0))
    assert len(pieces) > 5
    assert all(piece.text.endswith("connections.") for piece in pieces)
    assert {piece.end_line for piece in pieces} == {3}


@pytest.mark.parametrize("unit", ["数据库连接池是空的。", "字", "QUJD", "="])
def test_text_without_blanks_is_cut_too(unit: str) -> None:
    """Chinese, base64 and rulers have no blanks to cut at; they are covered all the same, and quickly."""
    text = unit * (20_000 // len(unit))
    pieces = cut(text, ChunkSettings())
    assert "".join(piece.text for piece in pieces).replace(" ", "") == text
    assert max(piece.tokens for piece in pieces) <= ChunkSettings().size


def test_lines_are_counted_by_newlines_alone() -> None:
    """Form feeds, U+2028 and lone carriage returns are no line ends, as in editors and in memory_read."""
    text = "one\fa\u2028b\rc\n\n# Two\r\n\r\nthree\r\n"
    pieces = cut(text, ChunkSettings())
    assert find(pieces, "three").end_line == 5
    assert find(pieces, "three").heading == "Two"


def test_one_changed_line_of_a_large_file_changes_few_pieces() -> None:
    """Pieces find back into step after an edit, so that a change embeds only what it touches."""
    paragraphs = [
        f"On day {n} the pool of service {n % 7} was {'empty ' * (n % 11)}and we noted {n * n}." for n in range(6000)
    ]
    text = "\n\n".join(paragraphs)
    edited = "\n\n".join([*paragraphs[:3000], paragraphs[3000] + " A new remark stands here.", *paragraphs[3001:]])
    before, after = ([piece_hash(piece.text) for piece in cut(version, ChunkSettings())] for version in (text, edited))
    assert len(after) - len(match_pieces(before, after)) <= 3


def test_sizes_that_make_no_sense_are_refused() -> None:
    """An overlap over half of the piece would repeat everything."""
    with pytest.raises(ValueError, match="overlap"):
        ChunkSettings(100, 60)
    with pytest.raises(ValueError, match="chunk size"):
        ChunkSettings(8, 0)


def test_a_very_large_text_still_knows_its_headings() -> None:
    """Beyond what is parsed, `#` headings are read line by line; those in fences are none."""
    section = "## Part {n}\n\n```\n# no heading\n```\n\n" + "the pool was empty " * 40 + "\n\n"
    pieces = cut("# Top\n\n" + "".join(section.replace("{n}", str(n)) for n in range(600)), ChunkSettings())
    assert pieces[-1].heading == "Top > Part 599"
    assert {piece.heading.split(" > ")[0] for piece in pieces} == {"Top"}
    assert not any("no heading" in piece.heading for piece in pieces)
