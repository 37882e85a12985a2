"""Machines and their daemon in one process: real replicas, ledgers, folders and sessions on a link that is slow, loses answers and breaks.

A schedule takes some tenths of a second, so many can be drawn. What only processes do (a kill in the middle of a write, a watcher, a
queue, a folder put back) is in `fleet`; here a person's save is noticed a moment later, a connection that broke comes again and compares,
as a streamer does it, and a request that it had not got through may still reach the daemon, after what came next.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.chaos import editors
from tests.chaos.book import MARK, Book
from tests.support.daemon.loopback import Machine, Serving
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import Connection
from confide_proxy.errors import FolderError
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import SyncLedger
from confide_proxy.sync.replication.replica import Replica

LONGEST_LAG_S: Final = 0.02
LONGEST_WORK_S: Final = 0.01
"""Of the daemon's, on a request."""
LONGEST_LATE_S: Final = 0.3
"""How long a request may be on its way whose connection has broken."""
AGREED_WITHIN_S: Final = 20.0


class Weather:
    """How slow all links are, how often they lose something, and how often that comes all the same; `rng` decides what."""

    def __init__(self, rng: random.Random, loss: float, late: float) -> None:
        self.rng = rng
        self.loss = loss
        self.late = late

    async def lag(self) -> None:
        """What a message takes."""
        if self.loss:
            await asyncio.sleep(self.rng.random() * LONGEST_LAG_S * self.rng.choice([0, 0, 1, 3]))

    def loses(self) -> bool:
        """Whether the link breaks now."""
        return self.rng.random() < self.loss


class Session(Machine):
    """A connection with a replica that talks and answers over it; `late` takes what its end left on the way."""

    def __init__(
        self,
        connection: Connection,
        folder: Folder,
        ledgers: Path,
        weather: Weather,
        late: Callable[[str, dict[str, Any]], None],
    ) -> None:
        super().__init__(connection)
        self._weather = weather
        self._late = late
        self.restores = 0
        """How often the daemon was put back, as it has told."""
        self.replica = Replica(folder, SyncLedger(ledgers, "s", folder.root), self)

    async def request(  # type: ignore[override]  # of the link that a replica asks, and not of the machine
        self, op: str, body: dict[str, Any], *, timeout_s: float = DEADLINE_S, bulk: bool = False
    ) -> dict[str, Any]:
        """Ask the daemon."""
        try:
            await self._pass()
        except ConnectionLost:
            if self._weather.rng.random() < self._weather.late:
                self._late(op, body)
            raise
        asking = asyncio.create_task(self.connection.request(op, body, timeout_s=timeout_s, bulk=bulk))
        if self._weather.loses():  # while the daemon is at it
            await asyncio.wait([asking], timeout=self._weather.rng.random() * LONGEST_WORK_S)
            self.connection.abort()
        answer = await asking
        await self._pass()
        return answer

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        """The same with a body."""
        return await self.connection.upload(op, body, data, timeout_s=timeout_s)

    async def _pass(self) -> None:
        await self._weather.lag()
        if self._weather.loses():
            self.connection.abort()
            raise ConnectionLost(truncated=True)

    async def _on_request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._pass()
        try:
            match op:
                case "apply":
                    answer = await self.replica.apply(body)
                case "flush":
                    await self.replica.flush(str(body["path"]))
                    answer = {}
                case "scan":
                    answer = (await self.replica.compare()).as_json()
                case _:
                    answer = await super()._on_request(op, body)
        except FolderError as error:
            raise RequestError("invalid", str(error)) from None
        await self._pass()
        return answer


