"""The generations of vectors in a space: which one serves, which are filled, which are dropped; and
the status of them and their models.

Decisions keep no state. The first configured model is the wanted one. Its generation is filled and,
once complete, becomes live. While that model cannot be used (down for a while, refused, its budget
spent), the next model in order does the same with a generation of its own. Generations of
configured models are never dropped: when the first model recovers, only missing vectors have to be
embedded, however often that happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel, Condition, ModelStatus
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation


@dataclass(frozen=True, slots=True)
class Patience:
    """The outage, in seconds, after which the next model takes over.

    A free model takes over soon. A paid model would have to embed everything, so it waits until the
    outage is clearly more than a restart or a rate limit.
    """

    free_s: float = 60.0
    paid_s: float = 900.0


PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class GenerationGap:
    """A generation and the number of chunks without a vector in it."""

    generation: Generation
    missing: int


def live_generation(store: Store) -> Generation | None:
    """Return the live generation, or None if no generation is live yet."""
    return next((one for one in store.vectors.generations() if one.live), None)


def holdings(store: Store) -> list[GenerationGap]:
    """Return all generations, oldest first, each with the number of chunks that lack a vector."""
    return [GenerationGap(one, store.vectors.waiting_count(one.id)) for one in store.vectors.generations()]


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """The next steps. `add` and `fill` name models by their index in the configured order."""

    target: int | None = None  # the model whose generation should serve; None: undecided
    drop: tuple[int, ...] = ()  # generations that are no longer needed
    add: int | None = None  # the model that needs a new generation
    add_live: bool = False  # make it live at once, since no generation is
    swap: int | None = None  # the generation to make live; the one before stays until it is dropped
    fill: tuple[tuple[int, int], ...] = ()  # (generation, model) that lack vectors, in this order
    probe: tuple[int, ...] = ()  # models that are down and are tried again

    @property
    def changes(self) -> bool:
        """True if the plan adds a generation or makes one live."""
        return self.add is not None or self.swap is not None


def decide(
    held: Sequence[GenerationGap],
    models: Sequence[ModelStatus],
    *,
    renew: bool = False,
    patience: Patience = PATIENCE,
    is_aside_wanted: bool = False,
) -> GenerationPlan:
    """Plan the next steps for these generations, oldest first, and these models, the wanted one
    first.

    `renew`: the operator requested a new generation of the model that should serve.
    `is_aside_wanted`: there are texts or questions for the model aside, which gets a generation
    beside the live one.
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
    """Return the newest generation of this name if it is to replace the live one, None if it is the
    live one.
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
    """Return the generations that may answer a search with their models, best first.

    The live one comes first, even if incomplete (missing chunks are found by words), then complete
    ones in the order of their models.
    """
    places = {model.name: place for place, model in reversed(list(enumerate(models))) if not model.is_aside}
    usable = [(one, places[one.generation.name]) for one in held if one.generation.name in places]
    whole = [(one, place) for one, place in usable if one.generation.live or not one.missing]
    whole.sort(key=lambda pair: (not pair[0].generation.live, pair[1]))
    return [(one.generation, place) for one, place in whole]


ALONE = "found by keywords alone"


def loading(provider: BudgetedModel) -> str:
    """Return the message for a model that is not loaded yet."""
    failure = provider.model.failure
    return "the embedding model is still loading" + (f": {failure}" if failure is not None else "")


# Share of a budget from which Confide warns that it is nearly used up.
BUDGET_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class GenerationStatus:
    """The vectors of one model. `state`: live, building (becomes live when complete), standby (used
    if no other model serves).
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
    """Return the status of all generations, oldest first. `building`: the one that becomes live
    next.
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
    """Return the warnings about models, for users."""
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
