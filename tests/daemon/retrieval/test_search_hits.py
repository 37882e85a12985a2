"""What a search of a space answers: names, scripts without blanks, days, the same said twice, and why."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import pytest_asyncio
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import LoadedModel, Vectors
from confide_daemon.embedding.embedder import BatchLimits
from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.retrieval.search import cohort, scoring
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.ranking import ORIGINAL
from confide_daemon.retrieval.search.results import SearchHit
from confide_daemon.retrieval.search.scoring import PAIRS, stem_line
from confide_daemon.retrieval.search.searcher import FEWEST_LINES
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.page_budget import PageBudget
from confide_daemon.store.rows import Filter, Piece
from confide_daemon.store.space_store import Store
from confide_memory.tools.question import keyword_query
from confide_proxy.hooks.prompt_filter import question
from confide_proxy.hooks.server.recall import HIT_SCORE

NOTES = {
    "memory/users.md": "- the method getUserById of the user service is slow\n",
    "memory/groups.md": "- get_group_by_id reads the group by its id, and a user by its name\n",
    "memory/errors.md": "- ERR_CONN_42: the pool was empty\n\n# Other\n\n- ERR_CONN_43: the pool was full, the pool was too large\n",
    "memory/paths.md": "- retries are in src/net/pool.py, the limits in src/net/limits.py\n",
    "memory/ids.md": "- request 550e8400-e29b-41d4-a716-446655440000 failed with commit d08dd90c1f\n",
    "memory/zh.md": "- 我们的数据库连接池太小\n- 会议在北京举行\n",
    "memory/ja.md": "- 認証サーバーの証明書を更新した\n",
    "memory/ko.md": "- 배포스크립트를 다시 작성했다\n",
    "memory/th.md": "- เราเลือกฐานข้อมูลใหม่\n",
}


@pytest_asyncio.fixture
async def space(tmp_path: Path) -> AsyncIterator[Space]:
    opened = await Space.open(
        tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.none()), space_id="s"
    )
    yield opened
    await opened.close()


async def put(space: Space, files: dict[str, str]) -> None:
    for path, text in files.items():
        await space.documents.put("p", path, text, base=0, author="a")


async def first(space: Space, text: str) -> SearchHit:
    return (await space.index.searcher.search(SearchQuery(text))).hits[0]


async def test_names_and_words_of_every_script_are_found_first(space: Space) -> None:
    """In either spelling, by their beginning, inside of a run without blanks; and at the default threshold."""
    await put(space, NOTES)
    for asked, path in (
        ("getUserById", "memory/users.md"),
        ("get_user_by_id", "memory/users.md"),
        ("getGroupById", "memory/groups.md"),
        ("why is getUserById slow", "memory/users.md"),
        ("who told everybody last summer that ERR_CONN_43 had gone away for good", "memory/errors.md"),
        ("ERR_CONN_43", "memory/errors.md"),
        ("src/net/pool.py", "memory/paths.md"),
        ("550e8400-e29b-41d4-a716-446655440000", "memory/ids.md"),
        ("550e8400-e29b", "memory/ids.md"),
        ("d08dd90", "memory/ids.md"),
        ("数据库", "memory/zh.md"),
        ("北京", "memory/zh.md"),
        ("証明書", "memory/ja.md"),
        ("스크립트", "memory/ko.md"),
        ("ข้อมูล", "memory/th.md"),
    ):
        hits = (await space.index.searcher.search(SearchQuery(asked))).hits
        assert hits, asked
        assert hits[0].path == path, asked
    assert not (await space.index.searcher.search(SearchQuery("スクリプト"))).hits


async def test_the_callers_keywords_stand_in_for_the_questions_words(space: Space) -> None:
    """A piece that holds none but a synonym is an answer; names and scripts without blanks are taken as in a question."""
    await put(space, NOTES | {"memory/tyres.md": "- the automobile needs new tyres\n"})
    for asked, keyword, path in (
        ("car", "automobile", "memory/tyres.md"),
        ("car", "new tyres", "memory/tyres.md"),
        ("storage", "数据库", "memory/zh.md"),
        ("people", "get_user_by_id", "memory/users.md"),
        ("people", "getGroupById", "memory/groups.md"),
    ):
        assert not (await space.index.searcher.search(SearchQuery(asked))).hits
        hits = (await space.index.searcher.search(SearchQuery(asked, keywords=("nonsense", "?!", keyword)))).hits
        assert [hit.path for hit in hits][:1] == [path], keyword
    assert not (await space.index.searcher.search(SearchQuery("car", keywords=("lorry",)))).hits


async def test_a_name_that_stands_there_comes_before_more_of_its_words(space: Space) -> None:
    """Also within one file, where the other piece says "pool" twice."""
    await put(space, NOTES)
    hit = await first(space, "the pool of ERR_CONN_42")
    assert (hit.path, hit.start_line) == ("memory/errors.md", 1)


async def test_quoted_phrases_come_first(space: Space) -> None:
    """Whatever else has the same words."""
    await put(space, {"memory/a.md": "- level by level the row grew, security guards at every row\n"})
    await put(space, {"memory/b.md": "- it has row level security, which nobody else had at that time in that form\n"})
    assert (await first(space, '"row level security"')).path == "memory/b.md"
    await put(space, {"memory/c.md": "- 数据很多，连接池很多，库存很多，数据很多，池很多，连接很多，库存多\n", **NOTES})
    assert (await first(space, '"数据库连接池"')).path == "memory/zh.md"
    result = await space.index.searcher.search(SearchQuery('"数据库连接池"', explain=True))
    assert result.explanation is not None
    assert result.explanation["hits"][0]["exact"] == 1.0


async def test_what_is_said_twice_is_shown_once(space: Space) -> None:
    """With how many others say it; other numbers are another fact, and so is another project's."""
    line = "- the budget of the billing team is {} euros a month, as agreed with finance\n"
    await put(space, {f"memory/{n}.md": line.format(5000) for n in range(4)})
    await put(space, {"memory/new.md": line.format(6000)})
    await space.documents.put("q", "memory/other.md", line.format(5000), base=0, author="a")
    hits = (await space.index.searcher.search(SearchQuery("budget of the billing team"))).hits
    assert sorted((hit.project, hit.alike, "6000" in hit.snippet) for hit in hits) == [
        ("p", 0, True),
        ("p", 3, False),
        ("q", 0, False),
    ]


