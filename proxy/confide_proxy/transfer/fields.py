"""The fields of a note under the many names that people and programs give them: front matter, and the objects of JSON files.

What is not known, or has a value that cannot be the field's, is kept in the metadata under its own name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from confide_proxy.importing.record import Record
from confide_proxy.importing.relation_kinds import kind_of

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
    "keywords": ("keywords",),
    "source": ("source",),
    "status": ("status",),
    "created": ("created", "createdat", "date", "timestamp"),
    "updated": ("updated", "updatedat", "modified", "modifiedat", "lastmodified", "lastupdated"),
}
_FIELD_OF = {name: field for field, names in _NAMES.items() for name in names}
_SCOPES = frozenset({"global", "project", "task"})
_LEVELS = {"core": "core", "critical": "core", "high": "high", "normal": "normal", "medium": "normal", "low": "low"}
MAX_TEXT_CHARS = 200
MAX_LIST = 32
MAX_RELATIONS = 64
_MILLISECONDS = 10**11
"""A time above this many seconds would be after the year 5000, so it is in thousandths."""


def record_of(system: str, origin: str, content: str, fields: Mapping[str, Any], **usual: Any) -> Record:
    """The record of this text with these fields; `usual` is what holds where they say nothing."""
    known: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
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
        mapped = None if field is None or field in known else _mapped(field, value)
        if field is None or mapped is None:
            metadata[key] = value
        else:
            known[field] = mapped
    merged = {**usual, **known, "tags": tuple(dict.fromkeys((*usual.get("tags", ()), *known.get("tags", ()))))}
    metadata = usual.get("metadata", {}) | metadata
    return Record(
        system,
        origin,
        content,
        **{**merged, "metadata": as_json(metadata), "relations": relations or usual.get("relations", ())},
    )


def moment(value: Any) -> str | None:
    """A time as ISO 8601 in UTC; from ISO 8601, or seconds or thousandths since 1970. None for what is no time."""
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(r"\d{9,13}(\.\d+)?", text):
            return moment(float(text))
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            return None
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        try:
            parsed = datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, UTC)
        except (OverflowError, OSError, ValueError):
            return None
    else:
        return None
    try:
        utc = parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except OverflowError:
        return None
    return utc.isoformat(timespec="seconds").replace("+00:00", "Z")


def as_json(value: Any, depth: int = 16) -> Any:
    """The value as JSON has it: what JSON has not becomes text, and what is nested deeper than `depth` is cut off."""
    if isinstance(value, str):
        # Half a surrogate pair is in some exports, and could not be sent.
        return value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth <= 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(as_json(str(key))): as_json(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item, depth - 1) for item in value]
    return str(value)


def json_object(value: Any) -> dict[str, Any]:
    """The object that a database holds as JSON, such as a memory's metadata; what is none stands under `metadata`, as it was."""
    if not isinstance(value, str) or not value.strip():
        return {}
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return {"metadata": value}
    return parsed if isinstance(parsed, dict) else {"metadata": parsed}


def _mapped(field: str, value: Any) -> Any:
    """The value as this field has it, None where it cannot be that."""
    if field in ("created", "updated"):
        return moment(value)
    if field in ("tags", "keywords"):
        return _texts(value)
    if field == "importance":
        return _importance(value)
    text = _text(value)
    if field == "scope":
        return text.lower() if text and text.lower() in _SCOPES else None
    return text


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = " ".join(str(as_json(str(value))).split())
    return text if text and len(text) <= MAX_TEXT_CHARS else None


def _texts(value: Any) -> tuple[str, ...] | None:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or len(items) > MAX_LIST:
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
    # Above 1 it is of a scale that nobody has told.
    return float(value) if 0 <= value <= 1 else None


def _relations(value: Any) -> tuple[tuple[tuple[str, str], ...], list[Any]]:
    """The relations in a list of objects such as {kind, id}, and what of it is none."""
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
