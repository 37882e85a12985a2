"""Encrypts the numbers by which clients refer to changes. Each number identifies a position in the
sequence of a space's changes, and must not reveal that position.

The sequence counts the changes of all projects. Unencrypted, it would reveal the activity in other
projects to a client that may access only one. So a number is encrypted by a permutation of 30 bits
under a key of the database: four Feistel rounds with BLAKE2b (Luby and Rackoff, 1988). A number
reveals nothing about others, not even which of two is later.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

_HALF_BITS: Final = 15
_HALF: Final = (1 << _HALF_BITS) - 1
_BITS: Final = 2 * _HALF_BITS
_SHOWN: Final = 1 << 31
"""Added to encrypted numbers, to distinguish them from the plain numbers of earlier versions.

The sum is below 2**32, which devices of earlier versions accept.
"""
_ROUNDS: Final = 4
_ABOUT: Final = b"confide change"


@dataclass(frozen=True, slots=True)
class ChangeNumbers:
    """Encrypts and decrypts the change numbers of one space. `key` has 32 bytes and is the same in
    every copy of the space's database.
    """

    key: bytes

    def to_client(self, number: int) -> int:
        """Encrypt a change number (at least 1 and less than 2**30) for a client."""
        left, right = number >> _HALF_BITS, number & _HALF
        for step in range(_ROUNDS):
            left, right = right, left ^ self._mix(step, right)
        return _SHOWN + (left << _HALF_BITS | right)

    def from_client(self, shown: int, *, is_limited: bool) -> int:
        """Decrypt a change number that a client sent; 0 means the beginning.

        Earlier versions sent unencrypted numbers. Such a number is accepted as it is, unless the
        client may access only a part of the space (`is_limited`). Then it means the beginning,
        since the answers would reveal its position among other projects' changes.
        """
        if not _SHOWN <= shown < _SHOWN + (1 << _BITS):
            return 0 if is_limited else shown
        left, right = (shown - _SHOWN) >> _HALF_BITS, shown & _HALF
        for step in reversed(range(_ROUNDS)):
            left, right = right ^ self._mix(step, left), left
        return left << _HALF_BITS | right

    def _mix(self, step: int, half: int) -> int:
        text = bytes([step]) + half.to_bytes(2)
        return int.from_bytes(hashlib.blake2b(text, key=self.key, person=_ABOUT, digest_size=2).digest()) & _HALF
