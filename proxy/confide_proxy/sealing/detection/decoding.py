"""Decoded views of a text, to find credentials that are hidden in it.

A view removes invisible characters, undoes one level of escapes, base64 or hex, or joins a word
that a line break splits. A `View` maps its positions back to the original text, so that a finding
in the view replaces everything that encodes it. Only one level is undone. The cost is linear in the
length of the text.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from confide_proxy.sealing.detection.prefilter import compile_once

_IGNORED: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U000e0000-\U000e0fff"
)
"""Characters that Unicode ignores by default (DerivedCoreProperties, Default_Ignorable_Code_Point):
zero-width spaces and joiners, direction marks, the soft hyphen, the byte order mark, variation
selectors, tags, fillers.
"""
_INVISIBLE: Final = f"[{_IGNORED}]+|[\uff01-\uff5e]"
"""Invisible characters, and full-width letters and punctuation, which read as ASCII."""
_FULL_WIDTH: Final = 0xFF01
_TO_ASCII: Final = _FULL_WIDTH - 0x21
_EMPHASIS: Final = (
    r"(?:\*(?<=[\w-]\*)\*{0,2}|~~(?<=[\w-]~~)|</?(?:b|i|em|strong|mark|code|u)>|<!--[^>]{0,80}-->)(?=[\w<-])"
)
"""Punctuation comes first: an expression that starts with one of three characters searches ten
times as fast.
"""
_ESCAPE: Final = (
    # Bytes above 127 form characters together: UTF-8 in percent or `\x` escapes.
    r"(?:%[89A-Fa-f][0-9A-Fa-f]){1,4}|(?:\\x[89A-Fa-f][0-9A-Fa-f]){1,4}|%[2-7][0-9A-Fa-f]|\\x[2-7][0-9A-Fa-f]"
    r"|(?:\\u[0-9A-Fa-f]{4}){1,2}|\\u\{[0-9A-Fa-f]{1,6}\}|&#[0-9]{2,7};|&#[xX][0-9A-Fa-f]{2,6};|&(?:amp|lt|gt|quot|apos);"
)
_QUOTED: Final = r"|\\[\"'/\\]"
_NAMED: Final = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'"}
_SHORTEST: Final = 11
"""Length of eight bytes in base64 without padding."""
LONGEST_RUN: Final = 4096
_BASE64: Final = r"[A-Za-z0-9+/_-]{%d,}+={0,2}"
SHORTEST_LINE: Final = 40
"""The shortest line of wrapped base64, in characters."""
_SHORTEST_HEX: Final = 16
_WRAPPED: Final = r"([A-Za-z0-9+/_-]{40,128})(?:\r?\n[ \t]{0,40}[A-Za-z0-9+/_-]{1,128}){1,64}={0,2}(?![A-Za-z0-9+/=_-])"
"""Wrapped base64 as in mail and PEM: all lines but the last have the same length."""
_HEX: Final = r"(?<![A-Za-z0-9])(?:0x)?((?:[0-9A-Fa-f]{2}){8,}+)(?![A-Za-z0-9])"
_JOINTS: Final = frozenset("+/_-")
_MOST_JOINTS: Final = 8
_LONGEST_PART: Final = 512
_MARK: Final = r"(?:[>|#*+]|//)[ \t]{0,4}"
_NEXT_LINE: Final = rf"([ \t]{{0,40}})((?:{_MARK}){{0,4}})\S{{1,512}}"
_CONTINUED: Final = "\\"


class View:
    """A decoded form of a text or of a part of it, with a map from its positions to those in the
    original text.
    """

    __slots__ = ("_changes", "_starts", "text")

    def __init__(self, text: str, changes: list[tuple[int, int, int, int]]) -> None:
        """`changes` lists, in order, (start, end) in `text` of each decoded part and (start, end)
        of its source in the original.
        """
        self.text = text
        self._changes = changes
        self._starts = [change[0] for change in changes]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the start and end, in the original text, of the part from which the characters
        from `start` to `end` were decoded.
        """
        return self._place(start)[0], self._place(end - 1)[1]

    def cut(self, start: int, end: int) -> int | None:
        """Return the first position between `start` and `end` of this view at which characters of
        the original were left out, or None if there is none.
        """
        after = bisect_right(self._starts, start)
        return self._starts[after] if after < len(self._starts) and self._starts[after] < end else None

    def _place(self, at: int) -> tuple[int, int]:
        behind = bisect_right(self._starts, at)
        if not behind:
            return at, at + 1
        _, end, there, there_end = self._changes[behind - 1]
        return (there, there_end) if at < end else (at - end + there_end, at - end + there_end + 1)


