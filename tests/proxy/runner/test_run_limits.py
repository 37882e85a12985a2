"""What a run may take of its machine, by control groups: little enough that this test does no harm where they do not hold."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from confide_proxy.runner.sandbox import groups
from confide_proxy.runner.settings.recipes import Settings


def test_what_a_run_may_take_of_the_machine_is_bounded() -> None:
    """Processes and memory, where this machine has control groups."""
    if not groups.available():
        pytest.skip(
            "there are no control groups for us here: a run is bounded by its time and its disk (docs/runner.md)"
        )
    group = groups.make("0bounded1", replace(Settings(Path(), "").limits, memory_mib=64, processes=12))
    forks = """
import os, time
n = 0
try:
    for n in range(40):
        if not os.fork():
            time.sleep(9)
except OSError:
    pass
print(n, flush=True)
os.killpg(0, 9)
"""
    try:
        took = [
            subprocess.run(
                [*group.prefix, sys.executable, "-c", script],
                env=group.environment,
                capture_output=True,
                text=True,
                timeout=60,
                start_new_session=True,
            )
            for script in (
                forks.replace("print(n)", "print(n, flush=True)"),
                "x = bytearray(200 * 2**20); print('had')",
            )
        ]
    finally:
        group.close()
    assert 3 <= int(took[0].stdout) <= 12
    assert "had" not in took[1].stdout
