"""The requests about the past of a document: history, deleted, restore (PROTOCOL.md 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide_daemon.access.grants import Grants
from confide_daemon.server.replicas import Change
from confide_daemon.server.requests.router import Operation
from confide_daemon.spaces.space import Space
from confide_memory.documents import check_stored_path
from confide_memory.timestamps import iso


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

    async def _history(self, project: str, path: str, limit: int) -> dict[str, Any]:
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

    async def _deleted(self, project: str) -> dict[str, Any]:
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

    async def _restore(self, project: str, path: str, revision: int | None) -> dict[str, Any]:
        grants = self._grants()
        grants.require_write(project, path)
        result = await self._space.documents.restore(
            project, check_stored_path(path), revision=revision, author=grants.alias
        )
        if result.changed:
            self._publish(Change.of(project, path, result, result.previous_hash))
        return {
            "revision": result.revision,
            "hash": result.hash,
            "changed": result.changed,
            "indexed": True,
            "queued": result.queued,
        }
