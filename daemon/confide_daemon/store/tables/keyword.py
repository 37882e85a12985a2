"""The keyword leg as SQL: an FTS5 table with one row for each piece, its row id the piece's; the words that it holds, and
which documents a search may see.

What is written beside a text so that more of it is found is `confide_memory.tools.words`. Stems are FTS5's own: lower case, without
accents, Porter's. Filters act inside the query of either leg, never after a limit.
"""

# ruff: noqa: S608 - only constants of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
import re
import threading
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import apsw
import numpy as np

from confide_daemon.store.database import AMONG, KEYWORDS, Database, Rows, Table
from confide_daemon.store.rows import Filter
from confide_memory.classes import UNTRUSTED
from confide_memory.globs import is_glob, normal
from confide_memory.mentions import folded
from confide_memory.tools.words import index_words

# A piece's header (path, headings, date) counts as much as its text.
HEADER_WEIGHT = 1.0
# A question of more rows than this is not scored in full, in a space that is not small: a row costs about 1 us to score. To find out costs
# too: at 100,000 pieces half of all questions lose by it what the slowest gain.
MOST_SCORED = 8000
SMALL = 150_000
# Words are counted among what a search may see alone, where that has no more pieces than this: as if nothing else were in the space. FTS5
# counts them over all of it, and to count otherwise costs about 5 us for each row that matches.
FEW = 4000
# Counts of words that are kept for the searches that follow; a question has some ten.
MOST_COUNTS_KEPT = 2048
# Of BM25, as FTS5 has them (fts5_aux.c).
K1, B, LEAST_RARITY = 1.2, 0.75, 1e-6
# Rows that match nothing, so that words are rare in a small space too, and their length (0001_first.sql).
BACKGROUND, BACKGROUND_WORDS = 256, 43
# Terms that are looked for two by two at most: each makes the query longer by all that follow.
PAIRED = 6


