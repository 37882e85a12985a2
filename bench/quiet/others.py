"""The data sets of `make eval` (bench/evaluation.py), read where they lie, asked in the same ways: as they are, of another memory, and
with their answers taken out. They are for development alone; LoCoMo is CC BY-NC 4.0 and no part of this repository."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from bench.quality import EVAL, harness
from bench.quiet.measure import ALONE, Answer, answers
from bench.quiet.questions import PARTS, SEED, Asked, Fact, Memory
from confide_daemon.embedding import LoadedModel

SETS = ("locomo_dev", "devmembench_dev", "devbench_dev")
# In a conversation of hundreds of turns others say nearly the same as the one that is taken out.
NEVER_REMOVED = frozenset({"locomo_dev"})
FOREIGN = 12
MOST = 60  # questions of a space


def is_there() -> bool:
    """Whether this machine has the sets."""
    return (EVAL / "eval_retrieval.py").is_file()


async def other_answers(handle: LoadedModel) -> list[Answer]:
    """Of all the sets, a part of the questions."""
    module = harness()
    beside: dict[str, dict[str, str]] = {ALONE: {}}
    spaces = [(name, space) for name in SETS for space in module.load(EVAL / f"{name}.json.gz")["spaces"]]
    chance = random.Random(SEED)
    found: list[Answer] = []
    for name, space in spaces:
        memory = _memory(space)
        asked = _own(memory, space["queries"], can_remove=name not in NEVER_REMOVED)
        asked = chance.sample(asked, min(MOST, len(asked)))
        for _, other in spaces:
            known = [query["text"] for query in other["queries"] if query["gold"]]
            if other is not space:
                texts = chance.sample(known, min(FOREIGN, len(known)))
                asked += [Asked("foreign", text, memory.name) for text in texts]
        found += await answers(handle, {memory.name: memory}, asked, beside=beside, origin=name)
    return found


def _memory(space: Mapping[str, Any]) -> Memory:
    memory = Memory(space["id"], {file["path"]: file["text"].rstrip("\n").split("\n") for file in space["files"]})
    for query in space["queries"]:
        if query["gold"]:
            places = tuple(tuple(space["units"][unit]) for unit in query["gold"])
            memory.facts.append(Fact(places, (query["text"],)))
    return memory


def _own(memory: Memory, queries: Sequence[Mapping[str, Any]], *, can_remove: bool) -> list[Asked]:
    asked = [Asked("absent", query["text"], memory.name) for query in queries if not query["gold"]]
    for number, fact in enumerate(memory.facts):
        asked.append(Asked("answered", fact.questions[0], memory.name, fact.places))
        if can_remove:
            asked.append(Asked("removed", fact.questions[0], memory.name, part=number % PARTS))
    return asked
