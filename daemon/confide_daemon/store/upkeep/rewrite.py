"""Putting another text in the place of a stored one, and leaving nothing of what was there: as SQL.

What every column of a space's database may hold of a text, and what becomes of it (`confide secrets scan --stored`, docs/secrets.md):

    truth, rewritten in place
      revision.text, hash, bytes, clash     every revision, also of deleted documents and of transcripts
      document.hash, clash                  those of the newest revision
    derived, made anew in the same transaction, where the newest revision is rewritten
      chunk, keyword (FTS5), vector_<n>     pieces; those whose text changes lose their vectors, and wait for new ones
      document.words, importance, day, cut_hash, pieces, and note, note_tag, note_relation with all their columns
      document_name, document_tag, document_link    all of them
      doubted_text                          numbers made of some words each, and
      trusted_text                          hashes of lines: with any text of their document
    traces, removed at the end (`forget_traces`)
      vector_cache                          all of it: vectors of older texts, by hashes of these
      operation.asked, hash, previous       hashes of calls and of texts: who knows all but the password could try them
    no text of a user's
      project.name, document.path           names; a credential in one is told of, and its owner renames it
      transcript.head, mark                 hashes by which a machine knows its file again, made there
      document.author, revision.author, times, numbers; migration, generation, project_link, transcript_part, embedding_use, breach, mark,
      document_use, recall; the tables of sealed records

Hashes follow the texts: with the rest of a text known, a hash of the whole is enough to try passwords against. What is deleted leaves the
file in three steps: FTS5 keeps deleted words until its segments are merged, pages keep remains of rows that were moved until the file is
written anew, and the log keeps old pages until it is cut to nothing (https://sqlite.org/fts5.html 6.8, https://sqlite.org/wal.html).
"""

from __future__ import annotations

import zlib
from typing import Final

from confide_crypto.sealing.placeholder import is_sealed_from
from confide_daemon.errors import InvalidTextError
from confide_daemon.store.database import Table
from confide_daemon.store.rows import StoredText
from confide_memory.documents import has_clash, source_of, text_hash

# The migration since which credentials are sealed.
SEALING: Final = 9
_REWRITTEN: Final = "rewritten "
"""Begins the mark of a revision, by its change."""


class RevisionTexts(Table):
    """The texts of all revisions, in the order in which they came."""

    def listed(self, after: int, *, most_bytes: int, most: int) -> list[StoredText]:
        """Revisions with a text behind a change, in their order: at least one if there are any, then as many as fit.

        `most_bytes`: of their packed texts together.
        """
        sizes = (
            "SELECT change, length(text) FROM revision WHERE change > ? AND text IS NOT NULL ORDER BY change LIMIT ?"
        )
        last, total = after, 0
        for change, size in self._rows(sizes, (after, most)):
            total += size
            if last > after and total > most_bytes:
                break
            last = change
        sql = """SELECT r.change, p.name, d.path, r.number, r.number = d.revision AND NOT d.deleted, r.hash, r.text
                 FROM revision r JOIN document d ON d.id = r.document JOIN project p ON p.id = d.project
                 WHERE r.change > ? AND r.change <= ? AND r.text IS NOT NULL ORDER BY r.change"""
        found = self._rows(sql, (after, last))
        return [StoredText._make((*row[:4], bool(row[4]), *row[5:])) for row in found]

    def count(self) -> int:
        return int(self._rows("SELECT count(*) FROM revision WHERE text IS NOT NULL")[0][0])

    def is_older_than_sealing(self) -> bool:
        """Whether there are texts from before this database knew of sealed records."""
        sql = """SELECT 1 FROM (SELECT created_at FROM revision WHERE text IS NOT NULL ORDER BY change LIMIT 1)
                 WHERE created_at < (SELECT applied_at FROM migration WHERE version = ?)"""
        return bool(self._rows(sql, (SEALING,)))

    def rewrite(self, change: int, before: str, text: str) -> tuple[str, int | None]:
        """Puts a text in the place of a revision's, whose hash was `before`, in the caller's transaction.

        The first is `rewritten`, `same` (it holds just this already), `changed` (it holds something else) or `gone`; the second, where it
        was rewritten and is the newest of a living document, whose derived rows have to follow, the id of that.

        Raises InvalidTextError: it is not that text with stand-ins for some of its parts. What was is not for a machine to write anew.
        """
        sql = """SELECT r.hash, d.id, d.path, r.number = d.revision AND NOT d.deleted, r.text FROM revision r
                 JOIN document d ON d.id = r.document WHERE r.change = ? AND r.text IS NOT NULL"""
        found = self._rows(sql, (change,))
        if not found:
            return "gone", None
        present, document, path, is_newest, packed = found[0]
        after = text_hash(text)
        if present != before:
            return ("same" if present == after else "changed"), None
        try:
            here = zlib.decompress(packed).decode()
        except (zlib.error, UnicodeDecodeError):
            return "changed", None  # damaged: no machine has seen this
        if not is_sealed_from(text, here):
            raise InvalidTextError("a stored text can be sealed, and not be changed otherwise")
        clash = source_of(path) == "memory" and has_clash(text)
        data = text.encode()
        self._rows(
            "UPDATE revision SET text = ?, hash = ?, bytes = ?, clash = ? WHERE change = ?",
            (zlib.compress(data), after, len(data), clash, change),
        )
        if text.count("\n") != here.count("\n"):
            # Which lines were untrusted is not known any more: all are.
            lines = f"[[1,{text.count(chr(10)) + 1}]]"
            self._rows("UPDATE revision SET doubted = ? WHERE change = ? AND doubted IS NOT NULL", (lines, change))
        # Without the hash that it had, by which passwords could be tried.
        self._rows("INSERT INTO mark VALUES (?, 1) ON CONFLICT DO NOTHING", (f"{_REWRITTEN}{change}",))
        if not is_newest:
            return "rewritten", None
        self._rows("UPDATE document SET hash = ?, clash = ? WHERE id = ?", (after, clash, document))
        return "rewritten", int(document)

    def document_of(self, change: int) -> int | None:
        """The document that a revision is of; None where it is gone."""
        found = self._rows("SELECT document FROM revision WHERE change = ?", (change,))
        return int(found[0][0]) if found else None

    def is_rewritten(self, document: int, number: int) -> bool:
        """Whether a revision had another text, which machines may have confirmed. Of what came before this was noted it is not known."""
        sql = "SELECT 1 FROM revision r JOIN mark m ON m.name = ? || r.change WHERE r.document = ? AND r.number = ?"
        return bool(self._rows(sql, (_REWRITTEN, document, number)))

    def forget_traces(self) -> None:
        """Removes what tells something of texts that are there no more, in the caller's transaction.

        A change that its machine asks for again is still known by its id; that it asks for just the same is not looked at any more.
        """
        self._rows("DELETE FROM vector_cache")
        self._rows("UPDATE operation SET asked = ''")
        known = "SELECT hash FROM revision WHERE text IS NOT NULL"
        for column in ("hash", "previous"):
            self._rows(f"UPDATE operation SET {column} = '' WHERE {column} <> '' AND {column} NOT IN ({known})")  # noqa: S608
