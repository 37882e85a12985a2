"""Bearer tokens: HTTP clients use one instead of a key. A token is 32 random bytes as text, and is
shown once.

Confide stores only the SHA-256 of a token. A token has 256 random bits, which no one can guess, so
the hash needs neither a salt nor a slow function.
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
    """Create a token. Return its text, and the SHA-256 digest under which it is stored."""
    return _token(secrets.token_bytes(TOKEN_BYTES))


def following_token(secret: str, salt: bytes, kind: str) -> tuple[str, bytes]:
    """Return a token that is derived from a secret text, and its digest. The same arguments always
    give the same token.

    Only someone who has both the text and the salt can derive it.

    Args:
        salt: 32 random bytes, used only for this derivation.
        kind: a word that distinguishes several tokens derived from the same text.
    """
    return _token(hmac.digest(salt, _FOLLOWS + kind.encode() + b"\0" + secret.encode(), "sha256"))


def _token(random: bytes) -> tuple[str, bytes]:
    text = MARK + base64.urlsafe_b64encode(random).rstrip(b"=").decode()
    return text, hashlib.sha256(text.encode()).digest()


def digest_of(text: str) -> bytes | None:
    """Return the SHA-256 under which a token is stored, or None if the text is not a token."""
    return hashlib.sha256(text.encode()).digest() if _TEXT.fullmatch(text) else None
