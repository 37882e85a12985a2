"""The option to keep Claude Code's own notes in a project's memory: `confide setup claude-code
--auto-memory`.

The setting makes Claude Code use another folder for its notes, so it would no longer read its
earlier ones. They are copied into the new folder when the setting is written, and back when it is
removed. One file is deleted then: the notes' index in the memory, once Claude Code's own folder has
it. Without the setting, the index would be sent as the user's own text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confide_memory.documents import MEMORY_FOLDER
from confide_proxy.clients import client_files, jsonc
from confide_proxy.clients.client_files import WriteReceipts
from confide_proxy.clients.config_entries import ConfigEntry, Member
from confide_proxy.clients.known_clients import claude_folder
from confide_proxy.clients.own_notes import KEY
from confide_proxy.clients.rules import claude_settings
from confide_proxy.errors import SetupError, SetupStorageError

FOLDER: Final = f"{MEMORY_FOLDER}/claude"
NOT_POSSIBLE: Final = "keeps no notes of its own in files: --auto-memory is for claude-code"
INDEX: Final = "MEMORY.md"
MOST_NOTES: Final = 1000
"""Claude Code reads 25 kB of an index; a folder with more files than this isn't a folder of its
notes.
"""
Hashes = dict[str, str]
"""Hashes of the texts of notes, by name."""
_SLUG_CHARS: Final = 200
"""Length at which Claude Code cuts a folder's name and appends a hash."""


def entry(project: Path, root: Path) -> ConfigEntry:
    """Return the entry for Claude Code's settings that puts its notes into the project's memory. It
    goes into the user's own settings of the project at `root`, which team mates do not share.
    """
    return _Directory(claude_settings(project, for_user=False), str(root / FOLDER))


def check_no_other() -> None:
    """Raise SetupError if the user has set one folder for Claude Code's notes of all projects. With
    the setting for a project, that folder would no longer be read there.
    """
    file = claude_settings(Path(), for_user=True)
    try:
        said = jsonc.at(jsonc.read(client_files.read(file) or ""), (KEY,))
    except jsonc.JsoncError:
        return
    if said is not None:
        raise SetupError(
            f"{file} leads Claude Code's notes of all projects elsewhere, and those would not be read here any more",
            hint=f"take {KEY} out there, or leave --auto-memory out",
        )


def own_folder(projects: Sequence[Path]) -> Path:
    """Return the folder in which Claude Code keeps its notes without the setting. `projects` are
    the possible folders of the project; the first one with notes counts, or else the first one.
    """
    below = claude_folder() / "projects"
    places = [below / name / "memory" for project in projects for name in _slugs(below, project)]
    return next((place for place in places if any(_notes(place))), places[0])


def _slugs(below: Path, project: Path) -> list[str]:
    """Return Claude Code's names for a project's folder. It counts in UTF-16, as JavaScript does."""
    units = "".join("--" if ord(character) > 0xFFFF else character for character in str(project))
    slug = re.sub(r"[^A-Za-z0-9]", "-", units)
    if len(slug) <= _SLUG_CHARS:
        return [slug]
    return sorted(each.name for each in below.glob(f"{slug[:_SLUG_CHARS]}-*")) or [slug[:_SLUG_CHARS]]


def count(folder: Path) -> int:
    """Return the number of notes in a folder of Claude Code's notes."""
    return sum(1 for _ in _notes(folder))


@dataclass(slots=True)
class Carried:
    """The result of copying Claude Code's notes.

    Attributes:
        names: names of the notes that were added or changed in the target folder.
        left: for each note that could not be read, the reason.
    """

    names: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def take_along(own: Path, root: Path, receipts: WriteReceipts) -> Carried:
    """Copy Claude Code's notes into the project's memory, and record their hashes.

    Args:
        own: the folder of Claude Code's notes.
        root: the project's folder.

    Raises SetupError or SetupStorageError if the folder in memory cannot be written.
    """
    into = root / FOLDER
    if not _is_below(into, root):
        raise SetupError(f"{into} leads out of {root}", hint="look at that link, and remove it")
    carried = _copy_notes(own, into, taken=receipts.copied_notes(into))
    receipts.note_carried(into, _hashes(own))
    return carried


