"""Reads basic-memory: a folder of markdown files with front matter, observations and relations.

A file is a note. An observation is an item such as `- [decision] We take SQLite #db (after the load
test)`, a relation one such as `- depends_on [[Other note]]`; a link in other text is a relation too
(markdown/plugins.py). The text stays whole, with both in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from confide_memory import front_matter
from confide_memory.documents import iso
from confide_proxy.errors import UnreadableError
from confide_transfer.local.fields import record_of
from confide_transfer.local.import_files import files_below, head, is_folder, name_of, prefix_origins, read_text
from confide_transfer.local.reader import Losses, MemoryRecord, Reader, kind_of, screen

_MAX_FILE_BYTES = 2**20
_LOOKED_AT = 64
"""Number of files, one of which must have a permalink for the folder to be recognised."""
_ITEM = re.compile(r"\s{0,12}[-*+]\s+(.*)")
_OBSERVATION = re.compile(r"\[(?![ xX-]\])([^\[\]()]{1,100})\]\s+(\S.*)")
_TASK = re.compile(r"\[[ xX-]\]")
_TAG = re.compile(r"(?<!\S)#([^\s()]{1,100})")
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[\[([^\[\]\n]{1,400})\]\]")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_MAX_LINKS = 512


class _Link(NamedTuple):
    type: str
    target: str
    context: str | None


class BasicMemory(Reader):
    name = "basic-memory"
    title = "basic-memory"

    def recognises(self, path: Path) -> bool:
        """Return True if one of the folder's first files has a permalink, a field that basic-memory
        writes.
        """
        if not is_folder(path):
            return False
        first = islice(files_below(path, _is_markdown, Losses()), _LOOKED_AT)
        with suppress(UnreadableError, OSError):
            return any(re.match(rb"---\r?\n(?:.*\n)*?permalink:\s*\S", head(file)) for file in first)
        return False

    def places(self, home: Path) -> list[Path]:
        """Return the folders of the projects in its configuration, and its default folder."""
        found = [home / "basic-memory"]
        try:
            config = json.loads(read_text(home / ".basic-memory" / "config.json", limit=2**20))
            projects = config["projects"].values()
        except (UnreadableError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            projects = []
        for project in projects:
            path = project.get("path") if isinstance(project, dict) else project
            if isinstance(path, str) and Path(path).is_absolute():
                found.append(Path(path))
        return list(dict.fromkeys(found))

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        """Yield the notes folder by folder, sorted by name."""
        if not is_folder(path):
            raise UnreadableError(path, "is no folder", hint="name the folder of a basic-memory project")
        yield from prefix_origins(screen(_records(path, losses), losses), name_of(path))


def _is_markdown(name: str) -> bool:
    return name.lower().endswith(".md")


def _records(root: Path, losses: Losses) -> Iterator[MemoryRecord]:
    origins: dict[Path, str] = {}
    names: dict[str, str] = {}
    taken: set[str] = set()
    for file in files_below(root, _is_markdown, losses):
        text = _text(root, file, losses)
        if text is None:
            continue
        fields, _, _ = front_matter.split_fields(text)
        place = file.relative_to(root).with_suffix("").as_posix()
        permalink = fields.get("permalink")
        origin = permalink if isinstance(permalink, str) and permalink else place
        if origin in taken:
            origin = place
        taken.add(origin)
        origins[file] = origin
        # A link names a note by its permalink, title, path or file name; the first note with a name
        # keeps it.
        for name in (origin, fields.get("title"), place, file.stem):
            if isinstance(name, str):
                names.setdefault(_plain(name), origin)
    unheard = Losses()
    for file, origin in origins.items():
        text = _text(root, file, unheard)
        if text is not None:
            yield _record(root, file, origin, text, names, losses)


def _text(root: Path, file: Path, losses: Losses) -> str | None:
    try:
        return read_text(file, limit=_MAX_FILE_BYTES).replace("\r\n", "\n")
    except UnreadableError as error:
        losses.add(file.relative_to(root).as_posix(), str(error).rpartition(": it ")[2])
        return None


def _record(root: Path, file: Path, origin: str, text: str, names: dict[str, str], losses: Losses) -> MemoryRecord:
    fields, body, problem = front_matter.split_fields(text)
    name = file.relative_to(root).as_posix()
    if problem:
        losses.add(name, f"{problem}; its text is imported without its fields")
    tags, categories, links = _marks(body)
    relations: list[tuple[str, str]] = []
    kept: list[dict[str, str]] = []
    for link in links:
        target = names.get(_plain(link.target.partition("|")[0]))
        kind, is_same = kind_of(link.type)
        if target is not None and target != origin:
            relations.append((kind, target))
        if target is None or not is_same or link.context:
            item = {"type": link.type, "target": link.target, "context": link.context}
            kept.append({key: value for key, value in item.items() if value})
    stated = {target for kind, target in relations if kind != "see_also"}
    relations = [(kind, target) for kind, target in relations if kind != "see_also" or target not in stated]
    if fields.get("permalink") == origin:
        del fields["permalink"]
    updated = None
    with suppress(OSError, OverflowError, ValueError):
        updated = iso(file.stat().st_mtime)
    record = record_of(BasicMemory.name, origin, body.strip("\n"), fields, title=file.stem, updated=updated)
    return replace(
        record,
        # The text's tags and relations come after those of the front matter.
        tags=tuple(dict.fromkeys((*record.tags, *tags))),
        keywords=tuple(dict.fromkeys((*record.keywords, *categories))),
        relations=tuple(dict.fromkeys((*record.relations, *relations))),
        metadata={**record.metadata, "file": name, **({"relations": kept} if kept else {})},
    )


def _marks(body: str) -> tuple[list[str], list[str], list[_Link]]:
    """Return the tags and categories of the observations, and the links; code is skipped."""
    tags: list[str] = []
    categories: list[str] = []
    links: list[_Link] = []
    fence = ""
    for line in body.split("\n"):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        if fence:
            continue
        line = _CODE.sub("", line)
        item = _ITEM.fullmatch(line)
        text = item[1].strip() if item else line
        observation = _OBSERVATION.match(text) if item else None
        if observation:
            categories.append(observation[1].strip())
        if item and not _TASK.match(text):
            tags += (tag for word in _TAG.findall(text) for tag in word.split("#") if tag)
        found = list(_LINK.finditer(text))
        if item and found and not observation:
            before, after = text[: found[0].start()].strip(), text[found[0].end() :].strip()
            context = after[1:-1].strip() if after.startswith("(") and after.endswith(")") else None
            links.append(_Link(before[:100] or "relates_to", found[0][1].strip(), context or None))
            found = found[1:]
        links += [_Link("links_to", link[1].strip(), None) for link in found]
    return list(dict.fromkeys(tags)), list(dict.fromkeys(categories)), links[:_MAX_LINKS]


def _plain(name: str) -> str:
    return name.strip().removeprefix("memory://").removesuffix(".md").casefold()


READER = BasicMemory()