def visible(text: str) -> View | None:
    """Return a view without invisible characters and with full-width characters as ASCII; None if
    the text contains neither.
    """
    if text.isascii() or not compile_once(_INVISIBLE).search(text):
        return None
    return _replace(text, compile_once(_INVISIBLE), _narrow_letter)


def _narrow_letter(letters: str) -> str:
    return chr(ord(letters) - _TO_ASCII) if "\uff01" <= letters <= "\uff5e" else ""


def strip_emphasis(text: str) -> View | None:
    """Return a view without emphasis marks inside words (`ghp_**…**`); None if there are no such
    marks.
    """
    if not any(mark in text for mark in ("*", "~~", "</", "<!--")) or not compile_once(_EMPHASIS).search(text):
        return None
    return _replace(text, compile_once(_EMPHASIS), lambda _: "")


def unescape(text: str, *, is_quoted: bool = True) -> View | None:
    """Return a view with escapes such as `\\u0041`, `\\x41`, `%41` and `&#65;` decoded; None if
    there are none.

    `is_quoted` also decodes `\\"` and `\\/`, as in JSON.
    """
    expression = compile_once(_ESCAPE if not is_quoted else _ESCAPE + _QUOTED)
    if not ("%" in text or "\\" in text or "&" in text) or not expression.search(text):
        return None
    return _replace(text, expression, _meaning)


def encoded_runs(text: str, shortest: int = _SHORTEST, longest: int = LONGEST_RUN) -> Iterator[View]:
    """Yield a view of each run of base64 (RFC 4648, 4 and 5, padded or not) or hex digits that
    decodes to text.

    `shortest` and `longest` limit the runs, in characters.
    """
    behind = 0
    for match in compile_once(_BASE64 % shortest).finditer(text):
        start, end = match.span()
        if end - start <= longest and (view := _of_base64(match[0], start)):
            yield view
        if end - start >= _SHORTEST_HEX and not match[0].isalpha():
            for digits in compile_once(_HEX).finditer(text, start, end):
                if digits.end() - digits.start() <= 2 * longest and (decoded := _text(bytes.fromhex(digits[1]))):
                    yield View(decoded, [(0, len(decoded), *digits.span())])
        if end - start >= SHORTEST_LINE and start >= behind and text[end : end + 1] in ("\r", "\n"):
            if (lines := compile_once(_WRAPPED).match(text, start)) and (decoded := _of_lines(lines)):
                yield View(decoded, [(0, len(decoded), *lines.span())])
            behind = lines.end() if lines else end


def is_text_in_base64(run: str) -> bool:
    """Return True if a run of base64 decodes to text. The decoded text is then searched for
    credentials, instead of judging the run itself.
    """
    return _decode(run) is not None


def _of_lines(match: re.Match[str]) -> str | None:
    lines, length = match[0].split(), len(match[1])
    is_even = all(len(line) == length for line in lines[1:-1]) and len(lines[-1].rstrip("=")) <= length
    return _decode("".join(lines)) if is_even else None


