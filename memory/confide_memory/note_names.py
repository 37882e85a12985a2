"""What a note is called: its id, its title where it has none, and its file.

An id is `mem_<entity>_<seconds since 1970>_<8 hex digits>`; a note that says none has one of its path. A file is named by its title and
the last part of its id, so that two notes of one title do not meet. Both ends ask here: a note that waits in a machine's queue is promised
the id and the file that the daemon gives it later.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from confide_crypto.sealing import placeholder
from confide_memory.documents import NOTES, TASKS

ID = re.compile(r"mem_[^\s/\\]{1,100}_[0-9]{1,12}_[0-9a-f]{4,16}")
TASK_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
MAX_TITLE = 200
SLUG_CHARACTERS = 40
_SHOWN_TITLE = 80
"""Characters of a title that is taken from the text."""


def folder_of(task_id: str | None) -> str:
    """Where notes of a task, or of none, lie."""
    return NOTES if task_id is None else f"{TASKS}{task_id}/"


def new_id(entity: str | None, title: str, *, created: float, seed: bytes) -> str:
    """The id of a new note; the same for the same seed."""
    return f"mem_{slug(entity or title) or 'note'}_{int(created)}_{hashlib.sha256(seed).hexdigest()[:8]}"


def id_of_path(project: str, path: str) -> str:
    """The id of a note whose file says none: it stays as long as the file has its name."""
    name = path.rsplit("/", 1)[-1].removesuffix(".md")
    digest = hashlib.sha256(f"{project}\0{path}".encode()).hexdigest()[:8]
    return f"mem_{slug(name) or 'note'}_0_{digest}"


def path_of(identity: str, title: str, task_id: str | None) -> str:
    """The file of a new note."""
    return f"{folder_of(task_id)}{slug(title) or 'note'}-{identity.rsplit('_', 1)[-1]}.md"


def names_of(arguments: Mapping[str, Any], said: str, operation: str) -> tuple[str, str]:
    """The id and the path of the note that `memory_store` makes of these arguments.

    Args:
        said: when it was asked for, ISO 8601 with the time zone.
        operation: the id of the call.
    """
    title = heading_of(" ".join(arguments.get("title", "").split()), arguments["content"])
    entity = " ".join(arguments.get("entity", "").split())
    created = int(datetime.fromisoformat(said).timestamp())
    identity = new_id(entity, title, created=created, seed=operation.encode())
    return identity, path_of(identity, title, arguments.get("taskId") or None)


def is_named(path: str, identity: str) -> bool:
    """Whether a file has the name that `path_of` gives a note of this id, whatever its title is."""
    return path.endswith(f"-{identity.rsplit('_', 1)[-1]}.md")


def mark_of(path: str) -> str:
    """What the files of one id have in common, whatever its title is: their folder and the end of their names."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.rpartition('-')[2]}"


def heading_of(title: str | None, body: str) -> str:
    """The title of a new note, or what its text gives for one."""
    return (title or title_of(body) or "Note")[:MAX_TITLE]


def title_of(body: str) -> str:
    """A title for a text that has none: its first line with words, without marks of markdown, at most as long as a title.

    What was sealed gives none.
    """
    for line in body.splitlines():
        words = re.sub(r"^\s*(#{1,6}|[-*+>]|\d+[.)])\s+", "", line).strip().strip("*_`# ").strip()
        if words and not re.fullmatch(r"[\W_]+", words) and not placeholder.only(words):
            return (
                words if len(words) <= _SHOWN_TITLE else words[: _SHOWN_TITLE - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"
            )
    return ""


def slug(text: str) -> str:
    """The text as a part of a file name: letters and digits in lower case, with `-` between; other scripts are kept. May be empty."""
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = unicodedata.normalize("NFC", re.sub(r"[^\w]+|_+", "-", plain)).strip("-")
    return plain[:SLUG_CHARACTERS].rstrip("-")
