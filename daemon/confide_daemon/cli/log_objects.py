"""The log for programs: an object a line, of a few members that are always the same, so that nothing else slips in."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

from pythonjsonlogger.json import JsonFormatter

GIVEN: Final = ("session", "space", "duration")
"""Ids of a session and of its space, and seconds; where the line is about one."""


class LogObjects(JsonFormatter):
    """`time` in UTC, `level`, `logger`, `event`, and of `GIVEN` what the line has.

    `event` is the text that people read, or what the line has in its place because that names a machine.
    """

    def __init__(self) -> None:
        super().__init__(json_ensure_ascii=True)

    def add_fields(
        self,
        log_data: dict[str, object],
        record: logging.LogRecord,
        message_dict: dict[str, object],  # noqa: ARG002
    ) -> None:
        """Only what is meant to be there; the library would take everything."""
        log_data["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data["level"] = record.levelname
        log_data["logger"] = record.name
        log_data["event"] = getattr(record, "event", None) or record.getMessage()
        log_data.update({name: given for name in GIVEN if (given := getattr(record, name, None)) is not None})
