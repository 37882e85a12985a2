"""Claude Code's notes of its own, put into a project's memory where its owner wants that: `confide setup claude-code --auto-memory`.

The setting leads Claude Code to another folder, so it would no longer read what it noted before. So its notes are copied into the new
folder when the setting is written, and copied back when it is taken away. Nothing is deleted but the index in memory, once Claude Code's
own folder has it: without the setting it would be sent, as the person's word.
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
"""Claude Code reads 25 kB of an index; a folder with more files than this is no folder of its notes."""
Hashes = dict[str, str]
"""Names of notes, with the hashes of their texts."""
_SLUG_CHARS: Final = 200
"""Longer names of folders are cut there by Claude Code, which puts a hash behind them."""


def entry(project: Path, root: Path) -> ConfigEntry:
    """What goes into a person's own settings of the project in `root`, which team mates do not share."""
    return _Directory(claude_settings(project, for_user=False), str(root / FOLDER))


def check_no_other() -> None:
    """Raises SetupError: the person has led Claude Code's notes of all projects to a folder, which would not be read here any more."""
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
    """Where Claude Code keeps its notes by itself, of the first of these folders that it has any of; else where it would, of the first."""
    below = claude_folder() / "projects"
    places = [below / name / "memory" for project in projects for name in _slugs(below, project)]
    return next((place for place in places if any(_notes(place))), places[0])


def _slugs(below: Path, project: Path) -> list[str]:
    """How Claude Code calls its folder of a project. It counts in UTF-16, as JavaScript does."""
    units = "".join("--" if ord(character) > 0xFFFF else character for character in str(project))
    slug = re.sub(r"[^A-Za-z0-9]", "-", units)
    if len(slug) <= _SLUG_CHARS:
        return [slug]
    return sorted(each.name for each in below.glob(f"{slug[:_SLUG_CHARS]}-*")) or [slug[:_SLUG_CHARS]]


def count(folder: Path) -> int:
    """How many notes lie there."""
    return sum(1 for _ in _notes(folder))


@dataclass(slots=True)
class Carried:
    """What became of notes.

    Attributes:
        names: those that are in the other folder now and were not before.
        left: those that could not be read, each with the reason.
    """

    names: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def take_along(own: Path, root: Path, receipts: WriteReceipts) -> Carried:
    """Copy Claude Code's notes into the project's memory. Raises SetupError, SetupStorageError: where that folder cannot be written to."""
    into = root / FOLDER
    if not _is_below(into, root):
        raise SetupError(f"{into} leads out of {root}", hint="look at that link, and remove it")
    carried = _copied(own, into, taken=receipts.carried(into))
    receipts.note_carried(into, _hashes(own))
    return carried


def give_back(own: Path, root: Path, receipts: WriteReceipts) -> Carried:
    """Copy them back, with what came to them since. Raises SetupError, SetupStorageError: as `take_along`."""
    place = root / FOLDER
    carried = _copied(place, own, older=receipts.carried(place))
    receipts.note_carried(place, {})
    if (own / INDEX).exists() and not (place / INDEX).is_symlink():
        (place / INDEX).unlink(missing_ok=True)
    return carried


def _copied(source: Path, target: Path, *, taken: Hashes | None = None, older: Hashes | None = None) -> Carried:
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
            place, wanted = _beside(place, text), text
        if wanted != there:
            _put(place, wanted)
            carried.names.append(name)
    return carried


def _is_below(folder: Path, root: Path) -> bool:
    try:
        return folder.resolve().is_relative_to(root.resolve())
    except RuntimeError:  # links in a circle, before Python 3.13
        return False


def _beside(place: Path, text: str) -> Path:
    """A name beside one that holds another text; that of this very text, if it lies there."""
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
    """One that is another than ours is a person's, and stays."""

    file: Path
    value: str

    def added(self, text: str) -> str:
        old = jsonc.at(jsonc.read(text), (KEY,))
        if old not in (None, self.value):
            raise jsonc.JsoncError(f"has another {KEY} already")
        return self._member.added(text)

    def removed(self, text: str) -> str:
        return self._member.removed(text) if self.is_in(text) else text

    def is_in(self, text: str) -> bool:
        return bool(jsonc.at(jsonc.read(text), (KEY,)) == self.value)

    @property
    def _member(self) -> Member:
        return Member(self.file, (KEY,), self.value, has_comments=False)
