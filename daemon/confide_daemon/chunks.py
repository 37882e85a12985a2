"""Cuts a document into the small pieces that are searched.

Pieces follow the structure of the text: they begin at headings, paragraphs, list items, fences and table rows where they can,
hold as many whole parts as fit, and know the headings above them and their lines (counted from 1). Every line that is not blank
is in a piece, pieces are in order, none is over the limit, and the same text always gives the same pieces.

Small pieces with neighbour smoothing at search time beat large ones by 13 points of recall within 1,000 returned tokens (retrieval.md 1.4);
`bench/quality.py` has the measurements behind the default size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from confide_daemon.markdown import Heading, structure
from confide_daemon.tokens import count_tokens, encoding


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    """How documents are cut. `ChunkSettings(400, 80)` is the original plan's."""

    size: int = 48  # tokens at most; LoCoMo recall within 500 tokens: 48 80.8, 56 77.3, 64 75.2, 80 70.3, 100 67.7
    overlap: int = 0  # tokens repeated from the piece before

    def __post_init__(self) -> None:
        if not 16 <= self.size <= 2000 or not 0 <= self.overlap <= self.size // 2:
            raise ValueError(f"chunk size must be 16 to 2000 tokens and overlap at most half of it, not {self}")

    @property
    def name(self) -> str:
        """Stored with each document; a document cut under another name is cut again. The number is the algorithm's version."""
        return f"{self.size}/{self.overlap}/1"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a document."""

    start_line: int  # counted from 1, both ends included
    end_line: int
    text: str
    heading: str  # "Outer > Inner", empty above the first heading
    tokens: int


@dataclass(frozen=True, slots=True)
class _Part:
    """The smallest thing that is packed: some whole lines, or a slice of one long line. `line` counts from 0."""

    line: int
    last: int
    text: str
    tokens: int
    starts_section: bool


def cut(text: str, settings: ChunkSettings) -> list[Piece]:
    """The pieces of the text, in order."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    blocks, headings = structure(text)
    starts = {block.line: block.kind for block in blocks}
    paths = _heading_paths(headings, len(lines))
    parts = list(_parts(lines, starts, settings.size))
    pieces = []
    for group in _groups(parts, settings):
        body = _joined(group)
        tokens = count_tokens(body)
        # Headings that open the piece are its own: the path is that of its last opening heading.
        opening = next((part.line for part in group if not part.starts_section), group[-1].line)
        pieces.append(Piece(group[0].line + 1, group[-1].last + 1, body, paths[opening], tokens))
    return pieces


def _heading_paths(headings: list[Heading], total: int) -> list[str]:
    """For every line the titles of the headings it lies under, outermost first."""
    paths = [""] * total
    stack: list[Heading] = []
    for index, heading in enumerate(headings):
        stack = [above for above in stack if above.level < heading.level]
        stack.append(heading)
        end = headings[index + 1].line if index + 1 < len(headings) else total
        path = " > ".join(above.title for above in stack if above.title)
        paths[heading.line : end] = [path] * (end - heading.line)
    return paths


def _parts(lines: list[str], starts: dict[int, str], size: int) -> Iterator[_Part]:
    """Runs of lines between two starts, each cut further where it is over the limit: at lines, then at sentences."""
    first = 0
    total = len(lines)
    headings = 0  # tokens of the headings that wait for text to stand with
    while first < total:
        if not lines[first].strip():
            first += 1
            continue
        end = first + 1
        while end < total and end not in starts and (lines[end].strip() or starts.get(first) == "fence"):
            end += 1
        is_heading = starts.get(first) == "heading"
        # A heading that is a piece of its own would be found without saying anything: what follows is cut so that its beginning fits.
        room = max(size // 2, size - headings)
        parts = list(_part(lines, first, end, size, room=size if is_heading else room, starts_section=is_heading))
        yield from parts
        headings = headings + sum(part.tokens + 2 for part in parts) if is_heading else 0
        first = end


def _part(lines: list[str], first: int, end: int, size: int, *, room: int, starts_section: bool) -> Iterator[_Part]:
    """One run of lines as parts of at most `size` tokens, the first of at most `room`."""
    while end > first + 1 and not lines[end - 1].strip():
        end -= 1
    body = "\n".join(lines[first:end])
    tokens = count_tokens(body)
    if tokens <= room:
        yield _Part(first, end - 1, body, tokens, starts_section)
    elif end - first > 1:
        for number in range(first, end):
            if lines[number].strip():
                own = starts_section and number == first
                yield from _part(lines, number, number + 1, size, room=room, starts_section=own)
                room = size
    else:
        for slice_text in _sentences(lines[first], size, room):
            yield _Part(first, first, slice_text, count_tokens(slice_text), starts_section)


SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])")


