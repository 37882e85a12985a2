"""A rate: some at once, then so many a second, and no more."""

from __future__ import annotations

import pytest
from tests.support.clock import Clock

from confide_daemon.server.rates import TokenBucket


def test_a_burst_passes_and_then_one_at_a_time() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 3.0, clock=clock)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.now = 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    clock.now = 1000.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False], "no more is saved up than the burst"


def test_whoever_may_wait_is_told_how_long() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 1.0, clock=clock)
    assert bucket.borrow(1.0) == 0.0
    assert bucket.borrow(1.0) == pytest.approx(0.5)
    assert bucket.borrow(1.0) == pytest.approx(1.0)
    assert bucket.borrow(1.0) is None, "a wait over the limit is no wait, and costs nothing"
    clock.now = 0.5
    assert bucket.borrow(1.0) == pytest.approx(1.0)


def test_it_is_full_again_once_everything_is_paid_back() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 2.0, clock=clock)
    assert bucket.is_full
    bucket.take()
    assert not bucket.is_full
    clock.now = 0.5
    assert bucket.is_full
