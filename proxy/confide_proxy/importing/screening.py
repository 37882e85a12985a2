"""What every record must be before it is sent: text, not empty, not too large, and not too many of them."""

from __future__ import annotations

from collections.abc import Iterator

from confide_proxy.importing.fields import as_json
from confide_proxy.importing.reader import MAX_CONTENT_BYTES, MAX_RECORDS, Losses
from confide_proxy.importing.record import Record


def screened(records: Iterator[Record], losses: Losses) -> Iterator[Record]:
    """The records that can be stored; what is left out is told to `losses`."""
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
