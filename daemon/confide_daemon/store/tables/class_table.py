"""SQL for trust: the trust classes of documents and revisions, hashes that recognize copies of
untrusted text ("marks"), and the parts that a user has trusted.
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
    """Encode line ranges as JSON for the database; None if there are none."""
    found = [list(one) for one in doubted]
    return json.dumps(found, separators=(",", ":")) if found else None


def lines_in(packed: str | None) -> tuple[Lines, ...]:
    """Decode line ranges from the database."""
    return tuple((int(first), int(last)) for first, last in json.loads(packed)) if packed else ()


class ClassTable(Table):
    """The provenance and trust of texts. They are stored apart from the texts, so that no text can
    state its own provenance.
    """

    def of_revision(self, document: int, number: int) -> TextOrigin | None:
        """Return the provenance of a revision, or None if the revision does not exist."""
        return self._origin("r.number = ?", document, number)

    def of_text(self, document: int, content: str) -> TextOrigin | None:
        """Return the provenance of the newest revision of the document whose text has this hash
        (`content`), or None if there is none.
        """
        return self._origin("r.hash = ? AND r.text IS NOT NULL", document, content)

    def _origin(self, where: str, document: int, value: int | str) -> TextOrigin | None:
        sql = f"""SELECT coalesce(r.made, d.made_before, 'untrusted'), r.doubted, coalesce(r.by, d.made_before, 'untrusted')
                  FROM revision r JOIN document d ON d.id = r.document WHERE r.document = ? AND {where}
                  ORDER BY r.number DESC LIMIT 1"""
        found = self._rows(sql, (document, value))
        return TextOrigin(found[0][0], lines_in(found[0][1]), found[0][2]) if found else None

    def class_of(self, document: int, number: int) -> str:
        """Return the effective trust class of a revision; for an older revision, the class that it
        had while it was the newest.
        """
        sql = """SELECT coalesce(r.class, d.made_before, 'untrusted') FROM revision r JOIN document d ON d.id = r.document
                 WHERE r.document = ? AND r.number = ?"""
        found = self._rows(sql, (document, number))
        return str(found[0][0]) if found else UNTRUSTED

    def set(self, document: int, number: int, origin: TextOrigin) -> None:
        """Set the provenance of a document and of its newest revision, which has this number. The
        caller must then compute the trust class again.
        """
        doubted = lines_as_json(origin.doubted)
        sql = "UPDATE revision SET made = ?, doubted = ? WHERE document = ? AND number = ?"
        self._rows(sql, (origin.made, doubted, document, number))
        self._rows("UPDATE document SET made = ? WHERE id = ?", (origin.made, document))

    def count_as(self, document: int, number: int, class_: str) -> None:
        """Set the effective trust class of a document and of its newest revision, which has this
        number.
        """
        self._rows("UPDATE document SET class = ? WHERE id = ? AND class <> ?", (class_, document, class_))
        sql = "UPDATE revision SET class = ? WHERE document = ? AND number = ? AND class IS NOT ?"
        self._rows(sql, (class_, document, number, class_))

    # Marks that recognize untrusted text

    def has_marks(self) -> bool:
        """Return True if the space has marks (hashes of parts) of any untrusted text."""
        sql = "SELECT 1 FROM doubted_text LIMIT 1"
        return self._database.result_cache.get("marks", lambda: bool(self._rows(sql)))

    def known_marks(self, marks: Collection[int]) -> frozenset[int]:
        """Return the given marks that are stored, which means that some untrusted text has that
        part.
        """
        sql = f"SELECT DISTINCT mark FROM doubted_text WHERE mark {AMONG}"
        return frozenset(row[0] for row in self._rows(sql, (json.dumps(list(marks)),))) if marks else frozenset()

    def add_marks(self, document: int, marks: Iterable[int]) -> None:
        """Store marks of a document's untrusted text: hashes of its parts, by which a copy of the
        text in another document is recognized as untrusted.
        """
        sql = "INSERT INTO doubted_text (mark, document) SELECT value, ? FROM json_each(?) WHERE TRUE ON CONFLICT DO NOTHING"
        self._rows(sql, (document, json.dumps(list(marks))))

    def drop_marks(self, document: int, marks: Iterable[int] | None = None) -> None:
        """Remove these marks of a document's text; None: all of them."""
        sql, values = "DELETE FROM doubted_text WHERE document = ?", [document]
        if marks is None:
            self._rows(sql, values)
        else:
            self._rows(f"{sql} AND mark {AMONG}", (*values, json.dumps(list(marks))))

    def is_kept(self, document: int) -> bool:
        """Return True if the table has marks of the document's text, or parts that a user has
        trusted.
        """
        sql = """SELECT EXISTS (SELECT 1 FROM doubted_text WHERE document = ?1)
                 OR EXISTS (SELECT 1 FROM trusted_text WHERE document = ?1)"""
        return bool(self._one(sql, (document,)))

    def forget(self, document: int) -> None:
        """Remove the marks of a document's text, and all trust of users in its parts."""
        self.drop_marks(document)
        self._rows("DELETE FROM trusted_text WHERE document = ?", (document,))

    # Texts that a user has trusted

    def trusted_parts(self, document: int) -> frozenset[str]:
        """Return the hashes of those parts of the document's text that a user has trusted."""
        return frozenset(row[0] for row in self._rows("SELECT hash FROM trusted_text WHERE document = ?", (document,)))

    def trust(self, document: int, hashes: Sequence[str], *, by: str, now: float) -> None:
        """Record that a user (`by`) has trusted parts of the document's text, given by their
        hashes.
        """
        for found in hashes:
            sql = """INSERT INTO trusted_text VALUES (?, ?, ?, ?)
                     ON CONFLICT (document, hash) DO UPDATE SET at = excluded.at, by = excluded.by"""
            self._rows(sql, (document, found, now, by))
