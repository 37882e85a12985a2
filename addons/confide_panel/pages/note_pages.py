"""Show a note or a file: its text, its fields, its links, its neighbours, its revisions and what
each of them changed.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from confide_http.door.refusals import RefusalError
from confide_memory import front_matter
from confide_memory.documents import is_in_memory, is_note
from confide_memory.wire.revisions import DOCUMENTS, DocumentItem, DocumentsRequest
from confide_panel import rendering
from confide_panel.document_links import links_of, read_picture, resolver, root_of
from confide_panel.page_context import ASK_S, Found, PageContext

PAGE_CHARS: Final = 14_000
"""Characters of a text on one page. As HTML they take twice as much, and a page has at most 60 KB.
"""
PAGE_LINES: Final = 400
LINE_CHARS: Final = 4_000
REVISIONS: Final = 12
_MOST_REVISIONS: Final = 100
_COMPARED_LINES: Final = 2_000
_DIFF_LINES: Final = 240
_DIFF_CHARS: Final = 160
_CONTEXT: Final = 3
_TRANSCRIPTS: Final = "sessions/"
_BACKLINKS: Final = 30


async def note(desk: PageContext) -> Response:
    """Show a note by its id."""
    return await _note(desk, await desk.call("memory_get", id=desk.request.path_params["id"][:160]))


async def file(desk: PageContext) -> Response:
    """Show a file of a project, from a line on."""
    project, path, first = desk.project, desk.query("path"), desk.number("from")
    read = await desk.call("memory_read", project=project, path=path, fromLine=first, lines=PAGE_LINES)
    text, shown = cut(read["content"])
    last = first + shown - 1 if text else first
    front, body = front_matter.split(text) if first == 1 else ("", text)
    is_transcript = path.startswith(_TRANSCRIPTS)
    history, near, rows = await asyncio.gather(
        desk.at_least(desk.call("memory_history", project=project, path=path, limit=REVISIONS)),
        _neighbours(desk, project, path),
        links_of(desk, project, path),
    )
    return desk.page(
        "file.html",
        here="search",
        read=read,
        near=near,
        title=near["self"]["title"] if near["self"] else "",
        links=resolver(desk, project, path, rows),
        backlinks=[row for row in rows if row.get("otherPath") == path][:_BACKLINKS],
        is_transcript=is_transcript,
        is_changeable=is_in_memory(read["path"]) and not is_note(read["path"]),
        front=front,
        body=body,
        first=first,
        last=last,
        earlier=max(1, first - shown) if first > 1 else None,
        later=last + 1 if last < read["totalLines"] else None,
        revisions=history["revisions"] if history else None,
    )


async def _note(desk: PageContext, found: Found) -> Response:
    body, shown = cut(found["content"])
    project, path = found["project"], found["path"]
    history, near, rows = await asyncio.gather(
        desk.at_least(desk.call("memory_history", id=found["id"], limit=REVISIONS)),
        _neighbours(desk, project, path),
        links_of(desk, project, path),
    )
    fields = [
        (name, found[name]) for name in ("type", "category", "entity", "status", "source", "taskId") if found.get(name)
    ]
    return desk.page(
        "note.html",
        here="search",
        note=found,
        mark=await _mark(desk, project, path),
        near=near,
        links=resolver(desk, project, path, rows),
        fields=fields,
        body=body,
        is_cut=shown < len(found["content"].splitlines()),
        stated=[each for each in found["relations"] if each["direction"] == "to"],
        others=[each for each in found["relations"] if each["direction"] == "from"],
        revisions=history["revisions"] if history else None,
    )


async def _mark(desk: PageContext, project: str, path: str) -> str:
    """Return the mark of an outdated note of the panel's project; "" for all others."""
    if project != desk.gateway.calls.project:
        return ""
    return (await asyncio.to_thread(desk.gateway.exchange.session.ties.marks_for_answer, [path])).get(path, "")


