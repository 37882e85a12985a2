"""The ranking that daemon/ranking.md works out is the one that the product computes, with the other orders of docs/search.md."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.search import engine
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.ranking import Weights
from confide_daemon.retrieval.search.scoring import HYBRID, UNASKED, VECTOR
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_memory.tools.question import KEYWORD

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "daemon" / "ranking.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
FILES = re.findall(r"^`(memory/\S+)`\n\n```markdown\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
(QUESTION,) = re.findall(r"^> (.*)$", DOCUMENT, re.MULTILINE)
ROW = re.compile(r"^\| `(memory/\S+):(\d+)-(\d+)` \| (.*) \|$", re.MULTILINE)
COLUMNS = ("bm25", "relevance", "votes", "dated", "exact", "rank", "keyword", "terms")


async def test_the_worked_example_comes_out_as_it_is_written(tmp_path: Path) -> None:
    """Hit by hit, factor by factor, as many digits as are shown."""
    space = await Space.open(
        tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.none()), space_id="s"
    )
    for path, text in FILES:
        await space.documents.put("shop", path, text, base=0, author="a")
    result = await space.index.searcher.search(SearchQuery(QUESTION, explain=True))
    await space.close()
    assert result.explanation is not None
    rows = ROW.findall(DOCUMENT)
    assert [(hit.path, str(hit.start_line), str(hit.end_line)) for hit in result.hits] == [row[:3] for row in rows]
    for (*_, cells), hit, factors in zip(rows, result.hits, result.explanation["hits"], strict=True):
        *shown, score = (float(cell) for cell in cells.split("|"))
        assert shown == pytest.approx([factors[name] for name in COLUMNS], abs=0.006)
        assert score == pytest.approx(hit.score, abs=0.006)


def test_the_formulas_have_the_products_numbers() -> None:
    """Of the ranking and of the score."""
    weights = Weights()
    prose = " ".join(f"{DOCUMENT} {PAGE}".split())
    h, k, v, u = HYBRID, KEYWORD, VECTOR, UNASKED
    for formula in (
        f"relevance = {weights.vector} × (cosine − last) / (best − last) + {weights.keyword} × bm25 / best bm25",
        ", ".join(str(vote) for vote in weights.votes[:-1]) + f" and {weights.votes[-1]} of the relevance",
        f"`dated` is {1 + weights.dated} for",
        f"`source` is {weights.sessions} for",
        f"{h['stated']} × stated + {h['held']} × held − {-h['missing']} × missing − {-h['unnamed']} × unnamed"
        f" + {h['vector']} × vector + {h['deviation']} × deviation"
        f" + {h['few']} × few − {-h['constant']}`",
        f"{u['stated']} × stated + {u['held']} × held + {u['vector']} × vector + {u['everyday']} × everyday"
        f" + {u['lead']} × lead − {-u['constant']}`",
        f"{v['vector']:.0f} × vector − {-v['constant']:.0f}`",
        f"{k['keyword']} × keyword + {k['terms']} × terms − {-k['constant']}`",
        f"`{weights.balanced_score} × score + {weights.balanced_recency} × recency + {weights.balanced_importance} × importance"
        f" + {weights.balanced_usage} × usage`, and {weights.balanced_project} more",
        f"`log(1 + n) / log(1 + {weights.usage_full})`",
        f"half after {weights.half_life_days:.0f} days",
        f"the best {engine.CLOSELY_AT_LEAST} by relevance",
    ):
        assert formula in prose
