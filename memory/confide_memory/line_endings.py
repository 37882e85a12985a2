"""How a text is written apart from its lines: a byte order mark, "\\r\\n", a last line without an end.

Editors change these without being asked. What compares or merges lines does so on the plain form, and puts the style back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Style:
    """How a text is written; None where it is too short to tell."""

    marked: bool | None  # begins with a byte order mark
    crlf: bool | None  # most of its lines end in "\r\n"
    ended: bool | None  # its last line has an end

    def apply(self, plain: str) -> str:
        """A plain text written in this style."""
        text = plain
        if self.ended is False:
            text = text.removesuffix("\n")
        if self.crlf:
            text = text.replace("\n", "\r\n")
        return MARK + text if self.marked and text else text


def style_of(text: str) -> Style:
    """The style of a text."""
    body = text.removeprefix(MARK)
    if not body:
        return Style(None, None, None)
    ends, windows = body.count("\n"), body.count("\r\n")
    return Style(body != text, windows * 2 > ends if ends else None, body.endswith("\n"))


def plain(text: str) -> str:
    """The text without a mark, its lines ending in "\\n", the last one too."""
    body = text.removeprefix(MARK).replace("\r\n", "\n")
    return body + "\n" if body and not body.endswith("\n") else body


def in_style_of(text: str | None, change: Callable[[str | None], str]) -> str:
    """What `change` makes of a text, with the mark and the line ends that the text had; it gets the plain form where they are special."""
    style = style_of(text or "")
    if text is None or not (style.marked or style.crlf):
        return change(text)
    return replace(style, ended=None).apply(change(plain(text)).replace("\r\n", "\n"))


def merged_style(base: str, ours: str, theirs: str) -> Style:
    """The style of a merge: what one side changed counts, theirs (the person's) before ours."""
    before, mine, incoming = style_of(base), style_of(ours), style_of(theirs)
    return Style(
        _merged(before.marked, mine.marked, incoming.marked),
        _merged(before.crlf, mine.crlf, incoming.crlf),
        _merged(before.ended, mine.ended, incoming.ended),
    )


def _merged(before: bool | None, ours: bool | None, theirs: bool | None) -> bool | None:
    if theirs is None or theirs == before:
        return ours if ours is not None else theirs
    return theirs