class KeywordTable(Table):
    def add(self, piece: int, path: str, heading: str, text: str, words: str = "") -> None:
        """The row of a new piece; `words`: what else its document is found by."""
        values = (piece, piece_header(path, heading, words), _body(path, heading, text, words))
        self._rows("INSERT INTO keyword (rowid, header, body) VALUES (?, ?, ?)", values)

    def update(self, piece: int, path: str, heading: str, text: str, words: str = "") -> None:
        """The row of a piece whose headings have changed, or that was written when rows held something else."""
        values = (piece_header(path, heading, words), _body(path, heading, text, words), piece)
        self._rows("UPDATE keyword SET header = ?, body = ? WHERE rowid = ?", values)

    def remove(self, pieces: Sequence[int]) -> None:
        self._rows(f"DELETE FROM keyword WHERE rowid {AMONG}", (json.dumps(list(pieces)),))

    def candidates(
        self, match: str, allowed: Filter, *, limit: int, of: Filter | None = None, is_limited: bool = False
    ) -> list[tuple[int, float]]:
        """(piece, BM25 score, higher is better), best first. `match` is a query as `search.query` builds it.

        Args:
            of: among which pieces words are counted, if those are few (`FEW`): what is allowed is a part of them. None: the allowed ones.
            is_limited: nothing of other rows than those is in the scores, however many they are.
        """
        if not match or KEYWORDS in self._database.damage.parts:
            return []
        documents = allowed_documents(self._database, allowed)
        asked = allowed if of is None else of
        with self._database.leg(KEYWORDS):
            if self._are_counted_alone(asked):
                return self._best_by_themselves(match, asked, None if asked == allowed else documents, limit)
            if is_limited:
                return self._best_by_themselves(match, allowed, None, limit)
            return self._candidates(match, documents, limit)

    def holding(
        self, matches: Sequence[str], allowed: Filter, *, most: int, is_limited: bool = False
    ) -> tuple[tuple[int, ...], int]:
        """How many of the allowed pieces match each of the queries, `most` at most, and how many pieces there are.

        Of more than `FEW` pieces all of the space are counted, unless `is_limited`: a list of them costs more than a search.
        """
        if KEYWORDS in self._database.damage.parts:
            return (0,) * len(matches), 0
        is_alone = self._are_counted_alone(allowed)
        documents = allowed_documents(self._database, allowed) if is_alone or is_limited else None
        known = self._counts_of(allowed) if is_alone else {}
        joined, which, among = "", "", []
        if documents is not None and any(match not in known for match in matches):
            among = [json.dumps(list(documents))]
            # From the rows that match to their documents: a list of all allowed pieces would be made anew for each query.
            joined, which = "CROSS JOIN chunk c ON c.id = keyword.rowid", f"AND c.document {AMONG}"
        counted = f"SELECT count(*) FROM (SELECT 1 FROM keyword {joined} WHERE keyword MATCH ? {which} LIMIT {most})"
        with self._database.leg(KEYWORDS):
            having = (
                min(known[match], most) if match in known else int(self._rows(counted, (match, *among))[0][0])
                for match in matches
            )
            return tuple(having), self._pieces_of(allowed if documents is not None else Filter())

    def _pieces_of(self, allowed: Filter) -> int:
        """How many pieces the allowed documents have; counted once in a state of the database."""

        def count() -> int:
            documents = allowed_documents(self._database, allowed)
            some = "" if documents is None else f" WHERE document {AMONG}"
            values = [] if documents is None else [json.dumps(list(documents))]
            return int(self._rows(f"SELECT count(*) FROM chunk{some}", values)[0][0])

        return self._database.remembered.get(("pieces", allowed), count)

    def _are_counted_alone(self, allowed: Filter) -> bool:
        """Whether words are counted among the allowed pieces alone: these are few, and not all there are."""
        return allowed_documents(self._database, allowed) is not None and self._pieces_of(allowed) <= FEW

    def _counts_of(self, allowed: Filter) -> dict[str, int]:
        """How many of the allowed pieces hold each phrase that was looked for in this state of the database."""
        counts: dict[str, int] = self._database.remembered.get(("having", allowed), dict)
        if len(counts) > MOST_COUNTS_KEPT:
            counts.clear()
        return counts

    def _best_by_themselves(
        self, match: str, counted: Filter, documents: Sequence[int] | None, limit: int
    ) -> list[tuple[int, float]]:
        """BM25 as if there were no other rows than those of `counted`; of many that match the newest. `documents`: some of them; None: all.

        FTS5's own takes its statistics from all rows: what stands in another project would change an answer in this one. And who may see a
        part of a space could ask, by the score of a word in a text of his own, whether the rest has that word.
        """
        self._database.connection.register_fts5_function("term_counts", _term_counts)  # type: ignore[arg-type]  # it takes no further arguments
        own = allowed_documents(self._database, counted)
        among = [] if own is None else [json.dumps(list(own))]
        which = "" if own is None else f"AND +rowid IN (SELECT id FROM chunk WHERE document {AMONG})"
        sql = (
            f"SELECT rowid, term_counts(keyword) FROM keyword WHERE keyword MATCH ? {which} ORDER BY rowid DESC LIMIT ?"
        )
        rows = list(self._rows(sql, (match, *among, MOST_SCORED)))
        phrases = match.split(" OR ")
        if not rows:
            self._counts_of(counted).update(dict.fromkeys(phrases, 0))
            return []
        pieces = self._pieces_of(counted)
        total = pieces + BACKGROUND
        counts = np.array([np.frombuffer(row[1], dtype=np.uint32) for row in rows], dtype=np.float64)
        lengths, often = counts[:, :1], counts[:, 1:]
        having = np.count_nonzero(often, axis=0)
        if len(rows) < MOST_SCORED:
            self._counts_of(counted).update(zip(phrases, having.tolist(), strict=True))
        rarity = np.maximum(np.log((total - having + 0.5) / (having + 0.5)), LEAST_RARITY)
        usual = (pieces * lengths.mean() + BACKGROUND * BACKGROUND_WORDS) / total
        fullness = K1 * (1 - B + B * lengths / usual)
        scores = (rarity * often * (K1 + 1) / (often + fullness)).sum(axis=1)
        found = [(int(row[0]), float(score)) for row, score in zip(rows, scores, strict=True)]
        if documents is not None:
            some = f"SELECT id FROM chunk WHERE document {AMONG}"
            ids = {row[0] for row in self._rows(some, (json.dumps(list(documents)),))}
            found = [item for item in found if item[0] in ids]
        return sorted(found, key=lambda item: (-item[1], item[0]))[:limit]

    def _candidates(self, match: str, documents: Sequence[int] | None, limit: int) -> list[tuple[int, float]]:
        # To count what matches is to go through it once more. Ids are not used again, so there are no more pieces than the newest says.
        is_small = (self._rows("SELECT max(id) FROM chunk")[0][0] or 0) <= SMALL
        if documents is not None and (is_small or self._are_few(documents)):
            some = f"SELECT id FROM chunk WHERE document {AMONG}"
            return self._best(match, some, [documents], limit)
        if is_small:
            return self._best(match, None, [], limit)
        worth = self._worth_scoring(match, limit)
        if documents is None and worth == [match]:
            return self._best(match, None, [], limit)
        found: dict[int, float] = {}
        # Each by itself, so that the many rows of one do not push out those of the one before.
        for some in dict.fromkeys([*worth, match]):
            found |= dict(self._best_of_newest(match, some, documents, limit))
            if len(found) >= limit and some == worth[-1]:
                break
        return sorted(found.items(), key=lambda item: (-item[1], item[0]))[:limit]

    def _are_few(self, documents: Sequence[int]) -> bool:
        sql = f"SELECT count(*) FROM (SELECT 1 FROM chunk WHERE document {AMONG} LIMIT ?)"
        return int(self._rows(sql, (json.dumps(list(documents)), MOST_SCORED + 1))[0][0]) <= MOST_SCORED

    def _best_of_newest(
        self, match: str, worth: str, documents: Sequence[int] | None, limit: int
    ) -> list[tuple[int, float]]:
        """Of those rows that match `worth` the newest MOST_SCORED."""
        if documents is None:
            some = "SELECT rowid FROM keyword WHERE keyword MATCH ? ORDER BY rowid DESC LIMIT ?"
            return self._best(match, some, [worth, MOST_SCORED], limit)
        some = f"""SELECT keyword.rowid FROM keyword CROSS JOIN chunk c ON c.id = keyword.rowid
                  WHERE keyword MATCH ? AND c.document {AMONG} ORDER BY keyword.rowid DESC LIMIT ?"""
        return self._best(match, some, [worth, documents, MOST_SCORED], limit)

    def _best(self, match: str, some: str | None, values: Sequence[Any], limit: int) -> list[tuple[int, float]]:
        """The best by BM25, of some rows; the plus keeps SQLite from asking FTS5 for each of them by itself."""
        rank = f"bm25(keyword, {HEADER_WEIGHT}, 1.0)"
        which = "" if some is None else f"AND +rowid IN ({some})"
        # Under a name, since SQLite works out twice what is written twice.
        sql = f"SELECT rowid, {rank} AS score FROM keyword WHERE keyword MATCH ? {which} ORDER BY score LIMIT ?"
        plain = [value if isinstance(value, str | int) else json.dumps(list(value)) for value in values]
        return [(piece, -score) for piece, score in self._rows(sql, (match, *plain, limit))]

    def _worth_scoring(self, match: str, limit: int) -> list[str]:
        """What a row has to match so that it may be among the best: the rare terms, as in MaxScore (Turtle and Flood, 1995).

        A row that has only words that are everywhere cannot get far; where the rare terms have few rows, those with two of the others join
        them. On 100,000 pieces of documentation 99.6 % of the first ten are those of a full scoring, in four fifths of the time at the 95th
        percentile. Just `match` itself when all of its rows are few.
        """
        counted = "SELECT count(*) FROM keyword WHERE keyword MATCH ?"
        if int(self._rows(counted, (match,))[0][0]) <= MOST_SCORED:
            return [match]
        rarity = sorted((int(self._rows(counted, (term,))[0][0]), term) for term in match.split(" OR "))
        rare, total = [], 0
        while rarity and total + rarity[0][0] <= MOST_SCORED:
            count, term = rarity.pop(0)
            rare.append(term)
            total += count
        worth = [" OR ".join(rare)] if total else []
        others = [term for _, term in rarity][:PAIRED]
        if total < 4 * limit and len(others) > 1:
            pairs = [f"({term} AND ({' OR '.join(others[at:])}))" for at, term in enumerate(others[:-1], 1)]
            worth.append(" OR ".join(pairs))
        return worth or [match]


