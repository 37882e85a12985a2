"""The text of search results: the location, date and lines of each hit in as few tokens as
possible, and the scores to show.

The text is made from the structured result, either by the daemon or by a device that answers while
the daemon is unreachable. A heading, a trust class or a number appears only if it adds information.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NotRequired, TypedDict

from confide_memory.documents import STOP_WORDS
from confide_memory.tools.call import NOTICE

MARKED_CLASSES: Final = frozenset({"derived", "untrusted"})
"""Author classes that the text shows to a reader."""
UNDERSTOOD_CHARS: Final = 120
"""Characters from which a snippet is clear without its heading, which would cost such a snippet a
tenth more.
"""
NOTHING: Final = "Nothing stored matches. Try other words, a lower minScore, or project '*'."
"""The daemon's message for no hit. A device recognizes it, since some of its files may not be
synced yet.
"""
WARNING: Final = "warning: "
UNTIL_FIRST: Final = "'until' is before 'since'"
UNTIL_HINT: Final = "'since' is the first day of the time, 'until' the last"
_LIMITS: Final = ("path", "sources", "since", "until", "scope", "taskId", "tags", "type", "category", "entity")
"""Options of `memory_search` that leave out part of what is stored."""
_MOST_CHARS: Final = 60
_WORDS: Final = re.compile(r"[^\W_]+")
_ENDINGS: Final = re.compile(r"(?:ies|ing|es|ed|s|y|e)$")
"""Endings that words of one stem may have, since the daemon's search treats those words as equal.
"""
_LEAST_STEM: Final = 4


class Beside(TypedDict):
    """A note that a search hit refers to, or a file that is not a note."""

    id: NotRequired[str]
    shortId: NotRequired[str]  # missing from older daemons
    title: str
    path: str
    project: str


class Related(Beside):
    relation: str
    direction: str  # to: stated by the hit; from: stated by the other note


_OfClass = TypedDict("_OfClass", {"class": NotRequired[str]})


class ResultHit(_OfClass):
    """A hit in the structured result of `memory_search`. A hit that a device found locally has no
    trust class.
    """

    path: str
    project: str
    startLine: int
    endLine: int
    score: float
    scores: dict[str, float | None]
    snippet: str
    heading: str
    source: str
    author: str
    updatedAt: str
    alike: int
    # Only hits in notes have these:
    id: NotRequired[str]
    shortId: NotRequired[str]
    title: NotRequired[str]
    tags: NotRequired[list[str]]
    supersededBy: NotRequired[list[Beside]]
    supersedes: NotRequired[list[Beside]]  # those that match too; missing from older daemons
    related: NotRequired[list[Related]]
    # The mark of a note that is no longer true of this device's files, which a command adds:
    stale: NotRequired[str]


def limits(arguments: Mapping[str, Any]) -> list[str]:
    """Return a warning that names the options that limited a search, as a list of one; empty if no
    option did.

    The warning is for a search without hits. Clients fill in values such as "any" or "*.md", and a
    reader must not take "nothing matches" for "nothing is stored".
    """
    given = {name: arguments.get(name) for name in _LIMITS}
    said = []
    for name, value in given.items():
        words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")
        if words and (name, words) != ("scope", "all"):
            said.append(f"{name} '{words if len(words) <= _MOST_CHARS else f'{words[:_MOST_CHARS]}…'}'")
    if not said:
        return []
    path = str(given["path"] or "")
    glob = "; in a path, * stays within one folder, and ** does not" if "*" in path and "**" not in path else ""
    them = "it" if len(said) == 1 else "them"
    return [f"the search was limited to {' and '.join(said)}: leave {them} out to search everything{glob}"]


def falling(scores: Sequence[float]) -> list[float]:
    """Return the scores such that they never rise from one hit to the next: each is lowered to the
    score before it if that is lower.

    No score is raised, so none claims more than it did. None falls below the lowest of the input,
    so all pass any threshold that all inputs passed.
    """
    return list(accumulate(scores, min))


def text_of(found: Mapping[str, Any], *, project: str | None, nothing: str) -> str:
    """Return the structured result of `memory_search` as text for a model.

    Args:
        found: the structured result.
        project: the session's project, whose name is left out for its own hits.
        nothing: the text to return if there is no hit.
    """
    hits, explanation = found["results"], found.get("explain")
    lines = [f"{WARNING}{warning}" for warning in found["warnings"]]
    if not hits:
        lines.append(nothing)
    else:
        how = "" if found["searchMode"] == "hybrid" else f" ({found['searchMode']})"
        lines.append(f"{len(hits)} found{how}. {NOTICE}")
        for place, hit in zip(_places(hits, project), hits, strict=True):
            scores = [_scores(hit)] if explanation is not None else []
            lines += ["", place, *scores, *_related_lines(hit), hit["snippet"]]
    if explanation is not None:
        lines += ["", f"explained: {json.dumps(explanation, separators=(',', ':'), ensure_ascii=False)}"]
    return "\n".join(lines)


def reference_of(one: Mapping[str, object]) -> str:
    """Return the name by which a model can refer to a note, or to a file that is not a note."""
    return str(one.get("shortId") or one.get("id") or one["path"])  # older daemons send no short id


def _places(hits: Sequence[ResultHit], project: str | None) -> Iterator[str]:
    """Yield the location of each hit. A hit in the same document as the one before shows only its
    lines, and the date appears once per document.

    A note is shown by its short id alone, which all tools that read or change a note accept, in
    every project: it is short enough to be copied without error.
    """
    document: tuple[str, str] | None = None
    dated: set[tuple[str, str]] = set()
    shown = ""
    for hit in hits:
        first, last = hit["startLine"], hit["endLine"]
        lines = f"{first}-{last}" if first != last else f"{first}"
        heading = hit["heading"].rpartition(" > ")[2]
        if document == (hit["project"], hit["path"]):
            said = [f"{'lines' if first != last else 'line'} {lines}"]
        else:
            document, shown = (hit["project"], hit["path"]), ""
            other = f" [{hit['project']}]" if hit["project"] != project else ""
            where = reference_of(hit) if "id" in hit else f"{hit['path']}:{lines}"
            day = "" if document in dated else f" {hit['updatedAt'][:10]}"
            said = [f"{where}{other}{day}"]
            dated.add(document)
        said += [hit["class"]] if hit.get("class") in MARKED_CLASSES else []
        if heading not in ("", shown) and _needs(hit, heading):
            said.append(heading)
            shown = heading
        said += [f"{hit['alike']} more say the same"] if hit["alike"] else []
        yield " · ".join(said)


def _needs(hit: ResultHit, heading: str) -> bool:
    """Return True if a hit is too short to be understood without its heading, and its shown name
    does not contain it.
    """
    if len(hit["snippet"]) >= UNDERSTOOD_CHARS or heading in hit["snippet"]:
        return False
    if "shortId" in hit:
        return True
    words = _WORDS.findall(heading.lower())
    if "id" in hit:
        name = _WORDS.findall(hit["id"].lower())[1:-2]  # an id is mem_<name>_<time>_<hash>, with a long name cut
        return not name or words[: len(name)] != name[: len(words)]
    return words != _WORDS.findall(hit["path"].rpartition("/")[2].lower())[: len(words)]


def _scores(hit: ResultHit) -> str:
    parts = ", ".join(f"{name} {value}" for name, value in hit["scores"].items() if value is not None)
    return f"score {hit['score']}: {parts}"


def _related_lines(hit: ResultHit) -> Iterator[str]:
    """Yield lines about notes that are related to the hit."""
    for newer in hit.get("supersededBy", ()):
        yield f"superseded by: {newer['title']} ({reference_of(newer)})"
    for older in hit.get("supersedes", ()):
        yield f"supersedes: {older['title']} ({reference_of(older)})"
    for one in hit.get("related", ()):
        how = one["relation"] if one["direction"] == "to" else f"{one['relation']} (stated there)"
        yield f"related, {how}: {one['title']} ({reference_of(one)})"


def wanted_words(query: str) -> re.Pattern[str] | None:
    """Return a pattern that matches the words of a query in all their forms, without stop words.
    None if the query has only stop words.
    """
    words = [word for word in re.findall(r"\w+", query.casefold()) if word not in STOP_WORDS]
    stems = {stem if len(stem := _ENDINGS.sub("", word)) >= _LEAST_STEM else word for word in words}
    parts = sorted((re.escape(stem) for stem in stems), key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(parts)})\w*", re.IGNORECASE) if parts else None
