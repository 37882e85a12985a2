"""Where a text would send a value to somebody else: addresses, link targets, images and tags.

Whoever renders such a text fetches the address, and what stands in it goes along. So a sealed value is put back into one only where this
machine's own file had it in the same one. It knows no keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from confide_crypto.sealing.placeholder import STANDIN

_MOST: Final = 16 * 1024
"""Characters that an address may have up to a value and be compared: nobody has written a longer one, so a value stays out of it."""
_SIGNS: Final = re.compile(r"\](?:\(|:)\s*<|\]\(|url\(|\)|<(?=[A-Za-z/!?])|>|[\"']", re.IGNORECASE)
_OPENS: Final = re.compile(r"\s*(?:=\s*[^\s\"'<>/=]*|\(lru|tropmi@)", re.IGNORECASE)
"""What stands before a quote that opens a value, backwards: of an attribute, or in a style. One that closes has the value before it."""
_LONGEST_OPENING: Final = 256
_DEFINITION: Final = re.compile(r"[ ]{0,3}\[[^\]\n]+\]:[ \t]*(?:\n[ \t]*)?\S*\Z")
_ADDRESS: Final = re.compile(
    r"://|^\W*(?://|\\\\|www\.)|(?:^|\W)(?:https?|wss?|ftp|file|data|javascript|mailto):|[\w-]\.[A-Za-z]{2,}(?::\d+)?[/?#\\]",
    re.IGNORECASE,
)
_HOST: Final = re.compile(r"[.@][\w-]*[A-Za-z]")
"""Directly behind a value: makes it a label of a host name, or the user at one. Resolving that name sends the value."""
_SPACE: Final = re.compile(r"\s")


def moved(text: str, before: str) -> Iterator[tuple[int, int]]:
    """The spans (characters) of placeholders in `text` that stand in an address which is not, up to there, in `before` as well."""
    # A placeholder holds brackets and colons of its own.
    plain = STANDIN.sub(lambda found: "x" * len(found[0]), text)
    reader = _AddressReader(plain)
    for found in STANDIN.finditer(text):
        reader.read(found.start())
        for begin, end in reader.addresses(*found.span()):
            if end - begin > _MOST or text[begin:end] not in before:
                yield found.span()
                break


class _AddressReader:
    """Reads a text from its begin on, and knows at each place which addresses could be open there.

    Readers of Markdown, of HTML and of styles differ in what they take for closed: one more is taken for open than any of them would.
    """

    def __init__(self, plain: str) -> None:
        self._plain = plain
        self._signs = _SIGNS.finditer(plain)
        self._next = next(self._signs, None)
        self._tag: int | None = None
        self._target: int | None = None
        self._quoted: dict[str, int | None] = {}
        self._is_html = self._is_escaped = False

    def read(self, end: int) -> None:
        """Go on to there."""
        while self._next is not None and self._next.start() < end:
            self._take(self._next[0], self._next.start())
            self._next = next(self._signs, None)

    def addresses(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """From where to where a value that stands at these places is in an address; of `read` up to there."""
        for begin in (self._tag, self._target, *self._quoted.values()):
            if begin is not None:
                yield begin, end
        for line in self._lines(start):
            if _DEFINITION.match(self._plain, line, start):
                yield line, end
        # What has no blank in it is read as one: a host's name may stand behind the value, too.
        is_host = _HOST.match(self._plain, end) is not None
        begin = start
        while begin > 0 and start - begin <= _MOST and not self._plain[begin - 1].isspace():
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
            # Behind a backslash it ends no tag that Markdown reads, unless that one is none either.
            if self._is_escaped or self._plain[at - 1 : at] != "\\":
                self._tag = None
        elif sign in "\"'":
            opens = _OPENS.match(self._plain[max(0, at - _LONGEST_OPENING) : at][::-1]) if self._is_html else None
            self._quoted[sign] = at - opens.end() if opens else None
        else:
            self._target = None if sign == ")" else at

    def _lines(self, start: int) -> Iterator[int]:
        """Where the line begins that this place is in, and the one above."""
        for _ in range(2):
            line = self._plain.rfind("\n", max(0, start - _MOST), max(0, start))
            if line < 0 and start > _MOST:
                return
            yield line + 1
            start = line
