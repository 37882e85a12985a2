"""The notes of one project on this device with their ties to files: the field `seen` that a call
stores in a note, and the marks at outdated notes in results.

Whether a note is outdated is decided by this device's own files alone: the note, with its field
`seen`, and the files that it is about. The daemon has no part in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from confide_memory import front_matter, note_names
from confide_memory.documents import MEMORY_FILES, MEMORY_FOLDER, NOTES, TASKS, is_memory, is_note
from confide_memory.markdown_blocks import is_sensitive
from confide_proxy.freshness.note_ties import ProjectTies, TieVerdict, about_entries, fields_of, seen_in
from confide_proxy.freshness.project_files import FileStamp, OpenedFile, UncheckedError
from confide_proxy.offline.local_notes import identity_of
from confide_proxy.sealing.sealed_calls import CONTENT, OF_FILES, STORE, UPDATE

BUDGET_S: Final = 0.15
"""Seconds that an answer waits for the verdicts on its hits; the rest is unchecked in it."""
MOST_LINES: Final = 64
"""Hits of one answer that are looked at."""
MOST_HELD: Final = 16_384
_LISTED: Final = re.compile(r"(?P<path>(?<= · )\S.*?\.md) \[(?P<project>[^\]]+)\]$")
_READ: Final = re.compile(r"(?P<path>\S.*?\.md) \[(?P<project>[^\]]+)\] (?:lines?|revision) [^\n]*")
_FOUND: Final = re.compile(
    r"(?:(?P<id>mem_\S+)|(?P<path>\S.*?\.md):\d+(?:-\d+)?)(?: \[(?P<project>[^\]]+)\])?(?: \d{4}-\d\d-\d\d)?(?: · .*)?"
)
_DIGITS: Final = re.compile(r"-([0-9a-f]{4,16})\.md$")


class _Listing(NamedTuple):
    """The notes of one folder, by the digits of their ids, its memory files and folders, and its
    state.
    """

    stamp: int
    notes: list[tuple[str, str]]
    paths: list[str]
    folders: list[str]


class _NoteFields(NamedTuple):
    seen: dict[str, str]
    about: list[str]


class _KnownTies(NamedTuple):
    stamp: FileStamp
    fields: _NoteFields


class TiedNotes:
    """The notes of one project that are tied to files. The methods block, since they read files."""

    budget_s = BUDGET_S

    def __init__(self, root: Path, project: str, ties: ProjectTies) -> None:
        """`root`: the project's folder on this device, whose parts `ties` compares."""
        self._root = root
        self._project = project
        self.ties = ties
        self._listings: dict[str, _Listing] = {}
        self._cached: dict[str, _KnownTies] = {}

    # -- storing --------------------------------------------------------------------------------------------------

    def of_call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, str] | None:
        """Return the field `seen` for the note that a tool call stores or changes; None if the call
        sets no such field.
        """
        if tool == STORE:
            content = arguments.get(CONTENT)
            is_note = not arguments.keys() <= OF_FILES
            is_own = arguments.get("project") in (None, "", self._project) and arguments.get("scope") != "global"
            if not (is_note and is_own and isinstance(content, str)) or arguments.get("sensitive"):
                return None
            return self.ties.seen_for_text(content) or None
        if tool != UPDATE or not isinstance(arguments.get("id"), str) or arguments.get("restoreRevision"):
            return None
        path = self.path_of(arguments["id"])
        content = "" if arguments.get("sensitive") else arguments.get(CONTENT)
        return None if path is None else self.again(path, content)

    def of_file(self, path: str, text: str) -> dict[str, str] | None:
        """Return the field `seen` for a note that its user has just saved as a file; None if
        nothing has to be added.

        Entries that the note already has stay as they are: an edit of the text does not confirm
        that it is still true.
        """
        fields = fields_of(text)
        names = about_entries(fields)
        if not is_note(path) and not names:
            return None
        seen = seen_in(fields)
        body = "" if seen or is_sensitive(text) else front_matter.split(text)[1]
        if not body and all(name in seen for name in names):
            return None
        made = self.ties.seen_for_text(body, given=(name for name in names if name not in seen))
        return {**seen, **made} if made else None

    def again(self, path: str, content: object = None) -> dict[str, str] | None:
        """Return the field `seen` for a note that is confirmed as true now; None if it has no ties.

        Args:
            content: the note's new text; None if the text stays.
        """
        text = self.text(path)
        if text is None:
            return None
        fields, seen = fields_of(text), self._fields_of(path).seen
        names = about_entries(fields)
        body = content if isinstance(content, str) else "" if seen else front_matter.split(text)[1]
        found = self.ties.seen_for_text(
            "" if is_sensitive(text) else body, given=names if isinstance(content, str) else [*names, *seen]
        )
        # What cannot be checked here may have changed: its entry stays, so that it is not forgotten.
        kept = self.ties.unchecked({name: value for name, value in seen.items() if name not in found})
        return {**found, **kept} if found or seen else None

    # -- reading --------------------------------------------------------------------------------------------------

    def verdict(self, path: str, *, until: float) -> TieVerdict | None:
        """Compare the parts that a note is about with its field `seen`. Return None if the note has
        no ties, and names nothing that is not here.

        Args:
            path: the path of the note's memory file.
            until: when to stop, on the clock of `time.monotonic`. Parts that take longer are
                reported as unchecked, and are known at a later call.
        """
        seen, about = self._fields_of(path)
        return self.ties.verdict(seen, until=until, about=about) if seen or about else None

    def all(self) -> Iterator[tuple[str, TieVerdict]]:
        """Yield all tied memory files of the project with the state of what they are about, without
        a deadline. Notes come first.
        """
        below = [path for folder in self._folders(f"{MEMORY_FOLDER}/") for path in self._list_folder(folder).paths]
        for path in sorted({*MEMORY_FILES, *below}, key=lambda path: (not is_note(path), path)):
            found = self.verdict(path, until=monotonic() + 60)
            if found is not None:
                yield path, found

    def mark_result(self, tool: str, result: dict[str, object]) -> dict[str, object]:
        """Return a tool's result with a mark at each note that is outdated or could not be checked;
        the same object if there is none.
        """
        content = result.get("content")
        if result.get("isError") is True or not isinstance(content, list):
            return result
        made = [self._marked_text(tool, part) for part in content]
        if all(new is old for new, old in zip(made, content, strict=True)):
            return result
        found = result.get("structuredContent")
        more = {"structuredContent": self._with_warnings(found)} if isinstance(found, dict) else {}
        return {**result, "content": made, **more}

    def _with_warnings(self, found: dict[str, object]) -> dict[str, object]:
        """Return a structured result with the marks among its warnings, if its tool has some."""
        warnings, results = found.get("warnings", []), found.get("results", [found])
        if not isinstance(warnings, list) or not isinstance(results, list) or "memories" in found or "id" in found:
            return found
        until = monotonic() + BUDGET_S
        own = (each for each in results[:MOST_LINES] if isinstance(each, dict) and each.get("project") == self._project)
        paths = dict.fromkeys(each["path"] for each in own if isinstance(each.get("path"), str))
        verdicts = {path: self.verdict(path, until=until) for path in paths if is_memory(path)}
        marks = [f"{path}: {verdict.mark}" for path, verdict in verdicts.items() if verdict and verdict.mark]
        return {**found, "warnings": [*warnings, *marks]}

    def _marked_text(self, tool: str, part: Any) -> Any:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            return part
        until = monotonic() + BUDGET_S
        lines = text.split("\n")
        changed = False
        for at in _places(tool, lines):
            verdict = self._verdict_at(tool, lines[at], until)
            if verdict is not None and verdict.mark:
                lines[at] += f" · {verdict.mark}"
                changed = True
        return {**part, "text": "\n".join(lines)} if changed else part

    def _verdict_at(self, tool: str, line: str, until: float) -> TieVerdict | None:
        match = _pattern(tool, line)
        if match is None or match["project"] not in (None, self._project):
            return None
        identity = match.groupdict().get("id")
        path = self.path_of(identity) if identity else match["path"]
        return self.verdict(path, until=until) if path and is_memory(path) else None

    def path_of(self, said: str) -> str | None:
        """Return the path of a note that is named by its full or short id, or by its path. Return
        None if it is not in this project's folder on this device, or if several notes match.
        """
        if not note_names.is_id(said):
            path = note_names.file_of(said)
            return path if is_memory(path) else None
        short = note_names.SHORT.fullmatch(said)
        digits = short[1] if short else note_names.digits_of(said)
        found = [
            path
            for folder in self._folders(NOTES, TASKS)
            for own, path in self._list_folder(folder).notes
            if (own.startswith(digits) if short else own == digits)
        ]
        return found[0] if len(found) == 1 else None

    # -- files ----------------------------------------------------------------------------------------------------

    def _folders(self, *tops: str) -> Iterator[str]:
        """Yield folders and all that are below them; links are not followed."""
        waiting = list(tops)
        while waiting:
            folder = waiting.pop(0)
            yield folder
            waiting += self._list_folder(folder).folders

    def _list_folder(self, folder: str) -> _Listing:
        """Return what is in a folder; from the last listing if no name has changed since."""
        place = self._root / folder
        try:
            stamp = place.stat().st_mtime_ns
            known = self._listings.get(folder)
            if known is not None and known.stamp == stamp:
                return known
            with os.scandir(place) as entries:
                names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError:
            return _Listing(0, [], [], [])
        paths = [path for name, is_folder in names if not is_folder and is_memory(path := folder + name)]
        notes = [(self._digits_of(path), path) for path in paths if is_note(path)]
        listing = _Listing(stamp, notes, paths, sorted(f"{folder}{name}/" for name, is_folder in names if is_folder))
        if FileStamp(0, 0, stamp, stamp).is_settled:
            self._listings[folder] = listing
        return listing

    def _digits_of(self, path: str) -> str:
        match = _DIGITS.search(path)
        return match[1] if match else note_names.digits_of(identity_of(self._project, path, self.text(path) or ""))

    def text(self, path: str) -> str | None:
        """Return the text of a memory file; None if the file is not on this device, or cannot be
        read.
        """
        try:
            with OpenedFile(self._root, path, is_memory=True) as file:
                return file.read().decode("utf-8", "replace")
        except (FileNotFoundError, UncheckedError):
            return None

    def _fields_of(self, path: str) -> _NoteFields:
        """Return what a memory file says it is about; empty if it is not on this device."""
        try:
            with OpenedFile(self._root, path, is_memory=True) as file:
                held = self._cached.get(path)
                if held is not None and held.stamp == file.stamp:
                    return held.fields
                text = file.read().decode("utf-8", "replace")
                stamp = file.stamp
        except (FileNotFoundError, UncheckedError):
            return _NoteFields({}, [])
        fields = fields_of(text)
        found = _NoteFields(seen_in(fields), about_entries(fields))
        if stamp.is_settled:
            if len(self._cached) >= MOST_HELD:
                self._cached.clear()
            self._cached[path] = _KnownTies(stamp, found)
        return found


def _places(tool: str, lines: list[str]) -> list[int]:
    """Return the lines of a result that may name a note, counted from 0."""
    if tool == "memory_read":
        return [0]
    if tool == "memory_get":
        return [1] if len(lines) > 1 else []
    after = (at for at, line in enumerate(lines) if at and not lines[at - 1] and line)
    return [at for at in after if _pattern(tool, lines[at])][:MOST_LINES]


def _pattern(tool: str, line: str) -> re.Match[str] | None:
    if tool == "memory_search":
        return _FOUND.fullmatch(line)
    if tool == "memory_list":
        return _LISTED.search(line)
    return _READ.fullmatch(line)
