"""A log of which program or tool used which secret on this device. It contains no values."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic, portable
from confide_crypto.errors import printable
from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.locks import lock_file, try_lock

MOST_USES: Final = 1000
"""Uses in the list; older ones are dropped."""
_MOST_BYTES: Final = 512 * 1024
_MOST_CHARS: Final = 300
_LOCK_WAIT_S: Final = 2.0


class UseLog:
    """A log of the uses of secrets on this device, one JSON object a line. It contains no values."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, secrets: Sequence[Placeholder], what: str, approved: str) -> None:
        """Add a use of these secrets: `what` is the program or tool, and `approved` says who
        approved it. Raises OSError if the log cannot be written.

        The entry is in the file when this returns. A power cut may lose the uses of the last
        seconds: waiting for the disk would take as long as starting a command.
        """
        at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        lines = [
            json.dumps({"at": at, "secret": str(one), "by": printable(what)[:_MOST_CHARS], "approved": approved})
            for one in secrets
        ]
        with hold_lock(self._file):
            if self._file.exists() and self._file.stat().st_size > _MOST_BYTES:
                kept = [*self._lines(), *lines][-MOST_USES:]
                atomic.write(self._file, "".join(f"{line}\n" for line in kept).encode(), is_kept=False)
                return
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | portable.CLOSED | portable.NO_LINK
            with open(os.open(self._file, flags, 0o600), "ab") as file:
                # An empty line ends one that a crash has cut.
                file.write("".join(f"\n{line}\n" for line in lines).encode())

    def read(self) -> list[dict[str, Any]]:
        """Return the log's entries, newest first."""
        found = []
        for line in reversed(self._lines()):
            try:
                one = json.loads(line)
            except ValueError:
                continue
            if isinstance(one, dict) and {"at", "secret", "by", "approved"} <= one.keys():
                found.append(one)
        return found

    def _lines(self) -> list[str]:
        try:
            text = self._file.read_bytes()[-_MOST_BYTES:].decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line][-MOST_USES:]


@contextlib.contextmanager
def hold_lock(file: Path) -> Iterator[None]:
    """Hold the lock file beside a file. Go on without it if another process does not release it
    within `_LOCK_WAIT_S` seconds. Raises OSError if the lock file cannot be opened.
    """
    descriptor = lock_file(file.with_name(f"{file.name}.lock"))
    try:
        try_lock(descriptor, wait_s=_LOCK_WAIT_S)
        yield
    finally:
        os.close(descriptor)
