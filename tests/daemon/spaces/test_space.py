"""A space as the server uses it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.deadline import DEADLINE_S

from confide_daemon.config import ChunkSettings
from confide_daemon.documents.transcripts import MessageBatch, SessionName, TranscriptMessage
from confide_daemon.embedding import Embedder, LoadedModel, Vectors
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.embedding.token_counts import count_tokens
from confide_daemon.errors import EmbedderError, InvalidPathError, NotFoundError, StorageError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_memory.documents import text_hash

KEY = os.urandom(32)
LOG = "# Log\n\n## Decisions\n\n- we chose postgres because of row level security\n\n## Bugs\n\nERR_CONN_42: the pool was empty\n"


async def open_space(path: Path, handle: LoadedModel | None = None, settings: IndexSettings | None = None) -> Space:
    return await Space.open(
        path,
        KEY,
        SpaceShared(settings or IndexSettings(), handle or LoadedModel.ready(HashedEmbedder(64))),
        space_id="s",
    )


@pytest_asyncio.fixture
async def space(tmp_path: Path) -> AsyncIterator[Space]:
    opened = await open_space(tmp_path / "s.db")
    yield opened
    await opened.close()


class Gate(HashedEmbedder):
    """A model that embeds documents only while the gate is open."""

    def __init__(self, model: str = "words-v1") -> None:
        super().__init__(64, model=model)
        self.open = threading.Event()
        self.embedded: list[str] = []

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        assert self.open.wait(DEADLINE_S)
        self.embedded += texts
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> Vectors:
        return HashedEmbedder(64, model=self.model).embed_documents([text])[0]


async def found(space: Space, text: str, **limits: object) -> list[str]:
    result = await space.index.searcher.search(replace(SearchQuery(text, min_score=0.0), **limits))  # type: ignore[arg-type]
    return [hit.path for hit in result.hits]


# ---------------------------------------------------------------- search


async def test_a_document_is_found_by_its_words_when_put_returns(tmp_path: Path) -> None:
    """Without any model as well, which the answer says."""
    space = await open_space(tmp_path / "s.db", LoadedModel.none())
    await space.documents.put("p", "memory/2026-11-20.md", LOG, base=0, author="alice")
    result = await space.index.searcher.search(SearchQuery("why did we choose postgres?"))
    (hit, *_) = result.hits
    assert (hit.path, hit.start_line, hit.end_line, hit.author) == ("memory/2026-11-20.md", 1, 5, "alice")
    assert hit.snippet == "\n".join(LOG.split("\n")[hit.start_line - 1 : hit.end_line])
    assert hit.heading == "Log > Decisions"
    assert (result.mode, hit.vector) == ("keyword", None)
    assert any("no embedding model" in warning for warning in result.warnings)
    assert not await space.wait_indexed(timeout_s=5)
    await space.close()


async def test_searches_go_by_keywords_until_the_model_is_there(tmp_path: Path) -> None:
    """And are hybrid once it has loaded and embedded what waited."""
    gate = threading.Event()

    def load() -> Embedder:
        gate.wait(DEADLINE_S)
        return HashedEmbedder(64)

    space = await open_space(tmp_path / "s.db", LoadedModel(load))
    await space.documents.put("p", "a.md", LOG, base=0, author="alice")
    result = await space.index.searcher.search(SearchQuery("postgres"))
    assert result.hits
    assert result.mode == "keyword"
    assert any("still loading" in warning for warning in result.warnings)
    gate.set()
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    result = await space.index.searcher.search(SearchQuery("postgres"))
    assert result.mode == "hybrid"
    assert result.warnings == []
    assert result.hits[0].vector is not None
    assert {"embed", "keyword", "vector", "fuse", "total"} <= result.timings.keys()
    await space.close()


async def test_pieces_that_wait_for_their_vectors_are_found_and_counted(tmp_path: Path) -> None:
    """A search never waits for indexing; it says how much is missing and for how long."""
    gate = Gate()
    space = await open_space(tmp_path / "s.db", LoadedModel.ready(gate))
    gate.open.set()
    await space.documents.put("p", "a.md", LOG, base=0, author="alice")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    gate.open.clear()
    await space.documents.put("p", "b.md", "kubernetes upgrade notes\n", base=0, author="alice")
    result = await space.index.searcher.search(SearchQuery("kubernetes upgrade"))
    assert [hit.path for hit in result.hits] == ["b.md"]
    assert any("not embedded yet" in warning for warning in result.warnings)
    assert result.index_age_s >= 0
    assert (await space.status(None)).queued_pieces == 1
    gate.open.set()
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    assert (await space.status(None)).queued_pieces == 0
    await space.close()


async def test_nothing_below_the_threshold_is_returned(space: Space) -> None:
    """A question about something else gets nothing, not the least bad piece."""
    await space.documents.put("p", "a.md", LOG, base=0, author="alice")
    await space.wait_indexed(timeout_s=DEADLINE_S)
    assert (await space.index.searcher.search(SearchQuery("volcanoes of iceland", min_score=0.25))).hits == []
    assert (await space.index.searcher.search(SearchQuery("row level security"))).hits


async def test_neighbours_that_are_both_found_become_one_hit(tmp_path: Path) -> None:
    """With their lines once, in their order, as they stand in the file; also where pieces overlap."""
    for name, chunks in (("a", ChunkSettings(16, 0)), ("b", ChunkSettings(24, 12))):
        space = await open_space(tmp_path / f"{name}.db", LoadedModel.none(), IndexSettings(chunks))
        text = "\n".join(f"- line {n} of the pool notes, with words" for n in range(3)) + "\n\n\n- the pool notes end\n"
        await space.documents.put("p", "a.md", text, base=0, author="alice")
        (hit, *_) = (await space.index.searcher.search(SearchQuery("pool notes", min_score=0.0))).hits
        assert hit.snippet == "\n".join(text.split("\n")[hit.start_line - 1 : hit.end_line])
        assert hit.end_line > hit.start_line
        await space.close()


async def test_the_budget_of_tokens_holds(space: Space) -> None:
    """All snippets together; the best piece comes even when it alone is over."""
    for n in range(20):
        await space.documents.put(
            "p", f"{n}.md", f"note {n} about the pool and its many connections\n", base=0, author="alice"
        )
    result = await space.index.searcher.search(
        SearchQuery("pool connections", min_score=0.0, max_results=20, max_tokens=40)
    )
    assert 2 <= len(result.hits) < 6
    assert sum(count_tokens(hit.snippet) for hit in result.hits) <= 40
    result = await space.index.searcher.search(SearchQuery("pool connections", min_score=0.0, max_tokens=1))
    assert len(result.hits) == 1


async def test_limits_of_a_query(space: Space) -> None:
    """Projects, path, source, days, count."""
    await space.documents.put("p", "memory/2026-11-20.md", "the pool was empty\n", base=0, author="a")
    talk = TranscriptMessage("user", "the pool was empty", datetime(2026, 11, 19, tzinfo=UTC))
    await space.transcripts.take(MessageBatch(SessionName("p", "codex", "s"), 0, 0, 9, "", "", (talk,)), author="a")
    await space.documents.put("q", "memory/x.md", "the pool was empty\n", base=0, author="a")
    assert len(await found(space, "pool")) == 3
    assert await found(space, "pool", projects=frozenset({"q", "global"})) == ["memory/x.md"]
    assert await found(space, "pool", projects=frozenset()) == []
    assert await found(space, "pool", sources=frozenset({"sessions"})) == ["sessions/2026-11-19-codex-s.md"]
    assert await found(space, "pool", path="memory/2026-*") == ["memory/2026-11-20.md"]
    day = datetime(2026, 11, 20, 15, tzinfo=UTC)
    assert await found(space, "pool", since=day, until=day) == ["memory/2026-11-20.md"]
    assert len(await found(space, "pool", max_results=1)) == 1


async def test_ranks_order_by_what_they_say(space: Space) -> None:
    """Recency by the day a log is about; balanced weighs it in."""
    await space.documents.put("p", "memory/2020-01-01.md", "the pool pool pool was empty\n", base=0, author="a")
    await space.documents.put(
        "p", "memory/2026-11-20.md", "the pool was empty and many other things were said that day\n", base=0, author="a"
    )
    assert (await found(space, "pool empty"))[0] == "memory/2020-01-01.md"
    assert (await found(space, "pool empty", rank="recency"))[0] == "memory/2026-11-20.md"
    assert (await found(space, "pool empty", rank="balanced"))[0] == "memory/2026-11-20.md"
    assert len(await found(space, "pool empty", rank="importance")) == 2


async def test_a_first_note_can_be_found(space: Space) -> None:
    """One document in an empty space: a natural question about it does not come back empty at the default threshold."""
    await space.documents.put(
        "p", "memory/a.md", "We chose postgres because of row level security.\n", base=0, author="a"
    )
    for question in ("why did we choose postgres", "postgres", "row level security?"):
        assert (await space.index.searcher.search(SearchQuery(question))).hits, question


# ---------------------------------------------------------------- documents


async def test_a_version_made_from_the_newest_replaces_it(space: Space) -> None:
    """And the same again changes nothing."""
    first = await space.documents.put("p", "a.md", "one\n", base=0, author="alice")
    second = await space.documents.put("p", "a.md", "two\n", base=first.revision, author="bob")
    again = await space.documents.put("p", "a.md", "two\n", base=1, author="carol")
    assert (first.revision, second.revision, again.revision) == (1, 2, 2)
    assert (second.changed, again.changed, again.merged) == (True, False, False)
    document = await space.documents.read("p", "a.md")
    assert (document.text, document.author, document.hash) == ("two\n", "bob", text_hash("two\n"))
    assert (await space.documents.read("p", "a.md", revision=1)).text == "one\n"


async def test_versions_from_two_machines_are_merged(space: Space) -> None:
    """The answer carries the result; what clashed can be read in the history as it was sent."""
    await space.documents.put("p", "log.md", "one\ntwo\nthree\n", base=0, author="a")
    await space.documents.put("p", "log.md", "ONE\ntwo\nthree\n", base=1, author="a")
    merged = await space.documents.put("p", "log.md", "one\ntwo\nTHREE\n", base=1, author="b")
    assert (merged.text, merged.merged, merged.clash) == ("ONE\ntwo\nTHREE\n", True, False)
    clash = await space.documents.put("p", "log.md", "uno\ntwo\nthree\n", base=1, author="c")
    assert clash.clash
    assert clash.hash == text_hash(clash.text)
    assert "ONE" in clash.text
    assert "uno" in clash.text
    sent = await space.documents.read("p", "log.md", revision=clash.revision - 1)
    assert (sent.text, sent.author) == ("uno\ntwo\nthree\n", "c")
    assert (await space.documents.read("p", "log.md")).text == clash.text


async def test_many_machines_writing_at_once_lose_nothing(space: Space) -> None:
    """Every line that was acknowledged is in the document."""
    await space.documents.put("p", "log.md", "# Log\n", base=0, author="a")
    await asyncio.gather(
        *(space.documents.append("p", "log.md", f"- entry {n}", heading=None, author=f"m{n}") for n in range(30)),
        *(space.documents.put("p", "log.md", f"# Log\n- put {n}\n", base=1, author=f"m{n}") for n in range(10)),
    )
    text = (await space.documents.read("p", "log.md")).text
    assert all(f"- entry {n}\n" in text for n in range(30))
    assert all(f"- put {n}\n" in text for n in range(10))


async def test_appending_makes_what_is_missing(space: Space) -> None:
    """Document and section; the answer tells what the file held before."""
    first = await space.documents.append(
        "p", "memory/2026-11-21.md", "- a fact\n- another", heading="Facts", author="a"
    )
    assert (first.previous_hash, first.lines_written, first.revision) == (None, 2, 1)
    second = await space.documents.append("p", "memory/2026-11-21.md", "- third", heading="Facts", author="a")
    assert second.previous_hash == first.hash
    assert second.text == "## Facts\n\n- a fact\n- another\n- third\n"


async def test_replacing_a_section_or_the_whole(space: Space) -> None:
    """A section that is not there is an error that names the others."""
    await space.documents.put("p", "a.md", LOG, base=0, author="a")
    assert await found(space, "ERR_CONN_42") == ["a.md"]
    result = await space.documents.replace("p", "a.md", "none so far", heading="Bugs", author="a")
    assert result.text.endswith("## Bugs\n\nnone so far\n")
    for _ in range(2):  # by words alone, and by vectors, which find anything there is where no threshold is asked
        hits = (await space.index.searcher.search(SearchQuery("ERR_CONN_42", min_score=0.0))).hits
        assert [hit for hit in hits if hit.keyword or "ERR_CONN_42" in hit.snippet] == []
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
    with pytest.raises(NotFoundError) as caught:
        await space.documents.replace("p", "a.md", "x", heading="Plans", author="a")
    assert "Decisions" in str(caught.value.hint)
    assert (await space.documents.replace("p", "a.md", "all new", heading=None, author="a")).text == "all new\n"


async def test_removal_needs_the_newest_revision(space: Space) -> None:
    """A document that changed meanwhile stays, and its text comes back; a removed one keeps its history."""
    await space.documents.put("p", "a.md", "one\n", base=0, author="a")
    await space.documents.put("p", "a.md", "two\n", base=1, author="a")
    refused = await space.documents.remove("p", "a.md", base=1, author="b")
    assert (refused.removed, refused.revision, refused.text) == (False, 2, "two\n")
    done = await space.documents.remove("p", "a.md", base=2, author="b")
    assert (done.removed, done.revision) == (True, 3)
    assert await found(space, "two") == []
    with pytest.raises(NotFoundError):
        await space.documents.read("p", "a.md")
    assert (await space.documents.read("p", "a.md", revision=2)).text == "two\n"
    assert (await space.documents.put("p", "a.md", "back\n", base=0, author="a")).revision == 4


async def test_a_wrong_name_gets_names_like_it(space: Space) -> None:
    """Of the same project only."""
    await space.documents.put("p", "memory/2026-11-20.md", "x\n", base=0, author="a")
    await space.documents.put("secret", "memory/2026-11-22.md", "x\n", base=0, author="a")
    with pytest.raises(NotFoundError) as caught:
        await space.documents.read("p", "memory/2026-11-21.md")
    assert caught.value.hint == "did you mean memory/2026-11-20.md?"
    with pytest.raises(InvalidPathError):
        await space.documents.put("p", "../x.md", "x\n", base=0, author="a")


async def test_comparison_of_states(space: Space) -> None:
    """Each way a machine and the space can differ, in one exchange."""

    async def put(path: str, *versions: str) -> None:
        for base, text in enumerate(versions):
            await space.documents.put("p", path, text, base=base, author="a")

    await put("same.md", "s\n")
    await put("known-elsewhere.md", "k\n")
    await put("newer-here.md", "old\n", "new\n")
    await put("edited-there.md", "old\n")
    await put("both-edited.md", "old\n", "here\n")
    await put("never-had.md", "n\n")
    await put("deleted-there.md", "d\n")
    await put("deleted-there-changed-here.md", "d\n", "d2\n")
    await put("deleted-here.md", "d\n")
    await space.documents.remove("p", "deleted-here.md", base=1, author="a")
    await put("deleted-here-edited-there.md", "d\n")
    await space.documents.remove("p", "deleted-here-edited-there.md", base=1, author="a")
    h = text_hash
    result = await space.documents.compare(
        "p",
        [
            ("same.md", h("s\n"), 1),
            ("known-elsewhere.md", h("k\n"), 0),
            ("newer-here.md", h("old\n"), 1),
            ("edited-there.md", h("edited\n"), 1),
            ("both-edited.md", h("there\n"), 1),
            ("brand-new.md", h("b\n"), 0),
            ("lost-by-daemon.md", h("l\n"), 7),
            ("deleted-here.md", h("d\n"), 1),
            ("deleted-here-edited-there.md", h("edited\n"), 1),
        ],
        [("deleted-there.md", 1, None), ("deleted-there-changed-here.md", 1, None), ("unknown.md", 3, None)],
        author="b",
    )
    assert sorted(result.send) == [
        "both-edited.md",
        "brand-new.md",
        "deleted-here-edited-there.md",
        "edited-there.md",
        "lost-by-daemon.md",
    ]
    assert result.adopt == [("known-elsewhere.md", 1)]
    assert sorted(result.pull) == [
        ("deleted-there-changed-here.md", 2, h("d2\n")),
        ("never-had.md", 1, h("n\n")),
        ("newer-here.md", 2, h("new\n")),
    ]
    assert sorted(result.drop) == [("deleted-here.md", 2), ("deleted-there.md", 2), ("unknown.md", 0)]
    with pytest.raises(NotFoundError):
        await space.documents.read("p", "deleted-there.md")


# ---------------------------------------------------------------- index


async def test_a_store_that_nobody_waits_for_any_more_is_indexed_too(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection broke while the writer's thread was at it: what was kept gets its vectors, and not only at the next store."""
    await space.documents.put("p", "memory/first.md", "One line.\n", base=0, author="alice")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    has_begun, may_go_on = threading.Event(), threading.Event()
    put = space._writer.put

    def slow(*arguments: Any, **options: Any) -> Any:
        has_begun.set()
        assert may_go_on.wait(DEADLINE_S)
        return put(*arguments, **options)

    monkeypatch.setattr(space._writer, "put", slow)
    storing = asyncio.create_task(space.documents.put("p", "memory/a.md", LOG, base=0, author="alice"))
    assert await asyncio.to_thread(has_begun.wait, 30)
    storing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await storing
    may_go_on.set()
    await space.threads.write(lambda _store: None)
    assert "memory/a.md" in await found(space, "postgres")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)


