"""Machines that work all the time: they store, edit, search, go away and come back, and remember what was acknowledged.

Each keeps its newest files and removes the others, so that a space comes to a size at which it stays: memory that grows behind that leaks.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from mcp import MCPError
from mcp.client.client import Client
from tests.support.daemon.loopback import Machine

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import connect

PROJECT: Final = "soak"
SHARED_PART: Final = 0.05
"""Of what is stored: the part that goes into one file of all machines."""
MOST_LINES: Final = 20
"""Of a file, and of what a machine has said between two of them; then another one begins, as with days.

Of a file of all machines whoever begins the next one removes the one before the last: nobody can still be writing to it.
"""
FILES_KEPT: Final = 2
"""Of each kind, by each machine."""
AGAIN_S: Final = 0.5
WORDS: Final = (
    *(
        "postgres",
        "queue",
        "parcel",
        "invoice",
        "worker",
        "lock",
        "branch",
        "deploy",
        "token",
        "cache",
        "index",
        "shard",
    ),
    *(
        "vector",
        "ledger",
        "socket",
        "retry",
        "budget",
        "release",
        "rollback",
        "schema",
        "migration",
        "timeout",
        "journal",
    ),
)
_BREAKS: Final = (ConfideError, MCPError, OSError, TimeoutError, asyncio.IncompleteReadError)
"""What ends a machine's connection when the daemon is killed."""


@dataclass(slots=True)
class Seen:
    """What machines were told, and how long it took.

    Attributes:
        acknowledged: a word of each line that was stored or saved, and the file that the daemon said it is in.
        removed: the same of lines whose file was removed since, as the daemon said.
        leaving: the same of lines whose file is being removed: it may be there or not.
        searches: (when it was asked, as `time.monotonic`; seconds it took).
        refused: how many calls were answered with an error, by its first words.
        shared: how many lines were on their way to files of all machines.
    """

    acknowledged: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    searches: list[tuple[float, float]] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    shared: int = 0

    @property
    def lines(self) -> int:
        """How many were acknowledged."""
        return len(self.acknowledged) + len(self.leaving) + len(self.removed)

    @staticmethod
    def move(path: str, source: dict[str, str], target: dict[str, str]) -> None:
        """The lines of a file, from one of these to another."""
        for word in [word for word, place in source.items() if place == path]:
            target[word] = source.pop(word)


class Worker:
    """One machine of a space."""

    def __init__(self, number: int, space: int, url: str, static: bytes, seen: Seen, *, pause_s: float) -> None:
        """`pause_s`: between two of its calls, on average."""
        self.number, self.space = number, space
        self.identity = Identity.generate()
        self._url, self._static = url, static
        self._seen, self._pause_s = seen, pause_s
        self._chance = random.Random(number)
        self._count = 0
        self._own: dict[str, tuple[int, str]] = {}  # revision and text of each file of its own
        self._logs: dict[str, None] = {}
        self._outworn: dict[str, None] = {}  # files of all machines that this one has to remove
        self._removing: set[str] = set()
        self.is_to_end = False

    async def run(self) -> None:
        """Work until told to end, over whatever breaks."""
        while not self.is_to_end:
            with suppress(*_BREAKS, BaseExceptionGroup):
                async with Machine(await connect(self._url, self.identity, self._static)) as machine:
                    await machine.attach(PROJECT)
                    async with machine.mcp() as client:
                        await self._session(machine, client)
            await asyncio.sleep(AGAIN_S * self._chance.uniform(0.5, 1.5))

    async def _session(self, machine: Machine, client: Client) -> None:
        left = self._chance.randint(20, 80)  # calls, until it goes away and comes back
        while left and not self.is_to_end:
            left -= 1
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))
            kind = self._chance.random()
            if kind < 0.4:
                await self._store(client)
            elif kind < 0.6:
                await self._edit(machine)
            else:
                await self._search(client)
            for files in (self._own, self._logs):
                if len(files) > FILES_KEPT:
                    await self._remove(machine, files)
            if self._outworn:
                await self._remove(machine, self._outworn)

    def _line(self) -> tuple[str, str]:
        """A word that stands nowhere else, and a line with it."""
        self._count += 1
        word = f"w{self.number}x{self._count}x"
        return word, f"- {' '.join(self._chance.choices(WORDS, k=12))} {word}"

    async def _store(self, client: Client) -> None:
        word, line = self._line()
        is_shared = self._chance.random() < SHARED_PART
        path = self._shared() if is_shared else f"memory/log-{self.number}-{self._count // MOST_LINES}.md"
        answer = await self._call(client, "memory_store", content=line, path=path)
        if answer is not None:
            self._seen.acknowledged[word] = path
        if not is_shared:
            self._logs[path] = None

    def _shared(self) -> str:
        """The file of all machines that the next line goes into."""
        which, before = divmod(self._seen.shared, MOST_LINES)
        self._seen.shared += 1
        if before == 0 and which >= 2:
            self._outworn[f"memory/shared-{which - 2}.md"] = None
        return f"memory/shared-{which}.md"

    async def _edit(self, machine: Machine) -> None:
        word, line = self._line()
        path = f"memory/own-{self.number}-{self._count // MOST_LINES}.md"
        revision, text = self._own.get(path, (0, ""))
        answer = await machine.put(path, text + line + "\n", base=revision, project=PROJECT)
        self._own[path] = (answer["revision"], answer.get("text", text + line + "\n"))
        self._seen.acknowledged[word] = path

    async def _remove(self, machine: Machine, files: dict[str, Any]) -> None:
        """The oldest of these; one that was changed meanwhile goes the next time."""
        path = next(iter(files))
        self._seen.move(path, self._seen.acknowledged, self._seen.leaving)
        is_gone = False
        try:
            newest = await machine.request("pull", {"project": PROJECT, "path": path})
            self._removing.add(path)
            answer = await machine.request("remove", {"project": PROJECT, "path": path, "base": newest["revision"]})
            is_gone = answer["removed"]
        except RequestError as error:
            if error.code != "not_found":
                raise
            is_gone = path in self._removing  # it was removed, and the connection broke
            files.pop(path)
        self._seen.move(path, self._seen.leaving, self._seen.removed if is_gone else self._seen.acknowledged)
        if is_gone:
            machine.files.pop((PROJECT, path), None)
            files.pop(path, None)

    async def _search(self, client: Client) -> None:
        began = time.monotonic()
        query = " ".join(self._chance.choices(WORDS, k=3))
        if await self._call(client, "memory_search", query=query) is not None:
            self._seen.searches.append((began, time.monotonic() - began))

    async def _call(self, client: Client, tool: str, **arguments: Any) -> Any:
        """The result; None where it was refused."""
        result = await client.call_tool(tool, arguments)
        if not result.is_error:
            return result
        said = str(getattr(result.content[0], "text", ""))[:40] if result.content else ""
        self._seen.refused[said] = self._seen.refused.get(said, 0) + 1
        return None


async def read_all(url: str, static: bytes, identity: Identity, paths: set[str]) -> dict[str, str]:
    """The text of each of these files, as the daemon has them now; "" for one that it has not."""
    found = {}
    async with Machine(await connect(url, identity, static)) as machine:
        await machine.attach(PROJECT)
        for path in sorted(paths):
            try:
                answer = await machine.request("pull", {"project": PROJECT, "path": path})
            except RequestError:
                answer = {"text": ""}
            found[path] = answer["text"]
    return found
