"""Bearer tokens, which HTTP clients use instead of a key: 32 random bytes as text, shown once.

Confide stores only the SHA-256 of a token, from which a thief cannot derive it: 256 random bits are
beyond guessing, so it needs neither salt nor a slow hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import Final

MARK: Final = "cfd_"
"""The prefix of every token, by which people and secret scanners recognize it."""
TOKEN_BYTES: Final = 32
_FOLLOWS: Final = b"confide token that follows "
_TEXT: Final = re.compile(rf"{MARK}[A-Za-z0-9_-]{{43}}")


def new_token() -> tuple[str, bytes]:
    """Return a new token, and the digest under which it is stored."""
    return _token(secrets.token_bytes(TOKEN_BYTES))


def following_token(secret: str, salt: bytes, kind: str) -> tuple[str, bytes]:
    """Return the token derived from a secret text, and its digest; the same input gives the same
    token.

    Only a holder of both the text and the salt can derive it.

    Args:
        salt: 32 random bytes, made for this use of the text alone.
        kind: distinguishes several tokens that are derived from the same text.
    """
    return _token(hmac.digest(salt, _FOLLOWS + kind.encode() + b"\0" + secret.encode(), "sha256"))


def _token(random: bytes) -> tuple[str, bytes]:
    text = MARK + base64.urlsafe_b64encode(random).rstrip(b"=").decode()
    return text, hashlib.sha256(text.encode()).digest()


def digest_of(text: str) -> bytes | None:
    """Return the SHA-256 under which a presented token is stored; None if the text is not a token."""
    return hashlib.sha256(text.encode()).digest() if _TEXT.fullmatch(text) else None
