"""Ids and file names of notes.

An id is `mem_<entity>_<seconds since 1970>_<8 hex digits>`; a note that says none has one of its path. A file is named by its title and
the last part of its id, so that two notes of one title do not meet.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

FOLDER = "memory/notes/"
TASKS = "memory/tasks/"
ID = re.compile(r"mem_[^\s/\\]{1,100}_[0-9]{1,12}_[0-9a-f]{4,16}")
TASK_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
SLUG_CHARACTERS = 40


def is_note(path: str) -> bool:
    """Whether a document of that name is a note."""
    return path.startswith(FOLDER) or task_of(path) is not None


def task_of(path: str) -> str | None:
    """The task whose folder the document lies in."""
    task, slash, rest = path.removeprefix(TASKS).partition("/")
    return task if path.startswith(TASKS) and slash and rest else None


def folder_of(task_id: str | None) -> str:
    """Where notes of a task, or of none, lie."""
    return FOLDER if task_id is None else f"{TASKS}{task_id}/"


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


def is_named(path: str, identity: str) -> bool:
    """Whether a file has the name that `path_of` gives a note of this id, whatever its title is."""
    return path.endswith(f"-{identity.rsplit('_', 1)[-1]}.md")


def mark_of(path: str) -> str:
    """What the files of one id have in common, whatever its title is: their folder and the end of their names."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.rpartition('-')[2]}"


def slug(text: str) -> str:
    """The text as a part of a file name: letters and digits in lower case, with `-` between; other scripts are kept. May be empty."""
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = unicodedata.normalize("NFC", re.sub(r"[^\w]+|_+", "-", plain)).strip("-")
    return plain[:SLUG_CHARACTERS].rstrip("-")
