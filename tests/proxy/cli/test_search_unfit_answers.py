"""A daemon whose tools answer nonsense: a command says so and ends, without a traceback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.crypto.channels import HOST, Door
from tests.support.programs.processes import Machine
from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import format_daemon_key, parse_public_key
from confide_crypto.transport.open_channel import accept, websocket_options

NOTHING = {"send": [], "adopt": [], "pull": [], "drop": []}


@asynccontextmanager
async def saying(tmp_path: Path, said: bytes | dict[str, Any], space: dict[str, Any]) -> AsyncIterator[Machine]:
    """A machine whose daemon answers every message with `said`: as it is, or as the answer to the request's id."""
    machine = Machine(tmp_path, "victim")
    door = Door(parse_public_key(machine.run("key", "show").splitlines()[0])[0])

    async def handle(ws: ServerConnection) -> None:
        connection = await accept(ws, HOST, door)

        async def reply(data: bytes) -> None:
            about = {"jsonrpc": "2.0", "id": json.loads(data)["id"]}
            await connection.send_message(said if isinstance(said, bytes) else json.dumps({**about, **said}).encode())

        async def answer(op: str, _body: dict[str, Any]) -> dict[str, Any]:
            return NOTHING if op == "compare" else space

        with suppress(ConfideError):
            await connection.serve(on_message=reply, on_request=answer)

    async with serve(handle, "127.0.0.1", 0, **websocket_options()) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await asyncio.to_thread(machine.run, "pin", url, format_daemon_key(HOST.static_key))
        yield machine


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"not JSON", "broke the protocol"),
        (b"[" * 5000, "broke the protocol"),
        (b"7", "broke the protocol"),
        ({"result": {"content": []}}, "not of the agreed form"),
        ({"result": 7}, "not of the agreed form"),
        ({"error": "no"}, "not of the agreed form"),
        ({"result": {"structuredContent": {}}}, "not of the agreed form"),
        ({"result": {"structuredContent": {"warnings": [], "results": [{"path": "x"}]}}}, "not of the agreed form"),
    ],
)
async def test_a_command_says_what_is_wrong_with_an_answer(tmp_path: Path, said: Any, told: str) -> None:
    async with saying(tmp_path, said, {"space": "s"}) as machine:
        assert told in await asyncio.to_thread(machine.run, "sync", code=1)


async def test_a_search_goes_on_with_the_files_here_and_says_why(tmp_path: Path) -> None:
    async with saying(tmp_path, b"not JSON", {"space": "s"}) as machine:
        machine.write("memory/a.md", "The heron fishes at dawn.\n")
        found = await asyncio.to_thread(machine.run, "search", "heron")
        assert "broke the protocol" in found
        assert "memory/a.md" in found


async def test_an_attachment_without_a_space_is_no_traceback(tmp_path: Path) -> None:
    async with saying(tmp_path, {}, {}) as machine:
        assert "not of the agreed form" in await asyncio.to_thread(machine.run, "status", code=1)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["history", "x.md"], {"revisions": [{"revision": "1"}]}),
        (["deleted"], {"documents": {"path": "x.md"}}),
        (["restore", "x.md"], {"revision": True, "changed": 1}),
        (["projects"], {"projects": [{"name": "p", "files": 1, "updated": "yesterday", "linked": False}]}),
    ],
)
async def test_answers_about_the_past_and_projects_are_held_against_their_form(
    tmp_path: Path, command: list[str], answer: dict[str, Any]
) -> None:
    async with saying(tmp_path, {}, {"space": "s", **answer}) as machine:
        assert "not of the agreed form" in await asyncio.to_thread(machine.run, *command, code=1)


async def test_a_terminal_is_shown_no_control_characters_of_the_daemons(tmp_path: Path) -> None:
    """They could hide or forge what stands beside them."""
    entry = {"revision": 1, "author": "a\x1b[2Jb\r", "time": "2026-11-21T10:00:00Z", "bytes": 2, "deleted": False}
    async with saying(tmp_path, {}, {"space": "s", "revisions": [{**entry, "clash": False}]}) as machine:
        told = await asyncio.to_thread(machine.run, "history", "x.md")
    assert "a?[2Jb?" in told
