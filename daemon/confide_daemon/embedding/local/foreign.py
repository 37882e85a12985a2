"""Estimates the language of a text, as far as the choice of an embedding model needs it: English,
another language that the multilingual model reads, or neither.

Scripts are distinguished by their letters, and languages in Latin letters by their most common
words. A sentence contains some of these. A list of names or a line of code contains none, and
counts as English.
"""

from __future__ import annotations

import re
from typing import Final

_SCRIPTS: Final = re.compile(
    "[\u0400-\u052f\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff\u0e00-\u0e7f"  # Cyrillic, Arabic, Thai
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"  # Hangul
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"  # Kana, Han
)
"""Letters of the scripts that the multilingual model reads, but Latin."""
_LATIN: Final = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_LETTER: Final = re.compile(r"[^\W\d_]")
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_READ: Final = 2000
"""Characters of a text that are looked at."""
_SHARE: Final = 0.3
"""Of the letters, from which on a script decides: names in Latin letters stand in any text."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENGLISH: Final = _words(
    """the of and to is are were be been its this that these those for with at by from or not but you i they she our
    your their my her what when where which who whom whose why how does did done has have had can could should would
    must may might if then than there here into about after before any only more most because while until each every
    us them"""
)
"""Common words of English alone; without those of other languages as well ("was", "in", "die")."""
_OTHERS: Final = _words(
    # German, Dutch
    """das dem des ein eine einen einem einer und oder nicht ist sind waren wird werden wurde wurden wir ihr sie ich er
    mit für auf bei nach vor aus über unter durch gegen ohne zu zum zur im vom beim wie wo wann warum wem wen welche
    welchem welchen welcher welches haben hat hatte kann können muss müssen soll sollen darf dürfen weil dass damit
    wenn dann noch schon auch nur immer nie niemals sein seine unser unsere unseren jede jeder jedes jeden wohin woher
    wieso weshalb womit gibt kein keine keinen spätestens het een niet zijn wordt worden werd voor naar uit ook maar
    bij wij jullie hij zij welk waar wanneer waarom hoe wie heeft hebben moet moeten geen dit dat
    """
    # Spanish, Portuguese, French, Italian
    """una unos unas que por para se su sus lo como más pero sin sobre cuando cuándo dónde adónde quién qué cuál
    cuáles cómo cuántos cuántas cuánto son está están fue hay nos nuestro nuestra porque desde hasta después nunca
    uma não é são foi ao em nas quando onde quem qual quais muito depois sempre nous vous ils elle elles je ne pas
    est sont était ont ou à au aux dans sur pour avec sans sa ses leur notre ce cette ces qui quoi où comment pourquoi
    combien quel quelle quels quelles lorsque depuis avant après jamais gli uno della dei delle degli dal dalla nel
    nella nei sul sulla che chi non sono era erano perché dove quale quali quanto quanti anche più dopo mai noi
    nostra
    """
    # Polish, Turkish
    """nie jest są był była było były się że żeby jak kto gdzie kiedy dlaczego który która które dla przed przez oraz
    ale tylko zawsze nigdy jej jego nasz nasza ve bir bu şu için ile değil mi mı mu mü neden nasıl nerede nereye hangi
    kaç çok daha gibi kadar sonra önce biz siz ama veya olarak olan"""
)
_IN_NAMES: Final = _words("el la los las del di da dos das de le les der den van von un il y")
"""Common words that stand in names as well; each counts half."""
_ELIDED: Final = _words("l d j m t s n c qu dell nell all sull dall")
"""The parts before an apostrophe in French and Italian, unlike the English "we'll"."""


def is_readable(text: str) -> bool:
    """Return True if most letters of a text belong to a script that the multilingual model reads."""
    part = text[:_READ]
    letters = len(_LETTER.findall(part))
    return letters > 0 and 2 * (len(_SCRIPTS.findall(part)) + len(_LATIN.findall(part))) > letters


def is_foreign(text: str, *, fewest: int = 1) -> bool:
    """Return True if a text is in a language other than English that the multilingual model reads.

    A text in Latin letters must contain at least `fewest` different common words of other
    languages, and more of them than of English. Only the first 2,000 characters count.
    """
    part = text[:_READ]
    if not part.isascii():
        letters = len(_LETTER.findall(part))
        if len(_SCRIPTS.findall(part)) > _SHARE * letters:
            return is_readable(part)
    words = set(_WORD.findall(part.lower()))
    others = len(words & _OTHERS) + len(words & _IN_NAMES) / 2
    others += len({before for before, sign, _ in (word.partition("'") for word in words) if sign} & _ELIDED)
    return others >= fewest and others > len(words & _ENGLISH)
