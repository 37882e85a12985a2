"""A caller of one project, and one of another space, ask everything there is for what is not theirs: nothing comes.

What is hidden must also not be told from what is not there: the error for a hidden note is that for one that never was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.documents.notes import Agent, acting, text_of

from confide_crypto.errors import RequestError
from confide_daemon.documents import document_service
from confide_daemon.server.mcp.resources import file_uri, project_uri
from confide_daemon.server.mcp.tool_calls import definitions
from confide_memory.note_names import id_of_path

# In everything that is hidden; nothing that anybody else is told may hold any of it.
CANARY = "quokka"
HIDDEN = "vault"
OPEN = "shop"
# What both sides say, without knowing of each other.
PLAIN = "A guard walks round the vault each night at ten and writes down what he sees."
NOBODY = "mem_nobody_1700000000_0badcafe"


class Hidden:
    """What the owner has stored in the project that others do not reach."""

    def __init__(self, note: dict[str, Any], task: dict[str, Any]) -> None:
        self.id = str(note["id"])
        self.path = str(note["path"])
        self.task_id = str(task["id"])


async def fill(agent: Agent, owner: Machine) -> Hidden:
    fields: dict[str, Any] = {
        "title": f"{CANARY} title",
        "entity": f"{CANARY}-entity",
        "tags": [f"{CANARY}-tag"],
        "keywords": [f"{CANARY}-keyword"],
        "category": f"{CANARY}-category",
        "type": f"{CANARY}-type",
        "metadata": {f"{CANARY}-name": CANARY},
        "importance": "core",
    }
    note = await agent.call("memory_store", content=f"The {CANARY} sleeps in the vault.", **fields)
    other = await agent.call("memory_store", content=f"Another {CANARY}.", relatedTo=[note["id"]], relation="supports")
    await agent.call("memory_store", content=PLAIN, title=f"{CANARY} guard", tags=[f"{CANARY}-guard"])
    task = await agent.call("memory_store", content=f"A {CANARY} task.", scope="task", taskId=f"{CANARY}-task")
    await owner.put(f"memory/{CANARY}.md", f"# {CANARY}\n\nThe {CANARY} file.\n", project=HIDDEN)
    await owner.put("memory/notes/by-hand.md", f"---\nentity: {CANARY}-hand\n---\n{CANARY} by hand.\n", project=HIDDEN)
    assert other["id"] != note["id"]
    return Hidden(note, task)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@asynccontextmanager
async def stranger(daemon: Serving, kind: str) -> AsyncIterator[tuple[Machine, Agent]]:
    options: dict[str, Any] = (
        {"space": "owner", "projects": {OPEN, "global"}} if kind == "one project" else {"space": "elsewhere"}
    )
    async with machine(daemon, f"stranger-{kind[:3]}", **options) as other:
        await other.attach(OPEN, "global", toolsets=["all"])
        async with acting(other) as agent:
            yield other, agent


def asked(hidden: Hidden, own: str) -> dict[str, list[dict[str, Any]]]:
    """Every tool with what could lead to the hidden, by id, path, tag, entity, relation, project and words."""
    ids = [hidden.id, hidden.task_id, id_of_path(HIDDEN, "memory/notes/by-hand.md")]
    filters: list[dict[str, Any]] = [
        {"tags": [f"{CANARY}-tag"]},
        {"entity": f"{CANARY}-entity"},
        {"category": f"{CANARY}-category"},
        {"type": [f"{CANARY}-type"]},
        {"project": HIDDEN},
        {"project": "*"},
        {"scope": "task", "taskId": f"{CANARY}-task"},
        {"path": hidden.path},
        {"path": "memory/notes/*"},
        {"project": "*", "sort": "importance", "limit": 100},
    ]
    searches = [{**one, "query": "sleeps in the vault", "minScore": 0, "includeRelated": True} for one in filters]
    for one in searches:
        one.pop("sort", None), one.pop("limit", None)
    return {
        "memory_search": [*searches, {"query": "What sleeps in the vault?", "minScore": 0, "explain": True}],
        "memory_read": [
            {"path": hidden.path},
            {"path": hidden.path, "project": HIDDEN},
            {"path": f"memory/{CANARY}.md", "project": HIDDEN},
            {"path": hidden.path, "project": HIDDEN, "revision": 1},
        ],
        "memory_store": [
            {"content": "Mine.", "relatedTo": [hidden.id], "relation": "supersedes"},
            {"content": "Mine.", "project": HIDDEN},
            {"content": "Mine.", "project": HIDDEN, "tags": ["x"]},
            {"content": PLAIN, "tags": ["mine"]},
            {"content": PLAIN.replace("night", "nightly"), "tags": ["mine"]},
        ],
        "memory_status": [{}],
        "memory_sync": [{}],
        "memory_get": [{"id": one} for one in ids],
        "memory_list": filters,
        "memory_update": [{"id": hidden.id, "content": "Mine."}, {"id": hidden.id, "restoreRevision": 1}],
        "memory_delete": [{"id": hidden.id}, {"path": hidden.path, "project": HIDDEN}, {"path": hidden.path}],
        "memory_history": [{"id": hidden.id}, {"path": hidden.path, "project": HIDDEN}, {"path": hidden.path}],
        "memory_link": [
            {"id": own, "relatedId": hidden.id, "relation": "see_also"},
            {"id": hidden.id, "relatedId": own, "relation": "supersedes"},
            {"id": own, "relatedId": hidden.id, "relation": "see_also", "bidirectional": True},
        ],
        "memory_dedupe": [{"threshold": 0.5}, {"threshold": 0.5, "project": HIDDEN}, {"project": "*", "merge": True}],
        "memory_import": [{"paths": ["/"]}],
        "memory_forget": [{"names": [hidden.path], "project": HIDDEN}],
        "secret_get": [{"id": "0" * 32}],
        "project_summary": [{"project": HIDDEN}, {"project": HIDDEN, "create": True}, {}],
        "context_info": [{}],
        "entity_list": [{}, {"project": HIDDEN}, {"project": "*"}, {"scope": "task"}, {"type": f"{CANARY}-type"}],
        "entity_search": [{"query": f"{CANARY}-entity"}, {"query": f"{CANARY}-hand", "scope": "all"}],
        # Of tasks: tests/addons/night/daemon/test_task_requests.py, where there are devices that order some.
        "task_add": [{"description": "x", "project": HIDDEN}],
        "task_list": [{}, {"project": HIDDEN}],
        "task_results": [{}, {"taskId": "0123456789abcdef"}],
        "task_cancel": [{"id": "0123456789abcdef"}],
    }


def echoed(arguments: dict[str, Any], said: str) -> str:
    """An answer without what the asker said himself, as a whole or word by word."""
    texts = _texts(arguments)
    words = {word.strip("?.,").lower() for text in texts for word in text.split()}
    for word in sorted({*texts, *words}, key=len, reverse=True):
        said = said.replace(word, "")
    return said


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    return [text for one in value for text in _texts(one)] if isinstance(value, list) else []


@pytest.mark.addons
@pytest.mark.parametrize("kind", ["one project", "another space"])
async def test_no_tool_tells_of_what_is_hidden(daemon: Serving, kind: str) -> None:
    async with machine(daemon, "owner") as owner:
        await owner.attach(HIDDEN, "global", toolsets=["all"])
        async with acting(owner) as agent, stranger(daemon, kind) as (_, other):
            hidden = await fill(agent, owner)
            own = await other.note("My own note.", title="Own", entity="own")
            variants = asked(hidden, own)
            assert set(variants) == {tool.name for tool in definitions(["all"])}
            for tool, calls in variants.items():
                for arguments in calls:
                    result = await other.client.call_tool(tool, arguments)
                    said = json.dumps(result.structured_content, ensure_ascii=False) + text_of(result)
                    assert CANARY not in echoed(arguments, said), (tool, arguments, said)
            # Nothing of it was changed, either.
            note = await agent.call("memory_get", id=hidden.id)
            assert note["content"] == f"The {CANARY} sleeps in the vault."
            assert (note["revision"], len(note["relations"])) == (1, 1)
            assert (await agent.call("project_summary"))["files"] == 6


@pytest.mark.parametrize("kind", ["one project", "another space"])
async def test_what_is_hidden_is_answered_as_what_never_was(daemon: Serving, kind: str) -> None:
    async with machine(daemon, "owner") as owner:
        await owner.attach(HIDDEN, "global", toolsets=["all"])
        async with acting(owner) as agent, stranger(daemon, kind) as (_, other):
            hidden = await fill(agent, owner)
            own = await other.note("My own note.", title="Own")
            for tool, arguments in (
                ("memory_get", {"id": hidden.id}),
                ("memory_update", {"id": hidden.id, "content": "x"}),
                ("memory_delete", {"id": hidden.id}),
                ("memory_history", {"id": hidden.id}),
                ("memory_link", {"id": own, "relatedId": hidden.id, "relation": "see_also"}),
                ("memory_link", {"id": hidden.id, "relatedId": own, "relation": "see_also"}),
                ("memory_store", {"content": "x", "relatedTo": [hidden.id]}),
            ):
                nobody = json.loads(json.dumps(arguments).replace(hidden.id, NOBODY))
                there, nowhere = await other.refused(tool, **arguments), await other.refused(tool, **nobody)
                assert there.replace(hidden.id, "") == nowhere.replace(NOBODY, ""), tool


@pytest.mark.parametrize("kind", ["one project", "another space"])
async def test_no_count_changes_by_what_is_hidden(daemon: Serving, kind: str) -> None:
    async with machine(daemon, "owner") as owner:
        await owner.attach(HIDDEN, "global", toolsets=["all"])
        async with acting(owner) as agent, stranger(daemon, kind) as (_, other):
            await other.note("My own note.", title="Own", entity="own")

            async def figures() -> dict[str, Any]:
                status = await other.call("memory_status")
                unstable = ("searchLatencyMs", "lastSync", "indexAge", "queuedChunks", "generations", "providers")
                if kind == "another space":
                    unstable += ("dbSize",)
                return {
                    "status": {name: value for name, value in status.items() if name not in unstable},
                    "generations": [(one["total"], one["state"]) for one in status["generations"]],
                    "queued": await settled(other),
                    "list": (await other.call("memory_list", project="*"))["total"],
                    "entities": await other.call("entity_list", project="*"),
                    "summary": await other.call("project_summary"),
                    "dedupe": len((await other.call("memory_dedupe", threshold=0.5, project="*"))["groups"]),
                    "resources": [str(one.uri) for one in (await other.client.list_resources()).resources],
                }

            before = await figures()
            await fill(agent, owner)
            assert await figures() == before


@pytest.mark.parametrize("kind", ["one project", "another space"])
async def test_no_score_changes_by_what_is_hidden(daemon: Serving, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word in a text of one's own scores by how rare it is, and must not tell whether a hidden text has it."""
    # The searches of this test are uses, which count once they are written.
    monkeypatch.setattr(document_service, "WRITTEN_AFTER_S", 3600.0)
    async with machine(daemon, "owner") as owner:
        await owner.attach(HIDDEN, "global", toolsets=["all"])
        async with acting(owner) as agent, stranger(daemon, kind) as (box, other):
            for number, word in enumerate((CANARY, "sleeps", "vault", "kestrelfinch", "ordinary")):
                await box.put(f"memory/probe-{number}.md", f"{word}\n\nWhat is tried out here.\n", project=OPEN)

            async def scores() -> list[Any]:
                await settled(other)
                found = []
                for query in (CANARY, "sleeps in the vault", '"the vault"', "kestrelfinch", "what is tried out here"):
                    asked = {"query": query, "minScore": 0, "sources": ["memory"]}
                    hits = (await other.call("memory_search", **asked))["results"]
                    found.append([(hit["path"], hit["score"], hit["scores"], hit["snippet"]) for hit in hits])
                return found

            before = await scores()
            assert all(before)
            await fill(agent, owner)
            for number in range(20):
                await owner.put(f"memory/{CANARY}-{number}.md", f"An ordinary text of the {CANARY}.\n", project=HIDDEN)
            await settled(agent)
            assert await scores() == before