async def test_what_is_said_very_often_hides_nothing_else(space: Space) -> None:
    """However many pieces say the best thing, what is behind them is found, and all of them are counted."""
    await put(space, {f"memory/{n}.md": "- the nightly backup of the shop has ended well\n" for n in range(60)})
    await put(space, {"memory/mail.md": "- the backup of the mail server goes to Frankfurt, to a bucket of its own\n"})
    hits = (await space.index.searcher.search(SearchQuery("nightly backup", min_score=0))).hits
    assert [(hit.path == "memory/mail.md", hit.alike) for hit in hits] == [(False, 59), (True, 0)]


async def test_days_that_a_question_names_come_first_and_hide_nothing(space: Space) -> None:
    """A text may speak of a day without being from it. It is said how the words were taken."""
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    await put(space, {"memory/2026-01-05.md": "- deploy of the shop, deploy of the mail: the deploy failed\n"})
    await put(space, {f"memory/{yesterday}.md": "- the deploy of the shop was quiet after all\n"})
    plain = await space.index.searcher.search(SearchQuery("deploy of the shop", min_score=0))
    assert plain.hits[0].path == "memory/2026-01-05.md"
    dated = await space.index.searcher.search(SearchQuery("deploy of the shop yesterday", min_score=0))
    assert [hit.path for hit in dated.hits] == [f"memory/{yesterday}.md", "memory/2026-01-05.md"]
    assert any(f"'yesterday' was taken for {yesterday}" in warning for warning in dated.warnings)
    quoted = await space.index.searcher.search(SearchQuery('deploy of the shop, the song "yesterday"', min_score=0))
    assert not any("was taken for" in warning for warning in quoted.warnings)


