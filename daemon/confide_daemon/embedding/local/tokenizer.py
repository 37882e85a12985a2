"""How a model on this machine cuts text: a `tokenizer.json`, by the library `tokenizers`, which is imported when a model is loaded."""

from __future__ import annotations

import os
import unicodedata
from typing import TYPE_CHECKING

from confide_daemon.embedding.local.weights import MODEL
from confide_daemon.errors import EmbedderError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

UNKNOWN = "[UNK]"


def open_tokenizer(data: bytes, max_tokens: int, *, what: str = MODEL, pads: bool = True) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`, which cuts; `pads`: and makes texts as long as the longest of them.

    `what` is it of, for people. Raises EmbedderError.
    """
    # Rayon threads of the tokenizer would fight with the model's for the same cores, for batches of four texts.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:
        raise EmbedderError(f"cannot read the tokenizer of the {what}: {type(error).__name__}") from None
    tokenizer.enable_truncation(max_tokens)
    if pads:
        tokenizer.enable_padding()
    else:
        tokenizer.no_padding()
    return tokenizer


def is_understood(text: str, encoding: Encoding) -> bool:
    """Whether most letters of a text say anything to a model of Latin words.

    Those in unknown tokens do not, nor do letters of other scripts that stand alone: a vocabulary of English words has a few thousand of
    them, and a text that is spelled in them is near to any other of its script.
    """
    if text.isascii() and UNKNOWN not in encoding.tokens:
        return True
    letters = foreign = 0
    for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
        piece = text[start:end]
        is_unknown = token == UNKNOWN
        if is_unknown or piece.isalnum():
            letters += len(piece)
            if is_unknown or (len(piece) == 1 and not piece.isascii() and not is_latin(piece)):
                foreign += len(piece)
    return 2 * foreign <= letters


def known_tokens(encoding: Encoding) -> list[int]:
    """The numbers of the tokens without unknown ones, all of which are one to a model: a text with one is near to any other with one."""
    return [number for number, token in zip(encoding.ids, encoding.tokens, strict=True) if token != UNKNOWN]


def is_latin(letter: str) -> bool:
    """Whether a letter is one of the Latin script, which a model of English words reads without its marks."""
    return unicodedata.name(letter, "").startswith("LATIN ")


def is_mostly_latin(text: str) -> bool:
    """About what `is_understood` says, without the tokenizer: of vectors from before it was asked."""
    if text.isascii():
        return True
    others = [letter for letter in text if not letter.isascii() and unicodedata.category(letter)[0] in "LMS"]
    foreign = sum(not is_latin(letter) for letter in others)
    return 2 * foreign <= sum(letter.isalnum() for letter in text if letter.isascii()) + len(others)
