"""Trust classes of documents and revisions, marks that recognize untrusted text, and texts that a
user has trusted, as SQL.
"""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from confide_daemon.store.database import AMONG, Table
from confide_daemon.store.rows import TextOrigin
from confide_memory.classes import UNTRUSTED

NOBODYS: Final = TextOrigin()
"""Provenance of a text whose author is unknown."""
Lines = tuple[int, int]
"""First and last line, counted from 1."""


def lines_as_json(doubted: Iterable[Lines]) -> str | None:
    """Encode line ranges for a row."""
    found = [list(one) for one in doubted]
    return json.dumps(found, separators=(",", ":")) if found else None


def lines_in(packed: str | None) -> tuple[Lines, ...]:
    """Decode the line ranges of a row."""
    return tuple((int(first), int(last)) for first, last in json.loads(packed)) if packed else ()


class ClassTable(Table):
    """Provenance and trust of texts, kept apart from them: a text never states its own."""

    def of_revision(self, document: int, number: int) -> TextOrigin | None:
        """Return the provenance of a revision, or None if it does not exist."""
        return self._origin("r.number = ?", document, number)

    def of_text(self, document: int, content: str) -> TextOrigin | None:
        """Return the provenance of the newest revision with this text (by its hash), or None."""
        return self._origin("r.hash = ? AND r.text IS NOT NULL", document, content)

    def _origin(self, where: str, document: int, value: int | str) -> TextOrigin | None:
        sql = f"""SELECT coalesce(r.made, d.made_before, 'untrusted'), r.doubted, coalesce(r.by, d.made_before, 'untrusted')
                  FROM revision r JOIN document d ON d.id = r.document WHERE r.document = ? AND {where}
                  ORDER BY r.number DESC LIMIT 1"""
        found = self._rows(sql, (document, value))
        return TextOrigin(found[0][0], lines_in(found[0][1]), found[0][2]) if found else None

    def class_of(self, document: int, number: int) -> str:
        """Return the class that a revision counts as, or counted as when it was the newest."""
        sql = """SELECT coalesce(r.class, d.made_before, 'untrusted') FROM revision r JOIN document d ON d.id = r.document
                 WHERE r.document = ? AND r.number = ?"""
        found = self._rows(sql, (document, number))
        return str(found[0][0]) if found else UNTRUSTED

    def set(self, document: int, number: int, origin: TextOrigin) -> None:
        """Set the provenance of the document and its newest revision, which has this number; the
        caller then computes its class again.
        """
        doubted = lines_as_json(origin.doubted)
        sql = "UPDATE revision SET made = ?, doubted = ? WHERE document = ? AND number = ?"
        self._rows(sql, (origin.made, doubted, document, number))
        self._rows("UPDATE document SET made = ? WHERE id = ?", (origin.made, document))

    def count_as(self, document: int, number: int, class_: str) -> None:
        """Set the class that the document and its newest revision, which has this number, count as."""
        self._rows("UPDATE document SET class = ? WHERE id = ? AND class <> ?", (class_, document, class_))
        sql = "UPDATE revision SET class = ? WHERE document = ? AND number = ? AND class IS NOT ?"
        self._rows(sql, (class_, document, number, class_))

    # Marks that recognize untrusted text

    def has_marks(self) -> bool:
        """Return True if marks of any untrusted text are stored."""
        sql = "SELECT 1 FROM doubted_text LIMIT 1"
        return self._database.result_cache.get("marks", lambda: bool(self._rows(sql)))

    def known_marks(self, marks: Collection[int]) -> frozenset[int]:
        """Return those of the marks that are stored as marks of untrusted text."""
        sql = f"SELECT DISTINCT mark FROM doubted_text WHERE mark {AMONG}"
        return frozenset(row[0] for row in self._rows(sql, (json.dumps(list(marks)),))) if marks else frozenset()

    def add_marks(self, document: int, marks: Iterable[int]) -> None:
        """Store hashes of text parts that no user has vouched for, so that a copy of the text
        elsewhere is found to be untrusted too.
        """
        sql = "INSERT INTO doubted_text (mark, document) SELECT value, ? FROM json_each(?) WHERE TRUE ON CONFLICT DO NOTHING"
        self._rows(sql, (document, json.dumps(list(marks))))

    def drop_marks(self, document: int, marks: Iterable[int] | None = None) -> None:
        """Remove marks of a document's text; None: all."""
        sql, values = "DELETE FROM doubted_text WHERE document = ?", [document]
        if marks is None:
            self._rows(sql, values)
        else:
            self._rows(f"{sql} AND mark {AMONG}", (*values, json.dumps(list(marks))))

    def is_kept(self, document: int) -> bool:
        """Return True if marks or trusted hashes of the document's text are stored."""
        sql = """SELECT EXISTS (SELECT 1 FROM doubted_text WHERE document = ?1)
                 OR EXISTS (SELECT 1 FROM trusted_text WHERE document = ?1)"""
        return bool(self._one(sql, (document,)))

    def forget(self, document: int) -> None:
        """Remove the marks of the document's text and the user's trust in its parts."""
        self.drop_marks(document)
        self._rows("DELETE FROM trusted_text WHERE document = ?", (document,))

    # Texts that a user has trusted

    def trusted_parts(self, document: int) -> frozenset[str]:
        """Return the hashes of the document's parts that a user has trusted."""
        return frozenset(row[0] for row in self._rows("SELECT hash FROM trusted_text WHERE document = ?", (document,)))

    def trust(self, document: int, hashes: Sequence[str], *, by: str, now: float) -> None:
        """Record that a user has trusted these parts of the document."""
        for found in hashes:
            sql = """INSERT INTO trusted_text VALUES (?, ?, ?, ?)
                     ON CONFLICT (document, hash) DO UPDATE SET at = excluded.at, by = excluded.by"""
            self._rows(sql, (document, found, now, by))
