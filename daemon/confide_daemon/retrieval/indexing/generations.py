"""Manages the generations of a space; a generation is one model's set of vectors for all chunks.
Decides which one serves searches, which are filled and which are dropped, and reports their status.

Decisions keep no state. The first configured model is the wanted one. Its generation is filled and,
once complete, becomes live, which means that it serves searches. While that model cannot be used
(it is down for a while, or refuses, or its budget is used up), the next model in order does the
same with a generation of its own. Generations of configured models are never dropped. So when the
first model recovers, only missing vectors have to be computed, however often that happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel, Condition, ModelStatus
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds a model must be down before the next model takes over.

    A model that costs nothing takes over soon. A paid model would have to embed everything, so it
    waits until the outage is clearly more than a restart or a rate limit.
    """

    free_s: float = 60.0
    paid_s: float = 900.0


PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class GenerationGap:
    """A generation (one model's set of vectors), and the number of chunks for which it has no
    vector yet.
    """

    generation: Generation
    missing: int


def live_generation(store: Store) -> Generation | None:
    """Return the live generation, whose vectors serve searches, or None if there is none yet."""
    return next((one for one in store.vectors.generations() if one.live), None)


def holdings(store: Store) -> list[GenerationGap]:
    """Return all generations of a space, oldest first, each with the number of chunks for which it
    has no vector yet.
    """
    return [GenerationGap(one, store.vectors.waiting_count(one.id)) for one in store.vectors.generations()]


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """The next steps of the indexer. `add` and `fill` identify models by their index in the
    configured order.
    """

    target: int | None = None  # the model whose generation should serve; None: undecided
    drop: tuple[int, ...] = ()  # generations that are no longer needed
    add: int | None = None  # the model that needs a new generation
    add_live: bool = False  # make it live at once, since no generation is
    swap: int | None = None  # the generation to make live; the one before stays until it is dropped
    fill: tuple[tuple[int, int], ...] = ()  # (generation, model) that lack vectors, in this order
    probe: tuple[int, ...] = ()  # models that are down and are tried again

    @property
    def changes(self) -> bool:
        """True if the plan adds a generation or makes another one live."""
        return self.add is not None or self.swap is not None


def decide(
    held: Sequence[GenerationGap],
    models: Sequence[ModelStatus],
    *,
    renew: bool = False,
    patience: Patience = PATIENCE,
    is_aside_wanted: bool = False,
) -> GenerationPlan:
    """Plan the next steps of the indexer. The generations are given oldest first, and the models
    with the wanted one first.

    `renew`: True if the operator requested a new generation of the model that should serve.
    `is_aside_wanted`: True if there are texts or queries for the multilingual model, which then
    gets a generation beside the live one.
    """
    target = _target(models, patience)
    wanted = None if target is None else models[target].name
    live = next((one for one in held if one.generation.live), None)
    building = None if renew else successor(held, wanted)
    add = target if wanted is not None and building is None and (renew or _name(live) != wanted) else None
    if add is None and is_aside_wanted and live is not None:
        add = _missing_aside(held, models)
    swap = building if building is not None and building.missing == 0 else None
    serving = building or (live if _name(live) == wanted else None)
    drop = list(_superfluous_generations(held, {model.name for model in models}))
    fill = tuple(_fill([one for one in held if one not in drop], models, live, serving))
    return GenerationPlan(
        target=target,
        drop=tuple(one.generation.id for one in drop),
        add=add,
        add_live=live is None,
        swap=swap.generation.id if swap else None,
        fill=fill,
        probe=tuple(_probe(models, {place for _, place in fill})),
    )


def _missing_aside(held: Sequence[GenerationGap], models: Sequence[ModelStatus]) -> int | None:
    """Return the model aside if it is ready and has no generation."""
    names = {one.generation.name for one in held}
    for place, model in enumerate(models):
        if model.is_aside and model.condition is Condition.READY and model.name not in names:
            return place
    return None


def successor(held: Sequence[GenerationGap], name: str | None) -> GenerationGap | None:
    """Return the newest generation of the model with this name, if it will replace the live one.
    Return None if it is the live one, or there is none.
    """
    newest = next((one for one in reversed(held) if one.generation.name == name), None)
    return None if newest is None or newest.generation.live else newest


def _superfluous_generations(held: Sequence[GenerationGap], names: set[str | None]) -> Iterable[GenerationGap]:
    """Yield generations that have a newer one of the same model, or whose model is not configured."""
    newest = {one.generation.name: one for one in held}
    for one in held:
        # The name of a model that is not loaded is unknown: any generation may be its own.
        is_strange = None not in names and one.generation.name not in names
        if not one.generation.live and (is_strange or newest[one.generation.name] is not one):
            yield one


