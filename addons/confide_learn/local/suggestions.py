"""What the learner keeps on this machine: how far each transcript was gone through, what waits for a person, what became a note, and what
was refused, so that it stays away.

Files below `learn/`, each written whole or not at all, with credentials as placeholders only. Only who has the seat writes how far
transcripts are. The learner and commands change suggestions, so each such change is made under a lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic
from confide_learn.local.checks import ALIKE, SUMMARY, likeness, words_of
from confide_memory.classes import DERIVED
from confide_proxy.errors import StateError
from confide_proxy.locks import lock_file, taken

KEPT_S: Final = 90 * 86_400
MOST_SESSIONS: Final = 5_000


@dataclass(frozen=True, slots=True)
class TranscriptPosition:
    """How far one transcript is.

    Attributes:
        offset: what stands before it has been judged.
        head, mark: what tells the file, and that it was not rewritten (`sync.transcripts.files`).
        exchanges: how many were judged.
        note: the id of the note of the session, once there is one.
        tainted: the agent has read what strangers wrote, or may have; it stays so to the session's end.
        at: when this was last changed, in seconds since 1970.
    """

    offset: int = 0
    head: str = ""
    mark: str = ""
    exchanges: int = 0
    note: str = ""
    tainted: bool = False
    at: int = 0


class LearnerProgress:
    """All of them, by the paths of the transcripts. Methods touch the disk briefly."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "progress.json"
        self._known: dict[str, TranscriptPosition] = {}
        try:
            table = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return  # there is none yet, or it is damaged: what was learned is known by its text
        if isinstance(table, dict):
            self._known = {path: known for path, each in table.items() if (known := _known(each)) is not None}

    def get(self, path: str) -> TranscriptPosition:
        """How far a transcript is; nothing is known of a new one."""
        return self._known.get(path, TranscriptPosition())

    def set(self, path: str, known: TranscriptPosition) -> None:
        """Remember it. Raises OSError: the disk refuses; the file is as it was."""
        self._known.pop(path, None)
        self._known[path] = known
        oldest = time.time() - KEPT_S
        kept = [(path, known) for path, known in self._known.items() if known.at >= oldest][-MOST_SESSIONS:]
        self._known = dict(kept)
        write_whole(self._file, {path: asdict(known) for path, known in kept})


def _known(table: Any) -> TranscriptPosition | None:
    if not isinstance(table, dict):
        return None
    usual = {field.name: field.default for field in fields(TranscriptPosition)}
    given = {name: value for name, value in table.items() if name in usual}
    return (
        TranscriptPosition(**given) if all(type(value) is type(usual[name]) for name, value in given.items()) else None
    )


def write_whole(file: Path, value: Any) -> None:
    """Put JSON in a file of the learner's, of mode 0600, whole or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    atomic.write(file, json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode())


OPEN: Final = ("waiting", "storing")
STATES: Final = (*OPEN, "stored", "known", "refused", "undone")
"""With `auto` it is `storing` until the daemon has it; `known`: a note said so before. What was refused or undone stays away."""
MOST_WAITING: Final = 200
"""The learner reads no further while so many wait: nobody looks at more."""
MOST_KEPT: Final = 3_000
_LOCK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One thing that was learned.

    Attributes:
        id: of its text, eight hex digits; of a session's note that of the session.
        text, quote, kind: as in `Finding`.
        project: the name that it has on the wire.
        folder: of the project on this machine.
        session, client: where it was said, and in which client.
        judge: who found it.
        at: when, in seconds since 1970.
        state: one of `STATES`.
        note: the id of the note that it became; of one that waits, the note that it would change.
        path: of that note.
        replaced: an older note that it took the place of.
        class_: of what it becomes, unless a person says yes to it: `derived`, or `untrusted` (docs/agents.md).
    """

    id: str
    text: str
    quote: str
    kind: str
    project: str
    folder: str
    session: str
    client: str
    judge: str
    at: int
    state: str = "waiting"
    note: str = ""
    path: str = ""
    replaced: str = ""
    class_: str = DERIVED

    @property
    def is_settled(self) -> bool:
        """Whether it has become what it will be."""
        return self.state not in OPEN


