"""What a run has printed, as far as it is kept: the beginning and the end of each stream, without secrets."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from confide_night.runner.masks import Mask

MOST_EACH: Final = 4 * 2**20
"""Bytes of a stream's beginning, and as many of its end."""
LEAST_CONFIDENCE: Final = 0.5
"""Of what is taken out as a credential: a log is read once, and a value too many that is gone costs less than one that stays."""


class LogStream:
    """One stream, masked as it comes in."""

    def __init__(self, values: Collection[bytes]) -> None:
        self._mask = Mask(values)
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._first_size = self._last_size = 0
        self.total = 0

    def feed(self, piece: bytes) -> bytes:
        """Keep a piece; it comes back without secret values, a little later where one may be cut in two."""
        shown = self._mask.feed(piece)
        self._add(shown)
        return shown

    def end(self) -> bytes:
        """The stream has ended: what is left of it."""
        shown = self._mask.end()
        self._add(shown)
        return shown

    def _add(self, piece: bytes) -> None:
        self.total += len(piece)
        room = MOST_EACH - self._first_size
        if room > 0:
            head, piece = piece[:room], piece[room:]
            self._first.append(head)
            self._first_size += len(head)
        if piece:
            self._last.append(piece)
            self._last_size += len(piece)
            while self._last_size - len(self._last[0]) >= MOST_EACH:
                self._last_size -= len(self._last.popleft())

    @property
    def text(self) -> str:
        """What is kept, with a line where something is left out."""
        tail = b"".join(self._last)[-MOST_EACH:]
        left_out = self.total - self._first_size - len(tail)
        gap = f"\n[{left_out:,} bytes are left out here]\n".encode() if left_out else b""
        return (b"".join(self._first) + gap + tail).decode("utf-8", "replace")


class RunLog:
    """Of a whole run: a section a step, in order."""

    def __init__(self, values: Collection[bytes]) -> None:
        """`values`: the secrets of the run."""
        self._values = values
        self._sections: list[tuple[str, LogStream]] = []

    def section(self, title: str) -> LogStream:
        """A new section, for a stream of that name."""
        kept = LogStream(self._values)
        self._sections.append((title, kept))
        return kept

    def note(self, line: str) -> None:
        """A line of ours."""
        self.section(line).end()

    def redacted(self) -> str:
        """All of it, with what looks like a credential taken out. Takes a while: for a thread."""
        parts = []
        for title, kept in self._sections:
            text = kept.text
            parts.append(f"== {title}\n{text}{'' if text.endswith(chr(10)) or not text else chr(10)}")
        return redacted("".join(parts))


def redacted(text: str) -> str:
    """A text without what looks like a credential."""
    from confide_proxy.sealing.detection import scanner  # 5 MB, which a runner that waits does without

    out, at = [], 0
    for found in scanner.outside(text, scanner.scan(text, LEAST_CONFIDENCE)):
        out += [text[at : found.start], f"(redacted:{found.kind})"]
        at = found.end
    out.append(text[at:])
    return "".join(out)