@pytest.mark.parametrize("embedder", [LoadedModel.none, lambda: LoadedModel.ready(load_minilm(threads=1))])
async def test_a_question_for_a_day_alone_is_answered_with_what_is_from_it(
    tmp_path: Path, embedder: Callable[[], LoadedModel]
) -> None:
    """There is no other word that a text could hold. Where there is one, it has to be held."""
    day = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    space = await Space.open(tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), embedder()), space_id="s")
    await put(space, {f"memory/{day}.md": "- wrote the importer\n", "memory/2020-01-02.md": "- met Anna in the shop\n"})
    await space.wait_indexed(timeout_s=DEADLINE_S)
    for asked in ("what did we do yesterday?", "what happened yesterday?", f"what did I work on, {day}", "yesterday"):
        assert (await first(space, asked)).path == f"memory/{day}.md"
    assert (await first(space, "notes of January 2020")).path == "memory/2020-01-02.md"
    for asked in ("what happened the day before yesterday", "which volcanoes erupted yesterday"):
        assert not (await space.index.searcher.search(SearchQuery(asked))).hits
    await space.close()


async def test_days_reach_what_is_beyond_the_first_candidates(tmp_path: Path) -> None:
    """Where a whole leg is full of better matches from other days."""
    space = await Space.open(
        tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.none()), space_id="s"
    )
    items = "\n\n".join(f"# Entry {n}\n\n- deploy deploy deploy of part {n}" for n in range(220))
    await put(space, {"memory/2026-02-01.md": items, "memory/2026-03-07.md": "- one deploy among much else that day\n"})
    result = await space.index.searcher.search(SearchQuery("the deploy of 2026-03-07", min_score=0))
    assert result.hits[0].path == "memory/2026-03-07.md"
    await space.close()


async def test_what_searches_keep_of_lines_is_less_where_many_spaces_are_open(tmp_path: Path) -> None:
    """Else hundreds of spaces would keep a gigabyte of them."""

    def caches() -> list[functools._lru_cache_wrapper[str]]:
        found = (each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper)
        return [each for each in found if each.__wrapped__ is stem_line]

    others = caches()  # of spaces that other tests have open

    def kept() -> int:
        return max(each.cache_info().currsize for each in caches() if not any(each is other for other in others))

    pages = PageBudget()
    space = await Space.open(
        tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.none(), pages=pages), space_id="s"
    )
    await put(
        space, {"memory/log.md": "\n\n".join(f"# Entry {n}\n\n- deploy of part {n}" for n in range(2 * FEWEST_LINES))}
    )
    for n in range(0, 2 * FEWEST_LINES, 50):
        await space.index.searcher.search(SearchQuery(" ".join(f"part {m}" for m in range(n, n + 50)), min_score=0))
    assert kept() > FEWEST_LINES
    for _ in range(2000):
        pages.count_opened()
    await space.index.searcher.search(SearchQuery("deploy", min_score=0))
    assert 0 < kept() <= FEWEST_LINES
    await space.close()


def test_rows_of_an_older_version_are_written_again_with_the_pieces(tmp_path: Path) -> None:
    """A database from before names were indexed by their parts: cutting its documents again, as an upgrade does, brings them in."""
    store = Store.open(tmp_path / "s.db", os.urandom(32), writer=True, now=0.0)
    text = "- the method getUserById is slow"
    pieces = [Piece(1, 1, text, "", 9)]
    match = keyword_query("user_by")
    with store.writing():
        row = store.documents.save("p", "memory/a.md", text, author="a", now=0.0)
        store.pieces.replace(row, pieces, chunking="old", now=0.0)
    with store.writing():
        store.rows("UPDATE keyword SET header = 'memory a', body = ? WHERE rowid > 0", (text,))
    assert len(store.keywords.candidates(match, Filter(), limit=9)) == 0
    row = store.documents.find("p", "memory/a.md")
    assert row is not None
    with store.writing():
        changes = store.pieces.replace(row, pieces, chunking="new", now=0.0)
    assert (changes.kept_pieces, changes.added_pieces) == (1, 0)
    assert len(store.keywords.candidates(match, Filter(), limit=9)) == 1
    store.close()


