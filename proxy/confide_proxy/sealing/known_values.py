"""Recognize secret values that this device has sealed or opened before. They are found again
wherever they occur, in clear or encoded, without any context.

Each value is stored as a keyed hash, never in clear: BLAKE2b-128 with a key derived from the
space's first key, like the secret ids of PROTOCOL.md 10.2, in a file that all processes of this
device share. So a reader of the disk learns no more than from the placeholders in the memory files:
nothing without the space's keys, and with them only if a guess is right. The length of a value is
hidden in the same way. The file does show the number of values and their kinds.

The set only grows, so that no process sends in clear a value that another has sealed. A search does
not try every value: it looks up the hashes of the text's words, and of their parts between
punctuation.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from confide_crypto import portable
from confide_crypto.sealing import placeholder
from confide_crypto.sealing.placeholder import is_kind
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.locks import lock_file, try_lock
from confide_proxy.sealing.detection import decoding
from confide_proxy.sealing.detection.finding import SecretFinding

log = logging.getLogger(__name__)

SHORTEST: Final = 8
LONGEST: Final = 256
"""Length in characters. Longer values are keys and tokens, which their form reveals."""
MOST: Final = 100_000
"""Most values remembered for a space."""
CONFIDENCE: Final = 0.95
_DETECTOR: Final = "known"
NOTE: Final = "note"
_MOST_SIGNS: Final = 24
"""Most characters in a value other than letters and digits."""
_KEY_PERSON: Final = b"confide-known-1"
_NAME_PERSON: Final = b"confide-known-2"
_MASK_PERSON: Final = b"confide-known-3"
_NAME_BYTES: Final = 16
_SHAPE_BYTES: Final = 3
_LOCK_WAIT_S: Final = 2.0
_WORD: Final = re.compile(rf"\S{{{SHORTEST},}}")
_SIGN: Final = re.compile(r"[\W_]")
_DIGIT: Final = re.compile(r"\d")
_WITH_DIGIT: Final = 2
_LOWER_LOOKS: Final = 0b1010
"""The bits of a `_look` with all letters in lower case."""
_OTHER_LOOKS: Final = 0b0101
_MOST_ABSENT: Final = 20_000
"""Values that are remembered as unknown: texts repeat themselves."""
_NUMBER: Final = re.compile(r"[\d.,:/+_TZv-]+")
"""Dates, versions, addresses."""
_LONGEST_WORD: Final = 15
"""Letters of one case, up to this many, are a word."""


class KnownValues:
    """The known secret values of the space whose keys this device had last. Safe to use from
    several threads.
    """

    def __init__(self, folder: Path, keys: Callable[[], SpaceKeys | None]) -> None:
        """`folder` holds a file per space. `keys` returns the keys that this device had last, also
        while it may not seal.
        """
        self._folder = folder
        self._keys = keys
        self._turn = threading.Lock()
        self._file = folder / "none"
        self._passed_over: frozenset[bytes] = frozenset()
        self._forget(b"")

    @property
    def count(self) -> int:
        """Number of known values. It only grows while the space stays the same."""
        return len(self._kinds)

    def remember(self, secrets: Iterable[tuple[str, bytes]]) -> None:
        """Store these values with their kinds, for all processes of this device.

        Values that look like an ordinary word or number are skipped. If the file cannot be written,
        only this process knows the values.
        """
        wanted = [
            (kind, value)
            for kind, data in secrets
            if kind != NOTE and (value := _text(data)) is not None and is_recognizable(value)
        ]
        if not wanted:
            return
        with self._turn:
            if not self._is_open():
                return
            self._catch_up()
            lines = []
            for kind, value in wanted:
                name = self._name(value)
                if kind in self._kinds.get(name, ()) or self.count >= MOST:
                    continue
                shape = (len(value), len(_SIGN.findall(value)), _look(value))
                self._note(name, shape, kind)
                lines.append(f"{name.hex()} {self._keyed_hash(name, _pack_shape(shape)).hex()} {kind}\n")
            if lines:
                self._append("".join(lines).encode())

    def find(self, text: str) -> list[SecretFinding]:
        """Return the occurrences of known values in a text; they may overlap.

        A value is found as it is, with invisible characters in it, split by a line break, in
        percent encoding, with escapes, or anywhere in a run of base64 or hex, which then counts as
        a whole.
        """
        with self._turn:
            if len(text) < SHORTEST or not self._is_open():
                return []
            self._catch_up()
            if not self._kinds:
                return []
            shown = decoding.visible(text)
            found: list[SecretFinding] = []
            for start, end, kind in self._in(shown.text if shown else text):
                found.append(_finding(kind, *(shown.span(start, end) if shown else (start, end))))
            for view in _readings(shown.text if shown else text, self._shapes.shortest):
                for start, end, kind in self._in(view.text):
                    place = view.span(start, end)
                    found.append(_finding(kind, *(shown.span(*place) if shown else place)))
            return found

    def pass_over(self, values: Iterable[str]) -> None:
        """Ignore these values in this object from now on, as if they were not known."""
        with self._turn:
            if self._is_open():
                self._passed_over = frozenset(map(self._name, values))
                self._forget(self._space)

    def shortest(self) -> int:
        """Return the length of the shortest known value, in characters; 0 if there are no known
        values.
        """
        with self._turn:
            if self._is_open():
                self._catch_up()
            return self._shapes.shortest if self._kinds else 0

    def kind_of(self, value: str) -> str | None:
        """Return the kind of a known value, or None if the value is not known."""
        with self._turn:
            kinds = self._kinds.get(self._name(value)) if self._is_open() else None
            return kinds[0] if kinds else None

    def learn(self, after: str, before: str, values: Mapping[str, str]) -> dict[str, str]:
        """Find the values, by placeholder, that another device has sealed in the text `after` and
        that are in clear in the local text `before`. Store them as known values, and return them.

        `values` are known already and skipped. No detection rule of this device has found these
        values.
        """
        keys = self._keys()
        named = [one for _, _, one in placeholder.find(after) if str(one) not in values]
        if keys is None or not named:
            return {}
        wanted, kinds = {one.secret_id: one for one in named}, {one.kind for one in named}
        found: dict[str, str] = {}
        stayed = {match[0] for match in _WORD.finditer(after)}
        for word in {match[0] for match in _WORD.finditer(before)} - stayed:
            for part in _parts(word):
                for kind in kinds:
                    one = wanted.get(keys.secret_id(kind, part.encode("utf-8", "surrogatepass")))
                    if one is not None and one.kind == kind:
                        found[str(one)] = part
        self.remember((one.split(":")[1], part.encode("utf-8", "surrogatepass")) for one, part in found.items())
        return found

    def are_in(self, said: Any, most_chars: int | None = None) -> bool:
        """Return True if a JSON value contains a known value in any of its strings, names included.

        With `most_chars` the answer is immediate. It is then also True if the JSON value has more
        characters, or if the file hasn't been read yet.
        """
        if self._keys() is None:
            return False
        left = sys.maxsize if most_chars is None else most_chars if self._is_read() else 0
        waiting = [said]
        while waiting:
            one = waiting.pop()
            if isinstance(one, str):
                left -= len(one)
                if left < 0 or self.find(one):
                    return True
            elif isinstance(one, dict):
                waiting += one
                waiting += one.values()
            elif isinstance(one, list):
                waiting += one
        return False

    # Storage

    def _is_read(self) -> bool:
        keys = self._keys()
        return keys is not None and keys.space == self._space and self._offset >= 0

    def _is_open(self) -> bool:
        keys = self._keys()
        if keys is None:
            return False
        if keys.space != self._space:
            self._forget(keys.space)
            self._file = self._folder / keys.space.hex()
            key = hashlib.blake2b(key=keys.epochs[0], person=_KEY_PERSON, digest_size=32).digest()
            self._naming = hashlib.blake2b(key=key, person=_NAME_PERSON, digest_size=_NAME_BYTES)
            self._masking = hashlib.blake2b(key=key, person=_MASK_PERSON, digest_size=_SHAPE_BYTES)
        return True

    def _forget(self, space: bytes) -> None:
        self._space = space
        self._offset = -1
        self._kinds: dict[bytes, tuple[str, ...]] = {}
        self._absent: set[str] = set()
        self._shapes, self._without_digits = _Shapes(), _Shapes()

    def _name(self, value: str) -> bytes:
        naming = self._naming.copy()
        naming.update(value.encode("utf-8", "surrogatepass"))
        return naming.digest()

    def _keyed_hash(self, name: bytes, shape: bytes) -> bytes:
        masking = self._masking.copy()
        masking.update(name)
        return bytes(one ^ other for one, other in zip(masking.digest(), shape, strict=True))

    def _note(self, name: bytes, shape: tuple[int, int, int], kind: str) -> None:
        if name in self._passed_over:
            return
        # The first kind in order, not the first one met: devices that know the same values agree,
        # and those that learn them later agree then.
        self._kinds[name] = tuple(sorted({*self._kinds.get(name, ()), kind}))
        self._absent.clear()
        self._shapes.add(*shape)
        if shape[2] < _WITH_DIGIT:
            self._without_digits.add(*shape)

    def _catch_up(self) -> None:
        """Read what other processes have added. One system call if there is nothing new."""
        try:
            size = self._file.stat().st_size
            if size <= self._offset:
                return
            with self._file.open("rb") as file:
                file.seek(max(0, self._offset))
                data = file.read()
        except OSError:
            self._offset = max(0, self._offset)
            return
        whole = data.rfind(b"\n") + 1  # an incomplete line of another process is read next time
        self._offset = max(0, self._offset) + whole
        for line in data[:whole].decode("ascii", "replace").splitlines():
            parts = line.split(" ")
            if len(parts) == 3 and is_kind(parts[2]) and len(self._kinds) < MOST:
                try:
                    name, masked = bytes.fromhex(parts[0]), bytes.fromhex(parts[1])
                except ValueError:
                    continue  # torn by a crash
                if (len(name), len(masked)) == (_NAME_BYTES, _SHAPE_BYTES):
                    self._note(name, _unpack_shape(self._keyed_hash(name, masked)), parts[2])

    def _append(self, data: bytes) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = lock_file(self._file)
        except OSError as error:
            log.warning("what was sealed is not remembered: %s", error.strerror)
            return
        try:
            try_lock(file, wait_s=_LOCK_WAIT_S)
            end = os.lseek(file, 0, os.SEEK_END)
            is_torn = end > 0 and portable.read_at(file, 1, end - 1) != b"\n"
            os.write(file, b"\n" + data if is_torn else data)
        except OSError as error:
            log.warning("what was sealed is not remembered: %s", error.strerror)
        finally:
            os.close(file)

    # Search

    def _in(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield each known value in the text as it is, between blanks, punctuation and the ends:
        (start, end, kind).
        """
        shortest = self._shapes.shortest
        for match in _WORD.finditer(text):
            word, at = match[0], match.start()
            if len(word) < shortest:
                continue
            if word.isalnum():
                if (kind := self._kind(word, 0)) is not None:
                    yield at, match.end(), kind
                continue
            if _NUMBER.fullmatch(word):
                continue  # and so is each part of it
            shapes = self._shapes if _DIGIT.search(word) else self._without_digits
            if shapes.inner:
                yield from ((at + start, at + end, kind) for start, end, kind in self._in_parts(word, shapes))

    def _in_parts(self, word: str, shapes: _Shapes) -> Iterator[tuple[int, int, str]]:
        """Yield each known value in a word with punctuation. It begins and ends next to a
        punctuation character, or with one.
        """
        inner, longest = shapes.inner, shapes.longest
        signs = [-1, *(sign.start() for sign in _SIGN.finditer(word)), len(word)]
        last = len(signs) - 1
        for first, begin in enumerate(signs[:-1]):
            for between, end in enumerate(signs[first + 1 : first + shapes.most_signs + 2]):
                length = end - begin - 1
                fitting = inner.get((length, between))
                if fitting is None:
                    if length > longest:
                        break
                    continue
                for left, right, looks in fitting:
                    if (left and not first) or (right and first + between + 1 == last):
                        continue  # no punctuation is there
                    start, stop = begin + 1 - left, end + right
                    if (kind := self._looked_up(word[start:stop], looks)) is not None:
                        yield start, stop, kind

    def _kind(self, value: str, signs: int) -> str | None:
        """Return the kind of a known value, or None."""
        return self._looked_up(value, self._shapes.looks.get((len(value), signs), 0))

    def _looked_up(self, value: str, looks: int) -> str | None:
        """Return the kind of a known value, or None. The looks of known values of its shape exclude
        most values, which costs less than a digest.
        """
        is_lower = value.islower()
        if not looks & (_LOWER_LOOKS if is_lower else _OTHER_LOOKS) or value in self._absent:
            return None
        if not looks >> _look(value) & 1 or _is_word(value):
            return None
        kinds = self._kinds.get(self._name(value))
        if kinds:
            return kinds[0]
        if len(self._absent) >= _MOST_ABSENT:
            self._absent.clear()
        self._absent.add(value)
        return None


