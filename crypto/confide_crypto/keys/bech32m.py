"""Bech32m (BIP-350), the text encoding of keys and invites. A checksum detects a damaged paste, a
double click selects the whole text, and QR codes encode it in capitals.

There is no limit of 90 characters as in BIP-173 (age does the same). In longer texts errors are
still detected, but not every combination of four is guaranteed to be found.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, reduce
from operator import xor
from typing import Final

_CHARSET: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_VALUES: Final = {character: value for value, character in enumerate(_CHARSET)}
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CONSTANT: Final = 0x2BC830A3
CHECKSUM_LENGTH: Final = 6
MAX_LENGTH: Final = 1023
"""The length up to which BCH codes of this generator exist; far above Confide's texts."""


def encode(prefix: str, data: bytes) -> str:
    """Return `data` as lower-case Bech32m with the human-readable `prefix`."""
    values = list(_regroup(data, 8, 5, pad=True))
    values += checksum(prefix, values)
    return prefix + "1" + "".join(_CHARSET[value] for value in values)


def decode(text: str) -> tuple[str, bytes]:
    """Return the prefix (lower case) and the bytes of a Bech32m string.

    Raises ValueError if the text is malformed. The message never quotes it, since it may be a
    secret.
    """
    prefix, values = decode_values(text)
    return prefix, bytes(_regroup(values, 5, 8, pad=False))


def decode_values(text: str) -> tuple[str, list[int]]:
    """Return the prefix and the 5-bit values of a Bech32m string, without the checksum.

    Raises ValueError if the text is malformed.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError("too long")
    if any(not 33 <= ord(character) <= 126 for character in text):
        raise ValueError("a character that cannot occur")
    if text != text.lower() and text != text.upper():
        raise ValueError("capital and small letters mixed")
    prefix, separator, tail = text.lower().rpartition("1")
    if not separator or not prefix or len(tail) < CHECKSUM_LENGTH:
        raise ValueError("cut short")
    try:
        values = [_VALUES[character] for character in tail]
    except KeyError:
        raise ValueError("a character that cannot occur") from None
    if _polymod(values, _polymod(_expand(prefix))) != _CONSTANT:
        raise ValueError("the checksum does not fit")
    return prefix, values[:-CHECKSUM_LENGTH]


def checksum(prefix: str, values: Iterable[int]) -> list[int]:
    """Return the six 5-bit checksum values that follow `values`.

    The checksum detects every change of up to four characters if values and checksum together have
    at most 89 characters (BIP-173).
    """
    whole = _polymod(bytes(CHECKSUM_LENGTH), _polymod(values, _checksum_start(prefix))) ^ _CONSTANT
    return [(whole >> 5 * (5 - place)) & 31 for place in range(CHECKSUM_LENGTH)]


@cache
def _checksum_start(prefix: str) -> int:
    """Return the checksum register after a prefix."""
    return _polymod(_expand(prefix))


def _polymod(values: Iterable[int], check: int = 1) -> int:
    for value in values:
        check = (check & 0x1FFFFFF) << 5 ^ value ^ _FOLDED[check >> 25]
    return check


def _checksum_term(top: int) -> int:
    """Return the value that is added to the register for the five bits that leave it at the top."""
    return reduce(xor, (term for place, term in enumerate(_GENERATOR) if top >> place & 1), 0)


_FOLDED: Final = tuple(map(_checksum_term, range(32)))
"""The results of `_checksum_term` for all five-bit values, since a scan of a text for secrets computes
many checksums.
"""


def _expand(prefix: str) -> list[int]:
    return [ord(character) >> 5 for character in prefix] + [0] + [ord(character) & 31 for character in prefix]


def _regroup(data: Iterable[int], from_bits: int, to_bits: int, *, pad: bool) -> Iterable[int]:
    accumulator = bits = 0
    for value in data:
        accumulator = (accumulator << from_bits | value) & ((1 << from_bits + to_bits) - 1)
        bits += from_bits
        while bits >= to_bits:
            bits -= to_bits
            yield accumulator >> bits & ((1 << to_bits) - 1)
    rest = accumulator & ((1 << bits) - 1)
    if pad and bits:
        yield rest << to_bits - bits
    elif not pad and (bits >= from_bits or rest):
        raise ValueError("bits left over")  # else two texts would decode to the same bytes
