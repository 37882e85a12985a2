"""What the daemon has confirmed of each file on this machine: its hash, its revision, and the stat that goes with them.

The ledger is what makes a comparison of states cheap and an edit's base known. It is derived: losing it costs one full comparison. Several
`confide mcp` processes share it, so it is a small SQLite database in WAL mode.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS confirmed(
    space TEXT NOT NULL, root TEXT NOT NULL, path TEXT NOT NULL,
    hash TEXT NOT NULL, revision INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    PRIMARY KEY (space, root, path)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A file as both ends last agreed on it."""

    hash: str
    revision: int
    size: int
    mtime_ns: int


class Ledger:
    """The confirmed state of one folder in one space. Methods block briefly; use from a worker thread."""

    def __init__(self, database: Path, space: str, root: Path) -> None:
        self._key = (space, str(root))
        try:
            self._db = _open(database)
        except sqlite3.DatabaseError:
            # Derived data: a damaged ledger is replaced, and the next comparison fills it again.
            for suffix in ("", "-wal", "-shm"):
                database.with_name(database.name + suffix).unlink(missing_ok=True)
            self._db = _open(database)

    def all(self) -> dict[str, Confirmed]:
        """Every confirmed file of the folder, by path."""
        rows = self._db.execute(
            "SELECT path, hash, revision, size, mtime_ns FROM confirmed WHERE space = ? AND root = ?", self._key
        )
        return {path: Confirmed(*rest) for path, *rest in rows}

    def get(self, path: str) -> Confirmed | None:
        """The confirmed state of one file, or None."""
        row = self._db.execute(
            "SELECT hash, revision, size, mtime_ns FROM confirmed WHERE space = ? AND root = ? AND path = ?",
            (*self._key, path),
        ).fetchone()
        return Confirmed(*row) if row else None

    def set(self, path: str, state: Confirmed) -> None:
        """Remember what both ends agreed on."""
        self._db.execute(
            "INSERT OR REPLACE INTO confirmed VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*self._key, path, state.hash, state.revision, state.size, state.mtime_ns),
        )

    def forget(self, path: str) -> None:
        """The file is gone on both ends."""
        self._db.execute("DELETE FROM confirmed WHERE space = ? AND root = ? AND path = ?", (*self._key, path))

    def close(self) -> None:
        """Release the database."""
        self._db.close()


def _open(database: Path) -> sqlite3.Connection:
    database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Autocommit: every statement here is a whole thought. Shared between the threads of one event loop, one call at a time.
    db = sqlite3.connect(database, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        with closing(db.execute("PRAGMA journal_mode = WAL")) as mode:
            mode.fetchone()
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db
