"""Masks secret values in a stream of bytes, even if a value is split across pieces."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final

SHOWN: Final = b"(masked)"
_SHORTEST: Final = 6
"""Shortest value that is masked, in bytes; a shorter one would match everywhere, and is too short
for a secret.
"""


class Mask:
    """Masks a run's secret values in one stream, both verbatim and as base64 at the start of an
    encoded text.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        found: set[bytes] = set()
        for value in values:
            for each in (value, value.strip(), *value.split(b"\n")):
                if len(each) >= _SHORTEST:
                    encoded = base64.b64encode(each)
                    # The last letters are left out, since they depend on the following bytes.
                    found |= {each, encoded[: len(each) // 3 * 4]}
        # Longest first, since a value may contain another.
        ordered = sorted(found, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None
        self._longest = len(ordered[0]) if ordered else 0
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the masked bytes that can be released; an end that could be the beginning of a
        value is held back.
        """
        if self._pattern is None:
            return piece
        text = self._held + piece
        out, at = [], 0
        # A longer value could begin in the held part; search again once more bytes have arrived.
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
        """Mask a complete text."""
        return self.feed(text) + self.end()

    def end(self) -> bytes:
        """Return the masked rest of the stream."""
        rest, self._held = self._held, b""
        return self._pattern.sub(SHOWN, rest) if self._pattern is not None else rest
