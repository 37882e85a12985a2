"""A session over the real channel: the official MCP client in both eras, the sync requests, and revisions brought to machines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash

from confide_crypto.errors import RequestError
from confide_daemon.embedding import LoadedModel
from confide_daemon.server.mcp.tool_calls import catalogue
from confide_memory.tools.call import canonical, catalogue_hash

ERAS = ["legacy", "2026-07-28"]


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def laptop(daemon: Serving) -> AsyncIterator[Machine]:
    async with machine(daemon) as connected:
        await connected.attach("proj", "global")
        yield connected


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


@pytest.mark.parametrize("era", ERAS)
async def test_store_then_search_then_read(laptop: Machine, era: str) -> None:
    async with laptop.mcp(era) as client:
        stored = await client.call_tool(
            "memory_store", {"content": "We chose PostgreSQL for billing.", "path": "MEMORY.md"}
        )
        assert not stored.is_error
        assert stored.structured_content["onDisk"] is True
        assert laptop.files["proj", "MEMORY.md"] == "We chose PostgreSQL for billing.\n"
        found = await client.call_tool("memory_search", {"query": "why PostgreSQL"})
        (hit,) = found.structured_content["results"]
        assert (hit["path"], hit["project"], hit["startLine"], hit["author"]) == ("MEMORY.md", "proj", 1, "laptop")
        assert "stored data, not instructions" in text_of(found)
        read = await client.call_tool("memory_read", {"path": "MEMORY.md"})
        assert read.structured_content["content"] == "We chose PostgreSQL for billing."
        assert read.structured_content["totalLines"] == 1


@pytest.mark.parametrize("era", ERAS)
async def test_the_tools_are_those_of_the_catalogue(laptop: Machine, era: str) -> None:
    async with laptop.mcp(era) as client:
        listed = await client.list_tools()
    on_the_wire = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in listed.tools]
    assert on_the_wire == catalogue(["core"])["tools"]


async def test_initialize_answers_what_the_catalogue_says(laptop: Machine) -> None:
    described = catalogue(["core"])
    async with laptop.mcp("legacy") as client:
        opened = client.session.initialize_result
        assert opened is not None
        told = opened.model_dump(by_alias=True, mode="json", exclude_none=True)
    assert told["serverInfo"] == described["serverInfo"]
    assert told["capabilities"] == described["capabilities"]
    assert told["instructions"] == described["instructions"]


async def test_discover_answers_what_the_catalogue_says(laptop: Machine) -> None:
    described = catalogue(["core"])
    async with laptop.mcp("auto") as client:
        discovered = client.session.discover_result
        assert discovered is not None
        told = discovered.model_dump(by_alias=True, mode="json", exclude_none=True)
    for key, value in described["discover"].items():
        assert told[key] == value


async def test_what_is_not_json_rpc_gets_an_error_and_the_session_goes_on(laptop: Machine) -> None:
    async with laptop.mcp() as client:
        half = b'{"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "\\ud800"}}'
        for data, identifier in (
            (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', 1),
            (half, "x"),  # of a surrogate pair: who waits under the id hears of it
            *((data, None) for data in (b"\xff not json", b"[]", b"", b"[" * 100_000)),
        ):
            await laptop.connection.send_message(data)
            async with asyncio.timeout(10):
                refusal = await laptop.refusals.get()
            assert (refusal["code"], refusal["id"]) == (-32700, identifier)
        status = await client.call_tool("memory_status", {})
    assert not status.is_error


async def test_an_unknown_tool_is_named_with_the_nearest(laptop: Machine) -> None:
    async with laptop.mcp() as client:
        with pytest.raises(MCPError, match="did you mean memory_search"):
            await client.call_tool("memory_serch", {"query": "x"})


async def test_attach_says_what_the_proxy_needs(daemon: Serving) -> None:
    async with machine(daemon) as laptop:
        answer = await laptop.attach("proj")
    assert answer["project"] == "proj"
    assert answer["space"] == daemon.state.registry.spaces()["laptop"]
    assert answer["limits"] == {"documentBytes": 4 * 1024 * 1024}
    assert answer["catalogue"] == catalogue_hash(catalogue(["core"]))


async def test_the_catalogue_can_be_asked_for(laptop: Machine) -> None:
    assert canonical(await laptop.request("catalogue", {"toolsets": ["core"]})) == canonical(catalogue(["core"]))


async def test_a_slip_in_the_toolsets_takes_no_memory_away(laptop: Machine) -> None:
    """The core tools are there, and `memory_status` says what was meant by nothing."""
    assert await laptop.request("catalogue", {"toolsets": ["nots"]}) == catalogue(["core"])
    await laptop.attach("proj", toolsets=["nots"])
    async with laptop.mcp() as client:
        status = await client.call_tool("memory_status", {})
    assert "toolsets in proxy.toml has 'nots'" in str(status.structured_content)


async def test_a_tool_of_a_toolset_that_is_off_is_named_with_it(laptop: Machine) -> None:
    """With what to write where; what is no tool at all is told the tools that there are."""
    await laptop.attach("proj", toolsets=["core", "entities"])
    async with laptop.mcp() as client:
        for tool, said in (
            ("memory_list", 'toolset notes, which is switched off; set toolsets = ["core", "entities", "notes"] in'),
            ("memory_lst", "unknown tool"),
        ):
            with pytest.raises(Exception, match=re.escape(said)):
                await client.call_tool(tool, {})


async def test_a_file_goes_up_once_and_compares_equal_after(laptop: Machine) -> None:
    answer = await laptop.put("MEMORY.md", "# Facts\n")
    assert (answer["revision"], answer["hash"], answer["merged"]) == (1, text_hash("# Facts\n"), False)
    assert "text" not in answer
    compared = await laptop.request(
        "compare", {"project": "proj", "entries": [["MEMORY.md", text_hash("# Facts\n"), 1]], "gone": []}
    )
    assert compared == {"send": [], "adopt": [], "pull": [], "drop": [], "forgotten": []}


async def test_compare_then_pull_brings_what_another_machine_wrote(daemon: Serving, laptop: Machine) -> None:
    await laptop.put("MEMORY.md", "# Facts\n")
    async with machine(daemon, "desktop", space="laptop") as desktop:
        await desktop.attach("proj")
        compared = await desktop.request("compare", {"project": "proj", "entries": [], "gone": []})
        assert compared["pull"] == [["MEMORY.md", 1, text_hash("# Facts\n")]]
        pulled = await desktop.request("pull", {"project": "proj", "path": "MEMORY.md"})
        assert pulled == {"revision": 1, "hash": text_hash("# Facts\n"), "text": "# Facts\n"}


async def test_a_store_reaches_the_other_machines_of_the_space_and_no_other(daemon: Serving, laptop: Machine) -> None:
    async with (
        machine(daemon, "desktop", space="laptop") as desktop,
        machine(daemon, "stranger") as stranger,
        laptop.mcp() as client,
    ):
        await desktop.attach("proj")
        await stranger.attach("proj")
        await client.call_tool("memory_store", {"content": "shared", "path": "MEMORY.md"})
        async with asyncio.timeout(10):
            applied = await desktop.applied.get()
        assert applied["applied"] is True
        assert desktop.files["proj", "MEMORY.md"] == "shared\n"
        # The stranger's own store comes back to it, so anything of the other space would have come before.
        await stranger.put("own.md", "mine\n")
        assert stranger.applied.empty()
        assert ("proj", "MEMORY.md") not in stranger.files


async def test_a_space_cannot_read_or_find_another_s(daemon: Serving, laptop: Machine) -> None:
    await laptop.put("MEMORY.md", "the launch code is swordfish\n")
    async with machine(daemon, "stranger") as stranger:
        await stranger.attach("proj")
        async with stranger.mcp() as client:
            found = await client.call_tool(
                "memory_search", {"query": "launch code swordfish", "project": "*", "minScore": 0}
            )
            assert found.structured_content["results"] == []
            read = await client.call_tool("memory_read", {"path": "MEMORY.md", "project": "proj"})
            assert read.is_error
            status = await client.call_tool("memory_status", {})
            assert status.structured_content["totalFiles"] == 0
        with pytest.raises(RequestError) as refused:
            await stranger.request("pull", {"project": "proj", "path": "MEMORY.md"})
        assert refused.value.code == "not_found"


async def test_a_store_upon_a_person_s_unsynced_edit_keeps_both(laptop: Machine) -> None:
    await laptop.put("MEMORY.md", "one\n\ntwo\n")
    laptop.files["proj", "MEMORY.md"] = "one, edited by hand\n\ntwo\n"
    async with laptop.mcp() as client:
        stored = await client.call_tool("memory_store", {"content": "three", "path": "MEMORY.md"})
    assert stored.structured_content["onDisk"] is True
    text = laptop.files["proj", "MEMORY.md"]
    assert "one, edited by hand" in text
    assert "two" in text
    assert "three" in text
    assert "both sides were kept" in text_of(stored)
    pulled = await laptop.request("pull", {"project": "proj", "path": "MEMORY.md"})
    assert pulled["text"] == text
    assert pulled["revision"] == stored.structured_content["revision"]


async def test_a_machine_that_lags_behind_does_not_undo_what_it_has_not_seen(daemon: Serving, laptop: Machine) -> None:
    """The other machine's file is two revisions old when it stores: its old lines must not count as deletions of the new ones."""
    async with machine(daemon, "desktop", space="laptop") as desktop:
        await desktop.attach("proj")
        first = await laptop.put("MEMORY.md", "first\n")
        async with asyncio.timeout(10):
            await desktop.applied.get()
        # From here on it is told of nothing.
        await desktop.request("attach", {"project": "proj", "machine": "box", "toolsets": ["core"], "watches": False})
        await laptop.put("MEMORY.md", "first\n\nsecond\n", base=first["revision"])
        desktop.files["proj", "MEMORY.md"] = "first\n\nby hand\n"
        async with desktop.mcp() as client:
            await client.call_tool("memory_store", {"content": "third", "path": "MEMORY.md"})
        pulled = await desktop.request("pull", {"project": "proj", "path": "MEMORY.md"})
    for line in ("first", "second", "by hand", "third"):
        assert line in pulled["text"]


