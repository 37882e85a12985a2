"""The process that copies and proves rests between its steps, and never so long that it seems to hang."""

from __future__ import annotations

import time

import pytest

from confide_backup.daemon.worker import __main__ as worker


@pytest.mark.parametrize(("worked_s", "rest_s"), [(0.001, 0.001 * worker.REST), (60.0, worker.LONGEST_REST_S)])
def test_it_rests_by_what_it_has_worked(monkeypatch: pytest.MonkeyPatch, worked_s: float, rest_s: float) -> None:
    spent = [0.0]
    rested: list[float] = []
    monkeypatch.setattr(time, "thread_time", lambda: spent[0])
    monkeypatch.setattr(time, "sleep", rested.append)
    progress = worker._Progress()
    spent[0] = worked_s
    progress(1)
    progress(1)  # nothing was done in between
    assert rested == [pytest.approx(rest_s), 0.0]