async def settled(agent: Agent) -> int:
    """What waits once nothing moves any more."""
    for _ in range(200):
        queued = int((await agent.call("memory_status"))["queuedChunks"])
        if not queued:
            break
        await asyncio.sleep(0.05)
    return queued


@pytest.mark.parametrize("kind", ["one project", "another space"])
async def test_no_resource_prompt_or_request_tells_of_it(daemon: Serving, kind: str) -> None:
    async with machine(daemon, "owner") as owner:
        await owner.attach(HIDDEN, "global", toolsets=["all"])
        async with acting(owner) as agent, stranger(daemon, kind) as (box, other):
            hidden = await fill(agent, owner)
            listed = await other.client.list_resources()
            assert CANARY not in listed.model_dump_json()
            assert HIDDEN not in listed.model_dump_json()
            for uri in ("memory://core", "memory://high", project_uri(OPEN)):
                with suppress(MCPError):
                    assert CANARY not in (await other.client.read_resource(uri)).model_dump_json()
            for uri in (file_uri(HIDDEN, hidden.path), project_uri(HIDDEN), file_uri(HIDDEN, f"memory/{CANARY}.md")):
                missing = uri.replace(HIDDEN, "nowhere")
                with pytest.raises(MCPError) as there:
                    await other.client.read_resource(uri)
                with pytest.raises(MCPError) as nowhere:
                    await other.client.read_resource(missing)
                assert str(there.value) == str(nowhere.value)
            recalled = await other.client.get_prompt("recall", {"topic": "Where does it sleep in the vault?"})
            assert CANARY not in recalled.model_dump_json()
            for op, body in (
                # Before a stranger imports something under the same id.
                (
                    "lookup",
                    {"project": HIDDEN, "tool": "memory_search", "arguments": {"query": "Where does it sleep?"}},
                ),
                ("lookup", {"project": HIDDEN, "tool": "memory_list", "arguments": {}}),
                ("lookup", {"project": OPEN, "tool": "memory_get", "arguments": {"id": hidden.id}}),
                ("projects", {"project": OPEN}),
                ("documents", {"project": HIDDEN}),
                ("changes", {"project": HIDDEN}),
                ("export", {"project": HIDDEN, "after": ""}),
                ("refill", {"project": HIDDEN, "documents": [{"path": "memory/x.md", "text": "x\n"}]}),
                ("import", {"project": HIDDEN, "records": [{"id": hidden.id, "content": "mine"}]}),
                ("import", {"project": OPEN, "records": [{"id": hidden.id, "content": "mine"}], "dryRun": True}),
                ("history", {"project": OPEN, "path": hidden.path}),
            ):
                try:
                    told = json.dumps(await box.request(op, body))
                except RequestError as error:
                    told = f"{error} {error.hint}"
                assert CANARY not in echoed(body, told), (op, told)
                may_name = ("export", "refill", "import", "history", "documents", "changes", "lookup")
                assert op in may_name or HIDDEN not in told
