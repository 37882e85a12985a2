"""A project's memory at an earlier time: list its documents, find the revision that a document had,
and restore many files at once.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, NotRequired, TypedDict

from confide_crypto.errors import EXIT_STORAGE, RequestError
from confide_crypto.transport.task_group import TaskGroup
from confide_memory.documents import local_time
from confide_memory.globs import matches
from confide_memory.wire.revisions import DOCUMENTS, RESTORE, DocumentItem, DocumentsRequest, RestoreRequest
from confide_proxy.cli.console import DEADLINE_S, Output, count_noun, note, remark, row
from confide_proxy.cli.listing import MOST, too_old
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sync.folder import Folder

_MOST_PAGES: Final = 400
"""Pages of 500 documents: more than a space takes."""
_AT_ONCE: Final = 8
_SHOWN: Final = 8


class PastMemory(NamedTuple):
    """A project's memory as it was at an earlier time.

    Attributes:
        documents: the documents that existed then. In each, `current` is True if its text is the
            same now.
        lost: how many documents were deleted after that time and have no text on the daemon any
            more.
        now: the time on the daemon's clock before the list was made, in ISO 8601.
    """

    documents: list[DocumentItem]
    lost: int
    now: str


async def memory_at(client: CommandClient, project: str, path: str, at: str) -> PastMemory:
    """Return a project's memory as it was at a time in ISO 8601.

    Args:
        path: a file, or the folder to which the list is limited; "" for all.

    Raises RequestError if the daemon is too old for it, or refuses.
    """
    found: list[DocumentItem] = []
    lost, now = 0, ""
    for _ in range(_MOST_PAGES):
        body: DocumentsRequest = {"project": project, "path": path, "at": at, "limit": MOST, "offset": len(found)}
        page = await DOCUMENTS.ask(client.connection, body, timeout_s=DEADLINE_S)
        if not page.get("at"):
            raise too_old("--at")
        found += page["documents"]
        lost, now = page.get("lost", 0), now or page.get("now") or at
        if len(page["documents"]) < MOST:
            break
    return PastMemory(found, lost, now)


async def revision_at(client: CommandClient, project: str, path: str, at: str) -> int:
    """Return the number of the revision that a document had at a time in ISO 8601.

    Raises RequestError if the document had no text then, or if the daemon no longer keeps that
    text.
    """
    past = await memory_at(client, project, path, at)
    for each in past.documents:
        if each["path"] == path:
            return each["revision"]
    problem = f"{path} in {project} had no text at {local_time(at)}"
    if past.lost:
        problem = f"the text that {path} in {project} had at {local_time(at)} is no longer kept"
    raise RequestError("not_found", problem, f"confide history {shlex.quote(path)} lists what there is")


async def restore_at(client: CommandClient, folder: Folder, names: Sequence[str], at: str, *, is_dry: bool) -> Output:
    """Restore the texts that a project's files had at a time in ISO 8601. Files that did not exist
    then stay.

    Args:
        names: files, folders and globs; empty for all files.
        is_dry: only report what would be restored.

    Raises RequestError if none of the files is known to have existed then.
    """
    project = folder.project
    if not is_dry:
        # The latest edits are sent first, so that they stay in the history.
        await client.files.compare()
    past = await memory_at(client, project, "", at)
    then = [each for each in past.documents if _is_meant(each["path"], names)]
    changed = [each for each in then if not each.get("current")]
    known = {each["path"] for each in past.documents}
    newer = [path for path in await current_paths(client, project) if path not in known and _is_meant(path, names)]
    if not then and not past.lost:
        problem = f"nothing of {project} that matches existed at {local_time(at)}"
        raise RequestError("not_found", problem, "confide history lists what there was")
    rest = {"at": at, "newer": newer, "lost": past.lost}
    if is_dry:

        def print_plan() -> None:
            for each in changed:
                row(f"{each['path']}  revision {each['revision']}  {local_time(each['time'])} by {each['author']}")
            row(f"{count_noun(len(changed), 'file')} of {project} would get the text of {local_time(at)}")
            _print_rest(newer, past.lost)

        return Output({"project": project, "documents": changed, **rest}, print_plan)
    done, failed = await restore_all(client, project, {each["path"]: each["revision"] for each in changed})
    report = await restore_output(client, folder, done, failed, [each["path"] for each in then])

    def print_text() -> None:
        if done or failed:
            assert callable(report.tell)
            report.tell()
        else:
            row(f"{count_noun(len(then), 'file')} of {project} had these texts at {local_time(at)} already")
        _print_rest(newer, past.lost)
        if done:
            remark(
                f"to undo it, the same command with --at {datetime.fromisoformat(past.now).astimezone().isoformat()}"
            )

    return Output({**report.data, **rest}, print_text, report.notes, exit_code=report.exit_code)


def _print_rest(newer: list[str], lost: int) -> None:
    if newer:
        remark(f"{count_noun(len(newer), 'newer file stays', 'newer files stay')}: {_some(newer)}")
    if lost:
        note(
            f"{count_noun(lost, 'file was', 'files were')} deleted since then, and the daemon no longer keeps their texts: "
            "memory of that time may have held more"
        )


async def current_paths(client: CommandClient, project: str) -> list[str]:
    """Return the paths of a project's present documents, sorted."""
    found: list[str] = []
    for _ in range(_MOST_PAGES):
        body: DocumentsRequest = {"project": project, "limit": MOST, "offset": len(found), "sort": "path"}
        page = await DOCUMENTS.ask(client.connection, body, timeout_s=DEADLINE_S)
        found += [each["path"] for each in page["documents"]]
        if len(page["documents"]) < MOST:
            break
    return found