def _term_counts(api: apsw.FTS5ExtensionApi) -> bytes:
    """What BM25 takes of a row: how many words it has, and how often each phrase of the query stands in it."""
    often = [sum(map(len, api.phrase_locations(phrase))) for phrase in range(api.phrase_count)]
    return array("I", [api.column_size(), *often]).tobytes()


def piece_header(path: str, heading: str, words: str = "") -> str:
    """What is searched beside the text, in a column of its own: file name with its date, headings, and the words of a note's fields.

    It stays out of the embedded text, where it would hurt.
    """
    stem = re.sub(r"[-_/.]+", " ", path.removesuffix(".md"))
    return f"{stem} | {heading} | {words}" if words else f"{stem} | {heading}"


def _body(path: str, heading: str, text: str, words: str) -> str:
    """The text with what else its words and those of the header are written like."""
    # Of the header most is plain, and stands in its own column.
    beside = " ".join(part for part in (path.removesuffix(".md"), words) if not part.isascii())
    return f"{text}\n{index_words(f'{heading} {text} {beside}'.rstrip())}".rstrip()


_here = threading.local()


def stems(text: str) -> list[str]:
    """The stems of the text's words, in order."""
    tokenize = getattr(_here, "tokenize", None)
    if tokenize is None:
        # A tokenizer belongs to its connection, and is used by one thread at a time.
        _here.connection = apsw.Connection(":memory:")
        tokenize = _here.tokenize = _here.connection.fts5_tokenizer("porter", ["unicode61"])
    found: list[str] = tokenize(
        text.encode(errors="replace"), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return found


def line_of(words: Sequence[str]) -> str:
    """The stems of the words between blanks, so that a run of words is in a text where its line is in the text's."""
    return f" {' '.join(stems(' '.join(words)))} "


def allowed_documents(database: Database, allowed: Filter) -> Sequence[int] | None:
    """The ids of the documents that pass, or None when all do (the fast way, and the usual one in a space of one project)."""
    return database.remembered.get(allowed, lambda: _allowed_documents(database.rows, allowed))


def _allowed_documents(rows: Rows, allowed: Filter) -> Sequence[int] | None:
    allowed = _simplest(rows, allowed)
    if allowed == Filter():
        return None
    where, values = condition_of(rows, allowed)
    sql = f"SELECT d.id FROM document d JOIN project p ON p.id = d.project WHERE NOT d.deleted AND {where}"
    # Some of these are remembered: as a list of integers they would take four times the memory, and each search a copy.
    found = array("q", (row[0] for row in rows(sql, values)))
    total = rows("SELECT count(*) FROM document WHERE NOT deleted", ())[0][0]
    return None if len(found) == total else found


def _simplest(rows: Rows, allowed: Filter) -> Filter:
    """The filter without what changes nothing: where no task has notes, none have to be left out."""
    if allowed.without_tasks and not rows("SELECT 1 FROM note WHERE task IS NOT NULL LIMIT 1", ()):
        return replace(allowed, without_tasks=False, task=None, task_projects=None)
    return allowed


def condition_of(rows: Rows, allowed: Filter) -> tuple[str, list[Any]]:
    """The filter as a condition on documents `d` and their projects `p`, with its values."""
    conditions: list[str] = ["TRUE"]
    values: list[Any] = []
    for column, names in (("p.name", allowed.projects), ("d.source", allowed.sources)):
        if names is not None:
            conditions.append(f"{column} {AMONG}")
            values.append(json.dumps(sorted(names)))
    if allowed.path is not None:
        path = normal(allowed.path)
        if is_glob(path):
            conditions.append("path_matches(d.path, ?)")
            values.append(path)
        elif path:
            # "/" is followed by "0": everything that begins with "path/".
            conditions.append("(d.path = ? OR (d.path > ? AND d.path < ?))")
            values += [path, path + "/", path + "0"]
    for condition, day in (("d.day >= ?", allowed.since), ("d.day <= ?", allowed.until)):
        if day is not None:
            conditions.append(condition)
            values.append(day)
    if allowed.classes is not None:
        some = " OR d.class = 'untrusted'" if UNTRUSTED in allowed.classes else ""
        conditions.append(f"(d.made {AMONG}{some})")
        values.append(json.dumps(sorted(allowed.classes)))
    for condition, value in _of_notes(rows, allowed):
        conditions.append(condition)
        values += value
    return " AND ".join(conditions), values


def _of_notes(rows: Rows, allowed: Filter) -> list[tuple[str, list[Any]]]:
    """The conditions on what notes say of themselves."""
    found: list[tuple[str, list[Any]]] = [
        (
            "(d.id IN (SELECT document FROM note_tag WHERE tag = ?) OR d.id IN (SELECT document FROM document_tag WHERE tag = ?))",
            [folded(tag)] * 2,
        )
        for tag in sorted(allowed.tags)
    ]
    if allowed.types is not None:
        found.append(_one_of(rows, "type", allowed.types))
    if allowed.category is not None:
        found.append(_one_of(rows, "category", [allowed.category]))
    if allowed.entity is not None:
        found.append(("d.id IN (SELECT document FROM note WHERE entity_key = ?)", [folded(allowed.entity)]))
    if allowed.without_tasks:
        others, values = "TRUE", []
        if allowed.task is not None:
            others, values = "NOT n.task = ?", [allowed.task]
            if allowed.task_projects is not None:
                others = f"NOT (n.task = ? AND t.name {AMONG})"
                values.append(json.dumps(sorted(allowed.task_projects)))
        sql = f"""d.id NOT IN (SELECT n.document FROM note n JOIN project t ON t.id = n.project
                  WHERE n.task IS NOT NULL AND {others})"""
        found.append((sql, values))
    return found


def spellings(rows: Rows, column: str, words: Iterable[str]) -> list[str]:
    """What to compare a column of notes with, NOCASE, for one of the words; that folds ASCII alone, so others are looked up as written."""
    wanted = {folded(word) for word in words}
    if not all(word.isascii() for word in wanted):
        written = rows(f"SELECT DISTINCT {column} FROM note WHERE {column} IS NOT NULL", ())
        wanted |= {row[0] for row in written if folded(row[0]) in wanted}
    return sorted(wanted)


def _one_of(rows: Rows, column: str, words: Iterable[str]) -> tuple[str, list[Any]]:
    """The condition that a note says one of the words."""
    sql = f"d.id IN (SELECT document FROM note WHERE {column} COLLATE NOCASE {AMONG})"
    return sql, [json.dumps(spellings(rows, column, words))]
