"""Editing of JSON with comments that keeps everything else: comments, indents, unusual escapes and
line ends.

Users and clients write these files. To parse a file and write it again would lose its formatting.
So a change is made in the text. The changed text is parsed again, and must have the wanted content.
Does no I/O.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

MOST_DEPTH: Final = 200
_BLANKS: Final = "\ufeff \t\r\n"
_TRIVIA: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE: Final = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/))*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_INDENT: Final = re.compile(r"^([ \t]+)\"", re.MULTILINE)
_STRINGS: Final = json.JSONDecoder()
_WORDS: Final = {"true": True, "false": False, "null": None}

Path = Sequence[str]


class JsoncError(ValueError):
    """The text is not JSON with comments, or does not contain the value that was to be changed."""


@dataclass(frozen=True, slots=True)
class Value:
    """A parsed value with its span in the text; its members or items are in the text's order."""

    start: int
    end: int
    plain: Any
    children: tuple[Child, ...] = ()

    def member(self, key: str) -> Value | None:
        """Return the value of a key of this object, or None. If the key is repeated, return its
        last value, as every parser does.
        """
        return next((child.value for child in reversed(self.children) if child.key == key), None)


@dataclass(frozen=True, slots=True)
class Child:
    """A member of an object, or an item of a list.

    Attributes:
        key: the member's key; None for an item.
        start: the position in the text of the key or the item.
    """

    start: int
    key: str | None
    value: Value


def read(text: str) -> Any:
    """Parse the text; an empty text counts as an empty object. Raises JsoncError if it is not JSON
    with comments.
    """
    return _JsonReader(text).whole().plain if text.strip(_BLANKS) else {}


def is_plain(text: str) -> bool:
    """Return True if the text is valid JSON without comments."""
    try:
        json.loads(text.lstrip("\ufeff") if text.strip(_BLANKS) else "{}")
    except (ValueError, RecursionError):
        return False
    return True


