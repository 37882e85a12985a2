"""Two spaces that differ only in what is hidden from a caller: every tool tells it the same in both, scores and counts included.

What is drawn: texts of few words, so that open and hidden ones share most of them, and what the hidden ones are and how many.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.daemon.notes.test_notes_isolation import HIDDEN, NOBODY, OPEN, settled
from tests.support.daemon.loopback import Serving, machine, serving
from tests.support.documents.notes import Agent, acting, text_of
from tests.support.draws import IS_THOROUGH
from tests.support.providers.likeness import LikenessEmbedder

from confide_daemon.embedding import LoadedModel
from confide_daemon.server.mcp.tool_calls import definitions
from confide_daemon.store.rows import Filter
from confide_daemon.store.tables.keyword import KeywordTable

WORDS: Final = [
    "heron",
    "kestrel",
    "marsh",
    "lantern",
    "harbour",
    "copper",
    "violet",
    "thunder",
    "ledger",
    "orchard",
    "compass",
    "granite",
]
BY_TIME: Final = {"entity_list", "memory_list", "project_summary", "memory_dedupe"}
"""Which second something was stored in decides among equals, and what is shown of them: test_notes_isolation.py compares their counts."""
SEALED_HERE: Final = {"secret_get", "memory_import", "memory_forget"}
"""Those that a machine answers by itself."""
UNSTABLE: Final = re.compile(
    r'"(searchLatencyMs|lastSync|indexAge|queuedChunks|duration|timingsMs|updated|created|lastUsed|time|uptime|since'
    r'|generations|providers|space|caller|sessionId|recency|usage|accessCount)": ?(\{[^{}]*\}|\[[^\[\]]*\]|"[^"]*"|[^,}\]]+)'
)
"""Times, counts of what this very caller does (uses are written down every few seconds), and who it is."""
IDS: Final = re.compile(r"mem_([\w-]+?_\d{10}_)?[0-9a-f]{4,16}")
PLACES: Final = re.compile(r"-[0-9a-f]{8}(?=\.md)")
MOMENTS: Final = re.compile(r"\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?")


def text_drawn(draw: random.Random) -> str:
    return f"The {' '.join(draw.choices(WORDS, k=draw.randint(4, 9)))}."


def same_for(told: Any) -> list[str]:
    """The words of an answer without what two spaces never have alike: ids, moments, and the order of what is as good as equal."""
    text = json.dumps(told, sort_keys=True, ensure_ascii=False) if not isinstance(told, str) else told
    numbered: dict[str, str] = {}
    text = IDS.sub(lambda found: numbered.setdefault(found[0], f"note {len(numbered)}"), text)
    text = MOMENTS.sub("then", PLACES.sub("", UNSTABLE.sub("", text))).replace("left-", "").replace("right-", "")
    return sorted(re.sub(r"note \d+", "note", text).split())


def calls(draw: random.Random, notes: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Every tool, with what is drawn of it; `notes` are ids of the caller's own."""
    said, own = text_drawn(draw), draw.choice(notes)
    return [
        ("memory_search", {"query": said, "minScore": 0, "maxResults": 40, "explain": True}),
        ("memory_search", {"query": said, "minScore": 0, "project": "*", "includeRelated": True, "maxResults": 40}),
        ("memory_search", {"query": f'"{draw.choice(WORDS)} {draw.choice(WORDS)}"', "minScore": 0, "maxResults": 40}),
        ("memory_search", {"query": draw.choice(WORDS), "project": HIDDEN}),
        ("memory_read", {"path": "memory/open-0.md"}),
        ("memory_read", {"path": "memory/hidden-0.md", "project": HIDDEN}),
        ("memory_status", {}),
        ("memory_sync", {}),
        ("memory_get", {"id": own}),
        ("memory_get", {"id": NOBODY}),
        ("memory_list", {"project": "*", "limit": 100}),
        ("memory_list", {"tags": [draw.choice(WORDS)], "project": "*"}),
        ("memory_history", {"id": own}),
        ("memory_store", {"content": said, "title": said[:20], "keywords": [draw.choice(WORDS)]}),
        ("memory_store", {"content": f"{said} {draw.choice(WORDS)}", "tags": [draw.choice(WORDS)]}),
        ("memory_update", {"id": own, "content": text_drawn(draw)}),
        ("memory_link", {"id": own, "relatedId": notes[0], "relation": "see_also"}),
        ("memory_dedupe", {"threshold": 0.95, "project": "*"}),
        ("entity_search", {"query": draw.choice(WORDS), "scope": "all"}),
        # Of equally many notes the order is that of their times.
        ("entity_list", {"project": "*", "type": "concept"}),
        ("context_info", {}),
        ("project_summary", {}),
        ("task_add", {"description": said}),
        ("task_list", {}),
        ("task_results", {}),
        ("task_cancel", {"id": "0123456789abcdef"}),
        ("memory_delete", {"id": own}),
        ("memory_search", {"query": said, "minScore": 0, "maxResults": 40}),
    ]


