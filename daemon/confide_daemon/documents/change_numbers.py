"""The numbers by which clients name a change: each stands for a place in the sequence of a space's changes, and tells nothing of it.

The sequence counts the changes of all projects. Shown as it is, it would be a diary of the others for a caller that reaches one of them.
So a number is put through a permutation of 30 bits under a key of the database: four rounds of Feistel with BLAKE2b (Luby and Rackoff,
1988). A number says nothing of its neighbours, not even which of two is the later one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

_HALF_BITS: Final = 15
_HALF: Final = (1 << _HALF_BITS) - 1
_BITS: Final = 2 * _HALF_BITS
_SHOWN: Final = 1 << 31
"""Added to what is shown, so that a plain number, as earlier versions showed it, is told apart.

The sum is below 2**32, which machines of earlier versions take.
"""
_ROUNDS: Final = 4
_ABOUT: Final = b"confide change"


@dataclass(frozen=True, slots=True)
class ChangeNumbers:
    """Those of one space. `key`: 32 bytes of its database, which every copy of it has."""

    key: bytes

    def shown(self, number: int) -> int:
        """What a client is given for the change with this number, at least 1 and less than 2**30."""
        left, right = number >> _HALF_BITS, number & _HALF
        for step in range(_ROUNDS):
            left, right = right, left ^ self._mix(step, right)
        return _SHOWN + (left << _HALF_BITS | right)

    def meant(self, shown: int, *, is_limited: bool) -> int:
        """The number that a client means; 0 is the beginning.

        A plain number counts as it is, but for a caller that does not reach everything (`is_limited`): for that one it is the beginning,
        since its answers would tell how the number stands to others.
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
