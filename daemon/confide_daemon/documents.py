"""What a document is: its name, its text and its sections. Pure functions; it knows no database.

A document is a markdown file named by (project, path). Lines end in "\\n" and are counted from 1; other characters that some tools take for
line ends (form feed, U+2028) are not, so that line numbers agree with editors and with `memory_read`.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from datetime import date

from confide_crypto.texts import MAX_TEXT_BYTES
from confide_daemon.errors import InvalidPathError, InvalidTextError, NotFoundError, TooLargeError
from confide_daemon.line_ends import MARK

PATH_BYTES = 512
COMPONENT_BYTES = 255  # what file systems allow
SOURCES = ("memory", "sessions")


def check_path(path: str) -> str:
    """The path itself, when it may name a document that is written: relative, posix, NFC, inside the memory folder, `.md`.

    Raises:
        InvalidPathError: what is wrong with it.
    """

    def refuse(why: str) -> InvalidPathError:
        return InvalidPathError(
            f"the document path is not allowed: {why}", hint="for example memory/notes/decisions.md"
        )

    if not path:
        raise refuse("it is empty")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in path):
        raise refuse("it holds control characters")
    if "\\" in path:
        raise refuse("it holds a backslash; folders are separated by /")
    if not unicodedata.is_normalized("NFC", path):
        raise refuse("it is not in Unicode normal form C")
    if len(path.encode()) > PATH_BYTES:
        raise refuse(f"it is longer than {PATH_BYTES} bytes")
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        raise refuse("it is not relative")
    for component in path.split("/"):
        if component in ("", ".", ".."):
            raise refuse("it has an empty, '.' or '..' component")
        if len(component.encode()) > COMPONENT_BYTES:
            raise refuse(f"a component is longer than {COMPONENT_BYTES} bytes")
        if component != component.strip():
            raise refuse("a component begins or ends with a blank")
    if not path.endswith(".md") or path.rsplit("/", 1)[-1] == ".md":
        raise refuse("it does not end in .md")
    if source_of(path) == "sessions":
        raise refuse("sessions/ holds the transcripts, which nobody writes by hand")
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


def text_hash(text: str) -> str:
    """BLAKE2b-256 of the UTF-8 bytes, in hex: the name of a content on the wire."""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def source_of(path: str) -> str:
    """Which source a document belongs to: transcripts lie below `sessions/`, everything else is memory."""
    return "sessions" if path.startswith("sessions/") else "memory"


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


def front_matter_lines(lines: list[str]) -> int:
    """How many leading lines are YAML front matter, fences included; 0 without any."""
    if not lines or lines[0].removeprefix(MARK).rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:], 2):
        if line.rstrip() in ("---", "..."):
            return number
    return 0


def split_keeping_ends(text: str) -> list[str]:
    """The lines with their "\\n"; a last line without one gets it, so that joining lines of two sides never glues two of them."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line + "\n" for line in lines]


def is_item(line: str) -> bool:
    """Whether the line begins a list item."""
    return re.match(r"\s*([-*+]|\d+[.)])\s", line) is not None


# ---------------------------------------------------------------- sections


@dataclass(frozen=True, slots=True)
class Section:
    """The lines of one heading: [start, end), counted from 0, the heading line included."""

    start: int
    end: int


def find_section(text: str, heading: str) -> Section | None:
    """The section whose heading is the given words; `## Words` also asks for the level. The first one counts."""
    from confide_daemon.markdown import headings

    asked = re.match(r"\s*(#{1,6})\s+(.*)", heading)
    level = len(asked[1]) if asked else None
    words = _plain(asked[2] if asked else heading)
    found = list(headings(text))
    total = len(split_keeping_ends(text))
    for index, candidate in enumerate(found):
        if _plain(candidate.title) != words or (level is not None and candidate.level != level):
            continue
        end = next((later.line for later in found[index + 1 :] if later.level <= candidate.level), total)
        return Section(candidate.line, end)
    return None


def append_text(text: str, addition: str, *, heading: str | None) -> str:
    """The document with the addition at its end, or at the end of the named section, which is made when it is missing."""
    lines = split_keeping_ends(text)
    added = split_keeping_ends(addition.strip("\n"))
    if heading is None:
        return "".join(_joined(lines, added))
    section = find_section(text, heading)
    if section is None:
        return "".join(_joined(lines, [_heading_line(heading), "\n", *added]))
    inside = lines[section.start : section.end]
    return "".join(lines[: section.start] + _joined(inside, added) + _spaced(lines[section.end :]))


def replace_section(text: str, content: str, *, heading: str) -> str:
    """The document with the lines below the heading replaced; its sub-sections go with it, the heading line stays.

    Raises:
        NotFoundError: no such heading; the hint lists those there are.
    """
    from confide_daemon.markdown import headings

    section = find_section(text, heading)
    if section is None:
        names = [found.title for found in headings(text)][:12]
        raise NotFoundError(
            "no section of that heading in the document",
            hint=("headings there: " + "; ".join(names)) if names else "the document has no headings",
        )
    lines = split_keeping_ends(text)
    body = split_keeping_ends(content.strip("\n"))
    heading_lines = 2 if _is_underlined(lines, section) else 1
    kept = lines[section.start : section.start + heading_lines]
    return "".join(lines[: section.start] + kept + ["\n", *body] + _spaced(lines[section.end :]))


def _is_underlined(lines: list[str], section: Section) -> bool:
    return not lines[section.start].lstrip().startswith("#") and section.start + 1 < section.end


def _joined(before: list[str], added: list[str]) -> list[str]:
    """The addition after the lines, with one blank line between, or none when both are list items."""
    while before and not before[-1].strip():
        before = before[:-1]
    if not before:
        return added
    both_items = is_item(before[-1]) and bool(added) and is_item(added[0])
    return before + ([] if both_items else ["\n"]) + added


def _spaced(after: list[str]) -> list[str]:
    return ["\n", *after] if after and after[0].strip() else after


def _heading_line(heading: str) -> str:
    words = heading.strip()
    return (words if re.match(r"#{1,6}\s", words) else f"## {words}") + "\n"


def _plain(title: str) -> str:
    return " ".join(title.strip().strip("#").split()).casefold()
