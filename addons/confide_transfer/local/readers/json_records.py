"""Reads memories from JSON and JSONL: an array, an object with an array of them, or an object a
line.

The text is in `content`, `text`, `memory`, `value`, `body` or `note`; the other fields are those of
a note in any spelling, and unknown ones go to the metadata. A record with an id keeps it as its
origin; a short id gets the file's path as prefix, since it is unique only there. The origin of
other records, and of those that share an id, comes from their text.
"""

from __future__ import annotations

import hashlib
import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from confide_memory import note_names
from confide_proxy.errors import UnreadableError
from confide_transfer.local.fields import record_of, to_json
from confide_transfer.local.import_files import head, name_of, open_plain, read_text
from confide_transfer.local.reader import MAX_CONTENT_BYTES, MAX_STORE_BYTES, Fields, Losses, MemoryRecord, Reader

TEXTS = ("content", "text", "memory", "value", "body", "note")
LISTS = ("memories", "notes", "records", "items", "results", "data")
IDS = ("id", "uuid", "_id", "key", "hash")
_ARRAYS = (".json",)
_LINES = (".jsonl", ".ndjson")
_MAX_LINE_BYTES = 2 * MAX_CONTENT_BYTES
_UNIQUE_CHARS = 16
"""Length from which an id is globally unique; a shorter one is unique only in its file."""
_FORMS = 'memories are objects with a text in "content", in an array, in {"memories": [...]}, or one a line (.jsonl)'


class JsonReader(Reader):
    """The reader of `*.json`, `*.jsonl` and `*.ndjson`."""

    name = "json"
    title = "JSON and JSONL"

    def recognises(self, path: Path) -> bool:
        """Return True if the file has a known extension and begins like JSON."""
        suffix = path.suffix.lower()
        if suffix not in (*_ARRAYS, *_LINES):
            return False
        first = head(path)
        if first.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            return True  # so that the reader says what is wrong with it
        begins = first.lstrip()[:1]
        return begins in ((b"{", b"[") if suffix in _ARRAYS else (b"{",))

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        is_lines = path.suffix.lower() in _LINES
        found = False
        place = name_of(path)
        seen: dict[str, str] = {}
        for number, item in enumerate(_lines(path, losses) if is_lines else _array(path, losses), 1):
            record = _record(place, number, item, losses)
            if record is not None:
                found = True
                yield _distinguish(record, seen)
        if not found:
            raise UnreadableError(path, "holds no memories", hint=_FORMS)


def _array(path: Path, losses: Losses) -> list[Any]:
    text = read_text(path)
    try:
        value = json.loads(text)
    except ValueError:
        # A file of lines is often named .json.
        try:
            # `splitlines` would split at U+2028 and the like, which may be in a JSON text.
            value = [json.loads(line) for line in text.split("\n") if line.strip()]
        except (ValueError, RecursionError):
            raise UnreadableError(path, "is not JSON") from None
    except RecursionError:
        raise UnreadableError(path, "is nested too deeply") from None
    if isinstance(value, dict):
        name = next((key for key in LISTS if isinstance(value.get(key), list)), None)
        value = [value] if name is None else [*value[name], *_read_extra_lists(value, name, losses)]
    if not isinstance(value, list):
        raise UnreadableError(path, "holds no memories", hint=_FORMS)
    return value


def _read_extra_lists(value: Fields, name: str, losses: Losses) -> Iterator[Any]:
    """Yield the memories beside an export's main list: mem0's relations, each as a memory about its
    source entity; report other entries to `losses`.
    """
    for key, others in value.items():
        if key == name or not isinstance(others, list | dict) or not others:
            continue
        unread = len(others)
        for one in others if key == "relations" and isinstance(others, list) else ():
            said = one if isinstance(one, Mapping) else {}
            words = [next((said[key] for key in keys if isinstance(said.get(key), str)), "") for keys in _RELATION]
            if all(word.strip() for word in words):
                unread -= 1
                yield {
                    "content": " ".join(word.strip() for word in words),
                    "entity": words[0].strip(),
                    "type": "relation",
                }
        if unread:
            losses.add(
                f"'{key[:80]}'", f"is not read: {unread} {'entry' if unread == 1 else 'entries'} beside '{name}'"
            )


_RELATION = (("source",), ("relationship", "relation"), ("target", "destination"))


def _lines(path: Path, losses: Losses) -> Iterator[Any]:
    """Yield the value of each line; report lines that are not JSON to `losses`."""
    with open_plain(path, limit=MAX_STORE_BYTES) as file:
        number = 0
        while line := file.readline(_MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > _MAX_LINE_BYTES:
                losses.add(f"line {number}", f"is longer than {_MAX_LINE_BYTES // 1000} kB")
                while line and not line.endswith(b"\n"):
                    line = file.readline(_MAX_LINE_BYTES)
                continue
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    yield json.loads(text)
            except UnicodeDecodeError:
                losses.add(f"line {number}", "is not UTF-8 text")
            except (ValueError, RecursionError):
                losses.add(f"line {number}", "is not JSON")


def _record(file: str, number: int, item: Any, losses: Losses) -> MemoryRecord | None:
    if isinstance(item, str) and item.strip():
        item = {"content": item}
    said = item if isinstance(item, Mapping) else {}
    key = next((key for key in TEXTS if isinstance(text := said.get(key), str) and text.strip()), None)
    if key is None:
        losses.add(f"record {number}", "has no text")
        return None
    text = str(to_json(item[key])).strip("\n")
    if len(text.encode()) > MAX_CONTENT_BYTES:
        losses.add(f"record {number}", f"is larger than {MAX_CONTENT_BYTES // 1000} kB")
        return None
    name = next((key for key in IDS if type(found := item.get(key)) in (str, int) and 0 < len(str(found)) <= 200), None)
    origin = f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    if name is not None:
        origin = _origin(file, str(to_json(str(item[name]))))
    fields = {field: value for field, value in item.items() if field not in (key, name)}
    record = record_of("json", origin, text, fields, id=origin if note_names.ID.fullmatch(origin) else None)
    if not origin.startswith(f"{file}#"):
        return record
    # If its own id is short, the ids in its relations are too.
    return replace(record, relations=tuple((kind, _origin(file, other)) for kind, other in record.relations))


def _origin(file: str, identity: str) -> str:
    return identity if len(identity) >= _UNIQUE_CHARS else f"{file}#{identity}"


def _distinguish(record: MemoryRecord, seen: dict[str, str]) -> MemoryRecord:
    """Make the origin unique if another text in the file has it too, as with a key that is not an
    id.
    """
    digest = hashlib.sha256(record.content.encode()).hexdigest()[:16]
    if seen.setdefault(record.origin, digest) == digest:
        return record
    return replace(record, origin=f"{record.origin}#{digest}", id=None)


READER = JsonReader()
