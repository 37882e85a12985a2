"""Search the documents on this device: the files of the session's project and of the global memory,
as they will be once the queued calls are applied.

The search index (BM25 over chunks, SQLite FTS5) stays in memory while the files are unchanged, and
is released some time after its last use. Text is split into words and scored as on the daemon
(`confide_memory.tools.words`, `confide_memory.tools.question`).
"""

from __future__ import annotations

import functools
import operator
import re
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from confide_memory.documents import is_note
from confide_memory.errors import NotFoundError
from confide_memory.markdown_blocks import Heading, append_text, is_item, line_headings, lines_of, replace_section
from confide_memory.note_names import digits_of, may_mean
from confide_memory.tools.days import DayRange
from confide_memory.tools.name_check import NameCheck, lacking_days
from confide_memory.tools.question import SATURATION, SearchQuestion, Term, saturate, unknown_share, words_score
from confide_memory.tools.words import index_words
from confide_memory.tools.written_days import DaySpan, days_of_chunk, phrase, stated_day, year_of_path
from confide_proxy.errors import FolderError, OfflineError
from confide_proxy.offline import local_notes
from confide_proxy.offline.journal import QueuedCall
from confide_proxy.offline.local_notes import CURRENT, NoteState
from confide_proxy.sync.folder import Content, Folder

READ_BUDGET_S: Final = 6.0
"""Seconds that one search may read files; the next one reads the rest."""
PIECE_CHARS: Final = 320
"""Length of a chunk in characters: about 80 tokens, as the daemon's chunks, so that a hit contains
little besides the match.
"""
MAX_PIECE_CHARS: Final = 1200
_BACKGROUND_ROWS: Final = 256
_BACKGROUND_WORD: Final = "\uf8fe "
VOTES: Final = (0.175, 0.14, 0.105, 0.07)
"""The share of its keyword score that a chunk one to four places away adds, as in the daemon's
search.
"""
AROUND: Final = range(-2, 3)
"""Offsets of the neighbouring chunks in which the query's terms may occur, as in the daemon's
search.
"""
MOST_FOLLOWED: Final = 2000
"""Most notes that are followed from one that they supersede."""
_FIELD = re.compile(r"(\w+):")
_SEARCHED: Final = frozenset({"title", "tags", "keywords", "entity", "category", "type"})

OF_DAYS_SCORE: Final = words_score(0.0, 0.0, is_named=True)
"""The score of a chunk of the days that a question asks for, and for nothing besides."""

Name = tuple[str, str]
"""Project and path of a document."""


@dataclass(frozen=True, slots=True)
class LocalPiece:
    """A chunk of a text. `start_line` and `end_line` count from 1, and both are part of it;
    `heading` is its path of headings, such as "Outer > Inner".
    """

    start_line: int
    end_line: int
    text: str
    heading: str
    days: DaySpan | None = None
    """The days that it states, or its document; None: neither does."""


