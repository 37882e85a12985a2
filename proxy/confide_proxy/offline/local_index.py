"""Keyword search over texts of this machine: BM25 of pieces in SQLite's FTS5, in memory.

Scores are what the daemon calls `keyword`: bm25 / (bm25 + 8). The score it shows also knows how many of the question's terms a piece
holds, so the same `minScore` leaves out other pieces here than there.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from confide_memory.markdown import Heading, is_item, line_headings, lines_of
from confide_memory.note_names import is_note
from confide_proxy.errors import OfflineError
from confide_proxy.offline.local_notes import parted

SATURATION: Final = 8.0
PIECE_CHARS: Final = 320
"""About 80 tokens, as the daemon's pieces: small ones say what they are found for, and little else."""
MAX_PIECE_CHARS: Final = 1200
_BACKGROUND_ROWS: Final = 256
_BACKGROUND_WORD: Final = "\uf8fe "
MOST_TERMS: Final = 48
STOP_WORDS: Final = frozenset(
    """a about above after again all also am an and any are as at be because been before being both but by can
    could did do does doing done down during each few for from further get got had has have having he her here hers him his
    how i if in into is it its itself just me mine more most my myself no nor not now of off on once only or other our ours
    out over own same she should so some such than that the their theirs them then there these they this those through to
    too under until up us very was we were what when where which while who whom whose why will with would you your yours
    s t d ll m re ve don""".split()  # noqa: SIM905 - a list of quoted words would fill a screen
)
_COMPOUND = re.compile(r"\w+(?:[.:/@#+\-]+\w+)*")
_WORD = re.compile(r"\w+")

Name = tuple[str, str]
"""Project and path of a document."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some lines of a text, counted from 1, both ends included; `heading` is "Outer > Inner"."""

    start_line: int
    end_line: int
    text: str
    heading: str


def match_of(text: str, keywords: Sequence[str]) -> str:
    """The FTS5 query: quoted terms joined by OR, without stop words; "" where there is no word. No text can act as syntax."""
    terms: dict[str, None] = {}
    for phrase in [*re.findall(r'"([^"]{1,200})"', text), *keywords]:
        if words := _WORD.findall(phrase.lower()):
            terms[" ".join(words)] = None
    compounds = [match.lower() for match in _COMPOUND.findall(text)]
    words = [word for compound in compounds for word in _WORD.findall(compound)]
    terms.update(dict.fromkeys(compound for compound in compounds if len(_WORD.findall(compound)) > 1))
    terms.update(dict.fromkeys([word for word in words if word not in STOP_WORDS] or words))
    return " OR ".join(f'"{term}"' for term in list(terms)[:MOST_TERMS])


class LocalIndex:
    """The pieces of documents. One thread at a time; it may be another one each time.

    Raises, when made: OfflineError where this Python's SQLite has no FTS5.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        try:
            self._db.execute("CREATE VIRTUAL TABLE piece USING fts5(header, body, tokenize = 'porter unicode61')")
        except sqlite3.OperationalError:
            self._db.close()
            raise OfflineError(
                "this machine's files cannot be searched while the daemon is away: this Python's SQLite has no FTS5",
                hint="use a Python whose sqlite3 has FTS5, as nearly all have; memory_read works",
            ) from None
        # Rows that match nothing: BM25 takes a word for worthless that is in half of all rows, so in three notes nothing would be found.
        row = (_BACKGROUND_WORD * 3, _BACKGROUND_WORD * 40)
        self._db.executemany("INSERT INTO piece (header, body) VALUES (?, ?)", [row] * _BACKGROUND_ROWS)
        self._places: dict[int, tuple[Name, int, int, str]] = {}
        self._rows: dict[Name, list[int]] = {}

    def close(self) -> None:
        """Give the memory back."""
        self._db.close()

    def put(self, name: Name, text: str) -> None:
        """Make this the text of the document."""
        self.remove(name)
        header = re.sub(r"[-_/.]+", " ", name[1].removesuffix(".md"))
        if is_note(name[1]):
            words, text = parted(text)
            header = f"{header} | {words}"
        self._db.execute("BEGIN")
        for piece in cut(text):
            values = (f"{header} | {piece.heading}", piece.text)
            row = self._db.execute("INSERT INTO piece (header, body) VALUES (?, ?)", values).lastrowid
            assert row is not None
            self._places[row] = (name, piece.start_line, piece.end_line, piece.heading)
            self._rows.setdefault(name, []).append(row)
        self._db.execute("COMMIT")

    def remove(self, name: Name) -> None:
        """Forget the document."""
        for row in self._rows.pop(name, ()):
            self._db.execute("DELETE FROM piece WHERE rowid = ?", (row,))
            del self._places[row]

    def search(self, match: str) -> Iterator[tuple[Name, Piece, float]]:
        """Pieces with their scores in 0 to 1, best first."""
        if not match:
            return
        rank = "bm25(piece, 1.0, 1.0)"
        sql = f"SELECT rowid, body, -{rank} FROM piece WHERE piece MATCH ? ORDER BY {rank}, rowid"  # noqa: S608 - a constant
        for row, body, score in self._db.execute(sql, (match,)):
            name, start, end, heading = self._places[row]
            saturated = max(0.0, score) / (max(0.0, score) + SATURATION)
            yield name, Piece(start, end, body, heading), saturated


def cut(text: str) -> Iterator[Piece]:
    """Small pieces in order: a heading begins one, and so does a paragraph or an item that does not fit any more."""
    lines = lines_of(text)
    at = {heading.line: heading for heading in line_headings(text)}
    stack: list[Heading] = []
    path, first, size = "", 0, 0
    has_text = False  # a heading alone would be found without saying anything

    def piece(end: int) -> Iterator[Piece]:
        yield from _pieces(lines, first, end, path)

    for number, line in enumerate(lines):
        heading = at.get(number)
        is_start = not line.strip() or is_item(line)
        if (heading and has_text) or (size >= PIECE_CHARS and is_start) or size >= MAX_PIECE_CHARS:
            yield from piece(number)
            first, size, has_text = number, 0, False
        if heading:
            stack = [*(above for above in stack if above.level < heading.level), heading]
            path = " > ".join(above.title for above in stack if above.title)
        elif line.strip():
            has_text = True
        size += len(line) + 1
    yield from piece(len(lines))


def _pieces(lines: list[str], first: int, end: int, heading: str) -> Iterator[Piece]:
    while first < end and not lines[first].strip():
        first += 1
    while end > first and not lines[end - 1].strip():
        end -= 1
    body = "\n".join(lines[first:end])
    # One line may be a whole minified file: it is shown in slices.
    for offset in range(0, len(body), MAX_PIECE_CHARS * 2):
        yield Piece(first + 1, end, body[offset : offset + MAX_PIECE_CHARS * 2], heading)
