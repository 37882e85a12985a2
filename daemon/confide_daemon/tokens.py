"""Exact token counts in `cl100k_base`, from ranks that ship with the package: nothing is downloaded.

`tiktoken.get_encoding` fetches the ranks at run time, which a private daemon must not do; the encoding is therefore built here.
tiktoken is imported when the first text is counted, so that importing the daemon stays cheap.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import TYPE_CHECKING

from confide_daemon.packaged import packaged

if TYPE_CHECKING:
    import tiktoken

# The split pattern of cl100k_base, as in tiktoken_ext/openai_public.py.
PATTERN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
SPECIAL = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}


@cache
def encoding() -> tiktoken.Encoding:
    """The `cl100k_base` encoding (about 0.1 s the first time)."""
    import tiktoken

    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in packaged("cl100k_base.tiktoken").splitlines() if line)
    }
    return tiktoken.Encoding("cl100k_base", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL)


# tiktoken's matching is quadratic in a run without a break (100,000 times the same letter takes seconds), so very long texts
# are counted in slices; the count may then be too high by one token a slice.
SLICE = 2048


def count_tokens(text: str) -> int:
    """How many `cl100k_base` tokens the text is; control words like `<|endoftext|>` count as the plain text they are."""
    encode = encoding().encode_ordinary
    if len(text) <= SLICE:
        return len(encode(text))
    return sum(len(encode(text[start : start + SLICE])) for start in range(0, len(text), SLICE))
