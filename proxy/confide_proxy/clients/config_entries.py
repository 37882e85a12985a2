"""Entries that Confide adds to clients' files: a member of a JSON object, items of a JSON list,
tables of a TOML file, or a whole file. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from confide_proxy.clients import jsonc, toml_tables


class ConfigEntry(Protocol):
    """The interface of an entry in a client's file. Its methods raise `jsonc.JsoncError` or
    `toml_tables.TomlError` if the file's text has another format.
    """

    @property
    def file(self) -> Path: ...

    def add_to(self, text: str) -> str:
        """Return the file's text with the entry added; the same text if the entry is in it."""

    def remove_from(self, text: str) -> str:
        """Return the file's text without the entry."""

    def is_in(self, text: str) -> bool:
        """Return True if the text contains the entry, a part of it, or an older form of it."""


@dataclass(frozen=True, slots=True)
class Member:
    """A key of a JSON object, with its value. If the file has an object as the value, its other
    keys stay.

    Attributes:
        is_kept: True for a key that states the file's format. It isn't changed if it exists, and is
            never removed.
        has_comments: True if the client accepts comments in that file; other clients reject a file
            with comments.
    """

    file: Path
    path: Sequence[str]
    value: Any
    is_kept: bool = False
    has_comments: bool = True

    def add_to(self, text: str) -> str:
        _check(text, self.has_comments)
        old = jsonc.at(jsonc.read(text), self.path)
        if self.is_kept and old is not None:
            return text
        value = {**old, **self.value} if isinstance(old, dict) and isinstance(self.value, dict) else self.value
        return text if old == value else jsonc.put(text, self.path, value)

    def remove_from(self, text: str) -> str:
        return text if self.is_kept else jsonc.drop(text, self.path)

    def is_in(self, text: str) -> bool:
        return not self.is_kept and jsonc.at(jsonc.read(text), self.path) is not None


@dataclass(frozen=True, slots=True)
class Items:
    """Items of a JSON list.

    Attributes:
        is_ours: returns True for an item that Confide has added, also in an older form, such as one
            with another path of the program.
    """

    file: Path
    path: Sequence[str]
    items: Sequence[Any]
    is_ours: Callable[[Any], bool]
    has_comments: bool = True

    def add_to(self, text: str) -> str:
        _check(text, self.has_comments)
        text = jsonc.cut(text, self.path, lambda item: self.is_ours(item) and item not in self.items)
        return jsonc.extend(text, self.path, self.items)

    def remove_from(self, text: str) -> str:
        return jsonc.cut(text, self.path, self.is_ours)

    def is_in(self, text: str) -> bool:
        found = jsonc.at(jsonc.read(text), self.path)
        return isinstance(found, list) and any(map(self.is_ours, found))


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of a TOML file. All of Confide's tables are at the path `top`, or below it."""

    file: Path
    top: toml_tables.Path
    tables: Mapping[toml_tables.Path, Mapping[str, object]]

    def add_to(self, text: str) -> str:
        return toml_tables.put(text, self.tables)

    def remove_from(self, text: str) -> str:
        return toml_tables.drop(text, self.top)

    def is_in(self, text: str) -> bool:
        return toml_tables.drop(text, self.top) != text


@dataclass(frozen=True, slots=True)
class Whole:
    """A file that Confide alone writes. It begins with the text `mark` in every version of Confide;
    a file without that text belongs to another program.
    """

    file: Path
    mark: str
    text: str

    def add_to(self, text: str) -> str:
        if text and not text.startswith(self.mark):
            raise jsonc.JsoncError("is another's file of that name")
        return self.text

    def remove_from(self, text: str) -> str:
        return "" if text.startswith(self.mark) else text

    def is_in(self, text: str) -> bool:
        return text.startswith(self.mark)


def _check(text: str, has_comments: bool) -> None:
    if not has_comments and not jsonc.is_plain(text):
        raise jsonc.JsoncError("is not readable as JSON")
