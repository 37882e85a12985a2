"""Numbers by which clients name a change: each identifies a position in the sequence of a space's
changes without revealing it.

The sequence counts the changes of all projects, so in clear it would reveal the activity in other
projects to a caller that reaches only one. So a number is encrypted by a permutation of 30 bits
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
    """The numbers of one space. `key`: 32 bytes of its database, the same in every copy of it."""

    key: bytes

    def to_client(self, number: int) -> int:
        """Return the number that a client receives for the change with this number, which is at
        least 1 and less than 2**30.
        """
        left, right = number >> _HALF_BITS, number & _HALF
        for step in range(_ROUNDS):
            left, right = right, left ^ self._mix(step, right)
        return _SHOWN + (left << _HALF_BITS | right)

    def from_client(self, shown: int, *, is_limited: bool) -> int:
        """Return the change number that a client means; 0 is the beginning.

        A plain number counts as it is. For a caller that does not reach everything (`is_limited`)
        it means the beginning, since the answers would reveal its position among others' changes.
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
