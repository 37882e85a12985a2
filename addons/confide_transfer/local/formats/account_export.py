"""Reads the export of an account that a service sends: a zip, the unpacked folder, or its file of
conversations alone.

Nothing is unpacked to the disk: a file of a zip is read as a stream by its name in the list, which
is never used as a path, and an array is read one element at a time, so that an export of hundreds
of megabytes is never held whole. A conversation becomes a note with all messages, in as many parts
as fit into a document each.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from confide_proxy.errors import UnreadableError
from confide_transfer.local.import_files import head, is_folder, open_plain
from confide_transfer.local.reader import (
    MAX_CONTENT_BYTES,
    MAX_FILES,
    MAX_STORE_BYTES,
    Fields,
    Losses,
    MemoryRecord,
    Reader,
    screen,
)

CONVERSATIONS = re.compile(r"conversations(?:-\d{1,6})?\.json")
"""Names of the conversation files; large exports have several."""
_FOLDERS = ("", "projects/", "memories/")
_MAX_NAMES = 200_000
_MAX_READ_BYTES = 2**26
_MOST_PACKED = 200
"""Limit of a file's compression ratio in a zip: conversations shrink to a fifth, and only a zip
bomb shrinks to less than a hundredth.
"""
_HEAD_BYTES = 65536
MAX_JSON_BYTES = 2**29
"""Limit of one file of an export: 512 MiB."""
MAX_ELEMENT_CHARS = 2**26
"""Limit of one element, such as a conversation."""
_CHUNK_BYTES = 2**20
_SPACE = re.compile(r"[ \t\n\r]*")
TITLE_CHARS = 120
_LOOKED_AT_CHARS = 10_000


class _SmallReads(io.BufferedReader):
    """A file that refuses large reads: zipfile reads the list of a zip whole, and trusts its stated
    size.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        # zipfile reads without a size only the comment at the end, which has at most 64 KiB.
        if size is not None and size > _MAX_READ_BYTES:
            raise zipfile.BadZipFile("a list of files that is too large")
        return super().read(size)


