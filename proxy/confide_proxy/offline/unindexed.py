"""Warnings and search results that complete the daemon's result while it lacks some of this
device's texts: files that are still being sent, files that cannot be sent, or queued calls.

Without them, "Nothing stored matches" would be wrong. The missing files are searched on this device
by keywords, and those that could not be searched are listed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.tools import search_text
from confide_memory.tools.call import CODE
from confide_memory.tools.search_text import NOTHING, WARNING
from confide_proxy.offline.behind import Behind

SEARCH: Final = "memory_search"
READ: Final = "memory_read"
MOST_NAMED: Final = 3
MOST_SEARCHED: Final = 256
"""Most files that are searched here for one result."""
_MODE: Final = "offline"


class Reason(NamedTuple):
    """The reason why this device completes a result of the daemon, for its warnings. It has the
    fields of `outage.Outage` that the local tools need.
    """

    sentence: str
    hint: str | None = None
    hints: Sequence[str] = ()


def is_nothing(result: Mapping[str, object]) -> bool:
    """Return True if a tool's result is empty, or says that the document or note does not exist."""
    meta, found = result.get("_meta"), result.get("structuredContent")
    if result.get("isError") is True:
        return isinstance(meta, dict) and meta.get(CODE) == "not_found"
    if isinstance(found, dict) and isinstance(found.get("results"), list):
        return not found["results"]
    return _without_warnings(result) == [NOTHING]


def projects_of(arguments: Any, own: str) -> frozenset[str] | None:
    """Return the projects that a tool call's arguments select; None means all projects on this
    device.
    """
    given = arguments if isinstance(arguments, dict) else {}
    asked, scope = given.get("project"), given.get("scope")
    if scope == "global":
        return frozenset({GLOBAL_PROJECT})
    if isinstance(asked, str) and asked.strip() and asked != "*":
        return frozenset({asked})
    return frozenset({own}) if scope == "project" else None


def notes(lacking: Behind, own: str, others: Collection[str] = ()) -> list[str]:
    """Return warnings about the local files that a search result does not cover.

    Args:
        lacking: the files that the daemon lacks.
        own: the session's project.
        others: further warnings, about other projects, to append.
    """
    said = [sentence(lacking, own)] if lacking.pending else []
    named = list(lacking.unsent.items())
    said += [f"{path} is not searched: it {why}" for (_, path), why in named[:MOST_NAMED]]
    if len(named) > MOST_NAMED:
        said.append(f"nor are {len(named) - MOST_NAMED} more files: confide sync names them")
    return [*said, *others]


def sentence(lacking: Behind, own: str) -> str:
    """Return a sentence that says how many files the daemon has not indexed yet. `own` is the
    session's project.
    """
    projects, count = {project for project, _ in lacking.pending}, len(lacking.pending)
    where = {frozenset({own}): "of this project", frozenset({GLOBAL_PROJECT}): "of the global memory"}
    of = where.get(frozenset(projects), "on this device")
    return f"{count} {'file' if count == 1 else 'files'} {of} {'is' if count == 1 else 'are'} not indexed yet"


def unsent_elsewhere(name: str, count: int) -> str:
    """Return a sentence that says how many files of another project may not be indexed, because no
    session here sends them.
    """
    files = "1 file" if count == 1 else f"{count} files"
    return f"{files} of the project {name} on this device may not be indexed: run confide sync there"


def add_local_hits(
    result: Mapping[str, Any], hits: Sequence[search_text.ResultHit], said: Sequence[str], *, own: str
) -> dict[str, object]:
    """Return a tool's result with search results from local files and with warnings added. `said`
    are the warnings, and `own` is the session's project.
    """
    content, found = list(result["content"]), result.get("structuredContent")
    told = [f"{WARNING}{one}" for one in said]
    if hits:
        here = {"results": hits, "searchMode": _MODE, "warnings": said}
        text = search_text.text_of(here, project=own, nothing=NOTHING)
        if is_nothing(result):
            before = [line for line in _lines(result) if line.startswith(WARNING)]
            content = [{"type": "text", "text": "\n".join([*before, text])}]
        else:
            content.append({"type": "text", "text": text})
    elif said:
        lines = _lines(result)
        # After an error message, whose first line names the error; before any other text, where all
        # warnings are.
        lines = [*lines, *told] if result.get("isError") is True else [*told, *lines]
        content = [{"type": "text", "text": "\n".join(lines)}, *content[1:]]
    made = {**result, "content": content}
    if isinstance(found, dict):
        made["structuredContent"] = _add_structured(found, hits, said)
    return made


def _add_structured(
    found: Mapping[str, object], hits: Sequence[search_text.ResultHit], said: Sequence[str]
) -> dict[str, object]:
    results, warnings = found.get("results"), found.get("warnings")
    more: dict[str, object] = {"warnings": [*warnings, *said]} if isinstance(warnings, list) else {}
    if hits and isinstance(results, list):
        more |= {"results": [*results, *hits], **({} if results else {"searchMode": _MODE})}
    return {**found, **more}


def _lines(result: Mapping[str, object]) -> list[str]:
    content = result.get("content")
    first = content[0] if isinstance(content, list) and content else {}
    text = first.get("text") if isinstance(first, dict) else None
    return text.split("\n") if isinstance(text, str) else []


def _without_warnings(result: Mapping[str, object]) -> list[str]:
    content = result.get("content")
    if not isinstance(content, list) or len(content) != 1:
        return []
    return [line for line in _lines(result) if not line.startswith(WARNING)]
