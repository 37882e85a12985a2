"""Moments as both ends write them, in files and in messages: ISO 8601, UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(moment: float) -> str:
    """A moment, in seconds since 1970."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def parsed(text: str) -> datetime | None:
    """The moment that an ISO 8601 text names, in UTC, which is taken where it names no zone; None where it names none."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
