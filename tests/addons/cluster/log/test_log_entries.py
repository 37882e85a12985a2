"""What the store's database has of an entry: how long it is tells as little of its text as it can."""

from __future__ import annotations

import os

import pytest

from confide_cluster.daemon.log.log_sealing import GENESIS, LogPosition, LogSealing

AT = LogPosition(1, 1, 1, GENESIS)


@pytest.mark.parametrize("size", [0, 1, 200, 257, 1_000, 5_000, 70_000])
def test_the_length_of_a_body_is_one_of_few(size: int) -> None:
    """Whoever can have text stored beside a note, and reads the database, would learn from the length what the two have in common."""
    sealing = LogSealing("0" * 16, os.urandom(32))
    least = len(sealing.seal(AT, b""))
    body = sealing.seal(AT, os.urandom(size))
    padded = len(body) - (least - 256)
    assert padded >= 256
    assert padded & (padded - 1) == 0
    assert len(sealing.seal(AT, os.urandom(size))) == len(body)
    assert len(sealing.seal(AT, b"a" * size)) == least
