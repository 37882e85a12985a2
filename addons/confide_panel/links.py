"""Links for the panel that work once and give the browser its cookie. The module imports nothing of
the gateway, since commands make links.

A link has 32 random bytes. The file of a link is named by their SHA-256, is readable by this user
only, and holds the page to open. Using a link deletes its file first, so of several processes that
use it only one succeeds.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file, write_private_file

GOOD_S: Final = 60.0
"""Seconds for which a link works: a browser opens within seconds, while a terminal keeps the
printed link.
"""
MOST_TARGET_BYTES: Final = 4096
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_KEPT: Final = re.compile(r"[0-9a-f]{64}")


class Links:
    """The unused links of this device, in `folder`. Methods block briefly, and raise KeyFileError
    if the disk fails or other users could read the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, target: str = "") -> str:
        """Create a link, and return the code that it contains. `target` is the page that it opens,
        below the session's path; "" is the first page.
        """
        self._sweep()
        code = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        write_private_file(self._file(code), target.encode())
        return code

    def use(self, code: str) -> str | None:
        """Use a link up, and return the page that it opens. Return None if the link does not exist,
        was used, or is too old.
        """
        if not _CODE.fullmatch(code):
            return None
        file = self._file(code)
        try:
            made = file.stat().st_mtime
            target = read_private_file(file, most_bytes=MOST_TARGET_BYTES).decode()
            file.unlink()  # of two that ask at once one fails here
        except (OSError, KeyFileError, UnicodeDecodeError):
            return None
        return target if 0 <= time.time() - made < GOOD_S else None

    def _file(self, code: str) -> Path:
        return self._folder / hashlib.sha256(code.encode()).hexdigest()

    def _sweep(self) -> None:
        """Delete the links that are too old."""
        with suppress(OSError):
            for file in self._folder.iterdir():
                if _KEPT.fullmatch(file.name) and time.time() - file.stat().st_mtime > GOOD_S:
                    file.unlink(missing_ok=True)