def _name(held: GenerationGap | None) -> str | None:
    return held.generation.name if held else None


def _target(models: Sequence[ModelStatus], patience: Patience) -> int | None:
    """Return the first usable model; None (undecided) while an earlier one loads or has not been
    down for long enough.
    """
    models = [model for model in models if not model.is_aside]  # they come last
    for place, model in enumerate(models):
        if model.condition is Condition.READY:
            return place
        if model.condition is Condition.LOADING:
            return None
        if model.condition is Condition.DOWN:
            after = next((one for one in models[place + 1 :] if one.condition is Condition.READY), None)
            if model.outage_s < (patience.free_s if after is None or after.is_free else patience.paid_s):
                return None
    return None


def _fill(
    kept: Sequence[GenerationGap],
    models: Sequence[ModelStatus],
    live: GenerationGap | None,
    serving: GenerationGap | None,
) -> Iterable[tuple[int, int]]:
    """Yield the (generation, model) pairs to fill: the live one first so that new documents are
    found, the next to serve, then free ones.
    """
    places = {model.name: place for place, model in enumerate(models) if model.can_embed}
    for one in kept:
        place = places.get(one.generation.name)
        if place is None or not one.missing:
            continue
        # The wanted model's generation is always filled. Those of a paid model that is not needed
        # now are not.
        if one is live or one is serving or place == 0 or models[place].is_free:
            yield one.generation.id, place


def _probe(models: Sequence[ModelStatus], filled: set[int]) -> Iterable[int]:
    """Yield models to probe for recovery: those that no other work calls, if another model could
    serve in their place.
    """
    if sum(not model.is_aside for model in models) < 2:
        return
    for place, model in enumerate(models):
        if model.is_due and not model.is_aside and place not in filled:
            yield place


def servers(held: Sequence[GenerationGap], models: Sequence[ModelStatus]) -> list[tuple[Generation, int]]:
    """Return the generations that may answer a search, best first, each with the index of its
    model.

    The live one comes first, even if it is incomplete, because chunks without a vector are found by
    their words. The complete ones follow in the order of their models.
    """
    places = {model.name: place for place, model in reversed(list(enumerate(models))) if not model.is_aside}
    usable = [(one, places[one.generation.name]) for one in held if one.generation.name in places]
    whole = [(one, place) for one, place in usable if one.generation.live or not one.missing]
    whole.sort(key=lambda pair: (not pair[0].generation.live, pair[1]))
    return [(one.generation, place) for one, place in whole]


ALONE = "found by keywords alone"


def loading(provider: BudgetedModel) -> str:
    """Return the message that a model is not loaded yet, for users."""
    failure = provider.model.failure
    return "the embedding model is still loading" + (f": {failure}" if failure is not None else "")


# Share of a budget from which Confide warns that it is nearly used up.
BUDGET_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class GenerationStatus:
    """The progress of one model's vectors. `state` is live (serves searches), building (becomes
    live when complete), or standby (used if no other model can serve).
    """

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
    reason: str | None  # why it cannot be used, as a message
    retry_in_s: float | None  # until the next automatic retry
    tokens: int | None  # sent this month by this space; None if not counted (local models)
    cost_usd: float | None  # of those tokens; None if the price is unknown
    monthly_tokens: int | None  # the budget; None: unlimited


def generation_status(held: Sequence[GenerationGap], building: int | None, total: int) -> list[GenerationStatus]:
    """Return the status of all generations, oldest first. `building` is the id of the one that
    becomes live next, or None.
    """
    found = []
    for generation, missing in ((one.generation, one.missing) for one in held):
        state = "live" if generation.live else "building" if generation.id == building else "standby"
        model = (generation.id, generation.provider, generation.model, generation.dimensions)
        found.append(GenerationStatus(*model, state, total - missing, total))
    return found


def provider_status(provider: BudgetedModel) -> ProviderStatus:
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


def warnings(providers: Sequence[BudgetedModel], live: Generation | None) -> list[str]:
    """Return the warnings about models that users see, such as that one is down or its budget is
    nearly used up.
    """
    said = []
    serving = next((one for one in providers if live is not None and one.name == live.name), None)
    for place, provider in enumerate(providers):
        if provider.model.is_aside:
            continue  # a search that needs it says what it lacks
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
