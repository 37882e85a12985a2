"""The manifest of an export (`confide.json`), which lists the exported projects with their folders
and files. Also writes the export's other files.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from confide_crypto import atomic
from confide_transfer.errors import ExportError, ExportStorageError

MANIFEST = "confide.json"
NOTES = "notes.jsonl"
SECRETS = "sealed.jsonl"
FORMAT = 1
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
_MAX_FOLDER = 200
"""Limit of a folder's name in bytes; file systems accept 255."""
_STORAGE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Errors of the disk or the file system, not of the path."""


@dataclass(frozen=True, slots=True)
class Part:
    """A project in an export; `files` are the paths that an export has written."""

    name: str
    folder: str
    files: tuple[str, ...]


def folder_name(project: str, *, is_apart: bool = False) -> str:
    """Return the folder name of a project: its name, in which characters that a file system may
    refuse are percent-encoded.

    With `is_apart`, or if the name is too long, it ends in a hash. Set `is_apart` for a name that
    differs from another one only by case.
    """
    name = quote(project, safe=" ").replace("~", "%7E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if name.endswith("."):
        name = f"{name[:-1]}%2E"
    elif name.endswith(" "):
        name = f"{name[:-1]}%20"
    if name.lower() in (MANIFEST, NOTES, SECRETS):
        name = name.replace(".", "%2E")
    if is_apart or len(name) > _MAX_FOLDER:
        digest = hashlib.blake2b(project.encode(), digest_size=8).hexdigest()
        name = f"{name[: _MAX_FOLDER - len(digest) - 1]}~{digest}"
    return name


def folders_of(projects: Sequence[str], used: dict[str, str]) -> dict[str, str]:
    """Return the folder of each project; `used` has those of an earlier export. No two names differ
    only by case, since some file systems ignore case.
    """
    found = {project: used[project] for project in projects if project in used}
    taken = {folder.lower() for folder in used.values()}
    for project in sorted(set(projects) - found.keys()):
        name = folder_name(project)
        found[project] = folder_name(project, is_apart=True) if name.lower() in taken else name
        taken.add(name.lower())
    return found


def is_tree(path: Path) -> bool:
    """Return True if the folder contains an export, even a damaged one or one of a newer version."""
    try:
        return read(path) is not None
    except ExportError:
        return True


def begin(into: Path) -> list[Part]:
    """Create the folder if needed, and return the projects of the export that it contains. Raise
    ExportError if it contains other files or cannot be used.
    """
    try:
        if not into.is_dir():
            into.parent.mkdir(parents=True, exist_ok=True)
            into.mkdir(mode=0o700)
        is_empty = all(path.name.startswith(f".{MANIFEST}.") for path in into.iterdir())
    except OSError as error:
        raise _unwritten(into, error, "name another folder") from None
    if is_empty:
        # Write the manifest first, so that an interrupted export can be repeated.
        write(into, [])
        return []
    found = read(into)
    if found is None:
        raise ExportError(f"{into} is not empty", hint="name a new folder, or one that an earlier export is in")
    return found


def read(tree: Path) -> list[Part] | None:
    """Read the projects of an export; return None if the folder has no manifest. Raise ExportError
    if the manifest is damaged.
    """
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
            Part(str(one["name"]), str(one["folder"]), tuple(str(path) for path in one.get("files", [])))
            for one in data["projects"]
        ]
    except OSError as error:
        raise ExportError(f"{place} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        hint = "export into another folder, or name the files in this one to import them as markdown"
        raise ExportError(f"{place} is not one that confide export has written", hint=hint) from None
    if any(part.folder not in (folder_name(part.name), folder_name(part.name, is_apart=True)) for part in found):
        raise ExportError(f"{place} names folders that are not those of its projects")
    return found


def write(into: Path, parts: Sequence[Part]) -> None:
    """Write the manifest. Raise ExportError if that fails."""
    entries = [
        {"name": part.name, "folder": part.folder, "files": list(part.files)}
        for part in sorted(parts, key=lambda part: part.name)
    ]
    put(into / MANIFEST, to_json({"format": FORMAT, "projects": entries}, indent=1) + "\n")


def put(place: Path, text: str) -> None:
    """Write one file of the export by a rename, so that it is never incomplete. Raise ExportError
    if that fails.
    """
    try:
        atomic.write(place, text.encode(), mode=0o644)
    except OSError as error:
        raise _unwritten(place, error, "is the disk full?") from None


def _unwritten(place: Path, error: OSError, hint: str) -> ExportError:
    kind = ExportStorageError if error.errno in _STORAGE else ExportError
    return kind(f"{place} cannot be written: {error.strerror}", hint=hint)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON with sorted keys: equal values give equal texts."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=indent)
