"""Reads markdown of users and agents: one file or a tree. Each section, each item of a plain list,
and each decision record is a note.

The origin of a section is its file and its headings, so an edited section is the same note; the
origin of an item is its own text, since items are inserted anywhere. File names are relative to the
repository or the home folder, whichever path the user gave.

Decision records are read in the forms of Michael Nygard's template (adr-tools) and of MADR
(https://adr.github.io/madr/).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from confide_memory import front_matter, note_names
from confide_memory.documents import iso
from confide_memory.mentions import properties_of
from confide_memory.tools.written_days import StatedDay, dates_in, days_of_headings, stated_day, year_of_path
from confide_proxy.errors import UnreadableError
from confide_transfer.local.fields import record_of
from confide_transfer.local.formats.sections import Section, plain, sections, title_of
from confide_transfer.local.import_files import files_below, is_folder, name_of, read_text
from confide_transfer.local.reader import MAX_CONTENT_BYTES, Fields, Losses, MemoryRecord, Reader, slug

MAX_FILE_BYTES = 2**22
_WHOLE_CHARS = 4000
"""Limit of a file that becomes one note if its front matter names it."""
_MAX_TITLE_CHARS = 120
_HEAD_CHARS = 4096
_MAX_TAGS = 4
_CATEGORIES = {
    **dict.fromkeys(("decision", "decisions"), "decisions"),
    **dict.fromkeys(("preference", "preferences", "conventions", "style", "rules"), "preferences"),
    **dict.fromkeys(("people", "team", "contacts"), "people"),
    "facts": "facts",
}
"""Maps words in a short heading to the note's category."""
_FOLDERS = frozenset({"adr", "adrs", "decisions", "decision-records", "architecture-decisions"})
_NAMED = re.compile(r"adr[-_ ]?\d.*\.md|adr-.+\.md", re.IGNORECASE)
_NUMBERED = re.compile(r"\d{2,8}[-_ ].+\.md", re.IGNORECASE)
_STATUS_LINE = re.compile(r"^\s*(?:[-*+]\s+)?\**status\**\s*:\**\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_DATE_LINE = re.compile(r"^\s*(?:[-*+]\s+)?\**date\**\s*:\**\s*(\d{4}-\d{2}-\d{2})", re.IGNORECASE | re.MULTILINE)
_WORDS = frozenset(
    (
        "accepted",
        "proposed",
        "superseded",
        "deprecated",
        "rejected",
        "amended",
        "implemented",
        "approved",
        "draft",
        "done",
    )
)
_OF_BLOCKS = frozenset({"id", "collapsed", "heading", "logseq"})
"""Properties of Logseq that say nothing of the page."""
_LINKED = re.compile(
    r"(superseded|replaced|supersedes|replaces)(?:\s+by)?\b[^\n(]{0,200}\(([^()\s]{1,200}\.md)\)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _MarkdownFile:
    """A markdown file to import; `name` is its path, which is the same on every device."""

    name: str
    fields: Fields
    text: str
    updated: str
    head: str
    """The text with its front matter, as far as a date is looked for in it."""


class MarkdownReader(Reader):
    """The reader of `*.md`."""

    name = "markdown"
    title = "markdown files"

    def __init__(self, is_kept: Callable[[Path], bool] = lambda _path: False) -> None:
        """Create a reader; files for which `is_kept` returns True are skipped, since they are
        memory already.
        """
        self._is_kept = is_kept

    def recognises(self, path: Path) -> bool:
        """Return True for a markdown file, and for every folder: its files are checked when it is
        read.
        """
        return is_folder(path) or path.suffix.lower() in (".md", ".markdown")

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        """Yield all notes (see `Reader.read`). Decision records come last, since each may refer to
        any other.
        """
        yield from _distinguish(self._read(path, losses))

    def _read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        decisions: dict[str, tuple[MemoryRecord, DecisionRecord]] = {}
        if not is_folder(path):
            yield from _records(path, decisions, losses)
        else:
            for file in files_below(path, lambda name: name.lower().endswith((".md", ".markdown")), losses):
                if self._is_kept(file):
                    continue
                try:
                    yield from _records(file, decisions, losses)
                except UnreadableError as error:
                    losses.add(file.relative_to(path).as_posix(), error.problem)
        yield from _relate(decisions)


def _distinguish(records: Iterator[MemoryRecord]) -> Iterator[MemoryRecord]:
    """Add the headings or the file to the title of a record with the same title and text as one
    elsewhere.

    For example, `Ann` owns billing, and `Ann` owns search. Copies of a file keep equal titles.
    """
    places: dict[tuple[str | None, str], set[tuple[str, ...]]] = {}
    for record in records:
        headings = tuple(record.metadata.get("headings", ()))
        place = (record.origin.partition("#")[0].rpartition("/")[2], *headings)
        known = places.setdefault((record.title, record.content), set())
        if known and place not in known and record.title:
            parts = [part for part in (place[0].rpartition(".")[0], *headings) if part not in record.title]
            yield replace(record, title=" / ".join([*parts, record.title])[:_MAX_TITLE_CHARS])
        else:
            yield record
        known.add(place)


def _records(
    path: Path, decisions: dict[str, tuple[MemoryRecord, DecisionRecord]], losses: Losses
) -> Iterator[MemoryRecord]:
    """Yield the notes of a file; put a decision record into `decisions`."""
    text = read_text(path, limit=MAX_FILE_BYTES).replace("\r\n", "\n")
    name = name_of(path)
    fields, body, problem = front_matter.split_fields(text)
    if problem:
        losses.add(path.name, f"{problem}; its text is imported without its fields")
    if is_template(name):
        losses.add(path.name, "is a template")
        return
    try:
        found = sections(body)
    except ValueError:
        raise UnreadableError(path, "is too long to be parsed", hint="split it") from None
    # Properties above the text, as Logseq writes them; the text keeps them. `id` is that of a block.
    fields = {name: value for name, value in properties_of(body).items() if name not in _OF_BLOCKS} | fields
    updated = iso(path.stat().st_mtime)
    file = _MarkdownFile(name, fields, body, updated, text[:_HEAD_CHARS])
    if is_decision(name, found):
        decisions[name] = _decision(file, found)
        return
    for record in _notes(file, found):
        if len(record.content.encode("utf-8", "surrogatepass")) > MAX_CONTENT_BYTES:
            losses.add(record.origin, f"is larger than {MAX_CONTENT_BYTES // 1000} kB")
        else:
            yield record


def _notes(file: _MarkdownFile, found: list[Section]) -> Iterator[MemoryRecord]:
    if _is_one(file):
        usual = _usual(file, _document_title(found))
        identity = _note_id(file)
        fields = {key: value for key, value in file.fields.items() if key != "id" or identity is None}
        # Relations of Confide's own notes use ids, so the id is the origin.
        yield record_of("markdown", identity or file.name, file.text.strip("\n"), fields, id=identity, **usual)
    else:
        yield from _sections(file, found)


def _decision(file: _MarkdownFile, found: list[Section]) -> tuple[MemoryRecord, DecisionRecord]:
    said = decision_of(file.name, file.text, found, file.fields.get("status"))
    fields = {key: value for key, value in file.fields.items() if key.lower() != "status"}
    usual = _usual(file, _document_title(found))
    usual |= {"category": "decisions", "importance": "high", "status": said.status}
    if said.date:
        usual["created"] = f"{said.date}T00:00:00Z"
    return record_of("markdown", file.name, file.text.strip("\n"), fields, **usual), said


def _relate(decisions: dict[str, tuple[MemoryRecord, DecisionRecord]]) -> Iterator[MemoryRecord]:
    """Yield the decision records with their relations, each stated by the later record; put unknown
    targets into the metadata.
    """
    succeeding: dict[str, set[str]] = {}
    for other, (_, of_other) in decisions.items():
        for name in of_other.superseded_by:
            succeeding.setdefault(name, set()).add(other)
    for name, (record, said) in decisions.items():
        earlier = {other for other in said.supersedes if other in decisions} | succeeding.get(name, set())
        unknown = {
            "supersedes": [other for other in said.supersedes if other not in decisions],
            "supersededBy": [other for other in said.superseded_by if other not in decisions],
        }
        relations = tuple(("supersedes", other) for other in sorted(earlier - {name}))
        metadata = record.metadata | {key: others for key, others in unknown.items() if others}
        yield replace(record, relations=(*record.relations, *relations), metadata=metadata)


def _sections(file: _MarkdownFile, found: list[Section]) -> Iterator[MemoryRecord]:
    document = _document_title(found)
    seen: dict[str, int] = {}
    for section in found:
        if not section.text:
            continue
        path = section.headings[1:] if document and section.headings[:1] == (document,) else section.headings
        place = f"{file.name}#{' > '.join(section.headings)}"
        usual = _usual(file, " / ".join(path) or document)
        usual["metadata"] = {"headings": list(section.headings)} if section.headings else {}
        usual |= _suggest(path or section.headings)
        around = stated_day(file.name, file.head)
        if of := days_of_headings(" > ".join(section.headings), around.span if around else year_of_path(file.name)):
            usual |= _stated_times(StatedDay(of))
        if section.items:
            for item in section.items:
                digest = hashlib.sha256(" ".join(item.text.split()).encode()).hexdigest()[:12]
                origin = f"{place}: {digest}"
                own = usual | {"title": title_of(item.text), "tags": _tags(path or section.headings)}
                if item.is_done is not None:
                    own["status"] = "done" if item.is_done else "open"
                yield record_of("markdown", _number_origin(origin, seen), item.text, _shared(file), **own)
        else:
            own = usual | {"tags": _tags(path[:-1])}
            yield record_of("markdown", _number_origin(place, seen), section.text, _shared(file), **own)


def _is_one(file: _MarkdownFile) -> bool:
    """Return True if the file is a single note: a Confide note, or a short file that its front
    matter names.
    """
    keys = {key.lower() for key in file.fields}
    is_ours = _note_id(file) is not None
    is_named = bool(keys & {"title", "name", "id"}) and len(file.text) <= _WHOLE_CHARS
    return bool(file.text.strip()) and (is_ours or is_named)


def _note_id(file: _MarkdownFile) -> str | None:
    identity = file.fields.get("id")
    return identity if isinstance(identity, str) and note_names.ID.fullmatch(identity) else None


def _usual(file: _MarkdownFile, title: str | None) -> Fields:
    stem = file.name.rpartition("/")[2].rpartition(".")[0]
    usual: Fields = {"title": (title or stem)[:_MAX_TITLE_CHARS], "updated": file.updated}
    return usual | _stated_times(stated_day(file.name, file.head))


def _stated_times(stated: StatedDay | None) -> Fields:
    """Return the times of a note that states its day: an old diary is not of the day on which its
    files were copied.
    """
    if stated is None:
        return {}
    time = iso(stated.moment) if stated.moment is not None else f"{stated.span.first}T00:00:00Z"
    return {"created": time, "updated": time}


def _shared(file: _MarkdownFile) -> Fields:
    """Return the front matter's fields for each part of the file: all except its name."""
    return {key: value for key, value in file.fields.items() if key.lower() not in ("title", "name", "id")}


def _suggest(headings: tuple[str, ...]) -> Fields:
    found: Fields = {}
    for heading in headings:
        words = heading.lower().split()
        if len(words) <= 3 and (category := next((_CATEGORIES[word] for word in words if word in _CATEGORIES), None)):
            found["category"] = category
    return found


def _tags(headings: tuple[str, ...]) -> tuple[str, ...]:
    is_plain = [heading for heading in headings if not dates_in(heading)]
    return tuple(dict.fromkeys(tag for heading in is_plain if (tag := slug(heading))))[-_MAX_TAGS:]


def _document_title(found: list[Section]) -> str | None:
    """Return the outermost heading if all others are below it."""
    outermost = {section.headings[0] for section in found if section.headings}
    return next(iter(outermost)) if len(outermost) == 1 else None


def _number_origin(origin: str, seen: dict[str, int]) -> str:
    """Return the origin, with a number if it was used before."""
    seen[origin] = seen.get(origin, 0) + 1
    return origin if seen[origin] == 1 else f"{origin} ({seen[origin]})"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The data of a decision record. `date` is YYYY-MM-DD; other records are named by paths
    relative to the same root.
    """

    status: str | None
    date: str | None
    supersedes: tuple[str, ...]
    superseded_by: tuple[str, ...]


def is_decision(path: str, found: list[Section]) -> bool:
    """Return True if the file is a decision record, by its name or its headings."""
    *folders, name = path.split("/")
    if is_template(path):
        return False
    if _NAMED.fullmatch(name) or (_NUMBERED.fullmatch(name) and folders and folders[-1].lower() in _FOLDERS):
        return True
    own = {section.headings[-1].lower() for section in found if section.headings}
    has_context = any(heading.startswith("context") for heading in own)
    has_decision = any(heading.startswith("decision") for heading in own)
    return has_context and has_decision and ("status" in own or "consequences" in own or "considered options" in own)


def is_template(path: str) -> bool:
    """Return True if the file is a template for decision records."""
    *folders, name = path.lower().split("/")
    return "template" in name and (bool(folders and folders[-1] in _FOLDERS) or name.startswith("adr"))


def decision_of(path: str, text: str, found: list[Section], status: object) -> DecisionRecord:
    """Read a decision record; `path` is its path, and `status` comes from its front matter."""
    stated = str(status) if isinstance(status, str) else ""
    section = next((one.text for one in found if one.headings and one.headings[-1].lower() == "status"), "")
    line = _STATUS_LINE.search(text[:2000])
    about = "\n".join((stated, section, line[1] if line else ""))
    date = _DATE_LINE.search(text[:2000])
    supersedes: list[str] = []
    superseded_by: list[str] = []
    for word, target in _LINKED.findall(about):
        named = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        (superseded_by if word.lower().endswith("d") else supersedes).append(named)
    return DecisionRecord(
        _status(stated or section or (line[1] if line else "")),
        date[1] if date else None,
        tuple(dict.fromkeys(supersedes)),
        tuple(dict.fromkeys(superseded_by)),
    )


def _status(text: str) -> str | None:
    """Return the status as one word if it is a usual one.

    Of several lines, as adr-tools adds them, `superseded` takes precedence over the first usual
    word.
    """
    lines = [plain(line.strip().lstrip("-*+ ")) for line in text.split("\n")]
    lines = [line for line in lines if line]
    known = [line.split()[0].lower().strip(".,:;") for line in lines]
    usual = [word for word in known if word in _WORDS]
    if usual:
        return "superseded" if "superseded" in usual else usual[0]
    return lines[0][:60] if lines else None


READER = MarkdownReader()
