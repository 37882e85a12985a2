"""Recovery codes: an identity on paper that can open a space like a device (PROTOCOL.md 10.8).

A user writes down 160 random bits. They are the seed of an identity that is on the roster like any
device. So every new epoch's key is encrypted to it without use of the code, and nothing is stored
from which an attacker could guess the code.
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
"""Crockford's base32: without I, L, O, which are read as 1, 1, 0, and without U."""
_NONE: Final = 255
_VALUES: Final = bytes(_ALPHABET.find(chr(code)) & _NONE for code in range(256))
"""The value of each ASCII character, `_NONE` for one that no code contains. It is a table, since a
scan of a text looks at every word that begins like a code.
"""
MARK: Final = "CR"
"""The prefix of every code of this version, by which people recognize the paper and a scan for
secrets finds it.
"""
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
    """A recovery code. `str` and `repr` do not show it."""

    secret: bytes = field(repr=False)  # 20 random bytes

    def __post_init__(self) -> None:
        if len(self.secret) != CODE_LENGTH:
            raise ValueError("a recovery code has 20 bytes")

    @classmethod
    def generate(cls) -> Self:
        return cls(secrets.token_bytes(CODE_LENGTH))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a code that a user typed. Case, blanks and hyphens do not matter; I and L are read
        as 1, O as 0.

        Raises RecoveryCodeError if it is not a code or has a typing error. Up to four wrong
        characters are always detected.
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
        """Return the code as text to show once: `CR…-…`, eight groups of five."""
        number = int.from_bytes(self.secret, "big")
        symbols = [number >> _BITS * place & 2**_BITS - 1 for place in reversed(range(_SYMBOLS))]
        text = MARK + "".join(_ALPHABET[value] for value in [*symbols, *bech32m.checksum(_CHECKSUM_PREFIX, symbols)])
        return "-".join(text[place : place + _GROUP] for place in range(0, len(text), _GROUP))

    @property
    def identity(self) -> Identity:
        """The identity that the code stands for. Its Ed25519 key is on the roster, and its wrap key
        decrypts the epoch keys that were encrypted to it.
        """
        return Identity(hashlib.blake2b(key=self.secret, person=_SEED_PERSON, digest_size=KEY_LENGTH).digest())

    def __str__(self) -> str:
        return "a recovery code"
