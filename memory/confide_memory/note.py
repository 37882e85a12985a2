"""Notes: markdown documents with front matter fields, written by people and by tools.

Fields that a person wrote are used if they can be understood. The others are reported in `problems`
and left unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confide_memory import front_matter, note_names
from confide_memory.documents import GLOBAL_PROJECT, task_of
from confide_memory.front_matter import FrontMatter
from confide_memory.markdown_blocks import is_sensitive
from confide_memory.note_names import MAX_TITLE, title_of

SCOPES = ("global", "project", "task")
RELATIONS = (
    "supports",
    "contradicts",
    "supersedes",
    "refines",
    "depends_on",
    "implements",
    "example_of",
    "part_of",
    "see_also",
)
IMPORTANCE: Mapping[str, float] = {"core": 1.0, "high": 0.75, "normal": 0.5, "low": 0.25}
NEUTRAL = IMPORTANCE["normal"]

# Fields of a note that name the one which supersedes it, as people write them.
_SUCCEEDED_BY = ("superseded_by", "supersededBy", "superseded-by", "replaced_by", "replacedBy", "replaced-by")

MAX_WORD = 100  # characters of a tag, a keyword, an entity, a type, ...
MAX_TAGS = 32
MAX_KEYWORDS = 32
MAX_RELATIONS = 64
MAX_METADATA_BYTES = 16 * 1024

ABOUT = "about"
"""The field that names the parts of a project of which a note speaks."""
SEEN = "seen"
"""The field with hashes of these parts, which devices write (PROTOCOL.md 9.9)."""
DESCRIBED = ("command", "error")
"""The fields with the commands and errors of which a note speaks, as its text gives them or its author."""
MAX_SEEN = 16
MAX_SEEN_NAME = 300  # characters of a part's name
SEEN_VALUE = re.compile(
    r"[0-9a-f]{16}(?:\.[1-9][0-9]{0,6})? (?:[0-9a-f]{16}|-) (?:[0-9a-f]{7,64}|-) [0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII
)

# The order of the fields in a new note.
FIELDS = (
    "id",
    "title",
    "scope",
    "taskId",
    "type",
    "category",
    "entity",
    "tags",
    "importance",
    "keywords",
    "status",
    "source",
    "sensitive",
    "relations",
    "metadata",
    *DESCRIBED,
    SEEN,
    "created",
    "updated",
)


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation to another note, stated in a note's front matter."""

    kind: str
    other: str  # the id of that note

    def as_field(self) -> dict[str, str]:
        """Return the relation as the value that the front matter contains."""
        return {"relation": self.kind, "id": self.other}


