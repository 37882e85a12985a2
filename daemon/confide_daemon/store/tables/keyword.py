"""The keyword leg as SQL: an FTS5 table with one row for each piece, its row id the piece's."""

# ruff: noqa: S608 - only constants of our own are put into SQL; every value is a parameter

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from confide_daemon.store.database import AMONG, KEYWORDS, Table
from confide_daemon.store.rows import Filter
from confide_daemon.store.tables.filters import allowed_documents
from confide_daemon.store.tokenize import index_words

# A piece's header (path, headings, date) counts as much as its text.
HEADER_WEIGHT = 1.0
# A question of more rows than this is not scored in full, in a space that is not small: a row costs about 1 us to score. To find out costs
# too: at 100,000 pieces half of all questions lose by it what the slowest gain.
MOST_SCORED = 8000
SMALL = 150_000
# Terms that are looked for two by two at most: each makes the query longer by all that follow.
PAIRED = 6


class KeywordTable(Table):
    def add(self, piece: int, path: str, heading: str, text: str, words: str = "") -> None:
        """The row of a new piece; `words`: what else its document is found by."""
        values = (piece, piece_header(path, heading, words), _body(heading, text))
        self._rows("INSERT INTO keyword (rowid, header, body) VALUES (?, ?, ?)", values)

    def update(self, piece: int, path: str, heading: str, text: str, words: str = "") -> None:
        """The row of a piece whose headings have changed, or that was written when rows held something else."""
        values = (piece_header(path, heading, words), _body(heading, text), piece)
        self._rows("UPDATE keyword SET header = ?, body = ? WHERE rowid = ?", values)

    def remove(self, pieces: Sequence[int]) -> None:
        self._rows(f"DELETE FROM keyword WHERE rowid {AMONG}", (json.dumps(list(pieces)),))

    def candidates(self, match: str, allowed: Filter, *, limit: int) -> list[tuple[int, float]]:
        """(piece, BM25 score, higher is better), best first. `match` is a query as `search.query` builds it."""
        if not match or KEYWORDS in self._database.damage.parts:
            return []
        documents = allowed_documents(self._database, allowed)
        with self._database.leg(KEYWORDS):
            return self._candidates(match, documents, limit)

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


def piece_header(path: str, heading: str, words: str = "") -> str:
    """What is searched beside the text, in a column of its own: file name with its date, headings, and the words of a note's fields.

    It stays out of the embedded text, where it would hurt (retrieval.md 1.3).
    """
    stem = re.sub(r"[-_/.]+", " ", path.removesuffix(".md"))
    return f"{stem} | {heading} | {words}" if words else f"{stem} | {heading}"


def _body(heading: str, text: str) -> str:
    return f"{text}\n{index_words(f'{heading} {text}')}".rstrip()
