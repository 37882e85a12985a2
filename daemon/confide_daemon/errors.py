"""What can go wrong in the daemon, each with the sentence a person reads and, where known, the way out.

    ConfideError                    (confide_crypto.errors: message, hint, exit_code)
    ├── StorageError                the disk or the database: wrong key, full, not writable, corrupted, newer schema
    ├── NotFoundError               no document, revision or section of that name
    ├── InvalidPathError            a document path that is not allowed
    ├── InvalidQueryError           a search that cannot be understood (dates, ranks)
    ├── TooLargeError               a document over the limit
    └── EmbedderError               the embedding model cannot be loaded or gave unusable vectors

None of them carries content, a query or a key.
"""

from __future__ import annotations

from confide_crypto.errors import ConfideError


class StorageError(ConfideError):
    """The store cannot be opened, read or written."""

    exit_code = 8


class NotFoundError(ConfideError):
    """There is no document, revision or section of that name."""

    exit_code = 7


class InvalidPathError(ConfideError):
    """The document path is not allowed."""

    exit_code = 7


class InvalidQueryError(ConfideError):
    """A search parameter cannot be understood."""

    exit_code = 7


class TooLargeError(ConfideError):
    """The document is over the size limit."""

    exit_code = 7


class EmbedderError(ConfideError):
    """The embedding model cannot be loaded, or gave vectors that cannot be used."""

    exit_code = 1
