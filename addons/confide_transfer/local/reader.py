"""The interface of a reader of another system's memories, the record that it makes of each memory,
and the limits of all readers.

A record has an origin, from which the note's id is computed, so that a repeated import stores
nothing twice.

A reader is a file in the folder `readers` with the name of its system, and with one public object,
`READER`. It reads files of this device, follows no symlinks and writes nothing: no journal beside a
database, no lock.
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
from confide_memory.documents import parse_time
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
"""Maps the relation kinds of notes to other systems' names for them."""
_KIND_OF = {name: kind for kind, names in _SAME.items() for name in names.split()}
MAX_FILE_BYTES = 2**25
"""Limit of a file that is read whole: 32 MiB."""
MAX_STORE_BYTES = 2**33
"""Limit of a database, or of an export that is read in parts: 8 GiB."""
MAX_FILES = 10_000
"""Limit of files in one tree."""
MAX_DEPTH = 16
"""Limit of nested folders below the named one."""
MAX_RECORDS = 200_000
"""Limit of records in one store."""
MAX_CONTENT_BYTES = 500_000
"""Limit of one record in UTF-8 bytes: below that of a document, which also has front matter."""

Fields = dict[str, Any]
"""An object with any names and JSON values: of another system, or a note to send."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A memory of another system.

    Attributes:
        system: its name, such as basic-memory.
        origin: the system's name for this memory; unique in its store, and the same at every reading.
        content: markdown.
        project: None for the project that is imported into.
        importance: 0 to 1, or core, high, normal, low.
        created, updated: ISO 8601 in UTC.
        relations: (kind, origin of the other memory).
        metadata: other fields, as JSON values under the system's names.
        id: of a Confide note that is imported again; None for all others.
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
        """The note's id, `mem_<entity>_<seconds since 1970>_<hash>`, made of data that does not
        change in the other system.
        """
        if self.id is not None:
            return self.id
        digest = origin_hash(self.system, self.origin)
        # Not from the title: a change there would import the note a second time.
        name = slug(self.entity or "") or slug(self.system)
        created = parse_time(self.created or "")
        return f"mem_{name}_{max(0, int(created.timestamp())) if created else 0}_{digest}"


def origin_hash(system: str, origin: str) -> str:
    """Return eight hex digits that identify a memory of another system."""
    # File names may be any bytes, which are lone surrogates in a text.
    return hashlib.sha256(f"{system}\0{origin}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


def slug(text: str) -> str:
    """Reduce a text to lower-case ASCII letters and digits, joined by `-`, for ids and file names;
    may be empty.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:SLUG_CHARACTERS].rstrip("-")


def kind_of(name: str) -> tuple[str, bool]:
    """Return the relation kind for another tool's name of it, and True if both mean the same.
    Unknown names become `see_also`.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
    kind = _KIND_OF.get(plain)
    return (kind, True) if kind else ("see_also", False)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or record that a reader could not read.

    `origin` is its name, never its text; `reason` is the end of a sentence for users.
    """

    origin: str
    reason: str


@dataclass(slots=True)
class Losses:
    """The items that a reader skipped: their number, and the names of the first `MOST_NAMED`."""

    MOST_NAMED = 50

    count: int = 0
    skips: list[Skipped] = field(default_factory=list)

    def add(self, origin: str, reason: str) -> None:
        self.count += 1
        if len(self.skips) < self.MOST_NAMED:
            self.skips.append(Skipped(printable(origin[:200]), printable(reason)))


class Reader(ABC):
    """A reader of one system's memories. Only `places` and `recognises` are called before the user
    agrees.
    """

    name: str
    """Name for `confide import --from NAME`; lower case, joined by `-`."""
    title: str
    """Name for users."""

    stores: tuple[str, ...] = ()
    """Usual paths of its stores below the home folder; its settings, which may name others, are not
    read.
    """

    def places(self, home: Path) -> list[Path]:
        """Return the usual paths of its stores, whether they exist or not; empty if unknown."""
        return [home / store for store in self.stores]

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Return True if the path is a store of this tool. The check is fast: it looks at names,
        first bytes and table names only.

        Never raises, whatever `path` is.
        """

    @abstractmethod
    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        """Yield all memories of the store, always in the same order; report damaged ones to
        `losses`.

        Raise UnreadableError if nothing can be read, and ReaderMissingError if a library is not
        installed.
        """


def screen(records: Iterator[MemoryRecord], losses: Losses) -> Iterator[MemoryRecord]:
    """Yield the records that can be stored, and report the others to `losses`: those without text,
    those that are too large, and those beyond the limit.
    """
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
