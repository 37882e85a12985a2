"""What fits a prompt still comes when a memory has grown, and whatever another project holds (`bench.quiet.growing`, in short)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from bench.quiet.growing import is_right, logs, notes, prompts
from bench.quiet.measure import Answer, ask, put
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_proxy.hooks.server.recall import HIT_SCORE

PROJECT: Final = "shop"
DAYS: Final = 20
NOISE: Final = 12
VAULT: Final = {
    f"{name}.md": f"the {name} of mysql is not that of postgres; staging, stripe, redis and backups say {name} too\n"
    for name in ("amber", "basil", "cedar", "dune", "ember", "fjord", "grove", "heath", "isle", "jade", "knoll", "lake")
}


async def test_what_fits_a_prompt_comes_as_a_memory_grows_and_beside_another_project(tmp_path: Path) -> None:
    """Twelve notes: with eight times as many lines of logs few prompts lose their note, and another project changes no score."""
    model = LoadedModel.ready(load_minilm(threads=2))
    space = await Space.open(tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), model), space_id="s")
    await put(space, PROJECT, notes(PROJECT).without(None))
    every = prompts(PROJECT)
    asked = [one for one in every if one.gold] + [one for one in every if not one.gold][:NOISE]

    async def answers() -> list[Answer]:
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        where = SearchQuery("", projects=frozenset({PROJECT}), project=PROJECT)
        return [await ask(space, one, "", "", query=where) for one in asked]

    at_first = await answers()
    await put(space, "vault", VAULT)
    beside = await answers()
    await put(space, PROJECT, logs(DAYS))
    grown = await answers()
    await space.close()

    def kept(found: list[Answer]) -> int:
        return sum(is_right(one, HIT_SCORE) for one in found if one.asked.gold)

    def loud(found: list[Answer]) -> int:
        return sum(one.best >= HIT_SCORE for one in found if not one.asked.gold)

    for one, other in zip(at_first, beside, strict=True):
        # Words are counted by FTS5 in a space of one project, and by us beside others: how long pieces are is estimated there.
        scores = [[hit["ownScore"] for hit in answer.hits] for answer in (one, other)]
        assert scores[1] == pytest.approx(scores[0], abs=0.001)
    assert kept(at_first) >= 18
    assert kept(grown) >= 14
    assert max(loud(at_first), loud(grown)) <= 3
