"""Recovery codes: a device on paper (PROTOCOL.md 10.8).

160 random bits that a person writes down; they are the seed of an identity that stands in the roster like any machine's. So every new
epoch is wrapped to it without asking for it, and nothing that could be guessed is stored anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final, Self

from confide_crypto.errors import RecoveryCodeError
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity import KEY_LENGTH, Identity

CODE_LENGTH: Final = 20
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base32: no I, L, O, which are read as 1, 1, 0, and no U."""
_NONE: Final = 255
_VALUES: Final = bytes(_ALPHABET.find(chr(code)) & _NONE for code in range(256))
"""Of the ASCII characters, `_NONE` for one that no code has. A table: a scan of a text asks of whatever begins as a code does."""
MARK: Final = "CR"
"""Begins every code of this version, so that a person knows what the paper is, and a scan for secrets finds it."""
_BITS: Final = 5
_SYMBOLS: Final = 8 * CODE_LENGTH // _BITS
_GROUP: Final = 5
_CHECKSUM_PREFIX: Final = "confide-recovery"
_SEED_PERSON: Final = b"confide-paper-1"
_READ_AS: Final = str.maketrans({"O": "0", "I": "1", "L": "1", "-": "", " ": "", "\t": "", "\n": "", "\r": ""})
_LONGEST: Final = 256
_SHOWN: Final = f"it begins with {MARK} and has eight groups of five; I and L are read as 1, O as 0"


@dataclass(frozen=True, slots=True)
class RecoveryCode:
    """A recovery code. `str` and `repr` show nothing of it."""

    secret: bytes = field(repr=False)  # 20 random bytes

    def __post_init__(self) -> None:
        if len(self.secret) != CODE_LENGTH:
            raise ValueError("a recovery code has 20 bytes")

    @classmethod
    def generate(cls) -> Self:
        return cls(secrets.token_bytes(CODE_LENGTH))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The code that a person typed: in either case, with or without blanks and hyphens, I and L for 1, O for 0.

        Raises RecoveryCodeError: it is none, or has a typing error; up to four wrong characters are always found.
        """
        typed = text.upper().translate(_READ_AS) if len(text) <= _LONGEST and text.isascii() else ""
        if not typed.startswith(MARK):
            raise RecoveryCodeError("this is not a recovery code", hint=_SHOWN)
        values = typed.removeprefix(MARK).encode().translate(_VALUES)
        if len(values) != _SYMBOLS + bech32m.CHECKSUM_LENGTH:
            raise RecoveryCodeError("this recovery code is not complete, or too long", hint=_SHOWN)
        if _NONE in values:
            raise RecoveryCodeError("this recovery code has a character that no code has", hint=_SHOWN)
        symbols, check = values[:_SYMBOLS], values[_SYMBOLS:]
        if not hmac.compare_digest(check, bytes(bech32m.checksum(_CHECKSUM_PREFIX, symbols))):
            raise RecoveryCodeError(
                "this recovery code has a typing error", hint="compare it with the paper, group by group"
            )
        number = 0
        for symbol in symbols:
            number = number << _BITS | symbol
        return cls(number.to_bytes(CODE_LENGTH, "big"))

    def to_string(self) -> str:
        """The secret form, to be shown once: `CR…-…`, eight groups of five."""
        number = int.from_bytes(self.secret, "big")
        symbols = [number >> _BITS * place & 2**_BITS - 1 for place in reversed(range(_SYMBOLS))]
        text = MARK + "".join(_ALPHABET[value] for value in [*symbols, *bech32m.checksum(_CHECKSUM_PREFIX, symbols)])
        return "-".join(text[place : place + _GROUP] for place in range(0, len(text), _GROUP))

    @property
    def identity(self) -> Identity:
        """Who the paper is: its Ed25519 key stands in the roster, its wrap key opens what was wrapped to it."""
        return Identity(hashlib.blake2b(key=self.secret, person=_SEED_PERSON, digest_size=KEY_LENGTH).digest())

    def __str__(self) -> str:
        return "a recovery code"
