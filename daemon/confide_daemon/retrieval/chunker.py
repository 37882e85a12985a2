"""Cuts a document into the small pieces that are searched.

Pieces follow the structure of the text: they begin at headings, paragraphs, list items, fences and table rows where they can,
hold as many whole parts as fit, and know the headings above them and their lines (counted from 1). Every line that is not blank
is in a piece, pieces are in order, none is over the limit, and the same text always gives the same pieces. Which parts stand together
is decided by what stands around them alone (`pack`), so an edit changes the pieces near it and no others, whatever the text.

Small pieces with neighbour smoothing at search time beat large ones by 13 points of recall within 1,000 returned tokens;
`bench/quality.py` has the measurements behind that and behind the default size.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from confide_daemon.config import ChunkSettings
from confide_daemon.embedding.token_counts import count_tokens, token_ends
from confide_daemon.store.rows import Piece
from confide_memory.markdown_blocks import Heading, structure

if TYPE_CHECKING:
    Whole = NDArray[np.int64]
    Hashes = NDArray[np.uint64]


# Of a heading, in the path that every piece below it carries: a line of a megabyte can be a heading.
TITLE_CHARACTERS = 160


def cut(text: str, settings: ChunkSettings) -> list[Piece]:
    """The pieces of the text, in order. Prose costs 0.2 s of a core a megabyte, no text more than about 3 s."""
    source = ChunkedText(text, settings.size - settings.overlap)
    atoms = Atoms.of(source.text, source.ends, source.atoms())
    paths = _heading_paths(source.headings, len(source.offsets))
    begins = pack(atoms, source.limit)
    pieces: list[Piece] = []
    for begin, stop in pairwise([*begins, len(atoms.start)]):
        for first, behind in _within_limit(source, atoms, begin, stop):
            start, end = int(atoms.start[first]), int(atoms.end[behind - 1])
            # Headings that open the piece are its own: the path is that of the last of them.
            opening = next(
                (
                    line
                    for line in map(source.line_of, atoms.start[first:behind].tolist())
                    if not source.is_heading(line)
                ),
                source.line_of(end - 1),
            )
            if settings.overlap:
                start = _overlapping(source, atoms, first, end, settings)
            body = source.text[start:end]
            lines = source.line_of(start) + 1, source.line_of(end - 1) + 1
            pieces.append(Piece(*lines, body, paths[opening], count_tokens(body)))
    return pieces


def _within_limit(source: ChunkedText, atoms: Atoms, begin: int, stop: int) -> list[tuple[int, int]]:
    """The atoms as one piece, or as several where their exact count is over the limit: a token that is cut in two can be one more."""
    found = [(begin, stop)]
    limit = source.limit
    # A single atom cannot be parted, however long it is.
    while limit > 1 and any(
        b - a > 1 and source.count(int(atoms.start[a]), int(atoms.end[b - 1])) > source.limit for a, b in found
    ):
        limit -= 1
        begins = [begin + offset for offset in pack(atoms.part(begin, stop), limit)]
        found = list(pairwise([*begins, stop]))
    return found


def _overlapping(source: ChunkedText, atoms: Atoms, first: int, end: int, settings: ChunkSettings) -> int:
    """Where the piece begins when it repeats what stands before it in its section."""
    start = own = int(atoms.start[first])
    while first > 0 and atoms.bond[first] != HARD:
        first -= 1
        earlier = int(atoms.start[first])
        if count_tokens(source.text[earlier:own]) > settings.overlap:
            break
        if count_tokens(source.text[earlier:end]) > settings.size:
            break
        start = earlier
    return start


def _heading_paths(headings: list[Heading], total: int) -> list[str]:
    """For every line the titles of the headings it lies under, outermost first."""
    paths = [""] * total
    stack: list[Heading] = []
    for index, heading in enumerate(headings):
        stack = [above for above in stack if above.level < heading.level]
        stack.append(heading)
        end = headings[index + 1].line if index + 1 < len(headings) else total
        path = " > ".join(above.title[:TITLE_CHARACTERS].strip() for above in stack if above.title)
        paths[heading.line : end] = [path] * (end - heading.line)
    return paths


# Between sentences, also where no blank follows: Chinese and Japanese have none.
SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])\s*")
BLANKS = re.compile(r"\s+")
# After one of these a text without blanks (minified JSON, code) is better cut than anywhere else.
GOOD_ENDS = frozenset(",;:)]}>，、")
# Elsewhere every fourth token may begin an atom, chosen by the characters there, and one after so many tokens must.
SPARSE = 4
MOST_TOKENS = 12
# Characters that belong to what they follow or to what follows them: marks, skin colours, variation selectors, joiners, halves of flags.
CLINGING = frozenset(("Mn", "Me", "Mc", "Sk", "Cf"))
# A letter with more marks than this (they can be stacked without end) is cut all the same.
MOST_CLINGING = 32
JOINER = "\u200d"
FLAGS = range(0x1F1E6, 0x1F200)


class ChunkedText:
    """A text with its lines, its tokens and its structure, and so its atoms: paragraphs, items, rows where they fit; else lines, sentences,
    words, tokens. Ranges of characters, not texts: a piece is what stands in the document from its first atom to its last.

    Attributes:
        text: without byte order mark, its lines ending in "\\n".
        limit: tokens of an atom at most; only a single character can be over it.
        ends: where each token ends.
        offsets: where each line begins.
        headings: of the whole text, in order.
    """

    def __init__(self, text: str, limit: int) -> None:
        self.text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        self.limit = limit
        # Arrays, not lists: a text of 4 MiB can have millions of lines and tokens.
        self.ends = array("q", token_ends(self.text).tobytes())
        self._lines = self.text.split("\n")
        self.offsets = array("q", chain((0,), accumulate(len(line) + 1 for line in self._lines[:-1])))
        blocks, self.headings = structure(self.text)
        self._blocks = {block.line: block for block in blocks}
        self._starts, self._stops, self._bonds = array("q"), array("q"), array("q")

    def line_of(self, place: int) -> int:
        """The line, counted from 0, that a character is in."""
        return bisect_right(self.offsets, place) - 1

    def is_heading(self, line: int) -> bool:
        """Whether a heading begins on the line."""
        block = self._blocks.get(line)
        return block is not None and block.kind == "heading"

    def count(self, start: int, end: int) -> int:
        """How many tokens a range of characters is: exactly where that is near the limit, else as many as it touches."""
        estimate = bisect_left(self.ends, end) - bisect_right(self.ends, start) + 1
        if estimate < self.limit * 0.85 - 2 or estimate > self.limit * 2 + 8:
            return estimate
        return count_tokens(self.text[start:end])

    def atoms(self) -> tuple[array[int], array[int], array[int]]:
        """From which character to which each atom goes, and how it holds to the one before; all that is not blank is in one."""
        self._starts, self._stops, self._bonds = array("q"), array("q"), array("q")
        headings = 0  # tokens of the headings that wait for text to stand with
        for first, last in self._runs():
            is_heading = self.is_heading(first)
            bond = GLUE if headings else HARD if is_heading else LOOSE
            # A heading that is a piece of its own would be found without saying anything: what follows is cut so that its beginning fits.
            room = self.limit if is_heading else max(self.limit // 2, self.limit - headings)
            self._add_run(first, last, bond, room)
            headings = headings + self.count(self.offsets[first], self._end(last)) + 2 if is_heading else 0
        return self._starts, self._stops, self._bonds

    def _runs(self) -> Iterator[tuple[int, int]]:
        """First and last line of what stands between two starts or two blank lines; blank lines in a fence are part of it."""
        total, first = len(self._lines), 0
        filled = [bool(line) and not line.isspace() for line in self._lines]
        while first < total:
            if not filled[first]:
                first += 1
                continue
            block = self._blocks.get(first)
            fenced = block is not None and block.kind == "fence"
            end = first + 1
            while end < total and end not in self._blocks and (fenced or filled[end]):
                end += 1
            last = end - 1
            while not filled[last]:
                last -= 1
            yield first, last
            first = end

    def _end(self, line: int) -> int:
        return self.offsets[line] + len(self._lines[line])

    def _add(self, start: int, stop: int, bond: int) -> None:
        self._starts.append(start)
        self._stops.append(stop)
        self._bonds.append(bond)

    def _add_run(self, first: int, last: int, bond: int, room: int) -> None:
        """Some lines as one atom, or line by line where they have no room; the first atom gets `room`, all others the limit."""
        begin, end = self.offsets[first], self._end(last)
        if self.count(begin, end) <= room:
            self._add(begin, end, bond)
            return
        for number in range(first, last + 1):
            line = self._lines[number]
            if line and not line.isspace():
                self._add_line(self.offsets[number], line, bond, room)
                bond, room = LOOSE, self.limit

    def _add_line(self, begin: int, line: str, bond: int, room: int) -> None:
        if self.count(begin, begin + len(line)) <= room:
            self._add(begin, begin + len(line), bond)
            return
        for start, end in _between(SENTENCE_END, line):
            if self.count(begin + start, begin + end) <= room:
                self._add(begin + start, begin + end, bond)
            else:
                self._add_words(begin + start, line[start:end], bond, room)
            bond, room = LOOSE, self.limit

    def _add_words(self, begin: int, sentence: str, bond: int, room: int) -> None:
        """The words of a sentence without an end in sight; what is too long for a word by its tokens."""
        for start, end in _between(BLANKS, sentence):
            if self.count(begin + start, begin + end) <= room:
                self._add(begin + start, begin + end, bond)
            else:
                self._add_tokens(begin + start, begin + end, bond)
            bond, room = WORD, self.limit

    def _add_tokens(self, begin: int, end: int, bond: int) -> None:
        """A few tokens at a time of base64, minified code or a script without blanks."""
        text, start, since = self.text, begin, 0
        for index in range(bisect_right(self.ends, begin), bisect_left(self.ends, end)):
            place = self.ends[index]
            since += 1
            if place <= start:
                continue
            before, after = text[place - 1], text[place]
            if before in GOOD_ENDS or (31 * ord(before) + 17 * ord(after)) % SPARSE == 0 or since >= MOST_TOKENS:
                # Tokens can end in the middle of what a person calls a character.
                while place < end and not may_part(text, start, place):
                    place += 1
                if place == end:
                    break
                self._add(start, place, bond)
                bond = WORD if text[place - 1] in GOOD_ENDS else TOKEN
                start, since = place, 0
        self._add(start, end, bond)


def may_part(text: str, start: int, place: int) -> bool:
    """Whether a cut at `place` parts no character from its marks and no parts of an emoji; `start` is where the part before it begins."""
    after, before = text[place], text[place - 1]
    if ord(after) < 0x300:
        return True
    if ord(after) in FLAGS and ord(before) in FLAGS:
        # Two make a flag.
        first = place - 1
        while first > start and ord(text[first - 1]) in FLAGS:
            first -= 1
        return (place - first) % 2 == 0
    return place - start > MOST_CLINGING or (before != JOINER and unicodedata.category(after) not in CLINGING)


def _between(marks: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """The ranges between the marks that are not blank."""
    start = 0
    for mark in marks.finditer(text):
        if mark.start() > start:
            yield start, mark.start()
        start = mark.end()
    if text[start:].strip():
        yield start, len(text)


# How firmly an atom holds to the one before it: lower seams are closed before higher ones are looked at, HARD ones never.
# Sentences, lines and paragraphs are all LOOSE: closing the seams of sentences before those of paragraphs found no more.
GLUE, TOKEN, WORD, LOOSE, HARD = range(5)

# Pairs are merged in so many bands, by how well they fill a piece. More bands fill a little better, and a change reaches further.
BANDS = 3
_BAND_BITS = np.uint64(2)

_NEVER = np.uint64(2**64 - 1)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads the bits (Knuth, volume 3, 6.4)


@dataclass(frozen=True, slots=True)
class Atoms:
    """What is packed, in order, as columns of one length.

    Attributes:
        start, end: characters of the text.
        first, last: tokens of the text that the atom touches.
        bond: how it holds to the atom before it.
        mix: a hash of the atom's text, the turn of the seam before it. With the text before hashed too, a change would move two turns.
    """

    start: Whole
    end: Whole
    first: Whole
    last: Whole
    bond: Whole
    mix: Hashes

    @classmethod
    def of(cls, text: str, ends: Sequence[int], spans: Sequence[Sequence[int]]) -> Atoms:
        """The atoms of a text whose tokens end at the characters `ends`; `spans` are the columns start, end and bond."""
        start, end, bond = (np.array(column, dtype=np.int64) for column in spans)
        first, last = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, end, side="left")
        own = np.array([crc32(text[s:e].encode()) for s, e in zip(*spans[:2], strict=True)], dtype=np.uint64)
        mix = own * _ODD
        mix = (mix ^ (mix >> np.uint64(31))) * _ODD
        return cls(start, end, first, last, bond, mix >> _BAND_BITS)

    def part(self, begin: int, stop: int) -> Atoms:
        """The atoms from `begin` up to `stop`."""
        cut = slice(begin, stop)
        return Atoms(self.start[cut], self.end[cut], self.first[cut], self.last[cut], self.bond[cut], self.mix[cut])


def pack(atoms: Atoms, limit: int) -> list[int]:
    """Where the pieces begin: indexes of atoms, the first of them 0. Pieces of several atoms touch at most `limit` tokens.

    Filling pieces from the front would be simpler, but in rows of like length (tables, lists, logs) one row more moves every seam after it,
    and everything after it would be embedded again. Here neighbours are merged wherever they fit together, those that fill a piece well
    first, then in an order that the text at their seams gives (a hash of it), as in locally consistent parsing (Mehlhorn, Sundar, Uhrig
    1997; Cormode, Muthukrishnan 2007): whether a seam stays depends on its surroundings alone, so a change moves the seams near it and no
    others. No two pieces that are left would fit into one. Of 840 changed lines in seven kinds of text 97 in a hundred made at most three
    new pieces, none more than five; filled from the front, all that followed. Search finds as much: LoCoMo recall within 500 / 1,000
    tokens 81.2 / 88.1 (mean over three hashes; each differs from it by up to 1), filled from the front 81.1 / 86.9 (over five sizes).

    Costs O(n log n) for n atoms; each round closes every seam that is the best of its neighbourhood.
    """
    count = len(atoms.start)
    begins = np.arange(count)
    for bond in range(HARD):
        if not (atoms.bond[1:] == bond).any():
            continue
        while len(begins) > 1:
            closed = _closed(atoms, begins, bond, limit)
            if not len(closed):
                break
            begins = np.delete(begins, closed + 1)
    return [int(begin) for begin in begins] if count else []


def _closed(atoms: Atoms, begins: Whole, bond: int, limit: int) -> Whole:
    """The seams that close in this round, no two of them at the same piece: those with the least key of their neighbourhood."""
    stops = np.append(begins[2:], len(atoms.start)) - 1
    tokens = atoms.last[stops] - atoms.first[begins[:-1]] + 1
    right = begins[1:]
    may = (atoms.bond[right] <= bond) & (tokens <= limit)
    if not may.any():
        return np.empty(0, dtype=np.int64)
    band = (np.maximum(limit - tokens, 0) * BANDS // limit).astype(np.uint64)
    key = np.where(may, band << (np.uint64(64) - _BAND_BITS) | atoms.mix[right], _NEVER)
    # Where the same lines repeat, keys are equal for long: of such a run every second seam closes, counted from its beginning.
    changes = np.flatnonzero(key[1:] != key[:-1]) + 1
    heads = np.concatenate([np.zeros(1, dtype=np.int64), changes])
    lengths = np.diff(np.append(heads, len(key)))
    values = key[heads]
    before = np.concatenate([[_NEVER], values[:-1]])
    after = np.concatenate([values[1:], [_NEVER]])
    least = (values < _NEVER) & (values < before) & (values < after)
    best = np.repeat(least, lengths)
    offset = np.arange(len(key)) - np.repeat(heads, lengths)
    return np.flatnonzero(best & (offset % 2 == 0))
