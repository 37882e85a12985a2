"""Stores suggestions as notes, changes or deletes such notes, with the same tools that agents use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final, Protocol

from confide_crypto.errors import RequestError
from confide_crypto.sealing.placeholder import STANDIN
from confide_learn.local.checks import ALIKE, SUMMARY
from confide_learn.local.suggestions import Suggestion
from confide_memory.classes import DERIVED, lowest
from confide_memory.documents import RequestChannel
from confide_memory.errors import ToolError
from confide_memory.note_names import MAX_TITLE
from confide_memory.tools.call import CLASS
from confide_proxy.errors import is_for_now
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.project import Project

SOURCE: Final = "hook"
"""Source of the learner's notes, by which the daemon gives them the class `derived`."""
_CATEGORIES: Final = {"preference": "preferences", "correction": "preferences", "decision": "decisions"}
_TITLE_CHARS: Final = min(72, MAX_TITLE)


class Memory(Protocol):
    """A connection to the daemon for one project."""

    @property
    def connection(self) -> RequestChannel: ...

    @property
    def sealing(self) -> SessionSealing: ...

    async def call(
        self, tool: str, arguments: dict[str, Any], *, more_meta: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Call a tool and return its structured result. The fields of `more_meta` are added to the
        call's `_meta`.
        """
        ...


class Connects(Protocol):
    """Opens a connection to the daemon, as a context manager that closes it."""

    def __call__(self, project: Project) -> AbstractAsyncContextManager[Memory]: ...


async def store(memory: Memory, suggestion: Suggestion, *, is_accepted: bool) -> Suggestion:
    """Store a suggestion as a note; return it with state `stored`, or `known` if a note says the
    same already.

    Args:
        is_accepted: True if the user has accepted it. Otherwise nothing is stored if a nearly
            identical note exists that was not learned.

    Raises RequestError, ToolError, ConfideError or TimeoutError if a tool call fails.
    """
    # The class is sent with every revision (docs/agents.md).
    of_class = {CLASS: DERIVED if is_accepted else lowest((DERIVED, suggestion.class_))}
    if suggestion.note:
        try:
            result = await memory.call(
                "memory_update", {"id": suggestion.note, "content": suggestion.text}, more_meta=of_class
            )
        except (RequestError, ToolError) as error:
            if is_for_now(error):
                raise
            # The note is already deleted.
        else:
            return replace(suggestion, state="stored", path=str(result.get("path", suggestion.path)))
    arguments = _fields(suggestion)
    try:
        result = await memory.call("memory_store", arguments, more_meta=of_class)
    except (RequestError, ToolError) as error:
        if "relatedTo" not in arguments or is_for_now(error):
            raise
        bare = {name: value for name, value in arguments.items() if name not in ("relatedTo", "relation")}
        result = await memory.call("memory_store", bare, more_meta=of_class)
    stored = replace(suggestion, state="stored", note=str(result.get("id", "")), path=str(result["path"]))
    if not result["linesWritten"]:
        return replace(stored, state="known")
    near = [each for each in result["duplicates"] if each["similarity"] >= ALIKE and each["id"] != suggestion.replaced]
    for each in near if suggestion.kind != SUMMARY else ():
        if not is_accepted and not await _was_learned(memory, each["id"]):
            await memory.call("memory_delete", {"id": stored.note})
            return replace(stored, state="known", note=each["id"], path=each["path"])
        link = {"id": stored.note, "relatedId": each["id"], "relation": "supersedes"}
        await memory.call("memory_link", link, more_meta=of_class)
        stored = replace(stored, replaced=each["id"])
    return stored


async def take_back(memory: Memory, suggestion: Suggestion) -> Suggestion:
    """Delete the note that a suggestion became; a note that it superseded becomes current again.
    Raises the same errors as `store`.
    """
    await memory.call("memory_delete", {"id": suggestion.note})
    return replace(suggestion, state="undone")


def title_of(text: str) -> str:
    """Return a title for a text: its beginning, cut at the end of a word, with "…" in place of
    sealed parts.
    """
    line = STANDIN.sub("…", text.partition("\n")[0])
    if len(line) > _TITLE_CHARS:
        line = f"{line[:_TITLE_CHARS].rpartition(' ')[0] or line[:_TITLE_CHARS]} …"
    return line.strip().rstrip(".")


def _fields(suggestion: Suggestion) -> dict[str, object]:
    metadata: Mapping[str, str] = {
        "quote": suggestion.quote,
        "kind": suggestion.kind,
        "session": suggestion.session,
        "client": suggestion.client,
        "judge": suggestion.judge,
    }
    fields: dict[str, object] = {
        "content": suggestion.text,
        "source": SOURCE,
        "category": _CATEGORIES.get(suggestion.kind, "facts"),
        "metadata": {name: value for name, value in metadata.items() if value},
    }
    if title := title_of(suggestion.text):
        fields["title"] = title
    if suggestion.kind == SUMMARY:
        fields |= {"type": SUMMARY, "tags": [SUMMARY], "importance": "low"}
        del fields["category"]
    if suggestion.replaced:
        fields |= {"relatedTo": [suggestion.replaced], "relation": "supersedes"}
    return fields


async def _was_learned(memory: Memory, note: str) -> bool:
    try:
        found = await memory.call("memory_get", {"id": note})
    except (RequestError, ToolError) as error:
        if is_for_now(error):
            raise
        return False
    return found.get("source") == SOURCE
