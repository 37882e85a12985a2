"""PrecisionMemBench's 77 cases as it ships them: whether what is found is right, and nothing else.

    python -m bench.precision FOLDER [--threshold 0.25]

FOLDER is `fixtures` of a copy of https://github.com/tenurehq/precisionMemBench (MIT), which is no part of this repository. Nothing was
fitted on it. Each belief is a note with fields: its name, aliases as keywords, its scope as a tag, `supersedes`, and `status: resolved`.
What the benchmark itself does beside a search (pinned facts, open questions, relations) is done here as by its `baseAdapter.ts`, and
precision and recall are computed as there: over what a search returns, less the pinned facts, in the cases for which they are defined.

A case's query goes to the notes of its user, at most `maxBeliefs` (20) hits: once without its scope, and once with its first scope as a
tag, as the benchmark gives it to others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import yaml

from bench.quality import embedder
from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

USER: Final = "test-user"
MOST_BELIEFS: Final = 20
THRESHOLD: Final = 0.25
Belief = Mapping[str, Any]


class Judged(NamedTuple):
    """A case's precision and recall, None where undefined. `is_empty`: the case expects no result; `is_right`: and there was none."""

    precision: float | None
    recall: float | None
    is_empty: bool
    is_right: bool


def note(belief: Belief, beliefs: Iterable[Belief]) -> str:
    """A belief as a note with fields."""
    fields: dict[str, Any] = {
        "id": belief["_id"],
        "title": belief["canonical_name"].replace("_", " "),
        "keywords": belief["aliases"],
        "tags": belief["scope"],
        "created": belief["created_at"],
        "updated": belief["updated_at"],
    }
    if belief["resolved_at"]:
        fields["status"] = "resolved"
    if replaced := [one["_id"] for one in beliefs if one["superseded_by"] == belief["_id"]]:
        fields["relations"] = [{"relation": "supersedes", "id": one} for one in replaced]
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---\n\n{belief['content']}\n\n{belief['why_it_matters']}\n"


async def found(
    beliefs: Mapping[str, Belief], cases: Sequence[Mapping[str, Any]], model: LoadedModel, threshold: float
) -> dict[bool, list[tuple[Mapping[str, Any], list[str]]]]:
    """The ids that a search finds for each case, by whether its scope was given as a tag."""
    answers: dict[bool, list[tuple[Mapping[str, Any], list[str]]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="confide-precision-") as folder:
        shared = SpaceShared(IndexSettings(), model)
        spaces: dict[str, Space] = {}
        try:
            for user in sorted({case.get("userId", USER) for case in cases} | {USER}):
                spaces[user] = await Space.open(Path(folder) / f"{user}.db", os.urandom(32), shared, space_id=user)
                for belief in beliefs.values():
                    if belief["user_id"] == user:
                        name = f"memory/notes/{belief['_id']}.md"
                        text = note(belief, beliefs.values())
                        await spaces[user].documents.put("bench", name, text, base=0, author="bench")
                await spaces[user].wait_indexed(timeout_s=600)
            for has_tag, said in answers.items():
                for case in cases:
                    limit = case.get("budget", {}).get("maxBeliefs", MOST_BELIEFS)
                    tags = frozenset(case["scope"][:1]) if has_tag else frozenset()
                    query = SearchQuery(case["query"], max_results=limit, min_score=threshold, tags=tags)
                    hits = []
                    if case["query"].strip() and limit:
                        hits = (await spaces[case.get("userId", USER)].index.searcher.search(query)).hits
                    said.append((case, list(dict.fromkeys(Path(hit.path).stem for hit in hits))))
        finally:
            for space in spaces.values():
                await space.close()
    return answers


def judged(case: Mapping[str, Any], ids: Iterable[str], beliefs: Mapping[str, Belief]) -> Judged:
    """Judge what a search has found, as the benchmark's own runner does."""
    user, scope = case.get("userId", USER), set(case["scope"])
    mine = {key: one for key, one in beliefs.items() if one["user_id"] == user}
    pinned = [
        key
        for key, one in mine.items()
        if one["pinned"] and one["type"] != "open_question" and scope & set(one["scope"])
        if not (one["superseded_by"] or one["resolved_at"])
    ]
    relevant = [key for key in ids if key not in pinned]
    joined = [each for key in relevant for each in beliefs[key].get("participants", ())]
    relevant += [
        each
        for each in joined
        if each in mine and each not in {*pinned, *relevant} and scope & set(mine[each]["scope"])
    ]
    limit = case.get("budget", {}).get("maxBeliefs", MOST_BELIEFS)
    relevant = relevant[: max(0, limit - len(pinned[:limit]))]
    expects = case["expect"].get("relevantBeliefs", {})
    ever_pinned = {key for key, one in beliefs.items() if one["pinned"] and one["user_id"] == USER}
    expected = set(expects.get("shouldOnlyInclude", set(expects.get("mustInclude", ())) - ever_pinned))
    right = len(expected & set(relevant))
    precision = right / len(relevant) if relevant else None if not expected else 0.0
    recall = right / len(expected) if expected else None
    is_empty = expects.get("shouldOnlyInclude") == []
    return Judged(precision, recall, is_empty, is_empty and not relevant)


def main() -> None:
    """Ask all cases, and print both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threshold", type=float, default=THRESHOLD)
    arguments = parser.parse_args()
    read = {
        name: json.loads((arguments.folder / f"{name}.json").read_text("utf-8"))
        for name in ("beliefs.seed", "retrieval.cases")
    }
    beliefs: dict[str, Belief] = {belief["_id"]: belief for belief in read["beliefs.seed"]}
    answers = asyncio.run(found(beliefs, read["retrieval.cases"], embedder("local"), arguments.threshold))
    for has_tag, said in answers.items():
        verdicts = [judged(case, ids, beliefs) for case, ids in said]
        empty = [one for one in verdicts if one.is_empty]
        precision = fmean(one.precision for one in verdicts if one.precision is not None)
        recall = fmean(one.recall for one in verdicts if one.recall is not None)
        print(
            f"{'scope as a tag' if has_tag else 'without scope':15s} precision {precision:.2f}, recall {recall:.2f}; "
            f"{sum(one.is_right for one in empty)} of {len(empty)} that expect nothing get nothing"
        )


if __name__ == "__main__":
    main()
