"""Secret values taken out of a stream of bytes, also where one is cut in two by how the stream comes in."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final

SHOWN: Final = b"(masked)"
_SHORTEST: Final = 6
"""A shorter value would be found in everything; nobody keeps a secret in five bytes."""


class Mask:
    """Masks the values of a run in one stream: as they are, and as base64 at the start of an encoded text."""

    def __init__(self, values: Iterable[bytes]) -> None:
        found: set[bytes] = set()
        for value in values:
            for each in (value, value.strip(), *value.split(b"\n")):
                if len(each) >= _SHORTEST:
                    encoded = base64.b64encode(each)
                    # Without its last letters, which depend on what comes behind.
                    found |= {each, encoded[: len(each) // 3 * 4]}
        # The longest first, since one may be a part of another.
        ordered = sorted(found, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None
        self._longest = len(ordered[0]) if ordered else 0
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What of the stream can go on: all but an end that could be the beginning of a value."""
        if self._pattern is None:
            return piece
        text = self._held + piece
        out, at = [], 0
        # A value that could begin in the held part, and be the longer one of two, is looked for once more of it is there.
        safe = max(0, len(text) - self._longest + 1)
        for found in self._pattern.finditer(text):
            if found.start() >= safe:
                break
            out += [text[at : found.start()], SHOWN]
            at = found.end()
        end = max(at, safe)
        out.append(text[at:end])
        self._held = text[end:]
        return b"".join(out)

    def whole(self, text: bytes) -> bytes:
        """All of a text that is there at once."""
        return self.feed(text) + self.end()

    def end(self) -> bytes:
        """The rest."""
        rest, self._held = self._held, b""
        return self._pattern.sub(SHOWN, rest) if self._pattern is not None else rest
