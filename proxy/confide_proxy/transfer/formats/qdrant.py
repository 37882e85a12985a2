"""The points of a collection that qdrant-client keeps in its local mode: a SQLite table whose values are pickles of its own class.

A pickle is a program (https://docs.python.org/3/library/pickle.html), and the store may be anybody's. So no class of the client is
imported, and none is called: its names give an object that keeps what it is handed and does nothing. Beside them there are the few types
that a payload may hold and that cannot do harm; at any other name the point is refused before anything of it was made.
"""

from __future__ import annotations

import datetime
import io
import pickle
import pickletools
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confide_proxy.errors import UnreadableError
from confide_proxy.transfer.formats.sqlite import opened
from confide_proxy.transfer.reader import Losses

STORAGE = "storage.sqlite"
COLUMNS = frozenset({"id", "point"})
MAX_POINT_BYTES = 2**22
"""Of one point. A vector of 4,096 numbers takes 37 KB."""
MAX_PARTS = 20_000
"""Values in one payload. In a pickle a list may hold another one a hundred times over, so a short one can say a great deal."""
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
"""What takes something that is not in the pickle."""


class Point(NamedTuple):
    """One memory: its id as text, and what is stored with its vector."""

    id: str
    payload: dict[str, Any]


def points(storage: Path, losses: Losses) -> Iterator[Point]:
    """All points, the latest first; of several rows with one id only the latest, as the client has it.

    Raises:
        UnreadableError: it is no such database, or there are points and every one of them was refused.
    """
    seen: set[str] = set()
    refused: str | None = None
    with opened(storage, {"points": COLUMNS}) as database:
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
    """The point in a pickle, without a call of anything but `_HARMLESS`.

    Raises:
        ValueError: it holds something else, or is damaged; the text is the end of a sentence.
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
        # Whatever the harmless types make of arguments that were never theirs.
        raise ValueError("is damaged") from error
    state = getattr(found, "state", None)
    # pydantic keeps a model's fields there, 1 and 2 alike.
    fields = state.get("__dict__") if isinstance(state, Mapping) else None
    if not isinstance(fields, Mapping) or not isinstance(fields.get("id"), str | int | uuid.UUID):
        raise ValueError("is no point")
    payload = fields.get("payload")
    plain = _Plain().of(payload if payload is not None else {})
    if not isinstance(plain, dict):
        raise ValueError("has a payload that is no object")
    return Point(str(fields["id"]), plain)


class _RefusedError(Exception):
    """The pickle asks for what a point has no need of."""


class _Inert:
    """In place of an object of the client's."""

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
    """Refuses what would take memory or reach outside before any object is made."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _OUTSIDE:
            raise _RefusedError("refers to something that is not in it")
        # The memo is an array, made as long as the highest place that is named.
        if opcode.name in _MEMO and isinstance(argument, int) and argument > len(data):
            raise _RefusedError("is damaged")


class _Plain:
    """Turns what was unpickled into JSON values, up to a number of them."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def of(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        self._left -= 1
        if self._left < 0 or depth < 0:
            raise ValueError("has a payload of too many parts")
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {str(self.of(key, 0)): self.of(item, depth - 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(item, depth - 1) for item in value]
        if isinstance(value, set | frozenset):
            return sorted((self.of(item, depth - 1) for item in value), key=repr)
        if isinstance(value, datetime.datetime | datetime.date | datetime.time):
            return value.isoformat()
        if isinstance(value, datetime.timedelta | uuid.UUID):
            return str(value)
        raise ValueError("has a payload with a value that JSON has not")
