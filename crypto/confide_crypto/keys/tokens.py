"""Bearer tokens, which programs that speak HTTP have in place of a key: 32 random bytes in a text that is shown once.

What is kept of one is its SHA-256. Whoever finds that has nothing: 256 random bits are beyond guessing, so no salt and no slow hash is
needed.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import Final

MARK: Final = "cfd_"
"""How every token begins, so that people and scanners know one."""
TOKEN_BYTES: Final = 32
_TEXT: Final = re.compile(rf"{MARK}[A-Za-z0-9_-]{{43}}")


def new_token() -> tuple[str, bytes]:
    """The text of a new one, and what it is kept under."""
    text = MARK + base64.urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).rstrip(b"=").decode()
    return text, hashlib.sha256(text.encode()).digest()


def digest_of(text: str) -> bytes | None:
    """The SHA-256 that a presented token is kept under; None where it has not the form of one."""
    return hashlib.sha256(text.encode()).digest() if _TEXT.fullmatch(text) else None
