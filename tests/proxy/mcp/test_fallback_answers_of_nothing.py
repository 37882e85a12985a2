"""An answer of nothing is one only where all that this machine has is known to be with the daemon."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.scripted import CALL, Client, Message, Slow, running, text_of

from confide_crypto.errors import RequestError
from confide_memory.documents import text_hash
from confide_memory.tools.search_text import NOTHING

ALL = 'toolsets = ["all"]\n'
ROWS = "We chose postgres for its row locks.\n"
NOT_FOUND = {
    "content": [{"type": "text", "text": "no such document\nhint: memory_search shows the paths there are"}],
    "isError": True,
    "_meta": {"confide/code": "not_found"},
}


class Taking:
    """What a daemon does with files: refused as busy, until it takes them."""

    def __init__(self) -> None:
        self.is_open = False
        self.put: list[str] = []

    @property
    def answers(self) -> dict[str, Message | Callable[[Message], Message]]:
        return {"compare": self._compare, "put": self._put}

    def _compare(self, body: Message) -> Message:
        if not self.is_open:
            raise RequestError("busy", "it is busy")
        return {"send": [path for path, *_ in body["entries"]], "adopt": [], "pull": [], "drop": []}

    def _put(self, body: Message) -> Message:
        if not self.is_open:
            raise RequestError("busy", "it is busy")
        self.put.append(body["path"])
        return {"revision": 1, "hash": text_hash(body["text"]), "text": None, "merged": False, "clash": False}


async def asked(daemon: Slow, client: Client, tool: str, /, **arguments: Any) -> None:
    """The call is with the daemon."""
    daemon.lines.clear()
    client.say(tool, CALL, name=tool, arguments=arguments, _meta={"confide/structured": True})
    await daemon.until(lambda: daemon.calls)


async def nothing(daemon: Slow, *warnings: str, times: int = 2) -> None:
    """The search finds nothing, and nothing when it is asked again."""
    for time_ in range(1, times + 1):
        await daemon.until(lambda: len(daemon.calls) == time_)  # noqa: B023
        await _nothing(daemon, *warnings)


async def _nothing(daemon: Slow, *warnings: str) -> None:
    tool = "memory_search"
    found = {"results": [], "searchMode": "hybrid", "indexAge": 0, "warnings": list(warnings)}
    text = "\n".join([*(f"warning: {one}" for one in warnings), NOTHING])
    await daemon.say({"id": tool, "result": {"content": [{"type": "text", "text": text}], "structuredContent": found}})


async def test_files_on_their_way_are_searched_here(tmp_path: Path) -> None:
    """Within two seconds, and it says so; a daemon's own warnings stay."""
    taking = Taking()
    async with running(tmp_path, answers=taking.answers) as (setting, daemon, client):
        setting.machine.write("memory/db.md", ROWS)
        await asked(daemon, client, "memory_search", query="why postgres")
        began = time.monotonic()
        await nothing(daemon, "the index is being built")
        told = await client.next()
        assert time.monotonic() - began < 20  # of what may be two seconds: this machine has others to do
        text = text_of(told)
        assert "row locks" in text
        assert "warning: 1 file of this project is not indexed yet" in text
        assert "warning: the index is being built" in text
        assert NOTHING not in text
        found = told["result"]["structuredContent"]
        assert [hit["path"] for hit in found["results"]] == ["memory/db.md"]
        assert len(found["warnings"]) == 2
        # And of what they do not hold either it is said that they were not searched.
        await asked(daemon, client, "memory_search", query="zebras")
        await nothing(daemon)
        told = await client.next()
        assert "1 file of this project is not indexed yet" in text_of(told)
        assert NOTHING in text_of(told)
        await asked(daemon, client, "memory_search", query="postgres", project="global")
        await nothing(daemon)
        assert text_of(await client.next()) == NOTHING


async def test_a_search_is_asked_again_once_the_files_are_there(tmp_path: Path) -> None:
    taking = Taking()
    async with running(tmp_path, answers=taking.answers) as (setting, daemon, client):
        taking.is_open = True
        setting.machine.write("memory/db.md", ROWS)
        await asked(daemon, client, "memory_search", query="why postgres")
        await nothing(daemon, times=1)
        await daemon.until(lambda: len(daemon.calls) == 2)
        assert taking.put == ["memory/db.md"]
        await daemon.answer("memory_search", "found")
        assert text_of(await client.next()) == "found"
        # Once more in the same session: all is known to be there, and nothing is nothing.
        await asked(daemon, client, "memory_search", query="zebras")
        await nothing(daemon, times=1)
        assert text_of(await client.next()) == NOTHING


