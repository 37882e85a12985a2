"""Reads a note's fields under the many names that people and programs use, and writes them in the
form that the daemon expects.

Fields that are unknown, have an impossible value or are too long stay in the metadata under their
own names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from confide_memory.documents import parse_time
from confide_memory.note import IMPORTANCE, MAX_METADATA_BYTES, MAX_RELATIONS, MAX_TAGS, MAX_WORD, SCOPES
from confide_memory.note_names import ID, MAX_TITLE, TASK_ID
from confide_transfer.local.reader import Fields, MemoryRecord, kind_of, slug

_NAMES: dict[str, tuple[str, ...]] = {
    "title": ("title", "name", "subject", "summary"),
    "project": ("project", "projectname"),
    "scope": ("scope",),
    "task_id": ("taskid",),
    "type": ("type", "memorytype", "kind"),
    "category": ("category",),
    "entity": ("entity", "entityname"),
    "tags": ("tags", "labels", "tag"),
    "importance": ("importance", "priority"),
    "keywords": ("keywords", "aliases", "alias"),
    "source": ("source",),
    "status": ("status",),
    "created": ("created", "createdat", "date", "timestamp"),
    "updated": ("updated", "updatedat", "modified", "modifiedat", "lastmodified", "lastupdated"),
}
_FIELD_OF = {name: field for field, names in _NAMES.items() for name in names}
_LEVELS = {"core": "core", "critical": "core", "high": "high", "normal": "normal", "medium": "normal", "low": "low"}
MAX_TEXT_CHARS = 200
_MILLISECONDS = 10**11
"""Times above this are in milliseconds: as seconds they would be after the year 5000."""
_ORIGIN_BYTES = 256
"""Bytes of the metadata that are reserved for the record's origin."""
_CUT_CHARS = 500

Ids = Mapping[tuple[str, str], str]
"""Maps (system, origin) of a record to the id of its note."""


def record_of(system: str, origin: str, content: str, fields: Mapping[str, object], **usual: Any) -> MemoryRecord:
    """Build a record from a text and its fields; `usual` has the values for fields that are
    missing.
    """
    known: Fields = {}
    metadata: Fields = {}
    relations: tuple[tuple[str, str], ...] = ()
    for key, value in fields.items():
        if value is None or value == "":
            continue
        plain = re.sub(r"[^a-z]", "", key.lower())
        if plain == "metadata" and isinstance(value, Mapping):
            metadata = {str(name): item for name, item in value.items()} | metadata
            continue
        if plain in ("relations", "relatedto"):
            relations, rest = _relations(value)
            metadata |= {key: rest} if rest else {}
            continue
        field = _FIELD_OF.get(plain)
        mapped = None if field is None or field in known else _map_value(field, value)
        if field is None or mapped is None:
            metadata[key] = value
        else:
            known[field] = mapped
    both = {
        "tags": tuple(dict.fromkeys((*usual.get("tags", ()), *known.get("tags", ())))),
        "metadata": to_json(usual.get("metadata", {}) | metadata),
        "relations": relations or usual.get("relations", ()),
    }
    return MemoryRecord(system, origin, content, **(usual | known | both))


def moment(value: Any) -> str | None:
    """Convert a time to ISO 8601 in UTC; return None if the value is not a time.

    Accepts ISO 8601, and seconds or milliseconds since 1970.
    """
    if isinstance(value, str) and re.fullmatch(r"\d{9,13}(\.\d+)?", value.strip()):
        value = float(value)
    utc = parse_time(value.strip()) if isinstance(value, str) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        with suppress(OverflowError, OSError, ValueError):
            utc = datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, UTC)
    return utc.isoformat(timespec="seconds").replace("+00:00", "Z") if utc else None


def to_json(value: Any, depth: int = 16) -> Any:
    """Convert a value to JSON values: other types become text, and levels deeper than `depth` are
    cut off.
    """
    if isinstance(value, str):
        # Some exports have half a surrogate pair, which cannot be sent.
        return value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth <= 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(to_json(str(key))): to_json(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, depth - 1) for item in value]
    return str(value)


def json_value(text: Any) -> Any:
    """Parse a JSON text; return the text itself if it is not JSON."""
    if not isinstance(text, str):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def json_object(value: Any) -> Fields:
    """Return the object in a JSON column of a database, such as a memory's metadata. A value that
    is not an object is returned in an object, under `metadata`.
    """
    if not isinstance(value, str) or not value.strip():
        return {}
    parsed = json_value(value)
    return parsed if isinstance(parsed, dict) else {"metadata": parsed}


def _map_value(field: str, value: Any) -> Any:
    """Convert a value to the field's form; None if that is impossible."""
    if field in ("created", "updated"):
        return moment(value)
    if field in ("tags", "keywords"):
        return _texts(value)
    if field == "importance":
        return _importance(value)
    text = _text(value)
    if field == "scope":
        return text.lower() if text and text.lower() in SCOPES else None
    return text


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = " ".join(str(to_json(str(value))).split())
    return text if text and len(text) <= MAX_TEXT_CHARS else None


def _texts(value: Any) -> tuple[str, ...] | None:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or len(items) > MAX_TAGS:
        return None
    texts = [_text(item) for item in items]
    found = [text.lstrip("#").strip() for text in texts if text is not None]
    return tuple(dict.fromkeys(text for text in found if text)) if len(found) == len(items) else None


