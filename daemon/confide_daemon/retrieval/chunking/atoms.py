"""The smallest parts of a text, to be packed into pieces: paragraphs, items, rows where they fit; else lines, sentences, words, tokens.

Ranges of characters, not texts: a piece is what stands in the document from its first atom to its last.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, chain

from confide_daemon.embedding.tokens import count_tokens, token_ends
from confide_daemon.retrieval.chunking.packing import GLUE, HARD, LOOSE, TOKEN, WORD
from confide_memory.markdown import structure

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


class Source:
    """A text with its lines, its tokens and its structure.

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
