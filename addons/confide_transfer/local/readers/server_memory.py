"""Reads the knowledge graph of the official memory server, `@modelcontextprotocol/server-memory`: a
file of JSON lines.

An entity is a record, with its observations as a list; a relation belongs to the record of its
source entity (https://github.com/modelcontextprotocol/servers, src/memory).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confide_proxy.errors import UnreadableError
from confide_transfer.local.fields import to_json
from confide_transfer.local.import_files import head, name_of, prefix_origins, read_text
from confide_transfer.local.reader import Losses, MemoryRecord, Reader, kind_of, screen

_MOST_PLACES = 64


@dataclass(slots=True)
class _Entity:
    name: str
    type: str
    observations: list[str] = field(default_factory=list)
    relations: list[tuple[str, str]] = field(default_factory=list)


class ServerMemory(Reader):
    """The reader of entities with their observations and relations."""

    name = "server-memory"
    title = "the official memory server (@modelcontextprotocol/server-memory)"

    def recognises(self, path: Path) -> bool:
        """Return True if the file begins with a JSON object, and its first 64 KiB name an entity or
        a relation.
        """
        first = head(path, 65536).lstrip()
        if not first.startswith(b"{"):
            return False
        return b'"entityType"' in first or b'"relationType"' in first

    def places(self, home: Path) -> list[Path]:
        """Return the usual files: the server keeps its file beside its own code, which npx has in
        its cache, unless MEMORY_FILE_PATH names another.
        """
        package = "node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl"
        found = itertools.islice((home / ".npm" / "_npx").glob(f"*/{package}"), _MOST_PLACES)
        return [home / "memory.jsonl", *sorted(found)]

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        """Yield the entities in the order of the file; entities with the same name, which the
        server never writes, are merged.
        """
        entities: dict[str, _Entity] = {}
        relations: list[tuple[int, str, str, str]] = []
        is_empty = True
        # `splitlines` would split at U+2028 and the like, which may be in a JSON text.
        for number, line in enumerate(read_text(path).split("\n"), 1):
            if not line.strip():
                continue
            item = _parse(line)
            match item:
                case {"type": "entity", "name": str(name), "entityType": str(kind), "observations": list(said)} if name:
                    entity = entities.setdefault(name, _Entity(name, kind))
                    entity.observations += [text for text in said if isinstance(text, str)]
                case {"type": "relation", "from": str(start), "to": str(end), "relationType": str(kind)}:
                    relations.append((number, start, end, kind))
                case _:
                    losses.add(f"line {number}", "is no entity and no relation")
                    continue
            is_empty = False
        if is_empty and losses.count:
            raise UnreadableError(path, "holds neither entities nor relations")
        for number, start, end, kind in relations:
            if start in entities and end in entities:
                entities[start].relations.append((kind, end))
            else:
                losses.add(f"line {number}", "is a relation of an entity that is not there")
        # Each project may have its own file, with its own "user"; the file in the cache of npx is a
        # single one, under any folder name.
        place = "npx" if "_npx" in path.parts else name_of(path)
        yield from prefix_origins(screen((_record(entity) for entity in entities.values()), losses), place)


def _parse(line: str) -> Any:
    try:
        return to_json(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _record(entity: _Entity) -> MemoryRecord:
    stated = [(kind_of(name)[0], target) for name, target in entity.relations]
    unmapped = [{"relationType": name, "to": target} for name, target in entity.relations if not kind_of(name)[1]]
    # Other entities may refer to an entity without observations, so it is kept with its name as
    # text.
    content = "\n".join("- " + text.replace("\n", "\n  ") for text in entity.observations) or entity.name
    return MemoryRecord(
        ServerMemory.name,
        entity.name,
        content,
        title=entity.name,
        entity=entity.name,
        type=entity.type or None,
        relations=tuple(dict.fromkeys(stated)),
        metadata={"relations": unmapped} if unmapped else {},
    )


READER = ServerMemory()
