"""A change that a machine asks for twice under one id is made once, whatever came in between."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving

from confide_crypto.errors import RequestError
from confide_daemon.documents.writer import RepeatableChange
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import OperationError
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

LATER = "2026-11-20T23:59:58+01:00"


def an_id() -> str:
    return secrets.token_hex(16)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path) as running:
        yield running


async def call(box: Machine, operation: str, content: str = "- said once", **other: Any) -> dict[str, Any]:
    """The sync request by which what waited on a machine is made; its tool's result."""
    project = other.pop("project", "proj")
    body = {"project": project, "operation": operation, "tool": "memory_store", "said": LATER}
    answer = await box.request("call", {**body, "arguments": {"content": content, **other}})
    result: dict[str, Any] = answer["result"]
    return result


async def text_of(box: Machine, path: str, project: str = "proj") -> str:
    return str((await box.request("pull", {"project": project, "path": path}))["text"])


async def test_the_second_time_gives_the_first_result_and_changes_nothing(daemon: Serving) -> None:
    async with machine(daemon) as box:
        await box.attach("proj", "global")
        first = await call(box, operation := an_id(), path="MEMORY.md")
        again = await call(box, operation, path="MEMORY.md")
        assert (first["revision"], first["linesWritten"]) == (again["revision"], again["linesWritten"]) == (1, 1)
        assert await text_of(box, "MEMORY.md") == "- said once\n"
        assert box.files["proj", "MEMORY.md"] == "- said once\n"


async def test_a_tool_call_and_its_repetition_by_request_are_one(daemon: Serving) -> None:
    """Sent as an agent's call first, then, after the link broke, as what waited on the machine."""
    async with machine(daemon) as box:
        await box.attach("proj", "global")
        meta: Any = {"confide/operation": (operation := an_id()), "confide/said": LATER}
        async with box.mcp() as client:
            sent = await client.call_tool("memory_store", {"content": "- said once"}, meta=meta)
        assert not sent.is_error, sent
        again = await call(box, operation)
        assert again["path"] == "memory/2026-11-20.md", "the day of whoever said it"
        assert await text_of(box, "memory/2026-11-20.md") == "- said once\n"


async def test_two_at_once_are_one(daemon: Serving) -> None:
    identity = daemon.enroll("laptop")
    async with Machine(await daemon.connect(identity)) as one, Machine(await daemon.connect(identity)) as other:
        for box in (one, other):
            await box.attach("proj")
        operation = an_id()
        await asyncio.gather(*(call(box, operation, path="MEMORY.md") for box in (one, other) for _ in range(8)))
        assert await text_of(one, "MEMORY.md") == "- said once\n"


async def test_an_id_of_something_else_is_refused(daemon: Serving) -> None:
    async with machine(daemon) as box:
        await box.attach("proj", "global")
        await call(box, operation := an_id(), path="MEMORY.md")
        for other in ({"content": "- another"}, {"path": "memory/x.md"}, {"mode": "replace"}, {"project": "other"}):
            with pytest.raises(RequestError, match="used for another change") as caught:
                await call(box, operation, **{"path": "MEMORY.md", **other})
            assert caught.value.code == "conflict"
        assert await text_of(box, "MEMORY.md") == "- said once\n"


async def test_ids_belong_to_a_space(daemon: Serving) -> None:
    operation = an_id()
    for name in ("ann", "ben"):
        async with machine(daemon, name) as box:
            await box.attach("proj")
            assert (await call(box, operation, path="MEMORY.md"))["revision"] == 1


async def test_a_repetition_brings_back_no_older_text(daemon: Serving) -> None:
    """Between the two somebody wrote on, and then deleted the file: neither is undone on any disk."""
    async with machine(daemon) as box:
        await box.attach("proj", "global")
        await call(box, operation := an_id(), path="MEMORY.md")
        await call(box, an_id(), "- and more", path="MEMORY.md")
        assert (await call(box, operation, path="MEMORY.md"))["revision"] == 2
        assert box.files["proj", "MEMORY.md"] == "- said once\n- and more\n"
        await box.request("remove", {"project": "proj", "path": "MEMORY.md", "base": 2})
        del box.files["proj", "MEMORY.md"]
        again = await call(box, operation, path="MEMORY.md")
        assert "deleted since" in again["warnings"][0]
        assert ("proj", "MEMORY.md") not in box.files


async def test_what_waited_in_another_project_goes_there(daemon: Serving) -> None:
    """The connection's project is one, that of the waiting call another; the grants of both count."""
    async with machine(daemon) as box:
        await box.attach("proj")
        stored = await call(box, an_id(), project="elsewhere", path="MEMORY.md")
        assert stored["project"] == "elsewhere"
        assert ("elsewhere", "MEMORY.md") not in box.files, "this connection keeps no files of that project"
        await box.attach("elsewhere")
        assert await text_of(box, "MEMORY.md", "elsewhere") == "- said once\n"
    async with machine(daemon, "narrow", projects={"proj"}) as box:
        await box.attach("proj")
        with pytest.raises(RequestError) as caught:
            await call(box, an_id(), project="elsewhere", path="MEMORY.md")
        assert caught.value.code == "denied"
    async with machine(daemon, "reader", scope="read") as box:
        await box.attach("proj")
        with pytest.raises(RequestError) as caught:
            await call(box, an_id(), path="MEMORY.md")
        assert caught.value.code == "denied"


