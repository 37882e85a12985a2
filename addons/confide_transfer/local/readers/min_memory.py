"""Reads min-memory: hierarchical memories in a Qdrant collection named `memories`.

The reader accepts the files of qdrant-client's local mode, and the answer of a Qdrant server to a
scroll, saved as JSON. The former is a SQLite table with pickles of the client's own class.

A pickle is a program (https://docs.python.org/3/library/pickle.html), and the store may come from
anyone. So no class of the client is imported or called: its names create an object that stores its
state and does nothing. Besides, a few harmless types that a payload may contain are allowed; at any
other name the point is refused before any of its objects is created.
"""

from __future__ import annotations

import datetime
import io
import json
import pickle
import pickletools
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confide_memory.note import MAX_RELATIONS
from confide_proxy.errors import UnreadableError
from confide_transfer.local.fields import record_of
from confide_transfer.local.formats.sqlite import open_database, tables_of
from confide_transfer.local.import_files import head, is_folder, read_text
from confide_transfer.local.reader import Fields, Losses, MemoryRecord, Reader, kind_of

_COLLECTION = "memories"
_ORDER = ("created_at", "updated_at", "memory_type", "scope", "entity", "project", "task_id", "tags", "status")
_TAKEN = frozenset({"text", "related_to", "relation_types", "deleted"})
STORAGE = "storage.sqlite"
COLUMNS = frozenset({"id", "point"})
MAX_POINT_BYTES = 2**22
"""Limit of one point. A vector of 4,096 numbers takes 37 KB."""
MAX_PARTS = 20_000
"""Limit of values in one payload. In a pickle a list may contain another a hundred times, so a
short pickle can expand a lot.
"""
MAX_DEPTH = 16
_HARMLESS: dict[tuple[str, str], Any] = {
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "date"): datetime.date,
    ("datetime", "time"): datetime.time,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("uuid", "UUID"): uuid.UUID,
    ("collections", "OrderedDict"): OrderedDict,
}
_MEMO = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_OUTSIDE = frozenset({"PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"})
"""Opcodes that refer to data outside the pickle."""


class MinMemoryReader(Reader):
    """The reader of qdrant-client's folder, the collection's folder, or a scroll as JSON."""

    name = "min-memory"
    title = "min-memory (hierarchical memories in Qdrant)"
    stores = (".local/share/mcp-memory/qdrant",)  # its only path before it required a server

    def recognises(self, path: Path) -> bool:
        """Return True if the path has the name and table of the collection's database, or the
        beginning of a scroll as JSON.
        """
        storage = _storage(path)
        if storage is not None:
            return storage.parent.name == _COLLECTION and tables_of(storage).get("points", frozenset()) >= COLUMNS
        start = head(path) if path.suffix == ".json" else b""
        return start.lstrip().startswith(b"{") and b'"points"' in start and b'"payload"' in start

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        storage = _storage(path)
        if storage is None and is_folder(path):
            raise UnreadableError(path, f"has no Qdrant collection named {_COLLECTION}")
        for point in points(storage, losses) if storage is not None else _read_points(path, losses):
            yield from _records(point, losses)


def _storage(path: Path) -> Path | None:
    """Return the database of the collection, or None."""
    if path.name == STORAGE:
        return path
    for folders in ((), ("collection", _COLLECTION), (_COLLECTION,)):
        below = [path.joinpath(*folders[:depth]) for depth in range(len(folders) + 1)]
        if all(is_folder(folder) for folder in below) and (below[-1] / STORAGE).exists():
            return below[-1] / STORAGE
    return None


def _read_points(path: Path, losses: Losses) -> Iterator[Point]:
    """Yield the points in a server's answer,
    https://api.qdrant.tech/api-reference/points/scroll-points.
    """
    try:
        answer = json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise UnreadableError(path, "is no JSON") from None
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, dict) or not isinstance(found := result.get("points"), list):
        raise UnreadableError(path, "is no answer of a Qdrant server to a scroll")
    for number, item in enumerate(found):
        match item:
            case {"id": str() | int() as identity, "payload": dict(payload)}:
                yield Point(str(identity), payload)
            case _:
                losses.add(f"point {number}", "has no id, or no payload")
    if result.get("next_page_offset") is not None:
        losses.add("next_page_offset", "says that the collection has more points than this answer")


def _records(point: Point, losses: Losses) -> Iterator[MemoryRecord]:
    payload = point.payload
    text = payload.get("text")
    if not isinstance(text, str):
        losses.add(point.id, "has no text")
        return
    if payload.get("deleted") is True:
        losses.add(point.id, "was deleted there")
        return
    relations, unmapped = _relations(payload.get("related_to"), payload.get("relation_types"))
    fields = {name: payload[name] for name in _ORDER if name in payload}
    # Its priorities are whole numbers of an unknown scale.
    metadata = {"priority": priority} if isinstance(priority := payload.get("priority"), int | float) else {}
    rest = {name: value for name, value in payload.items() if name not in _TAKEN and name not in metadata}
    yield record_of(
        MinMemoryReader.name, point.id, text, fields | rest, relations=relations, metadata=metadata | unmapped
    )


