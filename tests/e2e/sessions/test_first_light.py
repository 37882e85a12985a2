"""From enrollment to a search hit, with the real programs: two callers, two spaces, the official client, and someone on the path."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.network.relay import RecordingRelay
from tests.support.programs.mcp_session import ERAS, Era, session
from tests.support.programs.processes import Machine, running_daemon

CONTENT = "canary-content-7f3a"
QUERY = "canary-query-19bd"


def words_in(text: str) -> str:
    """The six fingerprint words that a command printed."""
    found = re.search(r"\b(?:[a-z]+-){5}[a-z]+\b", text)
    assert found, text
    return found.group()


@pytest.mark.parametrize("era", ERAS)
async def test_two_callers_two_spaces_and_nothing_on_the_wire(tmp_path: Path, era: Era) -> None:
    """Each machine joins, streams its files, finds its own lines and nothing of the other's; secrets appear nowhere on the way."""
    ann, bob = Machine(tmp_path, "ann"), Machine(tmp_path, "bob")
    ann.write("MEMORY.md", f"# Decisions\n\nWe chose postgres over mysql for its row locks. {CONTENT}\n")
    ann.write("memory/2026-11-20.md", "# 2026-11-20\n\n- The deploy to staging failed: disk full on node 7.\n")
    bob.write("MEMORY.md", "# Recipes\n\nThe sourdough starter is fed at noon with rye flour.\n")
    with running_daemon(tmp_path, has_model=True) as daemon, RecordingRelay(daemon.port) as relay:
        invites = [daemon.invite(name, port=relay.port) for name in ("ann", "bob")]
        joined = [machine.run("join", invite) for machine, invite in zip((ann, bob), invites, strict=True)]
        callers = daemon.run("device")
        for text in joined:
            assert words_in(text) in callers
        async with session(ann, era, by_sdk=True) as first, session(bob, era) as second:
            for client in (first, second):
                synced = await client.call_tool("memory_sync", {})
                assert not synced.is_error, synced.content
            found = await first.call_tool("memory_search", {"query": f"why did we choose postgres {QUERY}"})
            assert found.structured_content is not None
            best = found.structured_content["results"][0]
            assert (best["path"], "postgres" in best["snippet"]) == ("MEMORY.md", True)
            assert best["startLine"] <= 3 <= best["endLine"]
            for query in ("postgres row locks", "deploy staging disk full", CONTENT):
                other = await second.call_tool("memory_search", {"query": query, "project": "*", "minScore": 0.0})
                assert other.structured_content is not None
                assert "postgres" not in str(other.structured_content)
                assert "staging" not in str(other.structured_content)
            peek = await second.call_tool("memory_read", {"path": "memory/2026-11-20.md"})
            assert peek.is_error
        captured = relay.captured
        secrets = [CONTENT, QUERY, "postgres", "sourdough", *(invite.split("#")[1] for invite in invites)]
        secrets += [machine_key(machine) for machine in (ann, bob)]
        logs = daemon.log.read_text()
        assert len(captured) > 10_000
        for secret in secrets:
            assert secret.encode() not in captured
            assert secret not in logs
        disk = b"".join(file.read_bytes() for file in daemon.data.rglob("*") if file.is_file())
        for secret in (CONTENT, QUERY, "sourdough", *(invite.split("#")[1] for invite in invites)):
            assert secret.encode() not in disk


def machine_key(machine: Machine) -> str:
    """The secret line of a machine's identity file."""
    text = (machine.home / "proxy" / "identity.key").read_text()
    return next(line for line in text.splitlines() if line and not line.startswith("#"))


@pytest.mark.parametrize("era", ERAS)
async def test_what_the_proxy_answers_alone_is_what_the_daemon_says(tmp_path: Path, era: Era) -> None:
    """The catalogue that answers before there is a link equals the daemon's own answers, in both eras."""
    ann = Machine(tmp_path, "ann")
    try:
        async with session(ann, era) as client:
            alone = await client.list_tools()
            info = client.server_info
            await client.call_tool("memory_status", {})
            linked = await client.list_tools(cache_mode="refresh")
            assert [tool.model_dump() for tool in alone.tools] == [tool.model_dump() for tool in linked.tools]
            assert info is not None
            assert info.name == "confide"
    finally:
        ann.stop_local_daemon()


async def test_a_store_is_on_disk_when_the_tool_answers(tmp_path: Path) -> None:
    """The file is there, below its heading, ignored by git, and found by the next search."""
    ann = Machine(tmp_path, "ann")
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q"], cwd=ann.project, check=True)
    ann.write("MEMORY.md", "# Project\n\n## Decisions\n\n- old one\n\n## Links\n\n- none\n")
    try:
        async with session(ann) as client:
            stored = await client.call_tool(
                "memory_store",
                {"content": "- we cache tokens for five minutes", "path": "MEMORY.md", "heading": "Decisions"},
            )
            assert not stored.is_error, stored.content
            text = (ann.project / "MEMORY.md").read_text()
            assert text.index("old one") < text.index("five minutes") < text.index("## Links")
            daily = await client.call_tool("memory_store", {"content": "- met the team"})
            assert daily.structured_content is not None
            assert "met the team" in (ann.project / daily.structured_content["path"]).read_text()
            found = await client.call_tool("memory_search", {"query": "how long are tokens cached?"})
            assert found.structured_content is not None
            assert "five minutes" in found.structured_content["results"][0]["snippet"]
        assert (ann.project / ".git/info/exclude").read_text().splitlines()[-1] == "/memory/"
        assert not (ann.project / ".gitignore").exists()
    finally:
        ann.stop_local_daemon()


@pytest.mark.parametrize("era", ERAS)
async def test_the_first_search_of_a_new_space_finds_what_is_on_this_disk(tmp_path: Path, era: Era) -> None:
    """Before its files are up, a search and a read bring what they hold; a command right after a store as well."""
    machine = Machine(tmp_path, "ann")
    for number in range(40):
        machine.write(f"memory/notes-{number}.md", f"# Note {number}\n\nThe quokka of day {number} was fed.\n")
    machine.write("memory/db.md", "# Database\n\nWe chose postgres over mysql for its row locks.\n")
    try:
        async with session(machine, era) as client:
            found = await client.call_tool("memory_search", {"query": "why did we choose postgres"})
            read = await client.call_tool("memory_read", {"path": "memory/db.md"})
            nothing = await client.call_tool("memory_search", {"query": "zygote"})
            await asyncio.to_thread(machine.run, "store", "The lock files live in var.", "--path", "memory/locks.md")
            by_hand = await asyncio.to_thread(machine.run, "search", "where do lock files live")
            (machine.project / "memory" / "latin.md").write_bytes(b"zygote caf\xe9\n")
            unread = await asyncio.to_thread(machine.run, "search", "zygote")
    finally:
        machine.stop_local_daemon()
    assert "row locks" in str(found.content)
    assert "row locks" in str(read.content)
    assert not (nothing.structured_content or {})["results"]
    assert "lock files live in var" in by_hand
    assert "memory/latin.md is not searched: it is not UTF-8 text" in unread
