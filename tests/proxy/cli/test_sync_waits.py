"""`confide sync` waits until all is indexed, for longer than one call of the daemon's does, and names what was not sent."""

from __future__ import annotations

from typing import Any, cast

import pytest

from confide_proxy.cli.sync import _print_skipped, until_indexed
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sync.replication.file_transfer import DENIED

STEP = {"filesSent": 0, "filesPulled": 0, "filesRemoved": 0, "duration": 600.0}


class Daemon:
    """One whose calls end after ten minutes, with so many pieces done in each."""

    def __init__(self, *done: int) -> None:
        self._done = list(done)
        self._left = 100

    async def call(self, tool: str, _arguments: dict[str, Any], **_options: Any) -> dict[str, Any]:
        if tool == "memory_status":
            return {"queuedChunks": self._left}
        done = self._done.pop(0)
        self._left -= done
        return {**STEP, "chunksUpdated": done, "warnings": ["some wait"] if self._left else []}


@pytest.mark.parametrize(
    ("steps", "updated", "left", "duration"),
    [((100,), 100, 0, 600.0), ((40, 40, 20), 100, 0, 1800.0), ((40, 0), 40, 60, 1200.0), ((0,), 0, 100, 600.0)],
)
async def test_it_goes_on_while_something_is_done(
    steps: tuple[int, ...], updated: int, left: int, duration: float
) -> None:
    """A model that is slow is waited for; one that is away is not waited for again."""
    result, status = await until_indexed(cast(CommandClient, Daemon(*steps)), force=False, progress=lambda *_: None)
    assert (result["chunksUpdated"], status["queuedChunks"], result["duration"]) == (updated, left, duration)
    assert bool(result["warnings"]) is bool(left)


def test_files_that_this_device_may_not_write_are_named_together(capsys: pytest.CaptureFixture[str]) -> None:
    """With the way out, and without a line for each."""
    _print_skipped([{"path": f"memory/{number}.md", "reason": DENIED} for number in range(40)])
    told = capsys.readouterr().err
    assert "40 files are not sent, since this device has no right to write there: memory/0.md, " in told
    assert "confided device edit NAME --scope write" in told
    assert "39.md" not in told