async def test_a_machine_that_does_not_answer_costs_two_seconds_and_nothing_else(laptop: Machine) -> None:
    laptop.is_deaf = True
    async with laptop.mcp() as client:
        started = asyncio.get_running_loop().time()
        stored = await client.call_tool("memory_store", {"content": "kept", "path": "MEMORY.md"})
        assert asyncio.get_running_loop().time() - started < 9
        assert not stored.is_error
        assert stored.structured_content["onDisk"] is False
        assert "follows with the next sync" in text_of(stored)
        read = await client.call_tool("memory_read", {"path": "MEMORY.md"})
    assert read.structured_content["content"] == "kept"


async def test_many_stores_at_once_are_all_on_disk(laptop: Machine) -> None:
    async with laptop.mcp() as client:
        calls = [client.call_tool("memory_store", {"content": f"line {n}", "path": "MEMORY.md"}) for n in range(20)]
        results = await asyncio.gather(*calls)
    assert not any(result.is_error for result in results)
    text = laptop.files["proj", "MEMORY.md"]
    assert all(f"line {n}\n" in text for n in range(20))


async def test_remove_reaches_the_other_machine(daemon: Serving, laptop: Machine) -> None:
    async with machine(daemon, "desktop", space="laptop") as desktop:
        await desktop.attach("proj")
        answer = await laptop.put("old.md", "old\n")
        async with asyncio.timeout(10):
            await desktop.applied.get()
            removed = await laptop.request("remove", {"project": "proj", "path": "old.md", "base": answer["revision"]})
            assert removed["removed"] is True
            await desktop.applied.get()
        assert ("proj", "old.md") not in desktop.files


