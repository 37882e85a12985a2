"""Count how often agents on this device were shown each note, and how often they used it.

The counters are for the user, and for the order in which hooks show notes. Their file contains the
projects, paths and ids of notes, days and numbers, and no text of a note, prompt or command.

All sessions of a device write one file: each locks it, adds its own counts to the file's, and
replaces the file. So a session that is killed loses at most the counts that it had not added yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from confide_crypto import atomic, portable
from confide_memory.documents import GLOBAL_PROJECT
from confide_proxy.locks import lock_file, try_lock

FILE: Final = "usage.json"
FOLDER: Final = "hooks"
START: Final = "start"
PROMPT: Final = "prompt"
ACTION: Final = "action"
"""Before a tool call, or after one that did not fail."""
FAILURE: Final = "failure"
SEARCH: Final = "search"
"""The agent's own `memory_search`."""
EVENTS: Final = (START, PROMPT, ACTION, FAILURE, SEARCH)
SINKS_AFTER: Final = 10
"""A note that hooks have shown this often in a row, without a use, comes after all others."""
KEPT_DAYS: Final = 90
"""Days after which an unused counter is deleted."""
TOTAL_DAYS: Final = 30
"""Days for which the totals are kept."""
MOST_NOTES: Final = 2000
MOST_BYTES: Final = 2 * 1024 * 1024
MOST_WAITING: Final = 256
"""Changes that wait until the file can be written; the oldest are dropped."""
OPEN_S: Final = 12 * 3600.0
"""Time after a showing in which a mention counts as a use of it."""
MOST_OPEN: Final = 256
MOST_TEXT: Final = 64 * 1024
"""Characters of a text that are looked through for names of notes."""
LOCK_S: Final = 1.0
_MOST_NAME: Final = 1024
_DAY_S: Final = 86_400.0
_ID: Final = "mem_"
_LINES: Final = re.compile(r":\d+(?:-\d+)?$")
_OWN_NAME: Final = re.compile(r".*-[0-9a-f]{4,16}")
"""The file name of a note, without `.md`, as `note_names.path_of` makes it."""


class ShownNote(NamedTuple):
    """A note, or another memory file, that an agent was shown.

    Attributes:
        path: "" if only the id is known, as in the text of a search's result.
        id: the note's short id; "" for another file.
    """

    project: str
    path: str
    id: str = ""


@dataclass(slots=True)
class NoteUsage:
    """The counters of one note.

    Attributes:
        at: time at which the note was last shown or used, in seconds since 1970.
        shown: how often it was shown, by kind of event.
        read: how often an agent read it in full.
        used: how often it was shown and then used: the agent mentioned its name or read it, or the
            failure that it is about did not happen again.
        met: how often the failure that it is about happened in a session that had been shown the
            note before.
        again: how often that failure happened a second time in the same session.
        unused: how often in a row hooks have shown it without a use.
        open: the kind of event at which it was last shown; "" once that showing was used.
        last_used: the kind of event of the last showing that was used.
        session: digest of the session to which a hook last showed it, as `session_of` returns it.
    """

    project: str
    path: str = ""
    id: str = ""
    at: float = 0.0
    shown: dict[str, int] = field(default_factory=dict)
    read: int = 0
    used: int = 0
    met: int = 0
    again: int = 0
    unused: int = 0
    open: str = ""
    last_used: str = ""
    session: str = ""

    @property
    def showings(self) -> int:
        return sum(self.shown.values())

    @property
    def is_sunk(self) -> bool:
        return self.unused >= SINKS_AFTER

    def is_named_in(self, text: str, project: str, session: str = "") -> bool:
        """Return True if a text contains the note's id, path or name.

        The path and name only count if the text is from a session of `project`, or from the
        `session` that was shown the note.
        """
        names = [self.id] if self.id else []
        if self.path and (self.project in (project, GLOBAL_PROJECT) or (session and session == self.session)):
            names.append(self.path)
            name = self.path.rpartition("/")[2].removesuffix(".md")
            names += [name] if _OWN_NAME.fullmatch(name) else []
        return any(_has(text, name) for name in names)


