"""Runs of tasks, where this machine lets a sandbox be made."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.runs import Runs, needing_sandbox


@pytest.fixture
def needs_sandbox() -> None:
    """Skips a test, with the reason, where no sandbox can be had."""
    needing_sandbox()


@pytest.fixture
def runs(needs_sandbox: None, tmp_path: Path) -> Runs:
    return Runs(tmp_path)
