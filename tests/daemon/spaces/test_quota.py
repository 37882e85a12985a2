"""What one space may hold: a machine that writes without end fills its own space, and loses nothing of what it has."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving

from confide_crypto.errors import EXIT_STORAGE, RequestError
from confide_daemon.errors import SpaceFullError
from confide_daemon.store.quota import UNLIMITED, Quota
from confide_proxy.errors import LATER


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def limited(daemon: Serving, name: str, quota: Quota) -> None:
    """Set what the space of this caller may hold, as the configuration does when it is opened."""
    space_id = daemon.state.registry.spaces()[name]
    space = await daemon.daemon.spaces.get(space_id)

    def limit(_: None = None) -> None:
        space._writer.store.quota = quota

    await space.threads.write(limit)


async def refused(box: Machine, path: str, text: str, base: int = 0) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await box.put(path, text, base=base)
    return caught.value


async def test_a_full_space_refuses_what_is_new_and_others_go_on(daemon: Serving) -> None:
    async with machine(daemon, "greedy") as greedy, machine(daemon, "modest") as modest:
        await greedy.attach()
        await modest.attach()
        await limited(daemon, "greedy", Quota(size_bytes=2 << 20))
        error, number = None, 0
        while error is None:
            number += 1
            assert number < 50, "it took everything"
            try:
                await greedy.put(f"memory/{number}.md", os.urandom(100_000).hex())
            except RequestError as full:
                error = full
        assert error.code == "storage_full"
        assert "this space is full: its database has 2 MiB" in error.message
        assert "space_mib under [quota] in daemon.toml" in (error.hint or "")
        assert (await modest.put("memory/a.md", "mine\n"))["revision"] == 1
        # What is there is read and deleted as before, also by its tombstone's revision.
        assert (await greedy.request("pull", {"project": "proj", "path": "memory/1.md"}))["revision"] == 1
        assert (await greedy.request("remove", {"project": "proj", "path": "memory/1.md", "base": 1}))["removed"]
        # Once there is room the same is taken: a machine tries again by itself what ends with this code.
        assert error.code in LATER
        await limited(daemon, "greedy", UNLIMITED)
        assert (await greedy.put(f"memory/{number}.md", "at last\n"))["revision"] == 1


async def test_a_space_takes_so_many_documents_and_no_more(daemon: Serving) -> None:
    async with machine(daemon, "greedy") as greedy:
        await greedy.attach()
        await limited(daemon, "greedy", Quota(documents=3))
        for number in range(3):
            await greedy.put(f"memory/{number}.md", "one\n")
        error = await refused(greedy, "memory/3.md", "one too many\n")
        assert (error.code, error.message) == (
            "storage_full",
            "this space is full: it has 3 documents, and may have no more",
        )
        assert (await greedy.put("memory/0.md", "another text\n", base=1))["revision"] == 2
        await greedy.request("remove", {"project": "proj", "path": "memory/1.md", "base": 1})
        assert (await greedy.put("memory/3.md", "in its place\n"))["revision"] == 1
        assert (await refused(greedy, "memory/1.md", "back again\n")).code == "storage_full"


async def test_an_agent_is_told_and_a_queued_store_is_kept(daemon: Serving) -> None:
    async with machine(daemon, "greedy") as greedy:
        await greedy.attach()
        await limited(daemon, "greedy", Quota(size_bytes=1))
        asked = {"tool": "memory_store", "said": "2026-11-20T23:59:58+01:00", "arguments": {"content": "- said once"}}
        body = {"project": "proj", "operation": secrets.token_hex(16), **asked}
        with pytest.raises(RequestError) as full:
            await greedy.request("call", body)
        assert full.value.code in LATER
        async with greedy.mcp() as agent:
            result = await agent.call_tool("memory_store", {"content": "- said again"})
            assert result.is_error
            assert "this space is full" in str(result.content)
            assert "daemon.toml" in str(result.content)
        await limited(daemon, "greedy", UNLIMITED)
        await greedy.request("call", body)


def test_the_error_ends_a_command_as_a_full_disk_does() -> None:
    assert SpaceFullError("it has 3 documents", "documents").exit_code == EXIT_STORAGE
