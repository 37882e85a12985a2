"""min-memory: hierarchical memories in a Qdrant collection named `memories`.

Read is what qdrant-client keeps in its local mode, and the answer of a Qdrant server to a scroll, saved as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confide_memory.note import MAX_RELATIONS
from confide_proxy.errors import UnreadableError
from confide_proxy.transfer.fields import record_of
from confide_proxy.transfer.files import head, is_folder, read_text
from confide_proxy.transfer.formats.qdrant import COLUMNS, STORAGE, Point, points
from confide_proxy.transfer.formats.sqlite import tables_of
from confide_proxy.transfer.reader import Losses, Reader
from confide_proxy.transfer.record import Record, kind_of

_COLLECTION = "memories"
_ORDER = ("created_at", "updated_at", "memory_type", "scope", "entity", "project", "task_id", "tags", "status")
_TAKEN = frozenset({"text", "related_to", "relation_types", "deleted"})


class MinMemoryReader(Reader):
    """The folder that qdrant-client was given, that of the collection, or a scroll as JSON."""

    name = "min-memory"
    title = "min-memory (hierarchical memories in Qdrant)"

    def recognises(self, path: Path) -> bool:
        """By the place of the collection's database and its table, or by how a scroll begins."""
        storage = _storage(path)
        if storage is not None:
            return storage.parent.name == _COLLECTION and tables_of(storage).get("points", frozenset()) >= COLUMNS
        start = head(path) if path.suffix == ".json" else b""
        return start.lstrip().startswith(b"{") and b'"points"' in start and b'"payload"' in start

    def places(self, home: Path) -> list[Path]:
        """The one place where it was before it asked for a server."""
        return [home / ".local" / "share" / "mcp-memory" / "qdrant"]

    def read(self, path: Path, losses: Losses) -> Iterator[Record]:
        """See `Reader.read`."""
        storage = _storage(path)
        if storage is None and is_folder(path):
            raise UnreadableError(path, f"has no Qdrant collection named {_COLLECTION}")
        for point in points(storage, losses) if storage is not None else _scrolled(path, losses):
            yield from _records(point, losses)


def _storage(path: Path) -> Path | None:
    """The database of the collection, None where there is none."""
    if path.name == STORAGE:
        return path
    for folders in ((), ("collection", _COLLECTION), (_COLLECTION,)):
        below = [path.joinpath(*folders[:depth]) for depth in range(len(folders) + 1)]
        if all(is_folder(folder) for folder in below) and (below[-1] / STORAGE).exists():
            return below[-1] / STORAGE
    return None


def _scrolled(path: Path, losses: Losses) -> Iterator[Point]:
    """The points in a server's answer, https://api.qdrant.tech/api-reference/points/scroll-points."""
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


def _records(point: Point, losses: Losses) -> Iterator[Record]:
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
    # Its priorities are whole numbers of a scale that nobody has told.
    metadata = {"priority": priority} if isinstance(priority := payload.get("priority"), int | float) else {}
    rest = {name: value for name, value in payload.items() if name not in _TAKEN and name not in metadata}
    yield record_of(
        MinMemoryReader.name, point.id, text, fields | rest, relations=relations, metadata=metadata | unmapped
    )


def _relations(related: Any, kinds: Any) -> tuple[tuple[tuple[str, str], ...], dict[str, Any]]:
    """The relations, and what of them has no kind of its own here, as it was stated."""
    stated: Mapping[str, Any] = kinds if isinstance(kinds, dict) else {}
    if not isinstance(related, list):
        return (), {name: value for name, value in (("related_to", related), ("relation_types", kinds)) if value}
    found: list[tuple[str, str]] = []
    unmapped: dict[str, Any] = {}
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


READER = MinMemoryReader()
