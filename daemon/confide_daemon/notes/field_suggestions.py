"""Suggests importance and tags of a note from its text, if the client gave none. Suggestions are
never stored.

It is a plain table of English patterns. Existing tags are suggested before those of the table, so
that a topic keeps one tag.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confide_memory.documents import STOP_WORDS

MOST_CHARACTERS = 8_000
MOST_TAGS = 5
# Most words of a text that are compared with existing tags, each alone and with the next word.
MOST_WORDS = 150


@dataclass(frozen=True, slots=True)
class FieldPattern:
    """A pattern that recognizes a topic in a text, with the tag and the importance that it
    suggests. None means that it suggests none.

    `is_sure`: True if one match is enough. The other patterns are everyday words ("always",
    "prefers"); two of them must match.
    """

    tag: str | None
    importance: str | None
    expression: re.Pattern[str]
    is_sure: bool = True


def _pattern(tag: str | None, importance: str | None, *expressions: str, is_sure: bool = True) -> FieldPattern:
    expression = re.compile(rf"\b(?:{'|'.join(expressions)})\b", re.IGNORECASE | re.MULTILINE)
    return FieldPattern(tag, importance, expression, is_sure)


PATTERNS: Final[tuple[FieldPattern, ...]] = (
    _pattern(
        None, "core", r"(?:must|shall) (?:never|always)", r"under no circumstances", r"non-?negotiable", r"never ever",
        r"(?:hard|strict|absolute) (?:rule|requirement|constraint)s?", r"(?:critical|crucial) (?:rule|requirement|constraint)s?",
    ),
    _pattern(
        "architecture", "high", r"architect(?:ure|ural|ed)", r"system design", r"design (?:decision|principle)s?", r"adr[- ]?\d+",
        r"micro-?services?", r"monolith(?:ic)?", r"event[- ]sourc(?:ing|ed)", r"bounded contexts?", r"module boundar(?:y|ies)",
    ),
    _pattern(
        "security", "high", r"security", r"vulnerab(?:le|ility|ilities)", r"authenticat(?:e|es|ed|ion)", r"authoriz(?:e|es|ed|ation)",
        r"encrypt(?:s|ed|ion)?", r"credentials?", r"secrets?", r"csrf", r"xss", r"sql injection", r"oauth2?", r"jwts?", r"tls", r"cve-\d+",
        r"least privilege", r"gdpr", r"pii",
    ),
    _pattern(
        "cross-cutting", "high", r"cross-?cutting", r"company[- ]wide", r"project[- ]wide",
        r"(?:across|in) (?:all|every) (?:services?|projects?|modules?|repos?|repositories|teams?)",
        r"all (?:services|projects|modules|repositories) (?:must|should|use|share)", r"everywhere in the (?:code|codebase|project)",
    ),
    _pattern(
        "api", "high", r"api contracts?", r"breaking changes?", r"public (?:api|interface)", r"backwards?[- ]compatib(?:le|ility)",
        r"(?:rest|graphql|grpc) (?:api|schema|endpoint)s?", r"openapi", r"wire (?:format|protocol)", r"api version(?:s|ing)?",
    ),
    _pattern(
        "rule", "high", r"always", r"never", r"must(?: not)?", r"do not ever", r"forbidden", r"mandatory", r"required by law",
        is_sure=False,
    ),
    _pattern(
        "convention", "high", r"conventions?", r"coding (?:style|standard)s?", r"style ?guide", r"naming (?:scheme|rule)s?",
        r"(?:code|commit|branch) (?:style|naming|format)s?", r"conventional commits", r"lint(?:er|ing) rules?",
        is_sure=False,
    ),
    _pattern(
        "preference", "high", r"prefers?", r"preferred", r"preferences?", r"(?:likes?|wants?|hates?|dislikes?) (?:to|it when|us to|me to)",
        r"favou?rite",
        is_sure=False,
    ),
    _pattern(
        "decision", "high", r"(?:we|i|they|team) (?:have |has )?(?:decided|agreed|chose|settled on)", r"decision(?: record)?s?",
        r"trade-?offs?",
        is_sure=False,
    ),
    _pattern(
        "fix", None, r"(?:bug|hot)?fix(?:es|ed)?", r"bugs?", r"regressions?", r"root cause", r"resolved by", r"solved by",
        r"stack ?trace", r"the problem was",
    ),
    _pattern(
        "temporary", None, r"temporar(?:y|ily)", r"work-?arounds?", r"for now", r"until (?:then|we|the|it)", r"stop-?gap", r"interim",
        r"quick (?:fix|hack)", r"hack", r"todo", r"fixme", r"this (?:week|sprint)",
    ),
    _pattern("performance", None, r"performance", r"latency", r"throughput", r"p9[59]", r"bottlenecks?"),
    _pattern("testing", None, r"(?:unit|integration|e2e|end-to-end|flaky) tests?", r"test (?:suite|coverage)", r"pytest", r"jest"),
    _pattern("deployment", None, r"deploy(?:s|ed|ment|ments)?", r"roll-?(?:out|back)s?", r"kubernetes", r"helm", r"terraform", r"ci/cd"),
    _pattern("database", None, r"databases?", r"postgres(?:ql)?", r"mysql", r"sqlite", r"mongodb", r"redis", r"schema changes?"),
)  # fmt: skip


def importance_for(text: str) -> str | None:
    """Return the likely importance of a note with this text, "core" or "high", or None if it is
    uncertain.
    """
    matching = _matching(text)
    if any(pattern.importance == "core" for pattern in matching):
        return "core"
    # Temporary notes are never important, but a fix of something important is.
    if any(pattern.tag == "temporary" for pattern in matching):
        return None
    high = [pattern for pattern in matching if pattern.importance == "high"]
    return "high" if len(high) > 1 or any(pattern.is_sure for pattern in high) else None


def tags_for(text: str, in_use: Sequence[str]) -> list[str]:
    """Return likely tags for a note with this text, at most MOST_TAGS. Tags in use that occur in
    the text come first, then those of the table.
    """
    own = [pattern.tag for pattern in _matching(text) if pattern.tag is not None]
    return list(dict.fromkeys([*in_use, *own]))[:MOST_TAGS]


def words_of(text: str) -> list[str]:
    """Return the words of a text that could be tags, in their order: case-folded single words, and
    neighbouring words joined as in tags.
    """
    words = re.findall(r"\w+(?:[-./+#]\w+)*", text[:MOST_CHARACTERS].casefold())[:MOST_WORDS]
    found: dict[str, None] = {}
    for at, word in enumerate(words):
        if at + 1 < len(words) and word not in STOP_WORDS and words[at + 1] not in STOP_WORDS:
            found.update((f"{word}{joint}{words[at + 1]}", None) for joint in ("-", " ", "_"))
        if word not in STOP_WORDS and len(word) > 1 and not word.isdecimal():
            found[word] = None
    return list(found)


def _matching(text: str) -> list[FieldPattern]:
    start = text[:MOST_CHARACTERS]
    return [pattern for pattern in PATTERNS if pattern.expression.search(start)]