def give_back(own: Path, root: Path, receipts: WriteReceipts) -> Carried:
    """Copy the notes, including those that were added since, from the project's memory back to
    Claude Code's own folder.

    Args:
        own: the folder of Claude Code's notes.
        root: the project's folder.

    Raises SetupError or SetupStorageError if that folder cannot be written.
    """
    place = root / FOLDER
    carried = _copy_notes(place, own, older=receipts.copied_notes(place))
    receipts.note_carried(place, {})
    if (own / INDEX).exists() and not (place / INDEX).is_symlink():
        (place / INDEX).unlink(missing_ok=True)
    return carried


def _copy_notes(source: Path, target: Path, *, taken: Hashes | None = None, older: Hashes | None = None) -> Carried:
    """
    Args:
        taken: texts in `source` that were copied before: what `target` has made of them since stays.
        older: texts in `target` from which those in `source` were made: they are replaced.
    """
    taken, older = taken or {}, older or {}
    carried = Carried()
    for note in _notes(source):
        name = note.relative_to(source).as_posix()
        try:
            text = client_files.read(note) or ""
        except SetupError as error:
            carried.left.append(str(error))
            continue
        place = target / name
        there = client_files.read(place)
        if there is not None and (there == text or taken.get(name) == _hash(text)):
            continue
        if there is None or older.get(name) == _hash(there):
            wanted = text
        elif name == INDEX:
            had = there.splitlines()
            wanted = "\n".join([*had, *(line for line in text.splitlines() if line not in had)]) + "\n"
        else:
            place, wanted = _free_name(place, text), text
        if wanted != there:
            _put(place, wanted)
            carried.names.append(name)
    return carried


def _is_below(folder: Path, root: Path) -> bool:
    try:
        return folder.resolve().is_relative_to(root.resolve())
    except RuntimeError:  # links in a circle, before Python 3.13
        return False


def _free_name(place: Path, text: str) -> Path:
    """Return a free name beside an existing note, or the name of a file there with this very text."""
    for number in range(2, MOST_NOTES):
        other = place.with_name(f"{place.stem}-{number}{place.suffix}")
        if not other.exists() or client_files.read(other) == text:
            return other
    raise SetupError(f"there are too many files like {place}", hint="clean up there")


def _put(place: Path, text: str) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        client_files.replace(place, text)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SetupStorageError(f"{place} cannot be written: {why}") from error


def _notes(folder: Path) -> Iterator[Path]:
    found = (each for each in folder.rglob("*.md") if each.is_file() and not each.is_symlink())
    for number, each in enumerate(found):
        if number == MOST_NOTES:
            return
        yield each


def _hashes(folder: Path) -> Hashes:
    found: Hashes = {}
    for each in _notes(folder):
        try:
            found[each.relative_to(folder).as_posix()] = _hash(client_files.read(each) or "")
        except SetupError:
            continue
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Directory:
    """The entry for the folder of notes. A folder that the user has set stays."""

    file: Path
    value: str

    def add_to(self, text: str) -> str:
        old = jsonc.at(jsonc.read(text), (KEY,))
        if old not in (None, self.value):
            raise jsonc.JsoncError(f"has another {KEY} already")
        return self._member.add_to(text)

    def remove_from(self, text: str) -> str:
        return self._member.remove_from(text) if self.is_in(text) else text

    def is_in(self, text: str) -> bool:
        return bool(jsonc.at(jsonc.read(text), (KEY,)) == self.value)

    @property
    def _member(self) -> Member:
        return Member(self.file, (KEY,), self.value, has_comments=False)