class AccountExport(ExitStack):
    """The JSON files of an export by their names, readable while the context lasts."""

    def __init__(self, path: Path) -> None:
        """Open an export. Raise UnreadableError if it is not a zip, folder or file, or the zip is
        damaged.
        """
        super().__init__()
        self._path = path
        self._openers: dict[str, Callable[[], BinaryIO]] = {}
        if is_folder(path):
            for folder in _FOLDERS:
                if not is_folder(path / folder):
                    continue
                for file in sorted((path / folder).glob("*.json"))[:MAX_FILES]:
                    self._openers[folder + file.name] = lambda file=file: open_plain(file, limit=MAX_JSON_BYTES)  # type: ignore[misc]
        elif head(path, 4) in (b"PK\x03\x04", b"PK\x05\x06"):
            self._open_zip()
        else:
            open_plain(path, limit=MAX_JSON_BYTES).close()
            name = path.name if CONVERSATIONS.fullmatch(path.name) else "conversations.json"
            self._openers[name] = lambda: open_plain(path, limit=MAX_JSON_BYTES)

    def names(self, wanted: re.Pattern[str]) -> list[str]:
        """Return the names of files that match the whole pattern, sorted."""
        return sorted(name for name in self._openers if wanted.fullmatch(name))

    def has_conversations(self, messages: bytes) -> bool:
        """Return True if the first conversation has its messages under this name."""
        begin = next((self.begin(name) for name in self.names(CONVERSATIONS)), b"")
        found = re.search(rb'"(mapping|chat_messages)"\s*:', begin)
        return found is not None and found[1] == messages

    def begin(self, name: str) -> bytes:
        """Return the first bytes of a file, or b"" if it is missing or unreadable."""
        try:
            with self._open(name) as file:
                return file.read(_HEAD_BYTES)
        except (BrokenJsonError, UnreadableError, OSError, KeyError):
            return b""

    def elements(self, wanted: re.Pattern[str], losses: Losses) -> Iterator[Fields]:
        """Yield the objects in the arrays of the matching files; report damaged ones to `losses`."""
        for name in self.names(wanted):
            number = 0
            try:
                with self._open(name) as file:
                    for number, element in enumerate(elements(file), 1):
                        if isinstance(element, dict):
                            yield element
                        else:
                            losses.add(f"{name}, element {number}", "is no object")
            except (BrokenJsonError, UnreadableError) as error:
                problem = str(error).rpartition(": it ")[2]
                losses.add(name, f"{problem}, after {number:,} of its elements" if number else problem)

    @contextmanager
    def _open(self, name: str) -> Iterator[BinaryIO]:
        try:
            with self._openers[name]() as file:
                yield file
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise BrokenJsonError("is damaged in the zip") from error
        except (NotImplementedError, RuntimeError) as error:
            raise BrokenJsonError("is encrypted, or packed in a way that is not known here") from error
        except OSError as error:
            raise BrokenJsonError(f"cannot be read: {error.strerror}") from error

    def _open_zip(self) -> None:
        file = open_plain(self._path, limit=MAX_STORE_BYTES)
        assert isinstance(file, io.BufferedReader)
        with ExitStack() as stack:
            try:
                packed = stack.enter_context(zipfile.ZipFile(stack.enter_context(_SmallReads(file.detach()))))
            except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
                raise UnreadableError(self._path, "is a damaged zip", hint="download it again") from error
            found = packed.infolist()
            if len(found) > _MAX_NAMES:
                raise UnreadableError(self._path, f"holds more than {_MAX_NAMES:,} files")
            self.push(stack.pop_all())
        root = _root([info.filename for info in found])
        for info in found:
            name = info.filename.removeprefix(root)
            if not info.filename.startswith(root) or not name.endswith(".json"):
                continue
            if name.rpartition("/")[0] + "/" in _FOLDERS or "/" not in name:
                self._openers[name] = lambda info=info: _member(packed, info)  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class AccountReader(Reader):
    """The reader of one service's export.

    Attributes:
        sender: name of the service for users.
        messages: name of a conversation's messages, which identifies the service.
        records: function that yields the memories of an export.
        others: files to read besides conversations; in an export without conversations, `mark`
            in the first of them identifies the service.
    """

    name: str
    title: str
    sender: str
    messages: bytes
    records: Callable[[AccountExport, Path, Losses], Iterator[MemoryRecord]]
    others: tuple[re.Pattern[str], ...] = ()
    mark: bytes = b""

    def recognises(self, path: Path) -> bool:
        try:
            with AccountExport(path) as export:
                marked = [name for wanted in self.others[:1] for name in export.names(wanted)[:1]]
                return export.has_conversations(self.messages) or any(
                    self.mark in export.begin(name) for name in marked
                )
        except (UnreadableError, OSError, ValueError):
            return False

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        with AccountExport(path) as export:
            if not any(export.names(wanted) for wanted in (CONVERSATIONS, *self.others)):
                hint = f"name the zip that {self.sender} sent"
                raise UnreadableError(path, "holds no conversations.json", hint=hint)
            yield from screen(self.records(export, path, losses), losses)


def _member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    if info.file_size > MAX_JSON_BYTES:
        raise BrokenJsonError(f"is larger than {MAX_JSON_BYTES // 2**20} MiB")
    if info.file_size > max(2**20, _MOST_PACKED * info.compress_size):
        raise BrokenJsonError(f"is packed to less than a {_MOST_PACKED}th, as a zip bomb is")
    return packed.open(info)  # type: ignore[return-value]


def _root(names: list[str]) -> str:
    """Return the folder in the zip that has the export: "", or the folder that a user packed again."""
    known = re.compile(rf"{CONVERSATIONS.pattern}|memories\.json|projects\.json|users?\.json")
    roots = [
        str(path.parent) + "/" if len(path.parts) > 1 else ""
        for name in names
        if known.fullmatch((path := PurePosixPath(name)).name)
        and len(path.parts) <= 2
        and path.parts[0] not in ("__MACOSX", "..", "/")
    ]
    return min(roots, key=lambda root: (root.count("/"), root), default="")


class BrokenJsonError(ValueError):
    """An unreadable JSON file. The message is the end of a sentence for users."""


