"""Projects with their documents and links, what notes are about, and how they hang together."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from confide_memory.wire.revisions import (
    DOCUMENTS,
    PROJECTS,
    RELATIONS,
    DocumentsRequest,
    RelationItem,
    RelationsRequest,
)
from confide_panel.drawing.graph import MOST, Edge, drawn
from confide_panel.drawing.plots import bars
from confide_panel.page_context import ASK_S, Found, PageContext

_SHOWN: Final = 100
_DOCUMENTS: Final = 50
_ENTITIES: Final = 60
_BARS: Final = 8
_RELATIONS: Final = 80


async def every(desk: PageContext) -> Response:
    """All projects, the last changed first; and the most written about."""
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


async def one(desk: PageContext) -> Response:
    """A project: counts, links, and its documents, the last changed first, or those of a folder."""
    project, folder = desk.project, desk.query("folder")
    below: DocumentsRequest = {"project": project, "path": folder, "limit": _DOCUMENTS}
    summary, listed = await asyncio.gather(
        desk.call("project_summary", project=project),
        DOCUMENTS.ask(desk.link, below, timeout_s=ASK_S),
    )
    kinds = sorted(summary["byType"].items(), key=lambda pair: -pair[1])[:_BARS]
    return desk.page(
        "project.html",
        here="projects",
        project=project,
        summary=summary,
        folder=folder,
        documents=listed["documents"],
        total=listed["total"],
        plot=bars([(name, count, f"{count:,}") for name, count in kinds], label="Notes by type") if kinds else None,
    )


async def entities(desk: PageContext) -> Response:
    """What notes are about, the most written about first."""
    found = await desk.call("entity_list", project="*")
    return desk.page("entities.html", here="projects", entities=found["entities"][:_ENTITIES], total=found["total"])


async def entity(desk: PageContext) -> Response:
    """The notes about one thing."""
    name = desk.query("name", 100)
    found = await desk.call("memory_list", entity=name, project="*", limit=_DOCUMENTS)
    return desk.page("entity.html", here="projects", name=name, notes=found["memories"], total=found["total"])


async def graph(desk: PageContext) -> Response:
    """How the notes of a project hang together, or those around one."""
    identity = desk.query("id", 160)
    if identity:
        rows, about = await _around(desk, identity)
    else:
        body: RelationsRequest = {"project": desk.project, "limit": _RELATIONS}
        found = await RELATIONS.ask(desk.link, body, timeout_s=ASK_S)
        rows, about = found["relations"], None
    names = {each["id"]: each["title"] for each in rows} | {each["otherId"]: each["otherTitle"] for each in rows}
    edges = [Edge(each["id"], each["relation"], each["otherId"]) for each in rows]
    whose = about["title"] if about else desk.project
    picture = None
    if edges:
        picture = await asyncio.to_thread(
            drawn,
            names,
            edges,
            address=lambda of: desk.url(f"note/{of}"),
            self_=about["id"] if about else "",
            label=f"Relations of {whose}",
        )
    return desk.page(
        "graph.html",
        here="projects",
        project=about["project"] if about else desk.project,
        about=about,
        picture=picture,
        rows=rows,
        is_cut=len(names) > MOST,
    )


async def _around(desk: PageContext, identity: str) -> tuple[list[RelationItem], Found]:
    """What a note states of others, and they of it, in the form of the daemon's relations; and the note."""
    note = await desk.call("memory_get", id=identity)
    rows: list[RelationItem] = []
    for each in note["relations"]:
        if "id" in each:
            one, two = (note, each) if each["direction"] == "to" else (each, note)
            rows.append(
                {
                    "id": one["id"],
                    "title": one["title"],
                    "relation": each["relation"],
                    "otherId": two["id"],
                    "otherTitle": two["title"],
                    "otherProject": each["project"],
                }
            )
    return rows, note
