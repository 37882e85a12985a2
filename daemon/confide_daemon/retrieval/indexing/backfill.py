"""Adds missing vectors to a generation (one model's set of vectors for all chunks). They come from
the cache or else from the model, in calls of the size that the model takes.

It also embeds texts of chunks that are yet to be made. So a document that is divided into other
chunks keeps its old ones until the new ones have their vectors. The vectors of each call are stored
as soon as it returns, so that paid results survive a failed parallel call or a crash.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from confide_crypto.errors import ConfideError
from confide_daemon.embedding import Vectors
from confide_daemon.errors import BudgetError, EmbedderError
from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel, MonthlyBudget, in_thread
from confide_daemon.store.rows import WaitingPiece
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation
from confide_daemon.store.threads import StoreThreads

log = logging.getLogger(__name__)
T = TypeVar("T")

# Most chunks read at once, however many a provider takes: about 1 MiB of text.
MOST_READ = 2048
# Vectors stored in one transaction, so that no other write waits for more than some milliseconds.
STORED_AT_ONCE = 256
# The id of a chunk that is not in the database yet; those that are begin with 1.
YET_TO_COME = 0


@dataclass(eq=False, slots=True)
class Filling:
    """Adds the missing vectors of one generation with its model, some at a time."""

    _threads: StoreThreads
    _budget: MonthlyBudget
    _generation: Generation
    _provider: BudgetedModel
    _on_computed: Callable[[int], None] = lambda _count: None
    """Called with the number of chunks that received a newly computed vector."""
    _on_texts: Callable[[Sequence[str]], None] = lambda _texts: None
    """Called with the texts of each call that succeeded."""
    _after: int = 0  # chunks up to this id were read; new ones have higher ids

    async def round(self) -> bool:
        """Run as many calls as the model takes at once, and store their vectors. Return False if no
        chunk was waiting for a vector, else True.

        Raises EmbedderError if a call failed, in which case the results of the others are stored;
        BudgetError if the budget does not allow another call.
        """
        waiting, known = await self._read()
        if not waiting:
            return False
        have = [(piece, known[piece.hash]) for piece in waiting if piece.hash in known]
        for start in range(0, len(have), STORED_AT_ONCE):
            await self._store(have[start : start + STORED_AT_ONCE])
        unknown: dict[bytes, list[WaitingPiece]] = {}
        for piece in waiting:
            if piece.hash not in known:
                unknown.setdefault(piece.hash, []).append(piece)
        if not unknown or await self._embed(list(unknown.values())):
            self._after = waiting[-1].id
        return True

    async def round_ahead(self, texts: Sequence[WaitingPiece]) -> bool:
        """Compute vectors for some texts of chunks that do not exist yet (`YET_TO_COME`), and store
        them in the cache. Return False if all vectors were cached already, else True.

        Raises EmbedderError if a call failed; BudgetError if the budget does not allow another
        call.
        """
        limits = self._provider.limits
        most = min(MOST_READ, limits.texts * limits.concurrency)

        def read(store: Store) -> set[bytes]:
            if not any(one.id == self._generation.id for one in store.vectors.generations()):
                return {piece.hash for piece in texts}  # dropped meanwhile
            return set(store.vectors.known_vectors(self._generation, [piece.hash for piece in texts]))

        known = await self._threads.write(read)
        unknown = {piece.hash: [piece] for piece in texts if piece.hash not in known}
        if not unknown:
            return False
        await self._embed(list(unknown.values())[:most])
        return True

    async def _read(self) -> tuple[list[WaitingPiece], dict[bytes, Vectors]]:
        limits = self._provider.limits
        most = min(MOST_READ, limits.texts * limits.concurrency)

        def read(store: Store) -> tuple[list[WaitingPiece], dict[bytes, Vectors]]:
            if not any(one.id == self._generation.id for one in store.vectors.generations()):
                return [], {}  # dropped meanwhile
            found = store.vectors.waiting(self._generation.id, after=self._after, limit=most)
            if not found and self._after:
                self._after = 0  # chunks left by a failed call
                found = store.vectors.waiting(self._generation.id, after=0, limit=most)
            known = store.vectors.known_vectors(self._generation, [piece.hash for piece in found])
            return found, dict(known)

        return await self._threads.write(read)

    async def _embed(self, texts: list[list[WaitingPiece]]) -> bool:
        """Embed each text once for all chunks that share it; return True if all texts fitted into
        one round of calls.
        """
        await self._threads.write(lambda store: store.check_room())
        failures: list[ConfideError] = []
        calls: list[tuple[list[list[WaitingPiece]], int]] = []
        try:
            for call in _calls(texts, self._provider):
                tokens = sum(pieces[0].tokens for pieces in call)
                self._provider.spend(tokens)
                calls.append((call, tokens))
        except BudgetError as error:
            failures.append(error)
        if self._provider.is_counted and calls:
            # Save the count before sending: it holds even if the daemon dies during the call.
            try:
                await self._threads.write(self._budget.flush)
            except ConfideError:
                self._provider.give_back(sum(tokens for _, tokens in calls))
                raise
        results = await asyncio.gather(*(self._call(call, tokens) for call, tokens in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, ConfideError):
                failures.append(result)
            elif isinstance(result, BaseException):
                raise result
        if failures:
            self._after = 0
            # An outage or refusal says more than a budget that is nearly spent.
            raise min(failures, key=lambda error: isinstance(error, BudgetError))
        return sum(len(call) for call, _ in calls) == len(texts)

    async def _call(self, texts: list[list[WaitingPiece]], tokens: int) -> None:
        try:
            rows = await in_thread(lambda: self._provider.model.embed([pieces[0].text for pieces in texts]))
        except EmbedderError:
            self._provider.give_back(tokens)
            raise
        self._provider.note(tokens)
        pairs = [(piece, row) for pieces, row in zip(texts, rows, strict=True) for piece in pieces]
        for start in range(0, len(pairs), STORED_AT_ONCE):
            await self._store(pairs[start : start + STORED_AT_ONCE])
        self._on_computed(len(pairs))
        self._on_texts([pieces[0].text for pieces in texts])

    async def _store(self, pairs: Sequence[tuple[WaitingPiece, Vectors]]) -> None:
        def keep(store: Store) -> None:
            generation = self._generation
            with store.writing_derived():
                is_there = any(one.id == generation.id for one in store.vectors.generations())
                if is_there and pairs[0][0].id != YET_TO_COME:
                    store.vectors.add(generation.id, [(piece.id, vector) for piece, vector in pairs])
                else:  # yet to be cut, or dropped during the call: keep the paid results in the cache
                    store.vectors.keep(generation, [(piece.hash, vector) for piece, vector in pairs], now=time.time())

        await self._threads.write(keep)


def _calls(texts: list[list[WaitingPiece]], provider: BudgetedModel) -> list[list[list[WaitingPiece]]]:
    """Split the texts into calls of the size that the model takes, at most its number of parallel
    calls.
    """
    limits = provider.limits
    calls: list[list[list[WaitingPiece]]] = []
    while texts and len(calls) < limits.concurrency:
        count = limits.fit(pieces[0].tokens for pieces in texts)
        calls.append(texts[:count])
        texts = texts[count:]
    return calls
