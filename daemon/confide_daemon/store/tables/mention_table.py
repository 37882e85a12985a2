"""SQL for the tags, names and links of documents. Links are resolved when they are read."""

# ruff: noqa: S608 - only constants of our own are put into SQL; every value is a parameter

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confide_daemon.store.database import AMONG, Table, within
from confide_daemon.store.rows import DocumentRow, LinkedRow
from confide_memory import mentions
from confide_memory.mentions import Mentions, fold_name

# Links of a document, and links that may lead to it, that are resolved at most; each is an index
# lookup.
MOST_LOOKED_UP: Final = 200
# Files of one name in a project, from which a link's target is chosen.
MOST_NAMESAKES: Final = 64
# Links of a project that are resolved for its graph.
MOST_LINKS: Final = 400

_LINKED = """SELECT d.id, p.name, d.path, n.id, n.title FROM document d JOIN project p ON p.id = d.project
    LEFT JOIN note n ON n.document = d.id WHERE d.id = ? AND NOT d.deleted"""


@dataclass(frozen=True, slots=True)
class _LinkTarget:
    """A document that a link may lead to."""

    id: int
    path: str
    is_alias: bool


class LinkRow(NamedTuple):
    """A wiki link between two documents of a project. `id` and `other` are the ids of the two
    notes; None for a file that is no note.
    """

    id: str | None
    title: str
    path: str
    target: str
    other: str | None
    other_title: str
    other_path: str


