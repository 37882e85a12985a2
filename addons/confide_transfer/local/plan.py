"""The plan of an import: named or found stores with their readers, a survey of their contents, and
the sealed batches to send.

Each survey or delivery reads a store again, so that nothing has to be held: an export may be larger
than memory.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, printable
from confide_crypto.sealing.placeholder import STANDIN
from confide_memory.documents import to_nfc
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import BlockedError, ToolError, UnreadableError
from confide_proxy.sealing import sealed_calls
from confide_proxy.sealing.detection import scanner
from confide_proxy.sealing.sealer import Sealer, Secret
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.project import Project
from confide_transfer.local import import_files
from confide_transfer.local.fields import project_of, to_fields, to_json
from confide_transfer.local.reader import MAX_RECORDS, Fields, Losses, MemoryRecord, Reader, Skipped
from confide_transfer.local.readers import readers
from confide_transfer.local.readers.markdown import MarkdownReader, is_decision, is_template

SOURCE: Final = "imports"
_CALLED: Final = ("title", "type", "category", "entity", "source", "status")
_TEXTS: Final = ("content", *_CALLED)
_LISTS: Final = ("tags", "keywords")
LEAST: Final = 0.6
"""Minimum confidence at which a word counts as a credential."""
_RUN: Final = 8
"""Number of consecutive letters and digits that reveal a credential."""
BATCH_RECORDS = 200
BATCH_BYTES = 4 * 1024 * 1024
"""Limit of one batch; the daemon accepts this many bytes and `BATCH_RECORDS` notes in one request.
"""
_MAX_HELD_BYTES = 4 * BATCH_BYTES
_PLAIN = frozenset({"markdown", "json"})
"""Readers of generic formats: a specific reader that recognises a store takes precedence."""
MOST_NAMED = 5
NOTES: Final = ("NOTES.md", "notes.md", "CLAUDE.md", "GEMINI.md")
AGENT_MEMORY: Final = (".claude/agent-memory", ".claude/agent-memory-local")
"""Folders of Claude Code's subagents in a project."""
FOLDERS: Final = (".", "docs", "doc")
DECISION_FOLDERS: Final = ("adr", "adrs", "decisions", "architecture/decisions")
MOST_FILES: Final = 500
"""Limit of files that are listed in one folder."""


class DetectionHints:
    """The parts of a record's credentials, used to find remains of them in its title and other
    short fields.

    Such a field is often the beginning of the text without markup, and the scanner does not
    recognise a shortened credential.
    """

    def __init__(self, credentials: Iterable[str]) -> None:
        bare = list(map(_bare, credentials))
        self._runs = {value[at : at + _RUN] for value in bare for at in range(max(1, len(value) - _RUN + 1))} - {""}
        self._sizes = sorted({len(run) for run in self._runs})

    def without(self, text: str) -> str | None:
        """Return the text up to the first part of a credential, or None if nothing is left."""
        masked = STANDIN.sub(lambda found: "\0" * len(found[0]), text)
        places = [at for at, letter in enumerate(masked) if letter.isalnum() or letter == "\0"]
        bare = "".join(masked[at].lower()[0] for at in places)
        for begin, at in enumerate(places):
            if any(bare[begin : begin + size] in self._runs for size in self._sizes):
                return f"{text[:at]}…" if text[:at].strip() else None
        return text


def _bare(text: str) -> str:
    return "".join(letter.lower()[0] for letter in text if letter.isalnum())


def seal_record(record: MemoryRecord, sealer: Sealer) -> tuple[MemoryRecord, tuple[Secret, ...]]:
    """Return the record with a placeholder for each credential in its texts, lists and metadata,
    and the secrets.

    With `sensitive: true` in its metadata, its whole content is one secret.

    Raise BlockedError if the policy blocks a credential, UnsealableError if this device cannot seal
    it, KeyFileError if the key of its fingerprints is unusable, and ToolError if the metadata is
    nested too deep to scan.
    """
    said: Fields = {name: getattr(record, name) for name in _TEXTS}
    said |= {name: list(getattr(record, name)) for name in _LISTS}
    said["metadata"] = to_json(record.metadata)
    if not (sealed_calls.gives_reason(said) or sealer.knows(said)) and record.metadata.get("sensitive") is not True:
        return record, ()
    whole = "content" if record.metadata.get("sensitive") is True else None
    found: set[str] = set()
    sealed, secrets = sealed_calls.seal(said, sealer, SOURCE, whole=whole, found=found)
    tellings = DetectionHints(found)
    sealed |= {name: tellings.without(sealed[name]) for name in _CALLED if sealed[name]}
    sealed |= {name: tuple(filter(None, map(tellings.without, sealed[name]))) for name in _LISTS}
    if whole and _bare(record.title or "") in _bare(record.content):
        sealed["title"] = None
    named = id_of(record, is_told=sealed["entity"] == record.entity)
    return replace(record, **sealed, id=named), secrets


