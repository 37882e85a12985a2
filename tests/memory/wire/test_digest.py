"""Digests of many files' states."""

from __future__ import annotations

import hashlib

from confide_memory.wire.documents import BUCKETS, bucket_of, digests

STATES = [(f"memory/{number}.md", f"{number:064x}", number) for number in range(1000)]


def test_the_order_does_not_matter_and_every_part_does() -> None:
    """Path, hash and revision each change the digest of one bucket, and of no other."""
    all_of_them = digests(STATES)
    assert all_of_them == digests(reversed(STATES))
    path, digest, revision = STATES[7]
    for changed in ((path, digest, revision + 1), (path, "0" * 64, revision)):
        other = digests([*STATES[:7], changed, *STATES[8:]])
        assert [n for n in range(BUCKETS) if other[n] != all_of_them[n]] == [bucket_of(path)]
    missing = digests(STATES[:7] + STATES[8:])
    assert [n for n in range(BUCKETS) if missing[n] != all_of_them[n]] == [bucket_of(path)]


def test_as_the_document_says() -> None:
    """One file by hand: its bucket, its line, and nothing in the others."""
    told = digests([("memory/é.md", "ab" * 32, 3)])
    bucket = hashlib.blake2b("memory/é.md".encode(), digest_size=32).digest()[0]
    line = b"memory/\xc3\xa9.md\0" + b"ab" * 32 + b"\x003\n"
    assert told[bucket] == hashlib.blake2b(line, digest_size=16).hexdigest()
    assert told.count("") == BUCKETS - 1
