"""Find passwords that are announced in other languages: "la clave es …", "пароль: …", "密码：…".

The word for a password is searched in the lower-case text, then the connecting word or sign, then
the value of printable ASCII characters. In languages without blanks between words the value ends at
the first other character.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.key_names import promise_of
from confide_proxy.sealing.detection.plausibility import Context, judge_value
from confide_proxy.sealing.detection.prefilter import FOREIGN_MARKS, compile_once, places

_IN_ASCII: Final = tuple(mark for mark in FOREIGN_MARKS if mark.isascii())
_SAID: Final = (
    # Endings, and up to four words for its purpose.
    r"[^\W\d_]{0,4}(?:[ \t](?!(?:es|est|è|é|ist|is|je|to|är|er|on|e)[ \t])[^\W\d][\w.'-]{0,30}){0,4}?"
    r"(?:[ \t]{0,3}(?:[:=]|->|[ \t][—–-](?=[ \t]))"
    r"|[ \t]{1,3}(?:es|est|è|é|ist|lautet|is|je|to|är|er|on|e|это|adalah|là|:)(?=[ \t:])|[ \t]{0,2}(?:是|为|為|は|는|은))"
    r"[ \t:]{0,3}[\"'`«「『]?[ \t]{0,2}(?P<value>[!#-&*+./0-9:<=>?@A-Z^_a-z|~-]{6,128}+)(?![(\[{])"
)


def find(text: str, lowered: str) -> Iterator[SecretFinding]:
    """Yield each password that follows a word for "password" in another language. `lowered` is the
    text in lower case with the same positions.
    """
    promise = promise_of("password")
    for mark in _IN_ASCII if lowered.isascii() else FOREIGN_MARKS:
        for at in places(lowered, mark):
            match = compile_once(_SAID).match(lowered, at + len(mark))
            if match is None or promise is None:
                continue
            start, end = match.span("value")
            while end > start and text[end - 1] in ",;.:!?)":
                end -= 1
            if sure := judge_value(text[start:end], mark, promise, Context("spoken", is_quoted=False, is_line=False)):
                yield SecretFinding(sure[0], start, end, sure[1], "assignment")
