"""An agent asks to have something forgotten, and the person in front of its client decides: the official client, real programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import MCPError
from mcp.client.client import Client
from tests.support.programs.mcp_session import ERAS, Era, session
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon
from tests.support.programs.wire import Wire

SECRET = "The zanzibar plan begins at dawn."
OTHER = "Herons fish at noon near the harbour wall."


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("forgets")) as daemon:
        yield daemon


@pytest.fixture
def ann(tmp_path: Path, daemon: Daemon, request: pytest.FixtureRequest) -> Machine:
    machine = Inside(tmp_path, "ann")
    (machine.home / "proxy.toml").write_text('toolsets = ["core", "notes"]\n')
    machine.call_project("shop")
    machine.run("join", daemon.invite(f"ann-{abs(hash(request.node.nodeid))}"))
    machine.write("memory/plan.md", f"# The plan\n\n{SECRET}\n")
    machine.write("memory/birds.md", f"# Birds\n\n{OTHER}\n")
    machine.run("sync")
    return machine


class Person:
    """Somebody in front of the client: a number is the choice at that place, None declines, an error is the client's."""

    def __init__(self, *answers: int | Exception | None) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, _context: Any, asked: Any) -> Any:
        self.asked.append(asked.message)
        choice = self._answers.pop(0)
        if isinstance(choice, Exception):
            return mcp_types.ErrorData(code=-32603, message="the window is gone")
        if choice is None:
            return mcp_types.ElicitResult(action="decline")
        titles = asked.requested_schema["properties"]["answer"]["enum"]
        return mcp_types.ElicitResult(action="accept", content={"answer": titles[choice]})

    def at(self, machine: Machine, era: Era) -> AbstractAsyncContextManager[Client]:
        return session(machine, era, answers=self)


async def told(client: Client, **arguments: Any) -> tuple[str, Any]:
    """The text and the structured form of a call."""
    result = await client.call_tool("memory_forget", arguments)
    content = result.content[0]
    assert isinstance(content, mcp_types.TextContent)
    assert result.is_error == (result.structured_content is None)
    return content.text, result.structured_content


def has(machine: Machine, words: str) -> bool:
    return words in machine.run("search", words, "--min-score", "0")


@pytest.mark.parametrize("era", ERAS)
async def test_a_file_is_forgotten_by_a_yes_and_its_receipt_is_good(ann: Machine, era: Era) -> None:
    """The question names what would go; a no, and what nobody was shown, remove nothing; the file stays."""
    person = Person(None, 2, 0)
    async with person.at(ann, era) as client:
        for _ in range(2):  # declined, and "not now"
            said, _ = await told(client, names=["memory/plan.md"])
            assert said == "the user has not said yes, so nothing was removed"
            assert has(ann, "zanzibar")
        said, found = await told(client, names=["memory/plan.md"])
        assert found["forgotten"], said
        assert found["documents"] == ["memory/plan.md"]
        assert "nothing of shop is stored" in (await told(client, names=["memory/plan.md"]))[0]
    assert "1 file of shop" in person.asked[0]
    assert "memory/plan.md (The plan)" in person.asked[0]
    assert len(person.asked) == 3
    assert not has(ann, "zanzibar")
    assert has(ann, "Herons")
    assert SECRET in (ann.project / "memory/plan.md").read_text()
    assert "both signatures are good" in ann.run("forget", "--verify", found["receipt"])


@pytest.mark.parametrize("era", ERAS)
async def test_a_text_goes_from_the_files_only_if_the_person_says_so(ann: Machine, era: Era) -> None:
    async with Person(1).at(ann, era) as client:
        said, found = await told(client, text=SECRET)
        assert (found["total"], found["forgotten"]) == (1, True), said
    ann.run("sync")
    assert "zanzibar" not in (ann.project / "memory/plan.md").read_text()
    assert not has(ann, "zanzibar")


@pytest.mark.parametrize("era", ERAS)
async def test_a_note_is_forgotten_by_its_id(ann: Machine, era: Era) -> None:
    ann.run("store", "The walrus sleeps under the pier.", "--title", "Walrus", "--tag", "sea")
    (note,) = [each for each in ann.json("ls")["documents"] if each["title"] == "Walrus"]
    person = Person(0)
    async with person.at(ann, era) as client:
        _, found = await told(client, names=[note["id"]])
        assert found["documents"] == [note["path"]]
    assert "(Walrus)" in person.asked[0]


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_says_it_can_ask_and_cannot_removes_nothing(ann: Machine, era: Era) -> None:
    async with Person(ValueError()).at(ann, era) as client:
        if era == "legacy":
            assert "nothing was removed" in (await told(client, names=["memory/plan.md"]))[0]
        else:  # the SDK has no answer to send
            with pytest.raises(MCPError, match="the window is gone"):
                await told(client, names=["memory/plan.md"])
    assert has(ann, "zanzibar")


@pytest.mark.parametrize("era", ERAS)
async def test_where_nobody_can_be_asked_the_command_is_told(ann: Machine, era: Era) -> None:
    async with session(ann, era) as client:
        said, _ = await told(client, names=["memory/plan.md", "memory/it's.md"])
        assert said.endswith("""the user can run: confide forget -- memory/plan.md 'memory/it'"'"'s.md'""")
        said, _ = await told(client, text=SECRET)
        assert said.endswith("the user can run: confide forget --text -")
        for wrong in ({}, {"names": ["a.md"], "text": "x"}, {"text": SECRET, "project": "shop"}, {"names": ["./"]}):
            assert "nothing was removed" not in (await told(client, **wrong))[0]
    assert has(ann, "zanzibar")


def test_a_yes_is_for_what_was_shown_and_while_the_agent_waits(ann: Machine) -> None:
    """Not for what changed meanwhile, nor for a call that its client cancelled; a second answer counts for nothing."""
    with Wire(ann) as wire:
        opening = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "wire", "version": "1"}}
        wire.call("initialize", {**opening, "capabilities": {"elicitation": {}}})
        wire.send({"method": "notifications/initialized"})
        cancelled, asked = asked_by(wire)
        wire.send({"method": "notifications/cancelled", "params": {"requestId": cancelled}})
        answer(wire, asked)
        waiting, asked = asked_by(wire)
        assert "2 files of shop" in asked["params"]["message"]
        ann.run("store", f"Again: {SECRET}", "--path", "memory/new.md")
        answer(wire, asked)
        answer(wire, asked)
        said = json.dumps(wire.answer(waiting)["result"])
        assert "has changed since the user was asked, so nothing was removed" in said
    assert has(ann, "zanzibar")
    (ann.home / "proxy.toml").write_text('toolsets = ["core"]\n')
    with Wire(ann) as wire:
        wire.open()
        assert "in the toolset notes, which is switched off" in str(
            wire.tool("memory_forget", {"names": ["memory/plan.md"]})
        )


def asked_by(wire: Wire) -> tuple[int, dict[str, Any]]:
    """Ask for a folder to be forgotten; return the call's id and the question to the person."""
    call = wire.ask_tool("memory_forget", {"names": ["memory"]})
    while (asked := wire.next()).get("method") != "elicitation/create":
        pass
    return call, asked


def answer(wire: Wire, asked: dict[str, Any]) -> None:
    titles = asked["params"]["requestedSchema"]["properties"]["answer"]["enum"]
    wire.send({"id": asked["id"], "result": {"action": "accept", "content": {"answer": titles[1]}}})