@dataclass(frozen=True, slots=True)
class LocalDocument:
    """A document on this device, with the number `waiting` of queued stores already applied to its
    text. `mtime` is the time of the last of them, or else that of the file.
    """

    project: str
    path: str
    text: str
    mtime: float
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    project: str
    path: str
    piece: LocalPiece
    score: float
    rank: float
    """By which matches are ordered; it compares them with each other only."""
    mtime: float
    is_waiting: bool

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day that the chunk is about, in ISO 8601: the days that it states,
        or else the day of its document's last change.
        """
        if self.piece.days is not None:
            return self.piece.days.first.isoformat(), self.piece.days.last.isoformat()
        day = datetime.fromtimestamp(self.mtime).astimezone().date().isoformat()
        return day, day


@dataclass(slots=True)
class _Known:
    stamp: tuple[Any, ...]
    mtime: float
    is_waiting: bool
    id: str = ""
    """The id of a note; "" for other documents."""
    state: NoteState = CURRENT


class LocalMemory:
    """The documents in the folders of one session, with queued stores applied.

    `waiting` returns the queued calls that change documents of the given projects, in order.
    Methods block; any thread may call them.
    """

    def __init__(
        self,
        folders: Iterable[Folder],
        waiting: Callable[[frozenset[str]], list[QueuedCall]],
        *,
        only: Collection[Name] | None = None,
        budget_s: float = READ_BUDGET_S,
    ) -> None:
        """`only`: restrict it to these documents; `budget_s`: seconds that one search may read
        files.
        """
        self.folders = {folder.project: folder for folder in folders}
        self._only = only
        self._budget_s = budget_s
        self._all_waiting = waiting
        self._index: LocalIndex | None = None
        self._files_read: dict[Name, _Known] = {}
        self._lock = threading.Lock()

    def read(self, project: str, path: str) -> LocalDocument | None:
        """Return a document, or None if it does not exist. Raises FolderError if the file cannot be
        read, or is not a memory file.
        """
        if self._only is not None and (project, path) not in self._only:
            return None
        content = self.folders[project].read(path)
        waiting = [entry for entry in self._waiting() if (entry.target, entry.path) == (project, path)]
        if content is None and not waiting:
            return None
        return LocalDocument(project, path, *_apply_queued(content, waiting), len(waiting))

    def paths(self, project: str) -> list[str]:
        """Return the paths of a project's documents, including those that a queued call will
        create.
        """
        files = {found.path for found in self.folders[project].walk()}
        return sorted(files | {entry.path for entry in self._waiting() if entry.target == project})

    def search(
        self, asked: SearchQuestion, *, least: float, days: DayRange | None = None, is_all: bool = False
    ) -> tuple[list[Match], int]:
        """Return the matching chunks with a score of at least `least`, best first, and the number
        of files that could not be read, or not in time.

        `days` are those that the query names; if `is_all`, all chunks about these days match too.

        Raises OfflineError if Python's SQLite has no FTS5, and FolderError if a folder contains too
        many files.
        """
        with self._lock:
            if self._index is None:
                self._index = LocalIndex()
                self._files_read.clear()
            unread = self._refresh(self._index)
            found = []
            for (project, path), piece, score, rank in self._index.search(asked, days, is_all=is_all):
                if score < least:
                    continue
                known = self._files_read[project, path]
                found.append(Match(project, path, piece, score, rank, known.mtime, known.is_waiting))
            if is_all and days is not None and least <= OF_DAYS_SCORE:
                seen = {(match.project, match.path, match.piece) for match in found}
                for (project, path), piece in self._index.pieces():
                    known = self._files_read[project, path]
                    match = Match(project, path, piece, OF_DAYS_SCORE, 0.0, known.mtime, known.is_waiting)
                    if days.holds(*match.days) and (project, path, piece) not in seen:
                        found.append(match)
            return found, unread

    def note_ids(self, documents: Iterable[Name]) -> dict[Name, tuple[str, str]]:
        """Return the full id and the short id of each of these documents that is a note, as of the
        last search.
        """
        with self._lock:
            known = {name: each.id for name in documents if (each := self._files_read.get(name)) and each.id}
            digits = sorted(digits_of(each.id) for each in self._files_read.values() if each.id) if known else []
        return {name: (identity, local_notes.short_of(identity, digits)) for name, identity in known.items()}

    def over(self, documents: Iterable[Name]) -> set[Name]:
        """Return those of these documents that are out of date: their own front matter says that
        they are superseded or done.
        """
        with self._lock:
            return {name for name in documents if (known := self._files_read.get(name)) and known.state.is_over}

    def newer(self, documents: Iterable[Name], may_count: Callable[[str, str], bool]) -> dict[Name, list[Name]]:
        """Return, for each of the documents, the notes that supersede it directly or indirectly,
        the nearest first. Notes that supersede each other in a circle are left out.

        `may_count` takes the project and path of a superseding note, and returns False if it must
        be ignored.
        """
        with self._lock:
            stating = {name: known for name, known in self._files_read.items() if known.state.supersedes}
            if not stating:
                return {}
            newer: dict[Name, list[Name]] = {}
            by_id = {known.id: name for name, known in self._files_read.items() if known.id}
            for name, known in stating.items():
                if not may_count(*name):
                    continue
                for said in known.state.supersedes:
                    whole = [said] if said in by_id else [one for one in by_id if may_mean(said, one)]
                    for older in whole[:1] if len(whole) == 1 else ():
                        newer.setdefault(by_id[older], []).append(name)
            above = {name: _newer_notes(newer, name) for name in documents if name in newer}
            return {
                name: [one for one in found if one != name and name not in _newer_notes(newer, one)]
                for name, found in above.items()
            }

    def beginning(self, document: Name, *, like: Match) -> Match | None:
        """Return the first chunk of a document as a match, with the score and rank of the match
        `like`; None if the document has no chunk.
        """
        with self._lock:
            known, index = self._files_read.get(document), self._index
            piece = index.first(document) if index is not None and known is not None else None
            if known is None or piece is None:
                return None
            return Match(*document, piece, like.score, like.rank, known.mtime, known.is_waiting)

    def close(self) -> bool:
        """Release the memory of the index; return True if there was an index. The next search
        builds it again.
        """
        with self._lock:
            if self._index is None:
                return False
            self._index.close()
            self._index = None
            self._files_read.clear()
            return True

    def _refresh(self, index: LocalIndex) -> int:
        """Update the index from the files and the queue; return the number of files and folders that
        could not be read in time or at all.
        """
        deadline = time.monotonic() + self._budget_s
        unread = 0
        waiting: dict[Name, list[QueuedCall]] = {}
        for entry in self._waiting():
            waiting.setdefault((entry.target, entry.path), []).append(entry)
        stamps: dict[Name, tuple[Any, ...]] = {
            name: (None, *(entry.id for entry in those)) for name, those in waiting.items()
        }
        for project, folder in self.folders.items():
            mark = folder.mark
            listing = folder.look()
            unread += len(listing.unread_memory())
            for found in listing.found:
                name = (project, found.path)
                queued = (entry.id for entry in waiting.get(name, ()))
                stamps[name] = ((found.size, found.mtime_ns, mark), *queued)
        if self._only is not None:
            stamps = {name: stamp for name, stamp in stamps.items() if name in self._only}
        for name in [name for name in self._files_read if name not in stamps]:
            index.remove(name)
            del self._files_read[name]
        for name, stamp in stamps.items():
            known = self._files_read.get(name)
            if known is not None and known.stamp == stamp:
                continue
            if time.monotonic() > deadline:
                unread += 1
                continue
            try:
                content = self.folders[name[0]].read(name[1])
            except FolderError:
                unread += 1
                continue
            those = waiting.get(name, [])
            if content is None and not those:
                continue  # gone since the folder was listed
            text, mtime = _apply_queued(content, those)
            index.put(name, text)
            identity, state = "", CURRENT
            if is_note(name[1]):
                identity, state = local_notes.identity_of(*name, text), local_notes.state_of(text)
            self._files_read[name] = _Known(stamp, mtime, bool(those), identity, state)
        return unread

    def _waiting(self) -> list[QueuedCall]:
        # Other queued calls change notes by their ids, which only the daemon can apply.
        return [entry for entry in self._all_waiting(frozenset(self.folders)) if entry.tool == "memory_store"]


def _newer_notes(newer: Mapping[Name, Sequence[Name]], document: Name) -> list[Name]:
    """Return all notes that lead from a document upwards, the nearest first, at most MOST_FOLLOWED."""
    found: dict[Name, None] = {}
    ahead = [document]
    while ahead and len(found) < MOST_FOLLOWED:
        nearest = dict.fromkeys(other for one in ahead for other in newer.get(one, ()))
        ahead = [one for one in nearest if one not in found]
        found.update(dict.fromkeys(ahead))
    return list(found)


def _apply_queued(file: Content | None, waiting: list[QueuedCall]) -> tuple[str, float]:
    """Return the text of a file with the queued stores applied, and the time of the last change."""
    text = file.text if file else ""
    for entry in waiting:
        content, heading = str(entry.arguments.get("content", "")), entry.arguments.get("heading")
        heading = heading if isinstance(heading, str) else None
        if entry.arguments.get("mode") != "replace":
            text = append_text(text, content, heading=heading or None, read=line_headings)
        elif heading is None:
            text = content if content.endswith("\n") or not content else content + "\n"
        else:
            with suppress(NotFoundError):  # the daemon refuses it, and the text stays
                text = replace_section(text, content, heading=heading, read=line_headings)
    return text, waiting[-1].at if waiting else file.mtime_ns / 1e9 if file else 0.0


class LocalIndex:
    """A full-text index in memory. Only one thread at a time may use it, but it can be another one
    each time.

    Raises OfflineError, when created, if SQLite has no FTS5.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        try:
            self._db.execute("CREATE VIRTUAL TABLE piece USING fts5(header, body, tokenize = 'porter unicode61')")
        except sqlite3.OperationalError:
            self._db.close()
            raise OfflineError(
                "this device's files cannot be searched while the daemon is away: this Python's SQLite has no FTS5",
                hint="use a Python whose sqlite3 has FTS5, as nearly all have; memory_read works",
            ) from None
        # Rows that match nothing: BM25 gives no weight to a word in half of all rows, so a search
        # over three notes would find nothing.
        row = (_BACKGROUND_WORD * 3, _BACKGROUND_WORD * 40)
        self._db.executemany("INSERT INTO piece (header, body) VALUES (?, ?)", [row] * _BACKGROUND_ROWS)
        self._places: dict[int, tuple[Name, int, int, str, DaySpan | None]] = {}
        self._rows: dict[Name, list[int]] = {}

    def close(self) -> None:
        self._db.close()

    def put(self, name: Name, text: str) -> None:
        self.remove(name)
        stated = stated_day(name[1], text)
        around = stated.in_local_time if stated else year_of_path(name[1])
        header = re.sub(r"[-_/.]+", " ", name[1].removesuffix(".md"))
        if is_note(name[1]):
            words, text = _split_front_matter(text)
            header = f"{header} | {words}"
        self._db.execute("BEGIN")
        for piece in cut(text):
            days = days_of_chunk(piece.heading, piece.text, around) or (around if stated else None)
            beside = index_words(f"{header} {piece.heading} {piece.text}")
            # In the header, since the body is the text that is shown.
            dated = phrase(days) if days and days.is_day else ""
            values = (f"{header} | {piece.heading} | {beside} {dated}", piece.text)
            row = self._db.execute("INSERT INTO piece (header, body) VALUES (?, ?)", values).lastrowid
            assert row is not None
            self._places[row] = (name, piece.start_line, piece.end_line, piece.heading, days)
            self._rows.setdefault(name, []).append(row)
        self._db.execute("COMMIT")

    def first(self, name: Name) -> LocalPiece | None:
        """Return the first chunk of a document; None if it has none."""
        rows = self._rows.get(name)
        if not rows:
            return None
        _, start, end, heading, _ = self._places[rows[0]]
        ((body,),) = self._db.execute("SELECT body FROM piece WHERE rowid = ?", (rows[0],))
        return LocalPiece(start, end, body, heading)

    def remove(self, name: Name) -> None:
        for row in self._rows.pop(name, ()):
            self._db.execute("DELETE FROM piece WHERE rowid = ?", (row,))
            del self._places[row]

    def search(
        self, asked: SearchQuestion, of: DayRange | None = None, *, is_all: bool = False
    ) -> list[tuple[Name, LocalPiece, float, float]]:
        """Return the matching chunks, best first, each with its document, its score from 0 to 1,
        and its rank. `of` and `is_all`: the days of the query, as in `LocalMemory.search`.
        """
        if not asked.match:
            return []
        rank = "bm25(piece, 1.0, 1.0)"
        sql = f"SELECT rowid, body, header, -{rank} FROM piece WHERE piece MATCH ?"  # noqa: S608 - a constant
        rows = {row: (body, header, bm25) for row, body, header, bm25 in self._db.execute(sql, (asked.match,))}
        held = self._terms_by_row((*asked.terms, *asked.also))
        exact = self._exact(asked)
        here = {project.lower() for project, _ in self._rows}
        unknown = unknown_share(asked, lambda term: term.ways[0][0] in here or bool(self._matching(term.match)))
        dated = self._matching(asked.day.match) if asked.day else set()
        names_lacking = self._lacking(
            asked, dated, {row: f"{header.rpartition(' | ')[0]}\n{body}" for row, (body, header, _) in rows.items()}
        )
        lacks = {row: names_lacking(row) for row in rows}
        named = {row: gain for row, gain in exact.items() if not lacks.get(row)}
        ranks = self._ranks({row: bm25 for row, (_, _, bm25) in rows.items()}, named)
        found = []
        for row, (body, _, bm25) in rows.items():
            name, start, end, heading, days = self._places[row]
            is_named = row in exact or not asked.terms  # days alone, which stand in the header
            share = self._share(row, asked, held)
            share = asked.with_day(share) if row in dated else share
            lacking = max(unknown, lacks[row])
            if of is not None and days is not None and row not in dated and not of.holds(*map(str, days)):
                lacking = max(lacking, lacking_days(of, is_all=is_all, text=f"{heading}\n{body}"))
            score = words_score(saturate(bm25), share, is_named=is_named, lacking=lacking)
            found.append((name, LocalPiece(start, end, body, heading, days), score, ranks[row]))
        return sorted(found, key=lambda one: -one[3])

    def pieces(self) -> Iterator[tuple[Name, LocalPiece]]:
        """Yield all chunks with their documents, those that were added last first."""
        for row, body in self._db.execute("SELECT rowid, body FROM piece ORDER BY rowid DESC"):
            if row in self._places:
                name, start, end, heading, days = self._places[row]
                yield name, LocalPiece(start, end, body, heading, days)

    def _exact(self, asked: SearchQuestion) -> dict[int, float]:
        """Return what the rows with a name or quoted phrase of the query gain in rank."""
        if not asked.exact:
            return {}
        sql = "SELECT rowid, -bm25(piece, 1.0, 1.0) FROM piece WHERE piece MATCH ?"
        scores: dict[int, float] = dict(self._db.execute(sql, (asked.exact,)))
        best = max(scores.values(), default=0.0)
        return {row: asked.named * score / best if best > 0 else 0.0 for row, score in scores.items()}

    def _ranks(self, scores: Mapping[int, float], exact: Mapping[int, float]) -> dict[int, float]:
        """Return the rank of each row, as the daemon's search without a model: its keyword score
        beside the best, a share of its neighbours', and the names in it.
        """
        best = max(*scores.values(), SATURATION) if scores else SATURATION
        ranks = {}
        for row, score in scores.items():
            name = self._places[row][0]
            beside = (
                (vote, scores.get(row + step * sign, 0.0))
                for step, vote in enumerate(VOTES, 1)
                for sign in (-1, 1)
                if (place := self._places.get(row + step * sign)) and place[0] == name
            )
            ranks[row] = (score + sum(vote * other for vote, other in beside)) / best + exact.get(row, 0.0)
        return ranks

    def _lacking(
        self, asked: SearchQuestion, dated: Collection[int], texts: Mapping[int, str]
    ) -> Callable[[int], float]:
        """Return a function that returns how much of the query's names a row lacks. `dated`: the
        rows of its days; `texts`: the rows that match, with their headings.
        """
        names = NameCheck(asked)
        if not names.is_needed:
            return lambda _row: 0.0
        held = self._terms_by_row(names.terms)

        def lacking(row: int) -> float:
            around = list(self._around(row))
            near = functools.reduce(operator.or_, (held.get(one, 0) for one in around), 0)
            text = "\n".join(texts.get(one, "") for one in around)
            own = texts.get(row, "")
            return names.lacking(text, lambda place: bool(near >> place & 1), own=own, is_dated=row in dated)

        return lacking

    def _matching(self, match: str) -> set[int]:
        return (
            {row for (row,) in self._db.execute("SELECT rowid FROM piece WHERE piece MATCH ?", (match,))}
            if match
            else set()
        )

    def _around(self, row: int) -> Iterator[int]:
        """Return the rows of a chunk and of its neighbours in the same document."""
        name = self._places[row][0]
        return (row + step for step in AROUND if (place := self._places.get(row + step)) and place[0] == name)

    def _terms_by_row(self, terms: Sequence[Term]) -> Mapping[int, int]:
        """Return for each row the terms in it, one bit for each."""
        held: defaultdict[int, int] = defaultdict(int)
        for number, term in enumerate(terms):
            for row in self._matching(term.match):
                held[row] |= 1 << number
        return held

    def _share(self, row: int, asked: SearchQuestion, held: Mapping[int, int]) -> float:
        """Return the weighted share of the query's terms that occur in a row or its neighbours."""
        weights = [term.weight for term in (*asked.terms, *asked.also)]
        total = sum(weights[: len(asked.terms)]) or max(weights, default=0.0)
        near = functools.reduce(operator.or_, (held.get(one, 0) for one in self._around(row)), 0)
        here = sum(weight for number, weight in enumerate(weights) if near >> number & 1)
        return min(1.0, here / total) if total else 0.0


