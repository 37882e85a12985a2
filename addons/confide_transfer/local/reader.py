"""What a reader of another system's memories is, what it makes of each (a record, from which the daemon makes a note), and the limits that
all of them keep.

A record says where it comes from, so that an import that is repeated stores nothing twice: the note's id is a function of the origin.

A reader is a file in the folder `readers`, named by its system, which gives the module's one public object, `READER`. It reads what is
on this machine, without following symlinks and without writing anything: not a journal beside a database, not a lock.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confide_crypto.errors import printable
from confide_memory.documents import parsed
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
MAX_FILE_BYTES = 2**25
"""Of one file that is read whole: 32 MiB."""
MAX_STORE_BYTES = 2**33
"""Of a database or of an export that is read piece by piece: 8 GiB."""
MAX_FILES = 10_000
"""Of one tree."""
MAX_DEPTH = 16
"""Folders below the one that is named."""
MAX_RECORDS = 200_000
"""Of one store."""
MAX_CONTENT_BYTES = 500_000
"""Of one record, in UTF-8: a little less than what a document may hold, since its front matter comes to it."""

Fields = dict[str, Any]
"""An object with any names and JSON values: as another system wrote it, or a note as it is sent."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
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
    metadata: Fields = field(default_factory=dict)
    id: str | None = None

    @property
    def note_id(self) -> str:
        """`mem_<entity>_<seconds since 1970>_<hash>`, a function of what does not change in the other system."""
        if self.id is not None:
            return self.id
        digest = origin_hash(self.system, self.origin)
        # Not of the title, which people change there: the note would come a second time.
        name = slug(self.entity or "") or slug(self.system)
        created = parsed(self.created or "")
        return f"mem_{name}_{max(0, int(created.timestamp())) if created else 0}_{digest}"


def origin_hash(system: str, origin: str) -> str:
    """Eight hex digits that stand for a memory of another system."""
    # Names of files may be any bytes, which stand in a text as half surrogates.
    return hashlib.sha256(f"{system}\0{origin}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


def slug(text: str) -> str:
    """The text as a part of an id or of a file name: ASCII letters and digits in lower case, with `-` between; may be empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:SLUG_CHARACTERS].rstrip("-")


def kind_of(name: str) -> tuple[str, bool]:
    """The kind for another system's name of a relation, and whether it means the same; `see_also` where none does."""
    plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
    kind = _KIND_OF.get(plain)
    return (kind, True) if kind else ("see_also", False)


@dataclass(frozen=True, slots=True)
class Skipped:
    """What could not be read: the file, or the system's own name of the record, never its text; and why, as the end of a sentence."""

    origin: str
    reason: str


@dataclass(slots=True)
class Losses:
    """What a reading left out, counted all and named up to a number."""

    MOST_NAMED = 50

    count: int = 0
    named: list[Skipped] = field(default_factory=list)

    def add(self, origin: str, reason: str) -> None:
        self.count += 1
        if len(self.named) < self.MOST_NAMED:
            self.named.append(Skipped(printable(origin[:200]), printable(reason)))


class Reader(ABC):
    """One system's memories, as records. It is asked for nothing but `places` and `recognises` until somebody agrees."""

    name: str
    """On the command line: `confide import --from NAME`; lower case, with `-` between."""
    title: str
    """For people."""

    stores: tuple[str, ...] = ()
    """Where its stores usually are below the home folder, where its settings, which are not asked, do not say otherwise."""

    def places(self, home: Path) -> list[Path]:
        """Where its stores usually are, whether or not one is there; none for who does not know."""
        return [home / store for store in self.stores]

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether this is a store of the system: cheap, by names, first bytes, names of tables. Never raises, whatever `path` is."""

    @abstractmethod
    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        """Everything in the store, in an order that is the same at every reading. What is broken is told to `losses` and left out.

        Raises UnreadableError: nothing of it can be read; ReaderMissingError: a library is needed that is not installed.
        """


def screened(records: Iterator[MemoryRecord], losses: Losses) -> Iterator[MemoryRecord]:
    """The records that can be stored: text, not empty, not too large, and not too many; what is left out is told to `losses`."""
    count = 0
    for record in records:
        try:
            record.origin.encode()
            size = len(record.content.encode())
        except UnicodeEncodeError:
            losses.add(record.origin.encode("utf-8", "replace").decode(), "is not UTF-8 text")
            continue
        if not record.content.strip():
            losses.add(record.origin, "is empty")
        elif size > MAX_CONTENT_BYTES:
            losses.add(record.origin, f"is larger than {MAX_CONTENT_BYTES:,} bytes")
        elif count >= MAX_RECORDS:
            losses.add(record.origin, f"comes after {MAX_RECORDS:,} others, the most of one import")
        else:
            count += 1
            yield record