def elements(file: BinaryIO) -> Iterator[Any]:
    """Yield the elements of the array in a file, or the single value if it is not an array.

    Raise BrokenJsonError after the readable elements if the rest is not UTF-8 or JSON, cut off,
    nested too deeply, or too large.
    """
    text = _Text(file)
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
    """A window of the file, which moves while values are parsed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._room = MAX_JSON_BYTES
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        # JSON has no NaN, and the protocol's messages cannot carry it.
        self._json = json.JSONDecoder(parse_constant=lambda _: None)
        self._text = ""
        self._is_whole = False
        self._has_begun = False
        self.position = 0

    def next_character(self) -> str:
        """Return the next character that is not white space, "" at the end of the file."""
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
        """Parse the value at the next character."""
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
            except ValueError:  # a number with thousands of digits
                raise BrokenJsonError("holds a number that is too long") from None
            else:
                # A number may continue in the part that is not read yet.
                if self._is_whole or end < len(self._text):
                    self.position = end
                    return value
            have = len(self._text) - self.position
            if have > MAX_ELEMENT_CHARS:
                raise BrokenJsonError(f"holds an element larger than {MAX_ELEMENT_CHARS // 2**20} MiB, or is not JSON")
            # Doubles the text each time, so that repeated parsing costs no more than reading twice.
            self._more(max(_CHUNK_BYTES, have))

    def _more(self, size: int) -> None:
        data = self._file.read(min(size, self._room + 1))
        self._room -= len(data)
        if self._room < 0:
            raise BrokenJsonError(f"is larger than {MAX_JSON_BYTES // 2**20} MiB")
        self._is_whole = not data
        try:
            added = self._utf8.decode(data, final=not data)
        except UnicodeDecodeError:
            raise BrokenJsonError("is not UTF-8 text") from None
        self._text, self.position = self._text[self.position :] + added, 0


def table(item: Mapping[str, object], name: str) -> Fields:
    """Return the object under this name, or an empty object if there is none."""
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def rows(item: Mapping[str, object], name: str) -> list[Fields]:
    """Return the objects in the list of this name, or an empty list."""
    value = item.get(name)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def dialogue(turns: Iterable[tuple[str, str]]) -> str:
    """Write turns of (speaker, text) as markdown; consecutive turns of one speaker share one name."""
    parts: list[str] = []
    last = ""
    for who, text in turns:
        if not text.strip():
            continue
        parts.append(text.strip() if who == last else f"**{who}:**\n\n{text.strip()}")
        last = who
    return "\n\n".join(parts)


def first_line(text: str) -> str | None:
    """Return the first line of a text, as a title for a conversation without one; None if there is
    no text.
    """
    line = next(
        (
            line.strip(" #*>`")
            for line in text[:_LOOKED_AT_CHARS].splitlines()
            if line.strip(" #*>`") and line[:2] != "**"
        ),
        "",
    )
    return (line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…") or None


def split_record(record: MemoryRecord) -> Iterator[MemoryRecord]:
    """Yield the record, in parts if it is too large for one document. Later parts have a `part_of`
    relation to the first.
    """
    for number, piece in enumerate(_pieces(record.content), 1):
        if number == 1:
            yield replace(record, content=piece)
        else:
            yield replace(
                record,
                origin=f"{record.origin}#{number}",
                content=piece,
                title=f"{record.title} ({number})" if record.title else None,
                relations=(("part_of", record.origin),),
            )


def _pieces(text: str) -> Iterator[str]:
    """Cut a text at the end of a paragraph, a line or a word."""
    begin = 0
    while begin < len(text):
        end = min(len(text), begin + MAX_CONTENT_BYTES)
        while (over := len(text[begin:end].encode("utf-8", "replace")) - MAX_CONTENT_BYTES) > 0:
            end -= max(1, over // 4)  # a character takes four bytes at most
        if end < len(text):
            half = begin + (end - begin) // 2
            cuts = (text.rfind(mark, half, end) for mark in ("\n\n", "\n", " "))
            end = next((cut + 1 for cut in cuts if cut >= 0), end)
        if text[begin:end].strip():
            yield text[begin:end].strip("\n")
        begin = end
