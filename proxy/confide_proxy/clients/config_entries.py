"""What Confide puts into a client's files: a member of an object, items of a list, tables of a TOML file, or a file of its own. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from confide_proxy.clients import jsonc, toml_tables


class ConfigEntry(Protocol):
    """One thing that is put into a file. Its methods raise `jsonc.JsoncError` or `toml_tables.TomlError`."""

    @property
    def file(self) -> Path: ...

    def added(self, text: str) -> str:
        """The file's text with it; the same text where it is there."""

    def removed(self, text: str) -> str:
        """The file's text without it."""

    def is_in(self, text: str) -> bool:
        """Whether something of it is there, if only an older form."""


@dataclass(frozen=True, slots=True)
class Member:
    """A key of a JSON object. What else an object at it says, such as an environment, stays.

    Attributes:
        is_kept: it says which form the file has, is not changed where it is there, and stays.
        has_comments: whether the client reads comments in that file; one that does not reads nothing of a file that has some.
    """

    file: Path
    path: Sequence[str]
    value: Any
    is_kept: bool = False
    has_comments: bool = True

    def added(self, text: str) -> str:
        _check(text, self.has_comments)
        old = jsonc.at(jsonc.read(text), self.path)
        if self.is_kept and old is not None:
            return text
        value = {**old, **self.value} if isinstance(old, dict) and isinstance(self.value, dict) else self.value
        return text if old == value else jsonc.put(text, self.path, value)

    def removed(self, text: str) -> str:
        return text if self.is_kept else jsonc.drop(text, self.path)

    def is_in(self, text: str) -> bool:
        return not self.is_kept and jsonc.at(jsonc.read(text), self.path) is not None


@dataclass(frozen=True, slots=True)
class Items:
    """Items of a JSON list. `is_ours` knows them in older forms too: with another program's path, say."""

    file: Path
    path: Sequence[str]
    items: Sequence[Any]
    is_ours: Callable[[Any], bool]
    has_comments: bool = True

    def added(self, text: str) -> str:
        _check(text, self.has_comments)
        text = jsonc.cut(text, self.path, lambda item: self.is_ours(item) and item not in self.items)
        return jsonc.extend(text, self.path, self.items)

    def removed(self, text: str) -> str:
        return jsonc.cut(text, self.path, self.is_ours)

    def is_in(self, text: str) -> bool:
        found = jsonc.at(jsonc.read(text), self.path)
        return isinstance(found, list) and any(map(self.is_ours, found))


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of a TOML file; all of them are below `top`, or are it."""

    file: Path
    top: toml_tables.Path
    tables: Mapping[toml_tables.Path, Mapping[str, object]]

    def added(self, text: str) -> str:
        return toml_tables.put(text, self.tables)

    def removed(self, text: str) -> str:
        return toml_tables.drop(text, self.top)

    def is_in(self, text: str) -> bool:
        return toml_tables.drop(text, self.top) != text


@dataclass(frozen=True, slots=True)
class Whole:
    """A file that is ours alone. `mark` is how it begins, in every version; a file without it is somebody else's."""

    file: Path
    mark: str
    text: str

    def added(self, text: str) -> str:
        if text and not text.startswith(self.mark):
            raise jsonc.JsoncError("is another's file of that name")
        return self.text

    def removed(self, text: str) -> str:
        return "" if text.startswith(self.mark) else text

    def is_in(self, text: str) -> bool:
        return text.startswith(self.mark)


def _check(text: str, has_comments: bool) -> None:
    if not has_comments and not jsonc.is_plain(text):
        raise jsonc.JsoncError("is not readable as JSON")
