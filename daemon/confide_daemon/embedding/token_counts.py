"""Counts `cl100k_base` tokens exactly. The token tables are packaged, so nothing is downloaded.

`tiktoken.get_encoding` would fetch the tables at run time, which a private daemon must not do, so
the encoding is built here. tiktoken is imported for the first count, so that importing the daemon
stays fast. Its tables, some 23 MB, are dropped when unused for a while. Texts are counted when they
are divided into chunks, not when they are searched.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from confide_daemon.embedding.libraries import read_packaged
from confide_daemon.embedding.memory.idle_unload import UnloadWhenIdle

if TYPE_CHECKING:
    import tiktoken

REST_S: Final = 10.0
"""Idle time before the tables are dropped, so that storing one note after another does not reload
them each time, which takes 0.1 s.
"""

# The split pattern of cl100k_base, as in tiktoken_ext/openai_public.py.
PATTERN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
SPECIAL = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}


def _load() -> tuple[tiktoken.Encoding, NDArray[np.int64]]:
    """Return the encoding, and the length in bytes of each token. Takes a tenth of a second."""
    import tiktoken

    words = read_packaged("cl100k_base.tiktoken").split()
    ranks = dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
    made = tiktoken.Encoding("cl100k_base", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL)
    lengths = np.zeros(max(ranks.values()) + 1, dtype=np.int64)
    lengths[list(ranks.values())] = list(map(len, ranks))
    # tiktoken counts with a copy of its own, and keeps this one too: 16 MB.
    ranks.clear()
    return made, lengths


_tables: Final = UnloadWhenIdle(_load, rest_after_s=0)  # who runs a command soon ends anyway


def rest_after(seconds: float) -> None:
    """Set the idle time after which the token tables are dropped from memory, at most `REST_S`; 0
    keeps them. It takes effect the next time that they are loaded.
    """
    _tables.rest_after_s = min(seconds, REST_S)


def is_ready() -> bool:
    """Return True if the token tables are loaded, so that the next count is fast."""
    return _tables.is_there


# tiktoken's matching is quadratic in a run without a break (100,000 times the same letter takes
# seconds), so very long texts are counted in slices; the count may then be too high by one token a
# slice.
SLICE = 2048


def count_tokens(text: str) -> int:
    """Return the number of `cl100k_base` tokens in a text. Control words such as `<|endoftext|>`
    count as plain text.
    """
    with _tables.use() as (encoding, _):
        encode = encoding.encode_ordinary
        if len(text) <= SLICE:
            return len(encode(text))
        return sum(len(encode(text[start : start + SLICE])) for start in range(0, len(text), SLICE))


def token_ends(text: str) -> NDArray[np.int64]:
    """Return the end of each token of a text, as a position in characters. If a token ends within a
    character, its end is after that character.

    The tokens are those of the whole text. A part of the text by itself has as many tokens as it
    touches, plus or minus one at each end.
    """

    with _tables.use() as (encoding, lengths):
        encode = encoding.encode_to_numpy
        tokens = [encode(part, disallowed_special=()) for part in _slices(text)]
    ends = np.cumsum(lengths[np.concatenate(tokens)]) if tokens else np.empty(0, dtype=np.int64)
    if text.isascii():
        return ends
    octets = np.frombuffer(text.encode(), dtype=np.uint8)
    characters = np.cumsum((octets & 0xC0) != 0x80)
    return np.asarray(characters[ends - 1], dtype=np.int64)


def _slices(text: str) -> Iterator[str]:
    """Yield slices that tiktoken handles quickly, cut at token boundaries except within a long run
    without blanks.
    """
    start = 0
    while len(text) - start > SLICE:
        window = start + SLICE
        cut = text.rfind("\n", start + 1, window) + 1 or text.rfind(" ", start + 1, window)
        if cut <= start:
            cut = max(range(start + SLICE // 2, window), key=lambda place: text[place : place + 4])
        yield text[start:cut]
        start = cut
    if start < len(text):
        yield text[start:]


def first_tokens(text: str, count: int) -> str:
    """Return the beginning of the text, with at most `count` tokens."""
    # A token is at least one byte.
    if len(text) * 4 <= count or len(text.encode("utf-8", errors="replace")) <= count:
        return text
    left = count
    with _tables.use() as (encoding, _):
        for start in range(0, len(text), SLICE):
            part = text[start : start + SLICE]
            tokens = encoding.encode_ordinary(part)
            if len(tokens) > left:
                # Half a character at the end is left out.
                kept = encoding.decode_bytes(tokens[:left]).decode("utf-8", errors="ignore")
                return text[:start] + kept
            left -= len(tokens)
    return text
