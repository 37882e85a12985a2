"""Processes that store, search and change models until they are killed; what happened stands in a file, one JSON object a line.

    python generation_writer.py

Reads one JSON object a line: {"database", "key", "seed", "order", "crash_at", "out", "known"}. For each it forks a process that has
everything imported, waits for its end and answers with its exit code. `order` names the models that are configured, the wanted one
first; that one goes down and comes back by the seed. At the step numbered `crash_at` (a transaction begun, about to commit or committed, a
call begun or answered) the process kills itself with SIGKILL, so every place in between can be reached on purpose; 0 never does.
`known` (path to the texts it may have, null: none) instead of stores: they are looked for, and every vector is compared with its model.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.deadline import DEADLINE_S
from tests.support.providers.generations import MarkedEmbedder, handle, model_of

from confide_daemon.embedding import BatchLimits, Vectors
from confide_daemon.embedding.token_counts import count_tokens
from confide_daemon.errors import NotFoundError, ProviderDownError
from confide_daemon.retrieval.indexing.generations import Patience
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store import database as sqlite
from confide_daemon.store import space_store as opening
from confide_daemon.store.space_store import Store

QUERY = "pool number"
SETTINGS = IndexSettings(patience=Patience(0.02, 0.02))
DOWN = ProviderDownError("cannot reach the provider")
STORES = 14
FILES = 40


class Crash:
    """Counts the steps of all threads, and ends the process at one of them. Also looks at every swap just after it."""

    def __init__(self, at: int, tell: Callable[..., None]) -> None:
        self._at = at
        self._tell = tell
        self._steps = itertools.count(1)
        self._live: int | None = None

    def step(self) -> int:
        number = next(self._steps)
        if number == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    def around_transactions(self) -> None:
        """Puts a step before, in and after every transaction of the store."""
        original = sqlite.transaction

        @contextmanager
        def stepping(database: Any) -> Iterator[None]:
            self.step()
            with original(database):
                yield
                self.step()  # all is written, nothing is committed
            self._look(database)
            self.step()

        sqlite.transaction = opening.transaction = stepping  # type: ignore[assignment]

    def _look(self, database: Any) -> None:
        live = [identity for (identity,) in database.execute("SELECT id FROM generation WHERE state = 'live'")]
        assert len(live) <= 1
        if live and self._live not in (None, live[0]):
            self._tell("swapped")
            missing = f"SELECT count(*) FROM chunk WHERE id NOT IN (SELECT chunk FROM vector_{live[0]})"
            assert database.execute(missing).get == 0, "a generation was swapped in that was not complete"
        self._live = live[0] if live else None


class Telling(MarkedEmbedder):
    """Tells which texts of documents it has embedded, before anybody has their vectors."""

    def __init__(self, place: int, crash: Crash, tell: Callable[..., None]) -> None:
        super().__init__(
            f"model-{place}", place, provider=f"provider-{place}", limits=BatchLimits(texts=4, concurrency=2)
        )
        self._crash = crash
        self._tell = tell

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self._crash.step()
        rows = super().embed_documents(texts)
        if own := [text for text in texts if text.startswith("note ")]:
            self._tell("embedded", model=self.model, texts=own)
        self._crash.step()
        return rows


async def run(task: dict[str, Any]) -> None:
    """One process's work. Raises AssertionError where something is not as it should be."""
    out = os.open(task["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(event: str, **facts: Any) -> None:
        # In one write, so that a kill cannot cut it.
        os.write(out, (json.dumps({"event": event, **facts}) + "\n").encode())

    crash = Crash(task["crash_at"], tell)
    crash.around_transactions()
    both = [Telling(place, crash, tell) for place in (0, 1)]
    chance = random.Random(task["seed"])
    order = [both[place] for place in task["order"]]

    async def search(space: Space) -> None:
        result = await space.index.searcher.search(SearchQuery(QUERY, min_score=0.0, max_results=50))
        tell("searched", mode=result.mode, model=model_of(QUERY, result, both), hits=len(result.hits))

    space = await Space.open(
        Path(task["database"]),
        bytes.fromhex(task["key"]),
        SpaceShared(SETTINGS, [handle(one, monthly_tokens=10**9) for one in order]),
        space_id="g",
    )
    tell("open")
    await search(space)
    for count in range(0 if task["known"] is not None else STORES):
        path = f"memory/{chance.randrange(FILES)}.md"
        text = f"note number{count} version{task['seed']} about the pool\n"
        tell("storing", path=path, text=text)
        await space.documents.replace("p", path, text, heading=None, author="a")
        tell("stored", path=path, text=text)
        order[0].failure = DOWN if chance.random() < 0.4 else None
        await search(space)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 0.04)
    order[0].failure = None
    for path, texts in (task["known"] or {}).items():
        assert await text_of(space, path) in texts, f"{path} was acknowledged and is not there"
    # Whatever served at first, in the end it is the wanted model, whole.
    async with asyncio.timeout(60):
        while (
            (status := await space.status(None)).model != order[0].model or status.queued_pieces or status.reembedding
        ):
            await search(space)
            await asyncio.sleep(0.05)
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    await search(space)
    await space.threads.read(lambda store: every_vector_is_of_its_model(store, both))
    tell("done", model=status.model, steps=crash.step())
    await space.close()


async def text_of(space: Space, path: str) -> str | None:
    """The document's newest text, None where there is no such document."""
    try:
        return (await space.documents.read("p", path)).text
    except NotFoundError:
        return None


def every_vector_is_of_its_model(store: Store, both: Sequence[MarkedEmbedder]) -> None:
    """In every generation, whether it serves or not."""
    from confide_daemon.store.tables.pieces import piece_hash

    texts = {piece_hash(row.text): row.text for row in store.pieces.hits(list(range(1, 20_000))).values()}
    for generation in store.vectors.generations():
        model = next(one for one in both if one.model == generation.model)
        for digest, vector in store.vectors.known_vectors(generation, list(texts)).items():
            np.testing.assert_allclose(vector, model._vectors([texts[digest]])[0], atol=1e-5)


def serve() -> None:
    """Forks a process for each line."""
    count_tokens("everything is loaded")
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio.run(run(json.loads(line)))
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


if __name__ == "__main__":
    serve()