class _Shapes:
    """Shapes of the known values.

    Attributes:
        looks: bits of `_look`, by length and number of punctuation characters.
        inner: for the length and the punctuation of the part between two punctuation characters, the
            values that it can belong to: whether they include the one before it and the one after
            it, and the bits of their looks.
        most_signs: most punctuation characters in any value.
        shortest, longest: length of the shortest and of the longest value.
    """

    __slots__ = ("inner", "longest", "looks", "most_signs", "shortest")

    def __init__(self) -> None:
        self.looks: dict[tuple[int, int], int] = {}
        self.inner: dict[tuple[int, int], tuple[tuple[int, int, int], ...]] = {}
        self.most_signs = 0
        self.shortest = LONGEST
        self.longest = 0

    def add(self, length: int, signs: int, look: int) -> None:
        before = self.looks.get((length, signs), 0)
        looks = self.looks[length, signs] = before | 1 << look
        if looks != before:
            for left, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
                part = (length - left - right, signs - left - right)
                others = (each for each in self.inner.get(part, ()) if each[:2] != (left, right))
                self.inner[part] = (*others, (left, right, looks))
        self.most_signs = max(self.most_signs, signs)
        self.shortest = min(self.shortest, length)
        self.longest = max(self.longest, length)


def _look(value: str) -> int:
    """Return 0 to 3: 2 if there is a digit, plus 1 if all letters are lower case."""
    return 2 * (_DIGIT.search(value) is not None) + value.islower()


