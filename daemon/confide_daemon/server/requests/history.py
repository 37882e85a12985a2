"""The requests about the past of a document: history, deleted, restore (PROTOCOL.md 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide_crypto.errors import RequestError
from confide_daemon.copies import Change
from confide_daemon.documents import check_path
from confide_daemon.exchange import Operation, project_of, text_of
from confide_daemon.grants import Grants
from confide_daemon.search import iso
from confide_daemon.space import Space

MAX_REVISIONS = 100
_USUAL_REVISIONS = 20


class HistoryRequests:
    """One connection's requests about what was."""

    def __init__(self, space: Space, grants: Callable[[], Grants], publish: Callable[[Change], None]) -> None:
        """`grants` is asked at each step; `publish` tells the machines of the space, this one too, of a new revision."""
        self._space = space
        self._grants = grants
        self._publish = publish
        self.operations: dict[str, Operation] = {
            "history": self._history,
            "deleted": self._deleted,
            "restore": self._restore,
        }

    async def _history(self, body: dict[str, Any]) -> dict[str, Any]:
        project, path = project_of(body), text_of(body, "path")
        limit = _number(body, "limit", most=MAX_REVISIONS) or _USUAL_REVISIONS
        self._grants().require_read(project, path)
        found = await self._space.history.revisions(project, path, limit=limit)
        self._grants().require_read(project, path)
        return {
            "revisions": [
                {
                    "revision": entry.number,
                    "author": entry.author,
                    "time": iso(entry.created_at),
                    "bytes": entry.bytes,
                    "deleted": entry.deleted,
                    "clash": entry.clash,
                }
                for entry in found
            ]
        }

    async def _deleted(self, body: dict[str, Any]) -> dict[str, Any]:
        project = project_of(body)
        self._grants().require_project(project)
        found = await self._space.history.deleted(project)
        grants = self._grants()
        return {
            "documents": [
                {
                    "path": item.path,
                    "revision": item.last.number,
                    "bytes": item.last.bytes,
                    "author": item.author,
                    "time": iso(item.deleted_at),
                    "restorableUntil": iso(item.restorable_until),
                }
                for item in found
                if grants.reaches(project, item.path)
            ]
        }

    async def _restore(self, body: dict[str, Any]) -> dict[str, Any]:
        project, path = project_of(body), text_of(body, "path")
        revision = _number(body, "revision", most=2**53)
        grants = self._grants()
        grants.require_write(project, path)
        result = await self._space.history.restore(project, check_path(path), revision=revision, author=grants.alias)
        if result.changed:
            self._publish(Change.of(project, path, result, result.previous_hash))
        return {
            "revision": result.revision,
            "hash": result.hash,
            "changed": result.changed,
            "indexed": True,
            "queued": result.queued,
        }


def _number(body: dict[str, Any], key: str, *, most: int) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise RequestError("invalid", f"'{key}' must be a number between 1 and {most:,}")
    return value
