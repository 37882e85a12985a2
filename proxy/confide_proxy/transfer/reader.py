"""What a reader of another system's memories is, and the limits that all of them keep.

A reader is a file in the folder `readers`, named by its system, which gives the module's one public object, `READER`. It reads what is
on this machine, without following symlinks and without writing anything: not a journal beside a database, not a lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confide_crypto.errors import printable
from confide_proxy.transfer.fields import as_json
from confide_proxy.transfer.record import Record

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


@dataclass(frozen=True, slots=True)
class Skipped:
    """What could not be read.

    Attributes:
        origin: the file, or the system's own name of the record; never its text.
        reason: for people, as the end of a sentence: `is not UTF-8`.
    """

    origin: str
    reason: str


@dataclass(slots=True)
class Losses:
    """What a reading left out, counted all and named up to a number."""

    MOST_NAMED = 50

    count: int = 0
    named: list[Skipped] = field(default_factory=list)

    def add(self, origin: str, reason: str) -> None:
        """One thing more that was skipped."""
        self.count += 1
        if len(self.named) < self.MOST_NAMED:
            self.named.append(Skipped(printable(origin[:200]), printable(reason)))


class Reader(ABC):
    """One system's memories, as records. It is asked for nothing but `places` and `recognises` until somebody agrees."""

    name: str
    """On the command line: `confide import --from NAME`; lower case, with `-` between."""
    title: str
    """For people."""

    def places(self, _home: Path) -> list[Path]:
        """Where its stores usually are below the home folder, whether or not one is there; none for who does not know."""
        return []

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether this is a store of the system: cheap, by names, first bytes, names of tables. Never raises, whatever `path` is."""

    @abstractmethod
    def read(self, path: Path, losses: Losses) -> Iterator[Record]:
        """Everything in the store, in an order that is the same at every reading. What is broken is told to `losses` and left out.

        Raises:
            UnreadableError: nothing of it can be read.
            ReaderMissingError: a library is needed that is not installed.
        """


def screened(records: Iterator[Record], losses: Losses) -> Iterator[Record]:
    """The records that can be stored: text, not empty, not too large, and not too many; what is left out is told to `losses`."""
    count = 0
    for record in records:
        try:
            record.origin.encode()
            size = len(record.content.encode())
        except UnicodeEncodeError:
            losses.add(as_json(record.origin), "is not UTF-8 text")
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
