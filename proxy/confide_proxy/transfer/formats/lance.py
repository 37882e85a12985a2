"""The rows of a Lance table on disk (https://lance.org/format), read with the library that the extra `lancedb` installs.

That is `pylance` alone: LanceDB's own package holds the same code again, and opens a database where one table is wanted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confide_proxy.errors import ReaderMissingError, UnreadableError
from confide_proxy.transfer.files import head, is_folder
from confide_proxy.transfer.reader import MAX_STORE_BYTES

EXTRA = "lancedb"
MAX_PARTS = 500_000
"""Files in one table. Each write leaves three, until somebody compacts the table."""
_BATCH_ROWS = 256
_MANIFEST_BYTES = 2**16


def has_columns(table: Path, columns: Sequence[str]) -> bool:
    """Whether the newest description of the table names these columns. Needs no library; never raises."""
    try:
        with os.scandir(table / "_versions") as found:
            names = sorted(entry.name for entry in found if entry.name.endswith(".manifest"))
    except (OSError, ValueError):
        return False
    # Newer versions count down from 2^64 in their names; of older tables the last name may not be the newest, which does not matter here.
    manifest = head(table / "_versions" / names[0], _MANIFEST_BYTES) if names else b""
    return all(column.encode() in manifest for column in columns)


def rows(table: Path, title: str, columns: Sequence[str], more: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """The rows with these columns, and those of `more` that the table has; a time is a `datetime` in UTC without a zone.

    Args:
        title: of the system whose table it is, for the error.

    Raises:
        ReaderMissingError: the library is not installed.
        UnreadableError: it is no Lance table, a damaged one, or one that refers to files elsewhere.
    """
    try:
        import lance
    except ImportError as error:
        raise ReaderMissingError(title, EXTRA) from error
    _check(table)
    batches = _batches(lance, table, columns, more)
    while (batch := _reading(table, lambda: next(batches, None))) is not None:
        yield from batch


def _batches(lance: Any, table: Path, columns: Sequence[str], more: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    import pyarrow

    dataset = lance.dataset(str(table.absolute()))
    found = dataset.schema.names
    if missing := set(columns) - set(found):
        raise UnreadableError(table, f"has no column {min(missing)}")
    for fragment in dataset.get_fragments():
        for file in fragment.data_files():
            if getattr(file, "base_id", None) is not None or Path(file.path).name != file.path:
                raise UnreadableError(table, "refers to files outside of it")
    present = [*columns, *(column for column in more if column in found)]
    scanner = dataset.scanner(columns=present, batch_size=_BATCH_ROWS, scan_in_order=True)
    for batch in scanner.to_batches():
        part = pyarrow.Table.from_batches([batch])
        for index, field in enumerate(part.schema):
            if pyarrow.types.is_timestamp(field.type):
                # The unit changed with the versions; what is finer than a thousandth would take pandas to be told.
                column = part.column(index).cast(pyarrow.timestamp("ms"), safe=False)
                part = part.set_column(index, field.name, column)
        yield part.to_pylist()


def _reading(table: Path, step: Any) -> Any:
    try:
        return step()
    except UnreadableError:
        raise
    except BaseException as error:
        # A panic in the library is no `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        problem = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise UnreadableError(
            table,
            f"cannot be read as a Lance table: {problem}",
            hint="if a newer LanceDB wrote it: pip install --upgrade pylance",
        ) from error


def _check(table: Path) -> None:
    """Refuses what the library would follow out of the folder, or take too long for."""
    if not is_folder(table):
        raise UnreadableError(table, "is no folder")
    left, size, folders = MAX_PARTS, 0, [table]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    left -= 1
                    if entry.is_symlink():
                        raise UnreadableError(table, "holds a symlink")
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    else:
                        size += entry.stat(follow_symlinks=False).st_size
                    if left < 0 or size > MAX_STORE_BYTES:
                        raise UnreadableError(table, "is larger than what is imported", hint="compact the table first")
        except OSError as error:
            raise UnreadableError(table, f"cannot be listed: {error.strerror}") from error
