"""Keyword search in SQL: an FTS5 table with one row for each chunk (the row id is the chunk's id),
the words in it, and the documents that a search may see.

`confide_memory.tools.words` produces additional words that are indexed with a text. FTS5 reduces
words to stems: lower case, without accents, by Porter's algorithm. Filters are part of the query of
keyword and vector search, and never applied after a limit.
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
from confide_memory.mentions import fold_name
from confide_memory.tools.words import index_words

# A chunk's header (path, headings, date) counts as much as its text.
HEADER_WEIGHT = 1.0
# A query that matches more rows than this is not scored in full, in a space that is not small: a
# row costs about 1 us to score. Checking costs time too: at 100,000 chunks half of all queries lose
# what the slowest gain.
MOST_SCORED = 8000
SMALL = 150_000
# If a search may see at most so many chunks, words are counted among these only, as if the space
# had no others. FTS5 counts over the whole space; counting otherwise costs about 5 us for each
# matching row.
FEW = 4000
# Of a larger part of a space, so many rows of a term are looked at to count those of the part.
SCANNED = 4000
# Word counts that are cached for later searches; a query has about ten.
MOST_COUNTS_KEPT = 2048
# Constants of BM25, as in FTS5 (fts5_aux.c).
K1, B, LEAST_RARITY = 1.2, 0.75, 1e-6
# Background rows that match nothing, so that words are rare in a small space too, and their length
# (0001_first.sql).
BACKGROUND, BACKGROUND_WORDS = 256, 43
# Terms that are combined in pairs, at most: each lengthens the query by all that follow.
PAIRED = 6


class KeywordTable(Table):
    def add(self, piece: int, path: str, heading: str, text: str, words: str = "") -> None:
        """Add the keyword row of a new chunk. `words`: additional words by which the chunk is
        found.
        """
        values = (piece, piece_header(path, heading, words), _body(path, heading, text, words))
        self._rows("INSERT INTO keyword (rowid, header, body) VALUES (?, ?, ?)", values)

    def update(self, piece: int, path: str, heading: str, text: str, words: str = "") -> None:
        """Replace the keyword row of a chunk whose headings have changed, or whose row has an older
        format.
        """
        values = (piece_header(path, heading, words), _body(path, heading, text, words), piece)
        self._rows("UPDATE keyword SET header = ?, body = ? WHERE rowid = ?", values)

    def remove(self, pieces: Sequence[int]) -> None:
        self._rows(f"DELETE FROM keyword WHERE rowid {AMONG}", (json.dumps(list(pieces)),))

    def candidates(
        self, match: str, allowed: Filter, *, limit: int, of: Filter | None = None, is_limited: bool = False
    ) -> list[tuple[int, float]]:
        """Return (chunk, BM25 score), best first; a higher score is better. `match` is an FTS5
        query made by `search.query`.

        Args:
            of: compute word frequencies over the chunks of this filter, if they are few (`FEW`); it
                must include all allowed chunks. None: over the allowed chunks.
            is_limited: True if chunks outside the filter must never influence the scores.
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
        """For each query, count the allowed chunks that match it, up to `most`. Also return the
        number of all allowed chunks.

        Chunks of other projects never count. If more than `FEW` chunks are allowed, only the first
        `SCANNED` matches of a query are examined, unless `is_limited` is True: a query with more
        matches is common anyway.
        """
        if KEYWORDS in self._database.damage.parts:
            return (0,) * len(matches), 0
        is_alone = self._are_counted_alone(allowed)
        documents = allowed_documents(self._database, allowed)
        if documents is not None and not is_alone and not is_limited:
            permitted = frozenset(documents)
            with self._database.leg(KEYWORDS):
                having = tuple(self._holding_among(match, permitted, most) for match in matches)
                return having, self._pieces_of(allowed)
        known = self._counts_of(allowed) if is_alone else {}
        joined, which, among = "", "", []
        if documents is not None and any(match not in known for match in matches):
            among = [json.dumps(list(documents))]
            # Join from the matching rows to their documents: SQLite would build a list of all
            # allowed chunks again for each query.
            joined, which = "CROSS JOIN chunk c ON c.id = keyword.rowid", f"AND c.document {AMONG}"
        counted = f"SELECT count(*) FROM (SELECT 1 FROM keyword {joined} WHERE keyword MATCH ? {which} LIMIT {most})"
        with self._database.leg(KEYWORDS):
            counts = (
                min(known[match], most) if match in known else int(self._rows(counted, (match, *among))[0][0])
                for match in matches
            )
            return tuple(counts), self._pieces_of(allowed)

    def _holding_among(self, match: str, documents: frozenset[int], most: int) -> int:
        """Count the chunks of these documents that match, up to `most`, by rows read one after the
        other: SQLite would list all documents again for each query.
        """
        sql = """SELECT c.document FROM keyword CROSS JOIN chunk c ON c.id = keyword.rowid
                 WHERE keyword MATCH ? LIMIT ?"""
        for limit in (2 * most, SCANNED):
            rows = list(self._rows(sql, (match, limit)))
            found = sum(document in documents for (document,) in rows)
            if found >= most or len(rows) < limit:
                break
        return min(found, most)

    def _pieces_of(self, allowed: Filter) -> int:
        """Count the chunks of the allowed documents; cached until the database changes."""

        def count() -> int:
            documents = allowed_documents(self._database, allowed)
            some = "" if documents is None else f" WHERE document {AMONG}"
            values = [] if documents is None else [json.dumps(list(documents))]
            return int(self._rows(f"SELECT count(*) FROM chunk{some}", values)[0][0])

        return self._database.result_cache.get(("pieces", allowed), count)

    def _are_counted_alone(self, allowed: Filter) -> bool:
        """Return True if words are counted among the allowed chunks only: they are few, and not the
        whole space.
        """
        return allowed_documents(self._database, allowed) is not None and self._pieces_of(allowed) <= FEW

    def _counts_of(self, allowed: Filter) -> dict[str, int]:
        """Return the cached numbers of allowed chunks that contain each phrase."""
        counts: dict[str, int] = self._database.result_cache.get(("having", allowed), dict)
        if len(counts) > MOST_COUNTS_KEPT:
            counts.clear()
        return counts

    def _best_by_themselves(
        self, match: str, counted: Filter, documents: Sequence[int] | None, limit: int
    ) -> list[tuple[int, float]]:
        """Return the best rows by BM25 as if the space had only the rows of `counted`; of many
        matches only the newest are scored. `documents`: return rows of these only; None: all.

        FTS5's own statistics cover all rows, so the content of another project would change a
        result here. A caller who sees part of a space could also find out from the score of a word
        in a text of his own whether the rest contains that word.
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
        # Counting the matches costs another pass. Ids are not reused, so the newest id bounds the
        # number of chunks.
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
        # Separate queries, so that many rows of a later one do not displace those of an earlier
        # one.
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
        """Return the best of the newest MOST_SCORED rows that match `worth`."""
        if documents is None:
            some = "SELECT rowid FROM keyword WHERE keyword MATCH ? ORDER BY rowid DESC LIMIT ?"
            return self._best(match, some, [worth, MOST_SCORED], limit)
        some = f"""SELECT keyword.rowid FROM keyword CROSS JOIN chunk c ON c.id = keyword.rowid
                  WHERE keyword MATCH ? AND c.document {AMONG} ORDER BY keyword.rowid DESC LIMIT ?"""
        return self._best(match, some, [worth, documents, MOST_SCORED], limit)

    def _best(self, match: str, some: str | None, values: Sequence[Any], limit: int) -> list[tuple[int, float]]:
        """Return the best rows by BM25, within `some` rows; the plus keeps SQLite from querying
        FTS5 for each row.
        """
        rank = f"bm25(keyword, {HEADER_WEIGHT}, 1.0)"
        which = "" if some is None else f"AND +rowid IN ({some})"
        # Named, since SQLite would compute the expression twice.
        sql = f"SELECT rowid, {rank} AS score FROM keyword WHERE keyword MATCH ? {which} ORDER BY score LIMIT ?"
        plain = [value if isinstance(value, str | int) else json.dumps(list(value)) for value in values]
        return [(piece, -score) for piece, score in self._rows(sql, (match, *plain, limit))]

    def _worth_scoring(self, match: str, limit: int) -> list[str]:
        """Return the queries that a row must match to be among the best: the rare terms, as in
        MaxScore (Turtle and Flood, 1995).

        A row with only frequent words cannot rank high. If the rare terms have few rows, rows with
        two of the frequent terms are added. On 100,000 chunks of documentation 99.6 % of the first
        ten are those of a full scoring, in four fifths of the time at the 95th percentile. Return
        just `match` if it has few rows.
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
    """Return BM25's input from a row: its number of words, and the frequency of each phrase of the
    query.
    """
    often = [sum(map(len, api.phrase_locations(phrase))) for phrase in range(api.phrase_count)]
    return array("I", [api.column_size(), *often]).tobytes()


