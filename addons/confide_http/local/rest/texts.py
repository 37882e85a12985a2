"""Reads whole texts of notes for lists and searches, by the request that syncs files, so that
reading does not count as use of a note.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from confide_crypto.errors import ConfideError, RequestError
from confide_http.local.calls import Calls
from confide_http.local.request_identity import RequestIdentity
from confide_memory import note as notes
from confide_memory.documents import is_note
from confide_memory.note import Note
from confide_memory.wire.files import PULL

PULL_S: Final = 10.0
AT_A_TIME: Final = 8


class NewestText(NamedTuple):
    """A document's newest text, parsed as a note."""

    text: str
    note: Note


async def texts_of(
    calls: Calls, identity: RequestIdentity, places: Iterable[Mapping[str, object]]
) -> dict[tuple[str, str], NewestText]:
    """Return the newest texts of the notes at these `{"project", "path"}`, keyed by (project,
    path), in the projects that this gateway has attached.

    Notes that cannot be read are left out. Raises ConnectionLost or TimeoutError if the daemon
    cannot be reached.
    """
    slots = asyncio.Semaphore(AT_A_TIME)
    wanted = dict.fromkeys(
        (str(place["project"]), str(place["path"])) for place in places if is_note(str(place["path"]))
    )
    wanted_here = [(project, path) for project, path in wanted if identity.reaches(project)]

    async def pull(project: str, path: str) -> NewestText | None:
        async with slots:
            try:
                answer = await PULL.ask(calls.link, {"project": project, "path": path}, timeout_s=PULL_S)
            except RequestError:
                return None  # not attached, or gone meanwhile
        return NewestText(answer["text"], await asyncio.to_thread(notes.read, project, path, answer["text"]))

    found = await asyncio.gather(*(pull(*place) for place in wanted_here), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, ConfideError):
            raise each
    return {place: each for place, each in zip(wanted_here, found, strict=True) if isinstance(each, NewestText)}
