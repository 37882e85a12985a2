"""Converts between the API of claude-memory-mcp and this one, since its clients send their own
parameters and read their own fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confide_memory.documents import iso
from confide_memory.note import MAX_KEYWORDS, MAX_TAGS, MAX_WORD, NEUTRAL, Note, importance_of
from confide_memory.tools.call import is_blank

FACTS: Final = "facts"
"""The category of a memory without one."""
_FILE: Final = frozenset({"path", "heading", "mode"})
"""Parameters of a text in a file; without any of them it is a note."""
MAX_QUERY: Final = 4000
MAX_RESULTS: Final = 50


def store_arguments(body: Mapping[str, object]) -> dict[str, object]:
    """Convert a client's body to the arguments of `memory_store`: those of a note unless the body
    names a file.
    """
    given = {name: value for name, value in body.items() if name == "content" or not is_blank(value)}
    given.pop("local_id", None)
    tags, words = given.get("tags"), given.pop("expanded_keywords", None)
    if isinstance(tags, str):
        given["tags"] = _split(tags.replace(",", "\n").split("\n"), MAX_TAGS) or None
    if isinstance(words, str) and "keywords" not in given:
        given["keywords"] = _split(words.replace(",", " ").split(), MAX_KEYWORDS) or None
    if given.pop("force_sensitive", False) is True:
        given["sensitive"] = True
    if _FILE.isdisjoint(given):
        given.setdefault("category", FACTS)
    return given


def search_arguments(body: Mapping[str, object]) -> dict[str, object]:
    """Convert a client's body to the arguments of `memory_search`."""
    given = {name: value for name, value in body.items() if not is_blank(value)}
    context, words = given.pop("context", None), given.pop("expanded_query", None)
    if isinstance(context, str):
        given.setdefault("query", context[:MAX_QUERY])
    if isinstance(words, str) and "keywords" not in given:
        given["keywords"] = _split(words.split(), MAX_KEYWORDS) or None
    if (order := given.pop("sort_by", None)) is not None:
        given.setdefault("rank", order)
    limit = given.pop("limit", None)
    if isinstance(limit, int) and not isinstance(limit, bool):
        given.setdefault("maxResults", max(1, min(limit, MAX_RESULTS)))
    return given


def store_answer(found: Mapping[str, object], asked: Mapping[str, object]) -> dict[str, object]:
    """Convert the result of `memory_store` to the response for the client."""
    importance = importance_of(asked.get("importance"))
    return {
        "id": None,
        **found,
        "category": asked.get("category"),
        "importance": NEUTRAL if importance is None else importance,
    }


def memory(found: Mapping[str, Any], note: Note | None, content: str) -> dict[str, Any]:
    """Return a memory of a list with its text, in the fields of this API and in those of
    claude-memory-mcp.
    """
    tags = found.get("tags") or (note.tags if note else ())
    time = found.get("updatedAt") or found.get("updated") or found.get("time")
    created = found.get("created") or (iso(note.created) if note and note.created else time)
    return {
        **found,
        "id": found.get("id"),
        "content": content,
        "category": found.get("category") or (note.category if note else None) or FACTS,
        "tags": ",".join(tags),
        "expanded_keywords": " ".join(note.keywords) if note else "",
        "importance": found.get("importance", note.importance if note else NEUTRAL),
        "is_sensitive": note.sensitive if note else False,
        "created_at": created,
        "updated_at": time,
    }


def _split(words: list[str], most: int) -> list[str]:
    found = dict.fromkeys(word.strip()[:MAX_WORD] for word in words)
    return [word for word in found if word][:most]
