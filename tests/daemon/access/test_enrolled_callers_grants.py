"""What a caller may do: every operation looks at its grants as they are at that moment, and says what is missing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S
from tests.support.documents.transcripts import batch, said

from confide_crypto.errors import RequestError
from confide_daemon.access import enrollment
from confide_daemon.access.enrollment import Rights

TALK = "sessions/2026-11-20-claude-code-one.md"


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def filled(daemon: Serving) -> Serving:
    """Space `home` with one document in each of the projects app, web and global, and a transcript in app."""
    async with machine(daemon, "owner", space="home") as owner:
        await owner.attach("app", "web", "global")
        for project in ("app", "web", "global"):
            await owner.put("MEMORY.md", f"the {project} harbour is blue\n", project=project)
        talked = batch(0, 9, said("user", "the talked-about harbour is green"), version=0, session="one", project="app")
        assert (await owner.request("transcript", talked))["taken"]
    return daemon


async def denied(work: Any) -> RequestError:
    """The refusal that the request meets; it must be one."""
    with pytest.raises(RequestError) as refused:
        await work
    assert refused.value.code == "denied"
    return refused.value


async def call(laptop: Machine, tool: str, arguments: dict[str, Any]) -> Any:
    async with laptop.mcp() as client:
        return await client.call_tool(tool, arguments)


def said_no(result: Any, what: str) -> None:
    """A tool's answer that carries the code, and names the command that helps."""
    assert result.is_error
    assert result.meta["confide/code"] == "denied"
    assert what in result.content[0].text
    assert "confided device edit" in result.content[0].text


# Projects


async def test_a_caller_of_one_project_searches_no_other(filled: Serving) -> None:
    async with machine(filled, "laptop", space="home", projects={"app"}) as laptop:
        await laptop.attach("app")
        async with laptop.mcp() as client:
            for project in ("*", "app"):
                found = await client.call_tool("memory_search", {"query": "harbour", "project": project, "minScore": 0})
                assert {hit["project"] for hit in found.structured_content["results"]} == {"app"}, project
            found = await client.call_tool("memory_search", {"query": "harbour", "minScore": 0})
            assert {hit["project"] for hit in found.structured_content["results"]} == {"app"}
            for wanted in ({"project": "web"}, {"project": "global"}, {"scope": "global"}):
                said_no(
                    await client.call_tool("memory_search", {"query": "harbour", **wanted}), "no grant for the project"
                )


async def test_a_caller_of_one_project_reads_and_writes_in_no_other(filled: Serving) -> None:
    async with machine(filled, "laptop", space="home", projects={"app"}) as laptop:
        await laptop.attach("app", "global")
        async with laptop.mcp() as client:
            read = await client.call_tool("memory_read", {"path": "MEMORY.md"})
            assert read.structured_content["project"] == "app"
            for project in ("web", "global"):
                refused = await client.call_tool("memory_read", {"path": "MEMORY.md", "project": project})
                said_no(refused, f"no grant for the project '{project}'")
            # Not even whether a file is there is told: the fallback to the global project is left out.
            missing = await client.call_tool("memory_read", {"path": "memory/none.md"})
            assert missing.meta["confide/code"] == "not_found"
            stored = await client.call_tool("memory_store", {"content": "mine", "path": "memory/a.md"})
            assert not stored.is_error
            said_no(
                await client.call_tool("memory_store", {"content": "x", "project": "global"}), "the project 'global'"
            )


async def test_status_counts_only_what_the_caller_reaches(filled: Serving) -> None:
    async with machine(filled, "laptop", space="home", projects={"app"}) as laptop:
        await laptop.attach("app")
        told = (await call(laptop, "memory_status", {})).structured_content
        assert (told["projects"], told["totalFiles"]) == (["app"], 2)
    async with machine(filled, "desk", space="home", projects={"app"}, sources={"memory"}) as desk:
        await desk.attach("app")
        told = (await call(desk, "memory_status", {})).structured_content
        assert (told["totalFiles"], list(told["sources"])) == (1, ["memory"])


async def test_every_sync_request_of_a_project_without_a_grant_is_denied(filled: Serving) -> None:
    identity = filled.enroll("laptop", space="home", projects={"app", "web"})
    async with Machine(await filled.connect(identity)) as laptop:
        await laptop.attach("app", "web")
        enrollment.grant(filled.state.registry, "laptop", Rights(projects="app"))
        await asyncio.wait_for(_until_denied(laptop, "web"), DEADLINE_S)
        put = {"project": "web", "path": "memory/x.md", "text": "x", "hash": text_hash("x"), "base": 0}
        requests = {
            "attach": {"project": "web"},
            "compare": {"project": "web", "entries": [], "gone": [["MEMORY.md", 1]]},
            "put": put,
            "remove": {"project": "web", "path": "MEMORY.md", "base": 1},
            "pull": {"project": "web", "path": "MEMORY.md"},
        }
        for op, body in requests.items():
            error = await denied(laptop.request(op, body))
            assert str(error) == "this device has no grant for the project 'web'", op
            assert "confided device edit laptop --projects app,web" in (error.hint or "")
        assert (await laptop.request("pull", {"project": "app", "path": "MEMORY.md"}))["revision"] == 1
    async with machine(filled, "check", space="home") as check:
        await check.attach("web")
        assert (await check.request("pull", {"project": "web", "path": "MEMORY.md"}))["revision"] == 1


