"""The requests by which a machine carries a whole space from one daemon to another (PROTOCOL.md 9.8).

    move-state                                     at either end
    move-out, move-facts, move-hold, move-leave    where it leaves
    move-begin, move-in, move-end                  where it arrives, its devices first (`move-roster`, in `devices`)
    move-tasks, move-tasks-in                      the tasks, last of all: out where it has left, in where it has arrived

What is sealed goes with `record-list`, `record` and `records`, as ever. All of it is only for a device of the space that may write in
all of it: authors and times are believed as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_daemon.access.callers import Caller
from confide_daemon.sealing.rosters import RosterDesk
from confide_daemon.server.requests import Operation
from confide_daemon.spaces.space import Space
from confide_daemon.store.rows import Origin
from confide_memory.documents import MAX_TEXT_BYTES, SOURCES, check_text, text_hash, unsafe
from confide_memory.forms import encoded_or_none
from confide_night.daemon.moving import Page
from confide_transfer.move.daemon.documents import Load
from confide_transfer.move.daemon.table import MovedDocument, MovedLink, MovedRevision, MovedSession, text_of

MAX_LOAD_BYTES: Final = 8 * 1024 * 1024
"""Of packed texts in one request: they are written in one transaction."""
ALONE: Final = frozenset(
    {
        *("move-state", "move-out", "move-facts", "move-hold", "move-leave"),
        *("move-begin", "move-in", "move-end", "move-tasks", "move-tasks-in"),
    }
)
"""What is answered while the space is on its way; and these, to the machine that carries it:"""
BESIDE: Final = frozenset({"records", "record", "record-list"})


class MovingRequests:
    """One connection's. None of them names a project."""

    def __init__(
        self,
        space: Space,
        caller: Callable[[], Caller],
        desk: RosterDesk,
        session: str,
        close_others: Callable[[], Awaitable[None]],
    ) -> None:
        """What they need.

        Args:
            caller: asked at each step.
            session: the id of this one, which may hold the space.
            close_others: ends all other sessions of the space; returns once nothing of them runs.
        """
        self._space = space
        self._caller = caller
        self._desk = desk
        self._session = session
        self._close_others = close_others
        self.operations: dict[str, Operation] = {
            "move-state": self._state,
            "move-out": self._out,
            "move-facts": self._facts,
            "move-hold": self._hold,
            "move-leave": self._leave,
            "move-begin": self._begin,
            "move-in": self._in,
            "move-end": self._end,
            "move-tasks": self._tasks,
            "move-tasks-in": self._tasks_in,
        }

    def _require_all(self) -> Caller:
        caller = self._caller()
        caller.grants.require_scope()
        caller.grants.require_every_project("a move")
        for source in SOURCES:
            caller.grants.require_source(source)
        return caller

    async def _require_device(self) -> Caller:
        caller = self._require_all()
        roster = await asyncio.to_thread(self._desk.rosters.current, caller.space_id)
        if roster is None or caller.public_key not in roster.devices:
            hint = "a device of the space approves this machine"
            raise RequestError("denied", "this machine is not among the devices of its space", hint)
        return self._require_all()

    async def _state(self) -> dict[str, Any]:
        self._require_all()
        moving = self._space.moving
        state = "left" if moving.left_at else "arriving" if moving.is_arriving else "settled"
        revisions, records = await moving.revision_count(), await self._space.records.count()
        tasks = await self._space.tasks.count()
        self._require_all()
        return {"state": state, "revisions": revisions, "records": records, "tasks": tasks}

    async def _out(self, after: Callable[[], int], texts: bool) -> dict[str, Any]:
        await self._require_device()
        found, total = await self._space.moving.revisions(after(), texts=texts)
        self._require_all()
        return {
            "revisions": [
                {
                    "id": one.change,
                    "project": one.project,
                    "path": one.path,
                    "revision": one.revision,
                    "hash": one.hash,
                    "author": one.author,
                    "time": one.time,
                    "bytes": one.size,
                    "packed": encoded_or_none(one.packed),
                    "made": one.origin.made,
                    "by": one.origin.by,
                    "doubted": [list(lines) for lines in one.origin.doubted],
                }
                for one in found
                if one.origin is not None
            ],
            "next": found[-1].change if found else None,
            "total": total,
        }

    async def _facts(self, kind: str, after: Callable[[], int]) -> dict[str, Any]:
        await self._require_device()
        moving = self._space.moving
        empty: dict[str, Any] = {"documents": [], "sessions": [], "links": [], "next": None}
        if kind == "links":
            found = {"links": [one._asdict() for one in await moving.links()]}
        elif kind == "sessions":
            sessions = await moving.sessions(after())
            found = {"sessions": [one._asdict() for one in sessions], **_next(sessions)}
        else:
            documents = await moving.documents(after())
            found = {"documents": [one._asdict() for one in documents], **_next(documents)}
        self._require_all()
        return empty | found

    async def _hold(self) -> dict[str, Any]:
        await self._require_device()
        self._space.moving.hold(self._session)
        await self._close_others()
        return {"changes": await self._space.moving.changes()}

    async def _leave(self, changes: int) -> dict[str, Any]:
        await self._require_device()
        self._space.moving.hold(self._session)
        await self._space.moving.leave(changes)
        await self._close_others()
        return {}

    async def _begin(self) -> dict[str, Any]:
        await self._require_device()
        await self._space.moving.begin()
        return {}

    async def _in(
        self,
        revisions: list[dict[str, Any]],
        dropped: list[dict[str, Any]],
        documents: list[dict[str, Any]],
        sessions: list[dict[str, Any]],
        links: list[dict[str, Any]],
    ) -> dict[str, Any]:
        await self._require_device()
        self._space.moving.require_arriving()
        if sum(len(one["packed"] or b"") for one in revisions) > MAX_LOAD_BYTES and len(revisions) > 1:
            hint = f"the limit is {MAX_LOAD_BYTES:,} bytes"
            raise RequestError("too_large", "the texts are too large together", hint)
        read = await asyncio.to_thread(lambda: [_revision(**one) for one in revisions])
        load = Load(
            read,
            [(one["project"], one["path"], one["revision"]) for one in dropped],
            [MovedDocument(**{**one, "trusted": tuple(one["trusted"])}) for one in documents],
            [MovedSession(**{**one, "parts": tuple(one["parts"])}) for one in sessions],
            [MovedLink(**one) for one in links],
        )
        for named in (*documents, *dropped):
            _check_path(named["path"])
        self._require_all()
        self._space.moving.require_arriving()
        await self._space.moving.take(load)
        return {"taken": len(read)}

    async def _end(self, revisions: int, records: int, tasks: bool) -> dict[str, Any]:
        await self._require_device()
        self._space.moving.require_arriving()
        damaged = await self._space.moving.end(revisions, records, awaits_tasks=tasks)
        if not damaged:
            await self._space.projects.open()
        return {"damaged": damaged}

    async def _tasks(self, after: str) -> dict[str, Any]:
        await self._require_device()
        page = await self._space.tasks.leaving(after)
        self._require_all()
        return page.told()

    async def _tasks_in(self, is_last: bool, given_up: bool, **kinds: Any) -> dict[str, Any]:
        await self._require_device()
        await self._space.tasks.arrive(Page(**kinds), is_last=is_last, are_given_up=given_up)
        return {}


