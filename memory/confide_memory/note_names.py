"""Names of notes: id, file name, and title if the note has none.

An id is `mem_<entity>_<seconds since 1970>_<8 hex digits>`; a note without an id gets one from its
path. A file is named by its title and the last part of its id, so that two notes with one title do
not collide. Both ends use this code, so that a note in a device's queue already has the id and the
file name that the daemon gives it later.

Models and users see a short form of an id, `mem_` and its first hex digits, and may use it wherever
an id is expected. As git shortens commit ids, it has as many digits as no other note shares, and
never fewer than `LEAST_DIGITS`. Files hold full ids only.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from confide_crypto.sealing import placeholder
from confide_memory.documents import NOTES, TASKS, is_conflict_mark, to_nfc

ID = re.compile(r"mem_[^\s/\\]{1,100}_[0-9]{1,12}_[0-9a-f]{4,16}")
TASK_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
LEAST_SAID = 4
SHORT = re.compile(rf"mem_([0-9a-f]{{{LEAST_SAID},16}})")
"""The short form of an id, as a user or a model may write it."""
LEAST_DIGITS = 5
"""Digits of a short id that is shown. With 10,000 further notes, the chance that one has the same
five digits is 1 %; then the tool asks which note is meant.
"""
MAX_TITLE = 200
SLUG_CHARACTERS = 40
_SHOWN_TITLE = 80
"""Characters of a title that is taken from the text."""


def folder_of(task_id: str | None) -> str:
    """Return the folder for the notes of a task, or, without a task id, for notes that belong to no
    task.
    """
    return NOTES if task_id is None else f"{TASKS}{task_id}/"


def new_id(entity: str | None, title: str, *, created: float, seed: bytes) -> str:
    """Return the id of a new note. The same arguments and `seed` always give the same id."""
    return f"mem_{slug(entity or title) or 'note'}_{int(created)}_{hashlib.sha256(seed).hexdigest()[:8]}"


def id_of_path(project: str, path: str) -> str:
    """Return an id for a note whose file states none. It stays the same until the file is renamed."""
    name = path.rsplit("/", 1)[-1].removesuffix(".md")
    digest = hashlib.sha256(f"{project}\0{path}".encode()).hexdigest()[:8]
    return f"mem_{slug(name) or 'note'}_0_{digest}"


def file_of(said: str) -> str:
    """Return the path, or the end of the path, of the note that a user or model has named by its
    file instead of its id: `memory/notes/jwt.md`, `jwt.md` or `jwt`.
    """
    path = to_nfc(said.strip()).removeprefix("./")
    return path if path.endswith(".md") else f"{path}.md"


def digits_of(identity: str) -> str:
    """Return the hex digits at the end of a note's id. Its short form consists of the first of
    these digits.
    """
    return identity.rsplit("_", 1)[-1]


def short_of(identity: str, before: str | None, after: str | None) -> str:
    """Return a short form of a note's id that fits no other note. If the digits of another note
    begin with all of this id's digits, return the full id.

    Args:
        identity: the full id.
        before, after: the digits of the other notes that precede and follow this id's digits in
            sort order; None if there is no such note. A note with equal digits may be given as
            either.
    """
    digits = digits_of(identity)
    shared = max(_common_prefix(digits, other or "") for other in (before, after))
    return identity if shared == len(digits) else f"mem_{digits[: max(LEAST_DIGITS, shared + 2)]}"


def _common_prefix(digits: str, other: str) -> int:
    """Return the length of the common prefix."""
    return next(
        (at for at, pair in enumerate(zip(digits, other, strict=False)) if pair[0] != pair[1]),
        min(len(digits), len(other)),
    )


def is_id(said: str) -> bool:
    """Return True if a text looks like a note's id, full or short."""
    return bool(ID.fullmatch(said) or SHORT.fullmatch(said))


def may_mean(said: str, identity: str) -> bool:
    """Return True if `said`, a full or short id, can refer to the note with the id `identity`."""
    short = SHORT.fullmatch(said)
    return digits_of(identity).startswith(short[1]) if short else said == identity


def path_of(identity: str, title: str, task_id: str | None) -> str:
    """Return the path of a new note's file: the folder of the task, or of notes without a task, and
    a name made from the title and the id.
    """
    return f"{folder_of(task_id)}{slug(title) or 'note'}-{digits_of(identity)}.md"


def names_of(arguments: Mapping[str, Any], said: str, operation: str) -> tuple[str, str]:
    """Return the id and the path of the note that `memory_store` creates from these arguments.

    Args:
        arguments: the arguments of the tool call.
        said: time of the request, ISO 8601 with the time zone.
        operation: the id of the call.
    """
    title = heading_of(" ".join(arguments.get("title", "").split()), arguments["content"])
    entity = " ".join(arguments.get("entity", "").split())
    created = int(datetime.fromisoformat(said).timestamp())
    identity = new_id(entity, title, created=created, seed=operation.encode())
    return identity, path_of(identity, title, arguments.get("taskId") or None)


def is_named(path: str, said: str) -> bool:
    """Return True if the file's name is one that `path_of` gives to a note with the id `said`, full
    or short, whatever its title.
    """
    if short := SHORT.fullmatch(said):
        return path.endswith(".md") and path.rpartition("-")[2].startswith(short[1])
    return path.endswith(f"-{digits_of(said)}.md")


def mark_of(path: str) -> str:
    """Return the part of a note's path that does not depend on its title: the folder, and the
    digits of the id at the end of the name.
    """
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.rpartition('-')[2]}"


def heading_of(title: str | None, body: str) -> str:
    """Return the title of a new note: the given one, or else a title made from its text."""
    return (title or title_of(body) or "Note")[:MAX_TITLE]


def title_of(body: str) -> str:
    """Return a title for a text: its first line with words, without markdown marks and shortened.
    "" if no line qualifies, such as in a text of placeholders for sealed secrets.
    """
    for line in body.splitlines():
        words = _strip_marks(line)
        if words and _says_something(words):
            return (
                words if len(words) <= _SHOWN_TITLE else words[: _SHOWN_TITLE - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"
            )
    return ""


def first_words(body: str, *, besides: str) -> str:
    """Return the first line of a text that is not the same as `besides` (its title), without
    markdown marks; "" if there is no such line.
    """
    for line in body.splitlines():
        words = _strip_marks(line)
        if words and words != besides and _says_something(words) and not is_conflict_mark(line):
            return words
    return ""


def _strip_marks(line: str) -> str:
    """Return a line without the marks that make it a heading, an item or a quotation."""
    return re.sub(r"^\s*(#{1,6}|[-*+>]|\d+[.)])\s+", "", line.removeprefix("\ufeff")).strip().strip("*_`# ").strip()


def _says_something(words: str) -> bool:
    return not re.fullmatch(r"[\W_]+", words) and not placeholder.only(words)


def slug(text: str) -> str:
    """Return the text in a form for file names: lower-case letters and digits, joined by `-`.
    Letters of other scripts are kept. The result may be empty.
    """
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = unicodedata.normalize("NFC", re.sub(r"[^\w]+|_+", "-", plain)).strip("-")
    return plain[:SLUG_CHARACTERS].rstrip("-")
