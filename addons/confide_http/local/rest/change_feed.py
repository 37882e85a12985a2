"""`GET /api/memories/sync`: changes after a position in the sequence of changes, including
deletions, page by page.

A position is opaque: the daemon's number of a change, and how often the daemon's data was restored
from an older copy, since numbers may then repeat. A time is accepted instead, as
claude-memory-mcp's clients send it. Returned times are the daemon's, so that the clock of another
device cannot make a client miss a change.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from confide_http.door.refusals import RefusalError
from confide_http.local.gateway_app import GatewayShared, identity_of
from confide_http.local.rest import shapes
from confide_http.local.rest.request_args import answer, number_of
from confide_http.local.rest.texts import texts_of
from confide_memory.documents import is_note
from confide_memory.wire.revisions import CHANGES, ChangeItem, ChangesRequest

CHANGES_S: Final = 10.0
MOST: Final = 500
USUAL: Final = 100
MOST_AT_ONCE: Final = 5000
"""Changes of one response without a limit."""
OPAQUE: Final = 1 << 31
"""A number from here on reveals nothing of the sequence (PROTOCOL.md 9.3); smaller ones are those
of an earlier daemon.
"""
_PLACE: Final = re.compile(r"(\d{1,15})\.(\d{1,9})")
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}.*")
_BEGINNING: Final = "1970-01-01T00:00:00+00:00"


class FeedPosition(NamedTuple):
    """The point up to which a client has read the changes: a change's number, or a time."""

    change: int = 0
    time: str | None = None
    restores: int | None = None


async def sync(gateway: GatewayShared, request: Request) -> Response:
    """Return the changes in a project after a position."""
    identity = identity_of(request)
    project = request.query_params.get("project", "").strip() or gateway.calls.project
    identity.require_project(project)
    place = place_of(request.query_params.get("since") or None)
    if "limit" in request.query_params:
        limit = most = number_of(request, "limit", USUAL, MOST)
    else:  # claude-memory-mcp's clients know no pages, and a second may have more changes than one has
        limit, most = MOST, MOST_AT_ONCE
    found, is_complete = await _changes(gateway, project, place, limit, most, is_limited=identity.is_limited)
    attached = gateway.exchange.link.attached
    restores = attached["restores"] if attached is not None else 0
    if place.restores not in (None, restores):
        raise RefusalError(
            410, "conflict", "the daemon was restored to an older copy since then", hint="start again, without since"
        )
    there = [{**each, "project": project} for each in found if not each["deleted"]]
    texts = await texts_of(gateway.calls, identity, there)
    memories: list[dict[str, Any]] = []
    for each in found:
        if each["id"] is None or not is_note(each["path"]):
            continue
        text = texts.get((project, each["path"]))
        if text is None and not each["deleted"]:
            continue  # deleted meanwhile: its deletion is a later change
        one = {"id": each["id"], "path": each["path"], "project": project, "revision": each["revision"]}
        shown = shapes.memory(
            {**one, "updated": each["time"]},
            text.note if text else None,
            text.note.body.strip() if text else "",
        )
        memories.append({**shown, "deleted_at": each["time"] if each["deleted"] else None})
    last = found[-1]["change"] if found else place.change
    return answer(
        {
            "memories": memories,
            "changes": [
                {name: each[name] for name in ("change", "path", "id", "revision", "author", "time", "deleted")}
                for each in found
            ],
            "next": f"{last}.{restores}",
            "complete": is_complete,
            "server_time": found[-1]["time"] if found else place.time or _BEGINNING,
        }
    )


async def _changes(
    gateway: GatewayShared, project: str, place: FeedPosition, limit: int, most: int, *, is_limited: bool
) -> tuple[list[ChangeItem], bool]:
    """Return the changes after a position, `limit` per request and `most` in all, and True if these
    are all.

    A caller that may not access all projects (`is_limited`) restarts if it has a plain sequence
    number of an earlier daemon: answers to chosen numbers would reveal how many changes other
    projects have.
    """
    found: list[ChangeItem] = []
    after = place.change
    if is_limited and 0 < after < OPAQUE:
        first = await CHANGES.ask(gateway.calls.link, {"project": project, "after": 0, "limit": 1}, timeout_s=CHANGES_S)
        if any((each["change"] or 0) >= OPAQUE for each in first["changes"]):
            after = 0
    while True:
        asked: ChangesRequest = {"project": project, "after": after, "limit": limit}
        if place.time is not None:
            asked["since"] = place.time
        page = (await CHANGES.ask(gateway.calls.link, asked, timeout_s=CHANGES_S))["changes"]
        for each in page:
            if each["change"] is None:
                raise RefusalError(503, "unavailable", "the daemon's version does not report changes in order")
            after = each["change"]
        found += page
        if len(page) < limit or len(found) >= most:
            return found, len(page) < limit


def place_of(since: str | None) -> FeedPosition:
    """Parse the parameter `since`. Raises RefusalError if it is neither a position nor a time."""
    if not since:
        return FeedPosition()
    if (match := _PLACE.fullmatch(since)) is not None:
        return FeedPosition(int(match[1]), restores=int(match[2]))
    try:
        if not _TIME.fullmatch(since):
            raise ValueError
        # A plus in a URL is a blank.
        moment = datetime.fromisoformat(since.replace(" ", "+") if "T" in since else since)
    except ValueError:
        raise RefusalError(400, "invalid", "'since' is a time, or what 'next' said") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return FeedPosition(time=moment.isoformat())
