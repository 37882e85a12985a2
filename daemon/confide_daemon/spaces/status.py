"""How a space is, as the tools and commands that show it get it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from confide_daemon.retrieval.indexing import serving
from confide_daemon.retrieval.indexing.indexer import Indexer
from confide_daemon.retrieval.indexing.model import Provider
from confide_daemon.retrieval.indexing.planner import Held, holdings, live_generation
from confide_daemon.retrieval.indexing.serving import GenerationStatus, ProviderStatus
from confide_daemon.retrieval.search.service import Searcher
from confide_daemon.spaces.maintenance import Health, Upkeep
from confide_daemon.store.rows import SourceCount
from confide_daemon.store.store import Store

# More are not told of, so that status stays small.
MAX_CLASHES = 21


@dataclass(frozen=True, slots=True)
class Clash:
    """A document whose newest text holds two versions of some lines."""

    project: str
    path: str
    revision: int


@dataclass(frozen=True, slots=True)
class SpaceStatus:
    """How a space is. Counts are of the projects asked for; queue, model and size are of the whole space."""

    space_id: str
    files: int
    chunks: int
    sources: dict[str, SourceCount]
    projects: list[str]
    provider: str | None
    model: str | None
    dimensions: int | None
    embedder: str  # loading, ready, failed
    queued: int  # pieces that wait for their vectors
    index_age_s: float  # how long the oldest of them has waited
    reembedding: tuple[int, int, int] | None  # (generation, done, total) while a new one is built
    size_bytes: int | None  # None: not told
    at_rest: str
    search_p50_ms: float | None
    search_p95_ms: float | None
    warnings: list[str]
    clashes: list[Clash]  # the first of them
    generations: list[GenerationStatus] = field(default_factory=list)
    providers: list[ProviderStatus] = field(default_factory=list)  # the wanted one first
    health: Health = field(default_factory=lambda: Health("ok", [], 0))


def read_status(
    store: Store,
    projects: frozenset[str] | None,
    *,
    space_id: str,
    indexer: Indexer,
    providers: Sequence[Provider],
    searcher: Searcher,
    upkeep: Upkeep,
) -> SpaceStatus:
    """How a space is, by its database and by what runs in it; counts for the given projects only (None: all)."""
    outlook = indexer.outlook()
    with store.reading():
        state = indexer.progress(store, outlook)
        sources = store.documents.counts(projects)
        held = holdings(store)
        total = state.total
        if projects is not None:
            # Who reaches some projects alone learns nothing of how much there is in others.
            total = sum(count.chunks for count in sources.values())
            held = [Held(one.generation, store.vectors.waiting_among(one.generation.id, projects)) for one in held]
            missing = {one.generation.id: one.missing for one in held}
            state = replace(state, total=total, done=total - missing.get(state.generation or 0, 0))
        live = live_generation(store)
        waited = store.vectors.oldest_waiting(live.id) if live is not None and state.done < total else None
        names = store.projects.names()
        size_bytes = store.size_bytes()
        clashes = store.documents.clashing(projects, limit=MAX_CLASHES)
    p50_ms, p95_ms = searcher.latencies()
    warnings = serving.warnings(providers, live)
    if indexer.failure is not None:
        warnings.append(f"indexing has stopped: {indexer.failure}")
    warnings += upkeep.warnings()
    return SpaceStatus(
        space_id=space_id,
        files=sum(count.files for count in sources.values()),
        chunks=sum(count.chunks for count in sources.values()),
        sources=sources,
        projects=[name for name in names if projects is None or name in projects],
        provider=live.provider if live else None,
        model=live.model if live else None,
        dimensions=live.dimensions if live else None,
        embedder=providers[0].model.state,
        queued=state.total - state.done,
        index_age_s=0.0 if waited is None else max(0.0, time.time() - waited),
        reembedding=(state.generation, state.done, state.total)
        if state.building and state.generation is not None
        else None,
        size_bytes=size_bytes,
        at_rest="encrypted (AEGIS-256)",
        search_p50_ms=p50_ms,
        search_p95_ms=p95_ms,
        warnings=warnings,
        clashes=[Clash(*clash) for clash in clashes],
        generations=serving.generation_status(held, state.generation if state.building else None, total),
        providers=[serving.provider_status(provider) for provider in providers],
        health=upkeep.health(),
    )