def is_recognizable(value: str) -> bool:
    """Return True if a value is distinctive enough to be recognized again: 8 to 256 characters
    without blanks, and no word, number, date or version.
    """
    if not SHORTEST <= len(value) <= LONGEST or _is_word(value) or _NUMBER.fullmatch(value):
        return False
    return len(_SIGN.findall(value)) <= _MOST_SIGNS and not any(letter.isspace() for letter in value)


def merge_findings(found: list[SecretFinding], known: list[SecretFinding]) -> list[SecretFinding]:
    """Merge the rules' findings with those of known values, in order and without overlaps.

    A rule's finding keeps its kind, so that the same text always seals to the same text, and no
    part of a known value stays in clear.
    """
    if not known:
        return found
    rules = sorted(found, key=lambda one: one.start)
    starts = [one.start for one in rules]

    def is_covered(one: SecretFinding) -> bool:
        before = bisect_right(starts, one.start)
        return before > 0 and one.end <= rules[before - 1].end

    return _apart([*rules, *(one for one in _apart(known) if not is_covered(one))])


def _apart(found: list[SecretFinding]) -> list[SecretFinding]:
    """Merge overlapping findings into one of a known value, in order."""
    apart: list[SecretFinding] = []
    for each in sorted(found, key=lambda one: (one.start, -one.end, one.kind)):
        if not apart or apart[-1].end <= each.start:
            apart.append(each)
            continue
        kind = max((apart[-1], each), key=lambda one: (one.detector == _DETECTOR, one.length)).kind
        apart[-1] = _finding(kind, apart[-1].start, max(apart[-1].end, each.end))
    return apart


