"""What a folder holds in a few kilobytes: digests of its files' states, by bucket (PROTOCOL.md 9, `digest`).

Ten thousand files that are the same at both ends are found to be so with one short request; where some differ, only their buckets are
compared file by file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

BUCKETS: Final = 256
_DIGEST_BYTES: Final = 16


def text_hash(text: str) -> str:
    """BLAKE2b-256 of the UTF-8 bytes, in hex: the name of a content on the wire."""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def bucket_of(path: str) -> int:
    """Which bucket a path belongs to: the first byte of the BLAKE2b-256 of its UTF-8 bytes."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=32).digest()[0]


def digests(states: Iterable[tuple[str, str, int]]) -> list[str]:
    """For each bucket the hex BLAKE2b-128 of `path 0x00 hash 0x00 revision 0x0a`, in order of the paths' bytes; "" for an empty one.

    Args:
        states: (path, hash, revision) of each file.
    """
    lines: list[list[bytes]] = [[] for _ in range(BUCKETS)]
    for path, digest, revision in states:
        lines[bucket_of(path)].append(f"{path}\0{digest}\0{revision}\n".encode("utf-8", "surrogateescape"))
    return [
        hashlib.blake2b(b"".join(sorted(each)), digest_size=_DIGEST_BYTES).hexdigest() if each else "" for each in lines
    ]