async def hide(owner: Agent, draw: random.Random, many: int) -> None:
    for number in range(many):
        fields = {"tags": [draw.choice(WORDS)], "entity": draw.choice(WORDS), "title": f"{draw.choice(WORDS)} {number}"}
        await owner.call("memory_store", content=f"{text_drawn(draw)} {number}", **fields)


@asynccontextmanager
async def caller(
    daemon: Serving, space: str, hidden: tuple[random.Random, int]
) -> AsyncIterator[tuple[Agent, list[str]]]:
    """One that reaches a project of a space of which something else is drawn."""
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(machine(daemon, f"{space}-owner", space=space))
        await owner.attach(HIDDEN, "global", toolsets=["all"])
        await hide(await stack.enter_async_context(acting(owner)), *hidden)
        limited = machine(daemon, f"{space}-limited", space=space, projects={OPEN, "global"})
        box = await stack.enter_async_context(limited)
        await box.attach(OPEN, "global", toolsets=["all"])
        agent = await stack.enter_async_context(acting(box))
        draw = random.Random(7)
        for number in range(4):
            await box.put(f"memory/open-{number}.md", f"# {draw.choice(WORDS)}\n\n{text_drawn(draw)}\n", project=OPEN)
        notes = [
            await agent.note(text_drawn(draw), tags=[draw.choice(WORDS)], entity=draw.choice(WORDS)) for _ in range(12)
        ]
        await settled(agent)
        yield agent, notes


@pytest.mark.addons
@pytest.mark.parametrize("seed", range(30 if IS_THOROUGH else 1))
async def test_what_is_hidden_changes_no_answer(tmp_path: Path, seed: int) -> None:
    async with (
        serving(tmp_path / "data") as daemon,
        caller(daemon, "left", (random.Random(seed), 0)) as (left, left_notes),
        caller(daemon, "right", (random.Random(seed), 60)) as (right, right_notes),
    ):
        here, there = (calls(random.Random(seed), notes) for notes in (left_notes, right_notes))
        known = {definition.name for definition in definitions(["all"])} - SEALED_HERE
        assert known <= {tool for tool, _ in here}, known - {tool for tool, _ in here}
        for (tool, mine), (_, theirs) in zip(here, there, strict=True):
            await settled(left)
            await settled(right)
            one = await left.client.call_tool(tool, mine)
            other = await right.client.call_tool(tool, theirs)
            assert one.is_error == other.is_error, (tool, mine, text_of(one), text_of(other))
            if tool in BY_TIME:
                continue
            told, said = (same_for(each.structured_content or text_of(each)) for each in (one, other))
            assert told == said, (tool, mine)


async def test_duplicates_are_told_as_if_there_were_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly the same notes of elsewhere, which are more, push none of the caller's own out: they are never looked at."""
    looked_in: list[frozenset[str] | None] = []
    candidates = KeywordTable.candidates

    def watched(keywords: Any, match: str, allowed: Filter, **options: Any) -> list[tuple[int, float]]:
        looked_in.append(allowed.projects)
        return candidates(keywords, match, allowed, **options)

    monkeypatch.setattr(KeywordTable, "candidates", watched)
    long = "marshes lanterns harbours thunderstorm compasses granites"
    told = []
    async with serving(tmp_path / "data", embedder=LoadedModel.ready(LikenessEmbedder())) as daemon:
        for space, many in (("left", 0), ("right", 40)):
            async with AsyncExitStack() as stack:
                limited = machine(daemon, f"{space}-limited", space=space, projects={OPEN, "global"})
                box = await stack.enter_async_context(limited)
                await box.attach(OPEN, "global", toolsets=["all"])
                agent = await stack.enter_async_context(acting(box))
                # Enough that some are compared whatever is hidden; the near one is the least of them by its words.
                for number in range(10):
                    await agent.note(f"@far{number} {long} {WORDS[number]} " * 3, title=f"far {number}")
                await agent.note(
                    f"@near {long} and what stands behind it is nearly all the same again, as it was", title="near"
                )
                owner = await stack.enter_async_context(machine(daemon, f"{space}-owner", space=space))
                await owner.attach(HIDDEN, "global", toolsets=["all"])
                hiding = await stack.enter_async_context(acting(owner))
                for number in range(many):
                    await hiding.note(f"@hidden{number} {long} {long} {number}", title=f"hidden {number}")
                await settled(agent)
                looked_in.clear()
                stored = await agent.call(
                    "memory_store",
                    content=f"@new {long} and what stands behind it is nearly all the same again, as it is",
                    title="again",
                )
                assert looked_in
                assert set(looked_in) == {frozenset({OPEN, "global"})}
                told.append([(one["title"], round(one["similarity"], 4)) for one in stored["duplicates"]])
    assert told[0]
    assert told[0] == told[1]
