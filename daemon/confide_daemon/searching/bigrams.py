"""Words of scripts that put no blanks between them: as pairs of neighbouring characters.

FTS5's `unicode61` takes a whole run of Han, Kana, Hangul or Thai letters for one word, so a word inside of it would never be found.
Pairs of characters are the usual way out where no dictionary is at hand (Lucene's CJKAnalyzer indexes the same).
"""

from __future__ import annotations

import re
from itertools import pairwise

# Thai and Lao, Burmese, Hangul letters, Khmer, Kana with what stands among them, Han, Hangul, half-width Kana, Han beyond the first plane.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
RUN = re.compile(f"[{UNSPACED}]+")


def runs(text: str) -> list[str]:
    """The runs of such letters; marks that stand above or below a letter are left out, since FTS5 splits words at them."""
    found = ("".join(character for character in run if character.isalnum()) for run in RUN.findall(text))
    return [run for run in found if run]


def bigrams(run: str) -> list[str]:
    """The pairs of a run, in order; a run of one letter is itself."""
    return [one + other for one, other in pairwise(run)] or [run]


def indexed(run: str) -> list[str]:
    """What is written into the index for a run: its pairs, and its last letter, so that every single letter begins a word there."""
    return [*bigrams(run), run[-1]] if len(run) > 1 else [run]
