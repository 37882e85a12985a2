"""What every backend does with pieces alike: their hash, their keyword header, and which of them stay when a document is cut again."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from datetime import UTC, datetime

# Above this, exact alignment costs more than the ids it would save.
ALIGNED_PIECES = 2000


def piece_hash(text: str) -> bytes:
    """What makes two pieces the same text: they share a vector."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def piece_header(path: str, heading: str, words: str = "") -> str:
    """What is searched beside the text, in a column of its own: file name with its date, headings, and the words of a note's fields.

    It stays out of the embedded text, where it would hurt (retrieval.md 1.3).
    """
    stem = re.sub(r"[-_/.]+", " ", path.removesuffix(".md"))
    return f"{stem} | {heading} | {words}" if words else f"{stem} | {heading}"


def iso_day(moment: float) -> str:
    """The UTC day of a moment given in seconds since 1970."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def match_pieces(old: Sequence[bytes], new: Sequence[bytes]) -> dict[int, int]:
    """Which old piece each new one with the same text is: {new position: old position}, each old piece once.

    Runs are aligned where that is cheap, so that of equal pieces those in their place stay; what is left is matched by hash in order.
    """
    matched: dict[int, int] = {}
    if Counter(old) == Counter(new) and list(old) == list(new):
        return {position: position for position in range(len(new))}
    if len(old) <= ALIGNED_PIECES and len(new) <= ALIGNED_PIECES:
        for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            for offset in range(block.size):
                matched[block.b + offset] = block.a + offset
    taken = set(matched.values())
    free: dict[bytes, deque[int]] = defaultdict(deque)
    for position, digest in enumerate(old):
        if position not in taken:
            free[digest].append(position)
    for position, digest in enumerate(new):
        if position not in matched and free[digest]:
            matched[position] = free[digest].popleft()
    return matched
