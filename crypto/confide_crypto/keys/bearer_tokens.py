"""Bearer tokens, which programs that speak HTTP have in place of a key: 32 random bytes in a text that is shown once.

What is kept of one is its SHA-256. Whoever finds that has nothing: 256 random bits are beyond guessing, so no salt and no slow hash is
needed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import Final

MARK: Final = "cfd_"
"""How every token begins, so that people and scanners know one."""
TOKEN_BYTES: Final = 32
_FOLLOWS: Final = b"confide token that follows "
_TEXT: Final = re.compile(rf"{MARK}[A-Za-z0-9_-]{{43}}")


def new_token() -> tuple[str, bytes]:
    """The text of a new one, and what it is kept under."""
    return _token(secrets.token_bytes(TOKEN_BYTES))


def following_token(secret: str, salt: bytes, kind: str) -> tuple[str, bytes]:
    """The same of the one that follows a secret text, which is the same each time: only who has both the text and the salt can make it.

    Args:
        salt: 32 random bytes, of this use of the text alone.
        kind: which one, where several follow.
    """
    return _token(hmac.digest(salt, _FOLLOWS + kind.encode() + b"\0" + secret.encode(), "sha256"))


def _token(random: bytes) -> tuple[str, bytes]:
    text = MARK + base64.urlsafe_b64encode(random).rstrip(b"=").decode()
    return text, hashlib.sha256(text.encode()).digest()


def digest_of(text: str) -> bytes | None:
    """The SHA-256 that a presented token is kept under; None where it has not the form of one."""
    return hashlib.sha256(text.encode()).digest() if _TEXT.fullmatch(text) else None
