"""Editing of tables in a TOML file that keeps every other line and comment.

A change is made in the lines. The changed text is parsed with `tomllib` and must have the wanted
content. So a file in another style (inline tables, dotted keys) is left alone rather than damaged.
Does no I/O.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_HEADER: Final = re.compile(r"^\s*\[\[?[^\[\]]+\]\]?\s*(#.*)?$")
_TOKEN: Final = re.compile(r'''"""(?:\\.|[^\\])*?"""|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*''', re.DOTALL)
"""Strings and comments, which may contain brackets."""
_NOTHING: Final = re.compile(r"^\s*(#.*)?$")

Path = tuple[str, ...]


class TomlError(ValueError):
    """The text is not TOML, or cannot be changed safely."""


@dataclass(frozen=True, slots=True)
class _Section:
    """A table with its lines: `begin` is the header, `end` follows the last line with content."""

    path: Path
    begin: int
    end: int


def read(text: str) -> dict[str, Any]:
    """Parse the text. Raises TomlError if it is not TOML."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise TomlError("is not readable as TOML") from error


def put(text: str, tables: Mapping[Path, Mapping[str, Any]]) -> str:
    """Return the text with these keys set in these tables; other keys of the tables stay. Raises
    TomlError if the text cannot be changed safely.
    """
    document = read(text)
    wanted = copy.deepcopy(document)
    for path, keys in tables.items():
        holder = wanted
        for name in path:
            holder = holder.setdefault(name, {})
            if not isinstance(holder, dict):
                raise TomlError(f"does not hold a table {'.'.join(path)}")
        holder.update(copy.deepcopy(dict(keys)))
    if wanted == document:
        return text
    for path, keys in tables.items():
        text = _with_table(text, path, keys)
    return _require_document(text, wanted)


def drop(text: str, path: Path) -> str:
    """Return the text without the table at the path and the tables below it. Raises TomlError if
    the text cannot be changed safely.
    """
    document = read(text)
    wanted = copy.deepcopy(document)
    holders = [wanted]
    for name in path[:-1]:
        inner = holders[-1].get(name)
        if not isinstance(inner, dict):
            return text
        holders.append(inner)
    if path[-1] not in holders[-1]:
        return text
    del holders[-1][path[-1]]
    lines = text.splitlines(keepends=True)
    for section in reversed(list(_sections(lines))):
        if section.path[: len(path)] == path:
            begin = section.begin
            if begin and not lines[begin - 1].strip():
                begin -= 1  # the blank line before it
            del lines[begin : section.end]
    changed = "".join(lines)
    # `[mcp_servers]` has no line of its own if the file holds only its subtables.
    return _require_document(changed, wanted if read(changed) == wanted else _prune(wanted, path[:-1]))


def _prune(document: dict[str, object], path: Path) -> dict[str, object]:
    for length in range(len(path), 0, -1):
        holder: Any = document
        for name in path[: length - 1]:
            holder = holder[name]
        if not holder[path[length - 1]]:
            del holder[path[length - 1]]
    return document


def _put_into(lines: list[str], own: _Section, keys: Mapping[str, object], said: Mapping[str, str]) -> None:
    """Set keys of an existing table, each in the line that set it before."""
    body = read("".join(lines[own.begin + 1 : own.end]))
    for key, line in said.items():
        if key in body and body[key] == keys[key]:
            continue
        place = next((n for n in range(own.begin + 1, own.end) if re.match(rf"\s*{key}\s*=", lines[n])), None)
        if place is None:
            lines.insert(own.begin + 1, line)
        else:
            lines[place] = line


def _with_table(text: str, path: Path, keys: Mapping[str, Any]) -> str:
    lines = text.splitlines(keepends=True)
    paths = {section.path for section in _sections(lines)}
    for key in [each for each in keys if (*path, each) in paths]:  # a table with a header of its own
        text = _with_table(text, (*path, key), keys[key])
    keys = {key: value for key, value in keys.items() if (*path, key) not in paths}
    lines = text.splitlines(keepends=True)
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    # A JSON string, number, list or boolean is valid TOML too.
    said = {key: f"{key} = {_value(value)}{end_of_line}" for key, value in keys.items()}
    sections = list(_sections(lines))
    own = next((section for section in sections if section.path == path), None)
    if own is not None:
        _put_into(lines, own, keys, said)
        return "".join(lines)
    block = f"[{'.'.join(_name(name) for name in path)}]{end_of_line}{''.join(said.values())}"
    near = [section.end for section in sections if len(path) > 2 and section.path[:2] == path[:2]]
    if near and near[-1] < len(lines):
        lines.insert(near[-1], f"{end_of_line}{block}")
        return "".join(lines)
    gap = "" if not text else end_of_line if text.endswith("\n") else end_of_line * 2
    return f"{text}{gap}{block}"


def _sections(lines: Sequence[str]) -> Iterator[_Section]:
    """Yield every table with a header."""
    text = "".join(lines)
    within = [range(found.start() + 1, found.end()) for found in _TOKEN.finditer(text) if "\n" in found[0]]
    begins, place = [], 0
    for number, line in enumerate(lines):
        if _HEADER.match(line.removeprefix("\ufeff")) and not any(place in each for each in within):
            begins.append(number)
        place += len(line)
    for begin, after in zip(begins, [*begins, len(lines)][1:], strict=True):
        try:
            named: Any = tomllib.loads(lines[begin].removeprefix("\ufeff"))
        except tomllib.TOMLDecodeError:
            continue
        path: list[str] = []
        while named := named[0] if isinstance(named, list) else named:
            ((name, named),) = named.items()
            path.append(name)
        while _NOTHING.match(lines[after - 1]):
            after -= 1  # comments before a header are about what follows
        yield _Section(tuple(path), begin, after)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_name(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _require_document(text: str, wanted: dict[str, object]) -> str:
    try:
        is_right = read(text) == wanted
    except TomlError:
        is_right = False
    if not is_right:
        raise TomlError("is written in a way that cannot be changed safely")
    return text