def at(document: Any, path: Path) -> Any:
    """Return the value at a path of keys in a parsed document, or None."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def put(text: str, path: Path, value: Any) -> str:
    """Return the text with the value set at the path. Missing objects are created. Raises
    JsoncError if that is not possible.
    """
    text = text if text.strip(_BLANKS) else "{}\n"
    root = _JsonReader(text).whole()
    for length in range(1, len(path)):
        holder = at(root.plain, path[: length - 1])
        if isinstance(holder, dict) and path[length - 1] in holder and holder[path[length - 1]] is None:
            for key in reversed(path[length:]):  # clients write null for an empty object
                value = {key: value}
            return put(text, path[:length], value)
    wanted = _with(root.plain, path, value)
    holder, rest = root, list(path)
    while len(rest) > 1 and (inner := holder.member(rest[0])) is not None:
        holder, rest = inner, rest[1:]
    old = holder.member(rest[0])
    if old is not None:
        shown = _format_value(text, value, _margin(text, old.start), is_flat="\n" not in text[old.start : old.end])
        return _require_document(f"{text[: old.start]}{shown}{text[old.end :]}", wanted)
    for key in reversed(rest[1:]):
        value = {key: value}
    return _require_document(_add_child(text, holder, rest[0], value), wanted)


def drop(text: str, path: Path) -> str:
    """Return the text without the value at the path, and without objects that become empty and
    contain no comments. Raises JsoncError if that is not possible.
    """
    document = read(text)
    holder = at(document, path[:-1])
    if not isinstance(holder, dict) or path[-1] not in holder:
        return text
    reader = _JsonReader(text)
    root = reader.whole()
    while len(path) > 1 and len(at(document, path[:-1])) == 1 and not reader.has_comment(_place(root, path[:-1])):
        path = path[:-1]
    wanted = copy.deepcopy(document)
    del at(wanted, path[:-1])[path[-1]]
    return _require_document(_without(text, _place(root, path[:-1]), lambda child: child.key == path[-1]), wanted)


def extend(text: str, path: Path, items: Sequence[Any]) -> str:
    """Return the text with the items appended to the list at the path. Raises JsoncError if that is
    not possible.
    """
    for item in items:
        document = read(text)
        found = at(document, path)
        if found is None:
            text = put(text, path, [item])
        elif not isinstance(found, list):
            raise JsoncError(f"does not hold a list of {path[-1]}")
        elif item not in found:
            place = _place(_JsonReader(text).whole(), path)
            text = _require_document(_add_child(text, place, None, item), _with(document, path, [*found, item]))
    return text


def cut(text: str, path: Path, is_meant: Callable[[Any], bool]) -> str:
    """Return the text without those items of the list at the path for which `is_meant` returns
    True; without the list if it becomes empty. Raises JsoncError if that is not possible.
    """
    document = read(text)
    found = at(document, path)
    if not isinstance(found, list) or not any(map(is_meant, found)):
        return text
    left = [item for item in found if not is_meant(item)]
    if not left:
        return drop(text, path)
    place = _place(_JsonReader(text).whole(), path)
    return _require_document(
        _without(text, place, lambda child: is_meant(child.value.plain)), _with(document, path, left)
    )


def _place(root: Value, path: Path) -> Value:
    """Return the value at a path, which must exist."""
    for key in path:
        inner = root.member(key)
        assert inner is not None, key
        root = inner
    return root


def _with(document: Any, path: Path, value: Any) -> Any:
    """Return a copy of the document with the value at the path. Raises JsoncError if a value on the
    path isn't an object.
    """
    document = copy.deepcopy(document)
    holder = document
    for key, inner in zip(path, [*path[1:], None], strict=True):
        if not isinstance(holder, dict):
            raise JsoncError(f"does not hold an object around {key}")
        if inner is None:
            holder[key] = copy.deepcopy(value)
        else:
            holder = holder.setdefault(key, {})
    return document


def _require_document(text: str, wanted: Any) -> str:
    """Check that a changed text parses to the wanted document."""
    if read(text) != wanted:
        raise JsoncError("is written in a way that cannot be changed safely")
    return text


def _add_child(text: str, holder: Value, key: str | None, value: Any) -> str:
    """Return the text with another child at the end of an object or a list."""
    name = "" if key is None else f"{json.dumps(key)}: "
    last = holder.children[-1] if holder.children else None
    comma = _comma(text, last.value.end) if last else None
    if last and "\n" not in text[holder.start : holder.end]:
        spot = last.value.end if comma is None else comma + 1
        shown = f"{name}{json.dumps(value)}"
        return f"{text[:spot]}{', ' if comma is None else ' '}{shown}{'' if comma is None else ','}{text[spot:]}"
    line = "\r\n" if "\r\n" in text else "\n"
    outer = _margin(text, holder.start)
    inner = _margin(text, last.start) if last and _begins_line(text, last.start) else outer + _unit(text)
    shown = f"{line}{inner}{name}{_format_value(text, value, inner)}"
    if last is None:
        spot = holder.start + 1 + len(text[holder.start + 1 : holder.end - 1].rstrip())
        close = "" if "\n" in text[spot : holder.end - 1] else line + outer
        return f"{text[:spot]}{shown}{close}{text[spot:] if not close else text[holder.end - 1 :]}"
    begin = last.value.end if comma is None else comma + 1
    # A comment at the end of the last child's line stays with that child.
    spot = _match_end(_REST_OF_LINE, text, begin)
    if comma is None:
        return f"{text[:begin]},{text[begin:spot]}{shown}{text[spot:]}"
    return f"{text[:spot]}{shown},{text[spot:]}"


def _without(text: str, holder: Value, is_meant: Callable[[Child], bool]) -> str:
    """Return the text without some children of an object or list, removed from the last to the
    first so that positions stay valid.
    """
    children = list(holder.children)
    for index in reversed(range(len(children))):
        child = children[index]
        if not is_meant(child):
            continue
        begin, end = child.start, child.value.end
        comma = _comma(text, end)
        end = end if comma is None else comma + 1
        if _begins_line(text, begin) and text[end : _line_end(text, end)].strip() == "":
            begin, end = _line_start(text, begin), _line_end(text, end)
            begin -= 0 if begin == 0 else 2 if text[begin - 2 : begin] == "\r\n" else 1
        elif comma is not None:
            end += len(text[end:]) - len(text[end:].lstrip(" \t"))
        text = f"{text[:begin]}{text[end:]}"
        if comma is None and index:
            before = _comma(text, children[index - 1].value.end)
            assert before is not None
            gap = len(text[before + 1 :]) - len(text[before + 1 :].lstrip(" \t"))
            is_flat = text[before + 1 + gap : before + 2 + gap] in ("}", "]")
            text = f"{text[:before]}{text[before + 1 + (gap if is_flat else 0) :]}"
        del children[index]
    if not children:
        close = _JsonReader(text).end_of(holder.start) - 1
        if text[holder.start + 1 : close].strip() == "":
            text = f"{text[: holder.start + 1]}{text[close:]}"
    return text


def _format_value(text: str, value: Any, margin: str, *, is_flat: bool = False) -> str:
    """Return a value in the text's format; in ASCII, so that it is correct in any encoding of the
    file.
    """
    if is_flat:
        return json.dumps(value)
    line = "\r\n" if "\r\n" in text else "\n"
    return json.dumps(value, indent=_unit(text)).replace("\n", line + margin)


def _unit(text: str) -> str:
    """Return one level of the text's indentation."""
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _line_start(text: str, place: int) -> int:
    return text.rfind("\n", 0, place) + 1


