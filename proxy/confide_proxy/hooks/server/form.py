"""Convert stored texts to the form in which a model may see them: quoted, on one line, and unable
to end the frame around them or to hide text in it.

Pure functions. Data from the daemon is not trusted: an item is dropped if it has an unexpected
form, or if its class of origin must not be shown automatically.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confide_memory.note_names import is_id
from confide_memory.wire.revisions import ActionEntry, BriefingPiece
from confide_proxy.hooks import block

HIT_CHARS: Final = 240
SUMMARY_CHARS: Final = 480
HEAD_CHARS: Final = 720
"""Most characters from the start of a `MEMORY.md`."""
HITS: Final = 3
NOTES: Final = 8
HIT_TOKENS: Final = 300
BRIEFING_TOKENS: Final = 600
TRUSTED: Final = ("owner", "agent", "derived")
"""Classes whose texts may be added to a model's context automatically. Unknown classes of a newer
daemon aren't.
"""
CUT: Final = " …"
MARK_CHARS: Final = 120
_PLACE_CHARS: Final = 96
_NAME_CHARS: Final = 32
_CHARS_PER_TOKEN: Final = 3.0
"""Fewest characters per token that a quotation may have."""
_RUN: Final = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")
_LETTERS: Final = 7
_DIGITS: Final = 3
_OTHER: Final = 1.25
_MARGIN: Final = 1.08
"""Factor that makes the estimate of tokens almost always an upper bound.

