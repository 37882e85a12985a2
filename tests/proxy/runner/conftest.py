"""Runs of tasks, where this machine lets a sandbox be made."""

from __future__ import annotations

import asyncio
import tempfile
from functools import cache
from pathlib import Path

import pytest
from tests.support.runs import Runs

from confide_proxy.runner import trial


@cache
def _problem() -> str:
    with tempfile.TemporaryDirectory() as folder:
        error = asyncio.run(trial.sandbox_works(Path(folder)))
    return str(error) if error else ""


@pytest.fixture
def needs_sandbox() -> None:
    """Skips a test, with the reason, where no sandbox can be had."""
    if problem := _problem():
        pytest.skip(problem)


@pytest.fixture
def runs(needs_sandbox: None, tmp_path: Path) -> Runs:
    return Runs(tmp_path)