async def test_a_part_is_told_of_as_a_part(tmp_path: Path) -> None:
    """Where something was found, what the files here hold stands behind it; of a list, that files are missing."""
    async with running(tmp_path, ALL, Taking().answers, {"memory/db.md": ROWS}) as (_, daemon, client):
        await asked(daemon, client, "memory_search", query="postgres")
        await daemon.answer("memory_search", "1 found. An older one.")
        told = (await client.next())["result"]["content"]
        assert told[0]["text"] == "1 found. An older one."
        assert "row locks" in told[1]["text"]
        assert "not indexed yet" in told[1]["text"]
        await asked(daemon, client, "memory_list")
        await daemon.answer("memory_list", "0 notes")
        assert text_of(await client.next()) == "warning: 1 file of this project is not indexed yet\n0 notes"


async def test_a_file_on_this_disk_is_read_before_it_is_up(tmp_path: Path) -> None:
    async with running(tmp_path, ALL, Taking().answers) as (setting, daemon, client):
        setting.machine.write("memory/db.md", ROWS)
        await asked(daemon, client, "memory_read", path="memory/db.md")
        await daemon.say({"id": "memory_read", "result": NOT_FOUND})
        await daemon.until(lambda: len(daemon.calls) == 2)
        await daemon.say({"id": "memory_read", "result": NOT_FOUND})
        told = await client.next()
        assert "row locks" in text_of(told)
        assert "isError" not in told["result"]
        await asked(daemon, client, "memory_get", id="mem_1")
        await daemon.say({"id": "memory_get", "result": NOT_FOUND})
        await daemon.until(lambda: len(daemon.calls) == 2)
        await daemon.say({"id": "memory_get", "result": NOT_FOUND})
        told = await client.next()
        assert told["result"]["isError"] is True
        assert text_of(told).startswith("no such document\nhint: ")
        assert "warning: 1 file of this project is not indexed yet" in text_of(told)


async def test_what_cannot_be_sent_is_named_where_nothing_is_found(tmp_path: Path) -> None:
    taking = Taking()
    async with running(tmp_path, "max_file_kib = 1\n", taking.answers) as (setting, daemon, client):
        taking.is_open = True
        setting.machine.write("memory/big.md", "postgres\n" * 500)
        (setting.machine.project / "memory" / "latin.md").write_bytes(b"caf\xe9\n")
        await asked(daemon, client, "memory_search", query="postgres")
        await nothing(daemon, times=1)
        text = text_of(await client.next())
        assert "memory/big.md is not searched: it is larger than 1 KiB" in text
        assert "memory/latin.md is not searched: it is not UTF-8 text" in text
        assert "not indexed yet" not in text


async def test_a_store_that_waits_is_found(tmp_path: Path) -> None:
    def refuse(_body: Message) -> Message:
        raise RequestError("unavailable", "its store is away")

    taking = Taking()
    async with running(tmp_path, answers={**taking.answers, "call": refuse}) as (_, daemon, client):
        taking.is_open = True
        client.call(1, "memory_store", content=ROWS, path="memory/db.md")
        await daemon.until(lambda: daemon.calls)
        result = {
            "content": [{"type": "text", "text": "no"}],
            "isError": True,
            "_meta": {"confide/code": "unavailable"},
        }
        await daemon.say({"id": 1, "result": result})
        await client.next()
        await asked(daemon, client, "memory_search", query="row locks")
        await nothing(daemon)
        told = await client.next()
        assert "row locks" in text_of(told)


@pytest.mark.parametrize("meta", [{"confide/classes": ["owner"]}, {"confide/unasked": True}])
async def test_what_has_no_class_is_not_given_where_classes_count(tmp_path: Path, meta: Message) -> None:
    async with running(tmp_path, answers=Taking().answers) as (setting, daemon, client):
        setting.machine.write("memory/db.md", ROWS)
        daemon.lines.clear()
        client.say("memory_search", CALL, name="memory_search", arguments={"query": "postgres"}, _meta=meta)
        await daemon.until(lambda: daemon.calls)
        await nothing(daemon)
        text = text_of(await client.next())
        assert "row locks" not in text
        assert "not indexed yet" in text


async def test_a_call_that_is_taken_back_meanwhile_is_not_answered(tmp_path: Path) -> None:
    async with running(tmp_path, answers=Taking().answers) as (setting, daemon, client):
        setting.machine.write("memory/db.md", ROWS)
        await asked(daemon, client, "memory_search", query="postgres")
        await nothing(daemon, times=1)
        client.cancel("memory_search")
        await client.hears_nothing()


async def test_a_second_answer_is_none_while_the_first_is_looked_at(tmp_path: Path) -> None:
    async with running(tmp_path, answers=Taking().answers, files={"memory/db.md": ROWS}) as (_, daemon, client):
        await asked(daemon, client, "memory_search", query="zebras")
        await daemon.answer("memory_search", "the first")
        await daemon.answer("memory_search", "the second")
        assert "the first" in text_of(await client.next())
        await client.hears_nothing()
