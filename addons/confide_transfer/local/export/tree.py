"""Exports a whole space to a folder of markdown files, and restores it from that.

    DIR/confide.json              the manifest: projects, their folders and files
    DIR/notes.jsonl               every note as a line of JSON
    DIR/sealed.jsonl              the sealed records that placeholders name (`export_secrets`)
    DIR/<project>/MEMORY.md       the documents, at their paths; the folder is the project's name,
    DIR/<project>/memory/...      percent-encoded

An export has no time and no author in it, so that two exports of the same memory are the same
bytes, and a folder in git changes only if the memory does. Files of an earlier export are removed
only if memory surely has no such document any more: a document that could not be read now, projects
that were not exported, and transcripts stay.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from confide_crypto.errors import RequestError, printable
from confide_crypto.sealing import placeholder as placeholders
from confide_memory import documents
from confide_memory.documents import RequestChannel
from confide_memory.forms import MAX_FILES
from confide_proxy.errors import BlockedError, FolderError, UnfitAnswerError, UnsealableError
from confide_proxy.sealing.context import NAME_TELLS, SessionSealing, batches
from confide_proxy.sealing.sealer import Sealed
from confide_proxy.sync.folder import Folder
from confide_transfer.errors import ExportError
from confide_transfer.local.export import export_manifest
from confide_transfer.local.export import sealed_export as export_secrets
from confide_transfer.local.export.export_manifest import MANIFEST, NOTES, Part
from confide_transfer.shared.wire import EXPORT, REFILL, Exported, RefillRequest

BATCH_FILES = 200
BATCH_BYTES = 1024 * 1024
_DEADLINE_S = 60.0


@dataclass(slots=True)
class ExportReport:
    """The result of an export or a restore. `closed_records` is the number of sealed records that this
    device cannot open, and so cannot restore.
    """

    files: int = 0
    notes: int = 0
    projects: int = 0
    secrets: int = 0
    closed_records: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    skipped_files: list[dict[str, str]] = field(default_factory=list)

    def skip(self, project: str, path: str, why: str) -> None:
        self.skipped_files.append({"project": project, "path": printable(path), "reason": printable(why)})


async def write(
    link: RequestChannel, projects: list[str], into: Path, *, is_whole: bool, with_transcripts: bool
) -> ExportReport:
    """Write the export, replacing an earlier one. With `is_whole`, also remove the folders of
    projects that are not in `projects`.

    Raise ExportError if the folder has other files or cannot be written; RequestError,
    ConnectionLost or TimeoutError if the daemon refuses or cannot be reached. Another export then
    completes it.
    """
    former = {part.name: part for part in export_manifest.begin(into)}
    others = [] if is_whole else [part for part in former.values() if part.name not in projects]
    folders = export_manifest.folders_of(
        projects, {} if is_whole else {part.name: part.folder for part in former.values()}
    )
    written = _Written(ExportReport(projects=len(projects)), with_transcripts)
    parts = list(others)
    staying = {(part.name, path) for part in others for path in part.files}
    for project in sorted(projects):
        before = former.get(project)
        earlier = set(before.files) if before is not None and before.folder == folders[project] else set()
        files, stay = await written.write_project(link, _folder(into, project, folders[project]), earlier)
        staying |= {(project, path) for path in stay}
        parts.append(Part(project, folders[project], tuple(sorted(files | stay))))
    report, lines = written.report, written.lines
    report.notes = len(lines)
    if staying:
        lines |= {place: line for place, line in _former_lines(into).items() if place in staying}
    export_manifest.put(into / NOTES, "".join(f"{lines[place]}\n" for place in sorted(lines)))
    report.secrets = await export_secrets.write(link, into, written.named_secrets, is_whole=is_whole)
    # Removes files before the manifest is replaced: after a crash in between, the old manifest
    # still lists them.
    _sweep(into, list(former.values()), parts, report)
    export_manifest.write(into, parts)
    return report


@dataclass(slots=True)
class _Written:
    """The notes and secrets that an export has written so far.

    Attributes:
        lines: of its notes, by project and path.
        named_secrets: the ids of the secrets that its texts name.
    """

    report: ExportReport
    with_transcripts: bool
    lines: dict[tuple[str, str], str] = field(default_factory=dict)
    named_secrets: set[bytes] = field(default_factory=set)

    async def write_project(self, link: RequestChannel, folder: Folder, earlier: set[str]) -> tuple[set[str], set[str]]:
        """Write a project's documents; return their paths, and those of `earlier` ones that stay
        without being written.
        """
        files: set[str] = set()
        stay = {path for path in earlier if self._passes_by(path)}
        async for document in _documents(link, folder.project):
            path = document["path"]
            if self._passes_by(path):
                continue
            try:
                _keep(folder, path, document)
            except FolderError as error:
                self.report.skip(folder.project, path, str(error))
                stay |= {path} & earlier
                continue
            files.add(path)
            self.named_secrets.update(each.secret_id for _, _, each in placeholders.find(document["text"] or ""))
            if isinstance(note := document.get("note"), dict):
                line = export_manifest.to_json({"project": folder.project, "path": path, **note})
                self.lines[folder.project, path] = line
        self.report.files += len(files)
        return files, stay

    def _passes_by(self, path: str) -> bool:
        return path.startswith("sessions/") and not self.with_transcripts


def _keep(folder: Folder, path: str, document: Exported) -> None:
    text = document["text"]
    if text is None:
        raise FolderError(path, document["problem"] or "has no text")
    before = folder.read(path)
    if before is None or before.text != text:
        folder.write(path, text, over=before)


async def fill(link: RequestChannel, sealing: SessionSealing, tree: Path, *, is_dry: bool) -> ExportReport:
    """Restore the documents of an export that the space lacks, sealed records first; existing
    documents stay unchanged.

    `ExportReport.counts` has the numbers of new, same, differing (not changed) and refused
    documents.

    Raise ExportError if it is no export or cannot be read, UnsealableError if this device has no
    keys to seal its records, and KeyFileError, KeyLockedError or KeyringError if its own key cannot
    be used; also raise as `Deposit.keep` does.
    """
    parts = export_manifest.read(tree)
    if parts is None:
        raise ExportError(f"{tree} holds no {MANIFEST}", hint="a folder that confide export has made")
    report = ExportReport(projects=len(parts))
    opened = await export_secrets.open_records(tree, sealing.keyring)
    report.secrets, report.closed_records = len(opened.secrets), opened.closed_records
    if not is_dry:
        await asyncio.to_thread(sealing.known_values.remember, opened.secrets.values())
        await sealing.deposit.keep(link, opened.secrets.values())

    def seal(text: str) -> Sealed:
        return sealing.sealer.seal(opened.rename_in(text), "imports")

    for part in parts:
        project, root = part.name, tree / part.folder
        if root.is_symlink() or not root.is_dir():
            report.skip(project, "", "has no folder in the tree")
            continue
        folder = Folder(project, root, ("**/*.md",), is_tree=True)
        for path in part.files:
            if documents.unsafe(path) is None and (why := documents.unkept(path)) is not None:
                report.skip(project, path, f"has a name that is not allowed: {why}")
        waiting = batches(
            _sealed_documents(folder, seal, report), lambda one: one.size, most=BATCH_FILES, most_size=BATCH_BYTES
        )
        while (found := await asyncio.to_thread(next, waiting, None)) is not None:
            batch = [{"path": one.path, "text": one.sealed.text} for one in found]
            if not is_dry:
                await sealing.deposit.keep(link, {secret for one in found for secret in one.sealed.secrets})
            body: RefillRequest = {"project": project, "documents": batch, "dryRun": is_dry}
            try:
                answer = await REFILL.ask(link, body, timeout_s=_DEADLINE_S)
            except RequestError as error:
                # A batch within the limit of bytes is too large as JSON only if it is a single file
                # of control characters.
                if error.code != "too_large" or len(batch) > 1:
                    raise
                answer = {"results": [{"state": "refused", "why": "is too large for one message"}]}
            results = answer["results"]
            if len(results) != len(batch):
                raise UnfitAnswerError
            for document, result in zip(batch, results, strict=True):
                state = result["state"]
                report.counts[state] = report.counts.get(state, 0) + 1
                if state == "refused":
                    report.skip(project, document["path"], result["why"] or "was refused")
            report.files += len(batch)
    return report


class _Document(NamedTuple):
    """A document to send; `size` is the size of its file."""

    path: str
    sealed: Sealed
    size: int


def _sealed_documents(folder: Folder, sealed: Callable[[str], Sealed], report: ExportReport) -> Iterator[_Document]:
    listing = folder.look()
    for path, why in listing.unread.items():
        report.skip(folder.project, path, why)
    for found in listing.found:
        if found.path.startswith("sessions/"):
            report.counts["transcript"] = report.counts.get("transcript", 0) + 1
            continue
        try:
            content = folder.read(found.path)
        except FolderError as error:
            report.skip(folder.project, found.path, str(error))
            continue
        if content is None:
            continue
        try:
            made, named = sealed(content.text), sealed(found.path)
        except (BlockedError, UnsealableError) as error:
            report.skip(folder.project, found.path, str(error))
            continue
        if named.text != found.path:
            report.skip(folder.project, found.path, NAME_TELLS)
            continue
        yield _Document(found.path, made, content.size)


async def _documents(link: RequestChannel, project: str) -> AsyncIterator[Exported]:
    after, exported = "", 0
    while True:
        answer = await EXPORT.ask(link, {"project": project, "after": after}, timeout_s=_DEADLINE_S)
        found = answer["documents"]
        exported += len(found)
        if not (found or answer["complete"]) or exported > MAX_FILES:
            raise UnfitAnswerError
        for document in found:
            if document["path"] <= after:
                raise UnfitAnswerError
            after = document["path"]
            yield document
        if answer["complete"]:
            return


def _former_lines(into: Path) -> dict[tuple[str, str], str]:
    """Return the lines of an earlier export's notes by project and path, except damaged ones."""
    found: dict[tuple[str, str], str] = {}
    try:
        if (into / NOTES).is_symlink():
            return {}
        with (into / NOTES).open(encoding="utf-8", newline="\n") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError, RecursionError):
                    said = json.loads(line)
                    found[str(said["project"]), str(said["path"])] = line.rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return {}
    return found


def _folder(into: Path, project: str, name: str) -> Folder:
    root = into / name
    try:
        if root.is_symlink():
            raise ExportError(f"{root} is a symlink", hint="an export writes into folders of its own alone")
        root.mkdir(exist_ok=True)
    except OSError as error:
        raise ExportError(f"{root} cannot be written: {error.strerror}") from None
    folder = Folder(project, root, ("**/*.md",), is_tree=True)
    folder.sweep()
    return folder


def _sweep(into: Path, former: Sequence[Part], parts: Sequence[Part], report: ExportReport) -> None:
    """Remove files of the earlier export whose documents memory does not have any more."""
    present = {(part.folder, path) for part in parts for path in part.files}
    for part in former:
        root = into / part.folder
        if root.is_symlink():
            continue
        folder = Folder(part.name, root, ("**/*.md",), is_tree=True)
        for path in part.files:
            if (part.folder, path) in present or not folder.is_watched(path):
                continue
            try:
                content = folder.read(path)
                if content is not None:
                    folder.delete(path, over=content)
            except FolderError as error:
                report.skip(part.name, path, f"in memory no more, but {error}")
