"""The request by which a machine asks about a note that it does not see: is-sensitive (PROTOCOL.md 9.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide_daemon.access.grants import Grants
from confide_daemon.errors import GrantError, NotFoundError
from confide_daemon.server.requests.router import Operation
from confide_daemon.spaces.space import Space
from confide_memory.sensitivity import is_sensitive
from confide_memory.wire.requests import project as project_of
from confide_memory.wire.requests import text as text_of


class SensitivityRequests:
    """One connection's questions about single notes."""

    def __init__(self, space: Space, grants: Callable[[], Grants]) -> None:
        """`grants` is asked at each step."""
        self._space = space
        self._grants = grants
        self.operations: dict[str, Operation] = {"is-sensitive": self._is_sensitive}

    async def _is_sensitive(self, body: dict[str, Any]) -> dict[str, Any]:
        """Of a document by its path, or of a note by its id; what is not there, or not to be seen, is not."""
        grants = self._grants()
        try:
            if "id" in body:
                grants.require_source("memory")
                found = await self._space.notes.row(text_of(body, "id"), grants.projects_among(None))
                project, path = found.project, found.path
            else:
                project, path = project_of(body), text_of(body, "path")
            grants.require_read(project, path)
            text = await self._space.documents.newest_text(project, path)
        except (NotFoundError, GrantError):
            return {"sensitive": False}
        return {"sensitive": text is not None and is_sensitive(text)}