def seal_origin(note: Fields, sealer: Sealer) -> tuple[Fields, tuple[Secret, ...]]:
    """Seal credentials in the note's `origin` and `relations` metadata, since the path of an export
    may contain a key. Return the note and the secrets.

    Raise BlockedError if the policy blocks a credential, UnsealableError if this device cannot seal
    it, and KeyFileError if its key cannot be used.
    """
    metadata = note.get("metadata") or {}
    about = {name: metadata[name] for name in ("origin", "relations") if name in metadata}
    if not (sealed_calls.gives_reason(about) or sealer.knows(about)):
        return note, ()
    sealed, secrets = sealed_calls.seal(about, sealer, SOURCE)
    return {**note, "metadata": {**metadata, **sealed}}, secrets


def id_of(record: MemoryRecord, *, is_told: bool = True) -> str:
    """Return the id of a record's note. It contains the name of the entity, unless that is a
    credential or `is_told` is False.
    """
    if record.entity is None or (is_told and not scanner.scan(record.entity, LEAST)):
        return record.note_id
    return replace(record, entity=None).note_id


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A store to import, with its reader."""

    path: Path
    reader: Reader

    @property
    def label(self) -> str:
        """The path for users: the home folder as `~`, the same on each device, without terminal
        control characters.
        """
        home = Path.home()
        return printable(f"~/{self.path.relative_to(home)}" if home in self.path.parents else str(self.path))


@dataclass(slots=True)
class Survey:
    """The contents of a store: numbers of notes by project, category, level and tag, and the first
    titles.

    `failure` is the error that stopped the reading.
    """

    store: ImportSource
    notes: int = 0
    failure: ConfideError | None = None
    losses: Losses = field(default_factory=Losses)
    projects: Counter[str] = field(default_factory=Counter)
    categories: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)
    titles: list[str] = field(default_factory=list)

    @property
    def problem(self) -> str | None:
        """The error that stopped the reading, as a part of a sentence with its hint; None if there
        was none.
        """
        if self.failure is None:
            return None
        sentence = f"it {self.failure.problem}" if isinstance(self.failure, UnreadableError) else str(self.failure)
        return f"{sentence} ({self.failure.hint})" if self.failure.hint else sentence

    @property
    def remarks(self) -> list[str]:
        """The problems of the store, as parts of a line."""
        skipped = [f"{self.losses.count} skipped"] if self.losses.count else []
        return [*skipped, self.problem] if self.problem else skipped

    def to_json(self) -> dict[str, object]:
        found: Fields = {
            "path": self.store.label,
            "system": self.store.reader.name,
            "notes": self.notes,
            "projects": dict(self.projects),
            "categories": dict(self.categories.most_common(MOST_NAMED)),
            "importance": dict(self.levels),
            "tags": dict(self.tags.most_common(MOST_NAMED)),
            "titles": self.titles,
            "skippedCount": self.losses.count,
            "skipped": [{"origin": one.origin, "reason": one.reason} for one in self.losses.skips],
        }
        return found if self.problem is None else found | {"problem": self.problem}


@dataclass(frozen=True, slots=True)
class ImportBatch:
    """Sealed notes of one project for one request.

    Attributes:
        origins: names of the notes for users, in the same order.
        secrets: to be stored at the daemon before the notes are sent.
        refused: notes that the policy does not allow to leave this device.
    """

    project: str
    notes: list[Fields] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    secrets: dict[Secret, None] = field(default_factory=dict)
    refused: list[Skipped] = field(default_factory=list)


class ImportPlan:
    """The import of some stores into one project."""

    def __init__(self, stores: Sequence[ImportSource], project: Project, config: ProxyConfig) -> None:
        chosen = config.options_for(project.root)
        folder = Folder(project.name, project.root, chosen.extra if chosen else config.extra)
        self._project = project.name
        self._reading = MarkdownReader(lambda file: _is_memory(folder, file))
        self._ids: dict[tuple[str, str], str] = {}
        self.stores = list(stores)
        self.surveys: list[Survey] = []

    @property
    def ids(self) -> list[str]:
        """The ids of the records' notes, each once; filled by a survey."""
        return list(dict.fromkeys(self._ids.values()))

    @property
    def notes(self) -> int:
        return sum(survey.notes for survey in self.surveys)

    def survey(self) -> list[Survey]:
        """Read every store, and collect the ids that relations refer to. Blocks while it reads."""
        self._ids.clear()
        self.surveys = [self._survey(store) for store in self.stores]
        return self.surveys

    def batches(self, sealer: Sealer) -> Generator[ImportBatch]:
        """Yield the batches to send, after a survey, which reports the stores that break off.
        Blocks while it reads.

        Raise UnsealableError if there is a credential and this device has no keys, and KeyFileError
        if the key of its fingerprints is unusable.
        """
        waiting: dict[str, ImportBatch] = {}
        sizes: Counter[str] = Counter()
        for store in self.stores:
            for record in self._records(store, Losses(), None):
                project = project_of(record, self._project)
                origin = f"{store.label}: {printable(record.origin)}"
                batch = waiting.get(project)
                try:
                    sealed, secrets = seal_record(record, sealer)
                    note, more = seal_origin(to_fields(sealed, self._ids, store.label), sealer)
                except (BlockedError, ToolError) as error:
                    batch = waiting.setdefault(project, ImportBatch(project))
                    batch.refused.append(Skipped(origin, str(error)))
                    continue
                size = len(json.dumps(note, ensure_ascii=False).encode())
                if batch and (len(batch.notes) >= BATCH_RECORDS or sizes[project] + size > BATCH_BYTES):
                    yield waiting.pop(project)
                    sizes[project] = 0
                batch = waiting.setdefault(project, ImportBatch(project))
                batch.notes.append(note)
                batch.origins.append(origin)
                batch.secrets.update(dict.fromkeys((*secrets, *more)))
                sizes[project] += size
                if sizes.total() > _MAX_HELD_BYTES:
                    yield from waiting.values()
                    waiting.clear()
                    sizes.clear()
        yield from waiting.values()

    def _survey(self, store: ImportSource) -> Survey:
        survey = Survey(store)
        for record in self._records(store, survey.losses, survey):
            self._ids[record.system, record.origin] = id_of(record)
            survey.notes += 1
            survey.projects[project_of(record, self._project)] += 1
            if record.category:
                survey.categories[_display_text(record.category)] += 1
            if isinstance(record.importance, str):
                survey.levels[_display_text(record.importance)] += 1
            survey.tags.update(map(_display_text, record.tags))
            if record.title and len(survey.titles) < MOST_NAMED:
                survey.titles.append(_display_text(record.title))
        return survey

    def _records(self, store: ImportSource, losses: Losses, survey: Survey | None) -> Iterator[MemoryRecord]:
        reader = self._reading if isinstance(store.reader, MarkdownReader) else store.reader
        try:
            records = reader.read(store.path, losses)
            yield from islice(records, MAX_RECORDS)
            if next(records, None) is not None:
                raise UnreadableError(store.path, f"holds more than {MAX_RECORDS:,} memories")
        except Exception as error:
            # Foreign data may be broken in ways that its reader does not expect: the other stores
            # are read all the same.
            broken = UnreadableError(store.path, f"cannot be read any further ({type(error).__name__})")
            if survey is not None:
                survey.failure = error if isinstance(error, ConfideError) else broken


