"""A whole space as a folder of markdown files, and back.

    DIR/confide.json              what the tree is: its projects, their folders and files
    DIR/notes.jsonl               every note as a line of JSON
    DIR/<project>/MEMORY.md       the documents, at their paths; a project's folder is its name, percent-encoded
    DIR/<project>/memory/...

Nothing in it tells when or by whom it was made, so that two exports of the same memory are the same bytes, and a tree that is kept in
git has no changes where memory has none. What an earlier export wrote is removed only where memory surely has it no more: a document
that could not be read now, projects that were not asked for and transcripts stay as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from confide_crypto.errors import RequestError
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
_MAX_FOLDER = 200
"""Bytes of a folder's name; file systems take 255."""
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


@dataclass(frozen=True, slots=True)
class _Part:
    """A project in a tree."""

    name: str
    folder: str
    files: tuple[str, ...]


def folder_name(project: str, *, is_apart: bool = False) -> str:
    """The folder of a project: its name with everything encoded that some file system would not take.

    Names that are too long end in a hash, and with `is_apart` those that some file system would not tell from another.
    """
    name = quote(project, safe=" ").replace("~", "%7E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if name.endswith("."):
        name = f"{name[:-1]}%2E"
    elif name.endswith(" "):
        name = f"{name[:-1]}%20"
    if name.lower() in (MANIFEST, NOTES):
        name = name.replace(".", "%2E")
    if is_apart or len(name) > _MAX_FOLDER:
        digest = hashlib.blake2b(project.encode(), digest_size=8).hexdigest()
        name = f"{name[: _MAX_FOLDER - len(digest) - 1]}~{digest}"
    return name


async def write(
    link: Asks, projects: list[str], into: Path, *, is_whole: bool, with_transcripts: bool, progress: Progress
) -> Report:
    """Writes the tree, in place of one that is there.

    Args:
        is_whole: these are all projects there are, so that the folders of others are removed.

    Raises:
        ExportError: the folder holds something else, or cannot be written.
        RequestError, ConnectionLost, TimeoutError: from the link; to export again finishes it.
    """
    former = {part.name: part for part in _begin(into)}
    others = [] if is_whole else [part for part in former.values() if part.name not in projects]
    folders = _folders(projects, {} if is_whole else {part.name: part.folder for part in former.values()})
    report = Report(projects=len(projects))
    parts = list(others)
    lines: dict[tuple[str, str], str] = {}
    staying = {(part.name, path) for part in others for path in part.files}
    for project in sorted(projects):
        folder = _folder(into, project, folders[project])
        before = former.get(project)
        earlier = set(before.files) if before is not None and before.folder == folders[project] else set()
        stay = set() if with_transcripts else {path for path in earlier if path.startswith("sessions/")}
        files = []
        async for document in _documents(link, project):
            path = document["path"]
            if path.startswith("sessions/") and not with_transcripts:
                continue
            try:
                _keep(folder, path, document)
            except FolderError as error:
                report.skip(project, path, str(error))
                if path in earlier:
                    stay.add(path)
                continue
            files.append(path)
            if isinstance(note := document.get("note"), dict):
                lines[project, path] = _json({"project": project, "path": path, **note})
            progress(report.files + len(files), project)
        report.files += len(files)
        staying |= {(project, path) for path in stay}
        parts.append(_Part(project, folders[project], tuple(sorted({*files, *stay}))))
    report.notes = len(lines)
    if staying:
        lines |= {place: line for place, line in _former_lines(into).items() if place in staying}
    _put(into / NOTES, "".join(f"{lines[place]}\n" for place in sorted(lines)))
    _put_manifest(into, parts)
    _sweep(into, list(former.values()), parts, report)
    return report


def _keep(folder: Folder, path: str, document: dict[str, Any]) -> None:
    text = document.get("text")
    if not isinstance(text, str):
        raise FolderError(path, str(document.get("problem", "has no text")))
    before = folder.read(path)
    if before is None or before.text != text:
        folder.write(path, text, over=before)


def _folders(projects: Sequence[str], used: dict[str, str]) -> dict[str, str]:
    """The folder of each; some disks do not tell upper from lower case, so no two differ by that alone."""
    found = {project: used[project] for project in projects if project in used}
    taken = {folder.lower() for folder in used.values()}
    for project in sorted(set(projects) - found.keys()):
        name = folder_name(project)
        found[project] = folder_name(project, is_apart=True) if name.lower() in taken else name
        taken.add(name.lower())
    return found


def is_tree(path: Path) -> bool:
    """Whether a folder is one that `write` made, be it broken or of a newer version: it is no plain folder of markdown then."""
    try:
        return _manifest(path) is not None
    except ExportError:
        return True


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
    for project, name in ((part.name, part.folder) for part in manifest):
        root = tree / name
        if root.is_symlink() or not root.is_dir():
            report.skip(project, "", "has no folder in the tree")
            continue
        folder = Folder(project, root, ("*.md",), is_tree=True)
        for batch in _batches(folder, report):
            body = {"project": project, "documents": batch, "dryRun": is_dry}
            try:
                answer = await link.request("refill", body, timeout_s=_DEADLINE_S)
            except RequestError as error:
                # A batch that is small enough on the disk is too large as JSON only where a file of control characters is alone in it.
                if error.code != "too_large" or len(batch) > 1:
                    raise
                answer = {"results": [{"state": "refused", "why": "is too large for one message"}]}
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


def _begin(into: Path) -> list[_Part]:
    """What an export that is there holds; the place is made where it is not."""
    try:
        if not into.is_dir():
            into.parent.mkdir(parents=True, exist_ok=True)
            into.mkdir(mode=0o700)
        is_empty = next(into.iterdir(), None) is None
    except OSError as error:
        raise ExportError(f"{into} cannot be written: {error.strerror}", hint="name another folder") from None
    if is_empty:
        # First of all, so that one that is cut short can be begun again.
        _put_manifest(into, [])
        return []
    found = _manifest(into)
    if found is None:
        raise ExportError(f"{into} is not empty", hint="name a new folder, or one that an earlier export is in")
    return found


def _manifest(tree: Path) -> list[_Part] | None:
    """What the tree says that it holds; None where there is no manifest."""
    place = tree / MANIFEST
    try:
        if place.is_symlink() or not place.is_file():
            return None
        if place.stat().st_size > MAX_MANIFEST_BYTES:
            raise ExportError(f"{place} is too large to be a manifest")
        data = json.loads(place.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ExportError(f"{place} is of another format", hint="update confide, which knows newer ones")
        found = [
            _Part(str(one["name"]), str(one["folder"]), tuple(str(path) for path in one.get("files", [])))
            for one in data["projects"]
        ]
    except OSError as error:
        raise ExportError(f"{place} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExportError(f"{place} is not one that confide export has written") from None
    if any(part.folder not in (folder_name(part.name), folder_name(part.name, is_apart=True)) for part in found):
        raise ExportError(f"{place} names folders that are not those of its projects")
    return found


def _put_manifest(into: Path, parts: Sequence[_Part]) -> None:
    kept = [
        {"name": part.name, "folder": part.folder, "files": list(part.files)}
        for part in sorted(parts, key=lambda part: part.name)
    ]
    _put(into / MANIFEST, _json({"format": FORMAT, "projects": kept}, indent=1) + "\n")


def _former_lines(into: Path) -> dict[tuple[str, str], str]:
    """The lines of the notes that are there, by project and path; those that are understood."""
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
    folder = Folder(project, root, ("*.md",), is_tree=True)
    folder.sweep()
    return folder


def _sweep(into: Path, former: Sequence[_Part], parts: Sequence[_Part], report: Report) -> None:
    """Removes files of the export before this one that are in memory no more."""
    present = {(part.folder, path) for part in parts for path in part.files}
    for part in former:
        root = into / part.folder
        if root.is_symlink():
            continue
        folder = Folder(part.name, root, ("*.md",), is_tree=True)
        for path in part.files:
            if (part.folder, path) in present or not folder.is_watched(path):
                continue
            try:
                content = folder.read(path)
                if content is not None:
                    folder.delete(path, over=content)
            except FolderError as error:
                report.skip(part.name, path, f"in memory no more, but {error}")


def _put(place: Path, text: str) -> None:
    part = place.with_name(f".{place.name}.part")
    try:
        # What a crash has left, or a link that somebody has put there, is not written through.
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(fd, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)
    except OSError as error:
        raise ExportError(f"{place} cannot be written: {error.strerror}", hint="is the disk full?") from None


def _json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=indent)