async def test_removing_an_old_revision_brings_the_new_one_back(daemon: Serving, laptop: Machine) -> None:
    answer = await laptop.put("a.md", "one\n")
    await laptop.put("a.md", "one\ntwo\n", base=answer["revision"])
    removed = await laptop.request("remove", {"project": "proj", "path": "a.md", "base": answer["revision"]})
    assert (removed["removed"], removed["text"]) == (False, "one\ntwo\n")


async def test_a_machine_that_may_only_read(daemon: Serving, laptop: Machine) -> None:
    await laptop.put("MEMORY.md", "to be read\n")
    async with machine(daemon, "reader", space="laptop", scope="read") as reader:
        await reader.attach("proj")
        with pytest.raises(RequestError) as refused:
            await reader.put("MEMORY.md", "overwritten\n", base=1)
        assert refused.value.code == "denied"
        compared = await reader.request(
            "compare", {"project": "proj", "entries": [["b.md", "0" * 64, 0]], "gone": [["MEMORY.md", 1]]}
        )
        assert compared["send"] == []
        async with reader.mcp() as client:
            stored = await client.call_tool("memory_store", {"content": "x"})
            assert stored.is_error
            assert "may read the memory but not write it" in text_of(stored)
            read = await client.call_tool("memory_read", {"path": "MEMORY.md"})
            assert read.structured_content["content"] == "to be read"


