"""What a note that waits in the queue will be called: its id and its file, which the daemon makes of the same by the same rules.

A test holds them against the daemon's (`confide_daemon.notes.naming`).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

FOLDER: Final = "memory/notes/"
TASKS: Final = "memory/tasks/"
MAX_TITLE: Final = 200
_SLUG_CHARACTERS: Final = 40
_SHOWN_TITLE: Final = 80
_SEALED: Final = re.compile(
    r"(?:\s|\((?:sealed:[a-z][a-z0-9-]{0,31}:[0-9a-f]{32}|redacted:[a-z][a-z0-9-]{0,31}:[0-9a-f]{24})\))*"
)


def names_of(arguments: Mapping[str, Any], said: str, operation: str) -> tuple[str, str]:
    """The id and the path of a note that `memory_store` makes of these arguments.

    Args:
        said: when it was asked for, ISO 8601 with the time zone.
        operation: the id of the call.
    """
    title = " ".join(arguments.get("title", "").split()) or title_of(arguments["content"]) or "Note"
    slug = slug_of(title[:MAX_TITLE]) or "note"
    entity = " ".join(arguments.get("entity", "").split())
    digest = hashlib.sha256(operation.encode()).hexdigest()[:8]
    created = int(datetime.fromisoformat(said).timestamp())
    task = arguments.get("taskId")
    folder = f"{TASKS}{task}/" if task else FOLDER
    return f"mem_{slug_of(entity or title[:MAX_TITLE]) or 'note'}_{created}_{digest}", f"{folder}{slug}-{digest}.md"


def slug_of(text: str) -> str:
    """The text as a part of a file name."""
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = unicodedata.normalize("NFC", re.sub(r"[^\w]+|_+", "-", plain)).strip("-")
    return plain[:_SLUG_CHARACTERS].rstrip("-")


def title_of(body: str) -> str:
    """A title for a text that has none."""
    for line in body.splitlines():
        words = re.sub(r"^\s*(#{1,6}|[-*+>]|\d+[.)])\s+", "", line).strip().strip("*_`# ").strip()
        if words and not re.fullmatch(r"[\W_]+", words) and not _SEALED.fullmatch(words):
            return (
                words if len(words) <= _SHOWN_TITLE else words[: _SHOWN_TITLE - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"
            )
    return ""
