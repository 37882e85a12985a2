"""Replacing a stored text so that nothing of the old one stays, as SQL.

For every column of a space's database: whether it may contain parts of a text, and how that is
removed (`confide secrets scan --stored`, docs/secrets.md):

    source, rewritten in place
      `revision.text, hash, bytes, clash`   every revision, also of deleted documents and transcripts
      `document.hash, clash`                those of the newest revision
    derived, made again in the same transaction if the newest revision is rewritten
      chunk, keyword (FTS5), vector_<n>     chunks; changed ones lose their vectors and wait for new ones
      document.words, importance, day, cut_hash, pieces, and note, note_tag, note_relation with all
                                            their columns
      document_name, document_tag, document_link    all of them
      doubted_text                          numbers made of some words each, and
      trusted_text                          hashes of lines: with any text of their document
    traces, removed at the end (`forget_traces`)
      vector_cache                          all of it: vectors of older texts, by their hashes
      operation.asked, hash, previous       hashes of calls and of texts: a reader who knows all but
                                            the password could test guesses
    no text of a user
      project.name, document.path           names; a credential in one is reported for its owner to
                                            rename it
      transcript.head, mark                 hashes by which a device recognizes its file, made there
      document.author, revision.author, times, numbers; migration, generation, project_link,
      transcript_part, embedding_use, breach, mark, document_use, recall; the tables of sealed records;
      forget_key, forget_record, forget_seen

Hashes are replaced with their texts: to a reader who knows the rest of a text, the hash of the
whole is enough to test guesses of a password. Deleted data leaves the file in three steps: FTS5
keeps deleted words until its segments are merged, pages keep remains of moved rows until the file
is rewritten, and the log keeps old pages until it is truncated (https://sqlite.org/fts5.html 6.8,
https://sqlite.org/wal.html).
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
"""Prefix of the mark of a rewritten revision; its change number follows."""


class RevisionTexts(Table):
    """The texts of all revisions, which can be listed in the order of their changes and replaced."""

    def list_texts(self, after: int, *, most_bytes: int, most: int) -> list[StoredText]:
        """Return up to `most` revisions with their texts, in the order of changes, beginning after
        change number `after`. At least one is returned if there are any.

        `most_bytes`: limit for the sum of their compressed texts.
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
        """Return True if there are texts from before this database supported sealed records."""
        sql = """SELECT 1 FROM (SELECT created_at FROM revision WHERE text IS NOT NULL ORDER BY change LIMIT 1)
                 WHERE created_at < (SELECT applied_at FROM migration WHERE version = ?)"""
        return bool(self._rows(sql, (SEALING,)))

    def rewrite(self, change: int, before: str, text: str) -> tuple[str, int | None]:
        """Replace the text of the revision with change number `change`, if its hash is `before`, in
        the caller's transaction.

        Return the outcome: `rewritten`, `same` (it already has this text), `changed` (it has
        another text) or `gone` (no such revision). Also return the id of the document if its newest
        text was rewritten and it is not deleted, otherwise None; the caller then makes its derived
        rows again.

        Raises InvalidTextError if `text` differs from the stored text in more than placeholders: a
        device must not change history otherwise.
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
            return "changed", None  # damaged: no device has seen this
        if not is_sealed_from(text, here):
            raise InvalidTextError("a stored text can be sealed, and not be changed otherwise")
        self._replace(change, path, here, text)
        if not is_newest:
            return "rewritten", None
        self._set_newest(document, path, text)
        return "rewritten", int(document)

    def cut(self, found: StoredText, before: str, text: str) -> int | None:
        """Replace the text `before` of a revision by `text`, which is what forgetting leaves of it,
        in the caller's transaction. Return the document's id if the revision is the newest,
        otherwise None.
        """
        document = self.document_of(found.change)
        if document is None:
            return None
        self._replace(found.change, found.path, before, text)
        for table in ("doubted_text", "trusted_text"):
            self._rows(f"DELETE FROM {table} WHERE document = ?", (document,))  # noqa: S608 - one of these two
        if not found.is_newest:
            return None
        self._set_newest(document, found.path, text)
        return document

    def _replace(self, change: int, path: str, before: str, text: str) -> None:
        data = text.encode()
        self._rows(
            "UPDATE revision SET text = ?, hash = ?, bytes = ?, clash = ? WHERE change = ?",
            (zlib.compress(data), text_hash(text), len(data), _clash(path, text), change),
        )
        if text.count("\n") != before.count("\n"):
            # The untrusted lines cannot be located any more, so all lines count as untrusted.
            lines = f"[[1,{text.count(chr(10)) + 1}]]"
            self._rows("UPDATE revision SET doubted = ? WHERE change = ? AND doubted IS NOT NULL", (lines, change))
        # The mark does not contain the old hash, by which guesses of a password could be tested.
        self._rows("INSERT INTO mark VALUES (?, 1) ON CONFLICT DO NOTHING", (f"{_REWRITTEN}{change}",))

    def _set_newest(self, document: int, path: str, text: str) -> None:
        sql = "UPDATE document SET hash = ?, clash = ? WHERE id = ?"
        self._rows(sql, (text_hash(text), _clash(path, text), document))

    def document_of(self, change: int) -> int | None:
        """Return the id of the document that a revision belongs to, or None if there is no such
        revision.
        """
        found = self._rows("SELECT document FROM revision WHERE change = ?", (change,))
        return int(found[0][0]) if found else None

    def is_rewritten(self, document: int, number: int) -> bool:
        """Return True if the text of a revision was replaced, so that devices may know its old
        text. Very old replacements were not recorded; for those it returns False.
        """
        sql = "SELECT 1 FROM revision r JOIN mark m ON m.name = ? || r.change WHERE r.document = ? AND r.number = ?"
        return bool(self._rows(sql, (_REWRITTEN, document, number)))

    def forget_traces(self) -> None:
        """Remove hashes and vectors of texts that no longer exist, in the caller's transaction.

        A retried change is still recognized by its id, but its content is no longer compared.
        """
        self._rows("DELETE FROM vector_cache")
        self._rows("UPDATE operation SET asked = ''")
        known = "SELECT hash FROM revision WHERE text IS NOT NULL"
        for column in ("hash", "previous"):
            self._rows(f"UPDATE operation SET {column} = '' WHERE {column} <> '' AND {column} NOT IN ({known})")  # noqa: S608


def _clash(path: str, text: str) -> bool:
    return source_of(path) == "memory" and has_clash(text)