def _display_text(words: str) -> str:
    """Return a title, tag or other name for users and agents, or "(a credential)"."""
    return "(a credential)" if scanner.scan(words, LEAST) else printable(words)


def stores_at(paths: Sequence[Path], name: str | None) -> list[ImportSource]:
    """Return the stores at these paths, with the named reader or the one that recognises each.

    Raise UnreadableError if a path does not exist, no reader or more than one recognises it, a
    project excludes it, or no reader has that name.
    """
    known = readers()
    if name is not None and name not in known:
        raise UnreadableError(Path(name), "is no system that is known", hint=f"--from takes: {', '.join(known)}")
    for path in paths:
        if import_files.is_excluded(path):
            raise UnreadableError(path, import_files.PROBLEM, hint="take it out of that file's exclude")
    if name is not None:
        return [ImportSource(path, known[name]) for path in paths]
    return [ImportSource(each, reader_of(each)) for path in paths for each in databases_in(path) or [path]]


_DATABASES: Final = (".db", ".sqlite", ".sqlite3")
_MOST_LOOKED_AT: Final = 64


def databases_in(path: Path) -> list[Path]:
    """Return the databases of known systems in a folder that is not a store itself, such as
    `~/.claude-mem`.
    """
    special = [reader for reader in readers().values() if reader.name not in _PLAIN]
    if not path.is_dir() or any(reader.recognises(path) for reader in special):
        return []
    names = [name for name in _names(path) if name.lower().endswith(_DATABASES)]
    files_ = [path / name for name in names[:_MOST_LOOKED_AT] if not (path / name).is_symlink()]
    return [file for file in files_ if sum(reader.recognises(file) for reader in special) == 1]


