"""The part of the SQLite store that puts other texts in the place of stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from confide_daemon.store import disk, rewriting, salvage
from confide_daemon.store.connection import connect, storage_errors
from confide_daemon.store.remembered import Remembered
from confide_daemon.store.rows import StoredText


class SqliteRewriting:
    """Part of `sqlite.SqliteStore`, which has the connection; see `Store`."""

    _db: apsw.Connection
    _path: Path
    _key: bytes
    _remembered: Remembered

    if TYPE_CHECKING:

        def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]: ...
        def abandon_rekeying(self) -> None: ...

    def stored_texts(self, after: int, *, most_bytes: int, most: int) -> list[StoredText]:
        """Revisions with a text, in the order of their changes."""
        return rewriting.listed(self._rows, after, most_bytes=most_bytes, most=most)

    def stored_count(self) -> int:
        """How many revisions have a text."""
        return rewriting.count(self._rows)

    def is_older_than_sealing(self) -> bool:
        """Whether there are texts from before anything was sealed."""
        return rewriting.is_older_than_sealing(self._rows)

    def rewrite_text(self, change: int, before: str, text: str) -> tuple[str, int | None]:
        """Puts a text in the place of a revision's."""
        return rewriting.rewrite(self._rows, change, before, text)

    def forget_traces(self) -> None:
        """Removes what tells something of texts that are there no more."""
        rewriting.forget_traces(self._rows)

    def optimize_words(self) -> None:
        """The last step of merging the full text."""
        with storage_errors("merge the keyword index"):
            rewriting.optimize(self._db)

    def copy_clean(self) -> None:
        """Writes the database anew, beside it."""
        self.abandon_rekeying()
        rewriting.copy(self._db, self._path)

    def swap_clean(self) -> None:
        """Goes on with that file."""
        with storage_errors(rewriting.DOING):
            disk.close(self._db)
            try:
                rewriting.swap(self._path, self._key)
            finally:
                self._db = connect(self._path, self._key, writer=True)
                self._remembered.forget()

    def damaged_copies(self) -> int:
        """How many older files with damage are kept beside this one."""
        return salvage.damaged_copies(self._path)
