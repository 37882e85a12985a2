"""From what a person or an agent asks to what the keyword leg looks for."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Words that every text has. Dropping them costs nothing and saves scanning their long lists (retrieval.md 1.2).
STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being both but by can
    could did do does doing done down during each few for from further get got had has have having he her here hers him his
    how i if in into is it its itself just me mine more most my myself no nor not now of off on once only or other our ours
    out over own same she should so some such than that the their theirs them then there these they this those through to
    too under until up us very was we were what when where which while who whom whose why will with would you your yours
    s t d ll m re ve don""".split()  # noqa: SIM905 - a list of quoted words would fill a screen
)
# A question has a handful of words; a pasted log has thousands, and each costs a scan.
MOST_TERMS = 48

# Words joined by the marks that identifiers, paths, versions and addresses are written with.
COMPOUND = re.compile(r"\w+(?:[.:/@#+\-]+\w+)*")
WORD = re.compile(r"\w+")


def keyword_query(text: str, keywords: Sequence[str] = ()) -> str:
    """The FTS5 query: quoted terms joined by OR, stop words out, or "" when there is no word at all.

    A quoted term is matched as a phrase of its parts, so `ERR_CONN_42`, `src/app.py` and `retry-after` are looked for as they
    stand, beside each of their parts. What the caller put in double quotes stays one phrase. Nothing of the text can act as syntax.
    """
    terms: dict[str, None] = {}
    phrases = re.findall(r'"([^"]{1,200})"', text)
    for phrase in [*phrases, *keywords]:
        words = WORD.findall(phrase.lower())
        if words:
            terms[" ".join(words)] = None
    compounds = [match.lower() for match in COMPOUND.findall(text)]
    words = [word for compound in compounds for word in WORD.findall(compound)]
    chosen = [word for word in words if word not in STOP_WORDS] or words
    for compound in compounds:
        if len(WORD.findall(compound)) > 1:
            terms[compound] = None
    terms.update(dict.fromkeys(chosen))
    return " OR ".join(f'"{term}"' for term in list(terms)[:MOST_TERMS])
