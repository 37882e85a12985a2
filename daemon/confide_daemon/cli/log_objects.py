"""A log format in JSON: one object per line, with a few fixed members and nothing else."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

from pythonjsonlogger.json import JsonFormatter

GIVEN: Final = ("session", "space", "duration")
"""Optional members: a session id, a space id, and a duration in seconds."""


class LogObjects(JsonFormatter):
    """Formats a log record as a JSON object: `time` in UTC, `level`, `logger`, `event`, and those
    members of `GIVEN` that the record has.

    `event` is the text of the message. If that text names a device, the record carries a
    replacement without the name.
    """

    def __init__(self) -> None:
        super().__init__(json_ensure_ascii=True)

    def add_fields(
        self,
        log_data: dict[str, object],
        record: logging.LogRecord,
        message_dict: dict[str, object],  # noqa: ARG002
    ) -> None:
        """Set only the intended members of the object; the library would copy all attributes of the
        record.
        """
        log_data["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data["level"] = record.levelname
        log_data["logger"] = record.name
        log_data["event"] = getattr(record, "event", None) or record.getMessage()
        log_data.update({name: given for name in GIVEN if (given := getattr(record, name, None)) is not None})
