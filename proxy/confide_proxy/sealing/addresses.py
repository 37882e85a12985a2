"""Where a text would send a value to somebody else: addresses, link targets, images and tags.

Whoever renders such a text fetches the address, and what stands in it goes along. So a sealed value is put back into one only where this
machine's own file had it in the same one. It knows no keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from confide_crypto.sealing.placeholder import STANDIN

_MOST_BEFORE: Final = 16 * 1024
"""Characters that are looked at before a value: a tag or a target that is longer is none that anybody has written."""
_TAG: Final = re.compile(r"<[A-Za-z/!?]")
_TARGET: Final = re.compile(r"\]\(|url\(", re.IGNORECASE)
_DEFINITION: Final = re.compile(r"^[ ]{0,3}\[[^\]\n]+\]:[ \t]*(?:\n[ \t]*)?\S*\Z", re.MULTILINE)
_ADDRESS: Final = re.compile(
    r"://|^\W*(?://|\\\\|www\.)|(?:^|\W)(?:https?|wss?|ftp|file|data|javascript|mailto):|[\w-]\.[A-Za-z]{2,}(?::\d+)?[/?#\\]",
    re.IGNORECASE,
)


def moved(text: str, before: str) -> Iterator[tuple[int, int]]:
    """The spans (characters) of placeholders in `text` that stand in an address which is not, up to there, in `before` as well."""
    # A placeholder holds brackets and colons of its own.
    plain = STANDIN.sub(lambda found: "x" * len(found[0]), text)
    for found in STANDIN.finditer(text):
        begin = _begin(plain, found.start())
        if begin is not None and text[begin : found.end()] not in before:
            yield found.span()


def _begin(plain: str, start: int) -> int | None:
    """Where the address begins that what begins at `start` is in; None: it is in none."""
    least = max(0, start - _MOST_BEFORE)
    tag = plain.rfind("<", least, start)
    if tag >= 0 and ">" not in plain[tag:start] and _TAG.match(plain, tag):
        return tag
    for target in reversed(list(_TARGET.finditer(plain, least, start))):
        if ")" not in plain[target.end() : start]:
            return target.start()
        break
    if (definition := _DEFINITION.search(plain, _two_lines_up(plain, start), start)) is not None:
        return definition.start()
    begin = start
    while begin > least and not plain[begin - 1].isspace():
        begin -= 1
    return begin if _ADDRESS.search(plain[begin:start]) else None


def _two_lines_up(plain: str, start: int) -> int:
    line = plain.rfind("\n", 0, start)
    return plain.rfind("\n", 0, max(line, 0)) + 1