@dataclass(frozen=True, slots=True)
class Note:
    """A note's content and fields. Text fields that the document does not state are None.

    Attributes:
        body: the markdown below the front matter.
        importance: 0 to 1.
        created, updated: seconds since 1970.
        digest: hash of the body without blanks at its ends; equal for notes with the same text.
        problems: one sentence for each field that was not understood, for the user who wrote it.
    """

    id: str
    path_id: str  # the id it gets if another note has its own
    title: str
    body: str
    scope: str
    task_id: str | None = None
    type: str | None = None
    category: str | None = None
    entity: str | None = None
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    importance: float = NEUTRAL
    status: str | None = None
    source: str | None = None
    sensitive: bool = False
    relations: tuple[Relation, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    created: float | None = None
    updated: float | None = None
    problems: tuple[str, ...] = ()

    @property
    def digest(self) -> bytes:
        """A hash of the body; equal for two notes with the same text."""
        return digest_of(self.body)

    @property
    def words(self) -> str:
        """Text that a search also finds besides the body: tags, keywords, entity, category and
        type. The title is not included, since it is indexed with the headings.
        """
        return " ".join(filter(None, [*self.tags, *self.keywords, self.entity, self.category, self.type]))


def seen_of(value: Any) -> dict[str, str]:
    """Return the valid entries of the front matter field `seen`, at most `MAX_SEEN`."""
    entries = value.items() if isinstance(value, dict) else ()
    found = {
        name: said
        for name, said in entries
        if isinstance(name, str)
        and 0 < len(name) <= MAX_SEEN_NAME
        and name.isprintable()
        and isinstance(said, str)
        and SEEN_VALUE.fullmatch(said)
    }
    return dict(list(found.items())[:MAX_SEEN])


def digest_of(body: str) -> bytes:
    """Return a hash of a note's text, 16 bytes, that ignores line ends and blanks at both ends of
    the text.
    """
    return hashlib.blake2b(body.replace("\r\n", "\n").strip().encode(), digest_size=16).digest()


def status_of(fields: Mapping[str, object]) -> object:
    """Return the status of a note from its fields. It is `superseded` if they name a successor."""
    return "superseded" if any(fields.get(name) for name in _SUCCEEDED_BY) else fields.get("status")


def level_of(importance: float) -> str:
    """Return the word for an importance between 0 and 1: the nearest of core, high, normal, low."""
    return min(IMPORTANCE, key=lambda word: (abs(IMPORTANCE[word] - importance), -IMPORTANCE[word]))


def importance_of(value: Any) -> float | None:
    """Return the importance (0 to 1) for a value given as a word or number; None if it is not
    valid.
    """
    if isinstance(value, str):
        return IMPORTANCE.get(value.strip().lower())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 1 else None


def moment_of(value: Any) -> float | None:
    """Parse an ISO date or time into seconds since 1970; without a zone it is taken as UTC. None if
    it is malformed, or outside of the years 1 to 9999 in UTC.
    """
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        # A time valid in its own zone may be in year 0 or 10000 in UTC, which cannot be shown.
        datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return None
    return seconds


def scope_of(project: str, task_id: str | None) -> str:
    """Return the scope (one of `SCOPES`) of notes in a project, or of notes of a task if `task_id`
    is given.
    """
    return "task" if task_id else "global" if project == GLOBAL_PROJECT else "project"


def read(project: str, path: str, text: str) -> Note:
    """Parse a document as a note. Never raises: fields that cannot be understood are listed in
    `problems`.
    """
    return _FieldReader(front_matter.parse(text)).note(project, path)


class _FieldReader:
    """Reads the fields of one document, and collects problems."""

    def __init__(self, parts: FrontMatter) -> None:
        self._parts = parts
        # People write `task_id` as well as `taskId`; the first one counts.
        self._fields = {
            "taskId" if name == "task_id" else name: value for name, value in reversed(parts.fields.items())
        }
        self._problems: list[str] = [] if parts.problem is None else [parts.problem]

    def note(self, project: str, path: str) -> Note:
        task_id = task_of(path)
        scope = scope_of(project, task_id)
        body = self._parts.body.strip("\r\n")
        stated = self._take(
            "scope", lambda said: said if said in SCOPES else None, f"'scope' is one of {', '.join(SCOPES)}"
        )
        if stated is not None and stated != scope:
            self._problem(f"'scope' says {stated}, but the file lies where notes of scope {scope} do")
        if (of := self._word("taskId")) is not None and of != task_id:
            self._problem("'taskId' is not that of the folder the file lies in")
        path_id = note_names.id_of_path(project, path)
        return Note(
            id=self._take("id", _identity, "'id' is not of the form mem_name_time_hash, so the file's name gives one")
            or path_id,
            path_id=path_id,
            title=self._word("title", MAX_TITLE) or title_of(body) or path.rsplit("/", 1)[-1].removesuffix(".md"),
            body=body,
            scope=scope,
            task_id=task_id,
            type=self._word("type"),
            category=self._word("category"),
            entity=self._word("entity"),
            tags=self._words("tags", MAX_TAGS),
            keywords=self._words("keywords", MAX_KEYWORDS),
            importance=self._importance(),
            status=self._status(),
            source=self._word("source"),
            sensitive=is_sensitive(self._parts.head),
            relations=self._relations(),
            metadata=self._metadata(),
            created=self._take("created", moment_of, "'created' is not an ISO date"),
            updated=self._take("updated", moment_of, "'updated' is not an ISO date"),
            problems=tuple(self._problems),
        )

    def _problem(self, sentence: str) -> None:
        # The entries of a long list may all have the same problem.
        if sentence not in self._problems:
            self._problems.append(sentence)

    def _take(self, name: str, understand: Callable[[Any], Any], problem: str) -> Any:
        value = self._fields.get(name)
        if value is None:
            return None
        found = understand(value)
        if found is None:
            self._problem(problem)
        return found

    def _importance(self) -> float:
        found = self._take("importance", importance_of, f"'importance' is 0 to 1, or {', '.join(IMPORTANCE)}")
        return NEUTRAL if found is None else float(found)

    def _status(self) -> str | None:
        stated = status_of(self._fields)
        return self._word("status") if stated is self._fields.get("status") else str(stated)

    def _word(self, name: str, most: int = MAX_WORD) -> str | None:
        value = self._fields.get(name)
        if value is None:
            return None
        found = _plain(value)
        if found is None or len(found) > most:
            self._problem(f"'{name}' is one line of at most {most} characters")
            return None
        return found or None

    def _words(self, name: str, most: int) -> tuple[str, ...]:
        value = self._fields.get(name)
        if value is None:
            return ()
        # People write a single tag, or several separated by commas.
        items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
        found = [_plain(item) for item in items]
        # People write a tag as `#tag`; a keyword such as `#include` keeps its mark.
        mark = "#" if name == "tags" else ""
        words = list(dict.fromkeys(word.lstrip(mark) for word in found if word and len(word) <= MAX_WORD))
        if None in found or any(word and len(word) > MAX_WORD for word in found):
            self._problem(f"'{name}' holds something that is no word of at most {MAX_WORD} characters")
        if len(words) > most:
            self._problem(f"'{name}' has more than {most} entries; the first {most} count")
        return tuple(word for word in words[:most] if word)

    def _relations(self) -> tuple[Relation, ...]:
        value = self._fields.get("relations")
        if value is None:
            return ()
        entries: list[tuple[Any, Any]] = []
        if isinstance(value, list):
            for item in value:
                entries += [(item.get("relation"), item.get("id"))] if isinstance(item, dict) else [(None, None)]
        elif isinstance(value, dict):  # `supersedes: [id, id]`, as people write it
            for kind, others in value.items():
                entries += [(kind, other) for other in (others if isinstance(others, list) else [others])]
        else:
            entries.append((None, None))
        found = []
        for kind, other in entries:
            if kind in RELATIONS and isinstance(other, str) and note_names.is_id(other):
                found.append(Relation(kind, other))
            else:
                self._problem(f"'relations' holds an entry that is not {{relation, id}} of {', '.join(RELATIONS)}")
        if len(found) > MAX_RELATIONS:
            self._problem(f"'relations' has more than {MAX_RELATIONS} entries; the first {MAX_RELATIONS} count")
        return tuple(dict.fromkeys(found))[:MAX_RELATIONS]

    def _metadata(self) -> Mapping[str, object]:
        value = self._fields.get("metadata")
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._problem("'metadata' is not a list of `name: value`")
            return {}
        return value


def _identity(value: Any) -> str | None:
    return value if isinstance(value, str) and note_names.ID.fullmatch(value) else None


def _plain(value: Any) -> str | None:
    """Return a scalar as one line of text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str) or "\n" in value.strip():
        return None
    return " ".join(value.split())
