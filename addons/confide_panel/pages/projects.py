"""Show projects with their documents, the topics of notes, and the graph of their links."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from confide_memory.wire.revisions import (
    DOCUMENTS,
    PROJECTS,
    RELATIONS,
    SORTS,
    DocumentsRequest,
    RelationItem,
    RelationsRequest,
)
from confide_panel.document_links import address_of, links_of
from confide_panel.drawing.graph import MOST, Edge, draw_graph
from confide_panel.drawing.plots import bars
from confide_panel.page_context import ASK_S, Found, PageContext

_SHOWN: Final = 100
_DOCUMENTS: Final = 50
_ENTITIES: Final = 60
_BARS: Final = 8
_RELATIONS: Final = 80
_FARTHEST: Final = 10_000_000
"""Documents before a page: an address can ask for any number."""
ORDERS: Final = {"updated": "last changed", "path": "name", "size": "size"}
"""The orders of a list of documents, and their words for people."""


async def every(desk: PageContext) -> Response:
    """List all projects, those that changed last first, and the topics with the most notes."""
    told = await PROJECTS.ask(desk.link, {"project": desk.gateway.calls.project}, timeout_s=ASK_S)
    entities = await desk.at_least(desk.call("entity_list", project="*"))
    found = told["projects"]
    largest = sorted(found, key=lambda each: -each["files"])[:_BARS]
    plot = bars([(each["name"], each["files"], f"{each['files']:,}") for each in largest], label="Documents by project")
    return desk.page(
        "projects.html",
        here="projects",
        projects=found[:_SHOWN],
        total=len(found),
        plot=plot if len(found) > 1 else None,
        entities=entities["entities"][:_BARS] if entities else [],
        entity_total=entities["total"] if entities else 0,
    )


async def show_project(desk: PageContext) -> Response:
    """Show a project: its counts, and its documents by page, order and folder."""
    project, folder = desk.project, desk.query("folder").strip("/")
    sort = desk.query("sort", 10)
    sort = sort if sort in SORTS else SORTS[0]
    offset = min(int(given), _FARTHEST) if (given := desk.query("offset", 9)).isdecimal() else 0
    below: DocumentsRequest = {"project": project, "path": folder, "limit": _DOCUMENTS, "folders": True}
    below |= {"offset": offset, "sort": sort}
    summary, listed = await asyncio.gather(
        desk.call("project_summary", project=project),
        DOCUMENTS.ask(desk.link, below, timeout_s=ASK_S),
    )
    folders = listed.get("folders") or []
    if not folder and len(folders) == 1:
        # Most projects keep everything in `memory`: the folders below it say more.
        inner: DocumentsRequest = {"project": project, "path": folders[0]["path"], "limit": 1, "folders": True}
        folders = (await DOCUMENTS.ask(desk.link, inner, timeout_s=ASK_S)).get("folders") or folders
    kinds = sorted(summary["byType"].items(), key=lambda pair: -pair[1])[:_BARS]
    return desk.page(
        "project.html",
        here="projects",
        project=project,
        summary=summary,
        folder=folder,
        folders=folders,
        crumbs=_crumbs(folder),
        documents=listed["documents"],
        total=listed["total"],
        # An older daemon has no second page.
        offset=listed.get("offset"),
        most=_DOCUMENTS,
        sort=sort,
        sorts=ORDERS,
        plot=bars([(name, count, f"{count:,}") for name, count in kinds], label="Notes by type") if kinds else None,
    )


def _crumbs(folder: str) -> list[tuple[str, str]]:
    """Return the name and the path of a folder and of each folder around it, the outermost first."""
    parts = folder.split("/") if folder else []
    return [(part, "/".join(parts[: at + 1])) for at, part in enumerate(parts)]


async def entities(desk: PageContext) -> Response:
    """List the topics of notes, those with the most notes first."""
    found = await desk.call("entity_list", project="*")
    return desk.page("entities.html", here="projects", entities=found["entities"][:_ENTITIES], total=found["total"])


async def entity(desk: PageContext) -> Response:
    """List the notes about one topic."""
    name = desk.query("name", 100)
    found = await desk.call("memory_list", entity=name, project="*", limit=_DOCUMENTS)
    return desk.page("entity.html", here="projects", name=name, notes=found["memories"], total=found["total"])


async def graph(desk: PageContext) -> Response:
    """Draw the relations and wiki links of a project, or those of one document."""
    identity, path, project = desk.query("id", 160), desk.query("path"), desk.project
    about: Found | None = None
    if identity:
        rows, about = await _around(desk, identity)
        project = about["project"]
    elif path:
        rows = await links_of(desk, project, path)
        about = {"id": path, "title": path, "project": project, "path": path}
    else:
        body: RelationsRequest = {"project": project, "limit": _RELATIONS, "links": True}
        rows = (await RELATIONS.ask(desk.link, body, timeout_s=ASK_S))["relations"]
    names: dict[str, str] = {}
    addresses: dict[str, str] = {}
    ends: list[tuple[Edge, RelationItem]] = []
    for row in rows:
        here = row["id"] or row.get("path", "")
        there = row["otherId"] or row.get("otherPath", "")
        names |= {here: row["title"], there: row["otherTitle"]}
        addresses[here] = address_of(desk, project, row.get("path", ""), row["id"])
        addresses[there] = address_of(desk, row["otherProject"], row.get("otherPath", ""), row["otherId"])
        ends.append((Edge(here, row["relation"], there), row))
    edges = list(dict.fromkeys(edge for edge, _ in ends))
    whose = about["title"] if about else project
    picture = None
    if edges:
        picture = await asyncio.to_thread(
            draw_graph,
            names,
            edges,
            address=addresses.__getitem__,
            self_=about["id"] if about else "",
            label=f"Relations of {whose}",
        )
    return desk.page(
        "graph.html",
        here="projects",
        project=project,
        about=about,
        picture=picture,
        rows=ends,
        addresses=addresses,
        is_cut=len(names) > MOST,
    )


async def _around(desk: PageContext, identity: str) -> tuple[list[RelationItem], Found]:
    """Return the relations of a note in both directions, in the form of the daemon's relations; and
    the note.
    """
    note = await desk.call("memory_get", id=identity)
    rows: list[RelationItem] = []
    for each in note["relations"]:
        if "id" in each or "path" in each:
            one, two = (note, each) if each["direction"] == "to" else (each, note)
            rows.append(
                {
                    "id": one.get("id", ""),
                    "title": one["title"],
                    "relation": each["relation"],
                    "otherId": two.get("id", ""),
                    "otherTitle": two["title"],
                    "otherProject": each["project"],
                    "path": one.get("path", ""),
                    "otherPath": two.get("path", ""),
                }
            )
    return rows, note