async def test_a_changed_model_is_built_beside_and_swapped(tmp_path: Path) -> None:
    """Until it is complete, searches go by keywords and say so; then every vector is of the new model."""
    path = tmp_path / "s.db"
    space = await open_space(path)
    await space.documents.put("p", "a.md", LOG, base=0, author="a")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    await space.close()
    other = Gate("words-v2")
    space = await open_space(path, LoadedModel.ready(other))
    result = await space.index.searcher.search(SearchQuery("postgres"))
    assert result.hits
    assert result.mode == "keyword"
    assert any("being built" in warning for warning in result.warnings)
    other.open.set()
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    result = await space.index.searcher.search(SearchQuery("postgres row level"))
    assert result.mode == "hybrid"
    status = await space.status(None)
    assert (status.model, status.reembedding, status.queued_pieces) == ("words-v2", None, 0)
    await space.close()
    # Back to the first model: its vectors were kept, so nothing is embedded.
    first = Gate("words-v1")
    space = await open_space(path, LoadedModel.ready(first))
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    assert first.embedded == []
    await space.close()


async def test_a_rebuild_with_new_vectors_keeps_answering(space: Space) -> None:
    """The old generation serves meanwhile, so no search falls back to keywords."""
    for n in range(40):
        await space.documents.put("p", f"{n}.md", f"note {n} about the pool\n", base=0, author="a")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    before = (await space.status(None)).size_bytes
    result = await space.rebuild(reembed=True)
    assert (result.added_pieces, result.kept_pieces, result.removed_pieces) == (0, 40, 0)
    done = asyncio.create_task(space.wait_indexed(timeout_s=DEADLINE_S))
    while not done.done():
        assert (await space.index.searcher.search(SearchQuery("note pool", min_score=0.0))).mode == "hybrid"
    assert done.result()
    assert before > 0


