"""Find the decisions about a project's folder that a person has to make: missing files, a project
name that another folder has, conflicts, and outdated notes. The commands `confide sync`, `confide
project allow`, `confide edit` and `confide fresh` make the same decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import printable
from confide_memory import front_matter
from confide_memory.documents import GLOBAL_PROJECT, clash_kept, clash_origins, clash_version, is_note
from confide_proxy.errors import ChangedMeanwhileError
from confide_proxy.freshness.note_ties import TieState, TieVerdict
from confide_proxy.freshness.tied_notes import TiedNotes
from confide_proxy.hooks.server.pending_decisions import DecisionPlace, Finds, PendingDecision
from confide_proxy.hooks.server.question_form import Choice, Question
from confide_proxy.offline.operations import new_meta
from confide_proxy.sync import project as projects
from confide_proxy.sync.absence.notice import Notice
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import notice_file
from confide_proxy.sync.project_names import NameOrigin, ProjectNames

KEEP: Final = "keep"
DELETE: Final = "delete"
ALLOW: Final = "allow"
APART: Final = "apart"
CONFIRM: Final = "confirm"
CORRECT: Final = "correct"
MOST_TRIED: Final = 5
"""Files in conflict that are looked at for one that a choice can settle."""
_SHOWN: Final = 300
_WHICH: Final = ("the first", "the second")
_NAMED: Final = 5
_CALL_S: Final = 20.0


async def missing_files(place: DecisionPlace) -> list[PendingDecision]:
    """Return a question for the user: restore memory files that went missing together, or delete
    them on all devices? Returns [] if there are no such files.
    """
    root = place.project.root
    notice = Notice(notice_file(place.paths.ledgers, root))
    missing = await asyncio.to_thread(notice.missing)
    if not missing:
        return []
    count = len(missing)
    named = "\n".join(f"- {printable(path)}" for path in sorted(missing)[:_NAMED])
    more = f"\n- and {count - _NAMED} more" if count > _NAMED else ""
    text = f"{_question_title(root)} {count} memory files went missing together, so no other device deleted them.\n{named}{more}"

    async def carry_out(choice: str) -> None:
        async with place.connect(place.project) as client:
            # Those that were asked about, and none that went missing while the question waited.
            client.files.meant_deletions = {place.project.name: frozenset(missing)} if choice == DELETE else {}
            await client.call("memory_sync", {}, is_long=True)
        if (await asyncio.to_thread(notice.missing)).keys() <= missing.keys():
            await asyncio.to_thread(notice.clear)

    choices = (Choice(KEEP, "Bring them back"), Choice(DELETE, "Delete them on all devices"))
    return [PendingDecision("missing files", Question(text, choices), carry_out)]


async def project_name(place: DecisionPlace) -> list[PendingDecision]:
    """Return a question for the user: may a folder use the project name that it claims, although
    another project has it? Returns [] if the folder claims no such name.
    """
    project = place.project
    if not project.claim:
        return []
    claim = printable(project.claim)
    text = f"{_question_title(project.root)} this folder calls itself {claim}, and another project of your space has that name."
    text += f" Until you decide, it is the separate project {printable(project.name)}."

    async def carry_out(choice: str) -> None:
        if choice == ALLOW:
            found = await asyncio.to_thread(projects.identify, project.root)
            await asyncio.to_thread(ProjectNames(place.paths.projects).note, found, NameOrigin.ALLOWED)

    same = Choice(ALLOW, "It is the same: share that memory from the next session on")
    choices = (same, Choice(APART, "It is another project: keep them apart"))
    return [PendingDecision("project name", Question(text, choices), carry_out)]


async def conflicts(place: DecisionPlace) -> list[PendingDecision]:
    """Return a question for the user: which of two versions in conflict to keep, for the first such
    file? Returns [] if there is none.
    """
    async with place.connect(place.project) as client, asyncio.timeout(_CALL_S):
        status = await client.call("memory_status", {})
        folders = {folder.project: folder for folder in client.files.folders}
    mine = [each for each in status["clashes"] if each["project"] in (place.project.name, GLOBAL_PROJECT)]
    for clash in mine[:MOST_TRIED]:
        found = await asyncio.to_thread(_conflict, place, folders[clash["project"]], clash["path"])
        if found is not None:
            return [found]
    return []


def _conflict(place: DecisionPlace, folder: Folder, path: str) -> PendingDecision | None:
    """Return the decision about a file; None if it has another form than two whole versions. Blocks."""
    before = folder.read(path) if folder.is_memory(path) else None
    origins = clash_origins(before.text) if before is not None else None
    if before is None or origins is None:
        return None
    shown = [f"{printable(name)}:\n{_excerpt(clash_version(before.text, name))}" for name in origins]
    text = f"{_question_title(folder.root)} two versions of {printable(path)} are in conflict.\n\n" + "\n\n".join(shown)

    async def carry_out(choice: str) -> None:
        async with place.connect(place.project) as client:
            await asyncio.to_thread(_settle, client, folder.project, path, before.hash, choice)
            await client.call("memory_sync", {}, is_long=True)

    titles = (f"Keep {which} version: {printable(name)}" for which, name in zip(_WHICH, origins, strict=True))
    choices = tuple(Choice(name, title) for name, title in zip(origins, titles, strict=True))
    return PendingDecision("conflict", Question(text, choices), carry_out, is_open_to_agents=True)


def _settle(client: Any, project: str, path: str, known: str, origin: str) -> None:
    """Write a file without its conflict. Raises ChangedMeanwhileError: it has changed since the
    person was asked; FolderError as a write. Blocks.
    """
    folder = next(each for each in client.files.folders if each.project == project)
    now = folder.read(path)
    if now is None or now.hash != known:
        raise ChangedMeanwhileError(path)
    folder.write(path, clash_kept(now.text, origin), over=now)


async def outdated_notes(place: DecisionPlace) -> list[PendingDecision]:
    """Return a question for the user: is a note still true although its code has changed or no
    longer exists? Returns [] if there is no such note.
    """
    async with place.connect(place.project) as client:
        found = await asyncio.to_thread(_most_outdated, client.ties.notes)
    if found is None:
        return []
    path, verdict, body = found
    marked = f"It is marked “{printable(verdict.mark)}”."
    text = f"{_question_title(place.project.root)} is {printable(path)} still true? {marked}\n\n{_excerpt(body)}"

    async def carry_out(choice: str) -> None:
        if choice == CORRECT:
            place.notify(f"the user says that {path} is no longer true: correct it with memory_update")
            return
        async with place.connect(place.project) as client:
            if (await asyncio.to_thread(_most_outdated, client.ties.notes, path)) != found:
                raise ChangedMeanwhileError(path)
            tool = "memory_update" if choice == CONFIRM else "memory_delete"
            await client.call(tool, {"id": path} if choice == CONFIRM else {"path": path}, more_meta=new_meta())

    choices = (
        Choice(CONFIRM, "It is still true"),
        Choice(CORRECT, "It is not: let the agent correct it"),
        Choice(DELETE, "Delete it on all devices"),
    )
    return [PendingDecision("outdated note", Question(text, choices), carry_out, is_open_to_agents=True)]


def _most_outdated(notes: TiedNotes, only: str = "") -> tuple[str, TieVerdict, str] | None:
    """Return the path, verdict and body of a note, of the most outdated one. Blocks."""
    # Notes alone: only they have a tool that confirms them.
    found = [
        (path, each)
        for path, each in notes.all()
        if each.state >= TieState.CHANGED and only in ("", path) and is_note(path)
    ]
    for path, verdict in sorted(found, key=lambda each: -each[1].state):
        text = notes.text(path)
        if text is not None:
            return path, verdict, front_matter.split(text)[1].strip()
    return None


def _excerpt(text: str) -> str:
    lines = [printable(line) for line in text[:_SHOWN].split("\n") if line.strip()]
    return "\n".join(lines) + (" …" if len(text) > _SHOWN else "")


def _question_title(root: Path) -> str:
    return f"Confide asks about {printable(root.name)}:"


FINDERS: Final[Sequence[Finds]] = (missing_files, project_name, conflicts, outdated_notes)