def join_lines(text: str, shortest: int) -> View | None:
    """Return a view of the words that line breaks may split: each line's last word joined to the
    next line's first word, one pair per line; None if there is no pair.

    If quotation marks or a continuation character stand between the two, the pair is also listed
    without them. Only pairs of at least `shortest` characters are included.
    """
    parts: list[str] = []
    changes: list[tuple[int, int, int, int]] = []
    size = 0
    at = text.find("\n")
    while at >= 0:
        stop = at
        while stop and text[stop - 1] in " \t\r":
            stop -= 1
        word = (
            text[max(0, stop - _LONGEST_PART) : stop].rsplit(None, 1)[-1:] if stop and text[stop - 1] != "\n" else None
        )
        if (
            word
            and (line := compile_once(_NEXT_LINE).match(text, at + 1))
            and len(word[0]) + line.end() - line.end(1) >= shortest
        ):
            start, end = stop - len(word[0]), line.end()
            marks = [line.end(1)]
            if line[2]:
                marks += (line.end(1) + mark.end() for mark in compile_once(_MARK).finditer(line[2]))
            for left in (word[0], word[0][:-1]) if word[0].endswith(_CONTINUED) else word:
                for right in marks:
                    cut = size + len(left)
                    changes += ((size, size, start, start), (cut, cut, start + len(left), right))
                    parts.append(left + text[right:end])
                    size = cut + end - right + 1
        at = text.find("\n", at + 1)
    return View("\n".join(parts), changes) if parts else None


def _replace(text: str, expression: re.Pattern[str], meaning: Callable[[str], str | None]) -> View:
    parts: list[str] = []
    changes: list[tuple[int, int, int, int]] = []
    size = behind = 0
    for match in expression.finditer(text):
        read = meaning(match[0])
        if read is None:
            continue
        parts += (text[behind : match.start()], read)
        size += match.start() - behind
        changes.append((size, size + len(read), *match.span()))
        size += len(read)
        behind = match.end()
    return View("".join((*parts, text[behind:])), changes)


def _meaning(escape: str) -> str | None:
    """Return the character that an escape encodes, or None if it is invalid."""
    if escape in _NAMED:
        return _NAMED[escape]
    try:
        if escape.startswith("%") or escape.startswith("\\x"):
            return bytes.fromhex(escape.replace("%", "").replace("\\x", "")).decode()
        if escape.startswith("\\u{"):
            return chr(int(escape[3:-1], 16))
        if escape.startswith("\\u"):
            return bytes.fromhex(escape.replace("\\u", "")).decode("utf-16-be")
        if escape.startswith("&#"):
            return chr(int(escape[3:-1], 16) if escape[2] in "xX" else int(escape[2:-1]))
    except (ValueError, OverflowError):
        return None
    return escape[1:]


def _of_base64(run: str, at: int) -> View | None:
    if run.isalpha() and (run.islower() or run.isupper() or run.istitle()):
        return None  # a word: one in 20,000 encodings of 8 random bytes looks so
    if decoded := _decode(run):
        return View(decoded, [(0, len(decoded), at, at + len(run))])
    if run.isalnum():
        return None
    # A prefix may be joined to it: `key-…`, `b64/…`.
    begins = [place + 1 for place, letter in enumerate(run) if letter in _JOINTS][:_MOST_JOINTS]
    for begin in begins:
        if len(run) - begin >= _SHORTEST and (decoded := _decode(run[begin:])):
            return View(decoded, [(0, len(decoded), at + begin, at + len(run))])
    return None


def _decode(run: str) -> str | None:
    bare = run.rstrip("=")
    if len(bare) % 4 == 1:
        return None
    if "-" in bare or "_" in bare:
        bare = bare.replace("-", "+").replace("_", "/")
    return _text(binascii.a2b_base64(bare + "=" * (-len(bare) % 4)))


def _text(data: bytes) -> str | None:
    """Decode UTF-8; return None for data with control characters or invalid UTF-8, as nearly all
    data that isn't encoded text has.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or not any(map(_is_control, text)) else None


def _is_control(letter: str) -> bool:
    return letter < " " and letter not in "\t\n\r"
