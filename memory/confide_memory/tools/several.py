"""Splits a question that asks for several things: "what port does the API use, and who owns
billing?"

A text is split only if each part can be understood alone: it has words of its own, and none such as
"it" that refers to another part. Everything else stays one question.
"""

from __future__ import annotations

import re
from typing import Final

from confide_memory.documents import STOP_WORDS

MOST_PARTS: Final = 4
_MOST_CHARS: Final = 600
"""Longest text that is split; a longer one is a pasted text rather than a question."""
_LEAST_WORDS: Final = 2
"""Fewest words with a meaning that a part has."""
_ASKING: Final = (
    "what|which|who|whom|whose|where|when|why|how|is|are|was|were|do|does|did|can|could|should|has|have|will"
    "|was|welche[nrsm]?|wer|wen|wem|wo|wohin|woher|wann|warum|wieso|wie|wieviele?|ist|sind|hat|haben|kann"
    "|que|quoi|quel(?:le)?s?|qui|où|quand|pourquoi|comment|combien|est-ce"
    "|qué|cuál(?:es)?|quién(?:es)?|dónde|cuándo|por\\ qué|cómo|cuánt[oa]s?"
)
_BEGINS: Final = re.compile(rf"\W*(?:(?:please|and|also|und|et|y)\W+)*(?:{_ASKING})\b", re.IGNORECASE)
_ASKS: Final = re.compile(rf"\b(?:{_ASKING})\b", re.IGNORECASE)
# Words that follow a conjunction, and begin a question: no verb, since "what is and does X" is one.
_NEXT: Final = re.compile(
    r"(?:\s*[,;]\s*|\s+)(?:(?:and|or|as well as|plus|und|sowie|et|y)(?:\s+(?:also|then|auch|aussi|también))?\s+|;\s*)"
    r"(?=(?:(?:in|on|at|for|by|from|with|to|since)\s+)?(?:what|which|who|whom|whose|where|when|why|how"
    r"|was|welche[nrsm]?|wer|wen|wem|wo|wann|warum|wieso|wie|quel(?:le)?s?|qui|où|quand|pourquoi|comment|combien"
    r"|qué|cuál(?:es)?|quién(?:es)?|dónde|cuándo|cómo|cuánt[oa]s?)\b)",
    re.IGNORECASE,
)
# In a list of questions: "what ..., who ..., and when ...".
_COMMA: Final = re.compile(rf"\s*[,;]\s*(?=(?:{_ASKING})\b)", re.IGNORECASE)
_VERB: Final = re.compile(
    r"\b(?:do|does|did|is|are|was|were|can|should|has|have|to|wird|werden|ist|sind|hat|est|sont|a|está|están)\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"(?<=[?？؟])\s*")
_COMPARED: Final = (
    re.compile(r"\W*(?:please\s+)?compare\s+(?P<one>.+?)\s+(?:and|with|to|against|versus|vs\.?)\s+(?P<other>.+)", re.I),
    re.compile(
        r"\W*(?:what(?:'s|\s+is|\s+are)\s+)?(?:the\s+)?differences?\s+between\s+(?P<one>.+?)\s+and\s+(?P<other>.+)",
        re.I,
    ),
    re.compile(r"\W*vergleiche?\s+(?P<one>.+?)\s+(?:und|mit)\s+(?P<other>.+)", re.I),
    re.compile(r"\W*compare[rz]?\s+(?P<one>.+?)\s+(?:et|avec|à)\s+(?P<other>.+)", re.I),
    re.compile(r"\W*compara\s+(?P<one>.+?)\s+(?:y|con)\s+(?P<other>.+)", re.I),
)
_POINTING: Final = re.compile(
    r"\b(?:it|its|itself|they|them|their|theirs|that|these|those|he|him|his|she|her|hers|this(?!\s+(?:project|repo|repository|codebase|team|week|month|year|machine))"
    r"|(?<!is )(?<!are )there(?! is| are)|then|both|one|ones|same|so|else|other|others"
    r"|er|sie|ihn|ihm|ihr|ihre[nrsm]?|sein|seine[nrsm]?|dies\w*|dort|dann|dafür|damit|davon|darum|beide[nrs]?|andere[nrs]?"
    r"|il|elle|ils|elles|lui|leurs?|son|sa|ses|cela|ça|ce|cette|autres?"
    r"|él|ella|ellos|ellas|su|sus|lo|eso|esto|ese|esa|allí|ahí|otr[oa]s?)\b",
    re.IGNORECASE,
)
_MASKED: Final = re.compile(r'"[^"\n]*"|“[^”\n]*”|«[^»\n]*»|`[^`\n]*`|\([^()\n]*\)|https?://\S+')
_MARK: Final = re.compile(r"^\s*(?:[-*+]|\d{1,2}[.)]|[a-d][.)])\s+")
_WORDS: Final = re.compile(r"\w+")
_UNSPACED: Final = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_LEAST_UNSPACED: Final = 4


def parts_of(text: str) -> list[str]:
    """Return the separate questions in a text, in order and at most `MOST_PARTS`. A text with one
    question, or with parts that cannot be understood alone, is returned as a whole.
    """
    text = text.strip()
    if not text or len(text) > _MOST_CHARS:
        return [text]
    lines = [_MARK.sub("", line).strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1:
        return _limit_parts(lines) if all(_is_question(line) for line in lines) else [text]
    pieces = [part for sentence in _split(_SENTENCE, lines[0]) for part in _of_sentence(sentence)]
    parts: list[str] = []
    for piece in pieces:
        # What does not stand for itself belongs to what is before it.
        if parts and not (_stands_alone(piece, is_first=False) and _stands_alone(parts[-1], is_first=len(parts) == 1)):
            parts[-1] = f"{parts[-1]} {piece}"
        else:
            parts.append(piece)
    if len(parts) > 1:
        return _limit_parts(parts) if all(_ASKS.search(part) or _has_mark(part) for part in parts) else [text]
    return _compared_things(lines[0]) or [text]


def _of_sentence(sentence: str) -> list[str]:
    """Return the questions of one sentence, joined by a conjunction; those without words of their
    own stay with their neighbour.
    """
    found = _split(_NEXT, sentence)
    if len(found) > 1:
        found = [part for one in found for part in _split(_COMMA, one)]
    if len(found) == 1 or not all(_stands_alone(part, is_first=not place) for place, part in enumerate(found)):
        return [sentence]
    return found if _ASKS.search(found[0]) else [sentence]


def _split(border: re.Pattern[str], text: str) -> list[str]:
    """Split a text, but not within quotes, code, brackets and addresses."""
    masked = _MASKED.sub(lambda found: "x" * len(found[0]), text)
    found, start = [], 0
    for match in border.finditer(masked):
        found.append(text[start : match.start()])
        start = match.end()
    return [part.strip() for part in (*found, text[start:]) if part.strip()]


def _is_question(line: str) -> bool:
    return bool(_BEGINS.match(line) or _has_mark(line)) and _stands_alone(line, is_first=False)


def _has_mark(text: str) -> bool:
    return text.rstrip().endswith(("?", "？", "؟"))


def _stands_alone(part: str, *, is_first: bool) -> bool:
    """Return True if a part can be understood without the others. The first one may point to what
    was said before the question.
    """
    if len(_UNSPACED.findall(part)) >= _LEAST_UNSPACED:
        return True
    if not is_first and _POINTING.search(part):
        return False
    words = {word for word in _WORDS.findall(part.casefold()) if word not in STOP_WORDS and not _ASKS.fullmatch(word)}
    if is_first and words and _VERB.search(part):
        return True
    return len(words) >= _LEAST_WORDS or any(_is_name(word) for word in _WORDS.findall(part))


def _is_name(word: str) -> bool:
    return any(letter.isdigit() for letter in word) or "_" in word or word[1:] != word[1:].lower()


def _compared_things(text: str) -> list[str] | None:
    """Return the two things that a text asks to compare, or None."""
    for form in _COMPARED:
        if found := form.fullmatch(text.rstrip("?？.! ")):
            one, other = found["one"].strip(" ,;:"), found["other"].strip(" ,;:")
            known = [_WORDS.findall(side.casefold()) for side in (one, other)]
            if all(set(words) - STOP_WORDS for words in known) and not any(map(_POINTING.search, (one, other))):
                return [one, other]
    return None


def _limit_parts(parts: list[str]) -> list[str]:
    parts = list(dict.fromkeys(parts))
    return [*parts[: MOST_PARTS - 1], " ".join(parts[MOST_PARTS - 1 :])] if len(parts) > MOST_PARTS else parts