async def test_a_search_explains_itself(space: Space) -> None:
    """What was looked for, the ranks in both legs, the factors; and nothing of it where nobody asked."""
    await put(space, NOTES)
    result = await space.index.searcher.search(SearchQuery("ERR_CONN_42", explain=True))
    assert result.explanation is not None
    assert result.explanation["exact"] == '"err conn 42"'
    assert len(result.explanation["hits"]) == len(result.hits)
    best = result.explanation["hits"][0]
    assert (best["keywordRank"], best["vectorRank"], best["terms"], best["exact"]) == (1, None, 1.0, 1.0)
    assert best["rank"] == pytest.approx((best["relevance"] + best["votes"]) * best["dated"] + best["exact"], abs=0.001)
    assert (await space.index.searcher.search(SearchQuery("ERR_CONN_42"))).explanation is None


async def test_the_original_ranking_goes_by_the_cosine(tmp_path: Path) -> None:
    """0.7 of it, and 0.3 by the rank of the keyword leg; what is shown is that number."""
    space = await Space.open(
        tmp_path / "s.db",
        os.urandom(32),
        SpaceShared(IndexSettings(weights=ORIGINAL), LoadedModel.ready(HashedEmbedder(64))),
        space_id="s",
    )
    await put(space, NOTES)
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    hit = await first(space, "the pool was empty")
    assert hit.vector is not None
    assert hit.score == pytest.approx(0.7 * hit.vector + 0.3, abs=0.001)
    await space.close()