The constants above: letters and digits per token, and tokens per non-ASCII letter.
"""
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of controls, direction marks, tags, surrogates, unassigned characters and line
separators.
"""
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible characters of other categories: a text can be encoded in variation selectors alone."""
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_LEVELS: Final = {"core": 0, "high": 1}
_LOW: Final = "low"
_ITEM: Final = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s+")
_HEADING: Final = re.compile(r"#{1,6}\s")


class Quoted(NamedTuple):
    """A quotation from a stored document, as one line for a model.

    Attributes:
        line: the whole line, with author, day and source.
        document: project and path of the quoted document.
        place: the same with the line number at which the quotation begins.
        is_whole: True if the quotation is complete.
        text: the quotation alone.
        when: time of the document's last change, as the daemon gives it.
        covers: the documents and parts of documents that this line quotes completely, or together
            with others if they have several `parts`.
        parts: number of lines that together quote `covers` completely.
        id: the note's short id; "" if the document is no note.
        is_pinned: True if the line keeps its rank even if no agent uses its note.
        is_important: True if the note's importance is core or high.
        is_for_failure: True if the note was written for the failure at which it is shown.
        is_tied: True if this device has checked the files or code that the note is about.
        has_mark: True if the line warns that the note may be outdated.
    """

    line: str
    document: str
    place: str
    is_whole: bool
    text: str = ""
    when: str = ""
    covers: tuple[str, ...] = ()
    parts: int = 1
    id: str = ""
    is_pinned: bool = False
    is_important: bool = False
    is_for_failure: bool = False
    is_tied: bool = False
    has_mark: bool = False


def plain(text: str, most: int) -> str:
    """Return a text as one escaped line of at most `most` characters, without invisible characters.
    A longer text is cut, with an ellipsis.
    """
    looked_at = _INVISIBLE.sub("", text[: 16 * most])
    shown = "".join(" " if unicodedata.category(letter) in _HIDDEN else letter for letter in looked_at)
    parts = [_escape(letter) for letter in " ".join(shown.split())]
    if sum(map(len, parts)) <= most and len(text) <= 16 * most:
        return "".join(parts)
    length = 0
    for place, part in enumerate(parts):
        length += len(part)
        if length > most - len(CUT):
            return "".join(parts[:place]).rstrip() + CUT
    return "".join(parts) + CUT


def _escape(letter: str) -> str:
    # Full-width brackets and the like read as brackets too.
    return _ESCAPES.get(letter if letter.isascii() else unicodedata.normalize("NFKC", letter), letter)


def tokens(text: str) -> float:
    """Estimate an upper bound of a text's tokens without a tokenizer. A test compares it with a
    real one.
    """
    spent = 1.0
    for run in _RUN.findall(text):
        if run.isascii():
            spent += 1 if len(run) == 1 else -(-len(run) // (_DIGITS if run.isdecimal() else _LETTERS))
        else:
            spent += _OTHER if run < "\U00010000" else 2 * _OTHER
    return spent * _MARGIN


def hits(result: Mapping[str, object]) -> list[Quoted]:
    """Return the search results that may be shown to a model automatically, in the order of the
    search.
    """
    return [each for found in _items(result.get("results")) if (each := _hit(found)) is not None]


def notes(
    result: Mapping[str, Any], projects: Iterable[str], is_sunk: Callable[[Quoted], bool] = lambda _: False
) -> list[Quoted]:
    """Return the important notes of these projects from a list of notes: importance core first,
    then high, otherwise in the order of the list. Notes for which `is_sunk` is True come last.
    """
    wanted = frozenset(projects)
    found = [
        (_LEVELS[note["level"]], each)
        for note in _items(result.get("memories"))
        if note.get("level") in tuple(_LEVELS) and note.get("project") in wanted and (each := _note(note)) is not None
    ]
    return [each for _, each in sorted(found, key=lambda one: (is_sunk(one[1]), one[0]))][:NOTES]


def newest_notes(result: Mapping[str, object], project: str, *, without: str) -> list[Quoted]:
    """Return the notes of a project in the order of the list, except those of importance low and
    those of the type `without`.
    """
    return [
        each
        for note in _items(result.get("memories"))
        if note.get("level") != _LOW
        and note.get("type") != without
        and note.get("project") == project
        and (each := _note(note)) is not None
    ]


def head(pieces: Iterable[BriefingPiece], project: str) -> list[Quoted]:
    """Return the beginning of each `MEMORY.md` of a project as one line: as many whole lines of the
    file as fit into it.
    """
    own = [each for each in pieces if each["project"] == project and each["class"] in TRUSTED]
    found = [_head(list(file)) for _, file in itertools.groupby(own, key=lambda piece: piece["path"])]
    return [each for each in found if each is not None]


def _head(pieces: Sequence[BriefingPiece]) -> Quoted | None:
    kept: list[str] = []
    covers: list[str] = []
    for piece in pieces:
        lines = [line for line in piece["snippet"].split("\n") if line.strip()]
        room = next((at for at, _ in enumerate(lines) if not _fits([*kept, *lines[: at + 1]])), len(lines))
        kept += lines[:room]
        if room < len(lines):
            # Cut at the end of a line; within a line only if the first alone is too long.
            kept = [*kept, CUT] if kept else lines[:1]
            break
        covers.append(_place(piece))
    quoted = _quote(pieces[0], "updatedAt", " ".join(kept), line=pieces[0]["startLine"], most=HEAD_CHARS)
    return None if quoted is None else quoted._replace(covers=tuple(covers), is_pinned=True)


def _fits(lines: Sequence[str]) -> bool:
    quoted = plain(" ".join((*lines, CUT)), 2 * HEAD_CHARS)
    return len(quoted) <= HEAD_CHARS and tokens(quoted) <= HEAD_CHARS / _CHARS_PER_TOKEN


def entries(pieces: Iterable[BriefingPiece], project: str) -> list[Quoted]:
    """Return the paragraphs and list items in these last parts of files, as one line each. The last
    one of each part comes first.
    """
    found: list[Quoted] = []
    for piece in pieces:
        parts = _entries(piece["snippet"], piece["heading"]) if piece["project"] == project else []
        for offset, text in reversed(parts):
            quoted = _quote(piece, "updatedAt", text, line=piece["startLine"] + offset)
            if quoted is not None:
                found.append(quoted._replace(covers=(_place(piece),) if quoted.is_whole else (), parts=len(parts)))
    return found


def _entries(text: str, heading: str) -> list[tuple[int, str]]:
    """Return the paragraphs and list items of a piece, with their heading, each with its first line
    counted from 0.
    """
    found: list[tuple[int, str, list[str]]] = []
    is_open = False
    for number, line in enumerate(text.split("\n")):
        if match := _HEADING.match(line):
            heading = line[match.end() :].strip()
        if match or not line.strip():
            is_open = False
        elif is_open and not _ITEM.match(line):
            found[-1][2].append(line)
        else:
            found.append((number, heading, [_ITEM.sub("", line, count=1) if _ITEM.match(line) else line]))
            is_open = True
    texts = ((number, above, "\n".join(lines)) for number, above, lines in found)
    return [(number, f"{above}: {said}" if above and above not in said else said) for number, above, said in texts]


def _place(piece: Mapping[str, object]) -> str:
    return f"{piece['project']}\0{piece['path']}\0{piece['startLine']}"


def quoted_places(lines: Iterable[Quoted]) -> list[str]:
    """Return the documents and parts of documents that these lines quote completely, so that they
    are not shown again.
    """
    counts = Counter((place, each.parts) for each in lines for place in each.covers)
    return [place for (place, parts), count in counts.items() if count >= parts]


def summary(note: Mapping[str, object], content: str) -> Quoted | None:
    """Return the line for the summary of a past session; None if it must not be shown
    automatically.

    `note` is the summary's row in the result of `memory_list`, and `content` its text.
    """
    return _quote(note, "updated", content, most=SUMMARY_CHARS, prefix="Last session, ")


def may_come(found: Mapping[str, object], projects: Iterable[str]) -> bool:
    """Return True if an entry is of one of these projects and of a class that may be shown
    automatically (`TRUSTED`).
    """
    return found.get("class") in TRUSTED and found.get("project") in tuple(projects)


def action(entry: ActionEntry, most_bytes: int, mark: str | None = None) -> Quoted | None:
    """Return the line for an entry that concerns a tool call, cut so that it takes at most
    `most_bytes` with its frame. None if it must not be shown, or does not fit.

    `mark` is a warning that the note may be outdated. "" means that it was checked and is up to
    date, None that it was not checked.
    """
    most = HIT_CHARS
    text = _ITEM.sub("", entry["snippet"].lstrip(), count=1)
    found = {**entry, "shortId": entry["id"]}
    while most > len(CUT):
        quoted = _quote(found, "updatedAt", text, line=entry["startLine"], most=most)
        quoted = quoted if quoted is None or mark is None else add_mark(quoted, mark)
        over = 0 if quoted is None else len(block.frame_lines([quoted.line]).encode()) - most_bytes
        if over <= 0:
            return quoted
        most -= max(1, over // 4)
    return None


def add_mark(quoted: Quoted, mark: str) -> Quoted:
    """Return a line with a warning added beside its author and day. An empty warning adds nothing,
    but records in the line that the note was checked.
    """
    head, end, rest = quoted.line.partition("): ")
    shown = f"; {plain(mark, MARK_CHARS)}" if mark else ""
    return quoted._replace(line=f"{head}{shown}{end}{rest}", is_tied=True, has_mark=bool(mark))


def outdated_line(count: int) -> list[Quoted]:
    """Return one line that says how many important notes are left out, because they are about files
    or code that no longer exist; [] if `count` is 0.
    """
    if not count:
        return []
    notes, them = ("1 important note is", "it") if count == 1 else (f"{count} important notes are", "them")
    told = (
        f"- {notes} about files or code that no longer exist here, so {'it is' if count == 1 else 'they are'} left out"
    )
    return [Quoted(f"{told}: confide stale lists {them}, to correct or delete.", "", "", is_whole=False)]


def within(lines: Iterable[Quoted], budget: int, *, once: bool = False) -> list[Quoted]:
    """Return the first lines that fit into the token budget, frame included; longer ones are
    skipped. With `once`, a line is left out if an earlier line contains its text.
    """
    kept: list[Quoted] = []
    spent = tokens(block.frame_lines([], age_s=86_400.0))
    for each in lines:
        cost = tokens(each.line)
        is_said = once and each.text and any(each.text.removesuffix(CUT) in other.text for other in kept)
        if spent + cost <= budget and not is_said:
            spent += cost
            kept.append(each)
    return kept


def _items(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _hit(found: Mapping[str, object]) -> Quoted | None:
    snippet, heading, line = found.get("snippet"), found.get("heading"), found.get("startLine")
    if found.get("supersededBy") or not isinstance(snippet, str) or type(line) is not int:
        return None
    is_headed = isinstance(heading, str) and heading and heading not in snippet
    return _quote(found, "updatedAt", f"{heading}: {snippet}" if is_headed else snippet, line=line)


def _note(found: Mapping[str, object]) -> Quoted | None:
    title, snippet = found.get("title"), found.get("snippet")
    if not isinstance(title, str) or not isinstance(snippet, str):
        return None
    text = snippet.removeprefix("# ").removeprefix(title).lstrip(" .:-") or title
    said = snippet if snippet.startswith(title) and not snippet.startswith("# ") else f"{title}: {text}"
    return _quote(found, "updated", title if text == title else said)


def _quote(
    found: Mapping[str, object], dated: str, text: str, *, line: int = 0, most: int = HIT_CHARS, prefix: str = ""
) -> Quoted | None:
    path, project, author, day = found.get("path"), found.get("project"), found.get("author"), found.get(dated)
    if not (isinstance(path, str) and isinstance(project, str) and isinstance(author, str) and isinstance(day, str)):
        return None
    kind = found.get("class")
    if kind not in TRUSTED or not _DAY.match(day):
        return None
    quoted = plain(text, most)
    # Scripts and code with many tokens per character get fewer characters, so that the other lines
    # keep their room.
    if (cost := tokens(quoted)) > most / _CHARS_PER_TOKEN:
        quoted = plain(text, int(most * most / _CHARS_PER_TOKEN / cost))
    if not quoted:
        return None
    # A model uses the id to read or change a note; the id from a hostile daemon may look like
    # anything.
    short = found.get("shortId")
    known = short if isinstance(short, str) and is_id(short) else ""
    where = plain(known or path, _PLACE_CHARS) + (f":{line}" if line > 1 and not known else "")
    message = f"- {prefix}{where} ({kind}, by {plain(author, _NAME_CHARS)}, {day[:10]}): {quoted}"
    document = f"{project}\0{path}"
    place = f"{document}\0{line}"
    # Texts that the daemon has cut end in the same way.
    is_whole = not quoted.endswith("…")
    covers = (place if line else document,) if is_whole else ()
    is_pinned, is_important = found.get("level") == "core", found.get("level") in tuple(_LEVELS)
    return Quoted(message, document, place, is_whole, quoted, day, covers, 1, known, is_pinned, is_important)
