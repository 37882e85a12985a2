"""Words as the keyword leg sees them: lower case, without accents, Porter's stems. The tokenizer is FTS5's own."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import apsw

_here = threading.local()


def stems(text: str) -> list[str]:
    """The stems of the text's words, in order."""
    tokenize = getattr(_here, "tokenize", None)
    if tokenize is None:
        # A tokenizer belongs to its connection, and is used by one thread at a time.
        _here.connection = apsw.Connection(":memory:")
        tokenize = _here.tokenize = _here.connection.fts5_tokenizer("porter", ["unicode61"])
    found: list[str] = tokenize(
        text.encode(errors="replace"), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return found


def line_of(words: Sequence[str]) -> str:
    """The stems of the words between blanks, so that a run of words is in a text where its line is in the text's."""
    return f" {' '.join(stems(' '.join(words)))} "