async def _neighbours(desk: PageContext, project: str, path: str) -> dict[str, DocumentItem | None]:
    """Return the list's row of a document, and those of the documents before and after it in its
    folder, by name.
    """
    near: dict[str, DocumentItem | None] = {"before": None, "self": None, "after": None}
    folder = path.rpartition("/")[0]
    body: DocumentsRequest = {"project": project, "path": folder, "around": path, "limit": 3}
    answer = None
    if not path.startswith(_TRANSCRIPTS):
        answer = await desk.at_least(DOCUMENTS.ask(desk.link, body, timeout_s=ASK_S))
    # An older daemon does not know `around`: its answer begins anywhere.
    if answer is None or answer.get("offset") is None:
        return near
    rows = answer["documents"]
    at = next((place for place, row in enumerate(rows) if row["path"] == path), None)
    if at is not None:
        near["self"] = rows[at]
        near["before"] = rows[at - 1] if at else None
        near["after"] = rows[at + 1] if at + 1 < len(rows) else None
    return near


async def picture(desk: PageContext) -> Response:
    """Send a picture that a document of this device shows. Raises RefusalError if there is no such
    picture.
    """
    root = root_of(desk, desk.project)
    found = await asyncio.to_thread(read_picture, root, desk.query("path", 1024)) if root is not None else None
    if found is None:
        raise RefusalError(404, "not_found", "there is no such picture on this device")
    data, kind = found
    headers = {**rendering.HEADERS, "Cross-Origin-Resource-Policy": "same-origin"}
    return Response(data, media_type=kind, headers=headers)


async def changes(desk: PageContext) -> Response:
    """Show what a revision changed, or the difference between two."""
    project, path, to, since = desk.project, desk.query("path"), desk.number("to"), desk.number("since", 0)
    history = await desk.call("memory_history", project=project, path=path, limit=_MOST_REVISIONS)
    known = history["revisions"]
    chosen = next((each for each in known if each["revision"] == to), None)
    if chosen is None:
        raise RefusalError(404, "not_found", f"there is no such revision among the last {_MOST_REVISIONS}")
    before = next((each for each in known if each["revision"] < to and since in (0, each["revision"])), None)
    texts = [await text_of(desk, project, path, each) for each in (before, chosen)]
    rows, is_whole = await asyncio.to_thread(difference, texts[0], texts[1])
    return desk.page(
        "changes.html",
        here="search",
        project=project,
        path=path,
        before=before,
        chosen=chosen,
        rows=rows,
        is_whole=is_whole,
        is_newest=known[0]["revision"] == to,
    )


async def text_of(desk: PageContext, project: str, path: str, revision: Found | None) -> str:
    """Return the first lines of a revision; "" for no revision or a deletion."""
    if revision is None or revision["deleted"]:
        return ""
    read = await desk.call(
        "memory_read", project=project, path=path, revision=revision["revision"], lines=_COMPARED_LINES
    )
    text: str = read["content"]
    return text


def cut(text: str) -> tuple[str, int]:
    """Return the whole lines of a text that fit on a page, and the number of these lines. A line
    that is longer than a page is cut.
    """
    kept: list[str] = []
    room = PAGE_CHARS
    for line in text.splitlines():
        shown = line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} […]"
        room -= len(shown) + 1
        if kept and room < 0:
            break
        kept.append(shown)
    return "\n".join(kept), len(kept)


def difference(before: str, after: str) -> tuple[list[tuple[str, str, str]], bool]:
    """Compare two texts. Return the rows of their differences, each with a sign (`+`, `-`, ` ` or
    `@`), a line's number and its text; and True if these are all rows.
    """
    old, new = before.splitlines(), after.splitlines()
    rows: list[tuple[str, str, str]] = []
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT):
        if rows:
            rows.append(("@", "", ""))
        for tag, old_at, old_end, new_at, new_end in group:
            if tag == "equal":
                rows += _number_lines(" ", new, new_at, new_end)
            else:
                rows += [*_number_lines("-", old, old_at, old_end), *_number_lines("+", new, new_at, new_end)]
        if len(rows) > _DIFF_LINES:
            return rows[:_DIFF_LINES], False
    return rows, max(len(old), len(new)) < _COMPARED_LINES


def _number_lines(sign: str, lines: Sequence[str], first: int, end: int) -> list[tuple[str, str, str]]:
    return [
        (sign, str(at + 1), line if len(line) <= _DIFF_CHARS else f"{line[:_DIFF_CHARS]} […]")
        for at, line in enumerate(lines[first:end], first)
    ]
