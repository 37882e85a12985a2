"""How a model on this machine cuts text: a `tokenizer.json`, by the library `tokenizers`, which is imported when a model is loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from confide_daemon.embedding.local.weights import MODEL
from confide_daemon.errors import EmbedderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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
