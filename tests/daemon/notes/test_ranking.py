"""The ranks of tools.md, "Scores": by factors that each result carries, with weights that are options."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_daemon import config
from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.ranking import Weights, usage_of
from confide_daemon.retrieval.search.results import SearchHit
from confide_daemon.spaces import models
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

KEY = os.urandom(32)
# Importance, age in days, uses, project; each says a little less of the question than the one before.
NOTES = (
    ("low", 200, 0, "here"),
    ("normal", 3, 40, "global"),
    ("core", 90, 2, "global"),
    ("high", 0, 0, "here"),
    ("0.6", 30, 300, "here"),
)
OTHERS = (
    "water ",
    "rain and river ",
    "stone, sand and gravel ",
    "iron, tin, zinc and lead ",
    "oak, elm, ash, fir and yew ",
)


async def open_space(path: Path, weights: Weights | None = None) -> Space:
    settings = IndexSettings(weights=weights or Weights())
    return await Space.open(path, KEY, SpaceShared(settings, LoadedModel.none()), space_id="s")


@pytest.fixture
async def space(tmp_path: Path) -> AsyncIterator[Space]:
    space = await open_space(tmp_path / "s.db")
    for number, (importance, age, uses, project) in enumerate(NOTES):
        day = (datetime.now(UTC) - timedelta(days=age)).date().isoformat()
        text = f"---\nimportance: {importance}\n---\npool {OTHERS[number] * 6}\n"
        await space.documents.put(project, f"memory/notes/{day}-{number}.md", text, base=0, author="a")
        document = (await space.documents.read(project, f"memory/notes/{day}-{number}.md")).document
        for _ in range(uses):
            space.usage.count([document])
    await space.close()
    space = await open_space(tmp_path / "s.db")
    yield space
    await space.close()


async def ranked(space: Space, rank: str) -> list[SearchHit]:
    hits = (await space.index.searcher.search(SearchQuery("pool", min_score=0.0, rank=rank, project="here"))).hits
    assert len(hits) == len(NOTES)
    return hits


async def test_every_result_carries_its_factors(space: Space) -> None:
    by_number = {hit.path[-4]: hit for hit in await ranked(space, "relevance")}
    assert [by_number[str(number)].importance for number in range(5)] == [0.25, 0.5, 1.0, 0.75, 0.6]
    assert [by_number[str(number)].usage for number in range(5)] == pytest.approx([0, 0.8046, 0.238, 0, 1], abs=0.0001)
    assert [by_number[str(number)].recency for number in range(5)] == pytest.approx(
        [0.5 ** (age / 30) for _, age, _, _ in NOTES], abs=0.0001
    )


@pytest.mark.parametrize("rank", ["importance", "recency"])
async def test_a_rank_by_one_factor_has_the_score_for_ties(space: Space, rank: str) -> None:
    hits = await ranked(space, rank)
    assert hits == sorted(hits, key=lambda hit: (-getattr(hit, rank), -hit.score))
    assert hits != await ranked(space, "relevance")


async def test_balanced_weighs_all_factors(space: Space) -> None:
    """0.4 similarity, 0.2 recency, 0.2 importance, 0.2 usage, and 0.1 for this project."""
    hits = await ranked(space, "balanced")

    def value(hit: SearchHit) -> float:
        own = 0.1 * (hit.project == "here")
        return 0.4 * hit.score + 0.2 * hit.recency + 0.2 * hit.importance + 0.2 * hit.usage + own

    assert hits == sorted(hits, key=value, reverse=True)
    assert hits[0].path[-4] == "4"
    query = SearchQuery("pool", min_score=0.0, rank="balanced", project="here", explain=True)
    explanation = (await space.index.searcher.search(query)).explanation
    assert explanation is not None
    assert [one["order"] for one in explanation["hits"]] == pytest.approx([value(hit) for hit in hits], abs=0.001)


async def test_among_equals_this_project_comes_first(space: Space, tmp_path: Path) -> None:
    for project in ("global", "here", "elsewhere"):
        await space.documents.put(project, "memory/notes/same.md", "The very same valve.\n", base=0, author="a")
    for asking, first in (("here", "here"), ("elsewhere", "elsewhere")):
        hits = (await space.index.searcher.search(SearchQuery("valve", min_score=0.0, project=asking))).hits
        assert (hits[0].project, hits[-1].project) == (first, "global")
    assert len({hit.score for hit in hits}) == 1


async def test_a_plain_file_weighs_as_a_normal_note(space: Space) -> None:
    await space.documents.put("here", "memory/plain.md", "A faucet.\n", base=0, author="a")
    (hit,) = (await space.index.searcher.search(SearchQuery("faucet", min_score=0.0))).hits
    assert (hit.importance, hit.usage, hit.note) == (0.5, 0.0, None)


async def test_weights_are_options(tmp_path: Path) -> None:
    (tmp_path / "daemon.toml").write_text(
        "[search]\nbalanced_importance = 5\nusage_full = 10\nhalf_life_days = 7\n"
        "exact_weight = 2\ndated_weight = 1\nsessions_weight = 0.1\n"
    )
    settings = models.index_settings(config.load(tmp_path / "daemon.toml"))
    assert settings.weights == replace(
        Weights(), balanced_importance=5, usage_full=10, half_life_days=7, exact=2, dated=1, sessions=0.1
    )
    space = await open_space(tmp_path / "s.db", settings.weights)
    await space.documents.put("p", "memory/notes/a.md", "pool\n", base=0, author="a")
    await space.documents.put(
        "p", "memory/notes/b.md", "---\nimportance: core\n---\na pool of other things\n", base=0, author="a"
    )
    for rank, first in (("relevance", "memory/notes/a.md"), ("balanced", "memory/notes/b.md")):
        hits = (await space.index.searcher.search(SearchQuery("pool", min_score=0.0, rank=rank))).hits
        assert hits[0].path == first
    await space.close()


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**4))
def test_usage_grows_with_use_within_bounds(one: int, other: int, full: int) -> None:
    weights = Weights(usage_full=full)
    fewer, more = sorted((one, other))
    assert 0 <= usage_of(fewer, weights) <= usage_of(more, weights) <= 1