async def test_other_chunk_settings_take_hold_at_the_next_start(tmp_path: Path) -> None:
    """Documents are cut again in the background."""
    path = tmp_path / "s.db"
    space = await open_space(path)
    await space.documents.put(
        "p", "a.md", "\n\n".join(f"paragraph {n} about the pool" for n in range(60)), base=0, author="a"
    )
    small = (await space.status(None)).chunks
    await space.close()
    space = await open_space(path, settings=IndexSettings(ChunkSettings(400, 80)))
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    large = (await space.status(None)).chunks
    assert 1 < large < small / 4
    await space.close()


async def test_indexing_goes_on_after_a_restart(tmp_path: Path) -> None:
    """What had no vector when the daemon ended gets one after it starts again."""
    path = tmp_path / "s.db"
    space = await open_space(path, LoadedModel.none())
    await space.documents.put("p", "a.md", LOG, base=0, author="a")
    await space.close()
    space = await open_space(path)
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    assert (await space.index.searcher.search(SearchQuery("postgres"))).mode == "hybrid"
    await space.close()


async def test_a_model_that_fails_stops_the_indexing_and_says_so(tmp_path: Path) -> None:
    """Stores and searches go on; the reason is in the status."""

    class Broken(HashedEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> Vectors:
            raise EmbedderError("the embedding model failed: OutOfMemory")

    space = await open_space(tmp_path / "s.db", LoadedModel.ready(Broken(64)))
    await space.documents.put("p", "a.md", LOG, base=0, author="a")
    assert not await space.wait_indexed(timeout_s=DEADLINE_S)
    result = await space.index.searcher.search(SearchQuery("postgres"))
    assert result.hits
    assert any("OutOfMemory" in warning for warning in (await space.status(None)).warnings)
    await space.close()


async def test_status_counts_only_the_projects_asked_for(space: Space) -> None:
    """So that a narrowed caller learns nothing of the rest."""
    await space.documents.put("p", "a.md", LOG, base=0, author="a")
    await space.documents.put("q", "b.md", "x\n", base=0, author="a")
    status = await space.status(frozenset({"q"}))
    assert (status.files, status.chunks, status.projects) == (1, 1, ["q"])


async def test_a_closed_space_refuses_work(tmp_path: Path) -> None:
    """With our own error, not a crash of a thread."""
    space = await open_space(tmp_path / "s.db")
    await space.close()
    with pytest.raises(StorageError, match="closed"):
        await space.index.searcher.search(SearchQuery("x"))


async def test_progress_is_told_while_waiting(tmp_path: Path) -> None:
    """Done of total, ending complete."""
    gate = Gate()
    space = await open_space(tmp_path / "s.db", LoadedModel.ready(gate))
    for n in range(80):
        await space.documents.put("p", f"{n}.md", f"note {n}\n", base=0, author="a")
    seen: list[tuple[int, int]] = []
    waiting = asyncio.create_task(
        space.wait_indexed(timeout_s=DEADLINE_S, progress=lambda done, total: seen.append((done, total)))
    )
    gate.open.set()
    assert await waiting
    assert seen[-1] == (80, 80)
    assert seen == sorted(seen)
    await space.close()