def _next(found: list[Any]) -> dict[str, Any]:
    return {"next": found[-1].id if found else None}


def _check_path(path: str) -> None:
    # Transcripts too, and what earlier versions took.
    if (why := unsafe(path)) is not None:
        raise RequestError("invalid", f"the document path is not allowed: {why}")


def _revision(
    *,
    project: str,
    path: str,
    revision: int,
    hash: str,
    author: str,
    time: int,
    packed: bytes | None,
    made: str | None,
    by: str | None,
    doubted: Sequence[tuple[int, int]],
    **_: Any,
) -> tuple[MovedRevision, str | None]:
    origin = Origin(made, tuple(doubted), by or made) if made is not None else None
    one = MovedRevision(0, project, path, revision, hash, author, time, packed, origin=origin)
    _check_path(one.path)
    if one.revision < 1 or bool(one.hash) != (packed is not None):
        raise RequestError("invalid", "a revision has a number, and a text if it has a hash")
    if packed is None:
        return one, None
    try:
        text = check_text(text_of(packed, MAX_TEXT_BYTES))
    except ValueError:
        problem = "a packed text is not the zlib of UTF-8, in base64, or too large"
        raise RequestError("invalid", problem) from None
    if text_hash(text) != one.hash:
        raise RequestError("invalid", "'hash' is not that of the text")
    return one, text
