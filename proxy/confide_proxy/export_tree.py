"""A whole space as a folder of markdown files, and back.

    DIR/confide.json              what the tree is: its projects, their folders and files
    DIR/notes.jsonl               every note as a line of JSON
    DIR/<project>/MEMORY.md       the documents, at their paths; a project's folder is its name, percent-encoded
    DIR/<project>/memory/...

Nothing in it tells when or by whom it was made, so that two exports of the same memory are the same bytes, and a tree that is kept in
git has no changes where memory has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from confide_crypto.texts import Asks
from confide_proxy.answers import printable
from confide_proxy.errors import ExportError, FolderError, UnfitAnswerError
from confide_proxy.folder import Folder

MANIFEST = "confide.json"
NOTES = "notes.jsonl"
FORMAT = 1
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
BATCH_FILES = 200
BATCH_BYTES = 1024 * 1024
_DEADLINE_S = 60.0
Progress = Callable[[int, str], None]


@dataclass(slots=True)
class Report:
    """What an export or its way back came to; `skipped` says which file, and why."""

    files: int = 0
    notes: int = 0
    projects: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)

    def skip(self, project: str, path: str, why: str) -> None:
        """Note a file that was left out."""
        self.skipped.append({"project": project, "path": printable(path), "reason": printable(why)})


def folder_name(project: str) -> str:
    """The folder of a project: its name with everything encoded that some file system would not take."""
    name = quote(project, safe=" ")
    return name.replace(".", "%2E") if not name.strip(". ") else name


async def write(link: Asks, projects: list[str], into: Path, *, with_transcripts: bool, progress: Progress) -> Report:
    """Writes the tree, in place of one that is there.

    Raises:
        ExportError: the folder holds something else, or cannot be written.
        RequestError, ConnectionLost, TimeoutError: from the link.
    """
    former = _begin(into)
    report = Report(projects=len(projects))
    kept: list[dict[str, Any]] = []
    lines: list[tuple[str, str, str]] = []
    for project in sorted(projects):
        folder = _folder(into, project)
        files = []
        async for document in _documents(link, project):
            path = document["path"]
            if path.startswith("sessions/") and not with_transcripts:
                continue
            text = document.get("text")
            try:
                if not isinstance(text, str):
                    raise FolderError(path, str(document.get("problem", "has no text")))
                before = folder.read(path)
                if before is None or before.text != text:
                    folder.write(path, text, over=before)
            except FolderError as error:
                report.skip(project, path, str(error))
                continue
            files.append(path)
            if isinstance(note := document.get("note"), dict):
                lines.append((project, path, _json({"project": project, "path": path, **note})))
            progress(report.files + len(files), project)
        kept.append({"name": project, "folder": folder.root.name, "files": sorted(files)})
        report.files += len(files)
    report.notes = len(lines)
    _put(into / NOTES, "".join(line + "\n" for _, _, line in sorted(lines)))
    _put(into / MANIFEST, _json({"format": FORMAT, "projects": kept}, indent=1) + "\n")
    _sweep(into, former, kept)
    return report


def is_tree(path: Path) -> bool:
    """Whether a folder is one that `write` made."""
    try:
        return _manifest(path) is not None
    except ExportError:
        return False


async def fill(link: Asks, tree: Path, *, is_dry: bool, progress: Progress) -> Report:
    """Brings a tree's documents into a space: those that are not there; what is there stays as it is.

    `Report.counts` says how many were new, same, differ (and stayed as they are there), or were refused.

    Raises:
        ExportError: it is no tree, or cannot be read.
        RequestError, ConnectionLost, TimeoutError: from the link.
    """
    manifest = _manifest(tree)
    if manifest is None:
        raise ExportError(f"{tree} holds no {MANIFEST}", hint="a folder that confide export has made")
    report = Report(projects=len(manifest))
    for project, name in manifest:
        root = tree / name
        if root.is_symlink() or not root.is_dir():
            report.skip(project, "", "has no folder in the tree")
            continue
        folder = Folder(project, root, ("*.md",), is_tree=True)
        for batch in _batches(folder, report):
            body = {"project": project, "documents": batch, "dryRun": is_dry}
            answer = await link.request("refill", body, timeout_s=_DEADLINE_S)
            results = answer.get("results")
            if not isinstance(results, list) or len(results) != len(batch):
                raise UnfitAnswerError
            for document, result in zip(batch, results, strict=True):
                state = str(result.get("state")) if isinstance(result, dict) else "refused"
                report.counts[state] = report.counts.get(state, 0) + 1
                if state == "refused":
                    report.skip(project, document["path"], str(result.get("why", "was refused")))
            report.files += len(batch)
            progress(report.files, project)
    return report


def _batches(folder: Folder, report: Report) -> Iterator[list[dict[str, str]]]:
    batch: list[dict[str, str]] = []
    size = 0
    for found in folder.walk():
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
        if batch and (size + content.size > BATCH_BYTES or len(batch) >= BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append({"path": found.path, "text": content.text})
        size += content.size
    if batch:
        yield batch


async def _documents(link: Asks, project: str) -> Any:
    after = ""
    while True:
        answer = await link.request("export", {"project": project, "after": after}, timeout_s=_DEADLINE_S)
        documents, complete = answer.get("documents"), answer.get("complete")
        if not isinstance(documents, list) or not isinstance(complete, bool):
            raise UnfitAnswerError
        for document in documents:
            if not isinstance(document, dict) or not isinstance(path := document.get("path"), str) or path <= after:
                raise UnfitAnswerError
            after = path
            yield document
        if complete:
            return
        if not documents:
            raise UnfitAnswerError


def _begin(into: Path) -> list[tuple[str, list[str]]]:
    """What an export that is there holds, by folder; the place is made where it is not."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        is_empty = next(into.iterdir(), None) is None
    except OSError as error:
        raise ExportError(f"{into} cannot be written: {error.strerror}", hint="name another folder") from None
    if is_empty:
        return []
    if _manifest(into) is None:
        raise ExportError(f"{into} is not empty", hint="name a new folder, or one that an earlier export is in")
    data = json.loads((into / MANIFEST).read_text(encoding="utf-8"))
    return [(str(one["folder"]), [str(path) for path in one.get("files", [])]) for one in data["projects"]]