def cut(text: str) -> Iterator[LocalPiece]:
    """Split a text into chunks, in order. A chunk begins at a heading, or at a paragraph or list
    item once the chunk is full.
    """
    lines = lines_of(text)
    at = {heading.line: heading for heading in line_headings(text)}
    stack: list[Heading] = []
    path, first, size = "", 0, 0
    has_text = False  # a heading alone would be found without saying anything
    for number, line in enumerate(lines):
        heading = at.get(number)
        is_start = not line.strip() or is_item(line)
        if (heading and has_text) or (size >= PIECE_CHARS and is_start) or size >= MAX_PIECE_CHARS:
            yield from _pieces(lines, first, number, path)
            first, size, has_text = number, 0, False
        if heading:
            stack = [*(above for above in stack if above.level < heading.level), heading]
            path = " > ".join(above.title for above in stack if above.title)
        elif line.strip():
            has_text = True
        size += len(line) + 1
    yield from _pieces(lines, first, len(lines), path)


def _pieces(lines: list[str], first: int, end: int, heading: str) -> Iterator[LocalPiece]:
    while first < end and not lines[first].strip():
        first += 1
    while end > first and not lines[end - 1].strip():
        end -= 1
    body = "\n".join(lines[first:end])
    # One line may be a whole minified file: split it.
    for offset in range(0, len(body), MAX_PIECE_CHARS * 2):
        yield LocalPiece(first + 1, end, body[offset : offset + MAX_PIECE_CHARS * 2], heading)


def _split_front_matter(text: str) -> tuple[str, str]:
    """Return the searched words of a note's front matter, and the text with the front matter
    replaced by as many empty lines.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return "", text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return "", text
    # By line matching instead of a YAML parser, since the first search reads every note.
    words, is_searched = [], False
    for line in lines[1:end]:
        if field := _FIELD.match(line):
            is_searched = field[1] in _SEARCHED
        if is_searched:
            words.append(line[field.end() :] if field else line)
    return " ".join(words), "\n" * (end + 1) + "\n".join(lines[end + 1 :])
