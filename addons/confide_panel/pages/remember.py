"""A form for a new note, which shows the credentials to be sealed before anything is sent."""

from __future__ import annotations

import asyncio
from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from confide_http.door.refusals import RefusalError
from confide_memory.documents import GLOBAL_PROJECT
from confide_panel.markdown_html import plain
from confide_panel.page_context import PageContext

MOST_CHARS: Final = 40_000
_FIELDS: Final = ("title", "tags", "type", "project")


async def box(desk: PageContext) -> Response:
    """Show the empty form."""
    return desk.page(
        "remember.html",
        here="remember",
        given={"text": "", **dict.fromkeys(_FIELDS, "")},
        marked=None,
        projects=_places(desk),
    )


async def take(desk: PageContext) -> Response:
    """Show the credentials that would be sealed; store the text if there are none, or after a
    second confirmation.
    """
    given = {name: desk.form_text(name, 200) for name in _FIELDS} | {"text": desk.form_text("text", MOST_CHARS)}
    if not given["text"]:
        raise RefusalError(400, "invalid", "there is nothing to remember")
    sealer = desk.gateway.exchange.session.sealing.sealer
    marks = await asyncio.to_thread(sealer.marks, given["text"], "tools")
    if marks and not desk.form.get("sure"):
        marked = _mark_parts(given["text"], marks)
        kinds = [kind for _, _, kind, _ in marks]
        return desk.page(
            "remember.html", here="remember", given=given, marked=marked, kinds=kinds, projects=_places(desk),
            is_blocked=any(action == "block" for *_, action in marks),
        )  # fmt: skip
    tags = [tag.strip() for tag in given["tags"].split(",") if tag.strip()]
    is_note = bool(given["title"] or tags or given["type"])
    stored = await desk.call(
        "memory_store",
        content=given["text"],
        project=given["project"] or None,
        title=given["title"] or None,
        tags=tags or None,
        type=given["type"] or None,
    )
    message = (
        "Saved here. Confide sends it when the server is back."
        if stored["queued"]
        else f"Remembered in {stored['path']}."
    )
    if near := stored["duplicates"][:1]:
        message += f" A note with a similar text: “{near[0]['title']}”."
    if stored["queued"]:
        return desk.go("remember", message)
    if is_note and "shortId" in stored:
        return desk.go(f"note/{stored['shortId']}", message)
    return desk.go("file", message, project=stored["project"], path=stored["path"])


def _places(desk: PageContext) -> list[str]:
    return [desk.gateway.calls.project, GLOBAL_PROJECT]


def _mark_parts(text: str, marks: list[tuple[int, int, str, str]]) -> Markup:
    parts: list[Markup] = []
    end = 0
    for start, stop, kind, action in marks:
        parts.append(
            Markup('{}<mark>{}<span class="for-ears"> ({})</span></mark>').format(
                plain(text[end:start]), plain(text[start:stop]), f"{kind}, {action}"
            )
        )
        end = stop
    return Markup("").join([*parts, Markup("{}").format(plain(text[end:]))])
