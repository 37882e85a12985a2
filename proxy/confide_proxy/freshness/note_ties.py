"""Ties of a note: the parts of the project that it is about, their state when the note was written,
and what has changed since.

The front matter field `about` names parts of the project as a person or an agent writes them:
`src/auth.py`, `src/auth.py#login`, `src/db.py:10-40`, `package.json#dependencies.next`, `git:main`.
This module writes the field `seen`, with a line for each part:

    src/auth.py#login: <hash of the part> <hash of the file> <commit> <day>

Both hashes are keyed by the space's first key (PROTOCOL.md 10.2), so the daemon, which stores the
note, cannot learn or guess any code by them.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import date
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from confide_crypto.sealing.encoding import join_parts
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory import front_matter
from confide_memory.actions.triggers import path_key, places
from confide_memory.documents import is_in_memory
from confide_memory.note import ABOUT, MAX_SEEN, MAX_SEEN_NAME, SEEN, seen_of
from confide_proxy.freshness import code_text
from confide_proxy.freshness.project_files import FileStamp, OpenedFile, UncheckedError
from confide_proxy.sync.absence.checkout import Checkout

MOST_KNOWN: Final = 16_384
MOST_SYMBOLS: Final = 4
"""Symbols of one file that a note gets ties to by itself."""
MOST_NAMED: Final = 2
"""Parts that a mark names."""
MOST_WAITING: Final = 16
"""Changed files that wait to be compared, each with its contents in memory."""
MOST_AROUND: Final = 8
"""Most lines on each side of a part that distinguish it from equal lines elsewhere in its file; if they
are not enough, the whole file counts.
"""
AT_ONCE_BYTES: Final = 16 * 1024
"""Size up to which a changed file is compared at once; a larger one in a thread of its own."""
NO_KEYS: Final = "no keys of the space"
_LATE: Final = "not in time"
_ABSENT: Final = "not here"
_NEVER_SEEN: Final = "- - - -"
"""A value of `seen` that no part has."""
_AMID: Final = "git is in the middle of a rebase or a merge"
_GIT: Final = "git:"
_LINES: Final = re.compile(r":([1-9]\d{0,6})(?:-([1-9]\d{0,6}))?$")
_SYMBOL: Final = re.compile(r"[^\s#`]{1,120}")
_BRANCH: Final = re.compile(r"(?!.*(?:\.\.|//|@\{))[\w][\w./@+-]{0,120}(?<![./])")
_WORD: Final = re.compile(r"`([A-Za-z_$][\w$.]{2,80})(?:\([^`\n]{0,80})?`")
_UNTIED: Final = re.compile(
    r"(?:^|/)(?:[^/]*[.-]lock(?:\.[a-z]+)?|changelog[^/]*|readme[^/]*|[^/]*\.min\.[a-z]+)$", re.IGNORECASE
)
"""Files that change all the time, or that say nothing about code: a note gets no tie to them unless
`about` names them.
"""


class ProjectPart(NamedTuple):
    """A part of a project that a note may be about: a file, lines or a definition in it, or a
    branch.

    Attributes:
        name: its name in the field `about`.
        path: its file, relative to the project's root; "" for a branch.
        symbol: a definition in the file, a key of JSON or TOML, or the name of a branch; "" for
            none.
        first, last: its lines, from 1; 0 if it is not given by lines.
    """

    name: str
    path: str
    symbol: str = ""
    first: int = 0
    last: int = 0


class TieState(enum.IntEnum):
    """The state of a part now, compared with the state recorded in `seen`. A higher value is worse."""

    FRESH = 0
    UNCHECKED = 1
    CHANGED = 2
    GONE = 3


class TieVerdict(NamedTuple):
    """The result of comparing the parts of the project that a note is about with the note's field
    `seen`.

    Attributes:
        state: the worst state of the parts; GONE only if no part exists any more.
        since: the day, in ISO 8601, on which the note was last confirmed.
        parts: the names of the parts that are not fresh. The reason follows the name of a part that
            could not be checked.
    """

    state: TieState
    since: str
    parts: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Return True if nothing that the note is about exists any more."""
        return self.state is TieState.GONE

    @property
    def mark(self) -> str:
        """Return the mark that a reader sees at the note; "" if nothing has changed."""
        if self.state is TieState.FRESH:
            return ""
        more = len(self.parts) - MOST_NAMED
        named = ", ".join(self.parts[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        how = {
            TieState.CHANGED: f"changed since {self.since}",
            TieState.GONE: "gone",
            TieState.UNCHECKED: "not checked",
        }
        return f"{how[self.state]}: {named}"


def part_of(name: str) -> ProjectPart | None:
    """Parse an entry of the field `about`. Return None if its syntax is unknown."""
    name = name.strip()
    if not name or len(name) > MAX_SEEN_NAME or not name.isprintable():
        return None
    if name.startswith(_GIT):
        branch = name.removeprefix(_GIT)
        return ProjectPart(name, "", symbol=branch) if _BRANCH.fullmatch(branch) else None
    written, _, symbol = name.partition("#")
    lines = None if symbol else _LINES.search(written)
    path = path_key(written[: lines.start()] if lines else written)
    if not path or (symbol and not _SYMBOL.fullmatch(symbol)):
        return None
    first = int(lines[1]) if lines else 0
    last = int(lines[2] or first) if lines else 0
    return ProjectPart(name, path, symbol, first, last) if first <= last else None


def about_entries(fields: Mapping[str, object]) -> list[str]:
    """Return the entries of a note's field `about`, from its front matter."""
    about = fields.get(ABOUT)
    items = about if isinstance(about, list) else [about]
    return [item.strip() for item in items if isinstance(item, str) and item.strip()][:MAX_SEEN]


def seen_in(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the valid entries of a note's field `seen`, by the names of the parts."""
    return seen_of(fields.get(SEEN))


class ProjectTies:
    """The parts of one checkout of a project, and their comparison with what notes recorded. The
    methods block, since they read files.
    """

    def __init__(self, root: Path, keys: Callable[[], SpaceKeys | None]) -> None:
        self._root = root
        self._keys = keys
        self._git = Checkout(root)
        self._states: dict[tuple[str, str], tuple[FileStamp, TieState]] = {}
        self._waiting: dict[tuple[str, str], Future[TieState]] = {}
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="ties")
        self._lock = threading.Lock()

    # -- making ---------------------------------------------------------------------------------------------------

    def seen_for_text(self, text: str, *, given: Iterable[str] = ()) -> dict[str, str]:
        """Return the field `seen` for a note with this text, without front matter. It covers the
        parts in `given` and those that the text names.

        Empty if this device has no keys, or if none of the parts exists.
        """
        stated = list(dict.fromkeys(given))
        return self.seen_for_parts([*stated, *(name for name in self._parts_in(text) if name not in stated)])

    def seen_for_parts(self, names: Iterable[str]) -> dict[str, str]:
        """Return the field `seen` for parts of the project in their present state. Parts that do
        not exist here are left out.
        """
        key = self._key()
        found: dict[str, str] = {}
        commit = ""
        for name in names:
            part = part_of(name)
            if key is None or part is None or len(found) == MAX_SEEN:
                continue
            hashes = self._hashes(part, key)
            if hashes:
                commit = commit or self._git.head()[:12] or "-"
                found[name] = f"{hashes} {commit} {date.today().isoformat()}"
        return found

    def _parts_in(self, text: str) -> list[str]:
        """Return the parts that a text names: a file's symbols instead of the file, if code in the
        text names some that the file defines.
        """
        found: list[str] = []
        words = list(dict.fromkeys(_WORD.findall(text)))
        for name in places(text):
            part = part_of(name)
            if part is None or is_in_memory(part.path) or _UNTIED.search(part.path):
                continue
            try:
                with OpenedFile(self._root, part.path) as file:
                    code = _text(file.read())
            except (FileNotFoundError, UncheckedError):
                continue
            if part.symbol or part.first:
                found.append(name if self._is_there(part, code) else part.path)
                continue
            symbols = [
                word
                for word in words
                if word in code and word != part.path and code_text.definitions(part.path, code, word)
            ]
            found += [f"{part.path}#{word}" for word in symbols[:MOST_SYMBOLS]] or [part.path]
        return list(dict.fromkeys(found))[:MAX_SEEN]

    @staticmethod
    def _is_there(part: ProjectPart, code: str) -> bool:
        return bool(_window(part, code) if part.first else _content(part, code))

    def _hashes(self, part: ProjectPart, key: bytes) -> str:
        """Return the two hashes of a part as it is now; "" if it is not there, or is not read."""
        if not part.path:
            commit = self._git.branch(part.symbol)
            return f"{_hash(key, part, commit.encode())} -" if commit else ""
        try:
            with OpenedFile(self._root, part.path) as file:
                data = file.read()
        except (FileNotFoundError, UncheckedError):
            return ""
        if part.first:
            window = _window_alone(part, _text(data))
            return f"{_hash(key, part, _join_code(window))}.{len(window)} {_raw(key, part, data)}" if window else ""
        content = _content(part, _text(data))
        return (
            ""
            if content is None
            else f"{_hash(key, part, content.encode('utf-8', 'surrogatepass'))} {_raw(key, part, data)}"
        )

    # -- checking -------------------------------------------------------------------------------------------------

    def verdict(self, seen: Mapping[str, str], *, until: float, about: Iterable[str] = ()) -> TieVerdict | None:
        """Compare the parts in a note's field `seen` with their present state. Return None if the
        field has no valid entry, and every part in `about` exists.

        Args:
            about: the entries of the note's field `about`. One that is not in `seen`, and names
                nothing here, is reported as unchecked.
            until: when to stop, on the clock of `time.monotonic`. Parts that take longer are
                reported as unchecked, and are known at a later call.
        """
        states: list[tuple[str, TieState, str]] = []
        days = []
        for name, value in list(seen.items())[:MAX_SEEN]:
            if (part := part_of(name)) is not None:
                state, why = self._state(part, value, until)
                states.append((name, state, why))
                days.append(value.rsplit(" ", 1)[1])
        states += [
            (name, TieState.UNCHECKED, _ABSENT) for name in about if name not in seen and self._lacks(name, until)
        ]
        if not states:
            return None
        # Least: one part may have been confirmed later than another.
        since = min(days, default="")
        if all(state is TieState.GONE for _, state, _ in states):
            return TieVerdict(TieState.GONE, since, tuple(name for name, _, _ in states))
        worst = max((min(state.value, TieState.CHANGED.value) for _, state, _ in states))
        return TieVerdict(
            TieState(worst), since, tuple(_state_label(*each) for each in states if each[1] is not TieState.FRESH)
        )

    def _lacks(self, name: str, until: float) -> bool:
        """Return True if an entry of `about` has the form of a part of the project, and is not here."""
        part = part_of(name)
        if part is None or (part.path and name not in places(name)):
            return False
        return self._state(part, _NEVER_SEEN, until)[0] is TieState.GONE

    def unchecked(self, seen: Mapping[str, str]) -> dict[str, str]:
        """Return those entries of a field `seen` whose parts cannot be checked here and now."""
        until = monotonic() + 1
        parts = ((name, value, part_of(name)) for name, value in seen.items())
        return {
            name: value
            for name, value, part in parts
            if part is not None and self._state(part, value, until)[0] is TieState.UNCHECKED
        }

    def _state(self, part: ProjectPart, value: str, until: float) -> tuple[TieState, str]:
        key = self._key()
        if key is None:
            return TieState.UNCHECKED, NO_KEYS
        own, raw = value.split(" ", 2)[:2]
        try:
            if not part.path:
                return self._state_of_branch(part, key, own)
            state = self._state_of_file(part, key, own, raw, until)
        except FileNotFoundError:
            state = TieState.GONE
        except UncheckedError as error:
            return TieState.UNCHECKED, str(error)
        # Git puts the files of other commits in place for a while, and conflicts into them.
        is_amid = state in (TieState.CHANGED, TieState.GONE) and self._git.is_amid()
        return (TieState.UNCHECKED, _AMID) if is_amid else (state, "")

    def _state_of_branch(self, part: ProjectPart, key: bytes, own: str) -> tuple[TieState, str]:
        commit = self._git.branch(part.symbol)
        if commit is None:
            return TieState.UNCHECKED, "no branches in files here"
        if not commit:
            return TieState.GONE, ""
        return (TieState.FRESH if _hash(key, part, commit.encode()) == own else TieState.CHANGED), ""

    def _state_of_file(self, part: ProjectPart, key: bytes, own: str, raw: str, until: float) -> TieState:
        with OpenedFile(self._root, part.path) as file:
            asked = (part.name, own)
            known = self._states.get(asked)
            if known is not None and known[0] == file.stamp:
                return known[1]
            if monotonic() > until:
                raise UncheckedError(_LATE)
            data = file.read()
            stamp = file.stamp
        if _raw(key, part, data) == raw:
            return self._note(asked, stamp, TieState.FRESH)
        if len(data) <= AT_ONCE_BYTES:
            return self._note(asked, stamp, _compare_part(part, key, own, data))
        return self._note(asked, stamp, self._compared_later(asked, stamp, part, key, own, data, until))

    def _compared_later(
        self,
        asked: tuple[str, str],
        stamp: FileStamp,
        part: ProjectPart,
        key: bytes,
        own: str,
        data: bytes,
        until: float,
    ) -> TieState:
        with self._lock:
            work = self._waiting.get(asked)
            if work is None and len(self._waiting) >= MOST_WAITING:
                raise UncheckedError(_LATE)
            if work is None:
                work = self._waiting[asked] = self._slow.submit(_compare_part, part, key, own, data)
                work.add_done_callback(lambda done: self._on_compared(asked, stamp, done))
        try:
            return work.result(max(0.0, until - monotonic()))
        except FutureTimeout:
            raise UncheckedError(_LATE) from None

    def _on_compared(self, asked: tuple[str, str], stamp: FileStamp, done: Future[TieState]) -> None:
        with self._lock:
            self._waiting.pop(asked, None)
        if not done.cancelled() and done.exception() is None:
            self._note(asked, stamp, done.result())

    def _note(self, asked: tuple[str, str], stamp: FileStamp, state: TieState) -> TieState:
        if stamp.is_settled:
            if len(self._states) >= MOST_KNOWN:
                self._states.clear()
            self._states[asked] = (stamp, state)
        return state

    def _key(self) -> bytes | None:
        keys = self._keys()
        return keys.tie_key() if keys is not None else None


def _compare_part(part: ProjectPart, key: bytes, own: str, data: bytes) -> TieState:
    """Return the state of a part in a file that is not as it was, byte by byte."""
    code = _text(data)
    if part.first:
        wanted, _, count = own.partition(".")
        is_found = any(_hash(key, part, window) == wanted for window in _windows(part, code, int(count or 1)))
        return TieState.FRESH if is_found else TieState.CHANGED
    content = _content(part, code)
    if content is None:
        return TieState.GONE
    return TieState.FRESH if _hash(key, part, content.encode("utf-8", "surrogatepass")) == own else TieState.CHANGED


def _content(part: ProjectPart, code: str) -> str | None:
    """Return a whole file, a definition or a value in the form for comparison; None if the file has
    no such part.
    """
    if not part.symbol:
        return code_text.whole(part.path, code)
    if code_text.family_of(part.path) in ("json", "toml"):
        try:
            return _value(code_text.data(part.path, code), part.symbol)
        except ValueError:
            return code  # broken now, so it is not as it was
    found = code_text.definitions(part.path, code, part.symbol)
    return "\x01".join(found) if found else None


def _value(data: Any, name: str) -> str | None:
    """Return the value at a path such as `dependencies.next`, whose names may have dots themselves."""
    if not name:
        return code_text.canonical(data)
    if isinstance(data, list):
        index, _, rest = name.partition(".")
        is_index = index.isdecimal() and len(index) < 9 and int(index) < len(data)
        return _value(data[int(index)], rest) if is_index else None
    if not isinstance(data, dict):
        return None
    for key, value in data.items():
        if name == key or name.startswith(f"{key}."):
            found = _value(value, name[len(key) + 1 :])
            if found is not None:
                return found
    return None


def _window(part: ProjectPart, code: str) -> list[code_text.CodeLine]:
    return [line for line in code_text.lines(part.path, code) if part.first <= line.number <= part.last]


def _window_alone(part: ProjectPart, code: str) -> list[code_text.CodeLine]:
    """Return the part's lines, with so many around them that the file has them once: a twin
    elsewhere would stand for lines that have changed.
    """
    lines = code_text.lines(part.path, code)
    own = [at for at, line in enumerate(lines) if part.first <= line.number <= part.last]
    if not own:
        return []
    first, end = own[0], own[-1] + 1
    for _ in range(MOST_AROUND):
        window = lines[first:end]
        # The first line's step is relative to the line before, outside the part.
        said = [(line.text, line.step) for line in window[1:]]
        twins = (
            at
            for at in range(len(lines) - len(window) + 1)
            if at != first
            and lines[at].text == window[0].text
            and said == [(line.text, line.step) for line in lines[at + 1 : at + len(window)]]
        )
        if next(twins, None) is None:
            return window
        first, end = max(0, first - 1), end + 1
    return lines


def _windows(part: ProjectPart, code: str, count: int) -> Iterable[bytes]:
    """Yield all runs of so many lines, those near the part's place first."""
    lines = code_text.lines(part.path, code)
    starts = range(max(0, len(lines) - count + 1))
    for at in sorted(starts, key=lambda at: abs(lines[at].number - part.first)):
        yield _join_code(lines[at : at + count])


def _join_code(lines: list[code_text.CodeLine]) -> bytes:
    said = [lines[0].text, *(f"{line.step} {line.text}" for line in lines[1:])] if lines else []
    return "\n".join(said).encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def _hash(key: bytes, part: ProjectPart, content: bytes) -> str:
    return hashlib.blake2b(
        join_parts(part.name.encode(), content), key=key, person=b"confide-part-1", digest_size=8
    ).hexdigest()


def _raw(key: bytes, part: ProjectPart, data: bytes) -> str:
    # Processors have instructions for SHA-256: with them it takes half of the time of BLAKE2b.
    hashed = hmac.new(key=key, msg=join_parts(b"confide-file-2", part.path.encode()), digestmod="sha256")
    hashed.update(data)
    return hashed.hexdigest()[:16]


def _state_label(name: str, state: TieState, why: str) -> str:
    if state is TieState.UNCHECKED:
        return f"{name} ({why})"
    return f"{name} (gone)" if state is TieState.GONE else name


def fields_of(text: str) -> dict[str, object]:
    """Return the front matter of a note that may have ties; for any other note an empty dict,
    without parsing it.
    """
    head = text[: front_matter.MAX_BYTES]
    return front_matter.parse(text).fields if f"\n{SEEN}:" in head or f"\n{ABOUT}:" in head else {}