def _parts(word: str) -> Iterator[str]:
    """Yield a word and each part of it that begins and ends next to a punctuation character, or
    with one.
    """
    places = sorted({0, len(word), *(at for sign in _SIGN.finditer(word) for at in sign.span())})
    for first, begin in enumerate(places):
        for end in places[first + 1 : first + 2 * _MOST_SIGNS]:
            if is_recognizable(word[begin:end]):
                yield word[begin:end]


def _readings(text: str, shortest: int) -> Iterator[decoding.View]:
    """Yield decoded readings of a text in which values of at least `shortest` characters may be."""
    if view := decoding.unescape(text):
        yield view
    if view := decoding.strip_emphasis(text):
        yield view
    yield from decoding.encoded_runs(text, shortest=min(-(-4 * shortest // 3), decoding.SHORTEST_LINE))
    if view := decoding.join_lines(text, shortest):
        yield view


def _finding(kind: str, start: int, end: int) -> SecretFinding:
    return SecretFinding(kind, start, end, CONFIDENCE, _DETECTOR)


def _is_word(value: str) -> bool:
    return value.isalpha() and len(value) <= _LONGEST_WORD and (value.islower() or value.isupper() or value.istitle())


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _pack_shape(shape: tuple[int, int, int]) -> bytes:
    """Encode a length, a number of punctuation characters and a `_look`."""
    length, signs, look = shape
    return length.to_bytes(2) + bytes([look << 5 | signs])


def _unpack_shape(data: bytes) -> tuple[int, int, int]:
    return int.from_bytes(data[:2]), data[2] & 31, data[2] >> 5
