"""What every reader makes of a memory: a record, from which the daemon makes a note.

A record says where it comes from, so that an import that is repeated stores nothing twice: the note's id is a function of the origin.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confide_memory.note_names import SLUG_CHARACTERS

_SAME = {
    "supports": "supports",
    "contradicts": "contradicts conflicts_with",
    "supersedes": "supersedes replaces obsoletes",
    "refines": "refines elaborates",
    "depends_on": "depends_on requires relies_on",
    "implements": "implements",
    "example_of": "example_of is_example_of instance_of is_instance_of",
    "part_of": "part_of is_part_of component_of",
    "see_also": "see_also relates_to related_to related is_related_to links_to",
}
"""Other systems' names of relations, by the kinds that notes have."""
_KIND_OF = {name: kind for kind, names in _SAME.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Record:
    """One memory of another system.

    Attributes:
        system: its name, such as basic-memory.
        origin: what it calls this memory; unique in its store, and the same at every reading.
        content: markdown.
        project: None for the one that is imported into.
        importance: 0 to 1, or core, high, normal, low.
        created, updated: ISO 8601 in UTC.
        relations: (kind, origin of the other memory).
        metadata: what has no field here, as JSON values under the names of the other system.
        id: of a note of ours that comes back; None for all others.
    """

    system: str
    origin: str
    content: str
    title: str | None = None
    project: str | None = None
    scope: str | None = None
    task_id: str | None = None
    type: str | None = None
    category: str | None = None
    entity: str | None = None
    tags: tuple[str, ...] = ()
    importance: float | str | None = None
    keywords: tuple[str, ...] = ()
    source: str | None = None
    status: str | None = None
    created: str | None = None
    updated: str | None = None
    relations: tuple[tuple[str, str], ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None

    @property
    def note_id(self) -> str:
        """`mem_<entity>_<seconds since 1970>_<hash>`, a function of what does not change in the other system."""
        if self.id is not None:
            return self.id
        digest = origin_hash(self.system, self.origin)
        # Not of the title, which people change there: the note would come a second time.
        name = slug(self.entity or "") or slug(self.system)
        return f"mem_{name}_{_seconds(self.created)}_{digest}"


def origin_hash(system: str, origin: str) -> str:
    """Eight hex digits that stand for a memory of another system."""
    # Names of files may be any bytes, which stand in a text as half surrogates.
    return hashlib.sha256(f"{system}\0{origin}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


def slug(text: str) -> str:
    """The text as a part of an id or of a file name: ASCII letters and digits in lower case, with `-` between; may be empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:SLUG_CHARACTERS].rstrip("-")


def _seconds(moment: str | None) -> int:
    if moment is None:
        return 0
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return 0
    return max(0, int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()))


def kind_of(name: str) -> tuple[str, bool]:
    """The kind for another system's name of a relation, and whether it means the same; `see_also` where none does."""
    plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
    kind = _KIND_OF.get(plain)
    return (kind, True) if kind else ("see_also", False)
