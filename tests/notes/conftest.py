"""An agent with all tools, on a daemon in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.notes import Agent, acting
from tests.support.serving import Machine, Serving, machine, serving


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def laptop(daemon: Serving) -> AsyncIterator[Machine]:
    async with machine(daemon) as connected:
        await connected.attach("proj", "global", toolsets=["all"])
        yield connected


@pytest.fixture
async def agent(laptop: Machine) -> AsyncIterator[Agent]:
    async with acting(laptop) as agent:
        yield agent
