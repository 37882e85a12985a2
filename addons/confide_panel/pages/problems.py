"""Show what needs a person: documents with conflicts, outdated notes, and the sealed secrets of the
space by their places, never their values.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from confide_crypto.errors import ConfideError
from confide_memory.documents import conflict_lines, is_note
from confide_panel.page_context import Found, PageContext
from confide_proxy.devices import roster_client

_CONFLICTS: Final = 50
_SHOWN: Final = 10
"""Documents of which the page shows the lines in conflict."""
_LINES: Final = 40
_READ: Final = 2_000
_SECRETS: Final = 25
_PLACES: Final = 10


async def conflicts(desk: PageContext) -> Response:
    """List the documents with conflicts, with both versions of their lines."""
    status = await desk.call("memory_status")
    listed = status["clashes"][:_CONFLICTS]
    texts = await asyncio.gather(*(desk.at_least(_conflict(desk, each)) for each in listed[:_SHOWN]))
    shown = [(each, texts[at] if at < len(texts) else None) for at, each in enumerate(listed)]
    return desk.page("conflicts.html", here="health", conflicts=shown, total=len(status["clashes"]))


async def stale(desk: PageContext) -> Response:
    """List the notes of the panel's project that are no longer true of its files on this device."""
    ties = desk.gateway.exchange.session.ties
    found = await asyncio.to_thread(lambda: list(ties.notes.all()))
    # Only a note has a tool that confirms it.
    outdated = [(path, verdict.mark, is_note(path)) for path, verdict in found if verdict.mark]
    return desk.page(
        "stale.html",
        here="health",
        notes=outdated[:_CONFLICTS],
        total=len(outdated),
        checked=len(found),
        project=desk.gateway.calls.project,
    )


async def confirm(desk: PageContext) -> Response:
    """Confirm that a note is true of the files as they are now."""
    path = desk.form_text("path", 512)
    await desk.call("memory_update", id=path)
    return desk.go("stale", f"{path} is confirmed.")


async def _conflict(desk: PageContext, place: Found) -> str:
    """Return the lines of a document that are in conflict, their marks included."""
    read = await desk.call("memory_read", project=place["project"], path=place["path"], lines=_READ)
    return "\n".join(conflict_lines(read["content"])[:_LINES])


async def secrets(desk: PageContext) -> Response:
    """List the sealed secrets of the space, a page at a time, with the documents that hold their
    placeholders.
    """
    offset = int(given) if (given := desk.query("offset", 9)).isdecimal() else 0
    problem: ConfideError | None = None
    found: list[Found] = []
    try:
        found = [dict(row) async for page in roster_client.records(desk.link) for row in page]
    except ConfideError as error:
        problem = error
    found.sort(key=lambda row: str(row["at"]), reverse=True)
    shown = found[offset : offset + _SECRETS]
    places = await asyncio.gather(*(desk.at_least(_places(desk, str(row["id"]))) for row in shown))
    rows = list(zip(shown, places, strict=True))
    return desk.page(
        "secrets.html", here="health", rows=rows, total=len(found), offset=offset, most=_SECRETS, problem=problem
    )


async def _places(desk: PageContext, secret: str) -> list[Found]:
    """Return the places of a secret's placeholder: project, path, line, and the id of a note."""
    answer = await desk.call("memory_search", query=secret, project="*", maxResults=_PLACES)
    found: dict[tuple[str, str], Found] = {}
    for hit in answer["results"]:
        if secret in hit["snippet"]:
            before = hit["snippet"].partition(secret)[0]
            line = hit["startLine"] + before.count("\n")
            place = {"project": hit["project"], "path": hit["path"], "line": line, "id": hit.get("shortId", "")}
            found.setdefault((hit["project"], hit["path"]), place)
    return list(found.values())
