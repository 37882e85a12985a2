"""The masks of a run's output: for its own values, and for those that this device knows.

This device knows the latter by keyed hashes, which are compared with each word: 2 MB/s. So once the
output is large, a session hands over the values of all sealed secrets, which are found in all forms
at 50 times the speed. Words are then looked up only if they hide something as no program does by
itself, or for known values that no session has.

Loaded at the first output, since a command that prints nothing needs none.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.link.session_values import SessionValues
from confide_proxy.sealing.known_values import KnownValues
from confide_proxy.sealing.maskable import is_maskable
from confide_proxy.sealing.masking import Mask, SecretForms

_LARGE: Final = 2**18
"""Bytes of output from which on a session is asked: these take longer than its answer."""
_MOST_VALUES: Final = 20_000
_HIDING: Final = tuple(
    re.compile(each, re.DOTALL)
    for each in (
        rb"%(?:2[1-9A-Fa-f]|[3-7][0-9A-Fa-f])",
        rb"\\x[2-9A-Fa-f]",
        rb"\\u",
        rb"&#[0-9xX]",
        rb"\*(?<=[\w-]\*)\*{0,2}[\w<-]",
        rb"~~(?<=[\w-]~~)[\w<-]",
        rb"<(?:/?(?:b|i|em|strong|mark|code|u)>[\w<-]|!--)",
    )
)
"""Escapes and emphasis within words (`detection.decoding`) beside the usual forms, which the mask knows.
Each expression begins with one byte, and is searched for ten times as fast as one with a choice.
"""
_INVISIBLE: Final = tuple(
    re.compile(each, re.DOTALL)
    for each in (
        rb"\xc2\xad",
        rb"\xcd\x8f",
        rb"\xd8\x9c",
        rb"\xe1(?:\x85[\x9f\xa0]|\x9e[\xb4\xb5]|\xa0[\x8b-\x8f])",
        rb"\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])",
        rb"\xe3\x85\xa4",
        rb"\xef(?:\xb8[\x80-\x8f]|\xbb\xbf|\xbe\xa0|\xbc[\x81-\xbf]|\xbd[\x80-\x9e])",
        rb"\xf3\xa0",
    )
)
"""Characters that are invisible, or of full width, in UTF-8."""
_ASCII: Final = bytes(range(128))
_SPACE: Final = re.compile(rb"\s")
_LONGEST: Final = 4096


class RunMasks:
    """Makes a mask for each stream of output."""

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
        return text.split() if self.rest.has_any() else _hiding(text)

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
    expressions = _HIDING
    if b"\0" in text:
        expressions += _INVISIBLE
    elif not text.isascii():
        others = text.translate(None, _ASCII)  # few, unless it is binary
        expressions += tuple(each for each in _INVISIBLE if each.search(others))
    return sorted(match.start() for each in expressions for match in each.finditer(text))


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
