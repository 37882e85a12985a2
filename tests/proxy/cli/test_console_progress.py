"""The plain lines that say how far a long command is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from confide_memory.commands import progress


def test_one_line_every_few_seconds_with_rate_and_remaining_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is that of the part that goes on, and what the daemon says twice is said once."""
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.Progress(Console(file=io.StringIO())) as bar:
        for done in range(0, 1000, 10):
            bar.follow(done, 1000, "files")
            now += 0.125
        for done in range(100):
            bar.follow(done, 100, f"{done} of 100 pieces embedded")
            now += 0.125
    assert capsys.readouterr().err.splitlines() == [
        "confide: files: 400 of 1,000, 80/s, 0:08 left",
        "confide: files: 800 of 1,000, 80/s, 0:02 left",
        "confide: pieces embedded: 20 of 100, 8/s, 0:10 left",
        "confide: pieces embedded: 60 of 100, 8/s, 0:05 left",
    ]