def id_of(project: str, text: str) -> str:
    """The id of what says this in a project, whatever its case and marks."""
    return hashlib.blake2b(f"{project}\0{' '.join(words_of(text))}".encode(), digest_size=4).hexdigest()


class Suggestions:
    """All of them. Methods touch the disk briefly, and raise StateError where it refuses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "suggestions.json"

    def all(self) -> list[Suggestion]:
        """As they are now, the oldest first."""
        try:
            table = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateError(self._file, error) from error
        except (ValueError, RecursionError):
            self._set_aside()
            return []
        rows = table if isinstance(table, list) else []
        return [found for row in rows if (found := _suggestion(row)) is not None]

    def waiting(self) -> list[Suggestion]:
        """Those that nobody has decided about."""
        return [each for each in self.all() if each.state == "waiting"]

    def find(self, identity: str) -> list[Suggestion]:
        """Those whose id begins so."""
        return [each for each in self.all() if identity and each.id.startswith(identity)]

    def add(self, suggestion: Suggestion) -> bool:
        """Whether it is new, and kept. One that is alike and still waits is brought up to date; one that is alike and is a note already is
        what this one would replace; what was refused stays away."""
        with self._changing() as every:
            for at, other in enumerate(every):
                if other.project != suggestion.project or not _is_same(other, suggestion):
                    continue
                if (
                    suggestion.kind == SUMMARY
                    and other.state not in ("refused", "undone")
                    and other.text != suggestion.text
                ):
                    every[at] = replace(suggestion, note=other.note, path=other.path)  # the session went on
                    return True
                if other.state == "stored" and other.id != suggestion.id:
                    suggestion = replace(suggestion, replaced=other.note)
                    continue
                if not other.is_settled and other.text != suggestion.text:
                    every[at] = replace(suggestion, id=other.id)
                return False
            every.append(suggestion)
            return True

    def put(self, suggestion: Suggestion) -> None:
        """Write one as it is now, in the place of what has its id."""
        with self._changing() as every:
            for at, other in enumerate(every):
                if other.id == suggestion.id and other.project == suggestion.project:
                    every[at] = suggestion

    @contextmanager
    def _changing(self) -> Iterator[list[Suggestion]]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = lock_file(self._folder / "suggestions.lock")
            try:
                if not taken(fd, wait_s=_LOCK_S):
                    raise OSError(None, "another process holds it for too long")
                every = self.all()
                before = list(every)
                yield every
                if every != before:
                    write_whole(self._file, [asdict(each) for each in _kept(every)])
            finally:
                os.close(fd)
        except OSError as error:
            raise StateError(self._folder, error) from error

    def _set_aside(self) -> None:
        try:
            self._file.replace(self._file.with_suffix(".damaged"))
        except OSError as error:
            raise StateError(self._file, error) from error


def _is_same(one: Suggestion, other: Suggestion) -> bool:
    if one.id == other.id:
        return True
    if SUMMARY in (one.kind, other.kind):
        return False
    return likeness(one.text, other.text) >= ALIKE


def _kept(every: list[Suggestion]) -> list[Suggestion]:
    """All that wait, and of the others the newest."""
    settled = [each for each in every if each.is_settled]
    gone = {id(each) for each in settled[: max(0, len(every) - MOST_KEPT)]}
    return [each for each in every if id(each) not in gone]


def _suggestion(row: Any) -> Suggestion | None:
    if not isinstance(row, dict):
        return None
    names = {field.name for field in fields(Suggestion)}
    given = {name: value for name, value in row.items() if name in names}
    is_sound = all(isinstance(value, int if name == "at" else str) for name, value in given.items())
    try:
        found = Suggestion(**given) if is_sound else None
    except TypeError:
        return None
    return found if found is not None and found.state in STATES else None


def now() -> int:
    return int(time.time())
