"""The working copies that one connection's machine keeps of the documents.

A new revision goes to every machine that keeps the project: to the caller's before its tool answers, to the others in the background. What
a machine holds is known only from what it has confirmed, and that is also the base on which its unsynced edits are merged: taking a
newer revision for the base would read the lines that the machine has not seen yet as lines that somebody deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypedDict, TypeVar

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.documents.document_results import PutResult
from confide_daemon.errors import GrantError
from confide_daemon.spaces.space import Space
from confide_daemon.tools.tool_context import WrittenBack
from confide_memory.classes import OWNER
from confide_memory.documents import source_of
from confide_memory.forms import Carried
from confide_memory.wire.files import (
    APPLY,
    BACKLOG,
    FLUSH,
    SCAN,
    WORKPLACE,
    Applied,
    ApplyRequest,
    Backlog,
    Scanned,
    Workplace,
)
from confide_memory.wire.operation import Operation

log = logging.getLogger(__name__)

# A tool call waits for the caller's own disk, but not for long: the document is safe in the daemon already.
WRITE_BACK_DEADLINE_S = 2.0
BACKGROUND_DEADLINE_S = 10.0
SCAN_DEADLINE_S = 600.0
MAX_MERGE_ROUNDS = 3
# Announcements of one document are folded into one, so this many different documents wait at most, with texts of so many characters. A
# machine that is further behind compares once it has taken these.
MAX_WAITING = 4096
MAX_WAITING_CHARS = 16 * 1024 * 1024
# A revision that a machine did not take (it was frozen, its disk was full, its file was being edited) is brought again after so long, and
# then twice as long. The machine's own comparisons, each five minutes, go on from there.
AGAIN_S = 1.0
LONGEST_AGAIN_S = 60.0
MOST_TRIES = 10

Key = tuple[str, str]
_Answer = TypeVar("_Answer")


class _Edit(TypedDict):
    """A text that a machine has instead of a revision, as `Documents.put` takes it."""

    text: str
    base: int
    base_hash: str | None
    sent: Sequence[str]


@dataclass(frozen=True, slots=True)
class ConfirmedRevision:
    """What a machine has confirmed of a document; the hash is unknown where it has edited the file since."""

    revision: int
    hash: str | None


@dataclass(frozen=True, slots=True)
class Untaken:
    """A revision that a machine has not taken."""

    change: DocumentChange
    tries: int
    due: float  # by the clock of the event loop


class CopiesHost(Protocol):
    """The connection, as the working copies of its machine see it."""

    @property
    def grants(self) -> Grants:
        """What the caller may do now."""

    async def ask(self, operation: Operation[Any, Any], body: Carried, timeout_s: float) -> Any:
        """What the machine answers, for `Operation.ask_machine`."""

    def held(self) -> AbstractAsyncContextManager[Space]:
        """Have the space open within this. Raises RequestError."""

    def publish(self, change: DocumentChange) -> None:
        """Tell the others of a revision."""


class Copies:
    """One connection's working copies: which projects, which revisions, and the way to bring newer ones."""

    def __init__(self, session: CopiesHost) -> None:
        self._session = session
        self._held: dict[Key, ConfirmedRevision] = {}
        self._waiting: dict[Key, DocumentChange] = {}
        self._waiting_chars = 0
        self._untaken: dict[Key, Untaken] = {}
        self._has_said_untaken = False
        self._is_behind = False
        self._announced = asyncio.Event()
        # One revision on its way to this machine at a time, so that each is applied upon the one before it.
        self._order = asyncio.Lock()
        self.projects: set[str] = set()
        # Of these, whose files this connection watches; the others' are watched by another connection of the machine, or by nobody.
        self.watched: set[str] = set()
        self.compared_at: str | None = None
        """When the machine has compared its files the last time."""

    def confirm(self, project: str, path: str, revision: int, digest: str | None) -> None:
        """The machine has said that its file is (or is an edit of) this revision."""
        self._held[project, path] = ConfirmedRevision(revision, digest)

    def forget(self, project: str, path: str) -> None:
        """The machine has no such file any more."""
        self._held.pop((project, path), None)

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        """Bring a revision to the machine's disk within two seconds, merging what a person has just written there.

        Never raises for the machine's sake: the revision is stored, and the answer says whether it is on disk as well.
        """
        if project not in self.projects:
            return WrittenBack(False, result)
        newest = [result]
        on_disk, warning = False, None
        try:
            async with asyncio.timeout(WRITE_BACK_DEADLINE_S), self._order:
                on_disk = await self._bring(project, path, newest, before)
            if not on_disk:
                warning = "stored, but the file on this machine is being edited; it follows with the next sync"
        except (TimeoutError, ConnectionLost):
            warning = "stored, but this machine has not confirmed its file yet; it follows with the next sync"
        except ConfideError as error:
            warning = f"stored, but the file on this machine could not be written: {error.message}"
        if not on_disk:
            self.bring_later(DocumentChange.of(project, path, newest[-1], before))
        return WrittenBack(on_disk, newest[-1], warning)

    async def take_away(self, change: DocumentChange) -> WrittenBack:
        """Remove the file of a deleted document from the machine's disk within two seconds; one that a person has just edited stays,
        and brings the document back.

        Never raises for the machine's sake, as `write_back`; `on_disk` says that the disk is as the daemon has it.
        """
        gone = PutResult(change.revision, "", "", changed=True, merged=False, clash=False, queued=0)
        if change.project not in self.projects:
            return WrittenBack(False, gone)
        try:
            async with asyncio.timeout(WRITE_BACK_DEADLINE_S), self._order:
                held = self._held.get((change.project, change.path))
                answer = await self._apply(change, change.before, WRITE_BACK_DEADLINE_S)
                if answer is None:
                    return WrittenBack(True, gone)
                grants = self._session.grants
                grants.require_write(change.project, change.path)
                told = _told(answer, held)
                async with self._session.held() as space:
                    kept = await space.documents.put(change.project, change.path, **told, author=grants.alias, by=OWNER)
        except (TimeoutError, ConnectionLost):
            why = "this machine has not confirmed that its file is gone; it goes with the next sync"
            return WrittenBack(False, gone, f"deleted, but {why}")
        except ConfideError as error:
            return WrittenBack(False, gone, f"deleted, but the file on this machine is still there: {error.message}")
        self._session.publish(DocumentChange.of(change.project, change.path, kept, None))
        return WrittenBack(
            True, kept, "the file was just edited on this machine, so it stays: read it again, and delete it then"
        )

    async def flush(self, project: str, path: str) -> None:
        """Let the machine send what a person has just written there, so that a store builds upon it instead of merging with it later.

        Never raises: a machine that does not answer in time is merged with when it does.
        """
        if project not in self.projects:
            return
        asking = FLUSH.ask_machine(self._session.ask, {"project": project, "path": path}, WRITE_BACK_DEADLINE_S)
        await self._in_time(asking, "did not send its file before a store")

    async def backlog(self) -> Backlog | None:
        """What waits on the machine to be sent, as it counts it; None if it does not say."""
        if not self.projects:
            return None
        asking = BACKLOG.ask_machine(self._session.ask, {}, WRITE_BACK_DEADLINE_S)
        return await self._in_time(asking, "did not count its backlog")

    async def workplace(self, project: str) -> Workplace | None:
        """Where the agent works, as its machine says; None if it does not."""
        asking = WORKPLACE.ask_machine(self._session.ask, {"project": project}, WRITE_BACK_DEADLINE_S)
        return await self._in_time(asking, "did not say where it works")

    async def _in_time(self, asking: Awaitable[_Answer], failing: str) -> _Answer | None:
        """The machine's answer; None where it gives none in time."""
        try:
            return await asking
        except (TimeoutError, ConnectionLost, RequestError) as error:
            log.info("a machine %s: %s", failing, type(error).__name__)
            return None

    async def scan(self, *, force: bool, timeout_s: float) -> Scanned | None:
        """Let the machine compare its files with the daemon's; None if it keeps none.

        Raises RequestError, ConnectionLost, TimeoutError where it could not.
        """
        if not self.projects:
            return None
        return await SCAN.ask_machine(self._session.ask, {"force": force}, timeout_s)

    def announce(self, change: DocumentChange) -> None:
        """Let the machine have a revision that another one made, soon."""
        if change.project not in self.watched or not self._session.grants.reaches(change.project, change.path):
            return
        if source_of(change.path) == "sessions":
            return  # transcripts are in no working copy
        key = (change.project, change.path)
        earlier = self._taken_out(key)
        if earlier is not None:
            change = replace(change, before=earlier.before)
        weight = len(change.text or "")
        if len(self._waiting) >= MAX_WAITING or self._waiting_chars + weight > MAX_WAITING_CHARS:
            if not self._is_behind:
                log.warning("a machine is %d documents behind; it compares when it has taken them", len(self._waiting))
            self._is_behind = True
            return
        self._waiting[key] = change
        self._waiting_chars += weight
        self._announced.set()

    def _taken_out(self, key: Key) -> DocumentChange | None:
        change = self._waiting.pop(key, None)
        self._waiting_chars -= len(change.text or "") if change is not None else 0
        return change

    async def run(self) -> None:
        """Bring what is announced, and again what was not taken, for as long as the connection stands."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._due_s()):
                    await self._announced.wait()
            self._announced.clear()
            self._take_up()
            try:
                await self._catch_up()
            except ConnectionLost:
                return

    async def _catch_up(self) -> None:
        """Bring what waits, and have the machine compare if that was not all. Raises ConnectionLost."""
        while self._waiting:
            change = self._taken_out(next(iter(self._waiting)))
            assert change is not None
            await self._tell(change)
        if self._is_behind:
            self._is_behind = False
            try:
                await SCAN.ask_machine(self._session.ask, {"force": False}, SCAN_DEADLINE_S)
            except (TimeoutError, RequestError) as error:
                log.info("a machine that was behind did not compare: %s", type(error).__name__)

    async def _tell(self, change: DocumentChange) -> None:
        """Let the machine have a revision; one that it does not take is brought again."""
        earlier = self._untaken.pop((change.project, change.path), None)
        tries = earlier.tries if earlier else 0
        try:
            async with self._order:
                refusal = await self._apply(change, change.before, BACKGROUND_DEADLINE_S)
            if refusal is not None:
                self.bring_later(change, tries)
        except (TimeoutError, RequestError) as error:
            self._say_untaken(error)
            self.bring_later(change, tries)
        except GrantError as error:
            self._say_untaken(error)

    def _say_untaken(self, error: Exception) -> None:
        """Log it, once: a machine that takes nothing does not fill the log."""
        if not self._has_said_untaken:
            log.info("a revision was not taken, and perhaps others: %s", type(error).__name__)
        self._has_said_untaken = True

    def bring_later(self, change: DocumentChange, tries: int = 0) -> None:
        """Let the machine have a revision in a while, unless it has it by then; `tries`: how often it was brought again already."""
        if change.project not in self.watched:
            return  # another connection of the machine's brings it, or none does
        key = (change.project, change.path)
        held = [len(one.change.text or "") for one in self._untaken.values()]
        if tries >= MOST_TRIES or len(held) >= MAX_WAITING or sum(held) > MAX_WAITING_CHARS:
            return
        pause_s = min(AGAIN_S * 2**tries, LONGEST_AGAIN_S)
        self._untaken[key] = Untaken(change, tries + 1, asyncio.get_running_loop().time() + pause_s)
        self._announced.set()  # whoever waits looks anew until when

    def _due_s(self) -> float | None:
        """In how many seconds something is to be brought again; None where nothing is."""
        if not self._untaken:
            return None
        return max(0.0, min(one.due for one in self._untaken.values()) - asyncio.get_running_loop().time())

    def _take_up(self) -> None:
        """What is due waits with the others; the newest of a document alone."""
        now = asyncio.get_running_loop().time()
        for key, one in self._untaken.items():
            if one.due <= now and key not in self._waiting:
                self._waiting[key] = one.change
                self._waiting_chars += len(one.change.text or "")

    async def _bring(self, project: str, path: str, newest: list[PutResult], before: str | None) -> bool:
        """Apply the last of `newest`; append what merging makes of a person's edit, and apply that."""
        held = self._held.get((project, path))
        taken: list[str] = []
        for _ in range(MAX_MERGE_ROUNDS):
            result = newest[-1]
            answer = await self._apply(DocumentChange.of(project, path, result, before), before, WRITE_BACK_DEADLINE_S)
            if answer is None:
                return True
            told = _told(answer, held, taken)
            grants = self._session.grants
            grants.require_write(project, path)
            async with self._session.held() as space:
                merged = await space.documents.put(project, path, **told, author=grants.alias, by=OWNER)
            taken.append(answer["hash"])
            if merged.revision != result.revision:
                self._session.publish(DocumentChange.of(project, path, merged, result.hash))
            newest.append(merged)
            # The file is now known to hold just what was merged, so that (and nothing else) may be overwritten.
            self._held[project, path] = ConfirmedRevision(told["base"], answer["hash"])
        return False

    async def _apply(self, change: DocumentChange, before: str | None, timeout_s: float) -> Applied | None:
        """Ask the machine to take a revision: None if it has, else what its file holds instead."""
        self._session.grants.require_read(change.project, change.path)  # which may have changed while this waited
        key = (change.project, change.path)
        held = self._held.get(key)
        if held is not None and held.revision >= change.revision:
            return None
        body: ApplyRequest = {
            "project": change.project,
            "path": change.path,
            "revision": change.revision,
            "hash": change.hash,
            "baseHash": held.hash if held is not None and held.hash is not None else before,
            "text": change.text,
        }
        answer = _answered(await APPLY.ask_machine(self._session.ask, body, timeout_s))
        if answer is not None and await self._has_confirmed(change, answer):
            base = answer["base"] or 0
            if base >= change.revision:  # over another of its connections
                self._held[key] = ConfirmedRevision(base, answer["hash"])
                return None
            answer = _answered(
                await APPLY.ask_machine(self._session.ask, {**body, "baseHash": answer["hash"]}, timeout_s)
            )
        if answer is not None:
            return answer
        if change.text is None:
            self._held.pop(key, None)
        else:
            self._held[key] = ConfirmedRevision(change.revision, change.hash)
        return None

    async def _has_confirmed(self, change: DocumentChange, answer: Applied) -> bool:
        """Whether the machine's file is, unedited, a revision that the history here has, so that nothing is lost with it."""
        if answer["baseHash"] != answer["hash"] or answer["sent"]:  # an edit that takes back what was sent since
            return False
        async with self._session.held() as space:
            found = await space.documents.hash_at(change.project, change.path, answer["base"] or 0)
        return found is not None and found == answer["hash"]


