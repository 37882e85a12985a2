"""The log of a run: the beginning and the end of each output stream, without secrets."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from confide_proxy.sealing.masking import SHOWN, Mask, SecretForms

MOST_EACH: Final = 4 * 2**20
"""Bytes kept of a stream's beginning, and as many of its end."""
LEAST_CONFIDENCE: Final = 0.5
"""Confidence from which a detected credential is removed. It is low: losing a harmless value from a
log costs less than keeping a secret.
"""


class LogStream:
    """The log of one output stream; secrets are masked as it arrives."""

    def __init__(self, forms: SecretForms) -> None:
        self._mask = Mask(forms)
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._first_size = self._last_size = 0
        self.total = 0

    def feed(self, piece: bytes) -> bytes:
        """Add a piece; return it without secrets, delayed if a value may be split across pieces."""
        shown = self._mask.feed(piece)
        self._add(shown)
        return shown

    def end(self) -> bytes:
        """End the stream; return the masked rest."""
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
        """Return the kept parts, with a line in place of what was left out."""
        tail = b"".join(self._last)[-MOST_EACH:]
        left_out = self.total - self._first_size - len(tail)
        gap = f"\n[{left_out:,} bytes are left out here]\n".encode() if left_out else b""
        return (b"".join(self._first) + gap + tail).decode("utf-8", "replace")


class RunLog:
    """The log of a whole run, with one section per output stream, in order."""

    def __init__(self, values: Collection[bytes]) -> None:
        """Args:
        values: the secrets of the run.
        """
        self.forms = SecretForms(dict.fromkeys(values, SHOWN))
        self._sections: list[tuple[str, LogStream]] = []

    def section(self, title: str) -> LogStream:
        """Append a section with this title to the log, and return the stream that fills it."""
        kept = LogStream(self.forms)
        self._sections.append((title, kept))
        return kept

    def note(self, line: str) -> None:
        """Add a line with text of the runner itself."""
        self.section(line).end()

    def redact(self) -> str:
        """Return the whole log without suspected credentials. Slow: call it in a thread."""
        parts = []
        for title, kept in self._sections:
            text = kept.text
            parts.append(f"== {title}\n{text}{'' if text.endswith(chr(10)) or not text else chr(10)}")
        return redact("".join(parts))


def redact(text: str) -> str:
    """Return a text in which suspected credentials are replaced."""
    from confide_proxy.sealing.detection import scanner  # 5 MB of memory that an idle runner saves

    out, at = [], 0
    for found in scanner.outside(text, scanner.scan(text, LEAST_CONFIDENCE)):
        out += [text[at : found.start], f"(redacted:{found.kind})"]
        at = found.end
    out.append(text[at:])
    return "".join(out)
