"""The requests by which a device moves a whole space from one daemon to another (PROTOCOL.md 9.8).

    move-state                                     at both ends
    move-out, move-facts, move-hold, move-leave    at the source
    move-begin, move-in, move-end                  at the target, after `move-roster` (see `devices`)
    move-tasks, move-tasks-in                      last: the night add-on answers them

Sealed records use the usual requests `record-list`, `record` and `records`. A move requires a
device of the space with write access to all projects, since the daemon believes the authors and
times that it sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from confide_crypto.errors import RequestError
from confide_daemon.addons import SessionHost, SessionPart
from confide_daemon.server.requests.whole_space import require_all, require_device
from confide_daemon.spaces.space import Space
from confide_memory.documents import check_text, text_hash, unsafe
from confide_memory.wire.operation import Nothing
from confide_transfer.move.daemon.space_transfer import PAGE_FACTS, Load, Moving
from confide_transfer.move.daemon.table import MovingTable
from confide_transfer.move.shared.moved import (
    MOVE_BEGIN,
    MOVE_END,
    MOVE_FACTS,
    MOVE_HOLD,
    MOVE_IN,
    MOVE_LEAVE,
    MOVE_OUT,
    MOVE_STATE,
    MovedDocument,
    MovedFacts,
    MovedOut,
    MovedRevision,
    MovedSession,
    MoveEnded,
    MoveEndRequest,
    MoveFactsRequest,
    MoveHeld,
    MoveIn,
    MoveOutRequest,
    MoveState,
    MoveTaken,
    text_of,
)

MAX_LOAD_BYTES: Final = 8 * 1024 * 1024
"""Limit of compressed texts in one request, which is written in one transaction."""


class MovingRequests(SessionPart):
    """Handles the requests for a move on one connection. None of them names a project."""

    def __init__(self, session: SessionHost) -> None:
        self._session = session
        self._space: Space
        self.operations = dict(
            [
                MOVE_STATE.by(self._state),
                MOVE_OUT.by(self._out),
                MOVE_FACTS.by(self._facts),
                MOVE_HOLD.by(self._hold),
                MOVE_LEAVE.by(self._leave),
                MOVE_BEGIN.by(self._begin),
                MOVE_IN.by(self._in),
                MOVE_END.by(self._end),
            ]
        )

    def use(self, space: Space) -> None:
        """Answer all further requests with the state and data of this space."""
        self._space = space

    def _require_all(self) -> None:
        require_all(self._session, "a move")

    async def _require_device(self) -> None:
        await require_device(self._session, "a move")

    @property
    def _moving(self) -> Moving:
        return self._space.part(Moving)

    async def _state(self, _asked: Nothing) -> MoveState:
        self._require_all()
        moving = self._moving
        state = "left" if moving.left_at else "arriving" if moving.is_arriving else "settled"
        revisions, records = await moving.read(MovingTable.revision_count), await self._space.records.count()
        carried = {kind: count for part in self._space.parts for kind, count in (await part.items_to_move()).items()}
        self._require_all()
        return {"state": state, "revisions": revisions, "records": records, "tasks": carried.get("tasks", 0)}

    async def _out(self, asked: MoveOutRequest) -> MovedOut:
        await self._require_device()
        found, total = await self._moving.revisions(asked["after"], texts=asked["texts"])
        self._require_all()
        return {"revisions": found, "next": _next(found), "total": total}

    async def _facts(self, asked: MoveFactsRequest) -> MovedFacts:
        await self._require_device()
        moving, after = self._moving, asked["after"]
        told: MovedFacts = {"documents": [], "sessions": [], "links": [], "next": None}
        if asked["kind"] == "links":
            told["links"] = await moving.read(MovingTable.links)
        elif asked["kind"] == "sessions":
            told["sessions"] = sessions = await moving.read(lambda table: table.sessions(after, limit=PAGE_FACTS))
            told["next"] = _next(sessions)
        else:
            told["documents"] = documents = await moving.read(lambda table: table.documents(after, limit=PAGE_FACTS))
            told["next"] = _next(documents)
        self._require_all()
        return told

    async def _hold(self, _asked: Nothing) -> MoveHeld:
        await self._require_device()
        self._moving.hold(self._session.connection.session_id)
        await self._session.close_others()
        return {"changes": await self._moving.changes()}

    async def _leave(self, asked: MoveHeld) -> Nothing:
        await self._require_device()
        self._moving.hold(self._session.connection.session_id)
        await self._moving.leave(asked["changes"])
        await self._session.close_others()
        return {}

    async def _begin(self, _asked: Nothing) -> Nothing:
        await self._require_device()
        await self._moving.begin()
        return {}

    async def _in(self, asked: MoveIn) -> MoveTaken:
        await self._require_device()
        self._moving.require_arriving()
        revisions, documents, dropped = asked["revisions"], asked["documents"], asked["dropped"]
        if sum(len(one.packed or b"") for one in revisions) > MAX_LOAD_BYTES and len(revisions) > 1:
            hint = f"the limit is {MAX_LOAD_BYTES:,} bytes"
            raise RequestError("too_large", "the texts are too large together", hint)
        read = await asyncio.to_thread(lambda: [_with_text(one) for one in revisions])
        for path in (*(one.path for one in documents), *(one["path"] for one in dropped)):
            _check_path(path)
        gone = [(one["project"], one["path"], one["revision"]) for one in dropped]
        self._require_all()
        self._moving.require_arriving()
        await self._moving.take(Load(read, gone, documents, asked["sessions"], asked["links"]))
        return {"taken": len(read)}

    async def _end(self, asked: MoveEndRequest) -> MoveEnded:
        await self._require_device()
        self._moving.require_arriving()
        damaged = await self._moving.end(asked["revisions"], asked["records"], awaits_tasks=asked["tasks"])
        if not damaged:
            await self._space.projects.open()
        return {"damaged": damaged}


def _next(found: Sequence[MovedRevision | MovedDocument | MovedSession]) -> int | None:
    return found[-1].id if found else None


def _check_path(path: str) -> None:
    # Allows transcripts too, and paths that earlier versions accepted.
    if (why := unsafe(path)) is not None:
        raise RequestError("invalid", f"the document path is not allowed: {why}")


def _with_text(one: MovedRevision) -> tuple[MovedRevision, str | None]:
    """Return a received revision with its text.

    Raise RequestError if it is not valid or its text does not match its hash.
    """
    _check_path(one.path)
    if one.revision < 1 or bool(one.hash) != (one.packed is not None):
        raise RequestError("invalid", "a revision has a number, and a text if it has a hash")
    if one.packed is None:
        return one, None
    try:
        text = check_text(text_of(one.packed))
    except ValueError:
        problem = "a packed text is not the zlib of UTF-8, in base64, or too large"
        raise RequestError("invalid", problem) from None
    if text_hash(text) != one.hash:
        raise RequestError("invalid", "'hash' is not that of the text")
    return one, text
