"""Cuts a document into the small pieces that are searched.

Pieces follow the structure of the text: they begin at headings, paragraphs, list items, fences and table rows where they can,
hold as many whole parts as fit, and know the headings above them and their lines (counted from 1). Every line that is not blank
is in a piece, pieces are in order, none is over the limit, and the same text always gives the same pieces. Which parts stand together
is decided by what stands around them alone (`packing`), so an edit changes the pieces near it and no others, whatever the text.

Small pieces with neighbour smoothing at search time beat large ones by 13 points of recall within 1,000 returned tokens (retrieval.md 1.4);
`bench/quality.py` has the measurements behind the default size.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from confide_daemon.config import ChunkSettings
from confide_daemon.embedding.tokens import count_tokens
from confide_daemon.store.rows import Piece

if TYPE_CHECKING:
    from confide_daemon.retrieval.chunking.atoms import Source
    from confide_daemon.retrieval.chunking.packing import Atoms
    from confide_memory.markdown import Heading

# Of a heading, in the path that every piece below it carries: a line of a megabyte can be a heading.
TITLE_CHARACTERS = 160


def cut(text: str, settings: ChunkSettings) -> list[Piece]:
    """The pieces of the text, in order. Prose costs 0.2 s of a core a megabyte, no text more than about 3 s."""
    # Imported late: they bring numpy, and commands that only name settings should start quickly.
    from confide_daemon.retrieval.chunking.atoms import Source
    from confide_daemon.retrieval.chunking.packing import Atoms, pack

    source = Source(text, settings.size - settings.overlap)
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


def _within_limit(source: Source, atoms: Atoms, begin: int, stop: int) -> list[tuple[int, int]]:
    """The atoms as one piece, or as several where their exact count is over the limit: a token that is cut in two can be one more."""
    from confide_daemon.retrieval.chunking.packing import pack

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


def _overlapping(source: Source, atoms: Atoms, first: int, end: int, settings: ChunkSettings) -> int:
    """Where the piece begins when it repeats what stands before it in its section."""
    from confide_daemon.retrieval.chunking.packing import HARD

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