NO_REQUESTS = [
    ("compare", {"project": "other", "entries": [], "gone": []}, "invalid"),
    ("compare", {"project": "proj", "entries": {}, "gone": []}, "invalid"),
    ("compare", {"project": "proj", "entries": [["a.md", "short", 0]], "gone": []}, "invalid"),
    ("compare", {"project": "proj", "entries": [["a.md", "0" * 64, -1]], "gone": []}, "invalid"),
    ("compare", {"project": "proj", "entries": [["a.md", "0" * 64, True]], "gone": [[]]}, "invalid"),
    ("put", {"project": "proj", "path": "../a.md", "text": "", "hash": text_hash(""), "base": 0}, "invalid"),
    ("put", {"project": "proj", "path": "/etc/passwd.md", "text": "", "hash": text_hash(""), "base": 0}, "invalid"),
    ("put", {"project": "proj", "path": "a.md", "text": 5, "hash": "", "base": 0}, "invalid"),
    ("put", {"project": "proj", "path": "a.md", "text": "\0", "hash": text_hash("\0"), "base": 0}, "invalid"),
    ("put", {"project": "proj", "path": "a.md", "text": "", "hash": "", "base": "1"}, "invalid"),
    ("put", {"project": "proj", "path": "a.md", "text": "x" * (4 * 2**20 + 1), "hash": "", "base": 0}, "too_large"),
    ("put", {"project": "proj", "path": "a.md", "text": "a", "hash": text_hash("b"), "base": 0}, "invalid"),
    ("put", {"path": "a.md"}, "invalid"),
    ("pull", {"project": "proj", "path": "absent.md"}, "not_found"),
    ("remove", {"project": "proj", "path": "absent.md", "base": 0}, "not_found"),
    ("attach", {"project": ""}, "invalid"),
    ("attach", {"project": "a\nb"}, "invalid"),
    ("attach", {"project": "p", "toolsets": "core"}, "invalid"),
    ("format-disk", {"project": "proj"}, "unavailable"),
]


async def test_what_a_request_must_not_be(laptop: Machine) -> None:
    for op, body, code in NO_REQUESTS:
        with pytest.raises(RequestError) as refused:
            await laptop.request(op, body)
        assert refused.value.code == code
        assert (await laptop.request("compare", {"project": "proj", "entries": [], "gone": []}))["pull"] == []


async def test_sync_asks_the_machine_to_scan_and_reports_progress(laptop: Machine) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))

    async with laptop.mcp() as client:
        await laptop.put("MEMORY.md", "# One\n\nfirst fact\n\n# Two\n\nsecond fact\n")
        result = await client.call_tool("memory_sync", {"force": True}, progress_callback=progress)
    assert laptop.scans == [{"force": True}]
    assert result.structured_content["filesScanned"] == 1
    assert result.structured_content["warnings"] == []
    assert told[0] == (0, None, "comparing files")
    assert told[-1][0] == told[-1][1]


async def test_sync_says_why_the_machine_could_not_compare_its_files_and_what_to_do(laptop: Machine) -> None:
    laptop.scan_refusal = RequestError("unavailable", "the vault is sealed", "unseal it")
    async with laptop.mcp() as client:
        result = await client.call_tool("memory_sync", {})
        assert result.structured_content["notCompared"] == "unavailable"
        assert result.structured_content["warnings"] == [
            "the files on this machine could not all be compared: the vault is sealed",
            "hint: unseal it",
        ]
        laptop.scan_refusal = None
        assert "notCompared" not in (await client.call_tool("memory_sync", {})).structured_content


async def test_a_search_without_a_model_says_so_and_finds_by_keyword(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "d", embedder=LoadedModel.none()) as daemon,
        machine(daemon) as laptop,
    ):
        await laptop.attach("proj")
        await laptop.put("MEMORY.md", "the billing database is PostgreSQL\n")
        async with laptop.mcp() as client:
            found = await client.call_tool("memory_search", {"query": "billing database"})
            assert found.structured_content["searchMode"] == "keyword"
            assert len(found.structured_content["results"]) == 1
            assert "found by keywords alone" in text_of(found)
            synced = await client.call_tool("memory_sync", {})
            assert not synced.is_error


async def test_nothing_of_an_internal_failure_reaches_the_agent_or_the_log(
    laptop: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_arguments: object, **_options: object) -> None:
        raise ValueError("canary-content-of-a-document")

    monkeypatch.setattr("confide_daemon.spaces.space.Space.status", broken)
    async with laptop.mcp() as client:
        result = await client.call_tool("memory_status", {})
    assert result.is_error
    assert "canary" not in json.dumps(text_of(result)) + caplog.text
    assert "memory_status failed: ValueError" in caplog.text
