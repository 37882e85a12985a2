"""The panel's page of suggestions from sessions on this device: the user accepts, edits or refuses
them (docs/learning.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from confide_learn.local import note_delivery
from confide_learn.local.checks import MAX_CHARS, most_chars
from confide_learn.local.suggestions import OPEN, Suggestion, Suggestions
from confide_proxy.errors import InputError
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sync import project as projects
from confide_proxy.sync.project_names import resolve_project

SHOWN: Final = 25
SETTLED: Final = 15


class PageContext(Protocol):
    """The functions of the panel that this page needs. They know which browser session made the
    request.

    Attributes:
        form: the submitted fields.
    """

    gateway: Any
    form: Mapping[str, str]

    def form_text(self, name: str, most: int = ...) -> str: ...
    def page(self, template: str, **values: Any) -> Any: ...
    def go(self, page: str = ..., notice: str = ..., /, **query: Any) -> Any: ...


async def show(desk: PageContext) -> Any:
    """Show the waiting suggestions and the latest decided ones."""
    found = await asyncio.to_thread(Suggestions(desk.gateway.paths.learn).all)
    waiting = [each for each in found if each.state in OPEN]
    settled = [each for each in reversed(found) if each.is_settled]
    return desk.page(
        "learned.html",
        here="learned",
        waiting=waiting[:SHOWN],
        more=len(waiting) - len(waiting[:SHOWN]),
        settled=settled[:SETTLED],
        is_on=desk.gateway.config.learn.is_on,
        most=MAX_CHARS,
        config=str(desk.gateway.paths.config),
    )


async def accept(desk: PageContext) -> Any:
    """Store a suggestion as a note, with the text of the submitted form."""
    suggestions, found = await _find(desk)
    words = desk.form_text("text", most_chars(found.kind)) or found.text
    folder = Path(found.folder)
    claim = await asyncio.to_thread(projects.identify, folder) if folder.is_dir() else None
    if claim is None:
        raise InputError("the project's folder is not there any more", hint="refuse it, and remember the text by hand")
    gateway = desk.gateway
    project = (await resolve_project(gateway.paths, gateway.config, claim)).project
    # The suggestion's project is seldom the gateway's, so open a separate connection, as the
    # command does.
    async with CommandClient(gateway.paths, gateway.config, project) as client:
        stored = await note_delivery.store(client, replace(found, text=words), is_accepted=True)
    await asyncio.to_thread(suggestions.put, stored)
    return desk.go(
        "learned", "A note says that already." if stored.state == "known" else f"Remembered in {stored.path}."
    )


async def refuse(desk: PageContext) -> Any:
    """Refuse a suggestion, so that it is not suggested again."""
    suggestions, found = await _find(desk)
    await asyncio.to_thread(suggestions.put, replace(found, state="refused", quote=""))
    return desk.go("learned", "Refused; the same is not suggested again.")


async def _find(desk: PageContext) -> tuple[Suggestions, Suggestion]:
    suggestions = Suggestions(desk.gateway.paths.learn)
    identity, project = desk.form_text("id", 64), desk.form.get("project", "")
    found = await asyncio.to_thread(suggestions.find, identity)
    able = [each for each in found if each.id == identity and each.project == project and each.state in OPEN]
    if not able:
        raise InputError("nothing that waits is called so", hint="it may have been decided already: look again")
    return suggestions, able[0]
