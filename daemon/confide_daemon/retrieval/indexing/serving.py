"""Which generation answers a search, the question's vector of the same model, and how generations and models stand, as status shows it.

The question is embedded before the view of the database is opened, since that may take a second; whether its model still serves is
looked at in the view. A ranking is of one generation whole: the live one, or, when its model cannot be asked now, another that lacks
nothing. What has no vector is found by its words.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from confide_daemon.embedding import Vectors
from confide_daemon.embedding.model import QUERY_DEADLINE_S
from confide_daemon.errors import EmbedderError
from confide_daemon.retrieval.indexing.model import Provider
from confide_daemon.retrieval.indexing.planner import Condition, Held, holdings, servers
from confide_daemon.store.rows import Generation
from confide_daemon.store.store import Store

ALONE = "found by keywords alone"
# Questions that wait for a slow provider at once; each waits for its model's deadline at most.
THREADS = 4
# With the time until one of the threads is free; a little more than the model takes, whose error says more.
ASK_S = QUERY_DEADLINE_S + 0.25


@dataclass(frozen=True, slots=True)
class Asked:
    """A question's vector, or the reasons why there is none."""

    name: str | None = None  # of the model it is from (provider/model/dimensions)
    vector: Vectors | None = None
    tried: frozenset[str] = frozenset()  # all that were asked
    failures: tuple[str, ...] = ()  # why those before it, or all, gave none
    embed_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What a search uses: a generation and a vector of its model, or neither. `is_stale`: ask again, another one serves now."""

    generation: Generation | None = None
    vector: Vectors | None = None
    warnings: list[str] = field(default_factory=list)
    age_s: float = 0.0
    is_stale: bool = False


class Serving:
    """For one space. `turned` is called when a model that was asked turns out to be down, or back."""

    def __init__(self, providers: Sequence[Provider], turned: Callable[[], None]) -> None:
        self._providers = providers
        self._turned = turned
        self._order: tuple[tuple[str, int], ...] = ()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="confide-ask")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def look(self, store: Store) -> None:
        """Notes which generations can serve now."""
        models = [provider.standing() for provider in self._providers]
        self._order = tuple((generation.name, place) for generation, place in servers(holdings(store), models))

    async def ask(self, text: str) -> Asked:
        """The question's vector of the first model that can give it, among those whose generation can serve."""
        tried: list[str] = []
        failures: list[str] = []
        started = time.perf_counter()
        for name, place in self._order:
            provider = self._providers[place]
            tried.append(name)
            before = provider.standing().condition
            try:
                if provider.model.remembers(text):
                    vector = provider.query_vector(text)
                else:
                    asking = asyncio.get_running_loop().run_in_executor(self._threads, provider.query_vector, text)
                    vector = await asyncio.wait_for(asking, ASK_S)
            except EmbedderError as error:
                failures.append(str(error))
                vector = None
            except TimeoutError:
                failures.append(f"{provider.model.label} is still busy with other questions")
                vector = None
            if provider.standing().condition is not before:
                self._turned()
            if vector is not None:
                elapsed = (time.perf_counter() - started) * 1e3
                return Asked(name, vector, frozenset(tried), tuple(failures), elapsed)
        return Asked(tried=frozenset(tried), failures=tuple(failures))

    def choose(self, store: Store, asked: Asked, *, now: float) -> Choice:
        """What to search with; in the view of the store that the search is made in."""
        generations = store.vectors.generations()
        live = next((one for one in generations if one.live), None)
        used = next((one for one in generations if one.name == asked.name and one.live), None)
        if used is None:
            self.look(store)
            if any(name not in asked.tried for name, _ in self._order):
                return Choice(is_stale=True)
        if used is None and asked.name is not None:
            whole = [one for one in generations if one.name == asked.name and store.vectors.waiting_count(one.id) == 0]
            used = whole[-1] if whole else None
        missing = store.vectors.waiting_count(live.id) if live is not None else 0
        age = max(0.0, now - (store.vectors.oldest_waiting(live.id) or now)) if live is not None and missing else 0.0
        if used is None:
            return Choice(warnings=[f"{self._why_not(asked)}; {ALONE}"], age_s=age)
        warnings = []
        if not used.live:
            warnings.append(f"{'; '.join(asked.failures)}; found with {used.provider}/{used.model} meanwhile")
        elif missing:
            warnings.append(f"{missing} pieces are not embedded yet; they are found by keywords alone")
        return Choice(used, asked.vector, warnings, age)

    def _why_not(self, asked: Asked) -> str:
        if asked.failures:
            return asked.failures[0]
        wanted = self._providers[0]
        if wanted.model.state == "loading":
            return loading(wanted)
        if wanted.model.embedder is None and wanted.model.failure is not None:
            return str(wanted.model.failure)
        return "the index is being built with the embedding model"


def loading(provider: Provider) -> str:
    """What is said of a model that is not there yet."""
    failure = provider.model.failure
    return "the embedding model is still loading" + (f": {failure}" if failure is not None else "")


# From here on a budget is spoken of before it is used up.
BUDGET_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class GenerationStatus:
    """The vectors of one model. `state`: live, building (it will serve when it is complete), standby (it would serve if it had to)."""

    id: int
    provider: str
    model: str
    dimensions: int
    state: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    name: str
    model: str | None
    state: str  # loading, ready, down, refused
    reason: str | None  # why it cannot be used; for people
    retry_in_s: float | None  # until it is tried again by itself
    tokens: int | None  # sent this month by this space; None where nothing is counted (models on this machine)
    cost_usd: float | None  # of those tokens; None where the price is not known
    monthly_tokens: int | None  # the budget; None: there is none


def generation_status(held: Sequence[Held], building: int | None, total: int) -> list[GenerationStatus]:
    """All of them, the oldest first. `building`: the one that is to serve next."""
    found = []
    for generation, missing in ((one.generation, one.missing) for one in held):
        state = "live" if generation.live else "building" if generation.id == building else "standby"
        model = (generation.id, generation.provider, generation.model, generation.dimensions)
        found.append(GenerationStatus(*model, state, total - missing, total))
    return found


def provider_status(provider: Provider) -> ProviderStatus:
    condition = provider.standing().condition
    reason = None if condition is Condition.READY else provider.reason
    price = provider.model.price_per_million
    tokens = provider.tokens_used if provider.is_counted else None
    return ProviderStatus(
        name=provider.model.label,
        model=provider.model_name,
        state=condition.name.lower(),
        reason=None if reason is None else str(reason),
        retry_in_s=provider.retry_in_s,
        tokens=tokens,
        cost_usd=None if tokens is None or price is None else round(tokens * price / 1e6, 6),
        monthly_tokens=provider.model.monthly_tokens or None,
    )


def warnings(providers: Sequence[Provider], live: Generation | None) -> list[str]:
    """What a person should know of the models."""
    said = []
    serving = next((one for one in providers if live is not None and one.name == live.name), None)
    for place, provider in enumerate(providers):
        condition = provider.standing().condition
        if condition is Condition.LOADING and place == 0:
            said.append(f"{loading(provider)}; {ALONE}")
        elif condition in (Condition.DOWN, Condition.REFUSED):
            then = f"; {ALONE}" if place == 0 else ""
            if serving is not None and serving is not provider:
                then = f"; {serving.model.label} serves meanwhile"
            said.append(f"{provider.reason or provider.model.label + ' is down'}{then}")
        limit = provider.model.monthly_tokens
        if limit and not provider.is_spent and provider.tokens_used >= BUDGET_SHARE * limit:
            said.append(f"{provider.tokens_used:,} of {limit:,} tokens with {provider.model.label} are used this month")
    return said
