"""Counts of the notes that an agent finds by its own search, reads, changes and deletes
(`hooks/server/usage.py`). They are taken from a tool's arguments and the text of its result,
neither of which is stored.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from confide_memory.tools.call import COUNTED
from confide_proxy.hooks.server import usage

SEARCH: Final = "memory_search"
READ: Final = frozenset({"memory_read", "memory_get"})
DELETED: Final = "memory_delete"
MOST_SHOWN: Final = 50
_HIT: Final = re.compile(
    r"^(?P<name>[^\n]{1,512}?)(?::\d+(?:-\d+)?)?(?: \[(?P<project>[^\]\n]{1,256})\])? \d{4}-\d\d-\d\d(?: · .*)?$",
    re.MULTILINE,
)
"""The line above a hit in the text of a search's result (`search_text._places`)."""
_ID: Final = "mem_"
"""The start of a note's id. `note_names` says more, with tables that a session needs for nothing else."""
_NAMES: Final = ("id", "path", "relatedId")


class NoteReads:
    """The counters of one session's tool calls. Used in the event loop; writes to the disk in a
    thread.
    """

    def __init__(self, state_folder: str, project: str) -> None:
        self._file = usage.UsageFile(state_folder)
        self._project = project

    async def count(self, tool: str, arguments: Mapping[str, Any], result: Mapping[str, Any], ms: int) -> None:
        """Count a finished tool call. Ignores errors, and tools that are not in `COUNTED`."""
        if tool not in COUNTED or result.get("isError"):
            return
        change = self._change(tool, arguments, _text(result), ms)
        if change is not None:
            self._file.add(change)
            await asyncio.to_thread(self._file.flush)

    def _change(
        self, tool: str, arguments: Mapping[str, object], text: str, ms: int
    ) -> Callable[[usage.UsageState], bool] | None:
        now = time.time()
        if tool == SEARCH:
            shown = list(_shown_notes(text, self._project))
            tokens = usage.tokens_of(text)
            return lambda state: state.show(usage.SEARCH, shown, tokens=tokens, ms=ms, now=now)
        given = arguments.get("project")
        project = given if isinstance(given, str) else self._project
        said = [value for name in _NAMES if isinstance(value := arguments.get(name), str)]
        if tool == DELETED:
            return lambda state: state.forget(project, said) if said else False
        if tool in READ:
            return lambda state: state.read(project, said, now)
        return lambda state: state.use(project, said, now)


def _shown_notes(text: str, project: str) -> Iterator[usage.ShownNote]:
    """Yield the notes and files in the text of a search's result."""
    for number, hit in enumerate(_HIT.finditer(text)):
        if number == MOST_SHOWN:
            return
        name, of = hit["name"], hit["project"] or project
        if name.endswith(".md"):
            yield usage.ShownNote(of, name)
        elif name.startswith(_ID):
            yield usage.ShownNote(of, "", name)


def _text(result: Mapping[str, Any]) -> str:
    parts = result.get("content")
    first = parts[0] if isinstance(parts, list) and parts else None
    text = first.get("text") if isinstance(first, dict) else None
    return text if isinstance(text, str) else ""
