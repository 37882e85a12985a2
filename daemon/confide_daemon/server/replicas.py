"""The copies of documents on the device at one connection.

A new revision is sent to every device that keeps the project: to the caller's device before its
tool returns, to the others in the background. The daemon knows only what a device has confirmed.
The confirmed revision is also the base on which edits that the device has not sent yet are merged.
With a newer base, lines that the device has not seen yet would look deleted.
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

# A tool call waits for the caller's disk only briefly: the daemon has stored the document already.
WRITE_BACK_DEADLINE_S = 2.0
BACKGROUND_DEADLINE_S = 10.0
SCAN_DEADLINE_S = 600.0
MAX_MERGE_ROUNDS = 3
# Limits on the documents that wait for a device (announcements of one document merge into one) and
# on their characters. A device that is further behind compares its files after these.
MAX_WAITING = 4096
MAX_WAITING_CHARS = 16 * 1024 * 1024
# A revision that a device did not take (suspended, disk full, file in use) is sent again after
# `AGAIN_S`, with the delay doubled each time. After `MOST_TRIES`, the device's comparison every
# five minutes catches up.
AGAIN_S = 1.0
LONGEST_AGAIN_S = 60.0
MOST_TRIES = 10

Key = tuple[str, str]
_Answer = TypeVar("_Answer")


class _Edit(TypedDict):
    """A text that a device holds instead of a revision, as the arguments of `Documents.put`."""

    text: str
    base: int
    base_hash: str | None
    sent: Sequence[str]


@dataclass(frozen=True, slots=True)
class ConfirmedRevision:
    """The last revision of a document that a device has confirmed. It has no hash if the file was
    edited since.
    """

    revision: int
    hash: str | None


@dataclass(frozen=True, slots=True)
class Untaken:
    """A revision that a device did not accept, and when to send it again."""

    change: DocumentChange
    tries: int
    due: float  # by the clock of the event loop


class CopiesHost(Protocol):
    """The methods of the connection that `Copies` uses."""

    @property
    def grants(self) -> Grants:
        """The caller's current rights."""

    async def ask(self, operation: Operation[Any, Any], body: Carried, timeout_s: float) -> Any:
        """Send a request to the device and return its answer. Call it through
        `Operation.ask_machine`, which gives the answer its type.
        """

    def hold(self) -> AbstractAsyncContextManager[Space]:
        """Keep the space open while the context is active. Raises RequestError if the space cannot
        be opened.
        """

    def publish(self, change: DocumentChange) -> None:
        """Announce a revision to the other devices of the space."""


