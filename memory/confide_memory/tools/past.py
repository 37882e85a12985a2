"""Detects outdated notes by their status, and questions that ask for such notes: for things that a
newer note supersedes ("what did we use before?"), or that are done ("how did we fix the timeout?").

It knows the words for this in English, German, French and Spanish, and the most common ones in
Russian, Chinese, Japanese and Korean. A question that has such a word by chance only gets more
results, never fewer.
"""

from __future__ import annotations

import re
from typing import Final

LEFT_OUT: Final = "what matches is superseded or done: ask what was before, or set minScore to 0"
"""The warning of a search that found nothing else."""
_FORMER: Final = re.compile(
    r"""
    \b(?:previous(?:ly)?|prior|former(?:ly)?|earlier|originally|original|initially|legacy|obsolete|outdated|deprecated
      |history|historical(?:ly)?|supersed\w+|replaced|predecessors?|anymore|no\ longer|any\ longer|not\ any\ more
      |back\ then|in\ the\ past|at\ first|what\ (?:has\ )?changed|changed?\ (?:over\ time|since|from)
      |(?:switch|mov|migrat)(?:e|ed|ing)?(?:\ away)?\ from|did\ (?:\w+\ ){1,3}use\ to)\b
    | (?<!how\ )(?<!years\ )(?<!months\ )(?<!weeks\ )(?<!days\ )(?<!year-)\bold(?:er|est)?\b(?!\ (?:than|enough)\b)
    | \b(?:did|was|were|had|have|has|used)\b[^.?!\n]*\bbefore\b
    | \bbefore\b(?=\s*(?:[?.!,;)]|$|that\b|(?:we|i|they|he|she|it)\b|the\ (?:switch|change|move|migration)\b))
    | \b(?:früher\w*|vorher\w*|bisher\w*|ehemals|ehemalig\w*|vormals|damals|zuvor|einst|ursprünglich\w*|alte[nrsm]?|veraltet\w*
      |historie|geschichte|verlauf|nicht\ mehr|abgelöst\w*|ersetzt\w*)\b
    | \b(?:auparavant|précédent\w*|précédemment|anciens?|anciennes?|anciennement|autrefois|jadis|historique|obsolètes?
      |à\ l['’]origine|vieux|vieille|remplacée?s?)\b
    | \bavant\b(?!\s+(?:de\b|d['’]|que\b|le\b|la\b|les\b|l['’]|un\b|une\b|chaque\b))
    | \b(?:anterior(?:es|mente)?|previo|previa|previamente|antigu[oa]s?|antiguamente|viej[oa]s?|historia|historial|obsolet[oa]s?
      |solía\w*|en\ el\ pasado|originalmente|reemplazad[oa]s?)\b
    | \bantes\b(?!\s+(?:de|del|que)\b)
    | \b(?:раньше|прежде|ранее|прежн\w+|стар(?:ый|ая|ое|ые|ого|ой|ую|ых))\b
    | 以前|之前|曾经|过去|原来|かつて|過去|이전|예전
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MOST_CHARS: Final = 1000
# "used to" speaks of the past, but not "what is used to build it" and "we are used to it".
_USED_TO: Final = re.compile(r"\bused to\b", re.IGNORECASE)
_BE_USED_TO: Final = re.compile(
    r"\b(?:is|are|am|be|being|been|was|were|get|gets|got|getting|can|could)\b(?:\s+[\w'-]+){0,6}\s+used\s+to\b|\btools?\s+used\s+to\b",
    re.IGNORECASE,
)
_DONE: Final = re.compile(
    r"""
    \b(?:did|was|were|had|ago|fix(?:ed)?|fixes|solved?|solution|resolved?|resolution|closed?|done|finished|completed?|happened
      |caused?|still|already|ever)\b
    | \b(?:erledigt\w*|gelöst\w*|behoben\w*|geschlossen\w*|abgeschlossen\w*|fertig|wurden?|war|waren|hatten?|haben|schon|noch)\b
    | \b(?:résolue?s?|corrigée?s?|fermée?s?|terminée?s?|était|étaient|avons|déjà|encore)\b
    | \b(?:resuelt[oa]s?|arreglad[oa]s?|cerrad[oa]s?|terminad[oa]s?|hech[oa]s?|fue|fueron|era|hicimos|todavía)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)

# The first word of a status that says that a note holds no longer, or asks for nothing any more.
_OVER = frozenset(
    """superseded replaced obsolete outdated deprecated expired retired withdrawn archived resolved solved fixed done closed complete
    completed finished cancelled canceled abandoned wontfix erledigt gelöst behoben geschlossen abgeschlossen ersetzt abgelöst veraltet
    überholt résolu résolue fermé fermée terminé terminée remplacé remplacée obsolète resuelto resuelta cerrado cerrada terminado
    terminada reemplazado reemplazada obsoleto obsoleta""".split()  # noqa: SIM905
)


def is_over(status: str | None) -> bool:
    """Return True if the status of a note means superseded, resolved, done or closed. Only the
    first word of the status counts, as in `superseded by ADR-7`.
    """
    words = (status or "").casefold().replace("'", "").split()
    return bool(words) and (words[0].strip(".,:;()[]*_") in _OVER or words[:2] == ["wont", "fix"])


def asks_for_former(text: str) -> bool:
    """Return True if a question asks for an earlier state, which newer notes supersede."""
    text = text[:_MOST_CHARS]
    return bool(_FORMER.search(text)) or (bool(_USED_TO.search(text)) and not _BE_USED_TO.search(text))


def asks_for_done(text: str) -> bool:
    """Return True if a question asks for things that are done, resolved or closed, or for an
    earlier state.
    """
    return bool(_DONE.search(text[:_MOST_CHARS])) or asks_for_former(text)