@dataclass(slots=True)
class EventTotals:
    """Totals for one kind of event, on one day or several.

    Attributes:
        times: number of events at which something was shown.
        ms: milliseconds that agents waited for searches; 0 for hooks, whose times `counts` records.
    """

    times: int = 0
    notes: int = 0
    used: int = 0
    tokens: int = 0
    ms: int = 0

    def add(self, other: EventTotals) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class UsageState:
    """The content of the file of counters. Its methods that change it return True if anything
    changed.
    """

    def __init__(self) -> None:
        self.notes: dict[str, NoteUsage] = {}
        self.days: dict[str, dict[str, EventTotals]] = {}

    @classmethod
    def parse(cls, data: bytes) -> UsageState:
        """Parse the content of the file; invalid entries are dropped. Never raises."""
        state = cls()
        try:
            told = json.loads(data)
        except (ValueError, RecursionError):
            return state
        told = told if isinstance(told, dict) else {}
        for key, note in _items(told.get("notes")):
            if isinstance(note.get("project"), str) and key == _key(
                note["project"], str(note.get("path") or note.get("id"))
            ):
                made = _set_fields(NoteUsage(note["project"]), note)
                made.shown = {event: n for event, n in made.shown.items() if event in EVENTS and _is_count(n)}
                made.open, made.last_used = (each if each in EVENTS else "" for each in (made.open, made.last_used))
                state.notes[key] = made
        for day, events in _items(told.get("days")):
            state.days[day] = {
                event: _set_fields(EventTotals(), one) for event, one in _items(events) if event in EVENTS
            }
        return state

    def encode(self) -> bytes:
        """Return the counters as JSON for the file."""
        notes = {key: _to_json(note) for key, note in self.notes.items()}
        days = {day: {event: _to_json(one) for event, one in events.items()} for day, events in self.days.items()}
        return json.dumps({"days": days, "notes": notes}).encode()

    def show(
        self,
        event: str,
        shown: Iterable[ShownNote],
        *,
        tokens: int,
        ms: int = 0,
        now: float,
        session: str = "",
        is_covered: bool = False,
    ) -> bool:
        """Count notes that an agent was shown at a kind of event.

        `is_covered` means that the notes are about the very failure at which they are shown. Such a
        showing counts as a use, until the failure happens again.
        """
        total = self._today(event, now)
        total.times += 1
        total.tokens += tokens
        total.ms += ms
        for each in dict.fromkeys(shown):
            note = self._note(each)
            note.at = now
            note.shown[event] = note.shown.get(event, 0) + 1
            total.notes += 1
            note.open = event
            if event != SEARCH:
                note.unused += 1
                note.session = session
            if is_covered:
                self._use(note, now)
        return True

    def read(self, project: str, said: Iterable[str], now: float) -> bool:
        """Count that an agent read these notes in full. `said` are the ids or paths that it gave."""
        found = [note for name in said for note in self._notes_named(project, name)]
        for note in found:
            note.read += 1
            note.at = now
            self._use(note, now)
        return bool(found)

    def use(self, project: str, said: Iterable[str], now: float) -> bool:
        """Count that an agent used these notes. `said` are the ids or paths that it gave."""
        found = [note for name in said for note in self._notes_named(project, name)]
        for note in found:
            self._use(note, now)
        return bool(found)

    def mention(self, project: str, text: str, now: float, session: str = "") -> bool:
        """Count a use of each note that was shown lately and that an agent's text now names."""
        text = text[:MOST_TEXT]
        named = [note for note in self.open_notes(now) if note.is_named_in(text, project, session)]
        for note in named:
            self._use(note, now)
        return bool(named)

    def meet(self, project: str, path: str, now: float) -> bool:
        """Count that a failure happened in a session that had been shown the note about that
        failure before. It counts as a use of the note, until the failure happens again.
        """
        note = self.notes.get(_key(project, path))
        if note is None:
            return False
        note.met += 1
        note.at = now
        self._use(note, now)
        return True

    def again(self, project: str, path: str, now: float) -> bool:
        """Count that a failure happened again in a session that had been shown the note about it.
        The use of the note that was counted before is taken back.
        """
        note = self.notes.get(_key(project, path))
        if note is None:
            return False
        note.again += 1
        note.unused += 1
        note.open = FAILURE
        note.at = now
        if note.used:
            note.used -= 1
            total = self._today(note.last_used or FAILURE, now)
            total.used = max(0, total.used - 1)
        return True

    def forget(self, project: str, said: Iterable[str]) -> bool:
        """Delete the counters of notes by id or whole path. An empty `said` deletes all counters of
        the project.
        """
        names = set(said)
        ids = [name for name in names if name.startswith(_ID)]
        gone = [
            key
            for key, note in self.notes.items()
            if (note.project == project and (not names or note.path in names))
            or any(_is_same_id(note.id, name) for name in ids)
        ]
        for key in gone:
            del self.notes[key]
        return bool(gone)

    def open_notes(self, now: float) -> list[NoteUsage]:
        """Return the notes that were shown within `OPEN_S` seconds and not used since, at most the
        last `MOST_OPEN` of them.
        """
        found = [note for note in self.notes.values() if note.open and 0 <= now - note.at < OPEN_S]
        return sorted(found, key=lambda note: note.at)[-MOST_OPEN:]

    def total(self, days: int, now: float) -> dict[str, EventTotals]:
        """Return the totals of the last `days` days, by kind of event."""
        since = _day(now - (days - 1) * _DAY_S)
        found = {event: EventTotals() for event in EVENTS}
        for day, events in self.days.items():
            for event, one in events.items() if day >= since else ():
                found[event].add(one)
        return found

    def prune(self, now: float, most: int | None = None) -> None:
        """Delete the counters of notes not shown or used for `KEPT_DAYS`, and the oldest beyond
        `most`; None means `MOST_NOTES`.
        """
        oldest = _day(now - (TOTAL_DAYS - 1) * _DAY_S)
        self.days = {day: events for day, events in self.days.items() if oldest <= day <= _day(now + _DAY_S)}
        kept = [note for note in self.notes.values() if now - note.at < KEPT_DAYS * _DAY_S]
        kept.sort(key=lambda note: note.at)
        gone = max(0, len(kept) - (MOST_NOTES if most is None else most))
        self.notes = {_key_of(note): note for note in kept[gone:]}

    def _note(self, shown: ShownNote) -> NoteUsage:
        """Return the counters of a note; make them if it has none."""
        name = shown.path or shown.id
        key = _key(shown.project, name)
        if shown.id and key not in self.notes:
            # A search's text names a note by its id alone, and a hook by both.
            by_id = next((note for note in self.notes.values() if note.id == shown.id), None)
            if by_id is not None:
                del self.notes[_key_of(by_id)]
                by_id.project, by_id.path = (shown.project, shown.path) if shown.path else (by_id.project, by_id.path)
                self.notes[_key_of(by_id)] = by_id
                return by_id
        note = self.notes.setdefault(key, NoteUsage(shown.project[:_MOST_NAME], shown.path[:_MOST_NAME]))
        note.id = shown.id[:_MOST_NAME] or note.id
        return note

    def _use(self, note: NoteUsage, now: float) -> None:
        if note.open:
            note.used += 1
            self._today(note.open, now).used += 1
            note.last_used = note.open
        note.unused = 0
        note.open = ""

    def _notes_named(self, project: str, said: str) -> list[NoteUsage]:
        """Return the note that an agent's argument names: by its id, whole or short, its path, with
        lines or without, or the path's end.
        """
        said = _LINES.sub("", said.removeprefix("./"))
        direct = self.notes.get(_key(project, said)) or self.notes.get(_key(GLOBAL_PROJECT, said))
        if direct is not None:
            return [direct]
        return [
            note
            for note in self.notes.values()
            if _is_same_id(note.id, said)
            or (note.project == project and f"/{note.path}".endswith((f"/{said}", f"/{said}.md")))
        ][:1]

    def _today(self, event: str, now: float) -> EventTotals:
        return self.days.setdefault(_day(now), {}).setdefault(event, EventTotals())


