"""A record as the daemon takes it: within the limits of a note, with what does not fit kept in the metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from confide_proxy.importing.fields import as_json
from confide_proxy.importing.record import NOTE_ID, Record, slug
from confide_proxy.importing.relation_kinds import kind_of

# As the daemon has them (confide_daemon.notes.note).
MAX_TITLE = 200
MAX_WORD = 100
MAX_ENTRIES = 32
MAX_RELATIONS = 64
MAX_METADATA_BYTES = 16 * 1024 - 256
LEVELS = ("core", "high", "normal", "low")
_TASK_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_CUT_CHARS = 500

Ids = Mapping[tuple[str, str], str]
"""The ids of the notes that the records of (system, origin) become."""


def fitted(record: Record, ids: Ids, file: str) -> dict[str, Any]:
    """The body of one note in the request `import`.

    Args:
        file: the store that it was read from, as a person knows it.
    """
    metadata = {
        f"{record.system}.{key}" if key == "origin" else str(key): value for key, value in record.metadata.items()
    }
    note: dict[str, Any] = {"id": record.note_id, "content": _clean(record.content)}
    title = _line(record.title)
    if title and len(title) > MAX_TITLE:
        title = title[: MAX_TITLE - 1].rstrip() + "…"
    note["title"] = title
    for name in ("type", "category", "entity", "source", "status"):
        note[name] = _word(name, getattr(record, name), metadata)
    note["tags"] = _words("tags", record.tags, metadata)
    note["keywords"] = _words("keywords", record.keywords, metadata)
    note["importance"] = _importance(record.importance, metadata)
    note["taskId"] = _task(record, metadata)
    note["created"], note["updated"] = record.created, record.updated
    note["relations"] = _relations(record, ids, metadata)
    own = {"system": record.system, "id": _clean(record.origin)[:400], "file": _clean(file)}
    note["metadata"] = {**_bounded(as_json(metadata)), "origin": own}
    return {name: value for name, value in note.items() if value not in (None, [], ())}


def project_of(record: Record, here: str) -> str:
    """The project that a record belongs to, where `here` is the one that is imported into: its name may be written in short."""
    if record.scope == "global":
        return "global"
    name = "".join(letter for letter in _line(record.project) or "" if letter.isprintable())
    name = name.encode()[:200].decode("utf-8", "ignore").strip().rstrip("/")
    is_this = name.rpartition("/")[2].casefold() == here.rpartition("/")[2].casefold()
    return here if not name or is_this else name


def _line(text: str | None) -> str | None:
    """The text on one line, without what cannot be printed."""
    words = " ".join(_clean(text or "").split())
    return "".join(letter for letter in words if letter.isprintable()) or None


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _word(name: str, value: str | None, metadata: dict[str, Any]) -> str | None:
    word = _line(value)
    if word is not None and len(word) > MAX_WORD:
        metadata.setdefault(name, value)
        return None
    return word


def _words(name: str, values: tuple[str, ...], metadata: dict[str, Any]) -> list[str]:
    lines = [_line(value) for value in values]
    fit = list(dict.fromkeys(word for word in lines if word is not None and len(word) <= MAX_WORD))
    if len(fit) > MAX_ENTRIES or any(word is not None and len(word) > MAX_WORD for word in lines):
        metadata.setdefault(name, list(values))
    return fit[:MAX_ENTRIES]


def _importance(value: float | str | None, metadata: dict[str, Any]) -> float | str | None:
    if isinstance(value, str) and value.lower() in LEVELS:
        return value.lower()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return value
    if value is not None:
        metadata.setdefault("importance", value)
    return None


def _task(record: Record, metadata: dict[str, Any]) -> str | None:
    if record.task_id is None or record.scope not in (None, "task"):
        return None
    if _TASK_ID.fullmatch(record.task_id):
        return record.task_id
    metadata.setdefault("taskId", record.task_id)
    return slug(record.task_id) or None


def _relations(record: Record, ids: Ids, metadata: dict[str, Any]) -> list[dict[str, str]]:
    """Those to memories that are imported too, or to notes; others are kept as the other system has them."""
    found: list[dict[str, str]] = []
    rest: list[dict[str, str]] = []
    for kind, origin in dict.fromkeys(record.relations):
        other = ids.get((record.system, origin)) or (origin if NOTE_ID.fullmatch(origin) else None)
        if (
            other is not None
            and kind_of(kind) == (kind, True)
            and other != record.note_id
            and len(found) < MAX_RELATIONS
        ):
            found.append({"relation": kind, "id": other})
        else:
            rest.append({"relation": kind, "origin": origin})
    if rest:
        metadata.setdefault("relations", rest)
    return found


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata within its limit: the largest values are cut first, and say so by their end."""
    sizes = {key: _size(value) + len(key.encode()) + 8 for key, value in metadata.items()}
    while sum(sizes.values()) > MAX_METADATA_BYTES - 1024 and sizes:
        largest = max(sizes, key=lambda key: sizes[key])
        value = metadata[largest]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(text) <= _CUT_CHARS:
            del metadata[largest], sizes[largest]  # thousands of small ones
            continue
        metadata[largest] = text[: _CUT_CHARS - 1] + "…"
        sizes[largest] = _size(metadata[largest]) + len(largest.encode()) + 8
    return metadata


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