def _sentences(line: str, size: int, room: int) -> Iterator[str]:
    """A line in slices of at most `size` tokens (the first: `room`), at sentence ends if there are any, else at blanks, else anywhere."""
    pending = ""
    for sentence in SENTENCE_END.split(line):
        for fragment in [sentence] if count_tokens(sentence) <= room else _fragments(sentence, size, room):
            longer = f"{pending} {fragment}" if pending else fragment
            if pending and count_tokens(longer) > room:
                yield pending
                room = size
                pending = fragment
            else:
                pending = longer
    if pending.strip():
        yield pending


def _fragments(sentence: str, size: int, room: int) -> Iterator[str]:
    """A sentence without an end in sight (minified code, base64) in slices of at most `size` tokens, the first of at most `room`."""
    encode = encoding().encode_ordinary
    rest = sentence
    while rest:
        # A token is rarely over eight characters of text; shrink from there to what fits.
        taken = rest[: room * 8]
        while len(encode(taken)) > room:
            taken = taken[: max(1, len(taken) * room // (len(encode(taken)) + 1))]
        if len(taken) < len(rest):
            blank = taken.rfind(" ", len(taken) // 2)
            taken = taken[: blank + 1] if blank > 0 else taken
        if taken.strip():
            yield taken.strip()
            room = size
        rest = rest[len(taken) :]


def _groups(parts: list[_Part], settings: ChunkSettings) -> Iterator[list[_Part]]:
    """Parts packed greedily up to the limit; a heading begins a new piece unless only headings came before it."""
    group: list[_Part] = []
    for part in parts:
        if group and (_breaks_before(group, part) or not _fits(group, part, settings.size)):
            yield group
            group = _tail(group, part, settings)
        group.append(part)
    if group:
        yield group


def _breaks_before(group: list[_Part], part: _Part) -> bool:
    return part.starts_section and not all(earlier.starts_section for earlier in group)


def _fits(group: list[_Part], part: _Part, size: int) -> bool:
    """Whether the part may join. Joining rarely costs more than the line ends; near the limit it is counted exactly."""
    estimate = part.tokens + sum(earlier.tokens for earlier in group)
    estimate += sum(max(1, later.line - before.last) for before, later in pairwise([*group, part]))
    return estimate <= size * 0.9 or count_tokens(_joined([*group, part])) <= size


def _tail(group: list[_Part], part: _Part, settings: ChunkSettings) -> list[_Part]:
    """The last parts of a piece that the next one repeats."""
    if not settings.overlap or part.starts_section:
        return []
    tail: list[_Part] = []
    for earlier in reversed(group[1:]):
        candidate = [earlier, *tail]
        if count_tokens(_joined(candidate)) > settings.overlap or not _fits(candidate, part, settings.size):
            break
        tail = candidate
    return tail


def _joined(group: list[_Part]) -> str:
    """The text of the parts as it stands in the document, line for line; slices of one line are joined by a blank."""
    text = group[0].text
    for before, part in pairwise(group):
        if part.line == before.last:
            text += " " + part.text
        else:
            text += "\n" * (part.line - before.last) + part.text
    return text