_Counters = TypeVar("_Counters", NoteUsage, EventTotals)


class UsageFile:
    """The file of counters, with the changes of this process that are not written yet. `flush` and
    `refresh` access the disk, and must not run at the same time.

    Attributes:
        state: the content as this process last read or wrote it. It is replaced, never changed.
    """

    def __init__(self, state_folder: str | os.PathLike[str]) -> None:
        folder = Path(state_folder) / FOLDER
        self._file = folder / FILE
        self._lock = folder / f"{FILE}.lock"
        self._waiting: deque[Callable[[UsageState], bool]] = deque(maxlen=MOST_WAITING)
        self._stamp = (0, 0)
        self.state = UsageState()

    def add(self, change: Callable[[UsageState], bool]) -> None:
        """Add a change for the next `flush` to write: a function that calls a method of
        `UsageState`.
        """
        self._waiting.append(change)

    def flush(self) -> None:
        """Write the waiting changes to the file. If it cannot be locked or written they keep
        waiting; no error is raised.
        """
        if not self._waiting:
            return
        try:
            self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = lock_file(self._lock)
            try:
                if try_lock(descriptor, wait_s=LOCK_S):
                    self._write()
            finally:
                os.close(descriptor)
        except OSError:
            return

    def refresh(self) -> UsageState:
        """Read the file if another process has written it, and return its content. Errors are
        ignored.
        """
        try:
            if self._stamp != (stamp := self._stamp_now()):
                self.state, self._stamp = self._read(), stamp
        except OSError:
            pass
        return self.state

    def _write(self) -> None:
        """Make the waiting changes; the caller has the lock. Raises OSError."""
        changes = list(self._waiting)
        self._waiting.clear()
        try:
            state = self._read()
            is_changed = False
            for change in changes:
                is_changed = change(state) or is_changed
            if is_changed:
                state.prune(time.time())
                while len(data := state.encode()) > MOST_BYTES:
                    state.prune(time.time(), most=len(state.notes) // 2)
                atomic.write(self._file, data, is_kept=False)
            self.state, self._stamp = state, self._stamp_now()
        except OSError:
            self._waiting.extendleft(reversed(changes))
            raise

    def _read(self) -> UsageState:
        try:
            descriptor = os.open(self._file, os.O_RDONLY | portable.NO_WAIT | portable.NO_LINK | portable.CLOSED)
        except FileNotFoundError:
            return UsageState()
        with open(descriptor, "rb") as file:
            return UsageState.parse(file.read(MOST_BYTES))

    def _stamp_now(self) -> tuple[int, int]:
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino


def forget(state_folder: str | os.PathLike[str], project: str, said: Iterable[str]) -> None:
    """Delete the counters of deleted notes by id or path. An empty `said` deletes all counters of
    the project. Blocks.
    """
    names = list(said)
    file = UsageFile(state_folder)
    file.add(lambda state: state.forget(project, names))
    file.flush()


def mention(state_folder: str | os.PathLike[str], session: str, text: str) -> None:
    """Count a use of each note that a session was shown and that its agent's text names. `session`
    is the client's name of the session. Blocks.
    """
    file, now = UsageFile(state_folder), time.time()
    file.add(lambda state: state.mention("", text, now, session_of(session)))
    file.flush()


def session_of(name: str) -> str:
    """Return a short hash of a client's session name, which is stored instead of the name."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def tokens_of(text: str) -> int:
    """Estimate the number of tokens of a text as a quarter of its bytes."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def _has(text: str, name: str) -> bool:
    """Return True if a text contains a name as a whole word."""
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(name) : at + len(name) + 1]
        if not (_is_part(before) or _is_part(after)):
            return True
        at = text.find(name, at + 1)
    return False


