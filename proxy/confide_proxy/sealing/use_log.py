"""The list of uses of secrets on this device, without values."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic
from confide_crypto.errors import printable
from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.locks import lock_file, taken

MOST_USES: Final = 1000
"""Uses in the list; older ones are dropped."""
_MOST_BYTES: Final = 512 * 1024
_MOST_CHARS: Final = 300
_LOCK_WAIT_S: Final = 2.0


class UseLog:
    """The uses of secrets on this device, one JSON object a line, without values."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, secrets: Sequence[Placeholder], what: str, approved: str) -> None:
        """Add a use: by which program or tool, and who approved it. Raises OSError."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [
            json.dumps({"at": at, "secret": str(one), "by": printable(what)[:_MOST_CHARS], "approved": approved})
            for one in secrets
        ]
        with held(self._file):
            kept = [*self._lines(), *lines][-MOST_USES:]
            atomic.write(self._file, "".join(f"{line}\n" for line in kept).encode())

    def read(self) -> list[dict[str, Any]]:
        """Return the uses, the newest first."""
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
            return self._file.read_bytes()[-_MOST_BYTES:].decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold the lock beside a file, if it is free in time. Raises OSError."""
    descriptor = lock_file(file.with_name(f"{file.name}.lock"))
    try:
        taken(descriptor, wait_s=_LOCK_WAIT_S)
        yield
    finally:
        os.close(descriptor)
