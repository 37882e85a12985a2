"""Nights that are drawn: whatever happens in them, no slot is started twice, and each ends in exactly one state.

The suite draws a few; `make chaos` 2,000.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.support.daemon.task_world import World

from confide_night.order.order import Slot

NIGHTS = int(os.environ.get("CONFIDE_TASK_NIGHTS", "4"))
FIRST = int(os.environ.get("CONFIDE_TASK_SEED", "0"))
AT_ONCE = 4


@pytest.mark.parametrize("first", range(FIRST, FIRST + NIGHTS, AT_ONCE))
def test_no_slot_is_started_twice_and_each_ends_once(first: int, tmp_path: Path) -> None:
    ended: Counter[str] = Counter()
    started = 0
    for seed in range(first, first + AT_ONCE):
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = World(seed, folder)
        try:
            world.live()
            assert not world.wrong, f"seed {seed}: {world.wrong}"
            ended.update(world.final.values())
            started += len(world.spawned)
        finally:
            world.close()
    # Nights in which nothing happens prove nothing.
    assert started >= AT_ONCE
    assert ended[Slot.SUCCEEDED] > 0
