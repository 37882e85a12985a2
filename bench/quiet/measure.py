"""Puts the questions to spaces of their own and keeps what the search says of each hit; the figures are worked out from that.

Each memory is measured by itself and beside other texts, since what is found by chance is more likely among many pieces. On the development
side these are logs and documentation, up to 40,000 pieces (`background`); what is kept aside is asked beside the docstrings of some modules
of this machine's Python, some 700 pieces. Vectors are kept in the folder for temporary files (`bench.quality`).
"""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.quiet.questions import PROMPTS, Asked, Memory
from bench.texts import documentation
from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_proxy.hooks.prompt_filter import question as hook_question

MODULES = frozenset(
    "calendar difflib imaplib mailbox plistlib sched shelve smtplib statistics tarfile turtle zipfile".split()  # noqa: SIM905
)
LONGEST_MODULE = 16_000  # characters
SIZES = (40, 400, 4000, 40_000)  # of a memory and what stands beside it, in pieces
# So many hits are looked at.
HITS = 12
ALONE = "alone"
DRAWS = 2000
Z = 1.96


@dataclass(slots=True)
class Answer:
    """What a search said: for each hit whether it is right, and the numbers that `--explain` shows."""

    asked: Asked
    beside: str
    hits: list[dict[str, Any]] = field(default_factory=list)
    origin: str = "quiet"  # the set that the question is of

    @property
    def best(self) -> float:
        """The highest score of a hit: below it, a threshold lets something through."""
        return max((hit["ownScore"] for hit in self.hits), default=0.0)

    def right(self, among: int) -> float | None:
        """The score of the first right hit among so many; None where none is."""
        return next((hit["ownScore"] for hit in self.hits[:among] if hit["isRight"]), None)


def reference() -> dict[str, str]:
    """Some modules' docstrings as notes."""
    known = {module: text for module, text in documentation() if module in MODULES}
    return {f"memory/reference/{module}.md": f"# {module}\n{text[:LONGEST_MODULE]}" for module, text in known.items()}


def sized(sizes: Sequence[int]) -> dict[str, dict[str, str]]:
    """What a memory is asked beside, so that there are as many pieces in all."""
    from bench.quiet.background import background

    own = min(sizes)
    found: dict[str, dict[str, str]] = {str(size): {} for size in sizes}
    for total, (path, text) in background(max(sizes)):
        for size in sizes:
            if size > own and total <= size - own:
                found[str(size)][path] = text
    return found


def others(*, kept_aside: bool) -> dict[str, dict[str, str]]:
    """What the memories of a side are asked beside, by its name."""
    return {ALONE: {}, "beside a reference": reference()} if kept_aside else sized(SIZES)


async def answers(
    handle: LoadedModel,
    memories: Mapping[str, Memory],
    asked: Sequence[Asked],
    *,
    beside: Mapping[str, Mapping[str, str]],
    origin: str = "quiet",
) -> list[Answer]:
    """Of all questions beside each of these other files, by memory and what is taken out of it."""
    groups: dict[tuple[str, int | None], list[Asked]] = {}
    for one in asked:
        groups.setdefault((one.memory, one.part), []).append(one)
    found: list[Answer] = []
    for name, files in beside.items():
        with tempfile.TemporaryDirectory(prefix="confide-quiet-") as folder:
            path, settings = Path(folder) / "space.db", IndexSettings()
            space = await Space.open(path, os.urandom(32), SpaceShared(settings, handle), space_id="bench")
            try:
                await put(space, "others", files)
                # One after the other in the same space: to index what stands beside them again each time would take an hour.
                for (memory, part), some in groups.items():
                    own = memories[memory].without(part)
                    project = f"{memory}-{part}"
                    await put(space, project, own)
                    if handle.state == "ready":
                        await space.wait_indexed(timeout_s=3600)
                    found += [await ask(space, one, origin, name) for one in some]
                    for file in own:
                        await space.documents.delete(project, file, author="bench")
            finally:
                await space.close()
    return found


async def put(space: Space, project: str, files: Mapping[str, str]) -> None:
    """Store files in a project."""
    for file, text in files.items():
        await space.documents.put(project, file, text, base=0, author="bench")


async def ask(space: Space, asked: Asked, origin: str, beside: str, *, query: SearchQuery | None = None) -> Answer:
    """What a search answers, without a threshold; `query` says where it looks."""
    if asked.kind in PROMPTS and not hook_question(asked.text):
        return Answer(asked, beside, origin=origin)  # a hook asks nothing
    is_unasked = asked.kind in PROMPTS
    text = hook_question(asked.text) if is_unasked else asked.text
    where = query or SearchQuery("")
    query = replace(where, text=text, max_results=HITS, min_score=0.0, explain=True, is_unasked=is_unasked)
    result = await space.index.searcher.search(query)
    assert result.explanation is not None
    answer = Answer(asked, beside, origin=origin)
    for hit, numbers in zip(result.hits, result.explanation["hits"], strict=True):
        is_right = any(
            hit.path == path and hit.start_line <= last and first <= hit.end_line for path, first, last in asked.gold
        )
        answer.hits.append(numbers | {"isRight": is_right, "shown": hit.score})
    return answer


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, in percent, with two 95 % intervals: Wilson's, and by drawing whole memories."""

    part: int
    whole: int
    drawn: tuple[float, float]

    @property
    def percent(self) -> float:
        return 100 * self.part / self.whole if self.whole else math.nan

    @property
    def wilson(self) -> tuple[float, float]:
        if not self.whole:
            return math.nan, math.nan
        share, n = self.part / self.whole, self.whole
        middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
        reach = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
        return 100 * (middle - reach), 100 * (middle + reach)

    def __str__(self) -> str:
        low, high = self.wilson
        return f"{self.percent:5.1f} %  [{low:4.1f}-{high:5.1f}]  [{self.drawn[0]:4.1f}-{self.drawn[1]:5.1f}]  of {self.whole}"


def share(found: Sequence[Answer], holds: Callable[[Answer], bool]) -> Share:
    """The share of the answers of which it holds."""
    by_memory: dict[str, list[bool]] = {}
    for answer in found:
        by_memory.setdefault(answer.asked.memory, []).append(holds(answer))
    counts = [(sum(held), len(held)) for held in by_memory.values()]
    chance = random.Random(0)
    drawn = []
    for _ in range(DRAWS if counts else 0):
        some = chance.choices(counts, k=len(counts))
        drawn.append(100 * sum(part for part, _ in some) / sum(whole for _, whole in some))
    drawn.sort()
    ends = (drawn[int(0.025 * DRAWS)], drawn[int(0.975 * DRAWS)]) if drawn else (math.nan, math.nan)
    return Share(sum(part for part, _ in counts), sum(whole for _, whole in counts), ends)
