"""What a space's database still holds of a text, seen by somebody who has its key and the whole file."""

from __future__ import annotations

import zlib
from pathlib import Path

import apsw

from confide_daemon.store.database import connect


def image(path: Path, key: bytes) -> bytes:
    """Every page of the file and of its log as it is decrypted, free ones and remains of former rows among them."""
    connection = connect(path, key, writer=False)
    try:
        return connection.serialize("main")
    finally:
        connection.close()


def log_bytes(path: Path) -> int:
    """The length of the log."""
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def words(path: Path, key: bytes) -> set[str]:
    """The words of the full text, of which a page holds only what differs from the one before."""
    connection = connect(path, key, writer=False)
    try:
        connection.execute("PRAGMA query_only = OFF")
        connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, keyword, 'row')")
        return {str(term) for (term,) in connection.execute("SELECT term FROM temp.words")}
    finally:
        connection.close()


def texts(path: Path, key: bytes) -> list[str]:
    """Every value of every table, those of the full text's own included, as text: blobs as they are and unpacked."""
    connection = connect(path, key, writer=False)
    found: list[str] = []
    try:
        names = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for name in names:
            try:
                rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            except apsw.SQLError:
                continue  # a virtual table that gives no values; its own tables are among these
            for row in rows:
                for value in row:
                    if isinstance(value, bytes):
                        found.append(value.decode("utf-8", "replace"))
                        try:
                            found.append(zlib.decompress(value).decode("utf-8", "replace"))
                        except zlib.error:
                            continue
                    elif value is not None:
                        found.append(str(value))
    finally:
        connection.close()
    return found