def piece_header(path: str, heading: str, words: str = "") -> str:
    """Return the header of a chunk for keyword search: the file's name with its date, the headings,
    and the words of a note's fields.

    The header is not part of the embedded text, since it would worsen the vectors.
    """
    stem = re.sub(r"[-_/.]+", " ", path.removesuffix(".md"))
    return f"{stem} | {heading} | {words}" if words else f"{stem} | {heading}"


def _body(path: str, heading: str, text: str, words: str) -> str:
    """Return the text with other spellings of its words and of the header's."""
    # Most of the header is ASCII, and is in its own column.
    beside = " ".join(part for part in (path.removesuffix(".md"), words) if not part.isascii())
    return f"{text}\n{index_words(f'{heading} {text} {beside}'.rstrip())}".rstrip()


_here = threading.local()


def stems(text: str) -> list[str]:
    """Return the stems of the words in a text, in order."""
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
    """Return the stems of the words as one line with a blank at both ends. If this line is part of
    another text's line, the words occur there in sequence.
    """
    return f" {' '.join(stems(' '.join(words)))} "


def allowed_documents(database: Database, allowed: Filter) -> Sequence[int] | None:
    """Return the ids of the documents that match the filter, or None if all do, which is the usual
    and fast case in a space with one project.
    """
    return database.result_cache.get(allowed, lambda: _allowed_documents(database.rows, allowed))


