"""What a note is called: its id, its title where it has none, and its file.

An id is `mem_<entity>_<seconds since 1970>_<8 hex digits>`; a note that says none has one of its path. A file is named by its title and
the last part of its id, so that two notes of one title do not meet. Both ends ask here: a note that waits in a machine's queue is promised
the id and the file that the daemon gives it later.

Models and people are shown a short form of an id, `mem_` and the first of its hex digits, and may say that wherever an id is asked for. As
git shortens a commit's name: as many digits as no other note begins with, and never fewer than `LEAST_DIGITS`. Files hold whole ids alone.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from confide_crypto.sealing import placeholder
from confide_memory.documents import NOTES, TASKS, composed, is_conflict_mark

ID = re.compile(r"mem_[^\s/\\]{1,100}_[0-9]{1,12}_[0-9a-f]{4,16}")
TASK_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
LEAST_SAID = 4
SHORT = re.compile(rf"mem_([0-9a-f]{{{LEAST_SAID},16}})")
"""What may be said in an id's place."""
LEAST_DIGITS = 5
"""Of a short id that is shown. Of 10,000 notes more, one in a hundred times one shares its five digits; then it is asked which is meant."""
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


def file_of(said: str) -> str:
    """The path of a note's file, or the end of one, where that is given in the place of an id: `memory/notes/jwt.md`, `jwt.md` or `jwt`."""
    path = composed(said.strip()).removeprefix("./")
    return path if path.endswith(".md") else f"{path}.md"


def digits_of(identity: str) -> str:
    """The hex digits that an id ends in, which its short form begins with."""
    return identity.rsplit("_", 1)[-1]


def short_of(identity: str, before: str | None, after: str | None) -> str:
    """The short form of a note's id; the whole id where another note has all its digits, or more.

    Args:
        before, after: the digits of the other notes next to its own in their order, None where there is none; one that has the same
            is either of them.
    """
    digits = digits_of(identity)
    shared = max(_shared(digits, other or "") for other in (before, after))
    return identity if shared == len(digits) else f"mem_{digits[: max(LEAST_DIGITS, shared + 2)]}"


def _shared(digits: str, other: str) -> int:
    """With how many digits both begin."""
    return next(
        (at for at, pair in enumerate(zip(digits, other, strict=False)) if pair[0] != pair[1]),
        min(len(digits), len(other)),
    )


def is_id(said: str) -> bool:
    """Whether a text is the id of a note, whole or short, as far as its form says."""
    return bool(ID.fullmatch(said) or SHORT.fullmatch(said))


def may_mean(said: str, identity: str) -> bool:
    """Whether a note of this id is meant, by its whole id or a short one."""
    short = SHORT.fullmatch(said)
    return digits_of(identity).startswith(short[1]) if short else said == identity


def path_of(identity: str, title: str, task_id: str | None) -> str:
    """The file of a new note."""
    return f"{folder_of(task_id)}{slug(title) or 'note'}-{digits_of(identity)}.md"


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


def is_named(path: str, said: str) -> bool:
    """Whether a file has the name that `path_of` gives a note of this id, whole or short, whatever its title is."""
    if short := SHORT.fullmatch(said):
        return path.endswith(".md") and path.rpartition("-")[2].startswith(short[1])
    return path.endswith(f"-{digits_of(said)}.md")


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
        words = _unmarked(line)
        if words and _says_something(words):
            return (
                words if len(words) <= _SHOWN_TITLE else words[: _SHOWN_TITLE - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"
            )
    return ""


def first_words(body: str, *, besides: str) -> str:
    """Return the first line of a text that says more than its title, without marks of markdown; "" if there is none."""
    for line in body.splitlines():
        words = _unmarked(line)
        if words and words != besides and _says_something(words) and not is_conflict_mark(line):
            return words
    return ""


def _unmarked(line: str) -> str:
    """Return a line without the marks that make it a heading, an item or a quotation."""
    return re.sub(r"^\s*(#{1,6}|[-*+>]|\d+[.)])\s+", "", line).strip().strip("*_`# ").strip()


def _says_something(words: str) -> bool:
    return not re.fullmatch(r"[\W_]+", words) and not placeholder.only(words)


def slug(text: str) -> str:
    """The text as a part of a file name: letters and digits in lower case, with `-` between; other scripts are kept. May be empty."""
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    plain = unicodedata.normalize("NFC", re.sub(r"[^\w]+|_+", "-", plain)).strip("-")
    return plain[:SLUG_CHARACTERS].rstrip("-")