def reader_of(path: Path) -> Reader:
    """Return the reader for a path. Raise UnreadableError if no reader or more than one recognises
    it.
    """
    if not path.exists():
        raise UnreadableError(
            path, "is not there", hint="name a file or a folder that exists: confide import notes/ export.json"
        )
    found = [reader for reader in readers().values() if reader.recognises(path)]
    found = [reader for reader in found if reader.name not in _PLAIN] or found
    if not found:
        titles = ", ".join(reader.title for reader in readers().values())
        raise UnreadableError(path, "is of no form that is known", hint=f"what can be read: {titles}")
    if len(found) > 1:
        names = " or ".join(f"--from {reader.name}" for reader in found)
        raise UnreadableError(path, "may be of several systems", hint=f"say which: {names}")
    return found[0]


def _is_memory(folder: Folder, file: Path) -> bool:
    try:
        return folder.is_watched(to_nfc(file.resolve().relative_to(folder.root.resolve()).as_posix()))
    except ValueError:
        return False


def to_project_path(project: Project) -> list[ImportSource]:
    """Return the notes, subagents' memories and decision records in a repository, except those that
    are part of the memory already.
    """
    root, reader = project.root, readers()["markdown"]
    paths = [path for name in NOTES if (path := root / name).is_file() and not path.is_symlink()]
    paths += [root / ".claude" / name for name in _names(root / ".claude") if name.lower().endswith(".md")]
    paths += [path for name in AGENT_MEMORY if _has_notes(path := root / name)]
    for folder in FOLDERS:
        # Checks names only: a folder may have a thousand documents, and the user is waiting.
        names = [name for name in _names(root / folder) if is_decision(name, []) and not is_template(name)]
        paths += [root / folder / name for name in names]
        inner = [root / folder / decisions for decisions in DECISION_FOLDERS]
        paths += [path for path in inner if any(name.lower().endswith(".md") for name in _names(path))]
    by_file: dict[tuple[int, int], Path] = {}
    for path in paths:
        with suppress(OSError):
            status = os.lstat(path)
            # NOTES.md and notes.md are the same file on a file system that ignores case.
            by_file.setdefault((status.st_dev, status.st_ino), path)
    return [ImportSource(path, reader) for path in by_file.values() if not import_files.is_excluded(path)]


def in_home(home: Path, name: str | None = None) -> list[ImportSource]:
    """Return the stores of other tools in their usual folders, or only those of the named tool."""
    return [
        ImportSource(path, reader)
        for reader in readers().values()
        if name in (None, reader.name)
        for path in reader.places(home)
        if os.path.lexists(path) and reader.recognises(path)
    ]


def _has_notes(folder: Path) -> bool:
    """Return True for a folder with markdown in it, which is not the user's for all projects."""
    if not import_files.is_folder(folder) or readers()["agent-notes"].recognises(folder):
        return False
    found = import_files.files_below(folder, lambda name: name.lower().endswith(".md"), Losses())
    return next(found, None) is not None


def _names(folder: Path) -> list[str]:
    if not import_files.is_folder(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            found = (entry.name for entry in entries if entry.is_file(follow_symlinks=False))
            return sorted(islice(found, MOST_FILES))
    except OSError:
        return []
