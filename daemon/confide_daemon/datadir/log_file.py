"""The log of a daemon that was started on demand: a file of limited size in the data folder."""

from __future__ import annotations

import io
import logging
import os
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

FILE_BYTES: Final = 1 << 20
FILES: Final = 3
"""The current file and the two before it."""


class LogFile(RotatingFileHandler):
    """A log that consists of three rotating files of 1 MiB, with mode 0600."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=FILES - 1, encoding="utf-8", errors="replace")

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        raw = io.FileIO(os.open(self.baseFilename, flags, 0o600), "a")
        return TextIOWrapper(io.BufferedWriter(raw), encoding=self.encoding, errors=self.errors)


def handler(path: Path) -> logging.Handler:
    """Return the handler for the daemon's log. It writes to the file at `path` if stderr is
    redirected to that file, otherwise to stderr itself.
    """
    try:
        ours, theirs = path.stat(), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return logging.StreamHandler(sys.stderr)
    is_file = (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
    return LogFile(path) if is_file else logging.StreamHandler(sys.stderr)
