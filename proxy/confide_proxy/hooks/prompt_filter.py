"""Select the part of a prompt for which memory is searched. Most prompts need no memory, and every
search result costs tokens for the rest of the session.

These are pure functions without I/O or a model. A prompt that is rejected here causes no search;
for the others, `server.recall.HIT_SCORE` is the lowest score of a result that is shown.
"""

from __future__ import annotations

import re
from typing import Final

from confide_memory.tools.words import RUN, is_hash

MOST_CHARS: Final = 1000
LEAST_WORDS: Final = 2
"""Fewest content words of a question."""

_LETTERS_A_WORD: Final = 3
"""Letters that count as a word in scripts without blanks between words, as Chinese and Thai."""

_OPENED: Final = re.compile(r"(?:<|&lt;)(confide-memory|hook_context)(?:>|&gt;)", re.IGNORECASE)
_CLOSED: Final = {
    name: re.compile(rf"(?:<|&lt;)/{name}(?:>|&gt;)", re.IGNORECASE) for name in ("confide-memory", "hook_context")
}
_FENCE: Final = re.compile(r" {0,3}(```|~~~)")
_WORD: Final = re.compile(r"[^\W_][\w'’.+#-]*")
_NUMBERED: Final = re.compile(r"[-_]\d|\d\d|#\d")
_NUMBER: Final = re.compile(r"\d[\d.,]*")
_COUNTED: Final = re.compile(r"[^\W\d_]{3} #?\d{3}")
"""The end of a word and the beginning of a longer number, such as "invoice 4471"."""
_NO_QUESTIONS: Final = ("/", "!", "#")
"""Starts of commands of clients and shells, and of notes."""

_EMPTY: Final = frozenset(
    """a an and are as at be been being but by can could did do does doing done for from had has have he her him his i i'd i'll i'm
    if in into is it it's its just let let's may me might must my no not now of off ok okay on or out own please shall she should
    so some such than thanks thank that that's the their them then there these they this those to too up us very was were will
    with would yeah yes you your also here all any again more back down over well""".split()  # noqa: SIM905 - a list of quoted words would fill a screen
)
"""Words without content of their own. Question words and "we" aren't in it, as they often ask for
memory.
"""
_EVERYDAY: Final = frozenset(
    """add after again anything apply before big bit block branch bug build bump change changed changes check clean cleanup close
    code comment comments commit compile continue correct could create debug delete deploy diff directory docs done edit error
    errors everything everywhere example examples execute explain extract file files fine finish first five fix fixed fixes
    folder format four function get give go good great hello help hey hi how implement improve indent install instead keep
    largest last less line lines lint linter logs long longer look looks made main make merge method module modules more move
    name names need needed next nice number numbers one open option other others output part parts pass perfect print proceed
    project pull push put read rebase redo refactor release remove rename repeat repo rerun rest restart result results retry
    revert review rewrite run same save script second short shorten shorter show showed shown simplify small smallest something
    sort split start statement step steps stop stopped style summarise summarize tell test tests thing things third three tidy
    told try tweak two type types typo undo update use value values variable version versions want wanted warning warnings what
    when where which who whole why work works write wrong""".split()  # noqa: SIM905
)
"""Words of instructions to a coding agent and of comments on its last answer. A prompt of these
alone needs no memory.
"""


def question(prompt: str) -> str:
    """Return the text to search memory for; "" if the prompt needs no search."""
    text = _without_blocks(prompt).strip()
    if text.startswith(_NO_QUESTIONS):
        return ""
    text = " ".join(_without_code(text).split())[:MOST_CHARS]
    if _COUNTED.search(text) or any(map(_is_one_of_many, text.split())):
        return text
    words = [word.casefold().rstrip(".'’-") for word in _WORD.findall(RUN.sub(" ", text))]
    content = [word for word in words if word not in _EMPTY and not _NUMBER.fullmatch(word)]
    unspaced = sum(map(len, RUN.findall(text))) // _LETTERS_A_WORD
    if len(content) + unspaced < LEAST_WORDS or (not unspaced and all(word in _EVERYDAY for word in content)):
        return ""
    return text


def _is_one_of_many(word: str) -> bool:
    """Return True if a word distinguishes one thing from others of its kind, as SHOP-123, E1001, #88
    and the hash of a commit do.
    """
    word = word.strip("()[]{}'\"`,;:!?")
    is_code = word[:1].isalpha() or word.startswith("#")
    return (is_code and _NUMBERED.search(word) is not None) or (
        is_hash(word) and not (word.isalpha() or word.isdecimal())
    )


def _without_blocks(text: str) -> str:
    """Remove the blocks that Confide or the client has put before the prompt, which Gemini repeats
    in it. An unclosed block extends to the end.
    """
    kept: list[str] = []
    place = 0
    while (opened := _OPENED.search(text, place)) is not None:
        kept.append(text[place : opened.start()])
        closed = _CLOSED[opened[1].lower()].search(text, opened.end())
        if closed is None:
            return " ".join(kept)
        place = closed.end()
    return " ".join([*kept, text[place:]])


def _without_code(text: str) -> str:
    """Remove fenced code. An unclosed fence extends to the end."""
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found is None:
            if not fence:
                kept.append(line)
        elif not fence:
            fence = found[1]
        elif fence == found[1]:
            fence = ""
    return "\n".join(kept)
