"""A new format of chunks: the old ones answer until those of their document are complete, and no text is embedded twice."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.providers.generations import MarkedEmbedder, handle, opened, until

from confide_daemon.config import ChunkSettings
from confide_daemon.embedding import BatchLimits, LoadedModel, Vectors
from confide_daemon.embedding.token_counts import count_tokens
from confide_daemon.retrieval.chunker import cut
from confide_daemon.retrieval.indexing import indexer
from confide_daemon.retrieval.indexing.generations import Patience
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space
from confide_daemon.store.rows import Piece

FILES = 20
ENTRIES = 6
BESIDE = "a note of one paragraph is cut as before: {n}"


class Counting(MarkedEmbedder):
    """Counts the texts of documents; other texts are the daemon's own."""

    def __init__(self) -> None:
        super().__init__("model-0", 0, limits=BatchLimits(texts=4))
        self.seen: Counter[str] = Counter()
        self.asked = threading.Event()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self.asked.set()
        found = super().embed_documents(texts)
        self.seen.update(text for text in texts if text.startswith(("- entry", BESIDE[:10])))
        return found


@dataclass(frozen=True, slots=True)
class OldChunks(ChunkSettings):
    """The settings of the version before."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "48/0/3")


def old_cut(text: str, settings: ChunkSettings, *, is_log: bool = False) -> list[Piece]:
    """Packs lines from the front, whatever they are."""
    found: list[Piece] = []
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        joined = f"{found[-1].text}\n{line}" if found else ""
        if found and count_tokens(joined) <= settings.size:
            found[-1] = Piece(found[-1].start_line, number, joined, "", count_tokens(joined))
        else:
            found.append(Piece(number, number, line, "", count_tokens(line)))
    return found


def log(number: int) -> str:
    return "\n".join(
        f"- entry {number} {n}: the pool word{number}x{n} of the service was empty" for n in range(ENTRIES)
    )


def settings(chunks: ChunkSettings) -> IndexSettings:
    return IndexSettings(chunks, patience=Patience(0.0, 0.0))


async def of_before(path: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space as the version before leaves it."""
    with monkeypatch.context() as patch:
        patch.setattr(indexer, "cut", old_cut)
        async with opened(path, [model], settings=settings(OldChunks())) as space:
            for number in range(FILES):
                await space.documents.put("p", f"memory/log-{number}.md", log(number), base=0, author="a")
                text = BESIDE.format(n=number)
                await space.documents.put("p", f"memory/beside-{number}.md", text, base=0, author="a")
            await space.wait_indexed(timeout_s=DEADLINE_S)
            assert await left(space) == 0


async def found(space: Space, word: str) -> tuple[str, str, str, float | None]:
    result = await space.index.searcher.search(SearchQuery(word, min_score=0.0, max_results=1))
    first = result.hits[0]
    return result.mode, first.path, first.snippet, first.vector


async def left(space: Space) -> int:
    """How many documents are cut as before."""
    chunking = space.index.indexer.derivation.chunking
    return len(await space.threads.read(lambda store: store.documents.documents_to_cut(chunking, limit=1000)))


async def test_all_is_found_at_every_moment_while_chunks_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By words and by meaning; afterwards an entry is found without its neighbours."""
    old, new = Counting(), Counting()
    await of_before(tmp_path / "s.db", handle(old), monkeypatch)
    async with opened(tmp_path / "s.db", [handle(new)], settings=settings(ChunkSettings())) as space:
        built = asyncio.create_task(space.wait_indexed(timeout_s=DEADLINE_S))
        asked = 0
        while not built.done() or asked < FILES:
            number, entry = asked % FILES, asked % ENTRIES
            mode, path, snippet, vector = await found(space, f"word{number}x{entry}")
            assert (mode, path) == ("hybrid", f"memory/log-{number}.md")
            assert f"word{number}x{entry}" in snippet
            assert vector is not None
            assert (await space.status(None)).queued_pieces == 0
            asked += 1
        assert built.result()
        assert await left(space) == 0
        _, _, snippet, _ = await found(space, "word3x2")
        assert snippet == log(3).split("\n")[2]
    assert set(new.seen.values()) == {1}
    assert not set(new.seen) & set(old.seen)
    assert set(new.seen) == {piece.text for number in range(FILES) for piece in cut(log(number), ChunkSettings())}


async def test_a_kill_in_the_middle_costs_no_more_than_the_last_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the database holds while a call is under way is whole, and the work goes on from there."""
    await of_before(tmp_path / "s.db", handle(Counting()), monkeypatch)
    first, second = Counting(), Counting()
    async with opened(tmp_path / "s.db", [handle(first)], settings=settings(ChunkSettings())) as space:
        while await left(space) > FILES:
            await space.index.indexer.wait_move(DEADLINE_S)
        first.open.clear()
        first.asked.clear()
        assert await asyncio.to_thread(first.asked.wait, DEADLINE_S)  # so nothing is written until it answers
        for file in tmp_path.glob("s.db*"):
            shutil.copy(file, tmp_path / file.name.replace("s.db", "killed.db"))
        done = Counter(first.seen)
        first.open.set()
    async with opened(tmp_path / "killed.db", [handle(second)], settings=settings(ChunkSettings())) as space:
        assert 0 < await left(space) < 2 * FILES
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert await left(space) == 0
        for number in range(FILES):
            mode, path, _, vector = await found(space, f"word{number}x1")
            assert (mode, path, vector is None) == ("hybrid", f"memory/log-{number}.md", False)
    assert done
    assert not set(second.seen) & set(done)
    assert set(second.seen.values()) == {1}


async def test_what_is_written_meanwhile_is_found_and_a_model_that_is_away_keeps_the_old_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed document gets its new chunks at once; the others when the model can be asked again."""
    await of_before(tmp_path / "s.db", handle(Counting()), monkeypatch)
    model = Counting()
    model.open.clear()
    async with opened(tmp_path / "s.db", [handle(model)], settings=settings(ChunkSettings())) as space:
        before = await left(space)
        row = await space.documents.put("p", "memory/new.md", "- a zebra came by\n", base=0, author="a")
        assert row.revision == 1
        hits = (await space.index.searcher.search(SearchQuery("zebra", min_score=0.0))).hits
        assert hits[0].path == "memory/new.md"
        assert await left(space) == before
        model.open.set()
        await until(space, lambda status: status.queued_pieces == 0)
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert await left(space) == 0


async def test_without_a_model_chunks_are_made_anew_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await of_before(tmp_path / "s.db", LoadedModel.none(), monkeypatch)
    async with opened(tmp_path / "s.db", [LoadedModel.none()], settings=settings(ChunkSettings())) as space:
        await until(space, lambda status: status.chunks == FILES * (ENTRIES + 1))
        assert await left(space) == 0
