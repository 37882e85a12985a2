"""Mask secrets in a run's output: the values that the run has, and all others that this device
knows.

This device knows the others only by keyed hashes, which are compared with each word, at 2 MB/s. So
once the output is large, a running session hands over the values of all sealed secrets, which are
found in all encodings 50 times as fast. Words are then compared by hash only if they hide something
in a way that no program does by itself, or for known values that no session has.

The module is loaded at the first output, since a command that prints nothing needs no masks.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from ahocorasick_rs import BytesAhoCorasick, Implementation

from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.link.session_values import SessionValues
from confide_proxy.sealing.known_values import KnownValues
from confide_proxy.sealing.maskable import is_maskable
from confide_proxy.sealing.masking import Mask, SecretForms

_LARGE: Final = 2**18
"""Bytes of output from which on a session is asked: these take longer than its answer."""
_MOST_VALUES: Final = 20_000
_TAGS: Final = (b"b", b"i", b"em", b"strong", b"mark", b"code", b"u")
_IN_WORDS: Final = tuple(bytes([each]) for each in range(128) if re.match(rb"[\w-]", bytes([each])))
_MARKS: Final[Mapping[bytes, Sequence[bytes]]] = {
    # Escapes and emphasis within words (`detection.decoding`) beside the usual forms, which the mask knows.
    rb"%(?:2[1-9A-Fa-f]|[3-7][0-9A-Fa-f])": (b"%2", b"%3", b"%4", b"%5", b"%6", b"%7"),
    rb"\\x[2-9A-Fa-f]": (b"\\x",),
    rb"\\u": (b"\\u",),
    rb"&#[0-9xX]": (b"&#",),
    rb"[\w-]\*{1,3}[\w<-]": [each + b"*" for each in _IN_WORDS],
    rb"[\w-]~~[\w<-]": [each + b"~~" for each in _IN_WORDS],
    rb"</?[a-z]+>[\w<-]": [b"<%s%s>" % (slash, tag) for slash in (b"", b"/") for tag in _TAGS],
    rb"<!--": (b"<!--",),
    # Characters that are invisible, or of full width, in UTF-8.
    rb"\xc2\xad|\xcd\x8f|\xd8\x9c|\xe3\x85\xa4|\xf3\xa0": (
        b"\xc2\xad",
        b"\xcd\x8f",
        b"\xd8\x9c",
        b"\xe3\x85\xa4",
        b"\xf3\xa0",
    ),
    rb"\xe1(?:\x85[\x9f\xa0]|\x9e[\xb4\xb5]|\xa0[\x8b-\x8f])": (b"\xe1\x85", b"\xe1\x9e", b"\xe1\xa0"),
    rb"\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])": (b"\xe2\x80", b"\xe2\x81"),
    rb"\xef(?:\xb8[\x80-\x8f]|\xbb\xbf|\xbe\xa0|\xbc[\x81-\xbf]|\xbd[\x80-\x9e])": (
        b"\xef\xb8",
        b"\xef\xbb",
        b"\xef\xbe",
        b"\xef\xbc",
        b"\xef\xbd",
    ),
}
"""Signs of something hidden in a word, and the bytes with which each begins. Those are searched for all
at once.
"""
_IN_MARKS: Final = b"%\\&*~<"
"""Bytes of which each mark in ASCII has one."""
_SPACE: Final = re.compile(rb"\s")
_LONGEST: Final = 4096


class RunMasks:
    """Creates the masks for a run's output, one for each stream. They hide the secret values that
    this device knows.
    """

    def __init__(
        self,
        values: Mapping[Placeholder, bytes],
        known: Path,
        space: bytes,
        first_key: bytes,
        pages: Callable[[], Iterator[SessionValues]] | None = None,
    ) -> None:
        """Args:
        values: what the run has.
        known: the folder with the fingerprints of the values that this device knows.
        space: the id of the space, 16 bytes.
        first_key: the key of its first epoch, which the fingerprints and the ids are made with.
        pages: gives the values of all secrets, as far as it can; called in a thread.
        """
        self._own = {value: str(one).encode() for one, value in values.items()}
        self.forms = SecretForms(self._own)
        self._keys = SpaceKeys(space, (first_key,))
        self._known = KnownValues(known, lambda: self._keys)
        self._handed = _HandedValues(self._own, KnownValues(known, lambda: self._keys), pages)

    def make(self) -> Mask:
        return Mask(self.forms, self._more, self._handed)

    def _more(self, text: str) -> dict[bytes, bytes]:
        masked, known = self.forms, [(self._known, text)]
        if (handed := self._handed.forms(0)) is not None:
            masked = handed
            hidden = [word for word in text.split() if _marks(word.encode())]
            known = [(self._handed.rest, text), (self._known, "\n\n".join(hidden))]
        found = {}
        for values, words in known:
            for each in values.find(words):
                value = words[each.start : each.end]
                data = value.encode("utf-8", "replace")
                if Mask(masked).whole(data) != data:
                    continue  # a form of a value that is masked already
                kind = values.kind_of(value)
                shown = f"(sealed:{each.kind})"
                if kind is not None:
                    shown = str(Placeholder(kind, self._keys.secret_id(kind, value.encode())))
                found[data] = shown.encode()
        return found


class _HandedValues:
    """The values of all secrets in clear, once the output is large. The `ClearValues` of its masks.

    Attributes:
        rest: the known values that are not among them.
    """

    def __init__(
        self, own: Mapping[bytes, bytes], rest: KnownValues, pages: Callable[[], Iterator[SessionValues]] | None
    ) -> None:
        self.rest = rest
        self._own = own
        self._pages = pages
        self._size = 0
        self._thread: threading.Thread | None = None
        self._forms: SecretForms | None = None

    def forms(self, size: int) -> SecretForms | None:
        if self._forms is not None or self._pages is None:
            return self._forms
        self._size += size
        if self._thread is None and self._size > _LARGE:
            # The command has been started by now, so no thread is there when this process forks.
            self._thread = threading.Thread(target=self._fetch, daemon=True)
            self._thread.start()
        return self._forms

    def words(self, text: bytes) -> Iterable[bytes]:
        yield from _hiding(text)
        if shortest := self.rest.shortest():
            yield from (word for word in text.split() if len(word) >= shortest)

    def _fetch(self) -> None:
        assert self._pages is not None
        handed: dict[bytes, bytes] = {}
        for page in self._pages():
            for one, value in zip(page.secrets.values(), page.values, strict=True):
                if is_maskable(value):
                    handed[value] = str(one).encode()
            if len(handed) > _MOST_VALUES:
                break
        if handed:
            self.rest.pass_over(value.decode("utf-8", "surrogateescape") for value in handed)
            self._forms = SecretForms({**handed, **self._own})


def _marks(text: bytes) -> list[int]:
    """Return the places in a text where something may be hidden, in order."""
    if text.isascii() and not any(each in text for each in _IN_MARKS):
        return []
    automaton, expressions = _mark_search()
    begun = automaton.find_matches_as_indexes(text, overlapping=True)
    return sorted(start for number, start, _ in begun if expressions[number].match(text, start))


@cache
def _mark_search() -> tuple[BytesAhoCorasick, list[re.Pattern[bytes]]]:
    """Return a search for the beginnings of all marks, and the expression of each."""
    pairs = [(beginning, re.compile(each)) for each, beginnings in _MARKS.items() for beginning in beginnings]
    automaton = BytesAhoCorasick([beginning for beginning, _ in pairs], implementation=Implementation.DFA)
    return automaton, [expression for _, expression in pairs]


def _hiding(text: bytes) -> Iterator[bytes]:
    """Yield the words of a text that may hide something."""
    end = 0
    for at in _marks(text):
        if at < end:
            continue
        before = text[max(end, at - _LONGEST) : at]
        begin = at - len(before.rsplit(None, 1)[-1]) if before and not before[-1:].isspace() else at
        space = _SPACE.search(text, at)
        end = space.start() if space is not None else len(text)
        yield text[begin:end]