def _relations(related: Any, kinds: Any) -> tuple[tuple[tuple[str, str], ...], Fields]:
    """Return the relations, and as metadata those without an equivalent kind."""
    stated: Mapping[str, object] = kinds if isinstance(kinds, dict) else {}
    if not isinstance(related, list):
        return (), {name: value for name, value in (("related_to", related), ("relation_types", kinds)) if value}
    found: list[tuple[str, str]] = []
    unmapped: Fields = {}
    for other in dict.fromkeys(str(item) for item in related if isinstance(item, str | int)):
        name = stated.get(other)
        kind, is_same = kind_of(name) if isinstance(name, str) else ("see_also", name is None)
        if len(found) == MAX_RELATIONS:
            unmapped.setdefault("related_to", []).append(other)
            is_same = name is None
        else:
            found.append((kind, other))
        if not is_same:
            unmapped.setdefault("relation_types", {})[other] = name
    return tuple(found), unmapped


class Point(NamedTuple):
    """A memory: its id as text, and the payload of its vector."""

    id: str
    payload: Fields


def points(storage: Path, losses: Losses) -> Iterator[Point]:
    """Yield all points, the latest first; of several rows with one id only the latest, as the
    client does.

    Raise UnreadableError if it is no such database, or all of its points were refused.
    """
    seen: set[str] = set()
    refused: str | None = None
    with open_database(storage, {"points": COLUMNS}) as database:
        # https://github.com/qdrant/qdrant-client, qdrant_client/local/persistence.py
        for row in database.execute("SELECT rowid, point FROM points ORDER BY rowid DESC"):
            try:
                point = read_point(row["point"])
            except ValueError as error:
                refused = f"holds a point that was refused: it {error}"
                losses.add(f"row {row['rowid']}", str(error))
                continue
            if point.id not in seen:
                seen.add(point.id)
                yield point
    if refused is not None and not seen:
        raise UnreadableError(storage, refused, hint="export the collection as JSON and import that: docs/importing.md")


def read_point(data: object) -> Point:
    """Return the point in a pickle, calling nothing except `_HARMLESS` types.

    Raise ValueError if it contains anything else, or is damaged; the message is the end of a
    sentence.
    """
    if not isinstance(data, bytes):
        raise ValueError("is no pickle")
    if len(data) > MAX_POINT_BYTES:
        raise ValueError(f"is larger than {MAX_POINT_BYTES // 2**20} MiB")
    try:
        _check(data)
        found = _Unpickler(io.BytesIO(data)).load()
    except _RefusedError as error:
        raise ValueError(str(error)) from None
    except Exception as error:
        # The harmless types may raise any error for wrong arguments.
        raise ValueError("is damaged") from error
    state = getattr(found, "state", None)
    # pydantic 1 and 2 keep a model's fields there.
    fields = state.get("__dict__") if isinstance(state, Mapping) else None
    if not isinstance(fields, Mapping) or not isinstance(fields.get("id"), str | int | uuid.UUID):
        raise ValueError("is no point")
    payload = fields.get("payload")
    plain = _plain(payload if payload is not None else {}, iter(range(MAX_PARTS)))
    if not isinstance(plain, dict):
        raise ValueError("has a payload that is no object")
    return Point(str(fields["id"]), plain)


class _RefusedError(Exception):
    """A pickle with content that a point does not need."""


class _Inert:
    """Replaces an object of the client's classes; stores its state and does nothing."""

    state: object = None

    def __new__(cls, *_: object, **__: object) -> _Inert:
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if module.split(".", 1)[0] == "qdrant_client" and name in ("PointStruct", "SparseVector"):
            return _Inert
        if (found := _HARMLESS.get((module, name))) is None:
            raise _RefusedError(f"holds {f'{module}.{name}'[:80]!a}, which is not read")
        return found


def _check(data: bytes) -> None:
    """Refuse a pickle that would use too much memory or reach outside, before any object is
    created.
    """
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _OUTSIDE:
            raise _RefusedError("refers to something that is not in it")
        # The memo is an array as long as its highest index.
        if opcode.name in _MEMO and isinstance(argument, int) and argument > len(data):
            raise _RefusedError("is damaged")


def _plain(value: Any, room: Iterator[int], depth: int = MAX_DEPTH) -> Any:
    """Convert an unpickled value to JSON values; each takes one item of `room`."""
    if next(room, None) is None or depth < 0:
        raise ValueError("has a payload of too many parts")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(_plain(key, room, 0)): _plain(item, room, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, room, depth - 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, room, depth - 1) for item in value), key=repr)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta | uuid.UUID):
        return str(value)
    raise ValueError("has a payload with a value that JSON has not")


READER = MinMemoryReader()
