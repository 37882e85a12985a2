"""Resolve the links of one document: to documents of its project, and to pictures of this device."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from confide_memory.documents import GLOBAL_PROJECT, leads_out
from confide_memory.mentions import fold_name, target_of
from confide_memory.wire.revisions import RELATIONS, RelationItem, RelationsRequest
from confide_panel.markdown_html import DocumentLinks
from confide_panel.page_context import ASK_S, PageContext

MOST_LINKS: Final = 200
MOST_PICTURES: Final = 40
MOST_PICTURE_BYTES: Final = 8 * 2**20
_ATTACHMENTS: Final = ("", "attachments", "assets", "images", "files")
"""Folders of a project in which notes apps keep pictures that are linked by name alone."""
_KINDS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_NAMES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def address_of(desk: PageContext, project: str, path: str, identity: str | None = "", **more: object) -> str:
    """Return the address of a document's page: a note by its id, a file by its path."""
    return desk.url(f"note/{identity}") if identity else desk.url("file", project=project, path=path, **more)


async def links_of(desk: PageContext, project: str, path: str) -> list[RelationItem]:
    """Return the wiki links from and to a document; an empty list while the daemon cannot answer."""
    body: RelationsRequest = {"project": project, "path": path, "links": True, "limit": MOST_LINKS}
    answer = await desk.at_least(RELATIONS.ask(desk.link, body, timeout_s=ASK_S))
    # An older daemon ignores `path`, and answers with all relations of the project.
    return [row for row in answer["relations"] if row.get("path")] if answer else []


def resolver(desk: PageContext, project: str, path: str, rows: Iterable[RelationItem]) -> DocumentLinks:
    """Return an object that resolves the links of a document; `rows` are its wiki links as the
    daemon resolves them.
    """
    ends = {row["target"]: row for row in rows if row.get("path") == path and row.get("target")}

    def wiki(written: str) -> str | None:
        row = ends.get(fold_name(target_of(path, written)))
        return address_of(desk, project, row["otherPath"], row["otherId"]) if row else None

    def relative(href: str) -> str | None:
        name = href.partition("#")[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        return address_of(desk, project, there) if name.endswith(".md") and not leads_out(there) else None

    return DocumentLinks(wiki, relative, _Pictures(desk, project, path))


class _Pictures:
    """Returns the addresses of a document's pictures, of at most `MOST_PICTURES`: each takes some
    looks at the disk.
    """

    def __init__(self, desk: PageContext, project: str, path: str) -> None:
        self._desk = desk
        self._project = project
        self._folder = posixpath.dirname(path)
        self._root = root_of(desk, project)
        self._remaining = MOST_PICTURES

    def __call__(self, name: str) -> str | None:
        if self._root is None or not self._remaining:
            return None
        self._remaining -= 1
        for folder in (self._folder, *_ATTACHMENTS):
            place = posixpath.normpath(posixpath.join(folder, name))
            if picture_file(self._root, place) is not None:
                return self._desk.url("picture", project=self._project, path=place)
        return None


def root_of(desk: PageContext, project: str) -> Path | None:
    """Return the folder of a project on this device, or None if this gateway does not serve the
    project.
    """
    if project == GLOBAL_PROJECT:
        return desk.gateway.paths.global_folder
    own = desk.gateway.exchange.project
    return own.root if project == own.name else None


def picture_file(root: Path, place: str) -> Path | None:
    """Return the file of a picture below a folder. Return None if it does not exist, lies outside
    the folder, or is in a hidden folder.
    """
    is_hidden = any(part.startswith(".") for part in place.split("/"))
    if is_hidden or leads_out(place) or "\0" in place or not place.lower().endswith(_NAMES):
        return None
    try:
        base = root.resolve(strict=True)
        file = (base / place).resolve(strict=True)
        return file if file.is_relative_to(base) and file.is_file() else None
    except (OSError, RuntimeError):
        return None


def read_picture(root: Path, place: str) -> tuple[bytes, str] | None:
    """Return the bytes of a picture and its media type, which its content decides. Return None if
    the file is missing, no picture, or too large.
    """
    file = picture_file(root, place)
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_PICTURE_BYTES + 1)
    except OSError:
        return None
    if len(data) > MOST_PICTURE_BYTES:
        return None
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return data, "image/webp"
    return next(((data, kind) for mark, kind in _KINDS if data.startswith(mark)), None)