def _manifest(tree: Path) -> list[tuple[str, str]] | None:
    """(project, folder) of each; None where there is no manifest."""
    place = tree / MANIFEST
    try:
        if place.is_symlink() or not place.is_file():
            return None
        if place.stat().st_size > MAX_MANIFEST_BYTES:
            raise ExportError(f"{place} is too large to be a manifest")
        data = json.loads(place.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ExportError(f"{place} is of another format", hint="update confide, which knows newer ones")
        found = [(str(one["name"]), str(one["folder"])) for one in data["projects"]]
    except OSError as error:
        raise ExportError(f"{place} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ExportError(f"{place} is not one that confide export has written") from None
    if any(folder != folder_name(name) for name, folder in found):
        raise ExportError(f"{place} names folders that are not those of its projects")
    return found


def _folder(into: Path, project: str) -> Folder:
    root = into / folder_name(project)
    try:
        if root.is_symlink():
            raise ExportError(f"{root} is a symlink", hint="an export writes into folders of its own alone")
        root.mkdir(exist_ok=True)
    except OSError as error:
        raise ExportError(f"{root} cannot be written: {error.strerror}") from None
    return Folder(project, root, ("*.md",), is_tree=True)


def _sweep(into: Path, former: list[tuple[str, list[str]]], kept: list[dict[str, Any]]) -> None:
    """Removes files of the export before this one that are in memory no more."""
    present = {(one["folder"], path) for one in kept for path in one["files"]}
    for name, files in former:
        folder = Folder(name, into / name, ("*.md",), is_tree=True)
        for path in files:
            if (name, path) not in present and folder.is_watched(path):
                content = folder.read(path)
                if content is not None:
                    folder.delete(path, over=content)


def _put(place: Path, text: str) -> None:
    part = place.with_name(f".{place.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(place)
    except OSError as error:
        raise ExportError(f"{place} cannot be written: {error.strerror}", hint="is the disk full?") from None


def _json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=indent)
