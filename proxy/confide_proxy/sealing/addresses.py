"""Find placeholders inside addresses: URLs, link targets, images and HTML tags.

A program that renders such a text fetches the address, and would send out any secret value inside
it. So the value is put back inside an address only if this device's own file already had it in the
same address. This module uses no keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from confide_crypto.sealing.placeholder import STANDIN

_MOST: Final = 16 * 1024
"""Longest address prefix, in characters, that is compared. In a longer one the value stays sealed.
"""
_SIGNS: Final = re.compile(r"\](?:\(|:)\s*<|\]\(|url\(|\)|<(?=[A-Za-z/!?])|>|[\"']", re.IGNORECASE)
_OPENS: Final = re.compile(r"\s*(?:=\s*[^\s\"'<>/=]*|\(lru|tropmi@)", re.IGNORECASE)
"""Text before a quote that opens a value, matched backwards: an attribute name with `=`, `url(` or
`@import`. Before a closing quote stands the value instead.
"""
_LONGEST_OPENING: Final = 256
_DEFINITION: Final = re.compile(r"[ ]{0,3}\[[^\]\n]+\]:[ \t]*(?:\n[ \t]*)?\S*\Z")
_ADDRESS: Final = re.compile(
    r"://|^\W*(?://|\\\\|www\.)|(?:^|\W)(?:https?|wss?|ftp|file|data|javascript|mailto):"
    r"|[\w-]\.[^\W\d_][\w-]+(?::\d+)?[/?#\\]",
    re.IGNORECASE,
)
_HOST: Final = re.compile(r"[.@][\w-]*[^\W\d_]")
"""Text directly after a value that makes the value a label of a host name, or a user name before
one. Resolving that host name discloses the value.
"""
_BLANKS: Final = " \t\n\r\f\v"
"""Characters that end an address outside of brackets. Unicode's other blanks do not: renderers link
`https://a.example/?\u00a0b` whole.
"""
_SPACE: Final = re.compile(f"[{_BLANKS}]")


def moved_placeholders(text: str, before: str) -> Iterator[tuple[int, int]]:
    """Yield the positions (start and end, in characters) of placeholders in `text` that are inside
    an address, unless `before` contains the same address up to that point.
    """
    # Placeholders contain brackets and colons themselves.
    plain = STANDIN.sub(lambda found: "x" * len(found[0]), text)
    reader = _AddressReader(plain)
    for found in STANDIN.finditer(text):
        reader.read(found.start())
        for begin, end in reader.addresses(*found.span()):
            if end - begin > _MOST or text[begin:end] not in before:
                yield found.span()
                break


class _AddressReader:
    """A reader that scans a text from its start and tracks which addresses may be open at each
    position.

    Renderers of Markdown, HTML and CSS differ in what closes an address. The reader errs towards
    open: it treats more addresses as open than any of them does.
    """

    def __init__(self, plain: str) -> None:
        self._plain = plain
        self._signs = _SIGNS.finditer(plain)
        self._next = next(self._signs, None)
        self._tag: int | None = None
        self._target: int | None = None
        self._quotes: dict[str, int | None] = {}
        self._is_html = self._is_escaped = False

    def read(self, end: int) -> None:
        """Scan forward to the position `end`."""
        while self._next is not None and self._next.start() < end:
            self._take(self._next[0], self._next.start())
            self._next = next(self._signs, None)

    def addresses(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of the addresses that may contain the characters from `start` to `end`.

        Call `read(start)` first.
        """
        for begin in (self._tag, self._target, *self._quotes.values()):
            if begin is not None:
                yield begin, end
        for line in self._lines(start):
            if _DEFINITION.match(self._plain, line, start):
                yield line, end
        # A run without whitespace is checked as one address, since a host name may follow the value
        # too.
        is_host = _HOST.match(self._plain, end) is not None
        begin = start
        while begin > 0 and start - begin <= _MOST and self._plain[begin - 1] not in _BLANKS:
            begin -= 1
        after = _SPACE.search(self._plain, end, end + _MOST)
        end = after.start() if after is not None else min(len(self._plain), end + _MOST)
        if is_host or start - begin > _MOST or _ADDRESS.search(self._plain[begin:end]):
            yield begin, end

    def _take(self, sign: str, at: int) -> None:
        if sign[-1] == "<":
            if self._tag is None:
                self._tag, self._is_escaped = at, self._plain[at - 1 : at] == "\\"
            self._is_html = True
        elif sign == ">":
            # In Markdown an escaped `\>` closes no tag, unless the tag's `<` was escaped too.
            if self._is_escaped or self._plain[at - 1 : at] != "\\":
                self._tag = None
        elif sign in "\"'":
            opens = _OPENS.match(self._plain[max(0, at - _LONGEST_OPENING) : at][::-1]) if self._is_html else None
            self._quotes[sign] = at - opens.end() if opens else None
        else:
            self._target = None if sign == ")" else at

    def _lines(self, start: int) -> Iterator[int]:
        """Yield the start of the line that contains this position, and of the line before it."""
        for _ in range(2):
            line = self._plain.rfind("\n", max(0, start - _MOST), max(0, start))
            if line < 0 and start > _MOST:
                return
            yield line + 1
            start = line
