"""Requests about the trust class of a text (docs/agents.md, PROTOCOL.md 9.9): `trust` raises it on
behalf of a person, `lower` lowers it.

Both require write access to the document; `trust` also requires a device on the space's roster. No
tool of an agent can send them.
"""

from __future__ import annotations

import asyncio

from confide_crypto.errors import RequestError
from confide_daemon.addons import SessionHost
from confide_daemon.spaces.space import Space
from confide_memory.documents import check_stored_path, source_of
from confide_memory.wire.revisions import LOWER, TRUST, Doubt, Lowered, LowerRequest, Trust, TrustRequest


class ClassRequests:
    """Answers the requests of one connection about trust classes."""

    def __init__(self, space: Space, session: SessionHost) -> None:
        self._space = space
        self._session = session
        self.operations = dict([TRUST.by(self._trust), LOWER.by(self._lower)])

    async def _trust(self, asked: TrustRequest) -> Trust:
        project, path, hash = asked["project"], asked["path"], asked["hash"]
        self._writable(project, path)
        doubts = await self._space.documents.doubts(project, path)
        self._writable(project, path)
        if hash is None:
            lines: list[Doubt] = [{"first": first, "last": last, "why": why} for first, last, why in doubts.lines]
            return {"class": doubts.class_, "hash": doubts.hash, "doubted": lines, "trusted": False}
        caller = self._session.caller_now()
        roster = await asyncio.to_thread(self._session.desk.rosters.current, caller.space_id)
        if roster is not None and caller.public_key not in roster.devices:
            hint = "a device of the space approves this device, or trusts the text itself"
            raise RequestError("denied", "this device is not among the devices of its space", hint)
        self._writable(project, path)
        if hash != doubts.hash:
            problem = "the text has changed since it was shown"
            raise RequestError("conflict", problem, "look at it again, and repeat the command")
        # The audit entry comes first: without one, the text is not trusted.
        await asyncio.to_thread(
            self._session.registry.note_trust, caller.public_key, hash, session=self._session.connection.session_id
        )
        class_ = await self._space.documents.trust(project, path, hash, author=self._session.caller_now().grants.alias)
        return {"class": class_, "hash": hash, "doubted": [], "trusted": True}

    async def _lower(self, asked: LowerRequest) -> Lowered:
        project, path = asked["project"], asked["path"]
        self._writable(project, path)
        class_ = await self._space.documents.lower(project, path, asked["revision"])
        return {"lowered": class_ is not None, "class": class_}

    def _writable(self, project: str, path: str) -> None:
        if source_of(check_stored_path(path)) != "memory":
            raise RequestError("invalid", "a transcript stays untrusted", "store what is worth keeping of it")
        self._session.caller_now().grants.require_write(project, path)