def _line_end(text: str, place: int) -> int:
    """Return the end of the line at a position, before its line break."""
    end = text.find("\n", place)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1 : end] == "\r" and end > place else end


def _begins_line(text: str, place: int) -> bool:
    return text[_line_start(text, place) : place].strip(_BLANKS) == ""


def _margin(text: str, place: int) -> str:
    """Return the indentation of the line at a position."""
    line = text[_line_start(text, place) : place].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _comma(text: str, place: int) -> int | None:
    """Return the position of the comma after a value and any comments, or None."""
    end = _match_end(_TRIVIA, text, place)
    return end if text[end : end + 1] == "," else None


def _match_end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place


class _JsonReader:
    """A parser that records the position of every value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._comments: list[int] = []

    def whole(self) -> Value:
        """Parse the whole text. Raises JsoncError."""
        value = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._wrong()
        return value

    def end_of(self, place: int) -> int:
        """Return the end of the value that begins at a position."""
        self._at = place
        return self._value(0).end

    def has_comment(self, value: Value) -> bool:
        """Return True if a comment is inside the value; call `whole` before."""
        return any(value.start < place < value.end for place in self._comments)

    def _skip(self) -> None:
        end = _match_end(_TRIVIA, self._text, self._at)
        if "/" in self._text[self._at : end]:
            self._comments.append(self._at + self._text[self._at : end].index("/"))
        self._at = end

    def _value(self, depth: int) -> Value:
        self._skip()
        start, first = self._at, self._text[self._at : self._at + 1]
        if depth > MOST_DEPTH:
            raise self._wrong()
        if first in ("{", "["):
            return self._children(start, "}" if first == "{" else "]", depth)
        if first == '"':
            said = self._string()
            return Value(start, self._at, said)
        if (number := _NUMBER.match(self._text, start)) is not None and number.end() > start:
            self._at = number.end()
            is_whole = number[1] is None and number[2] is None
            try:
                return Value(start, self._at, int(number[0]) if is_whole else float(number[0]))
            except ValueError:  # of thousands of digits
                raise self._wrong() from None
        for word, plain in _WORDS.items():
            if self._text.startswith(word, start):
                self._at += len(word)
                return Value(start, self._at, plain)
        raise self._wrong()

    def _children(self, start: int, close: str, depth: int) -> Value:
        """Parse an object or a list. A trailing comma is accepted, as clients that read comments
        do.
        """
        self._at += 1
        found: list[Child] = []
        while True:
            self._skip()
            if self._text.startswith(close, self._at):
                break
            begin, key = self._at, None
            if close == "}":
                if not self._text.startswith('"', begin):
                    raise self._wrong()
                key = self._string()
                self._skip()
                self._take(":")
            found.append(Child(begin, key, self._value(depth + 1)))
            self._skip()
            if not self._text.startswith(close, self._at):
                self._take(",")
        self._at += 1
        values = [child.value.plain for child in found]
        plain = {child.key: child.value.plain for child in found} if close == "}" else values
        return Value(start, self._at, plain, tuple(found))

    def _string(self) -> str:
        try:
            plain, self._at = _STRINGS.raw_decode(self._text, self._at)
        except ValueError:
            raise self._wrong() from None
        return str(plain)

    def _take(self, sign: str) -> None:
        if not self._text.startswith(sign, self._at):
            raise self._wrong()
        self._at += 1

    def _wrong(self) -> JsoncError:
        return JsoncError(f"is not readable as JSON (line {self._text.count(chr(10), 0, self._at) + 1})")
