"""Notes that say of themselves that they are sensitive: the daemon has their front matter, and stand-ins in place of their text.

A machine asks before it sends a text for a note that it does not see (`is-sensitive`, PROTOCOL.md 9.7), and seals it whole. The check here
is the second line: it refuses what a machine sends in clear all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide_crypto.sealing.sensitivity import is_sensitive
from confide_daemon.errors import GrantError, NotFoundError, ToolError
from confide_daemon.exchange import Operation, project_of, text_of
from confide_daemon.grants import Grants
from confide_daemon.notes import front_matter
from confide_daemon.sealing import standins
from confide_daemon.space import Space


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
            text = await self._space.newest_text(project, path)
        except (NotFoundError, GrantError):
            return {"sensitive": False}
        return {"sensitive": text is not None and is_sensitive(text)}


def refuse_plain(text: str) -> None:
    """Raises ToolError where a text for a sensitive note is not sealed."""
    if not standins.only(text):
        raise ToolError(
            "the text of a sensitive note comes sealed, and this one does not",
            hint="update confide on this machine, or say it again: the note may have become sensitive just now",
        )


def sealed_only(change: Callable[[str], str], content: str | None) -> Callable[[str], str]:
    """A change of a note's document that raises ToolError where it would put, or leave, a text in clear below a front matter that says
    sensitive. `content`: the text that it puts there, if it does."""

    def checked(text: str) -> str:
        after = change(text)
        if is_sensitive(after):
            if content is not None:
                refuse_plain(content)
            elif not is_sensitive(text) and not standins.only(front_matter.split(after)[1]):
                raise ToolError(
                    "the text of this note is with the daemon in clear",
                    hint="give the content too, so that it is sealed; confide secrets rescan seals older revisions",
                )
        return after

    return checked


async def refuse_plain_onto(space: Space, project: str, path: str, content: str) -> None:
    """Raises ToolError where a text in clear would be added to a sensitive document, or make one."""
    if is_sensitive(content):
        refuse_plain(front_matter.split(content)[1])
        return
    text = await space.newest_text(project, path)
    if text is not None and is_sensitive(text):
        refuse_plain(front_matter.split(content)[1])
