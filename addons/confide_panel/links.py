"""One-use links: how a person's browser comes to its cookie. Loads nothing of the gateway, since commands make them.

A link has 32 random bytes; kept is a file of this user's alone, called after their SHA-256, with the page to open. Whoever uses a link
deletes that file first, so it is good once, whichever process asks and however often.
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
"""How long a link is good: a browser opens within seconds, and a terminal keeps what was printed."""
MOST_TARGET_BYTES: Final = 4096
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_KEPT: Final = re.compile(r"[0-9a-f]{64}")


class Links:
    """The links of this machine, in `folder`. Methods block briefly, and raise KeyFileError where the disk refuses or others could read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, target: str = "") -> str:
        """A new link's code. `target`: the page below the visit's place that it opens, "" for the first one."""
        self._sweep()
        code = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        write_private_file(self._file(code), target.encode())
        return code

    def use(self, code: str) -> str | None:
        """The page that a link opens; None where it is none that is good. From now on it is none."""
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
        """Delete those that nobody has used."""
        with suppress(OSError):
            for file in self._folder.iterdir():
                if _KEPT.fullmatch(file.name) and time.time() - file.stat().st_mtime > GOOD_S:
                    file.unlink(missing_ok=True)