class Copies:
    """The document copies of one device: its projects, the revisions that it has confirmed, and the
    newer ones that wait to be sent.
    """

    def __init__(self, session: CopiesHost) -> None:
        self._session = session
        self._confirmed: dict[Key, ConfirmedRevision] = {}
        self._waiting: dict[Key, DocumentChange] = {}
        self._waiting_chars = 0
        self._untaken: dict[Key, Untaken] = {}
        self._has_said_untaken = False
        self._is_behind = False
        self._announced = asyncio.Event()
        # One revision at a time, so that each is applied on top of the previous one.
        self._order = asyncio.Lock()
        self.projects: set[str] = set()
        # The projects whose files this connection watches; the rest are watched by another
        # connection of the device, or not at all.
        self.watched_projects: set[str] = set()
        self.compared_at: str | None = None
        """The time of the device's last comparison."""

    def confirm(self, project: str, path: str, revision: int, digest: str | None) -> None:
        """Record that the device's file equals this revision. `digest` None: the file is an edit of
        it.
        """
        self._confirmed[project, path] = ConfirmedRevision(revision, digest)

    def forget(self, project: str, path: str) -> None:
        """Record that the device no longer has a file of this document."""
        self._confirmed.pop((project, path), None)

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        """Write a revision to the device's disk, within two seconds. If a person has just edited
        the file there, the edit is merged.

        A failure of the device raises nothing: the revision is stored, and the result says if it is
        on the device's disk as well.
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
            warning = "stored, but this device has not confirmed its file yet; it follows with the next sync"
        except ConfideError as error:
            warning = f"stored, but the file on this machine could not be written: {error.message}"
        if not on_disk:
            self.bring_later(DocumentChange.of(project, path, newest[-1], before))
        return WrittenBack(on_disk, newest[-1], warning)

    async def take_away(self, change: DocumentChange) -> WrittenBack:
        """Remove the file of a deleted document from the device's disk, within two seconds.

        A file that was just edited stays, and restores the document. A failure of the device raises
        nothing; `on_disk` in the result says if the disk matches the daemon.
        """
        gone = PutResult(change.revision, "", "", changed=True, merged=False, clash=False, queued_pieces=0)
        if change.project not in self.projects:
            return WrittenBack(False, gone)
        try:
            async with asyncio.timeout(WRITE_BACK_DEADLINE_S), self._order:
                held = self._confirmed.get((change.project, change.path))
                answer = await self._apply(change, change.before, WRITE_BACK_DEADLINE_S)
                if answer is None:
                    return WrittenBack(True, gone)
                grants = self._session.grants
                grants.require_write(change.project, change.path)
                told = _device_edit(answer, held)
                async with self._session.hold() as space:
                    kept = await space.documents.put(change.project, change.path, **told, author=grants.alias, by=OWNER)
        except (TimeoutError, ConnectionLost):
            why = "this device has not confirmed that its file was deleted; the next sync deletes it"
            return WrittenBack(False, gone, f"deleted, but {why}")
        except ConfideError as error:
            return WrittenBack(False, gone, f"deleted, but the file on this machine is still there: {error.message}")
        self._session.publish(DocumentChange.of(change.project, change.path, kept, None))
        return WrittenBack(
            True, kept, "the file was just edited on this machine, so it stays: read it again, and delete it then"
        )

    async def flush(self, project: str, path: str) -> None:
        """Ask the device to send a fresh edit of the file first, so that a change builds on it
        instead of being merged with it later.

        If the device does not answer in time, nothing is raised: its edit is merged when it
        arrives.
        """
        if project not in self.projects:
            return
        asking = FLUSH.ask_machine(self._session.ask, {"project": project, "path": path}, WRITE_BACK_DEADLINE_S)
        await self._in_time(asking, "did not send its file before a store")

    async def backlog(self) -> Backlog | None:
        """Return how much the device still has to send, or None if it does not answer."""
        if not self.projects:
            return None
        asking = BACKLOG.ask_machine(self._session.ask, {}, WRITE_BACK_DEADLINE_S)
        return await self._in_time(asking, "did not count its backlog")

    async def workplace(self, project: str) -> Workplace | None:
        """Return where the agent works, as its device reports it: platform, folder, git repository
        and local time. None if the device does not answer.
        """
        asking = WORKPLACE.ask_machine(self._session.ask, {"project": project}, WRITE_BACK_DEADLINE_S)
        return await self._in_time(asking, "did not say where it works")

    async def _in_time(self, asking: Awaitable[_Answer], failing: str) -> _Answer | None:
        """Return the device's answer, or None after a failure or timeout, which is logged with the
        words of `failing`.
        """
        try:
            return await asking
        except (TimeoutError, ConnectionLost, RequestError) as error:
            log.info("a device %s: %s", failing, type(error).__name__)
            return None

    async def scan(self, *, force: bool, timeout_s: float) -> Scanned | None:
        """Make the device compare its files with the daemon's, and return the result; None if it
        keeps no files.

        Raises RequestError, ConnectionLost or TimeoutError if the comparison fails.
        """
        if not self.projects:
            return None
        return await SCAN.ask_machine(self._session.ask, {"force": force}, timeout_s)

    def announce(self, change: DocumentChange) -> None:
        """Queue a revision that another device made, to be sent to this one."""
        if change.project not in self.watched_projects or not self._session.grants.reaches(change.project, change.path):
            return
        if source_of(change.path) == "sessions":
            return  # transcripts are in no working copy
        key = (change.project, change.path)
        earlier = self._take_out(key)
        if earlier is not None:
            change = replace(change, before=earlier.before)
        weight = len(change.text or "")
        if len(self._waiting) >= MAX_WAITING or self._waiting_chars + weight > MAX_WAITING_CHARS:
            if not self._is_behind:
                log.warning("a device is %d documents behind; it compares when it has taken them", len(self._waiting))
            self._is_behind = True
            return
        self._waiting[key] = change
        self._waiting_chars += weight
        self._announced.set()

    def _take_out(self, key: Key) -> DocumentChange | None:
        change = self._waiting.pop(key, None)
        self._waiting_chars -= len(change.text or "") if change is not None else 0
        return change

    async def run(self) -> None:
        """Send queued revisions, and repeat those that the device did not accept, until the
        connection ends.
        """
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
        """Send the queue; have the device compare its files if the queue overflowed. Raises
        ConnectionLost.
        """
        while self._waiting:
            change = self._take_out(next(iter(self._waiting)))
            assert change is not None
            await self._tell(change)
        if self._is_behind:
            self._is_behind = False
            try:
                await SCAN.ask_machine(self._session.ask, {"force": False}, SCAN_DEADLINE_S)
            except (TimeoutError, RequestError) as error:
                log.info("a device that was behind did not compare: %s", type(error).__name__)

    async def _tell(self, change: DocumentChange) -> None:
        """Send a revision to the device; schedule a retry if it is not taken."""
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
        """Log a refused revision once per connection, so that one device cannot fill the log."""
        if not self._has_said_untaken:
            log.info("a revision was not taken, and perhaps others: %s", type(error).__name__)
        self._has_said_untaken = True

    def bring_later(self, change: DocumentChange, tries: int = 0) -> None:
        """Schedule another attempt to send a revision, after `tries` earlier ones. The attempt is
        dropped if the device receives the revision before.
        """
        if change.project not in self.watched_projects:
            return  # another connection of the machine's brings it, or none does
        key = (change.project, change.path)
        held = [len(one.change.text or "") for one in self._untaken.values()]
        if tries >= MOST_TRIES or len(held) >= MAX_WAITING or sum(held) > MAX_WAITING_CHARS:
            return
        pause_s = min(AGAIN_S * 2**tries, LONGEST_AGAIN_S)
        self._untaken[key] = Untaken(change, tries + 1, asyncio.get_running_loop().time() + pause_s)
        self._announced.set()  # `run` computes its timeout again

    def _due_s(self) -> float | None:
        """Return the seconds until the next retry; None if none is scheduled."""
        if not self._untaken:
            return None
        return max(0.0, min(one.due for one in self._untaken.values()) - asyncio.get_running_loop().time())

    def _take_up(self) -> None:
        """Move retries that are due into the queue, unless a newer revision of the document waits
        there.
        """
        now = asyncio.get_running_loop().time()
        for key, one in self._untaken.items():
            if one.due <= now and key not in self._waiting:
                self._waiting[key] = one.change
                self._waiting_chars += len(one.change.text or "")

    async def _bring(self, project: str, path: str, newest: list[PutResult], before: str | None) -> bool:
        """Apply the last of `newest`; append the result of merging an edit on the device, and apply
        that. Return True on success.
        """
        held = self._confirmed.get((project, path))
        taken: list[str] = []
        for _ in range(MAX_MERGE_ROUNDS):
            result = newest[-1]
            answer = await self._apply(DocumentChange.of(project, path, result, before), before, WRITE_BACK_DEADLINE_S)
            if answer is None:
                return True
            told = _device_edit(answer, held, taken)
            grants = self._session.grants
            grants.require_write(project, path)
            async with self._session.hold() as space:
                merged = await space.documents.put(project, path, **told, author=grants.alias, by=OWNER)
            taken.append(answer["hash"])
            if merged.revision != result.revision:
                self._session.publish(DocumentChange.of(project, path, merged, result.hash))
            newest.append(merged)
            # The file holds exactly the text that was merged, so only that may be overwritten.
            self._confirmed[project, path] = ConfirmedRevision(told["base"], answer["hash"])
        return False

    async def _apply(self, change: DocumentChange, before: str | None, timeout_s: float) -> Applied | None:
        """Send a revision to the device; return None if it applied it, else what its file holds
        instead.
        """
        self._session.grants.require_read(change.project, change.path)  # which may have changed while this waited
        key = (change.project, change.path)
        held = self._confirmed.get(key)
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
        answer = _other_content(await APPLY.ask_machine(self._session.ask, body, timeout_s))
        if answer is not None and await self._has_confirmed(change, answer):
            base = answer["base"] or 0
            if base >= change.revision:  # over another of its connections
                self._confirmed[key] = ConfirmedRevision(base, answer["hash"])
                return None
            answer = _other_content(
                await APPLY.ask_machine(self._session.ask, {**body, "baseHash": answer["hash"]}, timeout_s)
            )
        if answer is not None:
            return answer
        if change.text is None:
            self._confirmed.pop(key, None)
        else:
            self._confirmed[key] = ConfirmedRevision(change.revision, change.hash)
        return None

    async def _has_confirmed(self, change: DocumentChange, answer: Applied) -> bool:
        """Return True if the device's file is an unedited revision of the history, so that
        replacing it loses nothing.
        """
        if answer["baseHash"] != answer["hash"] or answer["sent"]:  # an edit that takes back what was sent since
            return False
        async with self._session.hold() as space:
            found = await space.documents.hash_at(change.project, change.path, answer["base"] or 0)
        return found is not None and found == answer["hash"]


@dataclass(frozen=True, slots=True)
class ConnectedMachine:
    """The caller's device during one tool call, with the function that receives the call's
    progress.
    """

    copies: Copies
    publish: Callable[[DocumentChange], None]  # announces a revision to the other devices
    progress: Callable[..., Any]  # reports the call's progress to the client
    session_id: str

    async def flush(self, project: str, path: str) -> None:
        await self.copies.flush(project, path)

    async def backlog(self) -> Backlog | None:
        return await self.copies.backlog()

    async def workplace(self, project: str) -> Workplace | None:
        return await self.copies.workplace(project)

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        """Write a stored revision to the disk of the caller's device, and announce it to the other
        devices of the space.
        """
        if result.changed:
            self.publish(DocumentChange.of(project, path, result, before))
        return await self.copies.write_back(project, path, result, before)

    async def take_away(self, project: str, path: str, revision: int, before: str | None) -> WrittenBack:
        """Remove the file of a deleted document from the disk of the caller's device, and from the
        other devices of the space.
        """
        change = DocumentChange(project, path, revision, "", before, None)
        self.publish(change)
        return await self.copies.take_away(change)

    async def scan(self, *, force: bool) -> Scanned | None:
        """Make the device compare its files with the daemon's; return None if it keeps no files.
        Raises RequestError if the comparison fails.
        """
        try:
            return await self.copies.scan(force=force, timeout_s=SCAN_DEADLINE_S)
        except (ConnectionLost, RequestError, TimeoutError) as error:
            log.info("session %s: the scan ended early: %s", self.session_id, type(error).__name__)
            if isinstance(error, RequestError):
                raise
            raise RequestError("unavailable", "the device did not answer in time") from None


def _other_content(answer: Applied) -> Applied | None:
    """Return what the file holds instead of the revision; None if the device applied it."""
    return None if answer["applied"] else answer


def _device_edit(answer: Applied, held: ConfirmedRevision | None, taken: Sequence[str] = ()) -> _Edit:
    """Return the device's text as arguments of `Documents.put`; `taken` lists the hashes of texts
    it sent just before.

    The base is the one that the device names if it gives that text's hash, which can be checked;
    else the one it confirmed last, here or over another of its connections.
    """
    base, said = answer["base"], answer["baseHash"]
    if said is None:
        base = held.revision if held is not None and base is None else base
    return {"text": answer["text"], "base": base or 0, "base_hash": said, "sent": [*answer["sent"], *taken]}
