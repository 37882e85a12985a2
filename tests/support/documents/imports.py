"""What a reader makes of a store, as tests look at it."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

from confide_transfer.local.reader import Losses, MemoryRecord, Reader

FIXTURES = Path(__file__).parents[2] / "fixtures" / "importing"


def read(reader: Reader, path: Path) -> tuple[dict[str, MemoryRecord], Losses]:
    """The records by their origins, and what was left out; an origin that comes twice is an error."""
    losses = Losses()
    records = list(reader.read(path, losses))
    found = {record.origin: record for record in records}
    assert len(found) == len(records), "two records have one origin"
    return found, losses


def read_placed(reader: Reader, path: Path) -> tuple[dict[str, MemoryRecord], Losses]:
    """The same, of a store whose place comes before its names for the records: by these names, in relations too."""
    records, losses = read(reader, path)
    found = {}
    for origin, record in records.items():
        place, _, name = origin.partition("#")
        assert place.endswith(path.name)
        relations = tuple((kind, other.removeprefix(f"{place}#")) for kind, other in record.relations)
        found[name] = replace(record, relations=relations)
    return found, losses


def ids(reader: Reader, path: Path) -> list[str]:
    """The ids of the notes, in the order in which they are read."""
    return [record.note_id for record in reader.read(path, Losses())]


def unpacked(fixture: str, folder: Path) -> Path:
    """A copy of a packed fixture, in a folder of its own."""
    packed = FIXTURES / fixture
    target = folder / "store" / packed.stem
    target.parent.mkdir()
    target.write_bytes(gzip.decompress(packed.read_bytes()))
    return target
