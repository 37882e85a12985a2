"""`memory_search`: finds chunks of stored texts that match a query."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from confide_daemon.errors import ToolError
from confide_daemon.retrieval.search.engine import SearchResult
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.results import SearchHit
from confide_daemon.store.rows import LinkedRow, NoteRow, Supersession
from confide_daemon.tools.get import RELATION
from confide_daemon.tools.note_fields import PROPERTIES, WORD
from confide_daemon.tools.tool_context import (
    COUNT,
    FLAG,
    NUMBER,
    PATH,
    PROJECT,
    TEXT,
    TEXTS,
    Definition,
    ToolContext,
    ToolResult,
    record,
)
from confide_memory import documents
from confide_memory.classes import CLASSES
from confide_memory.tools import search_text
from confide_memory.tools.arguments import all_of, split_words
from confide_memory.tools.search_text import NOTHING, UNTIL_FIRST, UNTIL_HINT, limits, text_of

RANKS = ["relevance", "balanced", "importance", "recency"]
SOURCES = list(documents.SOURCES)
SCOPES = ["all", "project", "global", "task"]
TASKS = "memory/tasks"
MAX_TYPES = 16
_SPAN = re.compile(r"(\d{1,5})\s*([hdwmy])")
_SPAN_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0, "y": 365.0}

_SCORE = {"type": ["number", "null"]}
_PARTS = ("vector", "keyword", "recency", "importance", "usage")
_NOTE = {"id": TEXT, "title": TEXT, "path": TEXT, "project": TEXT}

DEFINITION = Definition(
    name="memory_search",
    title="Search memory",
    description=(
        "Find what was stored earlier (decisions, preferences, people, dates, fixes, daily logs). "
        "Use it before answering or starting work that may depend on the past; then memory_read for more lines. "
        "`confide run` uses a (sealed:…)."
    ),
    properties={
        "query": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "A question or key terms"},
        "maxResults": {"type": "integer", "minimum": 1, "maximum": 50, "default": 8},
        "minScore": {"type": "number", "minimum": 0, "maximum": 1, "description": "Lower it to get weaker matches"},
        "sources": {"type": "array", "items": {"type": "string", "enum": SOURCES}},
        "path": {**PATH, "description": "File, folder or glob"},
        "project": {
            **PROJECT,
            "description": "Project name, * for all; default this one, those linked with it, and global",
        },
        "scope": {"type": "string", "enum": SCOPES, "default": "all"},
        "since": {"type": "string", "maxLength": 40, "description": "ISO date, or an age such as 7d"},
        "until": {"type": "string", "maxLength": 40},
        "keywords": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 100},
            "maxItems": 32,
            "description": "Synonyms and names to match as well",
        },
        "rank": {"type": "string", "enum": RANKS, "default": "relevance"},
        "maxTokens": {"type": "integer", "minimum": 50, "maximum": 50000, "description": "Budget for all snippets"},
        "explain": FLAG,
        "taskId": PROPERTIES["taskId"],
        "tags": {**PROPERTIES["tags"], "description": "All must match"},
        "type": {"type": "array", "items": WORD, "maxItems": MAX_TYPES, "description": "Any of them"},
        "category": WORD,
        "entity": WORD,
        "includeRelated": FLAG,
    },
    shown_with=dict.fromkeys(
        ("explain", "scope", "taskId", "tags", "type", "category", "entity", "includeRelated"), "notes"
    ),
    required=("query",),
    output=record(
        {
            "results": {
                "type": "array",
                "items": record(
                    {
                        "path": TEXT,
                        "project": TEXT,
                        "startLine": {"type": "integer", "minimum": 1},
                        "endLine": {"type": "integer", "minimum": 1},
                        "score": NUMBER,
                        "scores": record(dict.fromkeys(_PARTS, _SCORE)),
                        "snippet": TEXT,
                        "heading": TEXT,
                        "source": TEXT,
                        "author": TEXT,
                        "updatedAt": TEXT,
                        "class": {"type": "string", "enum": list(CLASSES)},
                        "alike": {**COUNT, "description": "Other pieces that say the same and were left out"},
                        "id": {**TEXT, "description": "Of notes, as all that follows"},
                        "shortId": TEXT,
                        "title": TEXT,
                        "tags": TEXTS,
                        "supersededBy": {"type": "array", "items": record({**_NOTE, "shortId": TEXT})},
                        "supersedes": {"type": "array", "items": record({**_NOTE, "shortId": TEXT})},
                        "related": {"type": "array", "items": RELATION},
                    },
                    # Results that a device finds by itself while the daemon is unreachable have no
                    # class, and count as untrusted.
                    optional=("class", "id", "shortId", "title", "tags", "supersededBy", "supersedes", "related"),
                ),
            },
            "searchMode": {"type": "string", "enum": ["hybrid", "vector", "keyword", "offline"]},
            "indexAge": {
                "type": "number",
                "minimum": 0,
                "description": "Seconds that the oldest piece has waited for its vector",
            },
            "warnings": TEXTS,
            "explain": {"type": "object", "description": "Legs, factors and timings, where they were asked for"},
        },
        optional=("explain",),
    ),
    read_only=True,
    idempotent=True,
    offline="local",
    is_always_loaded=True,
)


async def call(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
    """Search the texts that the caller may read.

    Raises:
        GrantError: the caller may not read the requested sources.
        NotFoundError: the project is unknown.
        ToolError: a date is invalid, the path is outside the memory, or project, scope and task
            contradict each other.
    """
    project, scope, path = arguments.get("project"), arguments["scope"], arguments.get("path")
    task = context.task(project, scope, arguments.get("taskId"))
    if path is not None and documents.leads_out(path):
        raise ToolError("'path' leads out of the memory", hint=f"such as {documents.EXAMPLE}, a folder, or a glob")
    since, until = _between(arguments, context.zone)
    query = SearchQuery(
        text=arguments["query"],
        projects=context.grants.projects_among(context.search_projects(project, scope)),
        max_results=arguments["maxResults"],
        min_score=float(arguments.get("minScore", context.min_score)),
        sources=_sources(context, arguments.get("sources")),
        path=path,
        since=since,
        until=until,
        keywords=tuple(arguments.get("keywords", ())),
        rank=arguments["rank"],
        max_tokens=arguments.get("maxTokens"),
        project=context.project,
        explain=arguments.get("explain", False),
        tags=frozenset(split_words(arguments.get("tags", ()))),
        types=frozenset(split_words(arguments.get("type", ()))) or None,
        category=arguments.get("category"),
        entity=arguments.get("entity"),
        without_tasks=task is not None or not (path or "").removeprefix("./").startswith(TASKS),
        task=task.id if task else None,
        task_projects=task.projects if task else None,
        reach=context.grants.projects_among(None),
        with_related=arguments.get("includeRelated", False),
        classes=context.classes,
        is_unasked=context.is_unasked,
        zone=context.zone,
        is_limited=not context.grants.reaches_all,
    )
    result = await context.space.index.searcher.search(query)
    if not result.hits:
        await context.require_known(project)
    context.space.usage.count(hit.document for hit in result.hits)
    structured = _structured_result(result)
    structured["warnings"] += context.notes if result.hits else [*limits(arguments), *context.notes]
    await context.shorten(structured)
    return ToolResult(structured, text_of(structured, project=context.project, nothing=NOTHING))


def _sources(context: ToolContext, asked: list[str] | None) -> frozenset[str] | None:
    """Return the sources to search, None for all: the named ones, else all within the caller's
    grants.
    """
    for source in asked or ():
        context.grants.require_source(source)
    return frozenset(asked) if asked else context.grants.sources


def _between(arguments: dict[str, Any], zone: tzinfo | None) -> tuple[datetime | None, datetime | None]:
    """Return the times `since` and `until` of a search. Raises ToolError that lists the invalid
    ones.
    """
    times: dict[str, datetime | None] = {}
    problems = []
    for name in ("since", "until"):
        try:
            times[name] = moment(name, arguments.get(name), zone)
        except ToolError as error:
            problems.append(error)
    if problems:
        raise all_of(problems)
    since, until = times["since"], times["until"]
    if since is not None and until is not None and since > until:
        raise ToolError(UNTIL_FIRST, hint=UNTIL_HINT)
    return since, until


def moment(name: str, text: str | None, zone: tzinfo | None = None) -> datetime | None:
    """Return the time that a parameter states: an ISO date, an ISO time, or an age (`12h`, `7d`,
    `2w`, `3m`, `1y`). Return None if `text` is not given.

    `name`: the parameter, for the error. `zone`: the time zone of a time that states none; None:
    the daemon's. Raises ToolError if the text has another form.
    """
    if text is None:
        return None
    words = text.strip().upper()  # ISO 8601 has its T, Z and W in upper case
    span = _SPAN.fullmatch(words.lower())
    try:
        if span:
            return datetime.now(UTC) - timedelta(days=int(span[1]) * _SPAN_DAYS[span[2]])
        moment = datetime.fromisoformat(words)
    except (ValueError, OverflowError):
        raise ToolError(
            f"'{name}' is not a date", hint="use an ISO date such as 2026-11-21, or an age such as 7d or 12h"
        ) from None
    try:
        if moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=zone)
        return moment.astimezone(UTC)
    except OverflowError:
        raise ToolError(f"'{name}' is out of the range of dates", hint="use an ISO date such as 2026-11-21") from None


def _structured_result(result: SearchResult) -> dict[str, Any]:
    structured = {
        "results": [_hit(hit) for hit in result.hits],
        "searchMode": result.mode,
        "indexAge": round(result.index_age_s, 1),
        "warnings": list(result.warnings),
    }
    if result.explanation is not None:
        timings = {name: round(value, 2) for name, value in result.timings.items()}
        structured["explain"] = result.explanation | {"timingsMs": timings}
    return structured


def _hit(hit: SearchHit) -> search_text.ResultHit:
    parts: dict[str, float | None] = {name: getattr(hit, name) for name in _PARTS}
    told: search_text.ResultHit = {
        "path": hit.path,
        "project": hit.project,
        "startLine": hit.start_line,
        "endLine": hit.end_line,
        "score": round(hit.score, 3),
        "scores": {name: None if value is None else round(value, 3) for name, value in parts.items()},
        "snippet": hit.snippet,
        "heading": hit.heading,
        "source": hit.source,
        "author": hit.author,
        "updatedAt": hit.updated_at,
        "class": hit.class_,
        "alike": hit.alike,
    }
    if hit.note is not None:
        told |= {"id": hit.note.id, "title": hit.note.title, "tags": list(hit.note.tags)}
    if hit.superseded_by:
        told["supersededBy"] = [_reference(newer) for newer in hit.superseded_by]
    if hit.supersedes:
        told["supersedes"] = [_reference(older) for older in hit.supersedes]
    if hit.related is not None:
        told["related"] = [
            {"relation": one.relation, "direction": one.direction, **_reference(one.note)} for one in hit.related
        ]
    return told


def _reference(other: NoteRow | LinkedRow | Supersession) -> search_text.Beside:
    named: search_text.Beside = {"title": other.title, "path": other.path, "project": other.project}
    return named if other.id is None else {"id": other.id, **named}