async def _until_denied(laptop: Machine, project: str) -> None:
    while True:
        try:
            await laptop.request("pull", {"project": project, "path": "MEMORY.md"})
        except RequestError as error:
            if error.code == "denied":
                return
            raise
        await asyncio.sleep(0.02)


async def test_the_global_project_is_an_empty_one_to_a_machine_without_a_grant_for_it(filled: Serving) -> None:
    """Every proxy attaches it, and compares its folder, without being asked: neither may fail, nor show or take anything."""
    async with machine(filled, "laptop", space="home", projects={"app"}) as laptop:
        await laptop.attach("app", "global")
        entries = [["memory/mine.md", text_hash("mine"), 0], ["MEMORY.md", text_hash("x"), 1]]
        answer = await laptop.request("compare", {"project": "global", "entries": entries, "gone": [["MEMORY.md", 1]]})
        assert answer == {"send": [], "adopt": [], "pull": [], "drop": []}
        await denied(laptop.request("pull", {"project": "global", "path": "MEMORY.md"}))
        await denied(laptop.put("memory/mine.md", "mine", project="global"))
        # With the grant it is one like any other, on the same connection.
        enrollment.grant(filled.state.registry, "laptop", Rights(projects="app,global"))

        async def pulled() -> dict[str, Any]:
            while True:
                told = await laptop.request("compare", {"project": "global", "entries": [], "gone": []})
                if told["pull"]:
                    return told
                await asyncio.sleep(0.02)

        assert [path for path, *_ in (await asyncio.wait_for(pulled(), DEADLINE_S))["pull"]] == ["MEMORY.md"]


async def test_no_change_of_a_project_without_a_grant_is_sent_to_a_machine(filled: Serving) -> None:
    identity = filled.enroll("laptop", space="home", projects={"app", "web"})
    async with Machine(await filled.connect(identity)) as laptop, machine(filled, "desk", space="home") as desk:
        await laptop.attach("app", "web", "global")
        await desk.attach("app", "web", "global")
        enrollment.grant(filled.state.registry, "laptop", Rights(projects="app"))
        await asyncio.wait_for(_until_denied(laptop, "web"), DEADLINE_S)
        for project in ("web", "global", "app"):
            await desk.put("memory/new.md", f"new in {project}\n", project=project)
        await desk.request("remove", {"project": "web", "path": "memory/new.md", "base": 1})
        await desk.put("memory/last.md", "last\n", project="app")
        async with asyncio.timeout(DEADLINE_S):
            taken = [(await laptop.applied.get())["path"] for _ in range(2)]
        # Changes arrive in their order, so what was not to come would have come before the last.
        assert taken == ["memory/new.md", "memory/last.md"]
        assert set(laptop.files) == {("app", "memory/new.md"), ("app", "memory/last.md")}


# Sources


async def test_a_caller_of_one_source_reaches_no_other(filled: Serving) -> None:
    async with machine(filled, "laptop", space="home", sources={"memory"}) as laptop:
        await laptop.attach("app")
        async with laptop.mcp() as client:
            found = await client.call_tool("memory_search", {"query": "harbour", "project": "*", "minScore": 0})
            assert {hit["source"] for hit in found.structured_content["results"]} == {"memory"}
            refused = await client.call_tool("memory_search", {"query": "harbour", "sources": ["memory", "sessions"]})
            said_no(refused, "no grant for the source 'sessions'")
            said_no(await client.call_tool("memory_read", {"path": TALK}), "the source 'sessions'")
            said_no(await client.call_tool("memory_sync", {"source": "sessions"}), "the source 'sessions'")
            missing = await client.call_tool("memory_read", {"path": TALK.replace("sessions/", "memory/")})
            assert missing.is_error
            assert TALK not in missing.content[0].text
        compared = await laptop.request("compare", {"project": "app", "entries": [], "gone": [[TALK, 1]]})
        assert [path for path, *_ in compared["pull"]] == ["MEMORY.md"]
        assert compared["drop"] == []
        await denied(laptop.request("pull", {"project": "app", "path": TALK}))
        await denied(laptop.request("transcript", batch(0, 9, version=0, session="two", project="app")))
    async with machine(filled, "desk", space="home", sources={"sessions"}) as desk:
        await desk.attach("app")
        said_no(await call(desk, "memory_store", {"content": "x"}), "no grant for the source 'memory'")


# Scope


