"""The elements of a JSON array, one after another: an export of hundreds of megabytes is never held whole."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

MAX_JSON_BYTES = 2**29
"""Of one file of an export: 512 MiB."""
MAX_ELEMENT_CHARS = 2**26
"""Of one element, such as a conversation."""
_CHUNK_BYTES = 2**20
_SPACE = re.compile(r"[ \t\n\r]*")


class BrokenJsonError(ValueError):
    """What is wrong, as the end of a sentence."""


def elements(file: BinaryIO, *, limit: int = MAX_JSON_BYTES) -> Iterator[Any]:
    """The elements of the array that the file holds; of another value that value alone.

    Raises:
        BrokenJsonError: it is not UTF-8, not JSON, cut off, nested too deeply, or larger than a limit; what came before stands.
    """
    text = _Text(file, limit)
    if text.next_character() != "[":
        yield text.value()
        return
    text.position += 1
    if text.next_character() == "]":
        return
    while True:
        yield text.value()
        match text.next_character():
            case ",":
                text.position += 1
            case "]":
                return
            case "":
                raise BrokenJsonError("ends in the middle")
            case _:
                raise BrokenJsonError("is not JSON")


class _Text:
    """The part of the file that is being read."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file = file
        self._room = limit
        self._limit = limit
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        # JSON has no NaN, and neither have the messages that a record is sent in.
        self._json = json.JSONDecoder(parse_constant=lambda _: None)
        self._text = ""
        self._is_whole = False
        self._has_begun = False
        self.position = 0

    def next_character(self) -> str:
        """The next one that is not white space, "" at the end."""
        while True:
            space = _SPACE.match(self._text, self.position)
            self.position = space.end() if space else self.position
            if self.position < len(self._text):
                self._has_begun = True
                return self._text[self.position]
            if self._is_whole:
                return ""
            self._more(_CHUNK_BYTES)

    def value(self) -> Any:
        """The value that begins at the next character."""
        if not self.next_character():
            raise BrokenJsonError("ends in the middle" if self._has_begun else "is empty")
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self.position)
            except json.JSONDecodeError:
                if self._is_whole:
                    raise BrokenJsonError("is not JSON, or ends in the middle") from None
            except RecursionError:
                raise BrokenJsonError("is nested too deeply") from None
            except ValueError:  # a number of thousands of digits
                raise BrokenJsonError("holds a number that is too long") from None
            else:
                # A number may go on in what is not read yet.
                if self._is_whole or end < len(self._text):
                    self.position = end
                    return value
            have = len(self._text) - self.position
            if have > MAX_ELEMENT_CHARS:
                raise BrokenJsonError(f"holds an element larger than {MAX_ELEMENT_CHARS // 2**20} MiB, or is not JSON")
            # As much again each time, so that trying anew costs no more than reading twice.
            self._more(max(_CHUNK_BYTES, have))

    def _more(self, size: int) -> None:
        data = self._file.read(min(size, self._room + 1))
        self._room -= len(data)
        if self._room < 0:
            raise BrokenJsonError(f"is larger than {self._limit // 2**20} MiB")
        self._is_whole = not data
        try:
            added = self._utf8.decode(data, final=not data)
        except UnicodeDecodeError:
            raise BrokenJsonError("is not UTF-8 text") from None
        self._text, self.position = self._text[self.position :] + added, 0