def _is_meant(path: str, names: Sequence[str]) -> bool:
    return not names or any(matches(path, name) for name in names)


class Restored(TypedDict):
    """A file that was restored; the fields of `--json`."""

    path: str
    revision: int
    onDisk: NotRequired[bool]


async def restore_all(
    client: CommandClient, project: str, revisions: Mapping[str, int | None]
) -> tuple[dict[str, Restored], dict[str, str]]:
    """Restore files to earlier revisions.

    Args:
        revisions: the revision to restore, by path; None for the last text that differs from the
            present one.

    Returns the restored files, and the reasons why the others were not restored, both by path.
    """
    done: dict[str, Restored] = {}
    failed: dict[str, str] = {}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def bring(path: str, revision: int | None) -> None:
        async with slots:
            try:
                body: RestoreRequest = {"project": project, "path": path, "revision": revision}
                answer = await RESTORE.ask(client.connection, body, timeout_s=DEADLINE_S)
            except RequestError as error:
                failed[path] = str(error)
            else:
                done[path] = {"path": path, "revision": answer["revision"]}

    async with TaskGroup() as group:
        for path, revision in revisions.items():
            group.create_task(bring(path, revision))
    return done, failed


async def restore_output(
    client: CommandClient,
    folder: Folder,
    done: dict[str, Restored],
    failed: Mapping[str, str],
    unchanged: Collection[str] = (),
) -> Output:
    """Sync the folder with the daemon after files were restored there, and report the restored
    files and those that were not. `unchanged` are the files that had the wanted texts there already.
    """
    report = await client.files.compare()
    skipped = {item["path"]: item["reason"] for item in report.skipped}

    def note_disk() -> None:
        for path, each in done.items():
            each["onDisk"] = folder.is_memory(path) and path not in skipped and not folder.is_missing(path)

    await asyncio.to_thread(note_disk)
    unwritten = [path for path in dict.fromkeys((*done, *unchanged)) if path in skipped and folder.is_memory(path)]

    def print_text() -> None:
        row(f"restored {count_noun(len(done), 'file')} of {folder.project}: {_some(list(done))}")
        for path, why in failed.items():
            remark(f"not restored: {path}: {why}")
        missing = [path for path, each in done.items() if not each.get("onDisk") and path not in unwritten]
        if missing:
            files = count_noun(len(missing), "file is", "files are")
            note(f"{files} on the daemon alone: {_some(missing)}; {missing[0]}: no file of this folder")

    notes = []
    if unwritten:
        files, them = ("1 file", "it") if len(unwritten) == 1 else (f"{len(unwritten)} files", "them")
        first = unwritten[0]
        notes.append(f"{files} could not be written on this device: {_some(unwritten)}; {first}: {skipped[first]}")
        notes.append(f"hint: confide sync writes {them} once that is possible")
    failures = [{"path": path, "why": why} for path, why in failed.items()]
    data = {"project": folder.project, "restored": list(done.values()), "failed": failures}
    return Output(data, print_text, notes, exit_code=7 if failed else EXIT_STORAGE if unwritten else 0)


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