class MentionTable(Table):
    """The tags, names and links in memory documents that are not deleted. A link leads to a
    document of the same project.
    """

    def replace(self, document: DocumentRow, found: Mentions | None) -> None:
        """Replace the stored tags, names and links of a document. `found` None: remove them, since
        the document is deleted.
        """
        for table in ("document_name", "document_tag", "document_link"):
            self._rows(f"DELETE FROM {table} WHERE document = ?", (document.id,))
        rows = 0
        if found is not None:
            names = [(fold_name(mentions.name_of(document.path)), False)]
            names += [(alias, True) for alias in dict.fromkeys(fold_name(alias) for alias in found.aliases)]
            for name, is_alias in names:
                sql = "INSERT INTO document_name (document, name, is_alias) VALUES (?, ?, ?)"
                self._rows(sql, (document.id, name, is_alias))
            tags = list(dict.fromkeys(fold_name(tag) for tag in found.tags))
            for tag in tags:
                self._rows("INSERT INTO document_tag (document, tag) VALUES (?, ?)", (document.id, tag))
            targets = list(dict.fromkeys(fold_name(target) for target in found.links))
            for target in targets:
                values = (document.id, target, target.rsplit("/", 1)[-1])
                self._rows("INSERT INTO document_link (document, target, name) VALUES (?, ?, ?)", values)
            rows = len(names) + len(tags) + len(targets)
        self._rows("UPDATE document SET mentions = ? WHERE id = ?", (rows, document.id))

    def documents_named(self, names: Sequence[str], projects: frozenset[str] | None) -> frozenset[int]:
        """Return the ids of up to MOST_NAMESAKES documents of these projects (None: all) that have
        one of these names as their name or alias.
        """
        (reached, values) = within("p.name", projects)
        sql = f"""SELECT d.id FROM document_name n CROSS JOIN document d ON d.id = n.document JOIN project p ON p.id = d.project
                  WHERE n.name {AMONG} AND NOT d.deleted{reached} ORDER BY n.is_alias, d.id LIMIT ?"""
        found = self._rows(sql, (json.dumps([fold_name(name) for name in names]), *values, MOST_NAMESAKES))
        return frozenset(row[0] for row in found)

    def link_rows(self, document: int, *, limit: int) -> list[LinkedRow]:
        """Return the documents that a document links to, then those that link to it. Each appears
        at most once per direction.
        """
        here = self._rows("SELECT project, path FROM document WHERE id = ?", (document,))
        if not here:
            return []
        project, path = here[0]
        resolved: dict[tuple[str, str], int | None] = {}

        def resolve(source: str, target: str) -> int | None:
            # The target depends on the neighboring files, so the folder is part of the key.
            key = (_folder(source), target)
            if key not in resolved:
                resolved[key] = self._resolve(project, source, target)
            return resolved[key]

        sql = "SELECT target FROM document_link WHERE document = ? ORDER BY target LIMIT ?"
        ends: dict[tuple[str, int], None] = {}
        for (target,) in self._rows(sql, (document, MOST_LOOKED_UP)):
            if (end := resolve(path, target)) not in (None, document):
                ends["to", end] = None
        # Links by any of the document's names; another document may have the same name.
        sql = """SELECT d.id, d.path, l.target FROM document_name n JOIN document_link l ON l.name = n.name OR l.target = n.name
                 JOIN document d ON d.id = l.document WHERE n.document = ? AND d.project = ? AND NOT d.deleted
                 AND d.id <> n.document ORDER BY d.path, d.id LIMIT ?"""
        for source, source_path, target in self._rows(sql, (document, project, MOST_LOOKED_UP)):
            if resolve(source_path, target) == document:
                ends["from", source] = None
        rows = []
        for direction, end in list(ends)[:limit]:
            for identity, name, other, note, title in self._rows(_LINKED, (end,)):
                rows.append(LinkedRow(direction, identity, note, title or mentions.name_of(other), other, name))
        return rows

    def links(self, project: str, *, limit: int) -> list[LinkRow]:
        """Return up to `limit` links in the documents of a project. Links in the last changed
        documents come first.
        """
        sql = """SELECT d.project, d.id, d.path, l.target FROM document d JOIN project p ON p.id = d.project
                 JOIN document_link l ON l.document = d.id WHERE p.name = ? AND NOT d.deleted
                 ORDER BY d.updated_at DESC, d.path, l.target LIMIT ?"""
        return self._ends(self._rows(sql, (project, max(limit, MOST_LINKS))), limit)

    def links_of(self, document: int, *, limit: int) -> list[LinkRow]:
        """Return up to `limit` links in a document, then links that lead to it."""
        sql = """SELECT d.project, d.id, d.path, l.target FROM document d JOIN document_link l ON l.document = d.id
                 WHERE d.id = ? ORDER BY l.target LIMIT ?"""
        found = self._ends(self._rows(sql, (document, MOST_LOOKED_UP)), limit)
        others = [row.document for row in self.link_rows(document, limit=limit) if row.direction == "from"]
        rows = ((here, "", document) for here in others)
        return [*found, *self._rows_of(rows)][:limit]

    def _ends(self, held: list[Any], limit: int) -> list[LinkRow]:
        """Resolve links (project, document, path, target), and return those that lead to another
        document.
        """

        def resolve_links() -> Iterator[tuple[int, str, int]]:
            for project, document, path, target in held:
                end = self._resolve(project, path, target)
                if end is not None and end != document:
                    yield document, target, end

        return self._rows_of(itertools.islice(resolve_links(), limit))

    def _rows_of(self, links: Iterable[tuple[int, str, int]]) -> list[LinkRow]:
        known: dict[int, tuple[str | None, str, str]] = {}

        def name_of(document: int) -> tuple[str | None, str, str]:
            if document not in known:
                ((_, _, path, note, title),) = self._rows(_LINKED, (document,))
                known[document] = (note, title or mentions.name_of(path), path)
            return known[document]

        return [LinkRow(*name_of(here), target, *name_of(end)) for here, target, end in links]

    def _resolve(self, project: int, source: str, target: str) -> int | None:
        """Return the document that a link in `source` leads to, found as in Obsidian: by name or
        path, else by an alias.

        Of several documents, prefer the one whose path is the whole target, then one in or below
        the same folder, then the one with the shortest path.
        """
        sql = """SELECT d.id, d.path, n.is_alias FROM document_name n CROSS JOIN document d ON d.id = n.document
                 WHERE n.name IN (?, ?) AND d.project = ? AND NOT d.deleted ORDER BY n.is_alias, length(d.path), d.path LIMIT ?"""
        values = (target.rsplit("/", 1)[-1], target, project, MOST_NAMESAKES)
        found = [_LinkTarget(identity, path, bool(is_alias)) for identity, path, is_alias in self._rows(sql, values)]
        files = [one for one in found if not one.is_alias and _ends_in(one.path, target)]
        aliases = [one for one in found if one.is_alias]
        fitting = files or aliases
        return min(fitting, key=lambda one: _order(one, source, target)).id if fitting else None


def _ends_in(path: str, target: str) -> bool:
    """Return True if the file's path, without `.md`, is the target or ends in it."""
    whole = fold_name(path.removesuffix(".md"))
    return whole == target or whole.endswith("/" + target)


def _order(one: _LinkTarget, source: str, target: str) -> tuple[bool, bool, int, int, str]:
    is_whole = fold_name(one.path.removesuffix(".md")) == target
    is_beside = one.path.startswith(f"{_folder(source)}/") if "/" in source else True
    return not is_whole, not is_beside, one.path.count("/"), len(one.path), one.path


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