class Computer:
    """One machine: its folder, a session that watches it, and at times another one that does not."""

    def __init__(self, daemon: Serving, identity: Identity, root: Path, project: str, weather: Weather) -> None:
        (root / "memory").mkdir(parents=True)
        self.root = root
        self._daemon, self._identity, self._weather = daemon, identity, weather
        self._folder = Folder(project, root)
        self._ledgers = root.with_name(f"{root.name}-ledgers")
        self._watching: Session | None = None
        self._other: Session | None = None
        self._restores = 0
        """Of the daemon, behind which everything was compared here."""
        self._connecting = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    async def _session(self, *, watches: bool) -> Session:
        connection = await self._daemon.connect_in_time(self._identity)
        session = Session(connection, self._folder, self._ledgers, self._weather, self._arrive_late)
        await session.__aenter__()
        attach = {"project": self._folder.project, "machine": "box", "toolsets": ["core"], "watches": watches}
        attached = await session.connection.request("attach", attach, timeout_s=DEADLINE_S)
        session.restores = attached["restores"]
        return session

    async def up(self) -> None:
        """Have a session that watches and has compared, however often that takes."""
        async with self._connecting:
            while self._watching is None or self._watching.ended is not None:
                await _close(self._watching)
                self._watching = None
                session = await self._session(watches=True)
                try:
                    # As the workspace does it behind a daemon that was put back: every file is read.
                    await session.replica.compare(force=session.restores > self._restores)
                except (ConnectionLost, TimeoutError):
                    await _close(session)
                    continue
                self._restores = session.restores
                self._watching = session

    async def cut(self) -> None:
        """Break the connection."""
        if self._watching is not None:
            session, self._watching = self._watching, None
            session.connection.abort()
            await _close(session)
        await self.up()

    def notice(self, path: str) -> None:
        """Have a save noticed, soon."""
        self._begin(self._notice(path))

    async def _notice(self, path: str) -> None:
        await asyncio.sleep(self._weather.rng.random() * LONGEST_LAG_S)
        while True:
            await self.up()
            session = self._watching
            try:
                if session is not None:
                    await session.replica.send_changes([path])
                return
            except (ConnectionLost, TimeoutError):
                if session is self._watching:
                    await self.cut()

    def _arrive_late(self, op: str, body: dict[str, Any]) -> None:
        self._begin(self._arrive(op, body))

    async def _arrive(self, op: str, body: dict[str, Any]) -> None:
        await asyncio.sleep(self._weather.rng.random() * LONGEST_LATE_S)
        async with Machine(await self._daemon.connect_in_time(self._identity)) as machine:
            with suppress(ConfideError, TimeoutError):  # nobody hears the answer
                await machine.request(op, body)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def store(self, path: str, mark: str, book: Book, *, mode: str, is_other: bool) -> None:
        """Let an agent store something, over the session that watches or over the other one, again and again until it is kept."""
        arguments = {"content": f"- told {mark}", "path": path, "mode": mode}
        call = {"operation": uuid.uuid4().hex, "tool": "memory_store", "arguments": arguments}
        for _ in range(50):
            await self.up()
            try:
                session = await self._second() if is_other else self._watching
                assert session is not None
                await session.request("call", {"project": self._folder.project, **call})
            except (ConnectionLost, TimeoutError):
                continue
            book.keep(mark)
            return

    async def _second(self) -> Session:
        if self._other is None or self._other.ended is not None:
            await _close(self._other)
            self._other = await self._session(watches=False)
        return self._other

    async def rest(self) -> None:
        """Until all that was begun here has ended."""
        while self._running:
            await asyncio.wait(self._running)

    def files(self) -> dict[str, str]:
        """Every memory file by its path."""
        files = [self.root / "MEMORY.md", *(self.root / "memory").glob("*.md")]
        return {file.relative_to(self.root).as_posix(): editors.text_of(file) for file in files if file.exists()}

    async def end(self) -> None:
        """Close the connections, once all that was begun has ended; whoever needs one later makes it anew."""
        await self.rest()
        sessions, self._watching, self._other = (self._watching, self._other), None, None
        for session in sessions:
            await _close(session)


async def _close(session: Session | None) -> None:
    if session is not None:
        await session.__aexit__(None, None, None)


@asynccontextmanager
async def computers(
    daemon: Serving, folder: Path, project: str, weather: Weather, count: int
) -> AsyncIterator[list[Computer]]:
    """So many machines of one space."""
    first = f"{project}-0"
    made = []
    for number in range(count):
        name = f"{project}-{number}"
        identity = daemon.enroll(name, space=first)
        made.append(Computer(daemon, identity, folder / name, project, weather))
    try:
        for one in made:
            await one.up()
        yield made
    finally:
        weather.loss = 0.0
        for one in made:
            await one.end()


async def agreed(machines: list[Computer], paths: frozenset[str]) -> dict[str, str]:
    """The files that all have, once all that was begun has ended. Nobody compares anything because it was asked to.

    Of `paths`, which nobody deletes, the daemon has the same: what is on its way to machines whose processor is busy is still to come.
    """
    for one in machines:
        await one.rest()
        await one.up()
    end = asyncio.get_running_loop().time() + AGREED_WITHIN_S
    steady = 0
    while steady < 3:
        for one in machines:
            await one.up()  # a link that broke a moment ago is noticed now
        states = [one.files() for one in machines]
        newest = {path: text for path in sorted(paths) if (text := await _newest(machines[0], path)) is not None}
        is_daemons = all(MARK.findall(text) == MARK.findall(states[0].get(path, "")) for path, text in newest.items())
        steady = steady + 1 if is_daemons and all(state == states[0] for state in states) else 0
        assert asyncio.get_running_loop().time() < end, f"apart: {states}, at the daemon: {newest}"
        await asyncio.sleep(0.05)
    return states[0]


async def _newest(machine: Computer, path: str) -> str | None:
    session = await machine._second()
    try:
        answer = await session.connection.request(
            "pull", {"project": machine._folder.project, "path": path}, timeout_s=DEADLINE_S
        )
    except ConfideError:
        return None  # there is none
    return str(answer["text"])


async def history(daemon: Serving, machine: Computer, paths: set[str]) -> str:
    """Every text that the daemon ever kept of these."""
    session = await machine._second()
    texts = []
    for path in paths:
        for number in range(1, 400):
            body = {"project": machine._folder.project, "path": path, "revision": number}
            try:
                texts.append(str((await session.connection.request("pull", body, timeout_s=DEADLINE_S))["text"]))
            except ConfideError as error:
                if "deleted" not in str(error):
                    break
    return "\n".join(texts)
