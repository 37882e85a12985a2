"""Search as an agent does, with the reasons of each score; and show what Confide would add to a
prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from confide_memory.tools.search_text import wanted_words
from confide_memory.wire.revisions import DOCUMENTS, PROJECTS
from confide_panel.page_context import ASK_S, Found, PageContext
from confide_proxy.hooks import block, prompt_filter
from confide_proxy.hooks.server import form, recall

MOST_QUERY: Final = 4000
_HITS: Final = 12
_RECENT: Final = 8
_BEST: Final = 5
"""Scores that are shown for a prompt: of notes that are added, and of those that miss the bound."""
RANKS: Final = ("relevance", "balanced", "importance", "recency")
CLASSES: Final = ("owner", "agent", "derived", "untrusted")
FIELDS: Final = ("q", "project", "tags", "type", "since", "rank", "prompt", "sources")
LEGS: Final = (
    ("vector", "meaning"),
    ("keyword", "words"),
    ("recency", "recency"),
    ("importance", "importance"),
    ("usage", "usage"),
)
"""The parts of a score, and their words for people."""


async def find(desk: PageContext) -> Response:
    """Store a query in the session, and redirect to its results. The query is not in the address,
    since browsers keep addresses and may send them to their makers.
    """
    fields = {name: desk.form_text(name, MOST_QUERY) for name in FIELDS if desk.form.get(name, "").strip()}
    return desk.go(s=desk.visit.keep(fields))


async def show(desk: PageContext) -> Response:
    """Show the first page: the results of a query, or the documents that changed last."""
    asked = {**dict.fromkeys(FIELDS, ""), **desk.visit.form_values(desk.query("s", 20))}
    values: Found = {"asked": asked, "ranks": RANKS, "found": None, "prompted": None, "recent": [], "total": 0}
    own = desk.gateway.calls.project
    projects = await desk.at_least(PROJECTS.ask(desk.link, {"project": own}, timeout_s=ASK_S))
    values["projects"] = [each["name"] for each in projects["projects"]] if projects else []
    if asked["prompt"]:
        values["prompted"] = await _recall(desk, asked)
    elif asked["q"]:
        values["found"] = await _search(desk, asked)
    else:
        listed = await desk.at_least(DOCUMENTS.ask(desk.link, {"project": own, "limit": _RECENT}, timeout_s=ASK_S))
        values |= {"recent": listed["documents"] if listed else None, "total": listed["total"] if listed else 0}
    return desk.page("search.html", here="", **values)


async def _search(desk: PageContext, asked: Mapping[str, str]) -> Found:
    tags = [tag.strip() for tag in asked["tags"].split(",") if tag.strip()]
    result = await desk.call(
        "memory_search",
        query=asked["q"],
        maxResults=_HITS,
        explain=True,
        project=asked["project"] or None,
        tags=tags or None,
        type=[asked["type"]] if asked["type"] else None,
        since=asked["since"] or None,
        rank=asked["rank"] or "relevance",
        sources=["memory", "sessions"] if asked["sources"] else ["memory"],
    )
    result["words"] = wanted_words(asked["q"])
    for hit in result["results"]:
        hit["why"] = [(word, hit["scores"][leg]) for leg, word in LEGS if hit["scores"].get(leg) is not None]
    return result


async def _recall(desk: PageContext, asked: Mapping[str, str]) -> Found:
    """Do what the hook of an agent's client does: return the question, the block that it would add,
    and the best scores.
    """
    prompt = asked["prompt"]
    question = prompt_filter.question(prompt)
    if not question:
        return {"question": "", "block": "", "hits": [], "best": [], "bound": recall.HIT_SCORE}
    project = asked["project"] or desk.gateway.calls.project
    exchange = desk.gateway.exchange
    scored = await recall.search_scores(exchange.link, exchange.session.sealing, project, question)
    hits = [hit for score, hit in scored if score >= recall.HIT_SCORE]
    kept = form.within(hits[: form.HITS], form.HIT_TOKENS)
    told = block.frame_lines([each.line for each in kept]) if kept else ""
    places = {each.place for each in kept}
    best = [
        {
            "score": score,
            "project": hit.document.partition("\0")[0],
            "path": hit.document.partition("\0")[2],
            "line": int(hit.place.rpartition("\0")[2] or 1),
            "is_added": hit.place in places,
        }
        for score, hit in scored[:_BEST]
    ]
    tokens = round(form.tokens(told)) if told else 0
    return {
        "question": question,
        "block": told,
        "hits": kept,
        "tokens": tokens,
        "best": best,
        "bound": recall.HIT_SCORE,
    }