def _is_part(letter: str) -> bool:
    return letter.isalnum() or letter in ("_", "-") if letter else False


def _is_same_id(short: str, said: str) -> bool:
    """Return True if an id, whole or short, can mean the note of a short id."""
    digits = said.rpartition("_")[2]
    return bool(short) and said.startswith(_ID) and digits.startswith(short.removeprefix(_ID))


def _key(project: str, name: str) -> str:
    return f"{project[:_MOST_NAME]}\0{name[:_MOST_NAME]}"


def _key_of(note: NoteUsage) -> str:
    return _key(note.project, note.path or note.id)


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _items(value: object) -> list[tuple[str, dict[str, Any]]]:
    return [(key, one) for key, one in value.items() if isinstance(one, dict)] if isinstance(value, dict) else []


def _to_json(one: NoteUsage | EventTotals) -> dict[str, object]:
    """Return the fields that are not at their default."""
    return {each.name: value for each in fields(one) if (value := getattr(one, each.name))}


def _set_fields(made: _Counters, told: Mapping[str, Any]) -> _Counters:
    """Set the fields that have the right type."""
    for each in fields(made):
        value = told.get(each.name)
        kind = type(getattr(made, each.name))
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is kind and (kind not in (int, float) or _is_count(value)):
            setattr(made, each.name, value)
    return made


def _is_count(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 2**53  # type: ignore[operator]