def _allowed_documents(rows: Rows, allowed: Filter) -> Sequence[int] | None:
    allowed = _simplest(rows, allowed)
    if allowed == Filter():
        return None
    where, values = condition_of(rows, allowed)
    sql = f"SELECT d.id FROM document d JOIN project p ON p.id = d.project WHERE NOT d.deleted AND {where}"
    # An array, since results are cached: a list of integers would take four times the memory, and
    # each search would copy it.
    found = array("q", (row[0] for row in rows(sql, values)))
    total = rows("SELECT count(*) FROM document WHERE NOT deleted", ())[0][0]
    return None if len(found) == total else found


def _simplest(rows: Rows, allowed: Filter) -> Filter:
    """Return the filter without conditions that have no effect: if no task has notes, none need to
    be left out.
    """
    if allowed.without_tasks and not rows("SELECT 1 FROM note WHERE task IS NOT NULL LIMIT 1", ()):
        return replace(allowed, without_tasks=False, task=None, task_projects=None)
    return allowed


def condition_of(rows: Rows, allowed: Filter) -> tuple[str, list[Any]]:
    """Return the filter as an SQL condition on documents `d` and projects `p`, and its parameters."""
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
    # Of a document with chunks of other days, `taken_out` removes those that are not asked for.
    own = "coalesce(date(d.moment + ?, 'unixepoch'), {}d.day)"
    if allowed.since is not None:
        conditions.append(f"max({own.format('d.last_day, ')}, coalesce(substr(d.piece_days, 12), '')) >= ?")
        values += [allowed.zone_s, allowed.since]
    if allowed.until is not None:
        conditions.append(f"min({own.format('')}, coalesce(substr(d.piece_days, 1, 10), '9999')) <= ?")
        values += [allowed.zone_s, allowed.until]
    if allowed.classes is not None:
        some = " OR d.class = 'untrusted'" if UNTRUSTED in allowed.classes else ""
        conditions.append(f"(d.made {AMONG}{some})")
        values.append(json.dumps(sorted(allowed.classes)))
    for condition, value in _of_notes(rows, allowed):
        conditions.append(condition)
        values += value
    return " AND ".join(conditions), values


def _of_notes(rows: Rows, allowed: Filter) -> list[tuple[str, list[Any]]]:
    """Return the conditions on fields of notes."""
    found: list[tuple[str, list[Any]]] = [
        (
            "(d.id IN (SELECT document FROM note_tag WHERE tag = ?) OR d.id IN (SELECT document FROM document_tag WHERE tag = ?))",
            [fold_name(tag)] * 2,
        )
        for tag in sorted(allowed.tags)
    ]
    if allowed.types is not None:
        found.append(_one_of(rows, "type", allowed.types))
    if allowed.category is not None:
        found.append(_one_of(rows, "category", [allowed.category]))
    if allowed.entity is not None:
        found.append(("d.id IN (SELECT document FROM note WHERE entity_key = ?)", [fold_name(allowed.entity)]))
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
    """Return the values to compare a column of notes with, to match these words without regard to
    case.

    SQLite's NOCASE ignores case in ASCII only, so words with other letters are looked up as the
    notes spell them.
    """
    wanted = {fold_name(word) for word in words}
    if not all(word.isascii() for word in wanted):
        written = rows(f"SELECT DISTINCT {column} FROM note WHERE {column} IS NOT NULL", ())
        wanted |= {row[0] for row in written if fold_name(row[0]) in wanted}
    return sorted(wanted)


def _one_of(rows: Rows, column: str, words: Iterable[str]) -> tuple[str, list[Any]]:
    """Return the condition that a note's field has one of the words."""
    sql = f"d.id IN (SELECT document FROM note WHERE {column} COLLATE NOCASE {AMONG})"
    return sql, [json.dumps(spellings(rows, column, words))]