def _importance(value: Any) -> float | str | None:
    if isinstance(value, str):
        if level := _LEVELS.get(value.strip().lower()):
            return level
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # A value above 1 belongs to an unknown scale.
    return float(value) if 0 <= value <= 1 else None


def _relations(value: Any) -> tuple[tuple[tuple[str, str], ...], list[Any]]:
    """Return the relations in a list of objects such as {kind, id}, and the items that are not
    relations.
    """
    found: list[tuple[str, str]] = []
    rest: list[Any] = []
    for item in value if isinstance(value, list) else [value]:
        match item:
            case {"kind": str(name), "id": str(other)} | {"type": str(name), "target": str(other)}:
                kind, is_same = kind_of(name)
            case {"relation": str(name), "id": str(other)} | {"relation": str(name), "relatedId": str(other)}:
                kind, is_same = kind_of(name)
            case str(other):
                kind, is_same = "see_also", True
            case _:
                rest.append(item)
                continue
        has_room = len(found) < MAX_RELATIONS
        if has_room:
            found.append((kind, other))
        if not (is_same and has_room):
            rest.append(item)
    return tuple(found), rest


def to_fields(record: MemoryRecord, ids: Ids, file: str) -> Fields:
    """Return the body of a note for the request `import`. `file` is the name under which users know
    the file of the memory.
    """
    metadata = {
        f"{record.system}.{key}" if key == "origin" else str(key): value for key, value in record.metadata.items()
    }
    note: Fields = {"id": record.note_id, "content": _clean(record.content)}
    title = _line(record.title)
    if title and len(title) > MAX_TITLE:
        title = title[: MAX_TITLE - 1].rstrip() + "…"
    note["title"] = title
    for name in ("type", "category", "entity", "source", "status"):
        note[name] = _line(getattr(record, name))
        if note[name] and len(note[name]) > MAX_WORD:
            metadata.setdefault(name, getattr(record, name))
            note[name] = None
    note["tags"] = _fit_words("tags", record.tags, metadata)
    note["keywords"] = _fit_words("keywords", record.keywords, metadata)
    note["importance"] = _fit_importance(record.importance, metadata)
    note["taskId"] = _fit_task(record, metadata)
    note["created"], note["updated"] = record.created, record.updated
    note["relations"] = _fit_relations(record, ids, metadata)
    own = {"system": record.system, "id": _clean(record.origin)[:400], "file": _clean(file)}
    note["metadata"] = {**_fit_metadata(to_json(metadata)), "origin": own}
    return {name: value for name, value in note.items() if value not in (None, [], ())}


def project_of(record: MemoryRecord, here: str) -> str:
    """Return the project that a record belongs to. `here` is the project of the import, which the
    record may name in a short form.
    """
    if record.scope == "global":
        return "global"
    name = "".join(letter for letter in _line(record.project) or "" if letter.isprintable())
    name = name.encode()[:200].decode("utf-8", "ignore").strip().rstrip("/")
    is_this = name.rpartition("/")[2].casefold() == here.rpartition("/")[2].casefold()
    return here if not name or is_this else name


def _line(text: str | None) -> str | None:
    """Join the text to one line, without unprintable characters."""
    words = " ".join(_clean(text or "").split())
    return "".join(letter for letter in words if letter.isprintable()) or None


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _fit_words(name: str, values: tuple[str, ...], metadata: Fields) -> list[str]:
    lines = [_line(value) for value in values]
    fit = list(dict.fromkeys(word for word in lines if word is not None and len(word) <= MAX_WORD))
    if len(fit) > MAX_TAGS or any(word is not None and len(word) > MAX_WORD for word in lines):
        metadata.setdefault(name, list(values))
    return fit[:MAX_TAGS]


def _fit_importance(value: float | str | None, metadata: Fields) -> float | str | None:
    if isinstance(value, str) and value.lower() in IMPORTANCE:
        return value.lower()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return value
    if value is not None:
        metadata.setdefault("importance", value)
    return None


def _fit_task(record: MemoryRecord, metadata: Fields) -> str | None:
    if record.task_id is None or record.scope not in (None, "task"):
        return None
    if TASK_ID.fullmatch(record.task_id):
        return record.task_id
    metadata.setdefault("taskId", record.task_id)
    return slug(record.task_id) or None


def _fit_relations(record: MemoryRecord, ids: Ids, metadata: Fields) -> list[dict[str, str]]:
    """Return the relations to imported memories or to notes; put the others into the metadata as
    they were.
    """
    found: list[dict[str, str]] = []
    rest: list[dict[str, str]] = []
    for kind, origin in dict.fromkeys(record.relations):
        other = ids.get((record.system, origin)) or (origin if ID.fullmatch(origin) else None)
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


def _fit_metadata(metadata: Fields) -> Fields:
    """Shorten the metadata to its limit: the largest values first, each then ends in "…"."""
    sizes = {key: _size(value) + len(key.encode()) + 8 for key, value in metadata.items()}
    while sum(sizes.values()) > MAX_METADATA_BYTES - _ORIGIN_BYTES - 1024 and sizes:
        largest = max(sizes, key=lambda key: sizes[key])
        value = metadata[largest]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(text) <= _CUT_CHARS:
            del metadata[largest], sizes[largest]  # only small values are left, maybe thousands
            continue
        metadata[largest] = text[: _CUT_CHARS - 1] + "…"
        sizes[largest] = _size(metadata[largest]) + len(largest.encode()) + 8
    return metadata


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