IMPOSSIBLE = [
    ({"operation": "0123"}, "invalid"),
    ({"operation": "G" * 32}, "invalid"),
    ({"operation": None}, "invalid"),
    ({"said": "yesterday"}, "invalid"),
    ({"said": "2" * 1000}, "invalid"),
    ({"tool": "memory_search", "arguments": {"query": "x"}}, "invalid"),
    ({"tool": "no_such"}, "invalid"),
    ({"arguments": {"content": ""}}, "invalid"),
    ({"arguments": {"content": "x", "path": "../x.md"}}, "invalid"),
    ({"arguments": {"content": "x", "mode": "replace", "heading": "None such"}}, "not_found"),
    ({"arguments": "x"}, "invalid"),
]


async def test_what_cannot_be_done_is_refused_with_its_code(daemon: Serving) -> None:
    """A machine keeps what is refused for good, and tries again what is not: the code tells them apart."""
    async with machine(daemon) as box:
        await box.attach("proj")
        for wrong, code in IMPOSSIBLE:
            body = {"project": "proj", "operation": an_id(), "tool": "memory_store", "arguments": {"content": "x"}}
            with pytest.raises(RequestError) as caught:
                await box.request("call", {**body, **wrong})
            assert caught.value.code == code
            assert "hint" not in caught.value.message  # it is a field of its own
            assert await box.request("ping", {}) == {}


async def test_a_broken_id_in_a_tool_call_is_an_error_that_an_agent_reads(daemon: Serving) -> None:
    async with machine(daemon) as box:
        await box.attach("proj")
        async with box.mcp() as client:
            meta: Any = {"confide/operation": "mine"}
            refused = await client.call_tool("memory_store", {"content": "x"}, meta=meta)
            assert refused.is_error
            assert "hex digits" in str(refused.content)


async def test_change_and_id_are_on_disk_together(tmp_path: Path) -> None:
    """After the daemon is opened anew the id is known; one whose change failed is not."""
    key, path = os.urandom(32), tmp_path / "a.db"

    async def opened() -> Space:
        embedder = LoadedModel.ready(HashedEmbedder(64))
        return await Space.open(path, key, SpaceShared(IndexSettings(), embedder), space_id="s")

    operation = RepeatableChange(an_id(), "asked")
    space = await opened()
    with pytest.raises(Exception, match="no such document"):
        await space.documents.replace("p", "a.md", "x", heading="Part", author="me", operation=operation)
    first = await space.documents.append("p", "a.md", "- one", heading=None, author="me", operation=operation)
    assert not first.repeated
    await space.close()
    space = await opened()
    again = await space.documents.append("p", "a.md", "- one", heading=None, author="me", operation=operation)
    assert (again.repeated, again.revision, again.text) == (True, 1, "- one\n")
    with pytest.raises(OperationError):
        await space.documents.append(
            "p", "a.md", "- one", heading=None, author="me", operation=RepeatableChange(operation.id, "other")
        )
    await space.close()


@pytest.mark.parametrize(
    ("sent", "is_asked"),
    [
        ({"project": "proj", "path": "MEMORY.md"}, False),
        ({"project": "proj", "path": "memory/other.md"}, True),
        ({"project": ["proj"], "path": {}}, True),
        ("MEMORY.md", True),
        (None, True),
    ],
)
async def test_a_file_that_was_just_sent_is_not_asked_for(daemon: Serving, sent: Any, is_asked: bool) -> None:
    """PROTOCOL.md 9.4: `confide/sent`. What says nothing of that file changes nothing."""
    async with machine(daemon) as box:
        await box.attach("proj", "global", toolsets=["core", "notes"])
        meta: Any = {"confide/sent": sent} if sent else None
        async with box.mcp() as client:
            stored = await client.call_tool("memory_store", {"content": "- said", "path": "MEMORY.md"}, meta=meta)
            assert not stored.is_error, stored
            assert box.flushed == ([{"project": "proj", "path": "MEMORY.md"}] if is_asked else [])
            assert await text_of(box, "MEMORY.md") == "- said\n"
            # It is about a file that is stored to, and no other tool's.
            box.flushed.clear()
            deleted = await client.call_tool("memory_delete", {"path": "MEMORY.md"}, meta=meta)
            assert not deleted.is_error, deleted
            assert box.flushed == [{"project": "proj", "path": "MEMORY.md"}]
