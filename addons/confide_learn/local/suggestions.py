"""The learner's files on this device: positions in transcripts, waiting suggestions, suggestions
that became notes, and refused ones, which are not suggested again.

The files below `learn/` are written atomically, and contain credentials only as placeholders. Only
the process that holds the learner's lock writes positions. The learner and the commands both change
suggestions, so each change is made under a lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic
from confide_learn.local.checks import ALIKE, SUMMARY, likeness, words_of
from confide_memory.classes import DERIVED
from confide_proxy.errors import StateError
from confide_proxy.locks import lock_file, try_lock
from confide_proxy.paths import ProxyPaths

KEPT_S: Final = 90 * 86_400
MOST_SESSIONS: Final = 5_000


@dataclass(frozen=True, slots=True)
class TranscriptPosition:
    """The position up to which a transcript was read.

    Attributes:
        offset: the offset in the file before which everything has been judged.
        head, mark: identify the file and detect that it was rewritten (`sync.transcripts.files`).
        exchanges: number of exchanges judged.
        note: the id of the session's note, once there is one.
        tainted: True if the agent has, or may have, read text of third parties; stays True until
            the session ends.
        at: time of the last change, in seconds since 1970.
    """

    offset: int = 0
    head: str = ""
    mark: str = ""
    exchanges: int = 0
    note: str = ""
    tainted: bool = False
    at: int = 0


class LearnerProgress:
    """The positions in all transcripts, by path. Methods briefly block on the disk."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "progress.json"
        self._positions: dict[str, TranscriptPosition] = {}
        try:
            table = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return  # missing or damaged: known findings are still recognized by their text
        if isinstance(table, dict):
            self._positions = {
                path: known for path, each in table.items() if (known := _parse_position(each)) is not None
            }

    def get(self, path: str) -> TranscriptPosition:
        """Return the position in a transcript; an empty one for a new transcript."""
        return self._positions.get(path, TranscriptPosition())

    def set(self, path: str, known: TranscriptPosition) -> None:
        """Store a position. Raises OSError if the disk fails; the file is then unchanged."""
        self._positions.pop(path, None)
        self._positions[path] = known
        oldest = time.time() - KEPT_S
        kept = [(path, known) for path, known in self._positions.items() if known.at >= oldest][-MOST_SESSIONS:]
        self._positions = dict(kept)
        write_whole(self._file, {path: asdict(known) for path, known in kept})


def _parse_position(table: Any) -> TranscriptPosition | None:
    if not isinstance(table, dict):
        return None
    usual = {field.name: field.default for field in fields(TranscriptPosition)}
    given = {name: value for name, value in table.items() if name in usual}
    return (
        TranscriptPosition(**given) if all(type(value) is type(usual[name]) for name, value in given.items()) else None
    )


def write_whole(file: Path, value: Any) -> None:
    """Write JSON to a file of the learner atomically, with mode 0600. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    atomic.write(file, json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode())


OPEN: Final = ("waiting", "storing")
STATES: Final = (*OPEN, "stored", "known", "refused", "undone")
"""States of a suggestion. With `auto` it is `storing` until the daemon has it; `known` means that a
note said the same already. Refused and undone ones are not suggested again.
"""
MOST_WAITING: Final = 200
"""Number of waiting suggestions at which the learner stops reading, since a user would not review
more.
"""
MOST_KEPT: Final = 3_000
_LOCK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggestion of the learner.

    Attributes:
        id: eight hex digits, derived from the text, or from the session for a session's note.
        text, quote, kind: as in `LearnedFinding`.
        project: the project's name on the wire.
        folder: the project's folder on this device.
        session, client: the session and the client in which it was said.
        judge: the judge that found it.
        at: time, in seconds since 1970.
        state: one of `STATES`.
        note: the id of the note that it became; while it waits, of the note that it would change.
        path: the path of that note.
        replaced: an older note that it replaced.
        class_: the class of its note unless the user accepts it: `derived`, or `untrusted`
            (docs/agents.md).
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
        """Return True if the suggestion needs no decision any more, since its state is not in
        `OPEN`.
        """
        return self.state not in OPEN


def id_of(project: str, text: str) -> str:
    """Derive the id of a text in a project, ignoring case and punctuation."""
    return hashlib.blake2b(f"{project}\0{' '.join(words_of(text))}".encode(), digest_size=4).hexdigest()


class Suggestions:
    """All suggestions of this device. Methods briefly block on the disk, and raise StateError if it
    fails.
    """

    def __init__(self, folder: Path, is_forgotten: Callable[[str], bool] = lambda _text: False) -> None:
        """`is_forgotten`: returns True for a text that a person had forgotten."""
        self._folder = folder
        self._file = folder / "suggestions.json"
        self._is_forgotten = is_forgotten

    def all(self) -> list[Suggestion]:
        """List all suggestions, oldest first."""
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
        """List the suggestions that wait for a decision."""
        return [each for each in self.all() if each.state == "waiting"]

    def find(self, identity: str) -> list[Suggestion]:
        """List the suggestions whose id begins with `identity`."""
        return [each for each in self.all() if identity and each.id.startswith(identity)]

    def add(self, suggestion: Suggestion) -> bool:
        """Add a suggestion. Return True if it is new, or is a newer summary of its session, which
        replaces the earlier one.

        A similar suggestion that waits is updated. A similar one that became a note will be
        replaced by this one. Refused and forgotten suggestions are not added again.
        """
        if self._is_forgotten(f"{suggestion.text}\n{suggestion.quote}"):
            return False
        with self._changing() as every:
            for at, other in enumerate(every):
                if other.project != suggestion.project or not _is_same(other, suggestion):
                    continue
                if (
                    suggestion.kind == SUMMARY
                    and other.state not in ("refused", "undone")
                    and other.text != suggestion.text
                ):
                    every[at] = replace(suggestion, note=other.note, path=other.path)  # the session continued
                    return True
                if other.state == "stored" and other.id != suggestion.id:
                    suggestion = replace(suggestion, replaced=other.note)
                    continue
                if not other.is_settled and other.text != suggestion.text:
                    every[at] = replace(suggestion, id=other.id)
                return False
            every.append(suggestion)
            return True

    def remove(self, is_meant: Callable[[Suggestion], bool]) -> int:
        """Delete the suggestions for which `is_meant` returns True; return their number."""
        with self._changing() as every:
            kept = [each for each in every if not is_meant(each)]
            removed = len(every) - len(kept)
            every[:] = kept
        return removed

    def put(self, suggestion: Suggestion) -> None:
        """Store a suggestion in place of the one with its id."""
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
                if not try_lock(fd, wait_s=_LOCK_S):
                    raise OSError(None, "another process holds it for too long")
                every = self.all()
                before = list(every)
                yield every
                if every != before:
                    write_whole(self._file, [asdict(each) for each in _newest(every)])
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


def _newest(every: list[Suggestion]) -> list[Suggestion]:
    """Return all waiting suggestions, and the newest of the others."""
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


def forget(paths: ProxyPaths, is_in: Callable[[str], bool]) -> int:
    """Delete the suggestions whose text was forgotten, for which `is_in` returns True; return their
    number. Raises StateError if the disk fails.
    """
    if not (paths.learn / "suggestions.json").exists():
        return 0
    return Suggestions(paths.learn).remove(lambda each: is_in(each.text) or is_in(each.quote))
