"""Edit, restore and delete notes and files. A form carries the revision that the person saw, and
never overwrites a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from confide_http.door.refusals import RefusalError
from confide_memory.documents import is_in_memory, is_note
from confide_memory.wire.revisions import DELETED, DOCUMENTS, RESTORE, DocumentsRequest, RestoreRequest
from confide_panel.page_context import ASK_S, Found, PageContext
from confide_panel.pages.note_pages import difference

MOST_CHARS: Final = 40_000
"""Characters of a text that a page can edit; a page has at most 60 KB."""
LEVELS: Final = ("core", "high", "normal", "low")
_LINES: Final = 2_000
_FIELDS: Final = ("title", "type", "category", "status")


async def edit(desk: PageContext) -> Response:
    """Show the form with the present text."""
    return _form(desk, await _now(desk, desk.query("id", 160), desk.project, desk.query("path")))


async def save(desk: PageContext) -> Response:
    """Save an edit. If the document has changed meanwhile, show the form again, with both texts and
    their differences.
    """
    now = await _now(desk, desk.form_text("id", 160), desk.project, desk.form_text("path", 512))
    # A text box removes the last line end, and a file has one.
    text = desk.form.get("text", "")
    seen = desk.form_number("revision")
    fields = {name: desk.form_text(name, 200) for name in (*_FIELDS, "tags", "level")} if now.id else {}
    if seen != now.revision:
        return _clashing(desk, now, text, fields)
    try:
        number = await (_save_note(desk, now, text, fields) if now.id else _save_file(desk, now, text))
    except RefusalError as error:
        if error.code not in ("conflict", "stale"):
            raise
        now = await _now(desk, now.id, now.project, now.path)
        return _clashing(desk, now, text, fields)
    return _to(desk, now, f"Saved as revision {number}.")


async def restore(desk: PageContext) -> Response:
    """Make an older revision the newest one."""
    project, path = desk.project, desk.form_text("path", 512)
    revision = desk.form_number("revision")
    body: RestoreRequest = {"project": project, "path": path}
    if revision:
        body["revision"] = revision
    await desk.gateway.exchange.reach(project)
    answer = await RESTORE.ask(desk.link, body, timeout_s=ASK_S)
    message = f"Restored, as revision {answer['revision']}." if answer["changed"] else "It has this text already."
    return desk.go("file", message, project=project, path=path)


async def ask_delete(desk: PageContext) -> Response:
    """Ask for confirmation before a document is deleted."""
    return desk.page(
        "delete.html", here="search", now=await _now(desk, desk.query("id", 160), desk.project, desk.query("path"))
    )


async def delete(desk: PageContext) -> Response:
    """Delete a document on all devices, unless it has changed since it was shown. It can be
    restored for a while.
    """
    identity, path = desk.form_text("id", 160), desk.form_text("path", 512)
    named = {"id": identity} if identity else {"path": path, "project": desk.project}
    answer = await desk.call("memory_delete", expectedRevision=desk.form_number("revision") or None, **named)
    return desk.go(
        "deleted",
        "Deleted." if answer["deleted"] else "Confide deletes it when the server is back.",
        project=answer["project"],
    )


async def list_deleted(desk: PageContext) -> Response:
    """List the deleted documents that can be restored."""
    await desk.gateway.exchange.reach(desk.project)
    answer = await DELETED.ask(desk.link, {"project": desk.project}, timeout_s=ASK_S)
    return desk.page("deleted.html", here="projects", project=desk.project, documents=answer["documents"][:100])


@dataclass(frozen=True, slots=True)
class CurrentDocument:
    """The present revision of a document.

    Attributes:
        id: the id of a note; "" for a file.
        note: the fields of a note; None for a file.
        why_not: the reason why a page cannot edit it; "" if it can.
    """

    project: str
    path: str
    revision: int
    text: str
    id: str = ""
    note: Found | None = None
    why_not: str = ""


async def _now(desk: PageContext, identity: str, project: str, path: str) -> CurrentDocument:
    if not identity and is_note(path):
        # Read by its path, a note would include its front matter, and saving would store that as
        # text.
        identity = await _id_of(desk, project, path)
    if identity:
        note = await desk.call("memory_get", id=identity)
        text = note["content"]
        return CurrentDocument(
            note["project"], note["path"], note["revision"], text, note["shortId"], note, _why_not(text)
        )
    read = await desk.call("memory_read", project=project, path=path, lines=_LINES)
    text = read["content"]
    why_not = "" if is_in_memory(path) else "it is not a memory file: edit it in its folder"
    if read["toLine"] < read["totalLines"]:
        why_not = f"it has more than {_LINES:,} lines"
    return CurrentDocument(read["project"], read["path"], read["revision"], text, why_not=why_not or _why_not(text))


async def _id_of(desk: PageContext, project: str, path: str) -> str:
    body: DocumentsRequest = {"project": project, "path": path, "limit": 1}
    answer = await DOCUMENTS.ask(desk.link, body, timeout_s=ASK_S)
    return next((str(each["id"]) for each in answer["documents"] if each["path"] == path and each["id"]), "")


def _why_not(text: str) -> str:
    if len(text) > MOST_CHARS:
        return f"it has more than {MOST_CHARS:,} characters"
    if "\r" in text or "\0" in text:
        return "it has characters that a browser changes"
    return ""


def _form(desk: PageContext, now: CurrentDocument, *, status: int = 200, **values: Any) -> Response:
    note = now.note
    fields = {name: note[name] or "" for name in _FIELDS} if note else {}
    fields |= {"tags": ", ".join(note["tags"]), "level": note["level"]} if note else {}
    given = {"text": now.text, "fields": fields, "rows": [], "levels": LEVELS, **values}
    return desk.page("edit.html", status=status, here="search", now=now, **given)


def _clashing(desk: PageContext, now: CurrentDocument, text: str, fields: dict[str, str]) -> Response:
    rows, _ = difference(now.text, text)
    return _form(desk, now, status=409, text=text, rows=rows, **({"fields": fields} if fields else {}))


async def _save_note(desk: PageContext, now: CurrentDocument, text: str, fields: dict[str, str]) -> int:
    note = now.note
    assert note is not None
    said: Found = {name: fields[name] for name in _FIELDS if fields[name] != (note[name] or "")}
    tags = [tag.strip() for tag in fields["tags"].split(",") if tag.strip()]
    if tags != note["tags"]:
        said["tags"] = tags
    if fields["level"] in LEVELS and fields["level"] != note["level"]:
        said["importance"] = fields["level"]
    if text.rstrip("\n") != note["content"].rstrip("\n"):
        said["content"] = text
    if not said:
        return int(now.revision)
    answer = await desk.call("memory_update", id=note["id"], expectedRevision=now.revision, **said)
    return int(answer["revision"])


async def _save_file(desk: PageContext, now: CurrentDocument, text: str) -> int:
    if text.rstrip("\n") == now.text.rstrip("\n"):
        return int(now.revision)
    if not text.strip():
        raise RefusalError(400, "invalid", "the text is empty", hint="delete the file, if it is to go")
    place = {"project": now.project, "path": now.path, "expectedRevision": now.revision}
    stored = await desk.call("memory_store", content=text, mode="replace", **place)
    return int(stored["revision"])


def _to(desk: PageContext, now: CurrentDocument, notice: str) -> Response:
    if now.id:
        return desk.go(f"note/{now.id}", notice)
    return desk.go("file", notice, project=now.project, path=now.path)
