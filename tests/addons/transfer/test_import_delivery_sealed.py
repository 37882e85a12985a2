"""Transcripts and imports leave their machine sealed: from the files on its disk to what a real daemon has of them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.deadline import DEADLINE_S
from tests.support.documents.transcripts import ClaudeSession, text
from tests.support.sealing.sealed_files import OTHER, PROJECT, TOKEN, Keeper, SealedMachine

from confide_crypto.sealing import placeholder
from confide_crypto.sealing.record import SealedRecord
from confide_proxy.errors import UnsealableError
from confide_proxy.sync.transcripts.transcript_files import MAX_TEXT_CHARS
from confide_proxy.sync.transcripts.transcript_streamer import send_all
from confide_transfer.local import memory_import
from confide_transfer.local.import_delivery import ImportOutcome, deliver
from confide_transfer.local.plan import ImportPlan, stores_at


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


@pytest.fixture
def ann(daemon: Serving, tmp_path: Path) -> SealedMachine:
    made = SealedMachine(tmp_path, daemon, "ann")
    made.options = {"transcripts": ("claude-code",), "claude_code_folder": str(tmp_path / "claude")}
    return made


async def sent(keeper: Keeper) -> dict[str, int]:
    machine = keeper.machine
    return await send_all(machine.paths, machine.config, keeper.connection, keeper.space, keeper.sealing)


async def all_documents(keeper: Keeper) -> str:
    """Every text that the daemon has, of every project."""
    found: list[str] = []
    answer = await keeper.connection.request("projects", {"project": PROJECT}, timeout_s=DEADLINE_S)
    for project in answer["projects"]:
        body = {"project": project["name"], "after": ""}
        page = await keeper.connection.request("export", body, timeout_s=DEADLINE_S)
        assert page["complete"]
        found += [f"{one['path']}\n{one['text']}\n{json.dumps(one.get('note'))}" for one in page["documents"]]
    return "\n".join(found)


async def values(keeper: Keeper, shown: str) -> set[str]:
    """What the placeholders of a text stand for, as its machine opens them."""
    keys = keeper.sealing.keyring.keys
    assert keys is not None
    found = set()
    for _, _, one in placeholder.find(shown):
        answer = await keeper.connection.request("record", {"id": one.secret_id.hex()}, timeout_s=DEADLINE_S)
        found.add(SealedRecord.parse(b64decode(answer["record"])).open(keys).decode())
    return found


def talk(machine: SealedMachine, tmp_path: Path) -> None:
    session = ClaudeSession(tmp_path / "claude", machine.root)
    session.user(f"Deploy with GITHUB_TOKEN={TOKEN} please")
    session.assistant(text(f"The heron has deployed it with {TOKEN}."))
    # One that would be cut in half where long messages end.
    session.user("x" * (MAX_TEXT_CHARS - 80) + f" GITHUB_TOKEN={OTHER} " + "y" * 1000)


async def test_a_transcript_has_placeholders(ann: SealedMachine, tmp_path: Path) -> None:
    talk(ann, tmp_path)
    async with ann.running() as laptop:
        assert (await sent(laptop))["messages"] == 3
        shown = await all_documents(laptop)
        assert "The heron has deployed it with (sealed:github-token:" in shown
        assert TOKEN not in shown
        assert OTHER[:12] not in shown
        assert await values(laptop, shown) >= {TOKEN}
        assert (await sent(laptop))["messages"] == 0


@pytest.mark.parametrize(("policy", "messages"), [("redact", 3), ("block", 0)])
async def test_a_transcript_follows_its_own_policy(
    ann: SealedMachine, tmp_path: Path, policy: str, messages: int
) -> None:
    ann.policy = ann.policy._replace(transcripts=policy)
    talk(ann, tmp_path)
    async with ann.running() as laptop:
        told = await sent(laptop)
        assert (told["messages"], told["skipped"]) == (messages, 3 - messages)
        shown = await all_documents(laptop)
        assert TOKEN not in shown
        assert "sealed:" not in shown
        assert ("(redacted:github-token:" in shown) is (policy == "redact")
        assert not await laptop.records()


async def test_a_transcript_is_redacted_where_there_are_no_keys(
    ann: SealedMachine, daemon: Serving, tmp_path: Path
) -> None:
    await SealedMachine(tmp_path, daemon, "bob").visit()
    talk(ann, tmp_path)
    async with ann.running() as laptop:
        assert (await sent(laptop))["messages"] == 3
        assert TOKEN not in (shown := await all_documents(laptop))
        assert "(redacted:github-token:" in shown


def store(tmp_path: Path) -> Path:
    """Memories with credentials in each place that has texts."""
    records: list[dict[str, Any]] = [
        {"id": "1", "title": "The registry", "content": f"docker login with {TOKEN}", "tags": ["ops", OTHER]},
        {"id": "2", "content": "It rains.", "metadata": {"password": "Xk29-vvQz1", "deep": [{"note": f"see {TOKEN}"}]}},
        {"id": "3", "title": "Spare key", "content": "Under the third stone.", "metadata": {"sensitive": True}},
        {"id": "4", "title": "Plain", "content": "Nothing to hide."},
        {"id": "5", "entity": TOKEN, "content": "Whose name is a token."},
    ]
    file = tmp_path / "memories.json"
    file.write_text(json.dumps(records))
    return file


async def delivered(keeper: Keeper, file: Path, **options: Any) -> ImportOutcome:
    plan = ImportPlan(stores_at([file], "json"), keeper.machine.project, keeper.machine.config)
    assert plan.survey()[0].notes == 5
    return await deliver(plan, keeper.connection, keeper.sealing, **options)


async def test_every_text_of_an_imported_memory_is_sealed(ann: SealedMachine, tmp_path: Path) -> None:
    file = store(tmp_path)
    async with ann.running() as laptop:
        looked = await delivered(laptop, file, is_dry=True)
        assert (looked.states["new"], looked.sealed) == (5, 4)
        assert not await laptop.records()
        assert not await laptop.documents()
        done = await delivered(laptop, file)
        assert (done.states["new"], done.sealed, done.refused) == (5, 4, [])
        shown = await all_documents(laptop)
        for value in (TOKEN, TOKEN.lower().strip("_"), OTHER, "Xk29-vvQz1", "third stone"):
            assert value not in shown
        assert await values(laptop, shown) == {TOKEN, OTHER, "Xk29-vvQz1", "Under the third stone."}
        assert "Nothing to hide." in shown
        again = await delivered(laptop, file)
        assert (again.states["known"], again.done) == (5, 5)


async def test_an_import_without_keys_sends_nothing_and_says_what_to_do(
    ann: SealedMachine, daemon: Serving, tmp_path: Path
) -> None:
    await SealedMachine(tmp_path, daemon, "bob").visit()
    async with ann.running() as laptop:
        with pytest.raises(UnsealableError) as caught:
            await delivered(laptop, store(tmp_path))
        assert "confide device ls" in (caught.value.hint or "")
        assert not await laptop.documents()


async def test_a_memory_that_the_policy_blocks_is_refused_alone(ann: SealedMachine, tmp_path: Path) -> None:
    ann.policy = ann.policy._replace(imports="block")
    async with ann.running() as laptop:
        done = await delivered(laptop, store(tmp_path))
        assert (done.states["new"], done.states["refused"]) == (2, 3)
        assert TOKEN not in str(done.refused)
        assert "policy" in done.refused[0].reason


async def test_the_tool_tells_how_many_are_sealed(ann: SealedMachine, tmp_path: Path) -> None:
    store(ann.root)
    async with ann.running() as laptop:
        answer = await memory_import.answer(
            {"paths": ["memories.json"], "confirm": True},
            ann.project,
            ann.config,
            laptop.connection,
            laptop.sealing,
            progress=lambda _done, _total: None,
            is_wanted=lambda: True,
        )
        assert answer.structured is not None
        assert answer.structured["sealed"] == 4
        assert answer.structured["results"]["new"] == 5
        assert answer.structured["stores"][0]["tags"] == {"ops": 1, "(a credential)": 1}
        assert TOKEN not in f"{answer.text}{answer.structured}"
        assert OTHER not in f"{answer.text}{answer.structured}"
