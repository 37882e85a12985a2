"""kill -9 while a space is written and indexed: every acknowledged write is there afterwards, and the index heals itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.kills.crash_writer import text_of

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.database import connect

WRITER = Path(__file__).parents[2] / "support" / "kills" / "crash_writer.py"
ROUNDS = int(os.environ.get("CONFIDE_CRASH_ROUNDS", "2"))


Writer = subprocess.Popen[str]


@pytest.fixture(scope="module")
def writer() -> Iterator[Writer]:
    """The process that forks those that write."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(WRITER)], stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.communicate(timeout=DEADLINE_S)


def run_and_kill(
    writer: Writer, path: Path, key: bytes, start: int, mode: str, after_s: float
) -> dict[int, tuple[int, int]]:
    """{document: (version, revision)} of what was acknowledged before the process was killed."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(f"{key.hex()} {start} {mode} {path}\n")
    writer.stdin.flush()
    pid = int(writer.stdout.readline())
    assert writer.stdout.readline() == "open\n"
    # The moment of the kill is the one thing here that is meant to be a matter of time.
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    acknowledged = {}
    while (line := writer.stdout.readline()) != "over\n":
        assert line, "the writer has ended"
        match line.split():
            case ["ack", number, version, revision]:  # one that was cut off is none
                acknowledged[int(number)] = (int(version), int(revision))
    return acknowledged


def sound(path: Path, key: bytes) -> None:
    """What SQLite and FTS5 themselves say, before anything heals it."""
    connection = connect(path, key, writer=True)
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert (
        connection.execute("SELECT count(*) FROM chunk").get
        == connection.execute("SELECT count(*) FROM keyword_docsize WHERE id > 0").get
    )
    connection.close()


async def check(path: Path, key: bytes, acknowledged: dict[int, tuple[int, int]], model: str) -> None:
    handle = LoadedModel.ready(HashedEmbedder(64, model=model))
    space = await Space.open(path, key, SpaceShared(IndexSettings(), handle), space_id="crash")
    for number, (version, revision) in acknowledged.items():
        document = await space.documents.read("p", f"{number}.md")
        # A write may be on the disk whose acknowledgement the kill cut off; never an older one.
        assert document.revision in (revision, revision + 1)
        found = int(document.text.split("version")[1].split()[0])
        assert document.text == text_of(number, found)
        assert found >= version
        result = await space.index.searcher.search(SearchQuery(f"document{number} version{found}", min_score=0.0))
        assert result.hits[0].path == f"{number}.md"
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    status = await space.status(None)
    assert status.queued_pieces == 0
    assert status.reembedding is None
    assert status.model == model
    for number in acknowledged:
        result = await space.index.searcher.search(SearchQuery(f"document{number}", min_score=0.0))
        assert result.mode == "hybrid"
        assert all(hit.vector is not None for hit in result.hits)
    await space.close()


@pytest.mark.parametrize("mode", ["put", "index", "generation"])
@pytest.mark.timeout(300)
def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path, writer: Writer, mode: str) -> None:
    """The same database survives one kill after the other, and every search after it is whole."""
    path, key = tmp_path / "space.db", os.urandom(32)
    chance = random.Random(11)
    known: dict[int, tuple[int, int]] = {}
    for turn in range(ROUNDS):
        start = turn * 10_000
        known |= run_and_kill(writer, path, key, start, mode, chance.uniform(0.0, 0.5))
        sound(path, key)
        model = f"words-{start}-after" if mode == "generation" else "words"
        asyncio.run(check(path, key, known, model))
        known = {}
    assert turn == ROUNDS - 1
