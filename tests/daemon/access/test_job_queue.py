"""What an operator has asked of a running daemon ends with an answer, whatever happens to the registry meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.daemon.loopback import machine, serving
from tests.support.providers.generations import MarkedEmbedder, handle

from confide_daemon.access.job_queue import Job, Jobs
from confide_daemon.server.operator import job_runner as work
from confide_daemon.store.database import connect


async def test_an_end_that_cannot_be_written_down_is_written_down_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command would wait for ever otherwise; and what is asked next is done as well."""
    monkeypatch.setattr(work, "RETRY_S", 0.05)
    model = MarkedEmbedder("model-0", 0)
    async with serving(tmp_path / "data", embedder=handle(model)) as daemon, machine(daemon) as laptop:
        await laptop.attach("proj", "global")
        async with laptop.mcp() as client:
            await client.call_tool("memory_store", {"content": "the pool was empty"})
            await client.call_tool("memory_sync", {})
        state = daemon.state
        jobs = Jobs(state.registry)
        (space_id,) = state.registry.spaces().values()

        async def until(identity: int, met: Callable[[Job], bool]) -> None:
            async with asyncio.timeout(20):
                while (job := jobs.get(identity)) is None or not met(job):  # noqa: ASYNC110 - as a command does it
                    await asyncio.sleep(0.02)

        model.open.clear()
        calls = model.calls
        first, second = jobs.ask("reembed", space_id), jobs.ask("fix", space_id)
        async with asyncio.timeout(20):
            while model.calls == calls:  # noqa: ASYNC110 - the model's thread tells nobody
                await asyncio.sleep(0.02)
        state.registry._database.set_busy_timeout(10)
        other = connect(state.folder.registry, state.master.registry_key(), writer=True)
        other.execute("BEGIN IMMEDIATE")
        model.open.set()
        await asyncio.sleep(1.5)
        job = jobs.get(first)
        assert job is not None
        assert job.state == "running"
        other.execute("ROLLBACK")
        other.close()
        await until(first, lambda job: job.state == "done")
        await until(second, lambda job: job.state == "done")
