"""What a document is: its name, its text, its days, and the marks of a clash in it. Pure functions; it knows no database.

A document is a markdown file named by (project, path). Lines end in "\\n" and are counted from 1; other characters that some tools take for
line ends (form feed, U+2028) are not, so that line numbers agree with editors and with `memory_read`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime

from confide_memory import document_path
from confide_memory.errors import InvalidPathError, InvalidTextError, TooLargeError
from confide_memory.wire.documents import MAX_TEXT_BYTES

SOURCES = ("memory", "sessions")
# Where notes lie, and those of tasks, each task in a folder of its own.
NOTES = "memory/notes/"
TASKS = "memory/tasks/"


def check_path(path: str) -> str:
    """The path itself, when it may name a document that is written.

    Raises:
        InvalidPathError: what is wrong with it.
    """
    return _checked(path, document_path.problem(path))


def check_stored_path(path: str) -> str:
    """The path itself, when it may name a document that is there, which an earlier version may have taken. Raises InvalidPathError."""
    return _checked(path, document_path.stored_problem(path))


def _checked(path: str, why: str | None) -> str:
    if why is not None:
        raise InvalidPathError(f"the document path is not allowed: {why}", hint=f"for example {document_path.EXAMPLE}")
    return path


def check_text(text: str) -> str:
    """The text itself, when it may be stored.

    Raises:
        TooLargeError: over `MAX_TEXT_BYTES` of UTF-8.
        InvalidTextError: NUL characters or lone surrogates.
    """
    if len(text) > MAX_TEXT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        raise TooLargeError(
            f"the document is over {MAX_TEXT_BYTES // (1024 * 1024)} MiB", hint="split it into several files"
        )
    if "\0" in text:
        raise InvalidTextError("the document is not text: it holds NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidTextError("the document is not text: it holds lone surrogates") from None
    return text


def source_of(path: str) -> str:
    """Which source a document belongs to: transcripts lie below `sessions/`, everything else is memory."""
    return "sessions" if path.startswith("sessions/") else "memory"


def is_note(path: str) -> bool:
    """Whether a document of that name is a note."""
    return path.startswith(NOTES) or task_of(path) is not None


def task_of(path: str) -> str | None:
    """The task whose folder the document lies in."""
    task, slash, rest = path.removeprefix(TASKS).partition("/")
    return task if path.startswith(TASKS) and slash and rest else None


def day_of(path: str) -> str | None:
    """The ISO day in the file name (`memory/2026-11-21.md`), if it has a real one."""
    for match in re.finditer(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)", path):
        try:
            day = date.fromisoformat(match[0])
        except ValueError:  # the 31st of February
            continue
        if day.year >= 1970:
            return match[0]
    return None


def is_log(path: str) -> bool:
    """Whether the document is a daily log, where both sides of a clash are kept."""
    return re.search(r"(^|/)\d{4}-\d{2}-\d{2}[^/]*\.md$", path) is not None


def iso(moment: float) -> str:
    """A moment, in seconds since 1970, as both ends write it in files and messages: ISO 8601, UTC, whole seconds."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def parsed(text: str) -> datetime | None:
    """The moment that an ISO 8601 text names, in UTC, which is taken where it names no zone; None where it names none."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


# ---------------------------------------------------------------- a clash
# What stands in a text where two versions of the same lines could not be made one: plain lines that a person and an agent read alike, that
# no markdown turns into something else, and that no tool of git's takes for its own. The document counts as clashing until none is left.

_OURS = "<<<<<<< confide: "
_THEIRS = "======= confide: "
_END = ">>>>>>> confide: these versions differ; keep what is right and delete the marks\n"
# In front matter, where other lines would make the whole of it unreadable.
_COMMENT = "# confide clash, "
_MARKS = re.compile(r"^(?:[<=>]{7} confide: |# confide clash, )", re.MULTILINE)


def marked_clash(ours: Sequence[str], theirs: Sequence[str], names: tuple[str, str]) -> list[str]:
    """Both versions, each below the name of where it comes from.

    Where ours are the versions of a clash already, theirs is one more of them, in place of an older one of the same author: a machine that
    has not seen the marks yet, or keeps its file without them, must not pile up its own versions.
    """
    versions = _versions(ours) or [(names[0], list(ours))]
    if any(lines == list(theirs) for _, lines in versions):
        return list(ours)
    if len(versions) > 1:
        others = [version for version in versions if _author(version[0]) != _author(names[1])]
        versions = others or versions[:1]
    (first, lines), *rest = [*versions, (names[1], list(theirs))]
    text = [f"{_OURS}{first}\n", *lines]
    for name, lines in rest:
        text += [f"{_THEIRS}{name}\n", *lines]
    return [*text, _END]


def _versions(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The versions between the marks, with their names; none where the lines are not one clash from its first mark to its last."""
    if len(lines) < 3 or not lines[0].startswith(_OURS) or lines[-1] != _END or _END in lines[:-1]:
        return []
    found: list[tuple[str, list[str]]] = []
    for line in lines[:-1]:
        mark = next((mark for mark in (_OURS, _THEIRS) if line.startswith(mark)), None)
        if mark is not None:
            found.append((line.removeprefix(mark).rstrip("\n"), []))
        else:
            found[-1][1].append(line)
    return found


def clash_comments(lines: Sequence[str], name: str) -> list[str]:
    """The lines of the version that gave way in front matter, in place of what its author had there before."""
    older = f"{_COMMENT}{_author(name)}, "
    others = [line for line in lines if line.strip() and not line.startswith(older)]
    return [line if line.startswith(_COMMENT) else f"{_COMMENT}{name}: {line}" for line in others]


def _author(name: str) -> str:
    return name.rpartition(", revision ")[0] or name


def has_clash(text: str) -> bool:
    """Whether a clash in the text is not resolved yet."""
    return " confide" in text and _MARKS.search(text) is not None
