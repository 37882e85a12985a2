"""Values that this machine knows to be secrets, since it has sealed or opened them: found again wherever they are said, in clear or
encoded, though nothing around them tells.

They are kept by a keyed name each, never in clear: BLAKE2b-128 of the value, with a key that comes from the space's first key, as those of
PROTOCOL.md 10.2 do, in a file that all processes of this machine share. So who reads the disk learns from it what the placeholders in the
files beside it tell already: nothing without the space's keys, and with them whether a guess is right. How long a value is is hidden the
same way; the file shows how many there are, and of what kinds.

What is known only grows, so that a text, once sealed, is never let out in clear again by another process. A text is not searched for each
value: its words, and their parts between signs, are looked up by their names.
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

from confide_crypto.sealing import placeholder
from confide_crypto.sealing.record import is_kind
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.locks import lock_file, taken
from confide_proxy.sealing.detection import decoding
from confide_proxy.sealing.detection.finding import SecretFinding

log = logging.getLogger(__name__)

SHORTEST: Final = 8
LONGEST: Final = 256
"""Characters. Longer ones are keys and tokens, which are known by their form."""
MOST: Final = 100_000
"""Values of a space; more are not remembered."""
CONFIDENCE: Final = 0.95
_DETECTOR: Final = "known"
NOTE: Final = "note"
_MOST_SIGNS: Final = 24
"""In a value, not counting letters and digits."""
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
_NUMBER: Final = re.compile(r"[\d.,:/+_TZv-]+")
"""Dates, versions, addresses."""
_LONGEST_WORD: Final = 15
"""Letters of one case, up to so many, are a word."""


class KnownValues:
    """Those of the space whose keys this machine had last. Safe to use from several threads."""

    def __init__(self, folder: Path, keys: Callable[[], SpaceKeys | None]) -> None:
        """`folder`: with a file for each space. `keys` are those that this machine had last, also while it may not seal."""
        self._folder = folder
        self._keys = keys
        self._turn = threading.Lock()
        self._file = folder / "none"
        self._forget(b"")

    @property
    def count(self) -> int:
        """How many are known. It only grows while the space is the same."""
        return len(self._kinds)

    def remember(self, secrets: Iterable[tuple[str, bytes]]) -> None:
        """Know these, each a kind and a value, from now on, in all processes of this machine; not what reads like a word or a number.

        What cannot be written is known to this process alone.
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
                lines.append(f"{name.hex()} {self._masked(name, _packed(shape)).hex()} {kind}\n")
            if lines:
                self._append("".join(lines).encode())

    def find(self, text: str) -> list[SecretFinding]:
        """Where one of them stands: as it is, among characters that nobody sees, cut by a line end, in percent or with escapes, or anywhere
        in a run of base64 or hex, which then counts as a whole. They may overlap."""
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
            for view in _readings(shown.text if shown else text):
                for start, end, kind in self._in(view.text):
                    place = view.span(start, end)
                    found.append(_finding(kind, *(shown.span(*place) if shown else place)))
            return found

    def learned(self, after: str, before: str, values: Mapping[str, str]) -> dict[str, str]:
        """What another machine has sealed in a text that stands in clear in the one `before`, by placeholders; `values` are known already.

        Who has a secret in a file, where no rule of this machine knows it, keeps it there, and knows it from now on.
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
        """Whether one of them stands in a string of a JSON value, names included.

        `most_chars`: answer at once; True also where there is more to look through than that, or they are still to be read.
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

    # What is known

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
        self._shapes, self._without_digits = _Shapes(), _Shapes()

    def _name(self, value: str) -> bytes:
        naming = self._naming.copy()
        naming.update(value.encode("utf-8", "surrogatepass"))
        return naming.digest()

    def _masked(self, name: bytes, shape: bytes) -> bytes:
        masking = self._masking.copy()
        masking.update(name)
        return bytes(one ^ other for one, other in zip(masking.digest(), shape, strict=True))

    def _note(self, name: bytes, shape: tuple[int, int, int], kind: str) -> None:
        # By the first in their order, whichever was met first: machines that know the same agree, and come to agree as they learn.
        self._kinds[name] = tuple(sorted({*self._kinds.get(name, ()), kind}))
        self._shapes.add(*shape)
        if shape[2] < _WITH_DIGIT:
            self._without_digits.add(*shape)

    def _catch_up(self) -> None:
        """Read what other processes have noted. One call of the system where there is nothing new."""
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
        whole = data.rfind(b"\n") + 1  # a line that another process writes just now is read the next time
        self._offset = max(0, self._offset) + whole
        for line in data[:whole].decode("ascii", "replace").splitlines():
            parts = line.split(" ")
            if len(parts) == 3 and is_kind(parts[2]) and len(self._kinds) < MOST:
                try:
                    name, masked = bytes.fromhex(parts[0]), bytes.fromhex(parts[1])
                except ValueError:
                    continue  # torn by a crash
                if (len(name), len(masked)) == (_NAME_BYTES, _SHAPE_BYTES):
                    self._note(name, _unpacked(self._masked(name, masked)), parts[2])

    def _append(self, data: bytes) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = lock_file(self._file)
        except OSError as error:
            log.warning("what was sealed is not remembered: %s", error.strerror)
            return
        try:
            taken(file, wait_s=_LOCK_WAIT_S)
            end = os.lseek(file, 0, os.SEEK_END)
            is_torn = end > 0 and os.pread(file, 1, end - 1) != b"\n"
            os.write(file, b"\n" + data if is_torn else data)
        except OSError as error:
            log.warning("what was sealed is not remembered: %s", error.strerror)
        finally:
            os.close(file)

    # Where they are

    def _in(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Each that stands in the text as it is, between blanks, signs and ends: (start, end, kind)."""
        for match in _WORD.finditer(text):
            word, at = match[0], match.start()
            if word.isalnum():
                if (kind := self._kind(word, 0)) is not None:
                    yield at, match.end(), kind
                continue
            shapes = self._shapes if _DIGIT.search(word) else self._without_digits
            if shapes.inner:
                yield from ((at + start, at + end, kind) for start, end, kind in self._in_parts(word, shapes))

    def _in_parts(self, word: str, shapes: _Shapes) -> Iterator[tuple[int, int, str]]:
        """The same of a word with signs in it: one begins and ends beside a sign, or with it."""
        size, inner = len(word), shapes.inner
        signs = [-1, *(sign.start() for sign in _SIGN.finditer(word)), size]
        for first, begin in enumerate(signs[:-1]):
            for between, end in enumerate(signs[first + 1 : first + shapes.most_signs + 2]):
                length = end - begin - 1
                if (length, between) not in inner:
                    if length > LONGEST:
                        break
                    continue
                for start in (begin + 1, begin) if begin >= 0 else (0,):
                    for stop in (end, end + 1) if end < size else (size,):
                        around = begin + 1 - start + stop - end
                        if (kind := self._kind(word[start:stop], between + around)) is not None:
                            yield start, stop, kind

    def _kind(self, value: str, signs: int) -> str | None:
        """The kind of a known value, None where it is none. Most are told by their shape, which costs less than their name."""
        looks = self._shapes.looks.get((len(value), signs), 0)
        if not looks >> _look(value) & 1 or _is_word(value):
            return None
        kinds = self._kinds.get(self._name(value))
        return kinds[0] if kinds else None


class _Shapes:
    """What known values look like.

    Attributes:
        looks: by their length and the number of their signs, a bit for each of `_look`.
        inner: length and number of signs of what is between two places where one may begin and end: with or without the signs there.
        most_signs: in any of them.
    """

    __slots__ = ("inner", "looks", "most_signs")

    def __init__(self) -> None:
        self.looks: dict[tuple[int, int], int] = {}
        self.inner: set[tuple[int, int]] = set()
        self.most_signs = 0

    def add(self, length: int, signs: int, look: int) -> None:
        self.looks[length, signs] = self.looks.get((length, signs), 0) | 1 << look
        self.inner |= {(length, signs), (length - 1, signs - 1), (length - 2, signs - 2)}
        self.most_signs = max(self.most_signs, signs)


def _look(value: str) -> int:
    """0 to 3: whether it has a digit, and whether it has letters of lower case alone."""
    return 2 * (_DIGIT.search(value) is not None) + value.islower()


def is_recognizable(value: str) -> bool:
    """Whether a value is looked for again: 8 to 256 characters without a blank, and neither a word nor a number, a date or a version."""
    if not SHORTEST <= len(value) <= LONGEST or _is_word(value) or _NUMBER.fullmatch(value):
        return False
    return len(_SIGN.findall(value)) <= _MOST_SIGNS and not any(letter.isspace() for letter in value)


def merged(found: list[SecretFinding], known: list[SecretFinding]) -> list[SecretFinding]:
    """The findings of the rules, none over another, with those of known values, in order: what a rule calls otherwise stays as the rule has
    it, so that a text seals as it did; but nothing of a known value stays in clear."""
    if not known:
        return found
    rules = sorted(found, key=lambda one: one.start)
    starts = [one.start for one in rules]

    def is_covered(one: SecretFinding) -> bool:
        before = bisect_right(starts, one.start)
        return before > 0 and one.end <= rules[before - 1].end

    return _apart([*rules, *(one for one in _apart(known) if not is_covered(one))])


def _apart(found: list[SecretFinding]) -> list[SecretFinding]:
    """Those that overlap as one, which is a known value's; in order."""
    apart: list[SecretFinding] = []
    for each in sorted(found, key=lambda one: (one.start, -one.end, one.kind)):
        if not apart or apart[-1].end <= each.start:
            apart.append(each)
            continue
        kind = max((apart[-1], each), key=lambda one: (one.detector == _DETECTOR, one.length)).kind
        apart[-1] = _finding(kind, apart[-1].start, max(apart[-1].end, each.end))
    return apart


def _parts(word: str) -> Iterator[str]:
    """A word, and what of it begins and ends beside a sign, or with it."""
    places = sorted({0, len(word), *(at for sign in _SIGN.finditer(word) for at in sign.span())})
    for first, begin in enumerate(places):
        for end in places[first + 1 : first + 2 * _MOST_SIGNS]:
            if is_recognizable(word[begin:end]):
                yield word[begin:end]


def _readings(text: str) -> Iterator[decoding.View]:
    if view := decoding.unescaped(text):
        yield view
    if view := decoding.unemphasised(text):
        yield view
    yield from decoding.encoded(text)
    if view := decoding.joined(text, SHORTEST):
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


def _packed(shape: tuple[int, int, int]) -> bytes:
    """A length, a number of signs and a `_look`."""
    length, signs, look = shape
    return length.to_bytes(2) + bytes([look << 5 | signs])


def _unpacked(data: bytes) -> tuple[int, int, int]:
    return int.from_bytes(data[:2]), data[2] & 31, data[2] >> 5