class Crowded:
    """A model whose cosines are all between 0.7 and 1, as some are: the packaged one with a direction that every vector shares."""

    id, model, dimensions, limits = "crowded", "crowded-v1", 385, BatchLimits()

    def __init__(self) -> None:
        self._inner = load_minilm(threads=1)
        self.asked: list[str] = []

    def embed_query(self, text: str) -> Vectors:
        self.asked.append(text)
        return np.asarray(self._crowded(self._inner.embed_query(text)[None])[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return self._crowded(self._inner.embed_documents(texts))

    def _crowded(self, rows: Vectors) -> Vectors:
        shared = np.full((len(rows), 1), np.sqrt(3.0), dtype=np.float32)
        return np.asarray(np.hstack([rows, shared]) / 2.0, dtype=np.float32)


LATIN: Final = {path: text for path, text in NOTES.items() if text.isascii()}


async def test_a_model_with_narrow_cosines_does_not_make_everything_an_answer(tmp_path: Path) -> None:
    """What its cosines mean is measured once, before it first serves a search; then scores are as with any other."""
    model = Crowded()
    space = await Space.open(
        tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.ready(model)), space_id="s"
    )
    await put(space, LATIN)
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    unrelated = SearchQuery("volcanoes of iceland")
    for _ in range(600):
        if (await space.index.searcher.search(unrelated)).mode == "hybrid":
            break
    assert not (await space.index.searcher.search(unrelated)).hits
    hit = await first(space, "the pool was empty")
    assert (hit.path, hit.vector is not None and hit.vector > 0.8) == ("memory/errors.md", True)
    assert len(model.asked) == len(PAIRS) + 2
    await space.close()


async def test_until_the_cosines_of_a_model_mean_something_words_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And say so; the scale is kept with the vectors, so a start again measures nothing."""
    monkeypatch.setattr(scoring, "MEASURED_WITHIN_S", 0.01)
    monkeypatch.setattr(scoring, "_known", {})
    model, gate = Crowded(), threading.Event()
    whole, judged = model.embed_documents, set(cohort.texts([]))

    def slow(texts: Sequence[str]) -> Vectors:
        if not judged.isdisjoint(texts):
            assert gate.wait(DEADLINE_S)
        return whole(texts)

    monkeypatch.setattr(model, "embed_documents", slow)
    key, shared = os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.ready(model))
    space = await Space.open(tmp_path / "s.db", key, shared, space_id="s")
    await put(space, LATIN)
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    early = await space.index.searcher.search(SearchQuery("volcanoes of iceland"))
    assert (early.hits, early.mode) == ([], "keyword")
    assert any("is being measured" in line for line in early.warnings)
    gate.set()
    for _ in range(600):
        if (await space.index.searcher.search(SearchQuery("the pool was empty"))).mode == "hybrid":
            break
        await asyncio.sleep(0.05)
    await space.close()
    scoring._known.clear()
    asked = len(model.asked)
    space = await Space.open(tmp_path / "s.db", key, shared, space_id="s")
    again = await space.index.searcher.search(SearchQuery("volcanoes of iceland"))
    await space.close()
    assert (again.hits, again.mode) == ([], "hybrid")
    assert len(model.asked) <= asked + 1


async def test_a_sure_hit_lifts_no_other(tmp_path: Path) -> None:
    """Each shows what is true of it alone: beside an answer, a note on another matter has the score that it has without one."""
    model = LoadedModel.ready(load_minilm(threads=1))
    space = await Space.open(tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), model), space_id="s")
    other = {"memory/other.md": "- the kettle in the kitchen is green, and the fridge next to it hums\n"}
    asked = SearchQuery("which colour does the billing service use for the kettle icon?", min_score=0.0)
    await put(space, other)
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    (alone,) = (await space.index.searcher.search(asked)).hits
    await put(space, {"memory/answer.md": "- the billing service uses green as the colour of the kettle icon\n"})
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    hits = (await space.index.searcher.search(asked)).hits
    await space.close()
    assert hits[0].path == "memory/answer.md"
    assert hits[0].score > 0.9
    assert hits[1].score <= alone.score + 0.02


SCRIPTS: Final = {
    "memory/thai.md": "- เซิร์ฟเวอร์หลักอยู่ที่กรุงเทพ\n",
    "memory/telugu.md": "- మా కార్యాలయం హైదరాబాద్‌లో ఉంది\n",
    "memory/amharic.md": "- ቢሮው በአዲስ አበባ ነው\n",
    "memory/emoji.md": "- 🔥🔥🔥\n",
    "memory/icons.md": "- \ue0b0\uf09b\n",
    "memory/mojibake.md": "- \ufffd\ufffd\ufffd \ufffd\ufffd\n",
    "memory/english.md": "- invoices go out on the first Monday of a month\n",
}


@pytest.mark.parametrize(
    "asked", ["ราคาข้าวเท่าไหร่", "నా పిల్లి పేరు ఏమిటి", "የድመቴ ስም ማን ነው", "🦊", "🦄🦄", "\uf015", "- \ue0a0", "\ufffd?"]
)
@pytest.mark.parametrize("is_unasked", [False, True])
async def test_letters_that_the_model_does_not_know_match_nothing(tmp_path: Path, asked: str, is_unasked: bool) -> None:
    """Such a text has no vector, whether it is asked or stored; and what has none is near to nothing, for duplicates too."""
    model = LoadedModel.ready(load_minilm(threads=1))
    space = await Space.open(tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), model), space_id="s")
    await put(space, SCRIPTS)
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    result = await space.index.searcher.search(SearchQuery(asked, is_unasked=is_unasked))
    await space.close()
    assert (result.hits, result.mode) == ([], "keyword")
    assert not load_minilm(threads=1).embed_documents([asked]).any()


@pytest.mark.parametrize("asked", ["?", '""', "...", "。", "\u200b", "---", "=> {}", "€"])
@pytest.mark.parametrize("is_unasked", [False, True])
async def test_a_question_without_words_is_near_to_nothing(tmp_path: Path, asked: str, is_unasked: bool) -> None:
    """The model gives signs a vector, which is that of a short text or of other signs: notes had a score of 0.9 by it."""
    model = LoadedModel.ready(load_minilm(threads=1))
    space = await Space.open(tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), model), space_id="s")
    await put(space, {"memory/signs.md": "---\n---\n", "memory/tea.md": "- tea\n", "memory/a.md": "A\n"})
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    searcher = space.index.searcher
    result = await searcher.search(SearchQuery(asked, is_unasked=is_unasked))
    helped = await searcher.search(SearchQuery(asked, keywords=("tea",), is_unasked=is_unasked))
    await space.close()
    assert (result.hits, result.mode) == ([], "keyword")
    assert any("no words" in warning for warning in result.warnings)
    assert {hit.path for hit in helped.hits} <= {"memory/tea.md"}


async def test_a_prompt_that_needs_no_memory_gets_nothing_beside_notes_on_the_like(tmp_path: Path) -> None:
    """What comes unasked has a score of its own; a prompt that a note helps with passes it."""
    model = LoadedModel.ready(load_minilm(threads=1))
    space = await Space.open(tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), model), space_id="s")
    await put(space, NOTES | {"memory/java.md": "- the importer is a Java program; its unit tests run at night\n"})
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    helped, everyday = "the pool in src/net is too small, make it larger", "write a method in Java"
    scores = {}
    for asked in (helped, everyday):
        for is_unasked in (False, True):
            query = SearchQuery(asked, min_score=0.0, is_unasked=is_unasked)
            scores[asked, is_unasked] = max(hit.score for hit in (await space.index.searcher.search(query)).hits)
    await space.close()
    assert scores[everyday, False] > 0.25
    assert scores[everyday, True] < HIT_SCORE < scores[helped, True]


async def test_a_prompt_about_one_ticket_gets_the_note_of_no_other(tmp_path: Path) -> None:
    model = LoadedModel.ready(load_minilm(threads=1))
    space = await Space.open(tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), model), space_id="s")
    text = "- SHOP-123: the cart loses items when the session expires\n- Invoice 4471 was refunded twice\n"
    await put(space, NOTES | {"memory/tickets.md": text})
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    best = {}
    for prompt in ("fix SHOP-123 please", "fix SHOP-124 please", "refund invoice 4471", "refund invoice 4472"):
        query = SearchQuery(question(prompt), min_score=0.0, is_unasked=True)
        best[prompt] = max(hit.score for hit in (await space.index.searcher.search(query)).hits) > HIT_SCORE
    await space.close()
    assert list(best.values()) == [True, False, True, False]


async def test_another_ticket_or_address_is_no_answer(space: Space) -> None:
    """A number that begins the one of the note, one that differs in a digit, alone and in a question; the right one is one for sure."""
    tickets = "- Ticket SHOP-1234 is open.\n\n# Network\n\n- The gateway is 10.0.0.12, port 80100.\n\n# Commits\n\n- fixed by a3f9c12\n"
    await put(space, {"memory/a.md": tickets})
    for asked in ("SHOP-123", "SHOP-1235", "10.0.0.1", "10.0.0.13", "is SHOP-123 open?", "8010", "a3f9c13b7d"):
        assert (await space.index.searcher.search(SearchQuery(asked))).hits == [], asked
    for asked in ("SHOP-1234", "10.0.0.12", "is SHOP-1234 open?", "80100", "a3f9c12b7d", "a3f9c12"):
        assert (await first(space, asked)).score > 0.8, asked
    (hit,) = (await space.index.searcher.search(SearchQuery("which gateway and port has the network of SHOP-77?"))).hits
    assert hit.score == pytest.approx(0.45, abs=0.01)


async def test_another_person_or_invoice_is_no_answer(space: Space) -> None:
    """The first name, or the kind of the thing, is the same."""
    people = "- Anna Berg's birthday is on 3 May.\n- Tom Price calls before noon.\n- Invoice number 4471 is paid.\n"
    await put(space, {"memory/a.md": people})
    for asked in ("When is Anna Strand's birthday?", "When does Tom Holm call?", "is invoice 4472 paid?"):
        assert (await space.index.searcher.search(SearchQuery(asked))).hits == [], asked
    for asked in ("When is Anna Berg's birthday?", "When does Tom Price call?", "is invoice 4471 paid?"):
        assert (await first(space, asked)).score > 0.8, asked
