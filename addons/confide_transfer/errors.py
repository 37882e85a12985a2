"""Errors of imports, exports and moves, with messages for users."""

from __future__ import annotations

from confide_crypto.errors import EXIT_INPUT, EXIT_STORAGE, ConfideError
from confide_memory.errors import with_extra


class ExportError(ConfideError):
    """A folder that an export cannot be written to, or read from."""

    exit_code = EXIT_INPUT


class ExportStorageError(ExportError):
    """The disk refuses to write an export."""

    exit_code = EXIT_STORAGE


class MoveError(ConfideError):
    """The space cannot be moved to another daemon, or not now."""

    exit_code = EXIT_INPUT


class ReaderMissingError(ConfideError):
    """Importing a store of another system requires a library that is not installed."""

    exit_code = EXIT_INPUT

    def __init__(self, title: str, extra: str) -> None:
        super().__init__(
            f"reading a store of {title} needs a library that is not installed",
            hint=with_extra(extra),
        )