async def test_a_caller_that_may_only_read_is_told_so_with_the_code(filled: Serving) -> None:
    async with machine(filled, "laptop", space="home", scope="read") as laptop:
        await laptop.attach("app")
        async with laptop.mcp() as client:
            said_no(await client.call_tool("memory_store", {"content": "x"}), "may read the memory but not write it")
            said_no(await client.call_tool("memory_sync", {"reembed": True}), "--scope write")
            assert not (await client.call_tool("memory_read", {"path": "MEMORY.md"})).is_error
        await denied(laptop.put("memory/x.md", "x", project="app"))
        await denied(laptop.request("remove", {"project": "app", "path": "MEMORY.md", "base": 1}))
        body = {"project": "app", "entries": [["memory/x.md", text_hash("x"), 0]], "gone": [["MEMORY.md", 1]]}
        compared = await laptop.request("compare", body)
        assert (compared["send"], compared["denied"]) == ([], ["memory/x.md"])
        assert "MEMORY.md" in [path for path, *_ in compared["pull"]]


async def test_new_vectors_for_the_whole_space_need_every_project(filled: Serving) -> None:
    async with machine(filled, "laptop", space="home", projects={"app"}) as laptop:
        await laptop.attach("app")
        said_no(await call(laptop, "memory_sync", {"reembed": True}), "no grant for all projects")


async def test_a_grant_that_goes_while_the_machine_answers_counts(filled: Serving) -> None:
    """The store first lets the machine send its file; by the time it has, the caller may only read."""
    identity = filled.enroll("laptop", space="home")

    class Slow(Machine):
        async def until_denied(self) -> None:
            """Return once the daemon has seen the grant: what was allowed before is refused."""
            with contextlib.suppress(RequestError):
                while True:
                    await self.put("memory/asked.md", "allowed so far\n", project="app")

        async def _on_request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
            if op == "flush":
                enrollment.grant(filled.state.registry, "laptop", Rights(scope="read"))
                await self.until_denied()
            return await super()._on_request(op, body)

    async with Slow(await filled.connect(identity)) as laptop:
        await laptop.attach("app")
        said_no(await call(laptop, "memory_store", {"content": "too late", "path": "MEMORY.md"}), "not write it")
    async with machine(filled, "check", space="home") as check:
        await check.attach("app")
        assert "too late" not in (await check.request("pull", {"project": "app", "path": "MEMORY.md"}))["text"]


async def test_a_grant_that_goes_while_a_body_comes_counts(filled: Serving) -> None:
    """The upload began with every right; what has come is not used when they are gone at its end."""
    text = "too late " * 1000
    async with machine(filled, "laptop", space="home") as laptop:
        await laptop.attach("app", "web")

        async def slow() -> AsyncIterator[bytes]:
            yield text[:4500].encode()
            enrollment.grant(filled.state.registry, "laptop", Rights(projects="web"))
            await asyncio.wait_for(_until_denied(laptop, "app"), DEADLINE_S)
            yield text[4500:].encode()

        body = {"project": "app", "path": "memory/late.md", "hash": text_hash(text), "base": 0}
        error = await denied(laptop.connection.upload("put", body, slow(), timeout_s=DEADLINE_S))
        assert "no grant for the project 'app'" in str(error)
        allowed = {**body, "project": "web"}
        assert (await laptop.connection.upload("put", allowed, text.encode(), timeout_s=DEADLINE_S))["revision"] == 1
    async with machine(filled, "check", space="home") as check:
        await check.attach("app")
        with pytest.raises(RequestError, match="no such document"):
            await check.request("pull", {"project": "app", "path": "memory/late.md"})


async def test_what_a_renamed_caller_writes_bears_its_new_name(filled: Serving) -> None:
    async with machine(filled, "laptop", space="home") as laptop:
        await laptop.attach("app")
        enrollment.rename(filled.state.registry, "laptop", "work")

        async def stored_by(client: Client) -> str:
            await client.call_tool("memory_store", {"content": "mine", "path": "memory/mine.md"})
            found = await client.call_tool("memory_search", {"query": "mine", "path": "memory/mine.md", "minScore": 0})
            return str(found.structured_content["results"][0]["author"])

        async with laptop.mcp() as client, asyncio.timeout(DEADLINE_S):
            authors = [await stored_by(client)]
            while authors[-1] != "work":
                authors.append(await stored_by(client))
        assert set(authors) <= {"laptop", "work"}


async def test_an_access_that_runs_out_ends_the_session_and_says_when(filled: Serving) -> None:
    identity = filled.enroll("laptop", space="home")
    async with Machine(await filled.connect(identity)) as laptop:
        await laptop.attach("app")
        enrollment.grant(filled.state.registry, "laptop", Rights(expires="1s"))
        assert await laptop.ended_within(3.0) is None
        assert laptop.connection.close_code == "expired"
    with pytest.raises(Exception, match="access has expired") as refused:
        await filled.connect(identity)
    assert getattr(refused.value, "reason", "") == "expired"
    assert "it expired on " in str(getattr(refused.value, "hint", ""))
    enrollment.grant(filled.state.registry, "laptop", Rights(expires="never"))
    async with Machine(await filled.connect(identity)) as laptop:
        await laptop.attach("app")