@dataclass(frozen=True, slots=True)
class ConnectedMachine:
    """The machine at the other end of a connection, with the progress of one call."""

    copies: Copies
    publish: Callable[[DocumentChange], None]  # tells the other machines of the space of a revision
    progress: Callable[..., Any]  # tells the client how far the call is
    session_id: str

    async def flush(self, project: str, path: str) -> None:
        await self.copies.flush(project, path)

    async def backlog(self) -> Backlog | None:
        return await self.copies.backlog()

    async def workplace(self, project: str) -> Workplace | None:
        return await self.copies.workplace(project)

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        """Bring a stored revision to the caller's disk, and to the other machines of the space."""
        if result.changed:
            self.publish(DocumentChange.of(project, path, result, before))
        return await self.copies.write_back(project, path, result, before)

    async def take_away(self, project: str, path: str, revision: int, before: str | None) -> WrittenBack:
        """Remove the file of a deleted document from the caller's disk, and from the other machines of the space."""
        change = DocumentChange(project, path, revision, "", before, None)
        self.publish(change)
        return await self.copies.take_away(change)

    async def scan(self, *, force: bool) -> Scanned | None:
        """Let the machine compare its files; None if it keeps none here. Raises RequestError where it could not."""
        try:
            return await self.copies.scan(force=force, timeout_s=SCAN_DEADLINE_S)
        except (ConnectionLost, RequestError, TimeoutError) as error:
            log.info("session %s: the scan ended early: %s", self.session_id, type(error).__name__)
            if isinstance(error, RequestError):
                raise
            raise RequestError("unavailable", "the machine did not answer in time") from None


def _answered(answer: Applied) -> Applied | None:
    """What the file holds instead; None where the machine has made the change."""
    return None if answer["applied"] else answer


def _told(answer: Applied, held: ConfirmedRevision | None, taken: Sequence[str] = ()) -> _Edit:
    """What a machine's file holds instead of a revision, as `Documents.put` takes it; `taken` are the hashes of what it said just before.

    It comes from what the machine says itself where it names that text too, which can be checked; else from what it confirmed last, here
    or over another of its connections.
    """
    base, said = answer["base"], answer["baseHash"]
    if said is None:
        base = held.revision if held is not None and base is None else base
    return {"text": answer["text"], "base": base or 0, "base_hash": said, "sent": [*answer["sent"], *taken]}
